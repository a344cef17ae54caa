"""Training triples from articles: anchor, the same concept in another language, a hard negative (paper, section 3.1).

    python -m training.corpus --config configuration/corpora/sample.yaml

Reads article tables or documents of any kind, and writes

    articles/<language>.parquet   the articles of concepts in two languages and of negatives, each text once
    triples.parquet               ids, not texts: see `hard_negatives.TRIPLE_COLUMNS`
    statistics.json               how much was read, dropped, kept and drawn
    mates.json                    of documents: what was left out, and what each least margin would keep

The same input, languages and seed give the same bytes, whatever the number of threads: every draw is an MD5 hash.
Finished steps are kept in `<output>.steps` until the end, and a run that was stopped resumes there.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shutil import copyfile
from typing import Any

import duckdb

from hmde.common.command_line import options_from
from hmde.common.files import folder_written_whole, locked, write_json
from training.corpus.articles import article_files, check_splits, define_rules, write_articles, write_sentences
from training.corpus.database import (
    count_by,
    count_rows,
    database,
    quoted,
    read_parquet,
    write_parquet,
)
from training.corpus.documents import document_files, write_document_tables
from training.corpus.hard_negatives import draw_triples
from training.corpus.recipe import CorpusRecipe
from training.corpus.statistics import corpus_statistics
from training.corpus.steps import open_steps, remove_steps
from training.corpus.subsample import sample_triples


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(CorpusRecipe, argv)
    output = Path(recipe.output)
    with locked(output, wait=False):
        check_output(output, Path(recipe.articles))
        with database(output, recipe.memory_limit, recipe.threads) as connection:
            statistics = build_corpus(connection, recipe, output)
        remove_steps(output)
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


def build_corpus(connection: duckdb.DuckDBPyConnection, recipe: CorpusRecipe, output: Path) -> dict[str, Any]:
    """Writes the corpus and returns its statistics."""
    define_rules(connection, recipe.min_sentences, recipe.seed)
    if recipe.source == "documents":
        steps = open_steps(output, recipe, document_files(recipe))
        mined = steps / "documents"
        write_document_tables(connection, recipe, mined)
        files = {language: mined / f"{language}.parquet" for language in recipe.languages}
        neighbours = mined / "neighbours"
    else:
        files, neighbours = article_files(recipe), None
        steps = open_steps(output, recipe, list(files.values()))
    articles = {language: steps / f"{language}.articles.parquet" for language in recipe.languages}
    for language, target in articles.items():
        if not target.with_suffix(".json").exists():
            write_articles(connection, language, files[language], target)
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
    with folder_written_whole(output) as folder:
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
    """Writes the articles that make a pair or are a negative, the triples and the statistics.

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
    statistics = corpus_statistics(connection, folder, asdict(recipe), read)
    if recipe.source == "documents":
        copyfile(triples.parent / "documents" / "mates.json", folder / "mates.json")
    write_json(folder / "statistics.json", statistics)
    return statistics
