"""Tables of articles from documents of any kind that hmde reads, without links and categories: a model says which of
them belong together. Its vectors of the documents are those that `hmde encode` wrote."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from hmde.common.files import file_written_whole, write_json
from hmde.common.fingerprints import fingerprint
from hmde.common.records import ROWS_AT_ONCE
from hmde.documents.documents import Columns, Document, Documents, detected_language, distinct, files_of
from hmde.index.precomputed import PrecomputedEmbeddings
from hmde.release.released import RELEASED
from modeling_hmde.segmentation_hmde import sentence_spans
from training.corpus.database import drawn_split, quoted, write_parquet
from training.corpus.mates import connect, find_mates, lowest_cosines, nearest_within
from training.corpus.recipe import CorpusRecipe

LEAST_LETTERS = 0.5  # part of a text's visible characters; what has fewer is a table of numbers, or code
# Two texts count as one where they share so much: within a language, the same page with another date; of two languages,
# a page that was not translated.
DUPLICATE, COPIED = 0.8, 0.5
DUPLICATE_COSINE = 0.9  # texts are compared above it
COMPARED = 4000  # characters of each text
# Hard negatives are the first CANDIDATES among the nearest NEAREST that are less near than SHARE of the farthest mate.
NEAREST, CANDIDATES, SHARE = 32, 8, 0.95
THRESHOLDS = (1.0, 1.02, 1.05, 1.08, 1.1, 1.12, 1.15, 1.2, 1.3)  # what each would keep is reported


def document_files(recipe: CorpusRecipe) -> list[Path]:
    """The files of the documents, and of their vectors.

    Raises:
        ValueError: the documents, or their vectors, are not named or not there.
    """
    if recipe.embeddings is None:
        raise ValueError(
            f"source is documents; make their vectors with `hmde encode`, and name them: {_encode(recipe)}"
        )
    if not Path(recipe.articles).exists():
        raise ValueError(f"{recipe.articles} is missing; name a folder of documents")
    files = [file for file, _ in files_of(Path(recipe.articles), Counter())]
    return [*files, *sorted(Path(recipe.embeddings).glob("shard-*.parquet"))]


def write_document_tables(connection: duckdb.DuckDBPyConnection, recipe: CorpusRecipe, folder: Path) -> None:
    """Writes <language>.parquet with `ARTICLE_COLUMNS`, and `neighbours`, hard negatives of each document that has
    mates, and at last mates.json, what was left out and found. Memory holds the vectors and the texts.

    Args:
        connection: with `define_rules`.

    Raises:
        ValueError: documents have no vectors, are of one language only, or none has a mate.
    """
    if (folder / "mates.json").exists():
        return
    if recipe.threads is not None:
        faiss.omp_set_num_threads(recipe.threads)
    folder.mkdir(exist_ok=True)
    left_out: Counter[str] = Counter()
    vectors = _read(recipe, folder / "documents.parquet", left_out)
    documents = parquet.read_table(folder / "documents.parquet")
    kept = _without_duplicates(vectors, documents)
    left_out["near duplicates"] = len(kept) - int(kept.sum())
    documents, vectors = documents.filter(kept), vectors[kept]
    found: dict[str, Any] = {
        "left_out": left_out,
        "documents": dict(sorted(Counter(documents["language"].to_pylist()).items())),
    }
    concepts = _concepts(recipe, documents, vectors, found)
    if len({*concepts}) == len(concepts):
        raise ValueError(_nothing_found(recipe, found))
    _write_tables(connection, recipe, documents, concepts, vectors, folder)
    write_json(folder / "mates.json", found)


def _nothing_found(recipe: CorpusRecipe, found: dict[str, Any]) -> str:
    languages = ", ".join(f"{count} in {language}" for language, count in found["documents"].items()) or "none"
    left_out = ", ".join(f"{count} {reason}" for reason, count in found["left_out"].items() if count) or "none"
    least, pairs = next(iter(found["pairs_by_least_margin"].items()))
    return (
        f"no two documents of {recipe.articles} belong together at a min_margin of {recipe.min_margin} (at {least}: "
        f"{pairs} pairs). Documents: {languages}; left out: {left_out}. Bring more that say the same in two of "
        f"{', '.join(recipe.languages)}, or lower min_margin"
    )


def _read(recipe: CorpusRecipe, target: Path, left_out: Counter[str]) -> np.ndarray:
    """Writes the documents in the recipe's languages, and returns their vectors (documents, hidden), float32."""
    embeddings = PrecomputedEmbeddings(str(recipe.embeddings), recipe.model or RELEASED)
    columns = {name: pa.string() for name in ("id", "concept_id", "split", "language", "title", "text")}
    source = distinct(Documents(recipe.articles, columns=Columns(metadata=["concept_id", "split"]), strict=True))
    vectors = []
    with file_written_whole(target) as partial, parquet.ParquetWriter(partial, pa.schema(columns)) as writer:
        while batch := list(islice(source, ROWS_AT_ONCE)):
            read = []
            for document, vector in zip(batch, embeddings.find(batch)):
                if vector is None:
                    raise ValueError(f"{document.id} has no vector in {recipe.embeddings}; run {_encode(recipe)}")
                language = document.language or detected_language(document.text)
                if reason := _reason_to_leave_out(document, language, recipe):
                    left_out[reason] += 1
                    continue
                concept = str(document.metadata.get("concept_id", ""))
                split = document.metadata.get("split", "") if concept else ""
                values = (document.id, concept, split, language, _title(document, language), document.text)
                read.append(dict(zip(columns, values)))
                vectors.append(vector)
            writer.write_batch(pa.RecordBatch.from_pylist(read, writer.schema))
    return np.array(vectors, np.float32)


