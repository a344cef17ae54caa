"""Retrieval across languages: a query in one, documents in another, ranked by cosine (paper, section 3.2).

Two protocols, whose numbers do not compare:

    full ranking    every query ranks the whole collection, as the paper's text says
    re-ranking      only the first documents of a given run are ranked anew and the rest keep its order, as the paper's
                    code does with the first 100 of a distilled mBERT
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import ir_measures
import numpy as np
from ir_measures import AP, RR, P, R, nDCG

from common.fingerprints import fingerprint
from common.progress import Advance, no_bar, progress_bar
from evaluation.datasets.files import POOL, RetrievalSet, Run, languages_of, read_run
from evaluation.recipes import IndexKind, RetrievalTask
from evaluation.systems import BM25, SearchSystem, System
from evaluation.tables import averages
from evaluation.vectors import Encode, cached_vectors, fingerprint_of_documents, search, texts_of

if TYPE_CHECKING:
    from search.documents import Document

# Each the mean over the queries. AP divides by all relevant documents of the collection, retrieved or not.
MEASURES = {"MAP": AP, "nDCG@10": nDCG @ 10, "MRR": RR, "Recall@100": R @ 100, "P@1": P @ 1}


@dataclass
class Encoded:
    """The vectors of a retrieval set by language, rows in its order, and the seconds they took.

    Args:
        queries: (queries, hidden).
        documents: (documents, hidden).
        files: where the index of a document language may be kept.
    """

    queries: dict[str, np.ndarray]
    documents: dict[str, np.ndarray]
    files: dict[str, Path]
    query_seconds: float
    document_seconds: float


def evaluate_retrieval(
    system: System, retrieval_set: RetrievalSet, pairs: Sequence[str], depth: int = 1000
) -> dict[str, dict[str, float]]:
    """The scores of a system in memory, such as a model in training. Writes nothing.

    Args:
        system: `HMDESystem(model, tokenizer)`, or anything that encodes queries and documents.
        retrieval_set: with the languages of all pairs.
        pairs: `<query language>-<document language>`.
        depth: documents that a query ranks at most.

    Returns:
        by pair: all MEASURES, the number of `queries` these are means over, and how many were `skipped` because the
        collection has no document that is relevant to them.
    """
    encoded = encode(system, retrieval_set, pairs)
    return {pair: score(rank(encoded, retrieval_set, pair, depth), retrieval_set, pair) for pair in pairs}


def given_runs(task: RetrievalTask) -> dict[str, Run]:
    """The runs to rank anew, by pair; empty for full ranking.

    Raises:
        ValueError: one is missing or malformed.
    """
    if task.rerank is None:
        return {}
    files = {pair: Path(task.rerank) / f"{pair}.run" for pair in task.pairs}
    for file in files.values():
        if not file.is_file():
            raise ValueError(f"{file} is missing; rerank needs a run of every pair")
    return {pair: read_run(file) for pair, file in files.items()}


def evaluate_task(
    system: System | BM25 | SearchSystem,
    task: RetrievalTask,
    data: RetrievalSet | Mapping[str, RetrievalSet],
    cache: Path | None = None,
    maker: str = "",
    name: str = "",
) -> tuple[dict[str, Any], dict[str, Run]]:
    """Everything that is reported of a system, and its runs by pair.

    Args:
        system: BM25 leaves out the pairs of two languages; search, what it does not rank (see `SystemRecipe`).
        task: the protocol.
        data: the set of the task, or of each of its pairs.
        cache: folder of vectors and indexes; None keeps nothing.
        maker: fingerprint of all that the vectors of documents depend on.
        name: of task and system, for progress bars.
    """
    given = given_runs(task)
    sets = data if isinstance(data, Mapping) else dict.fromkeys(task.pairs, data)
    distinct = list({id(retrieval_set): retrieval_set for retrieval_set in sets.values()}.values())
    runs: dict[str, Run] = {}
    seconds: Counter[str] = Counter()
    for retrieval_set in distinct:
        of_set = replace(task, pairs=[pair for pair in task.pairs if sets[pair] is retrieval_set])
        found, taken = rank_all(system, of_set, retrieval_set, given, cache, maker, name)
        runs |= found
        seconds.update(taken)
    scores = {pair: score(run, sets[pair], pair) for pair, run in runs.items()}
    groups = groups_of(task.pairs, task.training_languages)
    unknown, empty = Counter[str](), Counter[str]()
    for retrieval_set in distinct:
        unknown.update(retrieval_set.unknown)
        empty.update({language: getattr(texts, "empty", 0) for language, texts in retrieval_set.documents.items()})
    result = {
        "task_type": "text-retrieval",
        "measure": task.measure,
        "protocol": task.protocol,
        "rows": scores,
        "averages": averages(scores, groups, list(MEASURES)),
        "per_item": {pair: values_by_query(run, sets[pair], pair) for pair, run in runs.items()},
        "unknown_in_qrels": unknown,
        "documents": sum(len(documents) for one in distinct for documents in one.documents.values()),
        "empty_documents": empty,
        **seconds,
    }
    return result, runs


def rank_all(
    system: System | BM25 | SearchSystem,
    task: RetrievalTask,
    retrieval_set: RetrievalSet,
    given: dict[str, Run],
    cache: Path | None,
    maker: str,
    name: str,
) -> tuple[dict[str, Run], dict[str, float]]:
    """The runs of a task's pairs, all of one set, and the seconds that encoding took. Arguments as in `evaluate_task`,
    and the runs to rank anew."""
    pairs = task.pairs
    if isinstance(system, BM25):
        pairs = [pair for pair in pairs if len(set(languages_of(pair))) == 1]
        runs = {pair: rank_words(system, retrieval_set, pair, task.depth, name) for pair in pairs}
        return {pair: reorder(given[pair], run, task.rerank_depth) if given else run for pair, run in runs.items()}, {}
    if isinstance(system, SearchSystem):
        asked = not given and task.sought_by in ("queries", "late_sentences")
        pairs = pairs if asked else []
        query_languages = dict.fromkeys(languages_of(pair)[0] for pair in pairs)
        vectors = {
            language: cached_vectors(system.encode_queries, retrieval_set.queries[language])
            for language in query_languages
        }
        return {
            pair: rank_by_search(system, retrieval_set, pair, vectors, task.depth, cache, maker, name) for pair in pairs
        }, {}
    if given:
        return {pair: rerank(system, retrieval_set, pair, given[pair], task.rerank_depth, name) for pair in pairs}, {}
    encoded = encode(system, retrieval_set, pairs, cache, maker, name)
    runs = {pair: rank(encoded, retrieval_set, pair, task.depth, task.index, name) for pair in pairs}
    return runs, {"query_seconds": encoded.query_seconds, "document_seconds": encoded.document_seconds}


def encode(
    system: System,
    retrieval_set: RetrievalSet,
    pairs: Sequence[str],
    cache: Path | None = None,
    maker: str = "",
    name: str = "",
) -> Encoded:
    """The vectors of the queries and documents of some pairs, each language once."""
    query_languages, wanted = (dict.fromkeys(side) for side in zip(*map(languages_of, pairs)))
    document_languages = dict.fromkeys(part for language in wanted for part in retrieval_set.collection(language))
    began = time.perf_counter()
    with progress_bar(name and f"{name}: queries", texts_in(retrieval_set.queries, query_languages)) as progress:
        queries = {
            language: encode_queries(system, retrieval_set, language, progress.update) for language in query_languages
        }
    between = time.perf_counter()
    with progress_bar(name and f"{name}: documents", texts_in(retrieval_set.documents, document_languages)) as progress:
        documents = {
            language: cached_vectors(
                partial(encode_documents, system, retrieval_set, language),
                retrieval_set.documents[language],
                cache,
                fingerprint(maker, language, retrieval_set.sought_by == "sentences"),
                progress.update,
            )
            for language in document_languages
        }
    files = {
        language: Path(str(vectors.filename))
        for language, vectors in documents.items()
        if isinstance(vectors, np.memmap)
    }
    after = time.perf_counter()
    if POOL in wanted:
        documents[POOL] = np.concatenate([documents[language] for language in retrieval_set.collection(POOL)])
    return Encoded(queries, documents, files, between - began, after - between)


def texts_in(texts: Mapping[str, Mapping[str, str]], languages: Iterable[str]) -> int:
    return sum(len(texts[language]) for language in languages)


def encode_queries(system: System, retrieval_set: RetrievalSet, language: str, advance: Advance = no_bar) -> np.ndarray:
    encode: Encode = system.encode_queries
    if retrieval_set.sought_by == "documents":
        encode = partial(system.encode_documents, language=language)
    return cached_vectors(encode, retrieval_set.queries[language], advance=advance)


def encode_documents(system: System, retrieval_set: RetrievalSet, language: str, texts: Sequence[str]) -> np.ndarray:
    if retrieval_set.sought_by == "sentences":
        return system.encode_queries(texts)
    return system.encode_documents(texts, language)


def rank(
    encoded: Encoded, retrieval_set: RetrievalSet, pair: str, depth: int, index: IndexKind = "flat", name: str = ""
) -> Run:
    """The highest cosines, at most `depth`, of each query to which the collection has a relevant document. In the pool,
    a query that was taken from a document does not find that document."""
    query_language, document_language = languages_of(pair)
    judged = retrieval_set.judgements(query_language, document_language)
    rows = [row for row, query_id in enumerate(retrieval_set.queries[query_language]) if query_id in judged]
    file = encoded.files.get(document_language)
    cosines, document_rows = search(
        encoded.documents[document_language],
        encoded.queries[query_language][rows],
        depth + (document_language == POOL),
        index,
        file and file.with_suffix(f".{index}"),
        name and f"{name}: index of {document_language}",
    )
    doc_ids = retrieval_set.doc_ids(document_language)
    run: Run = {}
    for query_id, of_query, scores in zip(judged, document_rows, cosines):
        own = retrieval_set.own_document(query_language, query_id) if document_language == POOL else None
        ranked = [(doc_ids[row], float(cosine)) for row, cosine in zip(of_query, scores) if row >= 0]
        run[query_id] = dict([item for item in ranked if item[0] != own][:depth])
    return run


def rank_words(system: BM25, retrieval_set: RetrievalSet, pair: str, depth: int, name: str = "") -> Run:
    """BM25's ranking for each query to which the collection has a relevant document."""
    query_language, document_language = languages_of(pair)
    judged = retrieval_set.judgements(query_language, document_language)
    queries = {query_id: retrieval_set.queries[query_language][query_id] for query_id in judged}
    documents = retrieval_set.documents[document_language]
    return system.rank(queries, documents, document_language, depth, name=name and f"{name}: {pair}")


