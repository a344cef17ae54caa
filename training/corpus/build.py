"""Training triples from articles: anchor, the same concept in another language, a hard negative (paper, section 3.1).

    python -m training.corpus --config configuration/corpora/sample.yaml

Reads article tables, documents of any kind, wiki-40b or Wikipedia, with the categories of Wikimedia's SQL dumps, and
writes

    articles/<language>.parquet   the articles of concepts in two languages and of negatives, each text once
    triples.parquet               ids, not texts: see `hard_negatives.TRIPLE_COLUMNS`
    statistics.json, README.md    how much was read, dropped, kept and drawn; the dataset card
    mates.json                    of documents: what was left out, and what each least margin would keep

The same input, languages and seed give the same bytes, whatever the number of threads: every draw is an MD5 hash.
Finished steps are kept in `<output>.steps` until the end, and a run that was stopped resumes there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copyfile
from typing import Any

import duckdb

from hmde.common.command_line import options_from
from hmde.common.files import folder_written_whole, locked, write_json, write_text
from modeling_hmde.publishing_hmde import upload_folder
from training.corpus.articles import (
    WIKI_COLUMNS,
    article_files,
    check_splits,
    define_rules,
    drop_short_concepts,
    write_articles,
    write_sentences,
)
from training.corpus.categories import write_categories
from training.corpus.database import (
    count_by,
    count_rows,
    database,
    query_progress,
    quoted,
    read_parquet,
    write_parquet,
)
from training.corpus.dataset_cards import triples_card
from training.corpus.documents import document_files, write_document_tables
from training.corpus.download import fetch_dumps
from training.corpus.hard_negatives import draw_triples
from training.corpus.recipe import CorpusRecipe
from training.corpus.statistics import corpus_statistics
from training.corpus.steps import open_steps, remove_steps
from training.corpus.subsample import sample_triples


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(CorpusRecipe, argv)
    if recipe.size_of is not None:
        recipe = replace(recipe, num_triples=size_of_corpus(recipe.size_of))
    output = Path(recipe.output)
    with locked(output, wait=False):
        check_output(output, Path(recipe.articles))
        with database(output, recipe.memory_limit, recipe.threads) as connection:
            statistics = build_corpus(connection, recipe, output)
        remove_steps(output)
    if recipe.push_to_hub:
        upload_folder(output, recipe.push_to_hub, "dataset")
    print(json.dumps(statistics, indent=2))


def size_of_corpus(folder: str) -> int:
    """The triples of a corpus.

    Raises:
        ValueError: the folder holds none.
    """
    statistics = Path(folder) / "statistics.json"
    if not statistics.is_file():
        raise ValueError(f"size_of is {folder}, which holds no corpus; make that one first, or give num_triples")
    return int(json.loads(statistics.read_text(encoding="utf-8"))["triples_in_all"])


def check_output(output: Path, articles: Path) -> None:
    """
    Raises:
        ValueError: the output is something else than a corpus, or holds the articles.
    """
    if output.exists() and not ((output / "statistics.json").exists() and (output / "triples.parquet").exists()):
        raise ValueError(f"{output} exists and holds no corpus of this command; name another folder, or remove it")
    if articles.resolve().is_relative_to(output.resolve()):
        raise ValueError(f"the articles are in {output}, which would be replaced; name another output")


def build_corpus(connection: duckdb.DuckDBPyConnection, recipe: CorpusRecipe, output: Path) -> dict[str, Any]:
    """Writes the corpus and returns its statistics."""
    define_rules(connection, recipe)
    files = {"documents": document_files(recipe)} if recipe.source == "documents" else article_files(recipe)
    dumps: dict[str, dict[str, Path]] = {}
    if recipe.source in WIKI_COLUMNS:
        dumps = fetch_dumps(recipe.languages, Path(recipe.dumps), recipe.dump_date, recipe.dump_mirror)
    inputs = [path for paths in files.values() for path in paths]
    inputs += [path for tables in dumps.values() for path in tables.values()]
    steps = open_steps(output, recipe, inputs)
    neighbours = None
    if recipe.source == "documents":
        mined = steps / "documents"
        write_document_tables(connection, recipe, mined)
        files = {language: [mined / f"{language}.parquet"] for language in recipe.languages}
        neighbours = mined / "neighbours"

    categories = {language: steps / f"{language}.categories.parquet" for language in dumps}
    for language, target in categories.items():
        if not target.with_suffix(".json").exists():
            with query_progress(connection, f"categories of {language}"):
                write_categories(connection, dumps[language], target)
    articles = {language: steps / f"{language}.articles.parquet" for language in recipe.languages}
    for language, target in articles.items():
        if not target.with_suffix(".json").exists():
            with query_progress(connection, f"articles of {language}"):
                write_articles(connection, recipe, language, files[language], categories.get(language), target)
    if recipe.drop_short_concepts:
        with query_progress(connection, "concepts with a short article"):
            drop_short_concepts(connection, list(articles.values()))
    check_splits(connection, list(articles.values()))
    tables = {language: [path] for language, path in articles.items()}
    if recipe.sentences_per_document:
        for language, path in articles.items():
            sentences = steps / f"{language}.sentences.parquet"
            if not sentences.exists():
                write_sentences(connection, path, recipe.sentences_per_document, sentences)
            tables[language].append(sentences)
    triples = steps / "triples.parquet"
    if not triples.exists():
        with query_progress(connection, "triples"):
            draw_triples(
                connection,
                [path for paths in tables.values() for path in paths],
                triples,
                neighbours=neighbours,
                category_limit=recipe.category_limit,
                seed=recipe.seed,
            )
    if recipe.num_triples is not None:
        all_triples, triples = triples, steps / "sample.parquet"
        if not triples.exists():
            sample_triples(connection, all_triples, triples, recipe.num_triples, recipe.pair_exponent, recipe.seed)
    check_triples(connection, articles, triples)
    with folder_written_whole(output) as folder, query_progress(connection, "corpus"):
        return write_corpus(connection, recipe, tables, triples, folder)


def check_triples(connection: duckdb.DuckDBPyConnection, articles: dict[str, Path], triples: Path) -> None:
    """
    Raises:
        ValueError: there is no triple to train on; says what there is.
    """
    splits = count_by(connection, read_parquet(triples), "split")
    if splits.get("train"):
        return
    concepts = f"""
        SELECT count_if(len(categories) > 0) AS categorized
        FROM {read_parquet(*articles.values())} WHERE split = 'train' GROUP BY concept_id HAVING count(*) > 1
    """
    counts = "; ".join(f"{language}: {counted(path)}" for language, path in articles.items())
    raise ValueError(
        f"no triple to train on comes of these articles, and {sum(splits.values())} for dev and test. A triple is a "
        "concept with articles in two languages, and another article that shares a category with it in its language "
        "and split, or that a model finds near it there (`--source documents`). "
        f"{count_rows(connection, concepts)} concepts of train have articles in two languages, "
        f"{count_rows(connection, f'FROM ({concepts}) WHERE categorized = 0')} of them without any category. Articles "
        f"by language: {counts}"
    )


def counted(table: Path) -> dict[str, int]:
    """What was counted when a table of a step was written."""
    counts: dict[str, int] = json.loads(table.with_suffix(".json").read_text(encoding="utf-8"))
    return counts


def write_corpus(
    connection: duckdb.DuckDBPyConnection,
    recipe: CorpusRecipe,
    tables: dict[str, list[Path]],
    triples: Path,
    folder: Path,
) -> dict[str, Any]:
    """Writes the articles that make a pair or are a negative, the triples, the statistics and the card.

    Args:
        tables: by language, that of its documents and, if there are some, that of their sentences.
    """
    everything = read_parquet(*(path for paths in tables.values() for path in paths))
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE shared AS
        SELECT concept_id FROM {everything} GROUP BY concept_id HAVING count(*) > 1
        """
    )
    for language, paths in tables.items():
        used = f"""
            SELECT * FROM {read_parquet(*paths)}
            WHERE concept_id IN (
                SELECT concept_id FROM shared
                UNION SELECT negative_id FROM {read_parquet(triples)} WHERE anchor_language = {quoted(language)}
                UNION SELECT positive_negative_id FROM {read_parquet(triples)}
                WHERE positive_language = {quoted(language)}
            )
            ORDER BY concept_id
        """
        write_parquet(connection, used, folder / "articles" / f"{language}.parquet", compression="zstd")
    write_parquet(connection, f"FROM {read_parquet(triples)}", folder / "triples.parquet")
    read = {language: counted(paths[0]) for language, paths in tables.items()}
    dumps = {path.name.partition(".")[0]: counted(path) for path in sorted(triples.parent.glob("*.categories.json"))}
    statistics = corpus_statistics(connection, folder, asdict(recipe), read, dumps)
    if recipe.source == "documents":
        copyfile(triples.parent / "documents" / "mates.json", folder / "mates.json")
    write_json(folder / "statistics.json", statistics)
    write_text(folder / "README.md", triples_card(statistics))
    return statistics
