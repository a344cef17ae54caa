"""Files of evaluation data, read and checked. Knows no systems and no measures.

A retrieval set is a folder. Its ids are shared by all languages, so any query language goes with any document language:

    docs/<language>.jsonl     {"doc_id": ..., "text": ...} a line, or an article table, whose id is "concept_id"
    queries/<language>.tsv    query_id TAB text
    qrels.<split>.tsv         query_id TAB 0 TAB doc_id TAB grade; qrels.tsv where there is one split only

Titles are not read: in some sets they are the queries. A classification set is a folder of `<language>.<part>.tsv` in
MLDoc's format, label TAB text. All files are UTF-8; a byte order mark and Windows line ends do no harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RetrievalSet:
    """Documents, queries and what is relevant to them.

    Args:
        documents: text by language and doc_id.
        queries: text by language and query_id; only queries that `qrels` judges.
        qrels: grade by query_id and doc_id; above 0 is relevant.
    """

    documents: dict[str, dict[str, str]]
    queries: dict[str, dict[str, str]]
    qrels: dict[str, dict[str, int]]

    def judgements(self, query_language: str, document_language: str) -> dict[str, dict[str, int]]:
        """The qrels of one pair of languages: what the collection of that language lacks is left out, and so are the
        queries to which nothing in it is relevant. In the order of the queries."""
        collection = self.documents[document_language]
        found = {
            query_id: {doc_id: grade for doc_id, grade in self.qrels[query_id].items() if doc_id in collection}
            for query_id in self.queries[query_language]
        }
        return {query_id: grades for query_id, grades in found.items() if any(grade > 0 for grade in grades.values())}


def languages_of(pair: str) -> tuple[str, str]:
    """Query and document language of a pair.

    Raises:
        ValueError: it is not two codes and a hyphen.

    >>> languages_of("en-de")
    ('en', 'de')
    """
    languages = pair.split("-")
    if len(languages) != 2 or not all(languages):
        raise ValueError(
            f"pair {pair!r} is not <query language>-<document language>, such as en-de; a code that has a region needs "
            "an underscore (pt_BR), in the file's name too"
        )
    return languages[0], languages[1]


def read_retrieval_set(folder: str | Path, pairs: Sequence[str], split: str | None = None) -> RetrievalSet:
    """The files of a retrieval set that some pairs of languages need.

    Args:
        folder: see the module's description.
        pairs: `<query language>-<document language>`.
        split: of the qrels; None for qrels.tsv.

    Raises:
        ValueError: no pair, a file that is missing or malformed (with the line), or a pair without a judged query.
    """
    folder = Path(folder)
    if not pairs:
        raise ValueError("pairs is empty; name at least one, such as en-de")
    languages = [languages_of(pair) for pair in pairs]
    qrels_file = folder / (f"qrels.{split}.tsv" if split else "qrels.tsv")
    qrels = read_qrels(qrels_file)
    queries, documents = {}, {}
    for query_language, document_language in languages:
        if query_language not in queries:
            texts = read_queries(folder / "queries" / f"{query_language}.tsv")
            queries[query_language] = {query_id: text for query_id, text in texts.items() if query_id in qrels}
        if document_language not in documents:
            documents[document_language] = read_documents(folder / "docs" / f"{document_language}.jsonl")
    retrieval_set = RetrievalSet(documents, queries, qrels)
    for query_language, document_language in languages:
        if not retrieval_set.judgements(query_language, document_language):
            raise ValueError(
                f"{qrels_file} has no relevant document in docs/{document_language}.jsonl for any query of "
                f"queries/{query_language}.tsv; check that their ids agree, or leave out the pair "
                f"{query_language}-{document_language}"
            )
    return retrieval_set


def read_documents(path: Path) -> dict[str, str]:
    """Text by doc_id.

    Raises:
        ValueError: the file is missing or empty, or a line is no document, or repeats an id.
    """
    documents: dict[str, str] = {}
    for number, line in _lines(path):
        try:
            document = json.loads(line)
        except json.JSONDecodeError as error:
            raise _malformed(path, number, f"is no JSON ({error}); write one JSON object a line") from None
        doc_id = document.get("doc_id", document.get("concept_id")) if isinstance(document, dict) else None
        if not isinstance(doc_id, str) or not isinstance(document.get("text"), str):
            raise _malformed(path, number, 'is no document; write {"doc_id": "...", "text": "..."}, both strings')
        _add(documents, doc_id, document["text"], path, number)
    return documents


def read_queries(path: Path) -> dict[str, str]:
    """Text by query_id.

    Raises:
        ValueError: the file is missing or empty, or a line is no query, or repeats an id.
    """
    queries: dict[str, str] = {}
    for number, line in _lines(path):
        query_id, tab, text = line.partition("\t")
        if not tab or not text.strip():
            raise _malformed(path, number, "is no query; write query_id TAB text")
        _add(queries, query_id, text, path, number)
    return queries


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Grade by query_id and doc_id, of a file as trec_eval reads it: four fields with white space between them.

    Raises:
        ValueError: the file is missing or empty, or a line is no judgement, or repeats one.
    """
    qrels: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        try:
            query_id, _, doc_id, written_grade = line.split()
            grade = int(written_grade)
        except ValueError:
            raise _malformed(
                path, number, "is no judgement; write query_id TAB 0 TAB doc_id TAB grade, the grade an integer"
            ) from None
        if doc_id in qrels.setdefault(query_id, {}):
            raise _malformed(path, number, f"judges {doc_id} for {query_id} a second time; keep one line")
        qrels[query_id][doc_id] = grade
    return qrels


def read_labelled_texts(path: Path) -> tuple[list[str], list[str]]:
    """The labels and the texts of a file in MLDoc's format.

    Raises:
        ValueError: the file is missing or empty, or a line has no label and text.
    """
    labels, texts = [], []
    for number, line in _lines(path):
        label, tab, text = line.partition("\t")
        if not tab or not label.strip():
            raise _malformed(path, number, "is no labelled text; write label TAB text, without line breaks in the text")
        labels.append(label)
        texts.append(text)
    return labels, texts


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, from 1. Only "\\n" ends a line, whatever else a text may hold."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; evaluation/readers.py says which files a set consists of")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty; leave its language out, or fill it")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise _malformed(path, number, f"is not UTF-8 ({error.reason}); save the file as UTF-8") from None
            yield number, text.rstrip("\r\n")


def _add(texts: dict[str, str], name: str, text: str, path: Path, number: int) -> None:
    """Adds a text under an id that is new and that a run file, whose fields are divided by white space, can hold."""
    if not name or any(character.isspace() for character in name):
        raise _malformed(path, number, f"has the id {name!r}; an id has at least one character and no white space")
    if name in texts:
        raise _malformed(path, number, f"repeats the id {name}; keep one line an id")
    texts[name] = text


def _malformed(path: Path, number: int, rule: str) -> ValueError:
    return ValueError(f"{path}, line {number}: {rule}")
