"""An index on disk: a table of documents, their vectors and their words, kept by LanceDB.

A row is a document: id, title, language, text, content_hash, words (as BM25 counts them), vector (hidden,) and, where
the index keeps them, spans (sentences, 2) and sentence_vectors (sentences, hidden). Vectors are of unit length. The
metadata of the table hold the model that made it, and what that model makes of a probe.

Each write is a new version of the table, there whole or not at all. So a process that is killed leaves the version
before, and a reader sees the one that it opened. One process at a time may update an index; a second one waits.
"""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from lancedb.index import FTS, BTree, IvfSq
from lancedb.table import Table
from tqdm import tqdm

from common.device import Dtype, dtype_of
from common.files import folder_written_whole, locked
from modeling_hmde import Explanation, HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.attribution_hmde import DocumentSentences, Scoring, score_sentences
from search.documents import Document
from search.embeddings import Embeddings
from search.words import terms

Ranking = Literal["vector", "words", "hybrid", "late"]

# Documents that are encoded before they are committed: no more is lost when a process is killed.
DOCUMENTS_PER_COMMIT = 1024

# Documents that `hybrid` takes by vectors and by words, and `late` of `hybrid`, where fewer are asked for.
CANDIDATES = 50

# What the best document by words gains in `hybrid` and `late`, in proportion to how far the cosines of the nearest
# documents lie apart, which differs from model to model. Chosen on development sets (docs/search.md): more helps within
# a language, and harms where documents of several languages compete: those in the question's share more words with it.
WORDS_WEIGHT = 0.1

# From so many documents on, where comparing with all takes a tenth of a second, a question is compared with the
# documents of the nearest partitions alone, by vectors of one byte a number. Of twice as many as are asked for, exact
# cosines decide. Where a language is asked for, all partitions are searched: its documents may lie elsewhere.
APPROXIMATE_FROM = 50_000
PARTITIONS, NEAREST_PARTITIONS = 256, 64
EXACT_COSINES = 2

# How long a version stays on the disk for those who read it, after a newer one has taken its place.
READING_TIME = timedelta(minutes=10)

# In its vector all takes part that decides a document's: weights, prompts, the division into sentences.
PROBE = "The probe is short. Проба коротка.\n探测很短。"

# Low enough for another number format or another processor, too high for other weights.
LEAST_COSINE = 0.999

# Rows of narrow columns that are read at once: a batch has a price of its own.
ROWS_PER_BATCH = 65_536

TABLE = "documents"
DOCUMENT_COLUMNS = ["id", "title", "language", "text"]


class Encoder(NamedTuple):
    """A model, its tokenizer, and the name or folder they were read from."""

    name: str
    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer

    @classmethod
    def load(cls, name: str, dtype: Dtype = "auto") -> Encoder:
        """Reads a saved HMDE.

        Args:
            name: folder or Hub name.
            dtype: of weights and activations.

        Raises:
            ValueError: there is none.
        """
        try:
            tokenizer = HMDETokenizer.from_pretrained(name)
            model = HMDEForDocumentEmbedding.from_pretrained(name, dtype=dtype_of(dtype))
        except (OSError, ValueError) as error:
            raise ValueError(f"{name} is no model folder and no name on the Hub that opens: {error}") from error
        return cls(str(Path(name).resolve()) if Path(name).is_dir() else name, model, tokenizer)

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        """(documents, hidden), float32, of unit length."""
        return self.model.encode_documents(
            [document.text for document in documents],
            self.tokenizer,
            language=[document.language for document in documents],
        )

    def encode_questions(self, questions: Sequence[str]) -> np.ndarray:
        """(questions, hidden), float32, of unit length."""
        return self.model.encode_queries(questions, self.tokenizer)

    def encode_sentences(self, documents: Sequence[Document], scoring: Scoring) -> list[DocumentSentences]:
        return self.model.prepare_sentences(
            [document.text for document in documents],
            self.tokenizer,
            language=[document.language for document in documents],
            scoring=scoring,
        )

    def probe(self) -> np.ndarray:
        """(hidden + 2,), by which one model is told from another: a vector, and how much of a document is read."""
        (vector,) = self.model.encode_documents([PROBE], self.tokenizer)
        return np.append(vector, [self.tokenizer.max_sentences, self.tokenizer.max_sentence_length])


