"""What is refused before anything is computed: bodies too large or too slow, and requests without the token. Every
error is {"error": {"message", "type"}}, which OpenAI's clients read."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBasic, HTTPBasicCredentials, HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hmde.index.snapshot import InvalidCondition, UnknownLanguage
from hmde.server.batching import Overloaded


@dataclass(frozen=True)
class Limits:
    """What a request, and what all that wait, may hold."""

    characters: int = 100_000  # of a text
    texts: int = 256  # of a request, beside its question, and encoded together
    waiting: int = 4096  # texts of all requests, for each way of encoding them
    body_bytes: int = 32 * 2**20
    body_seconds: float = 30.0  # from the head of a request to its last byte

    def check(self, texts: list[str]) -> None:
        """
        Raises:
            HTTPException: 400, there are too many texts, or one is too long.
        """
        if len(texts) > self.texts:
            raise HTTPException(400, f"there are {len(texts)} texts; send at most {self.texts} together")
        for number, text in enumerate(texts):
            if len(text) > self.characters:
                message = f"text {number} has {len(text)} characters; send at most {self.characters}"
                raise HTTPException(400, message)


def required(token: str | None) -> Callable[..., None]:
    """A dependency that asks for a token, if there is one: as a bearer token, or as a browser's password."""

    def check(
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
        basic: Annotated[HTTPBasicCredentials | None, Depends(HTTPBasic(auto_error=False))],
    ) -> None:
        given = bearer.credentials if bearer else basic.password if basic else ""
        if token and not secrets.compare_digest(given.encode(), token.encode()):
            message = "this server asks for a token; send it as `Authorization: Bearer TOKEN`, or as a password"
            raise HTTPException(401, message, {"WWW-Authenticate": 'Basic realm="search"'})

    return check


class BodyLimit:
    """Middleware that reads the body of a request, at most so large and so slowly, before the app sees it."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._body(receive), self.limits.body_seconds)
        except asyncio.TimeoutError:
            message = f"the request did not arrive within {self.limits.body_seconds:.0f} seconds"
            await error_response(408, message)(scope, receive, send)
            return
        if body is None:
            message = f"the request is larger than {self.limits.body_bytes} bytes; send fewer texts"
            await error_response(413, message)(scope, receive, send)
            return
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        await self.app(scope, replay, send)

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None if it is too large."""
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.limits.body_bytes:
                return None
            if not message.get("more_body"):
                return bytes(body)


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    message = message.encode(errors="backslashreplace").decode()  # it may name a lone surrogate, which UTF-8 lacks
    return JSONResponse({"error": {"message": message, "type": kind}}, status, headers)


def say_errors(app: FastAPI) -> None:
    """Let the app answer errors by `error_response`."""

    @app.exception_handler(StarletteHTTPException)
    async def refused(_: object, error: StarletteHTTPException) -> JSONResponse:
        return error_response(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: object, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return error_response(422, f"{where}: {first['msg']}" if where else str(first["msg"]))

    @app.exception_handler(UnknownLanguage)
    @app.exception_handler(InvalidCondition)
    async def impossible(_: object, error: ValueError) -> JSONResponse:
        return error_response(400, str(error))

    @app.exception_handler(Overloaded)
    async def overloaded(_: object, error: Overloaded) -> JSONResponse:
        return error_response(503, str(error), {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def failed(_: object, error: Exception) -> JSONResponse:
        return error_response(500, "the server failed; its log says why")
