"""Sentences and their translations, from files of OPUS and of others, as tables of pairs.

    python -m replications.sentences.corpus --output runs/parallel --files '{"en-de": ["books.en", "books.de"]}'

`files` names, for each pair of languages,

    books.en, books.de    two files, line by line translations of each other (Moses, a form in which OPUS gives them)
    books.tsv             both in a line, with a tab between
    books.parquet         a table with the columns first and second; its split and its id are kept if it has them

and the command writes `pairs/<one>-<other>.parquet`, see replications/sentences/pairs.py. Files are read piece by
piece, and one query of DuckDB, which goes to disk beyond its memory limit, says of each pair which split it is in or
why it is left out. The finished tables of a stopped run are kept in `<output>.steps`, where the same command resumes.
The same files always make the same tables.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import hmde.common.threads

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet

from hmde.common.command_line import options_from, run
from hmde.common.files import check_is_new, file_written_whole, folder_written_whole, locked, write_json, write_text
from hmde.common.numbers import PositiveFloat, Share
from hmde.common.progress import progress_bar
from replications.sentences.cards import sentence_pairs_card
from replications.sentences.translation_files import READERS, Translation, read_translations
from training.corpus.database import SECONDS, count_by, database, define_draw, quoted, read_parquet, write_parquet
from training.corpus.recipe import SPLITS
from training.corpus.steps import open_steps, remove_steps

SCHEMA = pa.schema([("row", pa.int64()), *((name, pa.string()) for name in Translation._fields)])
ROWS_AT_ONCE = 50_000
REASONS = ("empty side", "same sentence on both sides", "length ratio", "another language", "duplicate")


@dataclass(kw_only=True)
class SentencePairsRecipe:
    """Tables of sentence pairs from files of translations."""

    output: str
    """Folder of the tables, of `statistics.json` and of a card."""

    files: dict[str, list[str]]
    """By pair of languages, such as en-de: two files, line by line translations of each other; or one that ends with
    .tsv or .parquet."""

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
        check_is_new(self.output)
        for languages, paths in self.files.items():
            known = len(paths) == 2 or (len(paths) == 1 and Path(paths[0]).suffix in READERS)
            if languages.count("-") != 1 or not known:
                raise ValueError(
                    f"files has {languages!r}: {paths}; <one>-<other> needs two files, translations of each other line "
                    f"by line, or one of {', '.join(READERS)}"
                )


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(SentencePairsRecipe, argv)
    output = Path(recipe.output)
    with locked(output, wait=False):
        with database(output, recipe.memory_limit) as connection:
            define_draw(connection, seed=0)
            if recipe.identify_languages:
                connection.create_function("language_of", language_of, ["VARCHAR"], "VARCHAR")
            inputs = [Path(name) for names in recipe.files.values() for name in names]
            steps = open_steps(output, recipe, inputs, Path(__file__).parent)
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
    source, judged = target.with_suffix(".source.parquet"), target.with_suffix(".judged.parquet")
    write_source(recipe.files[languages], languages, source)
    first, second = languages.split("-")
    is_foreign = f"language_of(first) <> {quoted(first)} OR language_of(second) <> {quoted(second)}"
    drawn = "draw('split|' || first) / 2.0 ** 60"  # the same in every table
    query = f"""
        SELECT *, CASE
            WHEN first = '' OR second = '' THEN 'empty side'
            WHEN first = second THEN 'same sentence on both sides'
            WHEN greatest(length(first), length(second))
                 > {recipe.max_length_ratio} * least(length(first), length(second)) THEN 'length ratio'
            WHEN {is_foreign if recipe.identify_languages else "false"} THEN 'another language'
            WHEN row_number() OVER (PARTITION BY first, second ORDER BY row) > 1 THEN 'duplicate'
            WHEN split IS NOT NULL THEN split
            WHEN {drawn} < {recipe.dev_fraction} THEN 'dev'
            WHEN {drawn} < {recipe.dev_fraction + recipe.test_fraction} THEN 'test'
            ELSE 'train'
        END AS kind
        FROM {read_parquet(source)}
    """
    write_parquet(connection, query, judged)
    splits = ", ".join(map(quoted, SPLITS))
    kept = f"""
        SELECT coalesce(id, md5(first)) AS id, first, second, kind AS split FROM {read_parquet(judged)}
        WHERE kind IN ({splits}) ORDER BY row
    """
    write_parquet(connection, kept, target, compression="zstd")
    counts = count_by(connection, read_parquet(judged), "kind")
    for file in (source, judged):
        file.unlink()
    return {kind: counts[kind] for kind in (*SPLITS, *REASONS) if kind in counts}


def write_source(paths: list[str], languages: str, target: Path) -> None:
    """Writes all pairs of a source, numbered."""
    with (
        file_written_whole(target) as partial,
        parquet.ParquetWriter(partial, SCHEMA) as writer,
        progress_bar(languages, None, unit="pair", delay=SECONDS) as progress,
    ):
        pairs = enumerate(read_translations(paths))
        while batch := list(islice(pairs, ROWS_AT_ONCE)):
            rows = [{"row": number, **pair._asdict()} for number, pair in batch]
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
            progress.update(len(rows))


def language_of(sentence: str) -> str:
    """The language of a sentence, by a model that py3langid brings along."""
    import py3langid  # takes seconds, and few need it

    return py3langid.classify(sentence)[0]


if __name__ == "__main__":
    run(main)
