"""A stand-in for the Hub: the part of its HTTP interface by which huggingface_hub uploads and downloads files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import yaml

# Some of those that the Hub knows.
LICENSES = {"apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "other", "unknown"}
TASKS = {"feature-extraction", "sentence-similarity", "text-classification", "fill-mask"}


class Hub(ThreadingHTTPServer):
    """Repositories in memory. A commit is a whole repository, `{path: content}`, under its id.

    Attributes:
        commits: by repository, the commits in order, as (id, files).
        drop: beginnings of "METHOD path" whose first request is answered by closing the connection.
        requests: every request, as "METHOD path".
        validated: every card whose metadata was sent for validation.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.commits: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.large: dict[str, bytes] = {}
        self.drop: list[str] = []
        self.requests: list[str] = []
        self.validated: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def environment(self) -> dict[str, str]:
        """Variables of a process that takes this for the Hub."""
        return {"HF_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": "hf_stand_in"}

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        """Raises: KeyError: there is no such repository or commit."""
        commits = self.commits[repo]
        return commits[-1][1] if revision == "main" else dict(commits)[revision]

    def commit(self, repo: str, lines: list[dict]) -> str:
        files = dict(self.files(repo))
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.large[value["oid"]]
        commit = hashlib.sha1(str(len(self.commits[repo])).encode()).hexdigest()
        self.commits[repo].append((commit, files))
        return commit


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def metadata_errors(card: str, kind: str) -> list[str]:
    """What is wrong with a card's metadata, by the Hub's specifications of model and data set cards
    (github.com/huggingface/hub-docs: modelcard.md and datasetcard.md)."""
    parts = card.split("---\n")
    try:
        metadata = yaml.safe_load(parts[1]) if card.startswith("---\n") and len(parts) > 2 else None
    except yaml.YAMLError as error:
        return [f"metadata is no YAML: {str(error).splitlines()[0]}"]
    if not isinstance(metadata, dict):
        return ["the card has no metadata between lines of ---"]
    errors = []
    if metadata.get("license", "other") not in LICENSES:
        errors.append(f"license must be one of {sorted(LICENSES)}")
    languages = metadata.get("language", [])
    for language in languages if isinstance(languages, list) else [languages]:
        if not re.fullmatch("[a-z]{2,3}", str(language)):
            errors.append(f"language {language!r} must be a code of two or three letters")
    if kind == "model":
        if metadata.get("pipeline_tag", "feature-extraction") not in TASKS:
            errors.append(f"pipeline_tag {metadata['pipeline_tag']!r} must be one of {sorted(TASKS)}")
        for result in (result for model in metadata.get("model-index", []) for result in model["results"]):
            for key, fields in {"task": ["type"], "dataset": ["type", "name"]}.items():
                errors += [f"model-index: {key}.{name} is required" for name in fields if not result[key].get(name)]
            for metric in result["metrics"]:
                if not metric.get("type") or not isinstance(metric.get("value"), (int, float)):
                    errors.append("model-index: a metric needs a type and a value")
    for config in metadata.get("configs", []):
        if not config.get("config_name") or not config.get("data_files"):
            errors.append("configs: config_name and data_files are required")
    return errors


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def handle_one(self) -> None:
        path = unquote(urlsplit(self.path).path)
        request = f"{self.command} {path}"
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(request)
        for beginning in self.server.drop:
            if request.startswith(beginning):
                self.server.drop.remove(beginning)
                self.close_connection = True
                return
        for pattern, answer in ROUTES:
            if match := re.fullmatch(pattern, request):
                answer(self, body, *match.groups())
                return
        self.reply(404, {"error": f"no such page: {request}"})

    do_GET = do_HEAD = do_POST = do_PUT = handle_one

    def reply(self, status: int, content: object = None, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def create(self, body: bytes) -> None:
        wanted = json.loads(body)
        repo = f"{wanted['organization']}/{wanted['name']}"
        if wanted.get("type") == "dataset":
            repo = f"datasets/{repo}"
        is_new = repo not in self.server.commits
        self.server.commits.setdefault(repo, [("0" * 40, {})])
        self.reply(200 if is_new else 409, {"url": f"{self.server.url}/{repo}"})

    def validate(self, body: bytes) -> None:
        request = json.loads(body)
        self.server.validated.append(request["content"])
        errors = metadata_errors(request["content"], request["repoType"])
        messages = [{"message": error} for error in errors]
        self.reply(400 if errors else 200, {"errors": messages, "warnings": []}, X_Error_Message="; ".join(errors))

    def preupload(self, body: bytes, kind: str, repo: str, revision: str) -> None:
        there = self.server.files(repo if kind == "model" else f"datasets/{repo}", revision)
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
                "oid": git_oid(there[file["path"]]) if file["path"] in there else None,
            }
            for file in json.loads(body)["files"]
        ]
        self.reply(200, {"files": files})

    def lfs_batch(self, body: bytes, _repo: str) -> None:
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.server.url}/lfs/{each['oid']}"}}}
            for each in json.loads(body)["objects"]
        ]
        self.reply(200, {"transfer": "basic", "objects": objects})

    def put(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.large[oid] = body
        self.reply(200)

    def commit(self, body: bytes, kind: str, repo: str, _revision: str) -> None:
        repo = repo if kind == "model" else f"datasets/{repo}"
        commit = self.server.commit(repo, [json.loads(line) for line in body.splitlines()])
        self.reply(200, {"commitUrl": f"{self.server.url}/{repo}/commit/{commit}", "commitOid": commit})

    def info(self, _body: bytes, repo: str, revision: str | None) -> None:
        commits = dict(self.server.commits[repo])
        commit = list(commits)[-1] if revision in (None, "main") else revision
        self.reply(200, {"id": repo, "sha": commit, "siblings": [{"rfilename": name} for name in commits[commit]]})

    def history(self, _body: bytes, repo: str) -> None:
        made = {"authors": [], "date": "2026-01-01T00:00:00.000Z", "title": "", "message": ""}
        self.reply(200, [{"id": commit, **made} for commit, _ in reversed(self.server.commits[repo])])

    def resolve(self, _body: bytes, repo: str, revision: str, path: str) -> None:
        try:
            files = self.server.files(repo, revision)
        except KeyError:
            return self.reply(404, {}, X_Error_Code="RevisionNotFound")
        commit = list(dict(self.server.commits[repo]))[-1] if revision == "main" else revision
        if path not in files:
            return self.reply(404, {}, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        return self.reply(200, files[path], ETag=f'"{git_oid(files[path])}"', X_Repo_Commit=commit)


NAME = "([^/]+/[^/]+)"
ROUTES = [
    ("POST /api/repos/create", Handler.create),
    ("POST /api/validate-yaml", Handler.validate),
    (f"POST /api/(model|dataset)s/{NAME}/preupload/(.+)", Handler.preupload),
    (f"POST /{NAME}.git/info/lfs/objects/batch", Handler.lfs_batch),
    ("PUT /lfs/(.+)", Handler.put),
    (f"POST /api/(model|dataset)s/{NAME}/commit/(.+)", Handler.commit),
    (f"GET /api/models/{NAME}/commits/main", Handler.history),
    (f"GET /api/models/{NAME}(?:/revision/(.+))?", Handler.info),
    (f"(?:GET|HEAD) /{NAME}/resolve/([^/]+)/(.+)", Handler.resolve),
]


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, args=[0.05])  # seconds until it sees that it is to end
    thread.start()
    yield hub
    hub.shutdown()
    thread.join()
    hub.server_close()