class Changes(NamedTuple):
    """How many documents an update found, by what became of them."""

    added: int
    changed: int
    removed: int
    unchanged: int


class Hit(NamedTuple):
    """A document, its score in the ranking that was asked for, and which of its sentences answer to the question."""

    document: Document
    score: float
    explanation: Explanation


@dataclass
class Index:
    """An index as it was when it was opened. Later updates do not reach it; open it again to see them.

    Args:
        folder: of the index.
        table: its newest version.
        model: name or folder of the model that made it.
        probe: (hidden + 2,), see `Encoder.probe`.
    """

    folder: Path
    table: Table
    model: str
    probe: np.ndarray

    @property
    def keeps_sentences(self) -> bool:
        return "sentence_vectors" in self.table.schema.names

    @cached_property
    def languages(self) -> list[str]:
        """The languages of the documents, without those that do not say theirs."""
        with _store(self.folder):
            batches = self.table.search().select(["language"]).to_batches(ROWS_PER_BATCH)
            found = {language for batch in batches for language in pa.compute.unique(batch["language"]).to_pylist()}
        return sorted(found - {None})

    def __len__(self) -> int:
        return self.table.count_rows()

    def check(self, encoder: Encoder) -> None:
        """
        Raises:
            ValueError: the index was made by a model that computes other vectors.
        """
        probe = encoder.probe()
        same_limits = probe.shape == self.probe.shape and np.array_equal(probe[-2:], self.probe[-2:])
        if not same_limits or probe[:-2] @ self.probe[:-2] < LEAST_COSINE:
            raise ValueError(
                f"the index was made by another model ({self.model}) than {encoder.name}, so their vectors do not "
                "compare; query it with that model, or make a new index in another folder"
            )

    def search(
        self,
        question: str,
        encoder: Encoder,
        num_hits: int = 5,
        ranking: Ranking = "vector",
        languages: Sequence[str] | None = None,
        scoring: Scoring | None = None,
    ) -> list[Hit]:
        """The best documents for a question in any language, best first, explained by their sentences.

        Args:
            question, encoder, ranking, languages: as in `rank`.
            num_hits: documents at most.
            scoring: of the sentences, see `HMDEForDocumentEmbedding.explain`. If None, `contribution` where this adds
                up to the score that ranks, and `maximum` elsewhere.
        """
        (vector,) = encoder.encode_questions([question])
        scores, explained = self._rank(question, encoder, ranking, num_hits, languages, vector)
        documents = self.documents(list(scores))
        if scoring is None:
            adds_up = ranking == "vector" and encoder.model.config.document_pooling != "dbos"
            scoring = "contribution" if adds_up else "maximum"
        if scoring == "maximum" and explained:
            explanations = [explained[id] for id in scores]
        else:
            explanations = self._explain(vector, documents, encoder, scoring)
        return [Hit(*hit) for hit in zip(documents, scores.values(), explanations)]

    def rank(
        self,
        question: str,
        encoder: Encoder,
        ranking: Ranking = "vector",
        depth: int = 1000,
        languages: Sequence[str] | None = None,
        vector: np.ndarray | None = None,
    ) -> dict[str, float]:
        """The score of each of the best documents by its id, best first; at equal scores, by id.

        Args:
            question: one text.
            encoder: one that `check` let pass.
            ranking: `vector`, by the cosine of question and document; `words`, by BM25, those without a word in common
                left out; `hybrid`, by the cosine and what words add to it, see `gains_of_words`; `late`, the best by
                `hybrid` again, with the mean of the document's cosine and its best sentence's in place of the first.
            depth: documents at most. `hybrid` and `late` look at no fewer than 50.
            languages: of the documents that are looked at (ISO 639-1); of all if None.
            vector: (hidden,), the question's, where it is known already; many are sooner encoded together.

        Raises:
            ValueError: the index has no document in a language, or its files are damaged.
        """
        return self._rank(question, encoder, ranking, depth, languages, vector)[0]

    def _rank(
        self,
        question: str,
        encoder: Encoder,
        ranking: Ranking,
        depth: int,
        languages: Sequence[str] | None,
        vector: np.ndarray | None,
    ) -> tuple[dict[str, float], dict[str, Explanation]]:
        """`rank`, and by id the explanations with `maximum` that `late` ranks by."""
        if languages is not None and (missing := sorted({*languages} - {*self.languages})):
            known = ", ".join(self.languages) or "none at all"
            raise ValueError(f"the index has no documents in {', '.join(missing)}; their languages are: {known}")
        if ranking == "words":
            return dict(_best_first(self._by_words(question, depth, languages))), {}
        if vector is None:
            (vector,) = encoder.encode_questions([question])
        if ranking == "vector":
            return dict(_best_first(self._by_vector(vector, depth, languages))), {}
        width = max(depth, CANDIDATES)
        cosines = self._by_vector(vector, width, languages)
        gains = gains_of_words(self._by_words(question, width, languages), cosines)
        cosines |= self._cosines(vector, [id for id in gains if id not in cosines])
        scores = {id: cosine + gains.get(id, 0) for id, cosine in cosines.items()}
        explained: dict[str, Explanation] = {}
        if ranking == "late":
            best = [id for id, _ in _best_first(scores)[:width]]
            explained = dict(zip(best, self._explain(vector, self.documents(best), encoder, "maximum")))
            scores = {
                id: (cosines[id] + explanation.score) / 2 + gains.get(id, 0) for id, explanation in explained.items()
            }
        return dict(_best_first(scores)[:depth]), explained

    def documents(self, ids: Sequence[str]) -> list[Document]:
        """The documents of these ids, in their order."""
        return [Document(**row) for row in self._rows(ids, DOCUMENT_COLUMNS).to_pylist()]

    def _by_vector(self, query: np.ndarray, depth: int, languages: Sequence[str] | None) -> dict[str, float]:
        with _store(self.folder):
            search: Any = self.table.search(query, vector_column_name="vector")
            search = search.distance_type("dot").refine_factor(EXACT_COSINES)
            search = search.nprobes(NEAREST_PARTITIONS if languages is None else PARTITIONS)
            found = _best(search, "_distance", depth, languages)
        return {id: 1 - distance for id, distance in found.items()}

    def _cosines(self, query: np.ndarray, ids: Sequence[str]) -> dict[str, float]:
        if not ids:
            return {}
        vectors = _matrix(self._rows(ids, ["id", "vector"])["vector"].combine_chunks())
        return dict(zip(ids, (vectors @ torch.from_numpy(query)).tolist()))

    def _by_words(self, question: str, depth: int, languages: Sequence[str] | None) -> dict[str, float]:
        # Which language the question is in is not known; a stem of another than the document's is found in few others.
        read_as: list[str | None] = [*languages] if languages else [None, *self.languages]
        words = " ".join(dict.fromkeys(term for language in read_as for term in terms(question, language)))
        if not words:
            return {}
        with _store(self.folder):
            search = self.table.search(words, query_type="fts", fts_columns="words")
            return _best(search, "_score", depth, languages)

    def _explain(
        self, vector: np.ndarray, documents: Sequence[Document], encoder: Encoder, scoring: Scoring
    ) -> list[Explanation]:
        if scoring == "maximum" and self.keeps_sentences:
            rows = self._rows([document.id for document in documents], ["id", "spans", "sentence_vectors"])
            sentences = [
                DocumentSentences(list(map(tuple, spans.as_py())), _matrix(vectors.values), None)
                for spans, vectors in zip(rows["spans"], rows["sentence_vectors"])
            ]
        else:
            sentences = encoder.encode_sentences(documents, scoring)
        query = torch.from_numpy(vector)
        return [score_sentences(query, document) for document in sentences]

    def _rows(self, ids: Sequence[str], columns: list[str]) -> pa.Table:
        """Columns of the documents of these ids, in their order; `id` is one of them."""
        with _store(self.folder):
            found = self.table.search().where(_in("id", ids)).select(columns).to_arrow()
        return found.take(pa.compute.index_in(pa.array(ids, pa.string()), found["id"].combine_chunks()))


