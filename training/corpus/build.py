"""Training triples from articles: anchor, the same concept in another language, a hard negative (paper, section 3.1).

    python -m training.corpus --config configuration/corpora/sample.yaml

Reads article tables, wiki-40b or Wikipedia, with the categories of Wikimedia's SQL dumps, and writes

    articles/<language>.parquet   the articles of concepts in two languages and of negatives, each text once
    triples.parquet               ids, not texts: see `join.TRIPLE_COLUMNS`
    statistics.json, README.md    what was read, dropped, kept and drawn; the dataset card

The same input, languages and seed give the same bytes, whatever the number of threads: every draw is an MD5 hash. What
is finished stands in `<output>.steps` until the end, and a run that was stopped goes on from there.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from common.command_line import options_from
from common.files import folder_written_whole, locked
from common.hub import upload_folder
from training.corpus.download import fetch_dumps
from training.corpus.join import Engine, define_draw, draw_triples, sample_triples
from training.corpus.progress import progress
from training.corpus.sources import (
    ArticleRules,
    Source,
    article_files,
    check_splits,
    write_articles,
    write_categories,
)
from training.corpus.sql import quoted, readable
from training.corpus.statistics import dataset_card, statistics_of
from training.corpus.steps import check_memory_limit, connected, open_steps, remove_steps, shortage_explained

_NOT_DECISIVE = {"threads", "memory_limit", "push_to_hub"}  # they do not change the corpus


@dataclass
class CorpusRecipe:
    """What to make triples of.

    Args:
        articles: folder of one table a language, `<language>.jsonl` or `<language>.parquet`, with the columns of
            `tables.ARTICLE_COLUMNS`, none of them null; for the other sources the data set on the Hub, or a folder of
            its Parquet files.
        output: folder to write; it must not exist, or be one this command wrote.
        languages: ISO 639-1 codes; pairs are made between all of them. In YAML, `no` needs quotes.
        source: tables, wiki40b (google/wiki40b) or wikipedia (wikimedia/wikipedia).
        snapshot: of wikimedia/wikipedia.
        dumps: folder of Wikimedia's SQL dumps; those it lacks are fetched into it.
        dump_date: of the SQL dumps, as YYYYMMDD, or latest.
        dump_mirror: address the SQL dumps are fetched from.
        maintenance_categories: regular expressions of categories that do not count, beside the hidden ones.
        category_limit: number of articles above which a category is drawn less often, in proportion.
        min_sentences: shorter documents are dropped.
        dev_fraction: of the concepts, for the sources that have no split of their own.
        test_fraction: likewise.
        num_triples: draw that many of the triples; all without it.
        pair_exponent: with num_triples, a pair of languages with n triples has a share ∝ n^pair_exponent.
        engine: duckdb, on this machine; spark for what it cannot hold.
        threads: of DuckDB; as many as there are cores without it.
        memory_limit: of DuckDB, which goes to disk for what is more.
        push_to_hub: data set on the Hub to upload the corpus to.
        seed: of every draw.
    """

    articles: str
    output: str
    languages: list[str]
    source: Source = "tables"
    snapshot: str = "20231101"
    dumps: str = "runs/dumps"
    dump_date: str = "latest"
    dump_mirror: str = "https://dumps.wikimedia.org"
    maintenance_categories: list[str] = field(default_factory=list)
    category_limit: int = 10_000
    min_sentences: int = 5
    dev_fraction: float = 0.01
    test_fraction: float = 0.01
    num_triples: int | None = None
    pair_exponent: float = 1.0
    engine: Engine = "duckdb"
    threads: int | None = None
    memory_limit: str = "4GB"
    push_to_hub: str | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        for language in self.languages:
            if not re.fullmatch(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*", language):
                raise ValueError(f"languages has {language!r}; a code as en or zh-tw is needed")
        if len(set(self.languages)) < max(len(self.languages), 2):
            raise ValueError(f"languages are {self.languages}; name at least two, each once")
        check_memory_limit(self.memory_limit)
        with duckdb.connect() as connection:
            for pattern in self.maintenance_categories:
                try:
                    connection.execute("SELECT regexp_full_match('', $1)", [pattern]).fetchall()
                except duckdb.Error as error:
                    raise ValueError(f"maintenance_categories: {pattern!r} is no pattern: {error}") from None
        for name in ("category_limit", "num_triples", "threads"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.min_sentences < 0:
            raise ValueError(f"min_sentences is {self.min_sentences}; it must be at least 0")
        if not (min(self.dev_fraction, self.test_fraction) >= 0 and self.dev_fraction + self.test_fraction < 1):
            raise ValueError(
                f"dev_fraction is {self.dev_fraction} and test_fraction {self.test_fraction}; they must be at least 0 "
                "and leave a part for training"
            )
        if not 0 <= self.pair_exponent <= 1:
            raise ValueError(f"pair_exponent is {self.pair_exponent}; it must be between 0 and 1")
        if self.pair_exponent != 1.0 and self.num_triples is None:
            raise ValueError("pair_exponent is of the draw of num_triples; set num_triples too")


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(CorpusRecipe, argv)
    output = Path(recipe.output)
    with locked(output, wait=False), shortage_explained(output):
        check_output(output, Path(recipe.articles))
        statistics = build_corpus(recipe, output)
    if recipe.push_to_hub:
        upload_folder(output, recipe.push_to_hub, "dataset")
    print(json.dumps(statistics, indent=2))


def check_output(output: Path, articles: Path) -> None:
    """
    Raises:
        ValueError: the output is something else than a corpus, or holds the articles.
    """
    if output.exists() and not ((output / "statistics.json").exists() and (output / "triples.parquet").exists()):
        raise ValueError(f"{output} exists and holds no corpus of this command; name another folder, or remove it")
    if articles.resolve().is_relative_to(output.resolve()):
        raise ValueError(f"the articles are in {output}, which would be replaced; name another output")


def build_corpus(recipe: CorpusRecipe, output: Path) -> dict[str, Any]:
    """Writes the corpus and returns its statistics."""
    files = article_files(recipe.source, recipe.articles, recipe.languages, recipe.snapshot)
    dumps: dict[str, dict[str, Path]] = {}
    if recipe.source != "tables":
        dumps = fetch_dumps(recipe.languages, Path(recipe.dumps), recipe.dump_date, recipe.dump_mirror)

    inputs = [path for paths in files.values() for path in paths]
    inputs += [path for tables in dumps.values() for path in tables.values()]
    decisive = {name: value for name, value in asdict(recipe).items() if name not in _NOT_DECISIVE}
    steps = open_steps(output, decisive, inputs)
    with connected(steps, recipe.memory_limit, recipe.threads) as connection:
        define_draw(connection, recipe.seed)
        for language, tables in dumps.items():
            if not (steps / f"{language}.categories.json").exists():
                with progress(connection, f"categories of {language}"):
                    write_categories(connection, tables, steps / f"{language}.categories.parquet")
        articles = {language: steps / f"{language}.articles.parquet" for language in recipe.languages}
        for language, target in articles.items():
            if not target.with_suffix(".json").exists():
                categories = steps / f"{language}.categories.parquet" if dumps else None
                with progress(connection, f"articles of {language}"):
                    write_articles(connection, language, files[language], categories, target, rules_of(recipe))
        check_splits(connection, list(articles.values()))
        triples = steps / "triples.parquet"
        if not triples.exists():
            with progress(connection, "triples"):
                draw_triples(
                    connection,
                    list(articles.values()),
                    triples,
                    category_limit=recipe.category_limit,
                    seed=recipe.seed,
                    engine=recipe.engine,
                )
        if recipe.num_triples is not None:
            all_triples, triples = triples, steps / "sample.parquet"
            if not triples.exists():
                sample_triples(connection, all_triples, triples, recipe.num_triples, recipe.pair_exponent, recipe.seed)
        check_triples(connection, articles, triples)
        with folder_written_whole(output) as folder, progress(connection, "corpus"):
            statistics = write_corpus(connection, articles, triples, folder, recipe)
    remove_steps(steps)
    return statistics


def rules_of(recipe: CorpusRecipe) -> ArticleRules:
    return ArticleRules(
        recipe.source,
        recipe.min_sentences,
        recipe.maintenance_categories,
        recipe.dev_fraction,
        recipe.test_fraction,
    )


def check_triples(connection: duckdb.DuckDBPyConnection, articles: dict[str, Path], triples: Path) -> None:
    """
    Raises:
        ValueError: there is no triple to train on; says what there is.
    """
    splits = dict(connection.execute(f"SELECT split, count(*) FROM {readable(triples)} GROUP BY ALL").fetchall())
    if splits.get("train"):
        return
    files = ", ".join(map(readable, articles.values()))
    concepts, without_category = connection.execute(
        f"""
        SELECT count(*), count(*) FILTER (categorized = 0)
        FROM (
            SELECT count_if(len(categories) > 0) AS categorized
            FROM read_parquet([{files}]) WHERE split = 'train' GROUP BY concept_id HAVING count(*) > 1
        )
        """
    ).fetchall()[0]
    counts = "; ".join(f"{language}: {read_counts(path)}" for language, path in articles.items())
    raise ValueError(
        f"no triple to train on comes of these articles, and {sum(splits.values())} for dev and test. A triple is a "
        "concept with articles in two languages, and another article that shares a category with it in its language "
        f"and split. {concepts} concepts of train have articles in two languages, {without_category} of them without "
        f"any category. Articles by language: {counts}"
    )


def read_counts(articles: Path) -> dict[str, int]:
    """What was counted when the articles of a language were read."""
    counts: dict[str, int] = json.loads(articles.with_suffix(".json").read_text(encoding="utf-8"))
    return counts


def write_corpus(
    connection: duckdb.DuckDBPyConnection,
    articles: dict[str, Path],
    triples: Path,
    folder: Path,
    recipe: CorpusRecipe,
) -> dict[str, Any]:
    """Writes articles that a pair can be made of or that are a negative, triples, statistics and card."""
    (folder / "articles").mkdir()
    files = ", ".join(map(readable, articles.values()))
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE shared AS
        SELECT concept_id FROM read_parquet([{files}]) GROUP BY concept_id HAVING count(*) > 1
        """
    )
    for language, path in articles.items():
        connection.execute(
            f"""
            COPY (
                SELECT * FROM {readable(path)}
                WHERE concept_id IN (
                    SELECT concept_id FROM shared
                    UNION SELECT negative_id FROM {readable(triples)} WHERE anchor_language = {quoted(language)}
                    UNION SELECT positive_negative_id FROM {readable(triples)}
                    WHERE positive_language = {quoted(language)}
                )
                ORDER BY concept_id
            ) TO {quoted(folder / "articles" / f"{language}.parquet")} (FORMAT parquet, COMPRESSION zstd)
            """
        )
    connection.execute(f"COPY (FROM {readable(triples)}) TO {quoted(folder / 'triples.parquet')} (FORMAT parquet)")
    read = {language: read_counts(path) for language, path in articles.items()}
    dumps = {
        path.name.removesuffix(".categories.json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(triples.parent.glob("*.categories.json"))
    }
    statistics = statistics_of(connection, folder, asdict(recipe), read, dumps)
    (folder / "statistics.json").write_text(json.dumps(statistics, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(dataset_card(statistics), encoding="utf-8")
    return statistics


if __name__ == "__main__":
    main()
