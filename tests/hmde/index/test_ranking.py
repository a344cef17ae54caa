"""Rankings beside slow computations of the same."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hmde.index.ranking
import hmde.index.snapshot
import hmde.index.update
from hmde.documents.documents import Document
from hmde.index import Ranking
from hmde.index.encoder import Encoder, cut
from hmde.index.index import Index
from hmde.index.ranking import rank, scaled_bm25
from hmde.index.snapshot import UnknownLanguage, open_snapshot
from hmde.index.update import update_index
from modeling_hmde.attribution_hmde import DocumentSentences, score_sentences
from tests.hmde.small_index import TEXTS, CountingEncoder, as_kept, documents_of

pytestmark = pytest.mark.lancedb


def test_documents_are_ranked_by_cosine_and_explained_by_their_sentences(tmp_path: Path, encoder: Encoder) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder, sentences=False)
    hits = Index(tmp_path, encoder).search("The cat", 3, ranking="dense")
    (query,) = encoder.model.encode_queries(["The cat"], encoder.tokenizer)
    cosines = {
        name: float(encoder.encode([Document(name, name, None, text)])[0] @ query) for name, text in TEXTS.items()
    }
    assert [hit.document.id for hit in hits] == sorted(cosines, key=cosines.__getitem__, reverse=True)[:3]
    for hit in hits:
        assert hit.score == pytest.approx(cosines[hit.document.id], abs=1e-5)
        (explanation,) = encoder.model.explain("The cat", [hit.document.text], encoder.tokenizer)
        for found, expected in zip(hit.explanation.sentences, explanation.sentences, strict=True):
            assert tuple(found) == pytest.approx(tuple(expected), abs=1e-5)


@pytest.mark.parametrize("ranking", get_args(Ranking))
def test_documents_with_equal_scores_stand_in_the_order_of_their_ids(
    tmp_path: Path, encoder: Encoder, ranking: Ranking
) -> None:
    same = {name: TEXTS["cat"] for name in ("m", "z", "a", "k")}
    update_index(tmp_path, documents_of(same | {"dog": TEXTS["dog"]}), encoder)
    index = open_snapshot(tmp_path)
    found = rank(index, "The cat", encoder, ranking)
    assert [id for id in found if id != "dog"] == ["a", "k", "m", "z"]
    assert len({found[id] for id in same}) == 1
    assert list(rank(index, "The cat", encoder, ranking, depth=5)) == list(found)


class NamedVectors(Encoder):
    """Texts of documents and queries are numbers, each with its vector."""

    vectors: np.ndarray

    def encode(self, documents: Sequence[Document]) -> np.ndarray:
        return self.vectors[[int(document.text) for document in documents]]

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return self.vectors[[int(query) for query in queries]]


def test_many_documents_are_compared_partition_by_partition_with_exact_cosines(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, languages = 1000, ["de", "en", "fr"]
    monkeypatch.setattr(hmde.index.update, "APPROXIMATE_FROM", count)
    for module in (hmde.index.snapshot, hmde.index.update):
        monkeypatch.setattr(module, "PARTITIONS", 16)
    monkeypatch.setattr(hmde.index.snapshot, "NEAREST_PARTITIONS", 4)
    many = NamedVectors(*encoder)
    vectors = np.random.default_rng(0).standard_normal((count, encoder.model.config.hidden_size)).astype(np.float32)
    many.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = [
        Document(f"{number:03}", "", "fr" if number % 100 == 0 else languages[number % 2], f"{number}")
        for number in range(count)
    ]

    def indexes() -> set[str]:
        return {column for kept in open_snapshot(tmp_path).table.list_indices() for column in kept.columns}

    update_index(tmp_path, documents[:-1], many, sentences=False)
    assert indexes() == {"id", "words"}
    update_index(tmp_path, documents, many)
    assert indexes() == {"id", "words", "vector"}

    index, hits = open_snapshot(tmp_path), 0
    for number in range(0, count, 50):
        exact = {document.id: float(cosine) for document, cosine in zip(documents, many.vectors @ many.vectors[number])}
        nearest = sorted(exact, key=exact.__getitem__, reverse=True)[:10]
        found = rank(index, f"{number}", many, "dense", 10)
        hits += len({*found} & {*nearest})
        assert found == pytest.approx({id: exact[id] for id in found}, abs=1e-5)
        french = rank(index, f"{number}", many, "dense", 10, ["fr"])
        assert set(french) == {f"{other:03}" for other in range(0, count, 100)}  # in all partitions
    assert 0.5 < hits / (10 * count / 50) < 1  # of vectors without any order, a quarter of which are looked at

    update_index(tmp_path, documents[100:], many)
    assert "007" not in rank(open_snapshot(tmp_path), "7", many, "dense")
    assert next(iter(rank(open_snapshot(tmp_path), "107", many, "dense"))) == "107"


class NamedSentences(NamedVectors):
    """A document has ten sentences, of which the vectors are given too."""

    sentences: np.ndarray

    def encode_with_sentences(self, documents: Sequence[Document]) -> tuple[np.ndarray, list[DocumentSentences]]:
        numbers = [int(document.text) for document in documents]
        rows = (torch.from_numpy(self.sentences[number]) for number in numbers)
        return self.vectors[numbers], [DocumentSentences([(0, 1)] * 10, vectors) for vectors in rows]


def test_documents_are_found_by_their_best_sentences_though_their_vectors_lie_elsewhere(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, hidden = 600, encoder.model.config.hidden_size
    monkeypatch.setattr(hmde.index.ranking, "CANDIDATES", 20)
    many = NamedSentences(*encoder)
    random = np.random.default_rng(0)
    many.vectors = cut(random.standard_normal((count, hidden), np.float32), hidden)
    many.sentences = cut(random.standard_normal((count, 10, hidden), np.float32), hidden)
    update_index(tmp_path, [Document(f"{number:03}", "", "en", f"{number}") for number in range(count)], many)
    kept = as_kept(torch.from_numpy(many.sentences).flatten(0, 1), encoder).reshape(many.sentences.shape).numpy()
    index = open_snapshot(tmp_path)
    found, best = 0, 0
    for number in range(0, count, 30):
        query = many.sentences[number, 3]
        cosines = kept @ query
        exact = 0.3 * many.vectors @ query + 0.6 * cosines.max(axis=1) + 0.1 * cosines[:, 0]
        ranked = rank(index, "nothing in common", many, "late", 10, vector=query)
        assert ranked == pytest.approx({id: exact[int(id)] for id in ranked}, abs=1e-5)
        found += len({*map(int, ranked)} & {*np.argsort(-exact)[:10].tolist()})
        best += next(iter(ranked)) == f"{exact.argmax():03}"
    assert best >= 18  # of 20; no other document has a sentence near the query
    assert found > 0.5 * 200  # the others are near by chance, by document and sentence together


def test_only_documents_that_meet_a_condition_are_found_by_their_sentences(tmp_path: Path, encoder: Encoder) -> None:
    documents = [
        Document(name, "", None, text, {"year": year}) for year, (name, text) in enumerate(TEXTS.items(), start=2020)
    ]
    update_index(tmp_path, documents, encoder)
    index = open_snapshot(tmp_path)
    (query,) = encoder.encode_queries(["The cat"])
    assert {*index.nearest_sentences(query, 9, "year > 2021")} == {"chat", "кот"}
    assert index.nearest_sentences(query, 9, "year > 2030") == []
    (best,) = index.nearest_sentences(query, 1)
    assert index.nearest_sentences(query, 1, f"id = '{best}'") == [best]
    assert best not in index.nearest_sentences(query, 3, f"id <> '{best}'")


def test_sentence_vectors_are_cut_and_take_three_bits_a_number_and_a_byte(tmp_path: Path, encoder: Encoder) -> None:
    encoder.model.config.truncate_dims = [16, 8]
    try:
        update_index(tmp_path, documents_of(TEXTS), encoder)
    finally:
        encoder.model.config.truncate_dims = []
    index = open_snapshot(tmp_path)
    assert index.sentence_size == 8
    assert index.table.schema.field("sentence_signs").type.value_type == pa.list_(pa.uint8(), 1)
    assert index.table.schema.field("sentence_magnitudes").type.value_type == pa.list_(pa.uint8(), 2)
    assert index.table.schema.field("sentence_lengths").type.value_type == pa.list_(pa.uint8(), 1)
    (document,) = index.sentences(["cat"])
    _, (whole,) = encoder.encode_with_sentences([Document("cat", "", None, TEXTS["cat"])])
    np.testing.assert_allclose(
        document.vectors, as_kept(torch.from_numpy(cut(whole.vectors.numpy(), 8)), encoder), atol=1e-6
    )
    (hit,) = Index(tmp_path, encoder).search("The cat", 1)
    assert hit.score == pytest.approx(next(iter(rank(index, "The cat", encoder, "late").values())))


@pytest.mark.parametrize("sentences", [False, True])
def test_late_ranks_the_best_by_hybrid_again_with_their_best_sentence(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch, sentences: bool
) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder, sentences=sentences)
    index = open_snapshot(tmp_path)
    (query,) = encoder.encode_queries(["The cat"])
    _, documents = encoder.encode_with_sentences(documents_of(TEXTS))
    if sentences:
        documents = [document._replace(vectors=as_kept(document.vectors, encoder)) for document in documents]
    expected = {id: score_sentences(torch.from_numpy(query), document) for id, document in zip(TEXTS, documents)}
    cosines, hybrid = (rank(index, "The cat", encoder, ranking) for ranking in ("dense", "hybrid"))
    first = {id: float(document.vectors[0] @ torch.from_numpy(query)) for id, document in zip(TEXTS, documents)}
    sentences_add = {id: 0.6 * (expected[id].score - cosines[id]) + 0.1 * (first[id] - cosines[id]) for id in TEXTS}
    scores = {id: hybrid[id] + sentences_add[id] for id in TEXTS}
    best = sorted(TEXTS, key=lambda id: -scores[id])
    assert rank(index, "The cat", encoder, "late") == pytest.approx(scores, abs=1e-5)
    assert list(rank(index, "The cat", encoder, "late")) == best
    for hit in Index(tmp_path, encoder).search("The cat", 2, ranking="late"):
        assert hit.score == pytest.approx(scores[hit.document.id], abs=1e-5)
        explanation = expected[hit.document.id]
        assert hit.explanation.score == pytest.approx(explanation.score, abs=1e-5)
        for found, wanted in zip(hit.explanation.sentences, explanation.sentences, strict=True):
            assert tuple(found) == pytest.approx(tuple(wanted), abs=1e-5)
    if sentences:  # all of few documents have a sentence among the nearest
        return
    monkeypatch.setattr(hmde.index.ranking, "CANDIDATES", 2)
    hybrid = rank(index, "The cat", encoder, "hybrid", 2)
    scores = {id: score + sentences_add[id] for id, score in hybrid.items()}
    assert rank(index, "The cat", encoder, "late", 2) == pytest.approx(scores, abs=1e-5)
    assert list(rank(index, "The cat", encoder, "late", 2)) == sorted(scores, key=lambda id: -scores[id])


@pytest.mark.parametrize("ranking", get_args(Ranking))
def test_a_query_is_encoded_once_or_not_at_all(index_folder: Path, counting: CountingEncoder, ranking: Ranking) -> None:
    index = open_snapshot(index_folder)
    expected = rank(index, "Le chat", counting, ranking)
    assert counting.encoded == ["Le chat"] * (ranking != "bm25")
    *_, vector = counting.encode_queries(["The cat sat on the mat.", "Le chat"])
    counting.encoded.clear()
    assert rank(index, "Le chat", counting, ranking, vector=vector) == pytest.approx(expected, abs=1e-6)
    assert counting.encoded == []
    Index(index_folder, counting).search("Le chat", ranking=ranking)
    assert counting.encoded == ["Le chat"]


def bm25(question: list[str], documents: dict[str, list[str]]) -> dict[str, float]:
    """As Lucene computes it, with k1 = 1.2 and b = 0.75, over documents that have words."""
    mean = sum(map(len, documents.values())) / max(len(documents), 1)
    scores = {}
    for id, words in documents.items():
        counts = Counter(words)
        for term in set(question) & set(words):
            containing = sum(term in other for other in documents.values())
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            saturated = counts[term] * 2.2 / (counts[term] + 1.2 * (0.25 + 0.75 * len(words) / mean))
            scores[id] = scores.get(id, 0) + idf * saturated
    return scores


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.text("abc ", max_size=12), min_size=1, max_size=20), st.text("abcd ", max_size=8))
def test_bm25_is_lucenes(
    tmp_path_factory: pytest.TempPathFactory, encoder: Encoder, texts: list[str], question: str
) -> None:
    folder = tmp_path_factory.mktemp("index")
    update_index(folder, [Document(f"{place:02}", "", None, text) for place, text in enumerate(texts)], encoder)
    words = {f"{place:02}": text.split() for place, text in enumerate(texts) if text.split()}
    found = rank(open_snapshot(folder), question, encoder, "bm25")
    assert found == pytest.approx(bm25(question.split(), words), abs=1e-4)
    shutil.rmtree(folder)


def test_a_word_with_an_underscore_is_one_term(tmp_path: Path, encoder: Encoder) -> None:
    update_index(tmp_path, documents_of({"name": "sorted_list of cats", "words": "a sorted list of cats"}), encoder)
    index = open_snapshot(tmp_path)
    assert {*index.bm25(["sorted_list"], 5)} == {"name"}
    assert {*index.bm25(["sorted"], 5)} == {"words"}


def test_a_query_finds_the_stems_of_every_language(tmp_path: Path, encoder: Encoder) -> None:
    documents = [
        Document("houses", "", "en", "Two houses stood there."),
        Document("katze", "", "de", "Die Katze schlief."),
        Document("zh", "", "zh", "猫在垫子上睡觉。"),
        Document("plain", "", None, "Katzen running"),
    ]
    update_index(tmp_path, documents, encoder)
    index = open_snapshot(tmp_path)
    assert set(rank(index, "a house", encoder, "bm25")) == {"houses"}
    assert set(rank(index, "Katzen", encoder, "bm25")) == {"katze", "plain"}
    assert set(rank(index, "睡觉", encoder, "bm25")) == {"zh"}
    assert rank(index, "?!", encoder, "bm25") == {}
    assert (set(index.bm25(["running"], 5)), set(index.bm25(["run"], 5))) == ({"plain"}, set())
    assert set(rank(index, "Katzen", encoder, "hybrid", languages=["de"])) == {"katze"}
    assert set(rank(index, "Katzen", encoder, "dense", languages=["de", "zh"])) == {"katze", "zh"}
    with pytest.raises(UnknownLanguage, match="no documents in fr; their languages are: de, en, zh"):
        rank(index, "Katzen", encoder, languages=["fr"])


scores_by_id = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 30), max_size=6)


@given(
    scores_by_id,
    scores_by_id,
    st.lists(st.sampled_from(["de", "en", None]), min_size=6, max_size=6),
    st.fixed_dictionaries(dict.fromkeys(["de", "en", None], st.floats(0, 1))),
)
def test_bm25_is_scaled_to_the_range_of_the_cosines_and_to_the_coverage_of_each_language(
    scores: dict[str, float],
    cosines: dict[str, float],
    drawn: list[str | None],
    coverages: dict[str | None, float],
) -> None:
    cosines = dict.fromkeys(scores, 0.5) | cosines
    languages = dict(zip("abcdef", drawn))
    firsts = {languages[id]: id for id in sorted(scores, key=scores.__getitem__)}
    words = scaled_bm25(scores, cosines, languages, {id: coverages[language] for language, id in firsts.items()})
    assert words.keys() == cosines.keys()
    cosine_range = max(cosines.values(), default=0) - min(cosines.values(), default=0)
    for id, added in words.items():
        same_language = [score for other, score in scores.items() if languages[other] == languages[id]]
        lost = 1 - scores.get(id, 0) / max(same_language) if same_language else 0
        third = sorted([*same_language, 0, 0])[-3] / max(same_language) if same_language else 0
        coverage = coverages[languages[id]]
        weight = 0.3 * coverage + 1.5 * max(coverage - 0.6, 0) / 0.4 * (1 - third)
        assert added == pytest.approx(-weight * cosine_range * lost)


def test_words_count_as_far_as_the_best_document_of_a_language_holds_those_of_the_query(
    tmp_path: Path, encoder: Encoder
) -> None:
    texts = {
        "1": ("en", "The houses on the hill are old."),
        "2": ("en", "An old cat sleeps."),
        "3": ("de", "Das Haus Hill ist alt."),
        "4": ("de", "Eine alte Katze schlief."),
        "5": ("fr", "Un chat dort."),
    }
    update_index(tmp_path, [Document(id, "", language, text) for id, (language, text) in texts.items()], encoder)
    index = open_snapshot(tmp_path)
    question = "an old house, on a hill"  # no document holds "a"
    cosines = rank(index, question, encoder, "dense")
    scores = rank(index, question, encoder, "bm25")
    assert set(scores) == {"1", "2", "3"}
    cosine_range = max(cosines.values()) - min(cosines.values())
    english = 0.3 * 4 / 6 + 1.5 * (4 / 6 - 0.6) / 0.4  # the best holds most of the words, and there is no third
    lost = {"1": 0, "2": english * (1 - scores["2"] / scores["1"]), "3": 0, "4": 0.3 / 6, "5": 0}
    expected = {id: cosines[id] - cosine_range * lost[id] for id in texts}
    assert rank(index, question, encoder, "hybrid") == pytest.approx(expected, abs=1e-5)


def test_a_document_in_another_language_is_not_behind_because_it_shares_no_word_with_the_query(
    tmp_path: Path, encoder: Encoder
) -> None:
    many = NamedVectors(*encoder)
    many.vectors = np.zeros((4, encoder.model.config.hidden_size), np.float32)
    many.vectors[:, :2] = [[1, 0], [0.8, 0.6], [0.81, np.sqrt(1 - 0.81**2)], [0, 1]]
    documents = [Document(id, "", language, id) for id, language in (("1", "en"), ("2", "de"), ("3", "en"))]
    update_index(tmp_path, documents, many, sentences=False)
    index = open_snapshot(tmp_path)
    question = many.vectors[0]
    assert list(rank(index, "1", many, "bm25", vector=question)) == ["1"]
    cosines = rank(index, "1", many, "dense", vector=question)
    found = rank(index, "1", many, "hybrid", vector=question)
    assert list(found) == list(cosines) == ["2", "1", "3"]
    assert found == pytest.approx(cosines | {"3": cosines["3"] - 1.8 * 0.81}, abs=1e-5)


def test_hybrid_finds_by_bm25_what_is_not_near_and_ranks_it_by_its_cosine_too(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hmde.index.ranking, "CANDIDATES", 2)
    texts = TEXTS | {"rare": "Zzyzx. " + TEXTS["dog"]}
    update_index(tmp_path, documents_of(texts), encoder)
    index = open_snapshot(tmp_path)
    question = "Zzyzx chat"
    cosines = rank(index, question, encoder, "dense")
    scores = rank(index, question, encoder, "bm25")
    assert set(scores) == {"rare", "chat"}
    near = list(cosines)[:2]
    cosine_range = cosines[near[0]] - cosines[near[1]]
    lost = {id: 1 - scores.get(id, 0) / max(scores.values()) for id in {*near, *scores}}
    # No document has a language; the best by words holds one of the two words.
    expected = {id: cosines[id] - 0.3 * 0.5 * cosine_range * lost[id] for id in lost}
    assert "rare" not in near
    best = dict(sorted(expected.items(), key=lambda item: -item[1])[:2])
    assert rank(index, question, encoder, "hybrid", 2) == pytest.approx(best, abs=1e-5)
    assert rank(index, "!?", encoder, "hybrid", 2) == pytest.approx(rank(index, "!?", encoder, "dense", 2))


@pytest.mark.parametrize("ranking", ["bm25", "hybrid", "late"])
def test_the_one_page_that_holds_an_identifier_is_first_among_pages_that_are_alike(
    tmp_path: Path, encoder: Encoder, ranking: Ranking
) -> None:
    numbers = {page: [f"AK-{1000 + 97 * page + 7 * line}" for line in range(12)] for page in range(20)}
    pages = {str(page): "\n".join(f"The pump has part number {n}." for n in own) for page, own in numbers.items()}
    index = Index(tmp_path, encoder)
    index.add([Document(page, "Catalogue", "en", text) for page, text in pages.items()])
    found = [index.search(numbers[page][9], 1, ranking=ranking)[0].document.id for page in numbers]
    assert found == list(pages)


@pytest.mark.parametrize("question", ["猫", "ＣＡＴ", "sofa", "елка", "القط"])
def test_what_reads_alike_is_found_by_words(tmp_path: Path, encoder: Encoder, question: str) -> None:
    update_index(tmp_path, documents_of({"a": "黑猫 Cat So\u00adfa ёлка القِطّ", "b": "Dog."}), encoder)
    assert [*rank(open_snapshot(tmp_path), question, encoder, "bm25")] == ["a"]