def gains_of_words(words: dict[str, float], cosines: dict[str, float]) -> dict[str, float]:
    """What words in common add to the cosine of each document that has some: to that of the best document a tenth of
    the distance between the cosines of the first and the fiftieth of the nearest documents, to others in proportion to
    BM25. So scores are added, not ranks (Bruch, Gai and Ingber, ACM TOIS 2023): a ranking by words of which even the
    first is poor, as across languages, changes little.

    Args:
        words: BM25 by id.
        cosines: of the nearest documents, by id.

    >>> gains_of_words({"a": 8.0, "b": 2.0}, {"b": 0.9, "c": 0.8, "d": 0.4})
    {'a': 0.05, 'b': 0.0125}
    """
    if not words or not cosines:
        return {}
    nearest = sorted(cosines.values(), reverse=True)[:CANDIDATES]
    scale = WORDS_WEIGHT * (nearest[0] - nearest[-1]) / max(words.values())
    return {id: scale * score for id, score in words.items()}


def is_index(folder: str | Path) -> bool:
    return (Path(folder) / f"{TABLE}.lance").is_dir()


def open_index(folder: str | Path) -> Index:
    """Opens an index for reading, also while it is updated.

    Raises:
        ValueError: there is none in the folder, or its files are damaged.
    """
    folder = Path(folder)
    if not is_index(folder):
        raise ValueError(f"{folder} holds no index; make one with: python -m search index DOCUMENTS {folder}")
    with _store(folder):
        table = lancedb.connect(folder).open_table(TABLE)
        metadata = table.schema.metadata
    return Index(folder, table, metadata[b"model"].decode(), np.array(json.loads(metadata[b"probe"])))


