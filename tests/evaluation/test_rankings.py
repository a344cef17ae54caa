"""The systems `hybrid` and `late` in an evaluation: as a slow and obvious computation without an index ranks."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import hmde.index.ranking
from evaluation.__main__ import main
from evaluation.datasets.retrieval_sets import RetrievalSet
from evaluation.recipes import RetrievalTask, SystemOptions
from evaluation.systems import check_systems, load_system
from evaluation.tasks import SystemRun
from evaluation.tasks.retrieval import evaluate_task, in_order
from hmde.index.bm25 import terms
from hmde.index.encoder import Encoder
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.hmde.small_index import as_kept

pytestmark = pytest.mark.lancedb

DOCUMENTS = {
    "en": {
        "d1": "The cat sat on the mat. It was warm there!",
        "d2": "A dog saw the cats. The dog slept.",
        "d3": "It was a long day.",
        "d4": "On the mat. The dog sat there. The mat was warm.",
        "d5": "Two houses.",
    },
    "de": {
        "d1": "Die Katze lag in der Sonne. Es war warm.",
        "d2": "Der Hund sah die Katzen. Dann schlief er ein.",
        "d3": "Es war ein langer Tag gewesen.",
    },
}
QUERIES = {"en": {"q1": "Where did the cat sit?", "q2": "warm mat", "q3": "Hund oder dog"}}
QRELS = {"q1": {"d1": 1}, "q2": {"d4": 1, "d1": 1}, "q3": {"d2": 1}}
CANDIDATES = 3


def by_score(scores: dict[str, float]) -> list[str]:
    return sorted(scores, key=lambda id: (-scores[id], id))


def by_words(query: str, texts: dict[str, tuple[str, str]]) -> dict[str, float]:
    """BM25 as Lucene computes it, of the question read in no language and in each of the collection."""
    words = {id: terms(text, language) for id, (language, text) in texts.items()}
    languages = {None, *(language for language, _ in texts.values())}
    asked = {term for language in languages for term in terms(query, language)}
    mean_length = sum(map(len, words.values())) / len(words)
    scores: dict[str, float] = {}
    for id, document_terms in words.items():
        for term in asked & set(document_terms):
            containing = sum(term in other for other in words.values())
            idf = math.log(1 + (len(words) - containing + 0.5) / (containing + 0.5))
            count = Counter(document_terms)[term]
            length = 0.25 + 0.75 * len(document_terms) / mean_length
            scores[id] = scores.get(id, 0) + idf * count * 2.2 / (count + 1.2 * length)
    return scores


@cache
def opened(folder: Path) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    return HMDEForDocumentEmbedding.from_pretrained(folder), HMDETokenizer.from_pretrained(folder)


def expected_ranking(ranking: str, query: str, texts: dict[str, tuple[str, str]], folder: Path) -> list[str]:
    model, tokenizer = opened(folder)
    (vector,) = model.encode_queries([query], tokenizer)
    cosines = {
        id: float(model.encode_documents([text], tokenizer, language=language)[0] @ vector)
        for id, (language, text) in texts.items()
    }
    near = by_score(cosines)
    words = by_words(query, texts)
    first = by_score(words)[:CANDIDATES]
    span = cosines[near[0]] - cosines[near[:CANDIDATES][-1]]
    losses = dict.fromkeys(texts, 0.0)
    for language in {language for language, _ in texts.values()}:
        if best_first := [id for id in first if texts[id][0] == language]:
            asked, held = ({*terms(text, language)} for text in (query, texts[best_first[0]][1]))
            coverage = len(asked & held) / len(asked)
            third = words[best_first[2]] / words[best_first[0]] if len(best_first) > 2 else 0
            weight = 0.3 * coverage + 1.5 * max(coverage - 0.6, 0) / 0.4 * (1 - third)
            for id, (its_language, _) in texts.items():
                if its_language == language:
                    lost = 1 - words[id] / words[best_first[0]] if id in best_first else 1
                    losses[id] = weight * span * lost
    looked_at = {*near[:CANDIDATES], *first}
    first = by_score({id: cosines[id] - losses[id] for id in looked_at})[:CANDIDATES]
    if ranking == "late":
        sentence_scores = {}
        for id, (language, text) in texts.items():
            _, (sentences,) = model.encode_documents([text], tokenizer, language=language, sentences=True)
            kept = as_kept(sentences.vectors, Encoder("", model, tokenizer))
            found = kept.numpy() @ vector
            sentence_scores[id] = float(0.6 * found.max() + 0.1 * found[0])
        # So few documents are all among those with the best sentences.
        first = by_score({id: 0.3 * cosines[id] + sentence_scores[id] - losses[id] for id in texts})[:CANDIDATES]
    return first + [id for id in near if id not in first]


@pytest.mark.parametrize("ranking", ["hybrid", "late"])
@pytest.mark.parametrize(
    "document_language", [pytest.param("en", marks=pytest.mark.slow), pytest.param("de", marks=pytest.mark.slow), "all"]
)
def test_a_user_of_search_gets_this_ranking(
    ranking: str, document_language: str, model_folder: Path, monkeypatch: pytest.MonkeyPatch, system_run: SystemRun
) -> None:
    monkeypatch.setattr(hmde.index.ranking, "CANDIDATES", CANDIDATES)
    pair = f"en-{document_language}"
    texts = (
        {
            f"{language}.{id}": (language, text)
            for language, occurrences in DOCUMENTS.items()
            for id, text in occurrences.items()
        }
        if document_language == "all"
        else {id: (document_language, text) for id, text in DOCUMENTS[document_language].items()}
    )
    system = load_system(SystemOptions(ranking, model=str(model_folder)))
    data = RetrievalSet(DOCUMENTS, QUERIES, QRELS)
    answered = {id: text for id, text in QUERIES["en"].items() if id in data.judgements(pair)}
    expected = {id: expected_ranking(ranking, text, texts, model_folder) for id, text in answered.items()}
    for _ in range(2):  # the second time from the index of the first
        result, runs = evaluate_task(system, RetrievalTask("", [pair]), data, system_run)
        assert {id: in_order(ranked) for id, ranked in runs[pair].items()} == expected
        assert result["rows"][pair]["queries"] == len(expected)
        assert result["protocol"] == "the first 1000 by the system's own scores"
    _, runs = evaluate_task(system, RetrievalTask("", [pair], depth=2), data, system_run)
    assert {id: in_order(ranked) for id, ranked in runs[pair].items()} == {id: e[:2] for id, e in expected.items()}


@pytest.mark.parametrize("ranking", ["hybrid", "late", "document_and_sentence"])
def test_the_queries_of_a_task_are_encoded_once_and_together(
    ranking: str, model_folder: Path, monkeypatch: pytest.MonkeyPatch, system_run: SystemRun
) -> None:
    encode, encoded = HMDEForDocumentEmbedding.encode_queries, []

    def counting(model: HMDEForDocumentEmbedding, queries: Sequence[str], *args: Any, **options: Any) -> np.ndarray:
        encoded.append(list(queries))
        return encode(model, queries, *args, **options)

    monkeypatch.setattr(HMDEForDocumentEmbedding, "encode_queries", counting)
    system = load_system(SystemOptions(ranking, model=str(model_folder)))
    encoded.clear()  # of what was encoded to see whether the model works
    evaluate_task(
        system, RetrievalTask("", ["en-de", "en-en", "en-all"]), RetrievalSet(DOCUMENTS, QUERIES, QRELS), system_run
    )
    assert encoded == [list(QUERIES["en"].values())]


@pytest.mark.slow
def test_a_late_sentence_does_not_find_its_own_document(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch, system_run: SystemRun
) -> None:
    monkeypatch.setattr(hmde.index.ranking, "CANDIDATES", 1)  # so that the own one is all that the ranking itself finds
    queries = {"en": {"d1": "It was warm there!", "d2": "The dog slept."}}
    data = RetrievalSet(DOCUMENTS, queries, {id: {id: 1} for id in queries["en"]}, query_source="late_sentences")
    system = load_system(SystemOptions("late", model=str(model_folder)))
    for depth in range(1, 8):  # at some of them, the own one is among the nearest
        task = RetrievalTask("", ["en-all"], query_source="late_sentences", depth=depth)
        _, runs = evaluate_task(system, task, data, system_run)
        assert {len(ranked) for ranked in runs["en-all"].values()} == {depth}
    every = {f"{language}.{id}" for language, documents in DOCUMENTS.items() for id in documents}
    assert {id: set(ranked) for id, ranked in runs["en-all"].items()} == {
        id: every - {f"en.{id}"} for id in queries["en"]
    }


def test_a_query_that_is_a_whole_document_is_not_ranked(model_folder: Path, system_run: SystemRun) -> None:
    data = RetrievalSet(DOCUMENTS, {"en": DOCUMENTS["en"]}, {"d1": {"d1": 1}}, query_source="documents")
    task = RetrievalTask("", ["en-de"], query_source="documents")
    result, runs = evaluate_task(load_system(SystemOptions("hybrid", model=str(model_folder))), task, data, system_run)
    assert not runs
    assert not result["rows"]


def test_words_and_the_first_tokens_rank_as_hybrid_does(labse: Path, system_run: SystemRun) -> None:
    rival, first = (load_system(SystemOptions(kind, model=str(labse))) for kind in ("hybrid_first", "first"))
    assert rival.ranking == "hybrid"
    assert rival.tokenizer("a so\u00adft hyphen").input_ids == rival.tokenizer("a soft hyphen").input_ids
    texts = list(DOCUMENTS["en"].values())
    vectors = rival.model.encode_documents(texts, rival.tokenizer, language="en")
    np.testing.assert_allclose(vectors, first.encode_documents(texts, "en"), atol=1e-6)
    _, runs = evaluate_task(rival, RetrievalTask("", ["en-en"]), RetrievalSet(DOCUMENTS, QUERIES, QRELS), system_run)
    assert {len(ranked) for ranked in runs["en-en"].values()} == {len(texts)}


def test_only_an_hmde_searches(model_folder: Path, labse: Path) -> None:
    check_systems(
        {
            "hybrid": SystemOptions("hybrid", model=str(model_folder)),
            "late": SystemOptions("late", model=str(model_folder)),
        }
    )
    with pytest.raises(ValueError, match=r"system late: .* is no HMDE"):
        check_systems({"late": SystemOptions("late", model=str(labse))})


def test_search_is_refused_before_anything_is_computed_where_it_is_not_installed(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hmde.index.snapshot", None)
    with pytest.raises(ValueError, match=r"system s: kind hybrid needs search .*; pip install '\.\[search\]'"):
        check_systems({"s": SystemOptions("hybrid", model=str(model_folder))})


@pytest.mark.slow
def test_search_stands_beside_vectors_in_a_comparison(model_folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for folder in ("docs", "queries"):
        (data / folder).mkdir(parents=True)
    for language, documents in DOCUMENTS.items():
        lines = [json.dumps({"doc_id": id, "text": text}) for id, text in documents.items()]
        (data / "docs" / f"{language}.jsonl").write_text("\n".join(lines))
    (data / "queries" / "en.tsv").write_text("".join(f"{id}\t{text}\n" for id, text in QUERIES["en"].items()))
    (data / "qrels.tsv").write_text("".join(f"{q}\t0\t{d}\t1\n" for q, graded in QRELS.items() for d in graded))
    recipe = {
        "output": str(tmp_path / "out"),
        "systems": {kind: {"kind": kind, "model": str(model_folder)} for kind in ("hmde", "hybrid", "late")},
        "retrieval": {"questions": {"data": str(data), "pairs": ["en-en", "en-de"]}},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    main(["--config", str(tmp_path / "recipe.yaml")])
    report = (tmp_path / "out" / "report.md").read_text()
    assert "|  | hmde | hybrid | late |" in report
    ranked = [line.split()[2] for line in (tmp_path / "out/runs/questions/late/en-de.run").read_text().splitlines()]
    assert len(ranked) == len(QUERIES["en"]) * len(DOCUMENTS["de"])
    assert np.unique(ranked).size == len(DOCUMENTS["de"])
