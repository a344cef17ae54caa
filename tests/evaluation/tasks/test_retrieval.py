"""Retrieval: rankings and measures worked out by hand, and the command from its recipe to its files."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
import pytrec_eval

from evaluation.datasets.retrieval_sets import RetrievalSet
from evaluation.measures.retrieval.retrieval import RETRIEVAL_MEASURES
from evaluation.recipes import RetrievalTask
from evaluation.systems.bm25 import BM25
from evaluation.systems.hmde import HMDESystem
from evaluation.tasks import SystemRun
from evaluation.tasks.retrieval import (
    encode,
    encode_queries,
    evaluate_task,
    groups_of,
    in_order,
    rank,
    score,
    to_trec,
)
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.evaluation.running import evaluated
from tests.paths import written


class Lookup:
    """A system that knows the vector of each text, and counts what it is asked."""

    def __init__(self, vectors: dict[str, tuple[float, float]]) -> None:
        self.vectors = vectors
        self.asked: list[str] = []

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return self.encode_documents(queries, "any")

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        self.asked += documents
        return np.array([self.vectors[text] for text in documents], dtype=np.float32)


SYSTEM_VECTORS = {
    "right": (1.0, 0.0),
    "up": (0.0, 1.0),
    "A": (0.8, 0.6),
    "B": (0.6, 0.8),
    "C": (0.6, -0.8),
    "D": (0.0, 1.0),
}
RETRIEVAL_SET = RetrievalSet(
    documents={"de": {"d1": "A", "d2": "B", "d3": "C", "d4": "D"}, "fr": {"d1": "A", "d4": "D"}},
    queries={"en": {"q2": "up", "q1": "right"}},
    qrels={"q1": {"d2": 1, "d4": 2, "d1": 0, "absent": 1}, "q2": {"d3": 1}},
)


def rows(system: Any, data: RetrievalSet, pairs: list[str], run: SystemRun, depth: int = 0) -> dict[str, Any]:
    """The scores by pair."""
    return evaluate_task(system, RetrievalTask("", pairs, depth=depth), data, run)[0]["rows"]


def test_measures_equal_those_worked_out_by_hand(system_run: SystemRun) -> None:
    # q1 ranks d1 .8, d3 .6, d2 .6, d4 0, equal scores by descending id; q2 ranks d4, d2, d1, d3.
    scores = rows(Lookup(SYSTEM_VECTORS), RETRIEVAL_SET, ["en-de"], system_run)["en-de"]
    assert scores["MAP"] == pytest.approx(((1 / 3 + 2 / 4) / 2 + 1 / 4) / 2)
    assert scores["MRR"] == pytest.approx((1 / 3 + 1 / 4) / 2)
    ideal = 2 + 1 / math.log2(3)
    assert scores["nDCG@10"] == pytest.approx(((1 / 2 + 2 / math.log2(5)) / ideal + 1 / math.log2(5)) / 2)
    assert (scores["queries"], scores["skipped"]) == (2, 0)


def test_average_precision_divides_by_all_relevant_documents_retrieved_or_not(system_run: SystemRun) -> None:
    # Three documents a query: q1 does not retrieve d4, q2 retrieves nothing that is relevant.
    scores = rows(Lookup(SYSTEM_VECTORS), RETRIEVAL_SET, ["en-de"], system_run, depth=3)["en-de"]
    assert scores["MAP"] == pytest.approx(((1 / 3) / 2 + 0) / 2)
    assert scores["MRR"] == pytest.approx((1 / 3 + 0) / 2)
    assert scores["nDCG@10"] == pytest.approx((1 / 2) / (2 + 1 / math.log2(3)) / 2)


def test_a_query_without_a_relevant_document_in_the_collection_is_skipped_and_counted(system_run: SystemRun) -> None:
    # d3, relevant to q2, is not in French; q1 ranks d1 .8, d4 0.
    scores = rows(Lookup(SYSTEM_VECTORS), RETRIEVAL_SET, ["en-fr"], system_run)["en-fr"]
    ndcg = pytest.approx(1 / math.log2(3))
    assert scores == {"MAP": 0.5, "MAP@20": 0.5, "MRR": 0.5, "nDCG@10": ndcg, "Recall@100": 1, "P@1": 0} | {
        "queries": 1,
        "skipped": 1,
    }


def test_each_language_is_encoded_once_for_all_pairs(system_run: SystemRun) -> None:
    system = Lookup(SYSTEM_VECTORS)
    more = RetrievalSet(RETRIEVAL_SET.documents, {"en": {"q1": "right"}, "it": {"q2": "up"}}, RETRIEVAL_SET.qrels)
    rows(system, more, ["en-de", "it-de", "en-fr"], system_run)
    assert sorted(system.asked) == sorted(["right", "up", *"ABCD", *"AD"])


def test_all_documents_are_ranked_unless_a_depth_is_given(system_run: SystemRun) -> None:
    encoded = encode(Lookup(SYSTEM_VECTORS), RETRIEVAL_SET, ["en-de"], system_run)
    ranked = rank(encoded, RETRIEVAL_SET, "en-de")
    assert {len(documents) for documents in ranked.run.values()} == {len(RETRIEVAL_SET.documents["de"])}
    assert ranked.ranks is not None


def test_a_run_file_is_ranked_as_trec_eval_ranks_it() -> None:
    for documents in (["d1", "d2", "d10"], ["d2", "d10", "d1"], ["d10", "d1", "d2"]):
        run = {"q2": dict.fromkeys(documents, 0.5) | {"d3": 0.75, "d4": -1.0}, "q1": {"d1": 0.25}}
        assert to_trec(run, tag="system") == (
            "q2 Q0 d3 1 0.75 system\n"
            "q2 Q0 d2 2 0.5 system\n"
            "q2 Q0 d10 3 0.5 system\n"
            "q2 Q0 d1 4 0.5 system\n"
            "q2 Q0 d4 5 -1 system\n"
            "q1 Q0 d1 1 0.25 system\n"
        )


def test_a_score_survives_the_run_file_bit_for_bit(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).uniform(-1, 1, size=1000).astype(np.float32)
    path = tmp_path / "run"
    path.write_text(
        to_trec({"q": {f"d{i}": float(score) for i, score in enumerate(scores)}}, tag="x"), encoding="utf-8"
    )
    read = {line.doc_id: np.float32(line.score) for line in ir_measures.read_trec_run(str(path))}
    assert [read[f"d{i}"] for i in range(1000)] == list(scores)


def test_a_query_ranks_as_many_documents_as_it_may(system_run: SystemRun) -> None:
    encoded = encode(Lookup(SYSTEM_VECTORS), RETRIEVAL_SET, ["en-de"], system_run)
    assert {len(rank(encoded, RETRIEVAL_SET, "en-de", depth).run["q1"]) for depth in (3, 4, 5)} == {3, 4}
    run = rank(encoded, RETRIEVAL_SET, "en-de", depth=2).run
    assert run["q2"] == {"d4": pytest.approx(1.0), "d2": pytest.approx(0.8)}


POOLED = RetrievalSet(
    documents={"en": {"d1": "A", "d2": "B", "d3": "C"}, "de": {"d1": "B", "d2": "D", "d3": "C"}},
    queries={"en": {"d1": "A", "d2": "B"}},
    qrels={"d1": {"d1": 1}, "d2": {"d2": 1}},
    query_source="documents",
)


def test_in_the_pool_a_document_seeks_its_translation_among_as_many_others_as_are_asked_for(
    system_run: SystemRun,
) -> None:
    # By cosine, A (1): en.d1 itself, en.d2 and de.d1 .96, de.d2 .6, en.d3 and de.d3 0; equal scores by descending id.
    task = RetrievalTask("", ["en-all"], depth=3, query_source="documents")
    _, runs = evaluate_task(Lookup(SYSTEM_VECTORS), task, POOLED, system_run)
    assert set(runs["en-all"]["d1"]) == {"en.d2", "de.d1", "de.d2"}
    assert next(iter(runs["en-all"]["d2"])) == "de.d1"  # the same text in the other language; en.d2 is the query


def test_in_the_pool_the_share_of_ones_own_language_is_of_the_first_ten_as_they_are_ranked() -> None:
    values = {name: {"q": 1.0} for name in RETRIEVAL_MEASURES}
    run = {"q": {f"de.{i}": 0.9 - i / 100 for i in range(7)} | {f"en.{i}": 0.5 - i / 100 for i in range(5)}}
    assert score(values, run, POOLED, "en-all")["own_language@10"] == pytest.approx(3 / 10)
    assert score(values, run | {"p": {"en.1": 1.0}}, POOLED, "en-all")["own_language@10"] == pytest.approx(4 / 11)
    assert "own_language@10" not in score(values, run, POOLED, "en-de")


class ByLanguage:
    """A system that reads a text otherwise in each language."""

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, 0.0]] * len(queries), dtype=np.float32)

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        return np.array([[1.0, 0.0] if language == "de" else [0.0, 1.0]] * len(documents), dtype=np.float32)


def test_the_same_texts_in_two_languages_have_vectors_of_their_own_in_the_cache(
    tmp_path: Path, system_run: SystemRun
) -> None:
    same = RetrievalSet({"de": {"d1": "A"}, "fr": {"d1": "A"}}, {"en": {"q1": "up"}}, {"q1": {"d1": 1}})
    for _ in range(2):
        encoded = encode(ByLanguage(), same, ["en-de", "en-fr"], system_run)
        assert encoded.documents["de"].tolist() == [[1.0, 0.0]]
        assert encoded.documents["fr"].tolist() == [[0.0, 1.0]]


def test_a_query_that_is_a_whole_document_is_read_as_one_of_its_language(system_run: SystemRun) -> None:
    mates = RetrievalSet({"fr": {"d1": "A"}}, {"de": {"d1": "A"}}, {"d1": {"d1": 1}}, query_source="documents")
    assert encode(ByLanguage(), mates, ["de-fr"], system_run).queries["de"].tolist() == [[1.0, 0.0]]
    mates = RetrievalSet({"de": {"d1": "A"}}, {"fr": {"d1": "A"}}, {"d1": {"d1": 1}}, query_source="documents")
    assert encode(ByLanguage(), mates, ["fr-de"], system_run).queries["fr"].tolist() == [[0.0, 1.0]]


def test_queries_are_counted_as_they_are_encoded() -> None:
    counts: list[int] = []
    texts = RetrievalSet({"de": {"d1": "A"}}, {"en": {"q1": "up", "q2": "down"}}, {"q1": {"d1": 1}})
    encode_queries(ByLanguage(), texts, "en", counts.append)
    assert sum(counts) == 2


def test_averages_tell_held_out_document_languages_from_those_of_training() -> None:
    pairs = ["ru-de", "de-ru", "en-de"]
    assert groups_of(pairs, ["en", "de"]) == {
        "average": pairs,
        "average, training languages": ["ru-de", "en-de"],
        "average, held-out languages": ["de-ru"],
        "average, pool of all languages": [],
    }
    assert groups_of([*pairs, "en-all"], []) == {"average": pairs, "average, pool of all languages": ["en-all"]}
    by_both = groups_of(["de-en", "ar-en", "en-ar"], ["en", "de"], both_languages=True)
    assert by_both["average, held-out languages"] == ["ar-en", "en-ar"]


def test_a_model_in_memory_can_be_evaluated(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, system_run: SystemRun
) -> None:
    texts = {"d1": "The cat sat on the mat. It was warm.", "d2": "Der Hund sah die Katze."}
    found = RetrievalSet({"de": texts}, {"en": {"q": "the cat"}}, {"q": {"d1": 1}})
    query = model.encode_queries(["the cat"], tokenizer)[0]
    cosines = [model.encode_documents([text], tokenizer, language="de")[0] @ query for text in texts.values()]
    place = 1 if cosines[0] > cosines[1] else 2
    scores = rows(HMDESystem(model, tokenizer), found, ["en-de"], system_run)
    assert scores["en-de"]["MRR"] == pytest.approx(1 / place)


def test_measures_equal_trec_evals_on_the_written_run_files_ties_included(system_run: SystemRun) -> None:
    draw = np.random.default_rng(0)
    angles = {f"text {index}": draw.integers(0, 6) for index in range(40)}  # many documents have equal scores
    system = Lookup({text: (float(np.cos(angle)), float(np.sin(angle))) for text, angle in angles.items()})
    documents = {f"d{index}": f"text {index}" for index in range(40)}
    queries = {f"q{index}": f"text {index}" for index in range(10)}
    qrels = {query: {f"d{draw.integers(40)}": int(draw.integers(0, 3)) for _ in range(8)} for query in queries}
    retrieval_set = RetrievalSet({"de": documents}, {"en": queries}, qrels)
    result, runs = evaluate_task(system, RetrievalTask("", ["en-de"]), retrieval_set, system_run)
    run = {}
    for line in to_trec(runs["en-de"], tag="x").splitlines():
        query_id, _, doc_id, _, score, _ = line.split()
        run.setdefault(query_id, {})[doc_id] = float(score)
    assert any(len(set(scores.values())) < len(scores) / 4 for scores in run.values())
    names = {"map": "MAP", "ndcg_cut_10": "nDCG@10", "recip_rank": "MRR", "recall_100": "Recall@100", "P_1": "P@1"}
    measures = {"map", "ndcg_cut.10", "recip_rank", "recall.100", "P.1"}
    expected = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    for name, ours in names.items():
        by_query = result["per_item"]["en-de"][ours]
        assert by_query == pytest.approx({query: expected[query][name] for query in by_query})
        assert result["rows"]["en-de"][ours] == pytest.approx(np.mean(list(by_query.values())))


def test_mates_are_sought_in_one_language_and_in_a_pool(system_run: SystemRun) -> None:
    vectors = {"one": (1.0, 0.0), "two": (0.0, 1.0), "eins": (0.8, 0.6), "zwei": (0.6, 0.8)}
    documents = {"en": {"d1": "one", "d2": "two"}, "de": {"d1": "eins", "d2": "zwei"}}
    queries = {"en": dict(documents["en"])}
    qrels = {"d1": {"d1": 1}, "d2": {"d2": 1}}
    mates = RetrievalSet(documents, queries, qrels, query_source="documents")
    task = RetrievalTask("", ["en-de", "en-all"], query_source="documents")
    result, runs = evaluate_task(Lookup(vectors), task, mates, system_run)
    assert result["rows"]["en-de"]["P@1"] == 1.0
    assert in_order(runs["en-all"]["d1"]) == ["de.d1", "de.d2", "en.d2"]  # en.d1 is the query
    assert result["rows"]["en-all"]["P@1"] == 1.0
    assert result["rows"]["en-all"]["own_language@10"] == pytest.approx(1 / 3)
    assert set(result["averages"]) == {"average", "average, pool of all languages"}


def test_bm25_answers_pairs_of_one_language_only(system_run: SystemRun) -> None:
    documents = {"en": {"d1": "a cat", "d2": "a dog"}, "de": {"d1": "katze"}}
    found = RetrievalSet(documents, {"en": {"q": "cats"}}, {"q": {"d1": 1}})
    result, runs = evaluate_task(BM25(), RetrievalTask("", ["en-en", "en-de"]), found, system_run)
    assert list(result["rows"]) == ["en-en"]
    assert list(runs["en-en"]["q"]) == ["d1"]
    assert result["averages"] == {}  # no average over pairs that are not there


@pytest.fixture
def recipe(tmp_path: Path, labse: Path) -> dict[str, Any]:
    """Two documents a language; each query is the text of one of them, so `first` puts that one on top."""
    for language in ("de", "fr"):
        write_lines(
            tmp_path / "data" / "docs" / f"{language}.jsonl",
            '{"concept_id": "d1", "title": "warm", "text": "the cat"}',
            '{"concept_id": "d2", "title": "warm", "text": "der hund"}',
        )
    write_lines(tmp_path / "data" / "queries" / "en.tsv", "q1\tthe cat", "q2\tder hund", "q3\tkatze")
    write_lines(tmp_path / "data" / "qrels.test.tsv", "q1\t0\td1\t1", "q2\t0\td1\t1", "q3\t0\td3\t1")
    return {
        "output": str(tmp_path / "out"),
        "systems": {"base": {"kind": "first", "model": str(labse), "pooling": "mean"}},
        "retrieval": {
            "task": {
                "data": str(tmp_path / "data"),
                "split": "test",
                "pairs": ["en-de", "en-fr"],
                "training_languages": ["en", "de"],
            }
        },
    }


def write_lines(path: Path, *lines: str) -> None:
    written(path, "".join(line + "\n" for line in lines))


def test_every_measure_is_kept_by_pair_average_and_query(recipe: dict[str, Any], labse: Path) -> None:
    evaluated(recipe)
    found = json.loads((Path(recipe["output"]) / "results" / "task" / "base.json").read_text(encoding="utf-8"))
    expected = {"MAP": 0.75, "MAP@20": 0.75, "MRR": 0.75, "nDCG@10": pytest.approx((1 + 1 / math.log2(3)) / 2)}
    expected |= {"Recall@100": 1.0, "P@1": 0.5}
    assert found["rows"] == {pair: expected | {"queries": 2, "skipped": 1} for pair in ("en-de", "en-fr")}
    assert found["averages"] == dict.fromkeys(
        ["average", "average, training languages", "average, held-out languages"], expected
    )
    assert found["per_item"]["en-fr"]["MAP"] == {"q1": 1.0, "q2": 0.5}
    assert found["protocol"] == "full ranking by cosine"


def test_runs_are_written_as_trec_eval_reads_them(recipe: dict[str, Any]) -> None:
    evaluated(recipe)
    lines = (Path(recipe["output"]) / "runs" / "task" / "base" / "en-de.run").read_text(encoding="utf-8").split("\n")
    assert [[*line.split()[:4], line.split()[5]] for line in lines[:-1]] == [
        ["q1", "Q0", "d1", "1", "base"],
        ["q1", "Q0", "d2", "2", "base"],
        ["q2", "Q0", "d2", "1", "base"],
        ["q2", "Q0", "d1", "2", "base"],
    ]
    assert float(lines[0].split()[4]) == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_measure_and_depth_can_be_chosen_on_the_command_line(recipe: dict[str, Any]) -> None:
    evaluated(recipe, "--retrieval.task.measure", "nDCG@10", "--retrieval.task.pairs", "[en-fr]")
    report = (Path(recipe["output"]) / "report.md").read_text(encoding="utf-8")
    assert "| en-fr | 0.815 |" in report  # 0.75 is its MAP
    results = evaluated(recipe, "--retrieval.task.depth", "1", "--retrieval.task.pairs", "[en-fr]")
    scores = results["tasks"]["task"]["base"]["rows"]["en-fr"]
    assert scores == {
        "MAP": 0.5, "MAP@20": 0.5, "MRR": 0.5, "nDCG@10": 0.5, "Recall@100": 0.5, "P@1": 0.5, "queries": 2, "skipped": 1
    }  # fmt: skip


def test_the_whole_collection_is_ranked_unless_a_depth_is_asked_for(
    recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores(*arguments: str) -> tuple[float, int]:
        results = evaluated(recipe, "--retrieval.task.pairs", "[en-de]", *arguments)
        run = (Path(recipe["output"]) / "runs" / "task" / "base" / "en-de.run").read_text(encoding="utf-8")
        return results["tasks"]["task"]["base"]["rows"]["en-de"]["MAP"], run.count("\n")

    whole = scores()
    monkeypatch.setattr("evaluation.similarity.RUN_DEPTH", 1)
    shutil.rmtree(recipe["output"])
    assert scores() == (whole[0], 2)  # one document a query in the run
    assert scores("--retrieval.task.depth", "1")[0] < whole[0]


@pytest.mark.slow
def test_bfloat16_changes_scores_a_little(recipe: dict[str, Any]) -> None:
    def cosine_of_the_second(*arguments: str) -> float:
        evaluated(recipe, *arguments)
        file = Path(recipe["output"]) / "runs" / "task" / "base" / "en-de.run"
        return float(file.read_text(encoding="utf-8").splitlines()[1].split()[4])

    full, half = (cosine_of_the_second("--dtype", dtype) for dtype in ("float32", "bfloat16"))
    assert full != half
    assert full == pytest.approx(half, abs=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": ["en-ru"]}, "ru.jsonl is missing"),
        ({"pairs": ["ru-de"]}, "ru.tsv is missing"),
        ({"pairs": ["en"]}, "pair 'en' is not"),
        ({"pairs": ["en-deu"]}, "language 'deu' is written 'de' here"),
        ({"pairs": ["en-all"]}, "without a document language but all"),
        ({"split": "dev"}, "qrels.dev.tsv is missing"),
        ({"depth": -1}, "(?s)depth.*Not of type NonNegativeInt: -1"),
        ({"format": "trec"}, "format is 'trec'; it must be hmde, or the full name"),
        ({"depht": 3}, "depht"),
        ({"measure": "P@5"}, "measure"),
        ({"index": "tree"}, "index"),
        ({"pairs": "en-de"}, "pairs"),
    ],
)
def test_bad_input_is_refused_before_anything_is_computed(
    recipe: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    recipe["retrieval"]["task"] |= change
    with pytest.raises(ValueError, match=message):
        evaluated(recipe)
    assert not (Path(recipe["output"]) / "results").exists()
