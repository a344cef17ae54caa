"""The systems that rank by the nearest sentence or window: as a loop over single texts ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evaluation.datasets.retrieval_sets import RetrievalSet
from evaluation.recipes import RetrievalTask, SystemOptions
from evaluation.systems import check_systems, load_system
from evaluation.tasks import SystemRun
from evaluation.tasks.retrieval import evaluate_task
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.evaluation.test_rankings import DOCUMENTS, QRELS, QUERIES
from tests.evaluation.test_systems import mean_vector, overflowing_windows

TEXTS = {
    "de": DOCUMENTS["de"],
    "all": {f"{language}.{id}": text for language, texts in DOCUMENTS.items() for id, text in texts.items()},
}


@pytest.mark.parametrize("document_language", [pytest.param("de", marks=pytest.mark.slow), "all"])
@pytest.mark.parametrize(
    ("kind", "of_document", "of_best", "of_first"),
    [("nearest_sentence", 0.0, 1.0, 0.0), ("document_and_sentence", 0.3, 0.6, 0.1)],
)
def test_scores_are_those_of_one_document_at_a_time(
    kind: str,
    of_document: float,
    of_best: float,
    of_first: float,
    document_language: str,
    model_folder: Path,
    system_run: SystemRun,
) -> None:
    system = load_system(SystemOptions(kind, model=str(model_folder)))
    pair = f"en-{document_language}"
    data = RetrievalSet(DOCUMENTS, QUERIES, QRELS)
    _, runs = evaluate_task(system, RetrievalTask("", [pair]), data, system_run)

    model = HMDEForDocumentEmbedding.from_pretrained(model_folder)
    tokenizer = HMDETokenizer.from_pretrained(model_folder)
    for query_id in data.judgements(pair):
        (query,) = model.encode_queries([QUERIES["en"][query_id]], tokenizer)
        for id, text in TEXTS[document_language].items():
            language = id.split(".")[0] if document_language == "all" else "de"
            (found,) = model.explain(QUERIES["en"][query_id], [text], tokenizer, language=language)
            whole = float(model.encode_documents([text], tokenizer, language=language)[0] @ query)
            best, first = found.sentences[0].score, min(found.sentences).score  # where it begins comes first
            expected = of_document * whole + of_best * best + of_first * first
            assert runs[pair][query_id][id] == pytest.approx(expected, abs=1e-5)
        assert len(runs[pair][query_id]) == len(TEXTS[document_language])

    # From the vectors that the first time kept.
    _, kept = evaluate_task(system, RetrievalTask("", [pair], depth=2), data, system_run)
    assert kept[pair] == {
        id: pytest.approx(dict(list(scores.items())[:2]), abs=1e-6) for id, scores in runs[pair].items()
    }
    assert len(list(system_run.cache.glob("key-*.npz"))) == (2 if document_language == "all" else 1)


def test_the_whole_collection_is_ranked_though_a_run_has_its_first_documents(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, system_run: SystemRun
) -> None:
    system, data = (
        load_system(SystemOptions("document_and_sentence", model=str(model_folder))),
        RetrievalSet(DOCUMENTS, QUERIES, QRELS),
    )
    (whole, _), cut = (
        evaluate_task(system, RetrievalTask("", ["en-en"], depth=depth), data, system_run) for depth in (0, 1)
    )
    monkeypatch.setattr("evaluation.similarity.RUN_DEPTH", 1)
    found, runs = evaluate_task(system, RetrievalTask("", ["en-en"]), data, system_run)
    assert {len(ranked) for ranked in runs["en-en"].values()} == {1}
    assert found["rows"]["en-en"]["MAP"] == whole["rows"]["en-en"]["MAP"] > cut[0]["rows"]["en-en"]["MAP"]
    assert found["protocol"] == "full ranking by the system's own scores"
    assert cut[0]["protocol"] == "the first 1 by the system's own scores"


def test_windows_are_those_of_the_mean_over_windows(labse: Path, system_run: SystemRun) -> None:
    options = SystemOptions("nearest_window", model=str(labse), pooling="mean", max_length=8)
    check_systems({"windows": options})
    documents = {"d1": "the cat sat on the mat it was warm there the dog slept", "d2": "the dog slept", "d3": ""}
    data = RetrievalSet({"en": documents}, {"en": {"q": "the dog"}}, {"q": {"d2": 1}})
    _, runs = evaluate_task(load_system(options), RetrievalTask("", ["en-en"]), data, system_run)
    query = mean_vector(labse, overflowing_windows(labse, "the dog", 8), "mean")
    for id, text in documents.items():
        windows = [mean_vector(labse, [window], "mean") for window in overflowing_windows(labse, text, 8)]
        assert runs["en-en"]["q"][id] == pytest.approx(float(max(np.stack(windows) @ query)), abs=1e-5)


def test_a_late_sentence_does_not_find_its_own_document(model_folder: Path, system_run: SystemRun) -> None:
    queries = {"en": {"d1": "It was warm there!", "d2": "The dog slept."}}
    data = RetrievalSet(DOCUMENTS, queries, {id: {id: 1} for id in queries["en"]}, query_source="late_sentences")
    system = load_system(SystemOptions("document_and_sentence", model=str(model_folder)))
    _, runs = evaluate_task(
        system, RetrievalTask("", ["en-all"], query_source="late_sentences", depth=7), data, system_run
    )
    assert {id: f"en.{id}" in ranked for id, ranked in runs["en-all"].items()} == {"d1": False, "d2": False}
    assert {len(ranked) for ranked in runs["en-all"].values()} == {7}


def test_whole_documents_are_no_queries(model_folder: Path, system_run: SystemRun) -> None:
    data = RetrievalSet(DOCUMENTS, {"en": dict(DOCUMENTS["en"])}, {"d1": {"d1": 1}}, query_source="documents")
    system = load_system(SystemOptions("nearest_sentence", model=str(model_folder)))
    assert system.rank_pairs(data, RetrievalTask("", ["en-de"], depth=3), system_run) == {}