def update_index(
    folder: str | Path,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    sentences: bool = False,
    embeddings: Embeddings | None = None,
    show_progress_bar: bool = False,
) -> Changes:
    """Makes an index the index of some documents: encodes what is new or changed, keeps the rest, drops what is gone.

    Commits every 1024 documents; a process that was killed and is started again goes on from the last commit. Waits for
    another process that updates the index. Memory holds the texts of one commit, and the ids of all documents.

    Args:
        folder: of the index; made if need be.
        documents: all that the index shall hold. Read twice, first to find what is wrong with them.
        encoder: the model; for an index that exists, the one that made it.
        sentences: keep the sentence vectors too, for `late` and for explanations without reading the texts again. An
            index that has them goes on keeping them.
        embeddings: of the same model; what is found there is not encoded again.
        show_progress_bar: over documents.

    Raises:
        TypeError: `documents` can be read only once.
        ValueError: the index was made by another model or without sentences, an id comes twice, the folder holds
            something else, or the index is damaged.
        OSError: the disk is full.
    """
    folder = Path(folder)
    if isinstance(documents, Iterator):
        raise TypeError("documents are read twice; give a list or a Documents, not an iterator")
    count = sum(1 for _ in _distinct(documents))
    with locked(folder):
        if not is_index(folder):
            _create(folder, encoder, sentences)
        index = open_index(folder)
        index.check(encoder)
        if sentences and not index.keeps_sentences:
            raise ValueError(f"{folder} keeps no sentence vectors; make a new index with them in another folder")
        with tqdm(_distinct(documents), total=count, disable=not show_progress_bar, unit="document") as progress:
            changes = _write_changes(index, progress, encoder, embeddings)
        _tidy(index)
    return changes


