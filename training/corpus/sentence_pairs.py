"""Sentences and their translations, from files of OPUS, of others and of the Hub, as tables of pairs.

    python -m training.corpus.sentence_pairs --output runs/parallel --files '{"en-de": ["books.en", "books.de"]}'

`files` names, for each pair of languages,

    books.en, books.de    two files, line by line translations of each other (Moses, a form in which OPUS gives them)
    books.tsv             both in a line, with a tab between
    books.tmx             or books.tmx.gz: translation memories (the other form of OPUS)
    books.parquet         a table with the columns first and second, or english and text if English is the first; its
                          split and its id or segment_id are kept if it has them
    owner/name:config     a data set of the Hub with a column `translation`, such as Helsinki-NLP/opus-100:de-en

and the command writes `pairs/<one>-<other>.parquet`, see training/sentences/pairs.py. Files are read piece by
piece, and DuckDB, which goes to disk beyond its memory limit, removes the duplicates. The finished pairs of a stopped
run are kept in `<output>.steps`, where the same command resumes. The same files always make the same tables.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common.terminal
import common.threads

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet

from common.command_line import options_from, run
from common.files import file_written_whole, folder_written_whole, locked, write_json, write_text
from common.numbers import PositiveFloat, Share
from common.progress import progress_bar
from training.corpus.database import SECONDS, count_by, database, read_parquet, write_parquet
from training.corpus.dataset_cards import sentence_pairs_card
from training.corpus.steps import open_steps, remove_steps
from training.corpus.translation_files import SPLITS, Translation, is_on_the_hub, read_translations

COLUMNS = ("id", "first", "second", "split")
SCHEMA = pa.schema([("row", pa.int64()), *((name, pa.string()) for name in COLUMNS)])
ROWS_AT_ONCE = 50_000


@dataclass(kw_only=True)
class SentencePairsRecipe:
    """Tables of sentence pairs from files of translations."""

    output: str
    """Folder of the tables, of `statistics.json` and of a card."""

    files: dict[str, list[str]]
    """By pair of languages, such as en-de: two files, line by line translations of each other; or one that ends with
    .tsv, .tmx, .tmx.gz or .parquet; or a data set of the Hub, <owner>/<name>:<config>."""

    max_length_ratio: PositiveFloat = 9.0
    """A pair of which one side has more than this many times the characters of the other is left out."""

    identify_languages: bool = False
    """Leave out a pair of which a side is not in its language by py3langid, which is sure of sentences, and often wrong
    about a word or two."""

    dev_fraction: Share = 0.01
    """Part of the sentences of the first language, drawn by their text, with all their translations."""

    test_fraction: Share = 0.01
    """Likewise, for sentences that are never trained on."""

    memory_limit: str = "4GB"
    """Memory of DuckDB. What exceeds it goes to disk."""

    def __post_init__(self) -> None:
        if Path(self.output).exists():
            raise ValueError(f"{self.output} exists; remove it, or name another output")
        for languages, paths in self.files.items():
            if languages.count("-") != 1 or len(paths) not in (1, 2):
                raise ValueError(f"files has {languages!r}: {paths}; <one>-<other> needs one source, or two files")


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(SentencePairsRecipe, argv)
    output = Path(recipe.output)
    with locked(output, wait=False):
        with database(output, recipe.memory_limit) as connection:
            local = [Path(name) for names in recipe.files.values() if not is_on_the_hub(names) for name in names]
            steps = open_steps(output, recipe, local)
            for languages in recipe.files:
                if not (steps / f"{languages}.json").exists():
                    counts = write_table(connection, recipe, languages, steps / f"{languages}.parquet")
                    write_json(steps / f"{languages}.json", counts)
            with folder_written_whole(output) as folder:
                (folder / "pairs").mkdir()
                statistics = {}
                for languages in recipe.files:
                    shutil.copyfile(steps / f"{languages}.parquet", folder / "pairs" / f"{languages}.parquet")
                    statistics[languages] = json.loads((steps / f"{languages}.json").read_text(encoding="utf-8"))
                write_json(folder / "statistics.json", statistics)
                write_text(folder / "README.md", sentence_pairs_card(output.name, recipe, statistics))
        remove_steps(output)


def write_table(
    connection: duckdb.DuckDBPyConnection, recipe: SentencePairsRecipe, languages: str, target: Path
) -> dict[str, int]:
    """Writes each pair of sentences once, in the order of the source.

    Returns:
        How many pairs were written to each split, and how many were left out for which reason.
    """
    read = target.with_suffix(".read.parquet")
    left_out = write_kept_pairs(recipe, languages, read)
    write_parquet(
        connection,
        f"""
        SELECT {", ".join(COLUMNS)} FROM (
            SELECT arg_min(id, row) AS id, first, second, arg_min(split, row) AS split, min(row) AS row
            FROM {read_parquet(read)} GROUP BY first, second
        )
        ORDER BY row
        """,
        target,
        compression="zstd",
    )
    by_split = count_by(connection, read_parquet(target), "split")
    duplicates = parquet.read_metadata(read).num_rows - sum(by_split.values())
    read.unlink()
    counts = Counter({split: by_split[split] for split in SPLITS if split in by_split}) + left_out
    return dict(counts + Counter({"duplicate": duplicates}))


def write_kept_pairs(recipe: SentencePairsRecipe, languages: str, path: Path) -> Counter[str]:
    """Writes the pairs of a source that are not left out, numbered. Returns how many are left out, by reason."""
    left_out: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    with (
        file_written_whole(path) as partial,
        parquet.ParquetWriter(partial, SCHEMA, compression="zstd") as writer,
        progress_bar(languages, None, unit="pair", delay=SECONDS) as progress,
    ):
        for number, pair in enumerate(read_translations(recipe.files[languages], languages)):
            progress.update()
            if reason := reason_to_leave_out(pair, languages, recipe):
                left_out[reason] += 1
                continue
            split = pair.split or draw_split(pair.first, recipe)
            pair_id = pair.id or digest(pair.first).hex()
            rows.append({"row": number, "id": pair_id, "first": pair.first, "second": pair.second, "split": split})
            if len(rows) == ROWS_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                rows = []
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    return left_out


def reason_to_leave_out(pair: Translation, languages: str, recipe: SentencePairsRecipe) -> str | None:
    if not pair.first or not pair.second:
        return "empty side"
    if pair.first == pair.second:
        return "same sentence on both sides"
    lengths = len(pair.first), len(pair.second)
    if max(lengths) > recipe.max_length_ratio * min(lengths):
        return "length ratio"
    if recipe.identify_languages and [identified(pair.first), identified(pair.second)] != languages.split("-"):
        return "another language"
    return None


def identified(sentence: str) -> str:
    """The language of a sentence, by a model that py3langid brings along."""
    import py3langid  # takes seconds, and few need it

    return py3langid.classify(sentence)[0]


def draw_split(first: str, recipe: SentencePairsRecipe) -> str:
    """The split of a sentence, the same in every table."""
    drawn = int.from_bytes(digest(f"split {first}"), "big") / 2**64
    if drawn < recipe.dev_fraction:
        return "dev"
    return "test" if drawn < recipe.dev_fraction + recipe.test_fraction else "train"


def digest(text: str) -> bytes:
    """(8 bytes,), which depend on the text only."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


if __name__ == "__main__":
    run(main)