@dataclass
class Collection:
    """The documents of a document language, as search/ reads them, with their ids in a run."""

    retrieval_set: RetrievalSet
    document_language: str

    def __iter__(self) -> Iterator[Document]:
        from search.documents import Document  # needs the extra `search`

        ids = iter(self.retrieval_set.doc_ids(self.document_language))
        for language in self.retrieval_set.collection(self.document_language):
            for text in texts_of(self.retrieval_set.documents[language]):
                yield Document(next(ids), "", language, text)


def rank_by_search(
    system: SearchSystem,
    retrieval_set: RetrievalSet,
    pair: str,
    vectors: Mapping[str, np.ndarray],
    depth: int,
    cache: Path | None = None,
    maker: str = "",
    name: str = "",
) -> Run:
    """What search finds for each query to which the collection has a relevant document. The index lies in the cache. In
    the pool, a query that was taken from a document does not find that document.

    Args:
        vectors: (queries, hidden), of all queries, by their language.
    """
    query_language, document_language = languages_of(pair)
    judged = retrieval_set.judgements(query_language, document_language)
    queries = {query_id: retrieval_set.queries[query_language][query_id] for query_id in judged}
    of_queries = dict(zip(retrieval_set.queries[query_language], vectors[query_language]))
    languages = retrieval_set.collection(document_language)
    made_from = [(language, fingerprint_of_documents(retrieval_set.documents[language])) for language in languages]
    own = {
        query_id: retrieval_set.own_document(query_language, query_id) if document_language == POOL else None
        for query_id in queries
    }
    with TemporaryDirectory() if cache is None else nullcontext(cache) as folder:
        index = Path(folder) / f"{fingerprint(maker, made_from)}.index"
        documents = Collection(retrieval_set, document_language)
        enough = depth + (document_language == POOL)
        run = system.rank(queries, of_queries, documents, index, enough, name and f"{name}: {pair}")
    return {
        query_id: dict([item for item in ranked.items() if item[0] != own[query_id]][:depth])
        for query_id, ranked in run.items()
    }


