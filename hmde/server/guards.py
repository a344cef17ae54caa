"""What is refused before anything is computed: bodies too large, and requests without the token. Every error is
{"error": {"message", "type"}}, which OpenAI's clients read."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBasic, HTTPBasicCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hmde.index.snapshot import InvalidCondition, UnknownLanguage
from hmde.server.batching import Overloaded


@dataclass(frozen=True)
class Limits:
    """What a request, and what all that wait, may hold. Those of single fields stand in schemas.py."""

    tokens: int = 300_000  # of all texts of a request, as OpenAI takes; a core needs a minute for them
    together: int = 64  # texts encoded together
    waiting: int = 8192  # texts of all requests, for each way of encoding them
    body_bytes: int = 32 * 2**20


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


class Requests:
    """Middleware that reads the body of a request before the app sees it, ends the work for a client that has gone, and
    answers HEAD as GET."""

    def __init__(self, app: ASGIApp, body_bytes: int) -> None:
        self.app, self.body_bytes = app, body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        packed = Headers(scope=scope).get("content-encoding", "identity")
        body = await self._body(receive)
        if body is None:
            message = f"the request is larger than {self.body_bytes} bytes; send fewer texts"
            await error_response(413, message)(scope, receive, send)
            return
        if packed != "identity":
            message = f"the body is packed as {packed}; send it as it is"
            await error_response(415, message)(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the server leaves the body out
            scope = {**scope, "method": "GET"}
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.create_task(_gone(receive))

        async def replay() -> Message:
            return unread.pop() if unread else await asyncio.shield(gone)

        answer = asyncio.ensure_future(self.app(scope, replay, send))
        await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
        answer.cancel()  # nothing, if it is done
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await answer

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None if it is too large."""
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.body_bytes:
                return None
        return bytes(body)


async def _gone(receive: Receive) -> Message:
    """Ends when the client has gone."""
    while (message := await receive())["type"] != "http.disconnect":
        pass
    return message


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
        if isinstance(error.body, bytes):
            return error_response(422, "the body is not said to be JSON; send it with `Content-Type: application/json`")
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return error_response(422, f"{where}: {first['msg']}" if where else first["msg"])

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
