"""The server under load: requests a second and latency of /v1/embeddings, beside sentence-transformers.

    python -m benchmarks.server --index my-index

Clients on the same machine send questions, each the next one when the last is answered. The baseline is the usual way
to serve a model: FastAPI in whose threads sentence-transformers encodes each request by itself, with the same model and
dtype. Both run at once and are asked in turns, so that other programs on the machine disturb both alike.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import hmde.common.threads

import httpx

from benchmarks.measure import alternate, markdown_table, median_ratio
from evaluation.tables import environment
from hmde.common.command_line import options_from, run
from hmde.common.device import Dtype
from hmde.common.numbers import PositiveInt
from hmde.index.snapshot import open_snapshot

QUESTION = "Why does the tail of comet {number} always point away from the Sun?"

BASELINE = """
import sys
import hmde.common.threads
import uvicorn
from fastapi import FastAPI
from sentence_transformers import SentenceTransformer
from hmde.common.device import dtype_of
from hmde.server.schemas import EmbeddingsRequest

name, dtype, port = sys.argv[1:]
model = SentenceTransformer(name, trust_remote_code=True, model_kwargs={"dtype": dtype_of(dtype)})
app = FastAPI()

@app.post("/v1/embeddings")
def embeddings(asked: EmbeddingsRequest) -> dict:
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    vectors = model.encode_query(texts, normalize_embeddings=True)
    return {"data": [{"index": place, "embedding": vector.tolist()} for place, vector in enumerate(vectors)]}

@app.get("/health")
def health() -> dict:
    return {}

uvicorn.run(app, port=int(port), access_log=False, log_level="warning")
"""


@dataclass
class ServerBenchmark:
    """Ask two servers questions, by some clients at once."""

    index: str
    """The folder of an index, whose model is served."""
    clients: list[PositiveInt] = field(default_factory=lambda: [1, 8, 64])
    """How many ask at once."""
    requests: PositiveInt = 256
    """For each number of clients, at least one for each client."""
    rounds: PositiveInt = 3
    """How often the servers take turns."""
    dtype: Dtype = "auto"
    """The dtype of weights and activations."""


class Load(NamedTuple):
    """What clients saw: requests a second, and the seconds that each took."""

    rate: float
    seconds: list[float]


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(ServerBenchmark, argv)
    model = open_snapshot(benchmark.index).model
    commands = {
        "HMDE": ["-m", "hmde", "serve", benchmark.index, "--dtype", benchmark.dtype, "--port"],
        "sentence-transformers": ["-c", BASELINE, model, benchmark.dtype],
    }
    print(environment(), flush=True)
    rows = []
    with served(commands["HMDE"]) as ours, served(commands["sentence-transformers"]) as baseline:
        servers = {"HMDE": ours, "sentence-transformers": baseline}
        for address in servers.values():
            load(address, 8, 16)  # the first requests take longer
        for clients in benchmark.clients:
            number = max(benchmark.requests, clients)
            trials = {name: partial(load, url, clients, number) for name, url in servers.items()}
            loads = alternate(trials, benchmark.rounds)
            rates = {name: [each.rate for each in measured] for name, measured in loads.items()}
            ratio = median_ratio(rates["HMDE"], rates["sentence-transformers"])
            for name, measured in loads.items():
                seconds = sorted(second for each in measured for second in each.seconds)
                rows.append(
                    {
                        "clients": clients,
                        "server": name,
                        "requests/s": statistics.median(rates[name]),
                        "p50, ms": 1000 * statistics.median(seconds),
                        "p95, ms": 1000 * seconds[int(0.95 * len(seconds))],
                        "times": ratio if name == "HMDE" else 1.0,
                    }
                )
    columns = {"clients": "", "server": "", "requests/s": ".1f", "p50, ms": ".0f", "p95, ms": ".0f", "times": ".2f"}
    print(markdown_table(columns, rows))


@contextmanager
def served(command: list[str]) -> Iterator[str]:
    """The address of a server, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, *command, port], env=os.environ | {"HF_HUB_OFFLINE": "1"})
    try:
        while True:
            try:
                httpx.get(f"{address}/health", timeout=60)
                break
            except httpx.ConnectError:
                if process.poll() is not None:
                    raise ValueError(f"the server ended with exit code {process.returncode}") from None
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def load(address: str, clients: int, requests: int) -> Load:
    """Clients share so many requests."""

    async def ask() -> Load:
        numbers = iter(range(requests))
        seconds: list[float] = []

        async def client(session: httpx.AsyncClient) -> None:
            for number in numbers:
                asked = {"input": QUESTION.format(number=number), "input_type": "query"}
                began = time.perf_counter()
                (await session.post("/v1/embeddings", json=asked)).raise_for_status()
                seconds.append(time.perf_counter() - began)

        limits = httpx.Limits(max_connections=clients)
        async with httpx.AsyncClient(base_url=address, timeout=600, limits=limits) as session:
            began = time.perf_counter()
            await asyncio.gather(*(client(session) for _ in range(clients)))
            return Load(requests / (time.perf_counter() - began), seconds)

    return asyncio.run(ask())


if __name__ == "__main__":
    run(main)
