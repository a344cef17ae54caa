"""Training triples from articles: anchor, the same concept in another language, a hard negative (paper, section 3.1).

    python -m training.corpus --config configuration/corpora/sample.yaml

Reads a folder of article tables, `<language>.parquet` or `<language>.jsonl`, with the columns of `ARTICLE_COLUMNS`, and
writes

    articles/<language>.parquet   the articles kept, each text once
    triples.parquet               ids, not texts: see `TRIPLE_COLUMNS`
    statistics.json               what was read, kept and drawn

The same input, languages and seed give the same triples, whatever the number of threads: every draw is an MD5 hash.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
from jsonargparse import auto_cli

from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans
from training.folders import written_whole

ARTICLE_COLUMNS = {
    "concept_id": "VARCHAR",  # the same in all languages
    "language": "VARCHAR",  # ISO 639-1
    "title": "VARCHAR",
    "text": "VARCHAR",  # a paragraph a line; a first line that equals the title is cut
    "categories": "VARCHAR[]",
    "source": "VARCHAR",
    "license": "VARCHAR",
    "split": "VARCHAR",  # train, dev or test, the same for all articles of a concept
}
TRIPLE_COLUMNS = (
    "concept_id",  # of anchor and positive
    "anchor_language",
    "positive_language",
    "category",  # shared by anchor and negative
    "negative_id",  # concept of the hard negative in the anchor's language
    "positive_negative_id",  # concept of the hard negative in the positive's language, NULL where there is none
    "split",
)


@dataclass
class CorpusRecipe:
    """What to make triples of.

    Args:
        articles: folder of article tables, one file a language.
        output: folder to write; it must not exist, or be one this command wrote.
        languages: ISO 639-1 codes; pairs are made between all of them.
        min_sentences: shorter documents are dropped.
        seed: of the draws of categories, negatives and the anchor's side.
    """

    articles: str
    output: str
    languages: list[str]
    min_sentences: int = 5
    seed: int = 42


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(CorpusRecipe, args=argv, as_positional=False)
    files = article_files(Path(recipe.articles), recipe.languages)
    output = Path(recipe.output)
    if output.exists() and not (output / "statistics.json").exists():
        raise ValueError(f"{output} exists and holds no corpus of this command; name another folder, or remove it")
    with written_whole(output) as folder, duckdb.connect() as connection:
        read_articles(connection, files, recipe.min_sentences)
        draw_triples(connection, recipe.seed)
        statistics = write_corpus(connection, folder, recipe)
    print(json.dumps(statistics, indent=2))


def article_files(folder: Path, languages: list[str]) -> dict[str, Path]:
    """The article table of each language.

    Raises:
        ValueError: a language is named twice, is the only one, or has no file.
    """
    if len(set(languages)) < max(len(languages), 2):
        raise ValueError(f"languages are {languages}; name at least two, each once")
    files = {}
    for language in languages:
        found = [path for path in (folder / f"{language}.parquet", folder / f"{language}.jsonl") if path.exists()]
        if not found:
            raise ValueError(
                f"{folder} has no {language}.parquet and no {language}.jsonl; one file a language is needed"
            )
        files[language] = found[0]
    return files


def read_articles(connection: duckdb.DuckDBPyConnection, files: dict[str, Path], min_sentences: int) -> None:
    """Fills the table `article` with the articles of at least `min_sentences` sentences.

    Raises:
        ValueError: a file cannot be read as an article table, or a concept stands twice in one language.
    """
    connection.create_function("num_sentences", num_sentences, ["VARCHAR", "VARCHAR"], "INTEGER")
    columns = ", ".join(f"{name} {kind}" for name, kind in ARTICLE_COLUMNS.items())
    connection.execute(f"CREATE TABLE article ({columns})")
    for language, path in files.items():
        try:
            source = table_of(connection, path)
            connection.execute(
                f"""
                INSERT INTO article
                SELECT concept_id, language, title,
                       CASE WHEN starts_with(text, title || chr(10)) THEN substr(text, length(title) + 2) ELSE text END,
                       categories, source, license, split
                FROM source
                WHERE num_sentences(text, language) >= {min_sentences:d}
                """
            )
        except duckdb.Error as error:
            raise ValueError(
                f"{path} is no article table with the columns {', '.join(ARTICLE_COLUMNS)}: {error}"
            ) from None
        del source
        strangers = connection.execute(
            "SELECT concept_id, language FROM article WHERE language NOT IN (SELECT unnest(?)) LIMIT 1", [list(files)]
        ).fetchall()
        for concept_id, other in strangers:
            raise ValueError(f"{path}: article {concept_id} is of language {other}; the file is for {language}")
    twice = connection.execute(
        "SELECT language, concept_id FROM article GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 1"
    ).fetchall()
    for language, concept_id in twice:
        raise ValueError(f"{files[language]}: concept {concept_id} stands there more than once; keep one article each")


def table_of(connection: duckdb.DuckDBPyConnection, path: Path) -> duckdb.DuckDBPyRelation:
    if path.suffix == ".parquet":
        return connection.read_parquet(str(path))
    return connection.read_json(str(path), format="newline_delimited", columns=ARTICLE_COLUMNS)


def num_sentences(text: str, language: str) -> int:
    return sum(1 for _ in sentence_spans(replace_surrogates(text), language))


def draw_triples(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Fills the table `triple`: every pair of languages of every concept, with a hard negative for each side.

    Which side is the anchor is drawn. A negative is drawn as uniformly as it can be without a join of a category with
    itself: first a category of the article that has another member in its language and split, then one of those
    members. A pair whose anchor has no such category is left out.
    """
    connection.execute(
        f"""
        CREATE MACRO draw(key) AS ('0x' || md5('{seed:d}|' || key)[1:15])::BIGINT;

        CREATE TABLE member AS
        SELECT language, split, category, concept_id,
               row_number() OVER (PARTITION BY language, split, category ORDER BY concept_id) - 1 AS place,
               count(*) OVER (PARTITION BY language, split, category) AS size
        FROM (SELECT DISTINCT language, split, concept_id, unnest(categories) AS category FROM article)
        QUALIFY size > 1;

        CREATE TABLE pair AS
        SELECT concept_id, split,
               CASE WHEN first_is_anchor THEN one.language ELSE other.language END AS anchor_language,
               CASE WHEN first_is_anchor THEN other.language ELSE one.language END AS positive_language,
        FROM (SELECT concept_id, split, language FROM article) AS one
        JOIN (SELECT concept_id, split, language FROM article) AS other USING (concept_id, split),
             LATERAL (SELECT draw(concat_ws('|', 'side', concept_id, one.language, other.language)) % 2 = 0
                      AS first_is_anchor)
        WHERE one.language < other.language;

        CREATE TABLE negative AS
        SELECT drawn.*, other.concept_id AS negative_id
        FROM (
            SELECT pair.concept_id, anchor_language, positive_language, member.language, member.split, category, size,
                   (place + 1 + draw(concat_ws('|', 'member', pair.concept_id, anchor_language, positive_language,
                                               member.language)) % (size - 1)) % size AS negative_place
            FROM pair
            JOIN member ON member.concept_id = pair.concept_id
                       AND member.split = pair.split
                       AND member.language IN (anchor_language, positive_language)
            QUALIFY 1 = row_number() OVER (
                PARTITION BY pair.concept_id, anchor_language, positive_language, member.language
                ORDER BY draw(concat_ws('|', 'category', pair.concept_id, anchor_language, positive_language,
                                        member.language, category)), category)
        ) AS drawn
        JOIN member AS other
          ON other.language = drawn.language AND other.split = drawn.split AND other.category = drawn.category
         AND other.place = drawn.negative_place;

        CREATE TABLE triple AS
        SELECT pair.concept_id, pair.anchor_language, pair.positive_language, hard.category, hard.negative_id,
               hard_positive.negative_id AS positive_negative_id, pair.split
        FROM pair
        JOIN negative AS hard
          ON hard.concept_id = pair.concept_id AND hard.anchor_language = pair.anchor_language
         AND hard.positive_language = pair.positive_language AND hard.language = pair.anchor_language
        LEFT JOIN negative AS hard_positive
          ON hard_positive.concept_id = pair.concept_id AND hard_positive.anchor_language = pair.anchor_language
         AND hard_positive.positive_language = pair.positive_language
         AND hard_positive.language = pair.positive_language
        ORDER BY pair.split, pair.concept_id, pair.anchor_language, pair.positive_language;
        """
    )


