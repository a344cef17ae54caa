"""What is refused before anything is computed: bodies too large or too slow, and requests without the token. Every
error is {"error": {"message", "type"}}, which OpenAI's clients read."""

from __future__ import annotations

import asyncio
import secrets
import zlib
from collections.abc import Callable, Sequence
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
    """What a request, and what all that wait, may hold."""

    question_characters: int = 8192
    characters: int = 100_000  # of a text
    texts: int = 2048  # of a request, beside its question: as many as OpenAI takes
    tokens: int = 300_000  # of all texts of a request, as OpenAI takes; a core needs a minute for them
    together: int = 64  # texts encoded together
    waiting: int = 8192  # texts of all requests, for each way of encoding them
    body_bytes: int = 32 * 2**20
    body_seconds: float = 30.0  # from the head of a request to its last byte

    def check_question(self, question: str) -> None:
        """
        Raises:
            HTTPException: 413, it is too long.
        """
        if len(question) > self.question_characters:
            message = f"the question has {len(question)} characters; send at most {self.question_characters}"
            raise HTTPException(413, message)

    def check(self, texts: Sequence[str]) -> None:
        """
        Raises:
            HTTPException: 413, there are too many texts, or one is too long.
        """
        if len(texts) > self.texts:
            raise HTTPException(413, f"there are {len(texts)} texts; send at most {self.texts} together")
        for number, text in enumerate(texts):
            if len(text) > self.characters:
                message = f"text {number} has {len(text)} characters; send at most {self.characters}"
                raise HTTPException(413, message)

    def check_tokens(self, counts: Sequence[int]) -> None:
        """
        Raises:
            HTTPException: 413, the texts have too many tokens together.
        """
        if sum(counts) > self.tokens:
            raise HTTPException(413, f"the texts have {sum(counts)} tokens; send at most {self.tokens} together")


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


class Refused(Exception):
    """A request is answered by this status and this message."""


class Requests:
    """Middleware that reads the body of a request, at most so large and so slowly, before the app sees it, unpacks it,
    ends the work for a client that has gone, and answers HEAD as GET."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._body(Headers(scope=scope), receive), self.limits.body_seconds)
        except asyncio.TimeoutError:
            message = f"the request did not arrive within {self.limits.body_seconds:.0f} seconds"
            await error_response(408, message)(scope, receive, send)
            return
        except Refused as refused:
            await error_response(*refused.args)(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the server leaves the body out
            scope = {**scope, "method": "GET"}
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.create_task(_gone(receive))

        async def replay() -> Message:
            return unread.pop() if unread else await asyncio.shield(gone)

        async def answered() -> None:
            await self.app(scope, replay, send)

        answer = asyncio.create_task(answered())
        await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
        answer.cancel()  # nothing, if it is done
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await answer

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The whole body, unpacked.

        Raises:
            Refused: it is too large, packed as this server does not unpack it, or no JSON.
        """
        body, too_large = bytearray(), f"the request is larger than {self.limits.body_bytes} bytes; send fewer texts"
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.limits.body_bytes:
                raise Refused(413, too_large)
            if not message.get("more_body"):
                break
        kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if body and kind != "application/json" and not kind.endswith("+json"):
            raise Refused(415, f"the body is said to be {kind}; send JSON with `Content-Type: application/json`")
        packed = headers.get("content-encoding", "identity").lower()
        if packed == "identity":
            return bytes(body)
        if packed != "gzip":
            raise Refused(415, f"the body is packed as {packed}; send it as it is, or packed by gzip")
        unpacking = zlib.decompressobj(wbits=31)
        try:
            unpacked = unpacking.decompress(body, self.limits.body_bytes + 1)
        except zlib.error as error:
            raise Refused(400, f"the body is no gzip ({error}); pack it again") from None
        if len(unpacked) > self.limits.body_bytes:
            raise Refused(413, too_large)
        if not unpacking.eof:
            raise Refused(400, "the body is no whole gzip; pack it again")
        return unpacked


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
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        said = first["msg"].removeprefix("Value error, ")
        return error_response(422, f"{where}: {said}" if where else said)

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