def rerank(system: System, retrieval_set: RetrievalSet, pair: str, given: Run, depth: int, name: str = "") -> Run:
    """A given run, the first `depth` documents of each query in the order of their cosines.

    Raises:
        ValueError: the run has a document that the collection lacks.
    """
    query_language, document_language = languages_of(pair)
    judged = retrieval_set.judgements(query_language, document_language)
    collection = retrieval_set.documents[document_language]
    first = {query_id: in_order(given.get(query_id, {}))[:depth] for query_id in judged}
    texts = {}
    for doc_id in dict.fromkeys(doc_id for doc_ids in first.values() for doc_id in doc_ids):
        if doc_id not in collection:
            raise ValueError(
                f"the given run of {pair} ranks {doc_id}, which docs/{document_language}.jsonl lacks; give a run on "
                "the same collection"
            )
        texts[doc_id] = collection[doc_id]
    encode = partial(encode_documents, system, retrieval_set, document_language)
    with progress_bar(name and f"{name}: {pair}", len(texts) + len(retrieval_set.queries[query_language])) as progress:
        documents = cached_vectors(encode, texts, advance=progress.update)
        queries = encode_queries(system, retrieval_set, query_language, progress.update)
    rows = {doc_id: row for row, doc_id in enumerate(texts)}
    run: Run = {}
    for query_row, query_id in enumerate(retrieval_set.queries[query_language]):
        if query_id in judged:
            cosines = documents[[rows[doc_id] for doc_id in first[query_id]]] @ queries[query_row]
            run[query_id] = dict(zip(first[query_id], map(float, cosines)))
    return reorder({query_id: given.get(query_id, {}) for query_id in judged}, run, depth)