def write_corpus(connection: duckdb.DuckDBPyConnection, folder: Path, recipe: CorpusRecipe) -> dict[str, object]:
    (folder / "articles").mkdir()
    for language in recipe.languages:
        path = str(folder / "articles" / f"{language}.parquet")
        connection.table("article").filter(f"language = '{language}'").order("concept_id").write_parquet(path)
    connection.table("triple").select(", ".join(TRIPLE_COLUMNS)).write_parquet(str(folder / "triples.parquet"))
    statistics: dict[str, object] = {
        "recipe": asdict(recipe),
        "articles": dict(count_by(connection, "article", "language")),
        "concepts": connection.execute("SELECT count(DISTINCT concept_id) FROM pair").fetchall()[0][0],
        "pairs": connection.execute("SELECT count(*) FROM pair").fetchall()[0][0],
        "triples": dict(count_by(connection, "triple", "split")),
        "triples_by_languages": dict(
            count_by(
                connection,
                "triple",
                "least(anchor_language, positive_language) || '-' || greatest(anchor_language, positive_language)",
            )
        ),
    }
    (folder / "statistics.json").write_text(json.dumps(statistics, indent=2) + "\n", encoding="utf-8")
    return statistics


def count_by(connection: duckdb.DuckDBPyConnection, table: str, key: str) -> list[tuple[str, int]]:
    return connection.execute(f"SELECT {key} AS key, count(*) FROM {table} GROUP BY key ORDER BY key").fetchall()


if __name__ == "__main__":
    main()
