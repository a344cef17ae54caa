"""Retrieval sets in this project's own format, read and checked. Knows no systems and no measures. The other modules of
this folder turn published sets into it.

A retrieval set is a folder. Its ids are shared by all languages, so any query language goes with any document language:

    docs/<language>.jsonl     {"doc_id": ..., "text": ...} a line, or an article table, whose id is "concept_id"
    queries/<language>.tsv    query_id TAB text
    qrels.<split>.tsv         query_id TAB 0 TAB doc_id TAB grade; qrels.tsv where there is one split only

A document that has the same id in two languages is one document in both. If documents or late sentences are the
queries, `docs` is all that is needed; with a split, the qrels say which documents belong to it.

Titles are not read: in some sets they are the queries. All files are UTF-8. A byte order mark and Windows line ends are
accepted. Only a line feed ends a line: other characters that Unicode counts as line ends may stand in a text.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.datasets.files import lines, qrels_file
from evaluation.datasets.languages import POOL, check_language, languages_of, query_and_document_languages
from evaluation.recipes import QuerySource
from hmde.common.records import json_value, malformed, sized_lines
from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans

Run = dict[str, dict[str, float]]  # score by query_id and doc_id

# In characters: the shortest document from which a late sentence is taken, and the shortest late sentence. It begins in
# the last third of the document, far behind what an encoder of 512 tokens reads.
MIN_LONG_DOCUMENT = 3000
MIN_LATE_SENTENCE = 20

# White space, which divides the fields of a run file, and what C strings or UTF-8 cannot hold.
_NOT_IN_AN_ID = re.compile(r"[\s\0\ud800-\udfff]")


class DocumentFile(Mapping[str, str]):
    """The texts of a jsonl file by doc_id, read from the file when asked for. Memory holds only ids and offsets.

    Args:
        path: a file of documents; see the module's description.

    Raises:
        ValueError: the file is missing or empty, or a line is no document, or repeats an id.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.empty = 0  # documents without a text, which are kept
        self.offsets: dict[str, int] = {}  # bytes before the line of each document
        offset = 0
        for line_number, line, size in sized_lines(path, f"reading {path}"):
            doc_id, text = _document(path, line_number, line)
            _check_id(self.offsets, doc_id, path, line_number)
            self.offsets[doc_id] = offset
            self.empty += not text.strip()
            offset += size
        if not self.offsets:
            raise ValueError(f"{path} is empty; leave its language out, or fill it")

    def __getitem__(self, doc_id: str) -> str:
        with self.path.open("rb") as file:
            file.seek(self.offsets[doc_id])
            return replace_surrogates(json.loads(file.readline().decode("utf-8-sig"))["text"])

    def __iter__(self) -> Iterator[str]:
        return iter(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self.offsets

    def texts(self) -> Iterator[str]:
        """All texts in the file's order, read once."""
        for line_number, line in lines(self.path):
            yield _document(self.path, line_number, line)[1]


def texts_of(documents: Mapping[str, str]) -> Iterator[str]:
    """All texts, in the order of their ids. A file is read once, from its beginning to its end."""
    return documents.texts() if isinstance(documents, DocumentFile) else iter(documents.values())


@dataclass(frozen=True)
class RetrievalSet:
    """Documents, queries and what is relevant to them.

    Args:
        documents: text by language and doc_id.
        queries: text by language and query_id; only queries that `qrels` judges.
        qrels: grade by query_id and doc_id; above 0 is relevant.
        query_source: what the queries are: `queries`; whole `documents`; or `late_sentences` of documents. The last two
            seek their own document in another language.
        unknown: how many queries and documents the qrels name that are in no file that was read.
    """

    documents: dict[str, Mapping[str, str]]
    queries: dict[str, dict[str, str]]
    qrels: dict[str, dict[str, int]]
    query_source: QuerySource = "queries"
    unknown: dict[str, int] = field(default_factory=dict)

    def collection(self, document_language: str) -> list[str]:
        """The languages of the documents that a document language stands for."""
        return list(self.documents) if document_language == POOL else [document_language]

    def doc_ids(self, document_language: str) -> list[str]:
        """The ids of a collection as they stand in its runs: in the pool, <language>.<doc_id>."""
        if document_language != POOL:
            return list(self.documents[document_language])
        return [f"{language}.{doc_id}" for language, documents in self.documents.items() for doc_id in documents]

    def own_document(self, pair: str, query_id: str) -> str | None:
        """The id in the pool of the document that a query was taken from; None if it is from none, or not in a pool."""
        query_language, document_language = languages_of(pair)
        taken = self.query_source in ("documents", "late_sentences") and document_language == POOL
        return f"{query_language}.{query_id}" if taken else None

    def judgements(self, pair: str) -> dict[str, dict[str, int]]:
        """The qrels of one pair of languages: what the collection of that language lacks is left out, and so are the
        queries to which nothing in it is relevant. In the order of the queries."""
        query_language, document_language = languages_of(pair)
        judgements: dict[str, dict[str, int]] = {}
        for query_id in self.queries[query_language]:
            grades = {
                f"{language}.{doc_id}" if document_language == POOL else doc_id: grade
                for language in self.collection(document_language)
                for doc_id, grade in self.qrels[query_id].items()
                if doc_id in self.documents[language]
            }
            grades.pop(self.own_document(pair, query_id) or "", None)
            if any(grade > 0 for grade in grades.values()):
                judgements[query_id] = grades
        return judgements

    def judged_queries(self, pair: str) -> dict[str, str]:
        """The text of each query to which the collection has a relevant document."""
        queries = self.queries[languages_of(pair)[0]]
        return {query_id: queries[query_id] for query_id in self.judgements(pair)}


def read_retrieval_set(
    folder: str | Path, pairs: Sequence[str], split: str | None = None, query_source: QuerySource = "queries"
) -> RetrievalSet:
    """The files of a retrieval set that some pairs of languages need.

    Args:
        folder: see the module's description.
        pairs: `<query language>-<document language>`; the document language `all` is the pool of the document languages
            of all other pairs.
        split: of the qrels; None for qrels.tsv. Where documents or late sentences are the queries, those of the
            documents that are relevant in the split; None for all.
        query_source: see RetrievalSet.

    Raises:
        ValueError: no pair, a file that is missing or malformed (with the line), or a pair without a judged query.
    """
    folder = Path(folder)
    query_languages, document_languages = query_and_document_languages(pairs)
    if not document_languages:
        raise ValueError(f"pairs is {list(pairs)}, without a document language but {POOL}; name one, such as en-de")
    for language in {*query_languages, *document_languages}:
        check_language(language)
    documents: dict[str, Mapping[str, str]] = {
        language: DocumentFile(folder / "docs" / f"{language}.jsonl") for language in document_languages
    }
    qrels_path = qrels_file(folder, split)
    queries: dict[str, dict[str, str]] = {}
    unknown = {}
    if query_source in ("documents", "late_sentences"):
        judged = read_qrels(qrels_path).values() if split else ()
        relevant = {doc_id for grades in judged for doc_id, grade in grades.items() if grade > 0}
        for language in query_languages:
            source = documents.get(language) or DocumentFile(folder / "docs" / f"{language}.jsonl")
            whole = query_source == "documents"
            texts = dict(zip(source, texts_of(source))) if whole else late_sentences(source, language)
            queries[language] = {doc_id: text for doc_id, text in texts.items() if not split or doc_id in relevant}
        qrels = {query_id: {query_id: 1} for texts in queries.values() for query_id in texts}
    else:
        qrels = read_qrels(qrels_path)
        for language in query_languages:
            texts = read_queries(folder / "queries" / f"{language}.tsv")
            queries[language] = {query_id: text for query_id, text in texts.items() if query_id in qrels}
        known = {doc_id for collection in documents.values() for doc_id in collection}
        unknown = {
            "queries": len(qrels.keys() - set().union(*queries.values())),
            "documents": len({doc_id for grades in qrels.values() for doc_id in grades} - known),
        }
    retrieval_set = RetrievalSet(documents, queries, qrels, query_source, unknown)
    for pair in pairs:
        if not retrieval_set.judgements(pair):
            raise ValueError(
                f"{folder} has no query for {pair}: none of the {query_source} in the first language has a relevant "
                f"document in the second{f' in {qrels_path.name}' if split else ''}; check the ids, or leave it out"
            )
    return retrieval_set


def late_sentences(documents: Mapping[str, str], language: str) -> dict[str, str]:
    """A sentence from the last third of each long document, by doc_id: what an encoder that reads only the beginning
    cannot find. The draw depends on the doc_id alone."""
    drawn = {}
    for doc_id, text in zip(documents, texts_of(documents)):
        if len(text) < MIN_LONG_DOCUMENT:
            continue
        late = [
            text[begin:end]
            for begin, end in sentence_spans(text, language)
            if begin >= len(text) * 2 / 3 and end - begin >= MIN_LATE_SENTENCE
        ]
        if late:
            drawn[doc_id] = random.Random(doc_id).choice(late)
    return drawn


def read_queries(path: Path) -> dict[str, str]:
    """Text by query_id.

    Raises:
        ValueError: the file is missing or empty, or a line is no query, or repeats an id.
    """
    queries: dict[str, str] = {}
    for line_number, line in lines(path):
        query_id, _, text = line.partition("\t")
        if not text.strip():
            raise malformed(path, line_number, "is no query; write query_id TAB text")
        _check_id(queries, query_id, path, line_number)
        queries[query_id] = text
    return queries


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Grade by query_id and doc_id, of a file as trec_eval reads it: four fields with white space between them.

    Raises:
        ValueError: the file is missing or empty, or a line is no judgement, or repeats one.
    """
    qrels: dict[str, dict[str, int]] = {}
    for line_number, line in lines(path):
        written = line.split()
        if len(written) != 4 or not re.fullmatch(r"[+-]?\d+", written[3]):
            form = "query_id TAB 0 TAB doc_id TAB grade, the grade an integer"
            raise malformed(path, line_number, f"is of another form; write {form}")
        query_id, _, doc_id, grade = written
        if doc_id in qrels.setdefault(query_id, {}):
            raise malformed(path, line_number, f"has {doc_id} for {query_id} a second time; keep one line")
        qrels[query_id][doc_id] = int(grade)
    return qrels


def _document(path: Path, line_number: int, line: str) -> tuple[str, str]:
    """The id and the text of a line of a file of documents. No encoder reads lone surrogates, so none are in it."""
    document = json_value(path, line_number, line)
    doc_id = document.get("doc_id", document.get("concept_id")) if isinstance(document, dict) else None
    if not isinstance(doc_id, str) or not isinstance(document.get("text"), str):
        raise malformed(path, line_number, 'is no document; write {"doc_id": "...", "text": "..."}, both strings')
    return doc_id, replace_surrogates(document["text"])


def _check_id(known: Mapping[str, object], name: str, path: Path, line_number: int) -> None:
    """An id is new, and a run file can hold it."""
    if not name or _NOT_IN_AN_ID.search(name) or name in known:
        rule = "an id is new, and has at least one character and no white space, NUL or lone surrogate"
        raise malformed(path, line_number, f"has the id {name!r}; {rule}")
