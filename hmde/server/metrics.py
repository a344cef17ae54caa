"""What Prometheus reads: how many requests, how long they took, and how many texts were encoded together."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest


class Metrics:
    """The metrics of one app."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "hmde_requests", "Requests, by path and status.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "hmde_request_seconds", "From request to answer, by path.", ["path"], registry=registry
        )
        self.texts_together = Histogram(
            "hmde_texts_together",
            "Texts encoded in one call.",
            buckets=[1, 2, 4, 8, 16, 32, 64, 128, 256],
            registry=registry,
        )

    async def measure(self, request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Middleware that counts and times each request."""
        began, status = time.perf_counter(), 500
        try:
            response = await answer(request)
            status = response.status_code
        finally:
            path = getattr(request.scope.get("route"), "path", "other")
            self._requests.labels(path, status).inc()
            self._seconds.labels(path).observe(time.perf_counter() - began)
        return response

    async def shown(self) -> Response:
        """For Prometheus."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
