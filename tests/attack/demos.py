"""A real server of the demo, in a process of its own, and hostile requests by HTTP. Needs gradio."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from random import Random

from tests.attack.runs import SECONDS_TO_END, saved_hmde, workshop
from tests.attack.texts import text

APP = Path(__file__).resolve().parents[2] / "demo" / "app.py"
MARKUP = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</p></article>",
    "&lt;b&gt;",
    "javascript:",
    "'",
]
CONTROL = ["\x00", "\x1b[2J", "\x1b]52;c;eA==\x07", "\u202e", "\u2028", "\ud800"]
ALLOWED = {
    "article": {"class", "lang"},
    "span": {"class"},
    "mark": {"style", "title"},
    "header": set(),
    "h3": set(),
    "p": set(),
}
FILES = ["/etc/passwd", "../../etc/passwd", str(APP), "/proc/self/environ", "%2e%2e/app.py"]
SECRET = "hf_secretofthisprocess"


def ask(random: Random, folder: Path) -> str:
    """Three hostile questions. All markup of an answer is the demo's own, no file is served, the server lives on."""
    address = _server()
    for _ in range(3):
        question, own = _hostile(random), _hostile(random)
        languages = random.choice([["en"], ["de", "en"], ["xx"], [], None, "en", [1], {"a": 1}])
        language = random.choice(["en", "xx", own, "", None, 7])
        for name, data in (("search", [question, languages]), ("explain", [question, own, language])):
            for answer in _call(address, name, data):
                _check_markup(answer)
    for path in FILES:
        for route in ("/gradio_api/file=", "/file=", "/static/", "/assets/"):
            code, body = _request(address + route + path)
            assert code != 200 or not any(secret in body for secret in ("root:", SECRET, "HMDE_MODEL")), route + path
    (answer,) = _call(address, "search", ["cat", ["en"]])
    assert answer.count("<article") == 5, "the server answers no more"
    return "3 questions"


def _hostile(random: Random) -> str:
    parts = [
        *random.choices(MARKUP, k=2),
        *random.choices(CONTROL, k=2),
        text(random),
        "cat. " * random.choice([1, 500]),
    ]
    random.shuffle(parts)
    return "".join(parts)


@functools.cache
def _server() -> str:
    """Its address. It listens to this machine only."""
    documents = workshop() / "demo" / "docs"
    documents.mkdir(parents=True, exist_ok=True)
    random = Random(0)
    in_english = [{"title": _hostile(random), "text": _hostile(random) + " The cat."} for _ in range(9)]
    (documents / "en.jsonl").write_text("\n".join(map(json.dumps, in_english)))
    (documents / "de.jsonl").write_text(json.dumps({"text": "Der Hund.", "language": '"><script>'}))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = os.environ | {
        "HMDE_MODEL": str(saved_hmde()),
        "HMDE_DOCUMENTS": str(documents),
        "HF_TOKEN": SECRET,
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ANALYTICS_ENABLED": "False",
    }
    log = (workshop() / "demo" / "log").open("w")
    process = subprocess.Popen([sys.executable, str(APP)], env=environment, stdout=log, stderr=log)
    _servers.append(process)
    address = f"http://127.0.0.1:{port}"
    ends = time.monotonic() + SECONDS_TO_END
    while _request(address + "/config")[0] != 200:
        assert process.poll() is None, (workshop() / "demo" / "log").read_text()
        assert time.monotonic() < ends, f"the demo has not started after {SECONDS_TO_END} s"
        time.sleep(0.5)
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    listening = [row[1].split(":") for row in rows if row[3] == "0A"]
    bound = {host for host, hexadecimal in listening if int(hexadecimal, 16) == port}
    assert bound == {"0100007F"}, f"the demo listens on {bound}"
    return address


_servers: list[subprocess.Popen[bytes]] = []


def stop() -> None:
    for process in _servers:
        process.kill()
        process.wait()


def _call(address: str, name: str, data: list[object]) -> list[str]:
    """What the server answers: the HTML, or nothing where it refuses."""
    code, body = _request(f"{address}/gradio_api/call/{name}", json.dumps({"data": data}).encode())
    if code != 200:
        return []
    body = _request(f"{address}/gradio_api/call/{name}/{json.loads(body)['event_id']}")[1]
    kind, _, content = body.rpartition("event: ")[2].partition("\n")
    assert kind in ("complete", "error"), body[:300]
    assert "Traceback" not in body, body[:2000]
    return json.loads(content.removeprefix("data: ")) if kind == "complete" else []


def _request(address: str, data: bytes | None = None) -> tuple[int, str]:
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except (urllib.error.URLError, ConnectionError):
        return 0, ""


class _Markup(HTMLParser):
    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, f"<{tag}> in an answer"
        assert {name for name, _ in attributes} <= ALLOWED[tag], f"<{tag} {attributes}> in an answer"


def _check_markup(answer: str) -> None:
    parser = _Markup()
    parser.feed(answer)
    parser.close()