def reorder(given: Run, scores: Run, depth: int) -> Run:
    """A given run, the first `depth` documents of each query in the order of other scores, the rest behind them.

    >>> reorder({"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"a": 0.25, "b": 0.5, "c": 0.75}}, depth=2)
    {'q': {'b': 0.5, 'a': 0.25, 'c': -2.0}}
    """
    run: Run = {}
    for query_id, documents in given.items():
        ranked = in_order(documents)
        of_query = scores.get(query_id, {})
        first = {doc_id: of_query.get(doc_id, -1.0) for doc_id in ranked[:depth]}  # no cosine is lower
        run[query_id] = {doc_id: first[doc_id] for doc_id in in_order(first)}
        run[query_id] |= {doc_id: -2.0 - index for index, doc_id in enumerate(ranked[depth:])}
    return run


def in_order(documents: dict[str, float]) -> list[str]:
    """As trec_eval ranks them: by score, and where scores are equal in descending order of ids."""
    return sorted(documents, key=lambda doc_id: (documents[doc_id], doc_id), reverse=True)


def score(run: Run, retrieval_set: RetrievalSet, pair: str) -> dict[str, float]:
    """The measures of a run, how many queries it answers and skips, and, in the pool, the share of the query's own
    language in the first ten (`own_language@10`)."""
    query_language, document_language = languages_of(pair)
    judged = retrieval_set.judgements(query_language, document_language)
    values = ir_measures.calc_aggregate(MEASURES.values(), judged, run)
    scores = {
        **{name: values[measure] for name, measure in MEASURES.items()},
        "queries": len(judged),
        "skipped": len(retrieval_set.queries[query_language]) - len(judged),
    }
    if document_language == POOL:
        own = [doc_id.startswith(f"{query_language}.") for ranked in run.values() for doc_id in in_order(ranked)[:10]]
        scores["own_language@10"] = float(np.mean(own))
    return scores


def values_by_query(run: Run, retrieval_set: RetrievalSet, pair: str) -> dict[str, dict[str, float]]:
    """Each measure of each query of a run, by measure and query_id."""
    judged = retrieval_set.judgements(*languages_of(pair))
    names = {str(measure): name for name, measure in MEASURES.items()}
    values: dict[str, dict[str, float]] = {name: {} for name in MEASURES}
    for value in ir_measures.iter_calc(MEASURES.values(), judged, run):
        values[names[str(value.measure)]][value.query_id] = value.value
    return values


def to_trec(run: Run, tag: str) -> str:
    """A run file: `query_id Q0 doc_id rank score tag` a line.

    Documents of equal score stand in descending order of their ids. So trec_eval ranks them, which reads scores, not
    ranks; hence nine digits, with which a float32 survives.

    >>> print(to_trec({"q1": {"d1": 0.5, "d2": 0.75, "d3": 0.5}}, tag="first"), end="")
    q1 Q0 d2 1 0.75 first
    q1 Q0 d3 2 0.5 first
    q1 Q0 d1 3 0.5 first
    """
    lines = []
    for query_id, scores in run.items():
        for rank, doc_id in enumerate(in_order(scores), start=1):
            lines.append(f"{query_id} Q0 {doc_id} {rank} {scores[doc_id]:.9g} {tag}\n")
    return "".join(lines)


def groups_of(pairs: Sequence[str], training_languages: Sequence[str]) -> dict[str, list[str]]:
    """The pairs that are averaged together: all, and apart by whether training has seen the documents' language. Those
    with the pool are by themselves."""
    pool = [pair for pair in pairs if languages_of(pair)[1] == POOL]
    single = [pair for pair in pairs if pair not in pool]
    groups = {"average": single}
    if training_languages:
        seen = [pair for pair in single if languages_of(pair)[1] in training_languages]
        groups["average, training languages"] = seen
        groups["average, held-out languages"] = [pair for pair in single if pair not in seen]
    return groups | {"average, pool of all languages": pool}
