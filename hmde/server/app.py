"""The app: which address is answered by what. /docs describes the endpoints to users."""

from __future__ import annotations

from collections.abc import Sequence

import uvicorn
from fastapi import Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import HTMLResponse
from fastapi_offline import FastAPIOffline
from prometheus_fastapi_instrumentator import Instrumentator

from hmde.index.index import Index
from hmde.server.endpoints import Endpoints
from hmde.server.guards import Limits, Requests, required, say_errors

CONNECTIONS = 1024  # at once; a client above them is answered 503
SECONDS_TO_STOP = 30  # for requests that are being answered when the server is told to stop


def serve(
    index: Index, host: str, port: int, token: str | None = None, cors: Sequence[str] = (), root_path: str = ""
) -> None:
    """Serves an index until the process gets SIGTERM or SIGINT, then answers what has arrived and returns.

    Args:
        index, token, cors: as in `make_app`.
        root_path: under which a proxy shows the server.
    """
    uvicorn.run(
        make_app(index, token, cors=cors),
        host=host,
        port=port,
        root_path=root_path,
        access_log=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )


def make_app(
    index: Index,
    token: str | None = None,
    limits: Limits = Limits(),  # noqa: B008
    *,
    cors: Sequence[str] = (),
) -> FastAPI:
    """The app of an index.

    Args:
        index: it may be changed, here or by other processes.
        token: what clients must send; None if all may ask.
        limits: of requests.
        cors: origins of pages elsewhere that may ask from a browser, such as https://example.org; * for all.
    """
    app = FastAPIOffline(title="Search across languages", description="Search in an index, embeddings and reranking.")
    if cors:
        app.add_middleware(CORSMiddleware, allow_origins=cors, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(GZipMiddleware, minimum_size=1024)
    app.add_middleware(Requests, body_bytes=limits.body_bytes)
    say_errors(app)
    answer, allowed = Endpoints(index, limits), [Depends(required(token))]
    metrics = Instrumentator(should_group_status_codes=False).instrument(app, metric_namespace="hmde")
    metrics.expose(app, dependencies=allowed)
    app.post("/search", dependencies=allowed)(answer.search)
    app.post("/v1/embeddings", dependencies=allowed)(answer.embeddings)
    app.post("/rerank", dependencies=allowed)(answer.rerank)
    for version in ("v1", "v2"):  # where clients of Jina and Cohere ask
        app.post(f"/{version}/rerank", dependencies=allowed, include_in_schema=False)(answer.rerank)
    app.get("/v1/models", dependencies=allowed)(answer.models)
    app.get("/health")(answer.health)
    app.get("/", dependencies=allowed, response_class=HTMLResponse, include_in_schema=False)(answer.page)
    return app