def _create(folder: Path, encoder: Encoder, sentences: bool) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no index of this version; name another folder")
    vector = pa.list_(pa.float32(), encoder.model.config.hidden_size)
    columns = dict.fromkeys([*DOCUMENT_COLUMNS, "content_hash", "words"], pa.string()) | {"vector": vector}
    if sentences:
        columns |= {"spans": pa.list_(pa.list_(pa.int32(), 2)), "sentence_vectors": pa.list_(vector)}
    metadata = {"model": encoder.name, "probe": json.dumps(encoder.probe().tolist())}
    # The words were made lower case and stemmed for their language.
    words = FTS(base_tokenizer="whitespace", lower_case=False, stem=False, remove_stop_words=False, ascii_folding=False)
    with folder_written_whole(folder) as partial, _store(folder):
        table = lancedb.connect(partial).create_table(TABLE, schema=pa.schema(columns, metadata))
        table.create_index("words", config=words)
        table.create_index("id", config=BTree())


def _write_changes(
    index: Index, documents: Iterable[Document], encoder: Encoder, embeddings: Embeddings | None
) -> Changes:
    known = _known(index)
    counts: Counter[str] = Counter()
    writers = {"added": _add, "changed": _replace}
    waiting: dict[str, list[Document]] = {what: [] for what in writers}
    for document in documents:
        before = known.pop(document.id, None)
        what = "added" if before is None else "unchanged" if before == _state(document) else "changed"
        counts[what] += 1
        if what != "unchanged":
            waiting[what].append(document)
            if len(waiting[what]) == DOCUMENTS_PER_COMMIT:
                writers[what](index, waiting[what], encoder, embeddings)
                waiting[what] = []
    for what, rest in waiting.items():
        if rest:
            writers[what](index, rest, encoder, embeddings)
    gone = list(known)
    for first in range(0, len(gone), DOCUMENTS_PER_COMMIT):
        with _store(index.folder):
            index.table.delete(_in("id", gone[first : first + DOCUMENTS_PER_COMMIT]))
    return Changes(counts["added"], counts["changed"], len(gone), counts["unchanged"])


def _known(index: Index) -> dict[str, tuple[str, int]]:
    """The state of each document of an index, by its id."""
    known = {}
    with _store(index.folder):
        for batch in index.table.search().select(["id", "content_hash", "title"]).to_batches(ROWS_PER_BATCH):
            for id, content_hash, title in zip(*(column.to_pylist() for column in batch.columns)):
                known[id] = content_hash, hash(title)
    return known


def _state(document: Document) -> tuple[str, int]:
    return document.content_hash, hash(document.title)


def _add(index: Index, documents: Sequence[Document], encoder: Encoder, embeddings: Embeddings | None) -> None:
    rows = _encoded(index, documents, encoder, embeddings)
    with _store(index.folder):
        index.table.add(rows)


def _replace(index: Index, documents: Sequence[Document], encoder: Encoder, embeddings: Embeddings | None) -> None:
    """Writes documents over those of the same ids; where only the title is new, the vectors stay."""
    with _store(index.folder):
        old = index.table.search().where(_in("id", [document.id for document in documents])).to_arrow()
    hashes = dict(zip(old["id"].to_pylist(), old["content_hash"].to_pylist()))
    titles = {document.id: document.title for document in documents if document.content_hash == hashes.get(document.id)}
    texts = [document for document in documents if document.id not in titles]
    kept = old.filter(pa.compute.is_in(old["id"], pa.array(titles, pa.string())))
    new_titles = pa.array([titles[id] for id in kept["id"].to_pylist()], pa.string())
    retitled = kept.set_column(kept.schema.get_field_index("title"), "title", new_titles)
    rows = pa.concat_tables([retitled, _encoded(index, texts, encoder, embeddings)])
    with _store(index.folder):
        index.table.merge_insert("id").when_matched_update_all().execute(rows)


