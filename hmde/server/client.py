"""A question to a server of hmde/server, without the libraries of the model: answered in a fraction of a second."""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

SECONDS_TO_ANSWER = 60


def is_address(index: str) -> bool:
    return index.startswith(("http://", "https://"))


def token() -> str | None:
    """The environment's HMDE_TOKEN, which clients send and a server asks for; None if there is none.

    Raises:
        ValueError: it cannot be sent.
    """
    secret = os.environ.get("HMDE_TOKEN")
    if secret and not (secret.isascii() and secret.isprintable()):
        raise ValueError("HMDE_TOKEN holds a character that HTTP cannot send; choose a token of printable ASCII")
    return secret


def ask_server(address: str, **asked: Any) -> list[dict[str, Any]]:
    """The hits of a question. The environment's HMDE_TOKEN, if there is one, is sent.

    Args:
        address: of the server, such as http://127.0.0.1:8000.
        asked: the fields of a SearchRequest.

    Raises:
        ValueError: no server answers there, it refuses the question, or HMDE_TOKEN cannot be sent.
    """
    address = address.rstrip("/")
    headers = {"Content-Type": "application/json"}
    if secret := token():
        headers["Authorization"] = f"Bearer {secret}"
    request = Request(f"{address}/search", json.dumps(asked).encode(), headers)
    try:
        with urlopen(request, timeout=SECONDS_TO_ANSWER) as response:
            return json.load(response)["hits"]
    except HTTPError as error:
        raise ValueError(f"{address} refuses the question: {_message(error)}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(f"{address} does not answer ({reason}); start it by hmde serve INDEX") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{address} answers, but not as hmde serve does; check the address") from None


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
