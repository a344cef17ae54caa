"""Time and peak memory of making triples of synthetic Wikipedias, by number of articles.

    python -m benchmarks.corpus_scale --sizes '[10000, 100000, 1000000]'

Four languages that share concepts about as Wikipedia's do (each has a concept with its own probability), three
categories an article whose sizes follow Zipf's law, and texts of five short sentences: it is the metadata that is
measured. Each size runs in a process of its own; its peak resident memory is read, and set back, step by step (Linux).
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import re
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
from jsonargparse import auto_cli

_SHARES = {"de": 0.5, "en": 0.9, "fr": 0.45, "it": 0.35}  # of all concepts
_TEXT = "A is one. B is two. C is three. D is four. E is five."


def main(argv: list[str] | None = None) -> None:
    print(json.dumps(auto_cli(measure, args=argv), indent=2))


def measure(
    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000), memory_limit: str = "4GB", threads: int = 2
) -> list[dict[str, Any]]:
    """Seconds of each step and peak memory for each size.

    Args:
        sizes: numbers of articles.
        memory_limit: of DuckDB.
        threads: of DuckDB.
    """
    measurements = []
    for size in sizes:
        with (
            tempfile.TemporaryDirectory() as folder,
            multiprocessing.get_context("spawn").Pool(1) as pool,
        ):
            write_wikipedias(Path(folder) / "articles", size)
            measurements.append(pool.apply(measure_one, (folder, size, memory_limit, threads)))
    return measurements


def write_wikipedias(folder: Path, num_articles: int) -> None:
    """Writes the article tables, about `num_articles` in all."""
    folder.mkdir()
    num_concepts = int(num_articles / sum(_SHARES.values()))
    num_categories = num_articles // 20 + 1
    with duckdb.connect() as connection:
        for language, share in _SHARES.items():
            # Zipf with exponent 1: of N categories the one drawn by a uniform u is N^u.
            category = f"'c' || floor(pow({num_categories}, hash(n, '{language}', {{}}) / pow(2, 64)))::BIGINT"
            connection.execute(
                f"""
                COPY (
                    SELECT 'Q' || n AS concept_id, '{language}' AS language, 'Title ' || n AS title, '{_TEXT}' AS text,
                           [{", ".join(category.format(index) for index in range(3))}] AS categories,
                           'synthetic' AS source, 'CC0-1.0' AS license, 'train' AS split
                    FROM range({num_concepts}) AS concepts(n)
                    WHERE hash(n, '{language}') / pow(2, 64) < {share}
                ) TO '{folder}/{language}.parquet' (FORMAT parquet)
                """
            )


def measure_one(folder: str, size: int, memory_limit: str, threads: int) -> dict[str, Any]:
    from training.corpus import build

    before = peak_gigabytes()
    seconds: dict[str, float] = {}
    gigabytes: dict[str, float] = {}

    def timed(name: str) -> mock._patch[Any]:
        function = getattr(build, name)

        def measured(*args: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
            result = function(*args, **options)
            seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - begin, 2)
            gigabytes[name] = max(gigabytes.get(name, 0.0), peak_gigabytes())
            return result

        return mock.patch.object(build, name, measured)

    options = {"memory_limit": memory_limit, "threads": threads, "languages": json.dumps(list(_SHARES))}
    options |= {"articles": f"{folder}/articles", "output": f"{folder}/corpus"}
    with (
        timed("write_articles"),
        timed("draw_triples"),
        timed("write_corpus"),
        contextlib.redirect_stdout(io.StringIO()) as printed,  # the corpus command prints its statistics
    ):
        build.main([word for name, value in options.items() for word in (f"--{name}", str(value))])
    statistics = json.loads(printed.getvalue())
    return {
        "articles": sum(counts["read"] for counts in statistics["read"].values()),
        "triples": statistics["triples_in_all"],
        "seconds": seconds,
        "seconds a million articles": {name: round(value / size * 1e6, 2) for name, value in seconds.items()},
        "gigabytes before": before,
        "peak gigabytes": gigabytes,
    }


def peak_gigabytes() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return round(int(re.findall(r"VmHWM:\s*(\d+)", status)[0]) / 1e6, 2)


if __name__ == "__main__":
    main()
