"""The corpus builder is killed at random moments, over nothing or over an older corpus."""

from __future__ import annotations

import contextlib
import functools
import io
import multiprocessing
import shutil
import signal
import time
from pathlib import Path
from random import Random

from tests.attack.runs import interrupt, workshop
from training import corpus

CONTEXT = multiprocessing.get_context("fork")


def build(articles: Path, output: Path, seed: int) -> None:
    options = ["--articles", str(articles), "--output", str(output), "--seed", str(seed)]
    with contextlib.redirect_stdout(io.StringIO()):
        corpus.main([*options, "--languages", '["en", "de", "fr"]'])


def tables(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in sorted(output.rglob("*.parquet"))}


@functools.cache
def undisturbed() -> tuple[dict[str, bytes], float]:
    """The tables of a corpus, and the seconds that it takes to make."""
    output = workshop() / "undisturbed-corpus"
    began = time.perf_counter()
    build(workshop() / "articles", output, seed=1)
    return tables(output), time.perf_counter() - began


def kill(random: Random, folder: Path) -> str:
    """kill -9, up to three times. What has the name of a corpus is whole, and the last run makes the expected one."""
    expected, seconds = undisturbed()
    articles, output = shutil.copytree(workshop() / "articles", folder / "articles"), folder / "corpus"
    if random.random() < 0.5:
        build(articles, output, seed=2)
    older = tables(output)
    for _ in range(random.randint(1, 3)):
        process = CONTEXT.Process(target=build, args=(articles, output, 1))
        process.start()
        if not interrupt(process, random, seconds, signal.SIGKILL):
            break
        if output.exists():
            assert tables(output) in (older, expected), "half a corpus has the name of a whole one"
    build(articles, output, seed=1)
    assert tables(output) == expected
    return "over an older corpus" if older else "over nothing"