def _encoded(index: Index, documents: Sequence[Document], encoder: Encoder, embeddings: Embeddings | None) -> pa.Table:
    columns: dict[str, Any] = {name: [getattr(document, name) for document in documents] for name in DOCUMENT_COLUMNS}
    columns["content_hash"] = [document.content_hash for document in documents]
    columns["words"] = [" ".join(terms(document.text, document.language)) for document in documents]
    vectors = embeddings.find(documents) if embeddings is not None else [None] * len(documents)
    missing = [document for document, vector in zip(documents, vectors) if vector is None]
    encoded = iter(encoder.encode(missing) if missing else ())
    columns["vector"] = [next(encoded) if vector is None else vector for vector in vectors]
    if index.keeps_sentences:
        sentences = encoder.encode_sentences(documents, "maximum")
        columns["spans"] = [document.spans for document in sentences]
        columns["sentence_vectors"] = [list(document.vectors.numpy()) for document in sentences]
    return pa.table(columns, schema=index.table.schema)


def _tidy(index: Index) -> None:
    """Joins what was written in pieces, brings the store's indexes up to date, makes that of the vectors where they are
    many, removes versions that nobody reads any more."""
    with _store(index.folder):
        ages = [datetime.now() - version["timestamp"] for version in index.table.list_versions()]
        index.table.optimize(cleanup_older_than=_age_of_unread(ages), delete_unverified=True)
        indexed = {column for kept in index.table.list_indices() for column in kept.columns}
        if len(index) >= APPROXIMATE_FROM and "vector" not in indexed:
            index.table.create_index("vector", config=IvfSq(distance_type="dot", num_partitions=PARTITIONS))


def _age_of_unread(ages: Iterable[timedelta]) -> timedelta:
    """How old a version is that was superseded before the last ten minutes: older than the last one to be superseded.

    >>> print(_age_of_unread(timedelta(minutes=minutes) for minutes in (90, 30, 3)))
    0:31:00
    """
    return min((age for age in ages if age > READING_TIME), default=READING_TIME) + timedelta(minutes=1)


def _distinct(documents: Iterable[Document]) -> Iterator[Document]:
    seen = set()
    for document in documents:
        if document.id in seen:
            raise ValueError(f"the id {document.id} is used twice; ids must differ within a file")
        seen.add(document.id)
        yield document


@contextmanager
def _store(folder: Path) -> Iterator[None]:
    """Says in the words of this program what LanceDB says in those of Rust."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        if "No space left" in str(error):
            message = f"the disk of {folder} is full; make room and index again: what was committed is kept"
            raise OSError(errno.ENOSPC, message) from error
        if "ermission denied" in str(error) or "Read-only" in str(error):
            raise ValueError(f"{folder} may not be written by this user: {error}") from error
        raise ValueError(
            f"{folder} is damaged or not complete ({error}); the documents are where they were, so remove the folder "
            "and index them again"
        ) from error


def _best(search: Any, score: str, depth: int, languages: Sequence[str] | None) -> dict[str, float]:
    """A column of scores of the rows that a search of LanceDB finds, by their ids."""
    if languages is not None:
        search = search.where(_in("language", languages))
    return {row["id"]: row[score] for row in search.select(["id", score]).limit(depth).to_list()}


def _matrix(vectors: pa.FixedSizeListArray) -> torch.Tensor:
    """(vectors, hidden), without a Python object for each number."""
    return torch.tensor(vectors.flatten().to_numpy()).view(len(vectors), -1)


def _in(column: str, values: Iterable[str]) -> str:
    """
    >>> _in("id", ["a", "b's"])
    "id IN ('a', 'b''s')"
    """
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return f"{column} IN ({quoted})" if quoted else "false"


def _best_first(scores: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