def _title(document: Document, language: str) -> str:
    """The title, which trains as a query; or the first sentence, if the title names only a file, a part or a row."""
    file, _, place = document.id.partition("#")
    if document.title not in (Path(file).stem, place) and not re.match(r"\w+=\d", place):
        return document.title
    begin, end = next(sentence_spans(document.text, language), (0, 0))
    return document.text[begin:end]


def _reason_to_leave_out(document: Document, language: str, recipe: CorpusRecipe) -> str | None:
    if language not in recipe.languages:
        return f"in another language ({language})"
    letters, visible = len(re.findall(r"[^\W\d_]", document.text)), len(re.findall(r"\S", document.text))
    return "mostly numbers or signs" if letters < LEAST_LETTERS * visible or not visible else None


def _without_duplicates(vectors: np.ndarray, documents: pa.Table) -> np.ndarray:
    """(documents,): False for those whose text an earlier one of the language nearly has."""
    languages, texts = documents["language"].to_pylist(), documents["text"]
    seen: set[str] = set()
    kept = np.ones(len(documents), bool)
    for row, language in enumerate(languages):
        letters = fingerprint(language, _letters(texts[row].as_py()))
        kept[row] = letters not in seen
        seen.add(letters)
    cosines, nearest = nearest_within(vectors, np.array(languages, str), NEAREST)
    for row, place in np.argwhere((cosines >= DUPLICATE_COSINE) & (nearest >= 0)).tolist():
        earlier = int(nearest[row, place])
        if earlier < row and kept[earlier] and kept[row]:
            kept[row] = _overlap(documents, earlier, row) < DUPLICATE
    return kept


def _overlap(documents: pa.Table, one: int, other: int) -> float:
    """The part of their runs of five letters that two texts share, of all that they have (Jaccard)."""
    first, second = (_runs(documents["text"][row].as_py()[:COMPARED]) for row in (one, other))
    return len(first & second) / max(1, len(first | second))


def _letters(text: str) -> str:
    return re.sub(r"[\W\d_]+", "", text)


@lru_cache(maxsize=4096)
def _runs(text: str) -> frozenset[str]:
    letters = _letters(text)
    return frozenset(letters[place : place + 5] for place in range(max(1, len(letters) - 4)))


def _concepts(recipe: CorpusRecipe, documents: pa.Table, vectors: np.ndarray, found: dict[str, Any]) -> list[str]:
    """The concept of each document: that which it names, or else its mates, of which `found` is told."""
    ids, named, languages = (documents[name].to_pylist() for name in ("id", "concept_id", "language"))
    mates = find_mates(vectors, np.array(languages, str))
    unknown = np.array([not (named[one] or named[other]) for one, other in mates.rows.tolist()], bool)
    copies = np.array([_overlap(documents, *pair) >= COPIED for pair in mates.rows.tolist()], bool)
    pairs, margins = mates.rows[unknown & ~copies], mates.margins[unknown & ~copies]
    found["left_out"]["pairs of which one is a copy"] = int((unknown & copies).sum())
    found["pairs_by_least_margin"] = {str(least): int((margins >= least).sum()) for least in THRESHOLDS}
    concepts = connect(pairs[margins >= recipe.min_margin], languages)
    return [name or ids[first] for name, first in zip(named, concepts)]


def _write_tables(
    connection: duckdb.DuckDBPyConnection,
    recipe: CorpusRecipe,
    documents: pa.Table,
    concepts: list[str],
    vectors: np.ndarray,
    folder: Path,
) -> None:
    connection.register("document", documents.set_column(1, "concept_id", pa.array(concepts, pa.string())))
    split = f"coalesce(nullif(split, ''), {drawn_split(recipe.dev_fraction, recipe.test_fraction)})"
    for language in recipe.languages:
        query = f"""
            SELECT concept_id, language, title, text, []::VARCHAR[] AS categories, 'documents' AS source, '' AS license,
                   {split} AS split
            FROM document WHERE language = {quoted(language)} ORDER BY concept_id
        """
        write_parquet(connection, query, folder / f"{language}.parquet", compression="zstd")
    splits = connection.execute(f"SELECT {split} FROM document")
    names = zip(documents["language"].to_pylist(), (split for (split,) in splits.fetchall()))
    groups = np.array(["|".join(name) for name in names])
    negatives = [
        {"language": documents["language"][row].as_py(), "concept_id": concepts[row], "negative_id": concepts[negative]}
        for row, negative in _hard_negatives(vectors, groups, np.array(concepts))
    ]
    columns = {name: pa.string() for name in ("language", "concept_id", "negative_id")}
    with file_written_whole(folder / "neighbours") as partial:
        parquet.write_table(pa.Table.from_pylist(negatives, pa.schema(columns)), partial)


def _hard_negatives(vectors: np.ndarray, groups: np.ndarray, concepts: np.ndarray) -> Iterator[Any]:
    """Rows of documents that have mates, each with the row of one of its hard negatives, of the same group."""
    cosines, nearest = nearest_within(vectors, groups, NEAREST)
    eligible = (nearest >= 0) & (cosines <= SHARE * lowest_cosines(vectors, concepts)[:, None])
    eligible &= eligible.cumsum(axis=1) <= CANDIDATES
    for row, place in np.argwhere(eligible).tolist():
        yield row, int(nearest[row, place])


def _encode(recipe: CorpusRecipe) -> str:
    return f"hmde encode {recipe.articles} {recipe.embeddings or 'EMBEDDINGS'}"
