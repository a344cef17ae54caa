"""`hmde query http://...`: a server answers as the index does, and what goes wrong is said."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from hmde.__main__ import main
from hmde.index.encoder import Encoder
from hmde.index.index import Index
from hmde.index.update import update_index
from hmde.server.app import make_app
from tests.hmde.server.running_server import running
from tests.hmde.small_index import TEXTS, documents_of
from tests.paths import REPOSITORY

pytestmark = pytest.mark.lancedb


@pytest.fixture(scope="module")
def server(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    folder = tmp_path_factory.mktemp("asked") / "index"
    update_index(folder, documents_of(TEXTS), encoder, sentences=True)
    with running(make_app(Index(folder, encoder), token="secret")) as address:
        yield SimpleNamespace(address=address, folder=folder)


@pytest.mark.parametrize(
    "options",
    [[], ["--hits", "2", "--sentences", "1"], ["--ranking", "dense"], ["--where", "id = 'cat'"]],
)
def test_a_server_shows_what_the_index_shows(
    options: list[str], server: SimpleNamespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HMDE_TOKEN", "secret")
    for form in (["--json", "true"], []):
        shown = []
        for index in (str(server.folder), f"{server.address}/"):
            main(["query", index, "The cat sat.", *options, *form])
            shown.append(capsys.readouterr().out)
        if form:
            expected, found = map(json.loads, shown)
            assert found == [
                hit
                | {"score": pytest.approx(hit["score"], abs=1e-6)}
                | {"sentences": [each | {"score": pytest.approx(each["score"], abs=1e-6)} for each in hit["sentences"]]}
                for hit in expected
            ]
            assert found
        else:
            assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("token", "options", "message"),
    [
        ("secret", ["--where", "year >"], "refuses the question: .*year >"),
        ("secret", ["--languages", "de, fr"], "refuses the question: the index has no documents in de, fr"),
        ("secret", ["--hits", "101"], "refuses the question: hits: .*100"),
        ("secret", ["--model", "elsewhere"], "--model is elsewhere, but http.* answers with its own model"),
        ("other", [], "refuses the question: this server asks for a token"),
    ],
)
def test_what_a_server_refuses_is_said(
    token: str, options: list[str], message: str, server: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HMDE_TOKEN", token)
    with pytest.raises(ValueError, match=message):
        main(["query", server.address, "The cat", *options])


def test_an_address_where_nothing_answers_or_something_else_is_named() -> None:
    for address, reason in (("http://127.0.0.1:9", "refused"), ("http://127.0.0.1:eight", "nonnumeric port: 'eight'")):
        with pytest.raises(ValueError, match=rf"{address} does not answer \(.*{reason}.*hmde serve INDEX"):
            main(["query", address, "The cat"])
    other = FastAPI()
    other.post("/search")(lambda: {"found": []})
    with running(other) as address, pytest.raises(ValueError, match="answers, but not as hmde serve does"):
        main(["query", address, "The cat"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "Remote end closed connection without response"),
        (b"no HTTP\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", r"IncompleteRead\(1 bytes read, 8 more expected\)"),
    ],
)
def test_an_answer_that_breaks_off_or_is_no_http_is_said_with_the_address(answer: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve_once() -> None:
            connection, _ = listening.accept()
            with connection:
                asked = b""
                while not asked.endswith(b"}"):  # what is not read when the connection closes would reset it
                    asked += connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve_once)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ValueError, match=rf"{address} does not answer \({reason}"):
            main(["query", address, "The cat"])
        thread.join()


@pytest.mark.parametrize("command", [["query", "http://127.0.0.1:9", "The cat"], ["serve", "nowhere"]])
@pytest.mark.parametrize("token", ["schlüssel", "two\nlines"])
def test_a_token_that_http_cannot_send_is_refused_by_name(
    command: list[str], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HMDE_TOKEN", token)
    with pytest.raises(ValueError, match="HMDE_TOKEN holds a character that HTTP cannot send; choose a token of"):
        main(command)


def test_a_server_that_does_not_answer_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmde.server.client.SECONDS_TO_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ValueError, match=rf"{address} does not answer \(timed out\)"):
            main(["query", address, "The cat"])


@pytest.mark.slow
def test_the_options_and_a_question_to_a_server_wait_for_no_heavy_library() -> None:
    program = """
import sys
from hmde.__main__ import main
for arguments in (["query", "--help"], ["query", "http://127.0.0.1:9", "The cat"]):
    try:
        main(arguments)
    except (SystemExit, ValueError):
        pass
print(sorted({"torch", "transformers", "numpy", "lancedb"} & set(sys.modules)))
"""
    shown = subprocess.check_output([sys.executable, "-c", program], cwd=REPOSITORY, text=True)
    assert "The query, in any language." in shown
    assert shown.splitlines()[-1] == "[]"
