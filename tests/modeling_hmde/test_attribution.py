"""Attribution: the sentences' scores against sums written out, and their places against the text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer, late_score
from modeling_hmde.attribution_hmde import spans_of_sentences

TEXT = "The cat sat on the mat.\n  It was warm there!   Did the dog see it?"
SENTENCES = ["The cat sat on the mat.", "It was warm there!", "Did the dog see it?"]


@pytest.mark.parametrize("encoder", ["labse", "xlmr", "modernbert"])
def test_sentences_stand_where_the_offsets_say(
    encoder: str, request: pytest.FixtureRequest, make_model: Callable[..., HMDEForDocumentEmbedding]
) -> None:
    folder = request.getfixturevalue(encoder)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(folder), sentence_prompt="the", query_prompt="a")
    (document,) = make_model(folder).prepare_sentences([TEXT], tokenizer)
    assert [TEXT[begin:end] for begin, end in document.spans] == SENTENCES


def test_offsets_count_characters_of_the_text_as_given_also_where_it_has_surrogates(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    text = "  \ud800 The cat sat. \U0001f600 \n The dog."
    (document,) = model.prepare_sentences([text], tokenizer)
    assert [text[begin:end] for begin, end in document.spans] == ["The cat sat.", "\U0001f600", "The dog."]


@pytest.mark.parametrize("encoder", ["labse", "xlmr"])
def test_a_long_sentence_is_as_many_as_the_places_it_takes(
    encoder: str, request: pytest.FixtureRequest, make_model: Callable[..., HMDEForDocumentEmbedding]
) -> None:
    folder = request.getfixturevalue(encoder)
    tokenizer = HMDETokenizer.from_sentence_encoder(str(folder), max_sentence_length=5)
    (document,) = make_model(folder).prepare_sentences(["The cat sat on the mat"], tokenizer)
    assert document.spans == [(0, 11), (12, 22)]


def test_a_document_is_explained_by_the_cosines_of_its_sentences_best_first(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    query = model.encode_queries(["The cat"], tokenizer)[0]
    with torch.no_grad():
        states = model(**tokenizer([TEXT], return_tensors="pt")).last_hidden_state[0].numpy()
    cosines = {sentence: float(query @ state / np.linalg.norm(state)) for sentence, state in zip(SENTENCES, states)}
    (explanation,) = model.explain("The cat", [TEXT], tokenizer)
    found = {TEXT[begin:end]: score for begin, end, score in explanation.sentences}
    assert found == pytest.approx(cosines, abs=1e-6)
    assert [*found.values()] == sorted(found.values(), reverse=True)
    assert explanation.score == max(found.values())


def test_a_query_that_is_no_string_is_refused_before_documents_are_read(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    with pytest.raises(TypeError, match="query is list, not str; give one text"):
        model.explain(["The cat"], [7], tokenizer)  # type: ignore[arg-type, list-item]


def test_white_space_around_a_sentence_is_no_part_of_it() -> None:
    assert spans_of_sentences(" The cat. \n ", [0, 0, 0], [(0, 4), (4, 9), (9, 12)]) == [(1, 9)]


def test_the_best_sentence_weighs_three_fifths_of_a_late_score_and_the_first_a_tenth() -> None:
    alone = late_score(1.0, 0.0, 0.0), late_score(0.0, 1.0, 0.0), late_score(0.0, 0.0, 1.0)
    assert alone == pytest.approx((0.3, 0.6, 0.1))
    document, best, first = np.array([0.5, -0.5]), np.array([0.25, 1.0]), np.array([0.0, -1.0])
    np.testing.assert_allclose(late_score(document, best, first), [0.3, 0.35])


def test_sentences_of_a_passage_are_compared_as_read_by_themselves(
    labse: Path, tokenizer: HMDETokenizer, make_model: Callable
) -> None:
    model = make_model(labse, sentence_pooling="mean", max_sentence_length=40, passage_length=40)
    (explanation,) = model.explain("The cat", [TEXT], tokenizer)
    vectors = model.encode_queries(SENTENCES, tokenizer, return_tensors="pt")
    query = model.encode_queries(["The cat"], tokenizer, return_tensors="pt")[0]
    cosines = torch.nn.functional.cosine_similarity(vectors, query, dim=-1).tolist()
    found = {TEXT[begin:end]: score for begin, end, score in explanation.sentences}
    assert found == pytest.approx(dict(zip(SENTENCES, cosines)), abs=1e-5)


def test_a_document_is_read_once(
    labse: Path, tokenizer: HMDETokenizer, make_model: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(labse, sentence_pooling="mean", max_sentence_length=40, passage_length=40)
    encode, calls = type(model.hmde).encode_sentences, []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(options)
        return encode(*args, **options)

    monkeypatch.setattr(type(model.hmde), "encode_sentences", counted)
    model.prepare_sentences([TEXT], tokenizer)
    assert len(calls) == 1


def test_documents_keep_their_order_whatever_their_length_and_the_batches(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    together = model.prepare_sentences(documents, tokenizer)
    apart = model.prepare_sentences(documents, tokenizer, max_tokens_per_batch=1)
    for text, one, other in zip(documents, together, apart, strict=True):
        (alone,) = model.prepare_sentences([text], tokenizer)
        assert one.spans == other.spans == alone.spans
        for vectors in (one.vectors, other.vectors):
            torch.testing.assert_close(vectors, alone.vectors, atol=1e-5, rtol=1e-4)


def test_an_empty_document_has_one_sentence_without_text(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    (explanation,) = model.explain("The cat", [""], tokenizer)
    assert [(begin, end) for begin, end, _ in explanation.sentences] == [(0, 0)]
    assert model.explain("The cat", [], tokenizer) == []


def test_documents_and_their_sentences_come_from_one_pass(
    labse: Path, tokenizer: HMDETokenizer, make_model: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(labse, sentence_pooling="mean")
    texts = ["The dog.", TEXT, "The dog.", ""]
    alone = model.encode_documents(texts, tokenizer)
    calls = []
    read = type(model.hmde).encode_sentences
    monkeypatch.setattr(
        type(model.hmde), "encode_sentences", lambda *args, **named: calls.append(1) or read(*args, **named)
    )
    embeddings, sentences = model.encode_documents(texts, tokenizer, sentences=True)
    assert len(calls) == 1
    np.testing.assert_array_equal(embeddings, alone)
    assert [[texts[row][slice(*span)] for span in document.spans] for row, document in enumerate(sentences)] == [
        ["The dog."],
        SENTENCES,
        ["The dog."],
        [""],
    ]
    prepared = model.prepare_sentences(texts, tokenizer)
    for document, other in zip(sentences, prepared):
        torch.testing.assert_close(document.vectors, other.vectors)
        torch.testing.assert_close(document.vectors.norm(dim=-1), torch.ones(len(document.spans)))


def test_vectors_are_cut_before_they_are_normalised(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> None:
    whole = model.encode_documents([TEXT], tokenizer, normalize=False)
    cut, sentences = model.encode_documents([TEXT], tokenizer, truncate_dim=5, sentences=True)
    np.testing.assert_allclose(cut, whole[:, :5] / np.linalg.norm(whole[:, :5]), atol=1e-6)
    assert sentences[0].vectors.shape == (3, 5)
    queries = model.encode_queries(["The cat"], tokenizer, normalize=False)
    cut = model.encode_queries(["The cat"], tokenizer, truncate_dim=5)
    np.testing.assert_allclose(cut, queries[:, :5] / np.linalg.norm(queries[:, :5]), atol=1e-6)
    for size in (0, model.config.hidden_size + 1):
        with pytest.raises(ValueError, match="truncate_dim"):
            model.encode_documents([TEXT], tokenizer, truncate_dim=size)
    for value in (5.0, "5", True):
        with pytest.raises(TypeError, match=r"truncate_dim is .*; give a whole number"):
            model.encode_documents([TEXT], tokenizer, truncate_dim=value)
