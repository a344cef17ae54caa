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

import errno
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import duckdb
from jsonargparse import auto_cli

from training.corpus.download import fetch_dumps
from training.corpus.join import Engine, define_draw, draw_triples, sample_triples
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
from training.folders import file_written_whole, written_whole


@dataclass
class CorpusRecipe:
    """What to make triples of.

    Args:
        articles: folder of article tables, one file a language; for the other sources the data set on the Hub, or a
            folder of its Parquet files.
        output: folder to write; it must not exist, or be one this command wrote.
        languages: ISO 639-1 codes; pairs are made between all of them.
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


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(CorpusRecipe, args=argv, as_positional=False)
    output = Path(recipe.output)
    if output.exists() and not (output / "statistics.json").exists():
        raise ValueError(f"{output} exists and holds no corpus of this command; name another folder, or remove it")
    if recipe.pair_exponent != 1.0 and recipe.num_triples is None:
        raise ValueError("pair_exponent is of the draw of num_triples; set num_triples too")

    files = article_files(recipe.source, recipe.articles, recipe.languages, recipe.snapshot)
    dumps: dict[str, dict[str, Path]] = {}
    if recipe.source != "tables":
        dumps = fetch_dumps(recipe.languages, Path(recipe.dumps), recipe.dump_date, recipe.dump_mirror)

    steps = open_steps(output.with_name(output.name + ".steps"), recipe, files, dumps)
    with full_disk_explained(output), connected(recipe, steps) as connection:
        for language, tables in dumps.items():
            if not (steps / f"{language}.categories.json").exists():
                write_categories(connection, tables, steps / f"{language}.categories.parquet")
        articles = {language: steps / f"{language}.parquet" for language in recipe.languages}
        for language, target in articles.items():
            if not target.with_suffix(".json").exists():
                categories = steps / f"{language}.categories.parquet" if dumps else None
                write_articles(connection, language, files[language], categories, target, rules_of(recipe))
        check_splits(connection, list(articles.values()))
        triples = steps / "triples.parquet"
        if not triples.exists():
            draw_triples(
                connection,
                list(articles.values()),
                triples,
                category_limit=recipe.category_limit,
                seed=recipe.seed,
                engine=recipe.engine,
            )
        if recipe.num_triples is not None:
            triples = steps / "sample.parquet"
            if not triples.exists():
                all_triples = steps / "triples.parquet"
                sample_triples(connection, all_triples, triples, recipe.num_triples, recipe.pair_exponent, recipe.seed)
        with written_whole(output) as folder:
            statistics = write_corpus(connection, articles, triples, folder, recipe)
    shutil.rmtree(steps)
    if recipe.push_to_hub:
        push_to_hub(output, recipe.push_to_hub)
    print(json.dumps(statistics, indent=2))


def rules_of(recipe: CorpusRecipe) -> ArticleRules:
    return ArticleRules(
        recipe.source,
        recipe.min_sentences,
        recipe.maintenance_categories,
        recipe.dev_fraction,
        recipe.test_fraction,
    )


def open_steps(
    folder: Path, recipe: CorpusRecipe, files: dict[str, list[Path]], dumps: dict[str, dict[str, Path]]
) -> Path:
    """The folder of finished steps, emptied where they were taken from another recipe or other files."""
    inputs = [path for group in files.values() for path in group]
    inputs += [path for tables in dumps.values() for path in tables.values()]
    stands = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in inputs]
    of_resources = {"threads", "memory_limit", "push_to_hub"}
    wanted = {name: value for name, value in asdict(recipe).items() if name not in of_resources}
    mark = json.dumps({"recipe": wanted, "inputs": stands}, indent=2)
    if not (folder / "mark.json").exists() or (folder / "mark.json").read_text(encoding="utf-8") != mark:
        shutil.rmtree(folder, ignore_errors=True)
        with file_written_whole(folder / "mark.json") as partial:
            partial.write_text(mark, encoding="utf-8")
    return folder


@contextmanager
def connected(recipe: CorpusRecipe, steps: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": recipe.memory_limit,
        "temp_directory": str(steps / "spilled"),
    }
    if recipe.threads is not None:
        config["threads"] = recipe.threads
    with duckdb.connect(config=config) as connection:
        connection.execute("SET enable_progress_bar = false")  # it would stand in the statistics that are printed
        define_draw(connection, recipe.seed)
        yield connection


@contextmanager
def full_disk_explained(output: Path) -> Iterator[None]:
    """
    Raises:
        OSError: the disk is full, with the way on.
    """
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if getattr(error, "errno", None) != errno.ENOSPC and "No space left" not in str(error):
            raise
        way_on = "free some space and run the command again; it goes on from the last finished step"
        raise OSError(errno.ENOSPC, f"the disk of {output} is full ({error}); {way_on}") from None


def write_corpus(
    connection: duckdb.DuckDBPyConnection,
    articles: dict[str, Path],
    triples: Path,
    folder: Path,
    recipe: CorpusRecipe,
) -> dict[str, object]:
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
    read = {language: json.loads(path.with_suffix(".json").read_text("utf-8")) for language, path in articles.items()}
    dumps = {
        path.name.removesuffix(".categories.json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(triples.parent.glob("*.categories.json"))
    }
    statistics = statistics_of(connection, folder, asdict(recipe), read, dumps)
    (folder / "statistics.json").write_text(json.dumps(statistics, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(dataset_card(statistics), encoding="utf-8")
    return statistics


def push_to_hub(folder: Path, repository: str) -> None:
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repository, repo_type="dataset", exist_ok=True)
    api.upload_folder(folder_path=folder, repo_id=repository, repo_type="dataset")


if __name__ == "__main__":
    main()
