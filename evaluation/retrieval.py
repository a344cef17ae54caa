"""Retrieval across languages: a query in one, documents in another, ranked by cosine (paper, section 3.2).

    python -m evaluation.retrieval --config configuration/evaluate/sample-retrieval.yaml [--key value ...]

Every query ranks the whole collection of a language; nothing is ranked beforehand by another system. Writes

    results.json             all measures by system and pair, with recipe, environment and seconds
    results.md               the table: one row a pair, one column a system
    runs/<system>/<pair>.run the rankings, as trec_eval reads them
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import faiss
import ir_measures
import numpy as np
from ir_measures import AP, RR, nDCG
from jsonargparse import auto_cli

from evaluation.readers import RetrievalSet, languages_of, read_retrieval_set
from evaluation.report import Scores, Table, averages, write_report, write_whole
from evaluation.systems import Dtype, System, SystemRecipe, check_systems, load_system

Run = dict[str, dict[str, float]]  # score by query_id and doc_id

# Each the mean over the queries. AP divides by all relevant documents of the collection, retrieved or not.
MEASURES = {"MAP": AP, "nDCG@10": nDCG @ 10, "MRR": RR}


@dataclass
class RetrievalRecipe:
    """A comparison of systems on a retrieval set.

    Args:
        data: folder of the set; evaluation/readers.py says what is in it.
        pairs: `<query language>-<document language>`, such as en-de.
        systems: by name; see SystemRecipe.
        output: folder to write. Files of an earlier evaluation there are replaced.
        split: of the qrels, qrels.<split>.tsv; without one, qrels.tsv.
        training_languages: languages of documents that the systems were trained on; averages tell them from others.
        measure: the one in the table; results.json has all.
        depth: documents that a query ranks at most.
        dtype: float32, or bfloat16, which is faster where the processor multiplies it.
    """

    data: str
    pairs: list[str]
    systems: dict[str, SystemRecipe]
    output: str
    split: str | None = None
    training_languages: list[str] = field(default_factory=list)
    measure: Literal["MAP", "nDCG@10", "MRR"] = "MAP"
    depth: int = 1000
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ValueError(f"depth is {self.depth}; it must be at least 1")


@dataclass
class Encoded:
    """The vectors of a retrieval set by language, rows in its order, and the seconds they took."""

    queries: dict[str, np.ndarray]  # (queries, hidden)
    documents: dict[str, np.ndarray]  # (documents, hidden)
    query_seconds: float
    document_seconds: float


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(RetrievalRecipe, args=argv, as_positional=False)
    retrieval_set = read_retrieval_set(recipe.data, recipe.pairs, recipe.split)
    check_systems(recipe.systems)
    systems = {name: compare(name, recipe, retrieval_set) for name in recipe.systems}
    table = Table(
        f"{recipe.measure} on {Path(recipe.data).name}, {recipe.split or 'all'} queries, full collection by cosine",
        "queries-documents",
        {
            name: {row: scores[recipe.measure] for row, scores in (result["pairs"] | result["averages"]).items()}
            for name, result in systems.items()
        },
    )
    write_report(Path(recipe.output), asdict(recipe), {"systems": systems}, [table])


def compare(name: str, recipe: RetrievalRecipe, retrieval_set: RetrievalSet) -> dict[str, Any]:
    """Everything that is reported of one system. Writes its run files."""
    system = load_system(recipe.systems[name], recipe.dtype)
    encoded = encode(system, retrieval_set, recipe.pairs)
    scores: Scores = {}
    for pair in recipe.pairs:
        run = rank(encoded, retrieval_set, pair, recipe.depth)
        write_whole(Path(recipe.output) / "runs" / name / f"{pair}.run", to_trec(run, tag=name))
        scores[pair] = score(run, retrieval_set, pair)
    return {
        "pairs": scores,
        "averages": averages(scores, groups_of(recipe.pairs, recipe.training_languages), list(MEASURES)),
        "documents": sum(len(vectors) for vectors in encoded.documents.values()),
        "document_seconds": encoded.document_seconds,
        "queries": sum(len(vectors) for vectors in encoded.queries.values()),
        "query_seconds": encoded.query_seconds,
    }


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
        by pair: `MAP`, `nDCG@10`, `MRR`, the number of `queries` these are means over, and how many were `skipped`
        because the collection has no document that is relevant to them.
    """
    encoded = encode(system, retrieval_set, pairs)
    return {pair: score(rank(encoded, retrieval_set, pair, depth), retrieval_set, pair) for pair in pairs}


def encode(system: System, retrieval_set: RetrievalSet, pairs: Sequence[str]) -> Encoded:
    """The vectors of the queries and documents of some pairs, each language once."""
    query_languages, document_languages = (dict.fromkeys(side) for side in zip(*map(languages_of, pairs)))
    began = time.perf_counter()
    queries = {
        language: system.encode_queries(list(retrieval_set.queries[language].values())) for language in query_languages
    }
    between = time.perf_counter()
    documents = {
        language: system.encode_documents(list(retrieval_set.documents[language].values()), language)
        for language in document_languages
    }
    return Encoded(queries, documents, between - began, time.perf_counter() - between)


def rank(encoded: Encoded, retrieval_set: RetrievalSet, pair: str, depth: int) -> Run:
    """The highest cosines, at most `depth`, of each query to which the collection has a relevant document."""
    query_language, document_language = languages_of(pair)
    judged = retrieval_set.judgements(query_language, document_language)
    rows = [row for row, query_id in enumerate(retrieval_set.queries[query_language]) if query_id in judged]
    vectors = encoded.documents[document_language]
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    cosines, places = index.search(encoded.queries[query_language][rows], min(depth, len(vectors)))
    doc_ids = list(retrieval_set.documents[document_language])
    return {
        query_id: {doc_ids[place]: float(cosine) for place, cosine in zip(found, scores)}
        for query_id, found, scores in zip(judged, places, cosines)
    }


def score(run: Run, retrieval_set: RetrievalSet, pair: str) -> dict[str, float]:
    """The measures of a run, and how many queries it answers and skips."""
    query_language, document_language = languages_of(pair)
    judged = retrieval_set.judgements(query_language, document_language)
    values = ir_measures.calc_aggregate(MEASURES.values(), judged, run)
    return {
        **{name: values[measure] for name, measure in MEASURES.items()},
        "queries": len(judged),
        "skipped": len(retrieval_set.queries[query_language]) - len(judged),
    }


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
        ranking = sorted(scores.items(), key=lambda found: (found[1], found[0]), reverse=True)
        for place, (doc_id, cosine) in enumerate(ranking, start=1):
            lines.append(f"{query_id} Q0 {doc_id} {place} {cosine:.9g} {tag}\n")
    return "".join(lines)


def groups_of(pairs: Sequence[str], training_languages: Sequence[str]) -> dict[str, list[str]]:
    """The pairs that are averaged together: all, and apart by whether training has seen the documents' language."""
    groups = {"average": list(pairs)}
    if training_languages:
        seen = [pair for pair in pairs if languages_of(pair)[1] in training_languages]
        groups["average, training languages"] = seen
        groups["average, held-out languages"] = [pair for pair in pairs if pair not in seen]
    return groups


if __name__ == "__main__":
    main()
