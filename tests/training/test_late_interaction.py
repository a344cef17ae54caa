"""Late interaction against sums written out, and the sentences that serve as queries against the texts they are of."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.arithmetic import cosine
from training.data.batches import Batch, collate
from training.data.kinds import DOCUMENTS, QUERIES, SENTENCES, Kind
from training.encoder import TwoPathEncoder
from training.losses.batch import BatchVectors
from training.losses.late_interaction import LateInteraction, late_scores

TEMPERATURE = 0.05
SENTENCE_QUERIES = Kind("sentence_queries", "sentence_encoder")
COUNTS = {"anchor": [3, 1, 2], "positive": [2, 4, 1], "negative": [4, 1, 3]}  # sentences of each document
CONCEPTS = {
    "anchor": [0, 1, 2],
    "positive": [0, 1, 2],
    "negative": [7, 2, 9],
}  # the second hard negative: concept 2
SENTENCE_INDEX = [0, 3, 0, 1, 2, 0]  # two rounds over the three positives


def make_vectors() -> BatchVectors:
    torch.manual_seed(0)
    sentences = torch.zeros(9, 5, 8)
    for row, count in enumerate(count for counts in COUNTS.values() for count in counts):
        sentences[row, :count] = torch.randn(count, 8)
    embeddings = {
        DOCUMENTS: torch.randn(9, 8),
        SENTENCES: sentences,
        QUERIES: torch.randn(3, 8),
        SENTENCE_QUERIES: torch.randn(12, 8),  # two rounds of the anchors', then two of the positives'
    }
    concepts = {role: torch.tensor(numbers) for role, numbers in CONCEPTS.items()}
    return BatchVectors(embeddings, Batch({}, concepts, ["a", "b", "c"], torch.tensor(SENTENCE_INDEX)), TEMPERATURE)


def late_score(query: Tensor, vectors: BatchVectors, row: int) -> float:
    sentences = [sentence for sentence in vectors.embeddings[SENTENCES][row] if sentence.any()]
    best = max(cosine(query, sentence) for sentence in sentences)
    document, first = cosine(query, vectors.embeddings[DOCUMENTS][row]), cosine(query, sentences[0])
    return 0.3 * document + 0.6 * best + 0.1 * first


def document_loss(query: Tensor, triple: int, vectors: BatchVectors, hard_negatives: str) -> float:
    """Positives are rows 3 to 5 of the documents, hard negatives rows 6 to 8."""
    others = [3 + other for other in range(3) if other != triple]
    hard = {"own": [6 + triple], "all": [6, 7, 8], "none": []}[hard_negatives]
    others += [row for row in hard if CONCEPTS["negative"][row - 6] != CONCEPTS["anchor"][triple]]
    scores = {row: math.exp(late_score(query, vectors, row) / TEMPERATURE) for row in [3 + triple, *others]}
    return -math.log(scores[3 + triple] / sum(scores.values()))


@pytest.mark.parametrize("hard_negatives", ["own", "all", "none"])
def test_queries_and_sentences_seek_documents_by_document_and_best_sentence(hard_negatives: str) -> None:
    vectors = make_vectors()
    losses = LateInteraction(hard_negatives=hard_negatives)(vectors)  # type: ignore[arg-type]
    means = []
    for name in (QUERIES, SENTENCE_QUERIES):
        queries = vectors.embeddings[name]
        written_out = [document_loss(query, i % 3, vectors, hard_negatives) for i, query in enumerate(queries)]
        means.append(sum(written_out) / len(written_out))
    assert float(losses["late"]) == pytest.approx(sum(means) / 2, rel=1e-5)


def test_a_sentence_seeks_its_vector_among_those_of_its_document() -> None:
    vectors = make_vectors()
    loss = LateInteraction()(vectors)["sentence"]
    written_out = []
    for i, index in enumerate(SENTENCE_INDEX):
        query = vectors.embeddings[SENTENCE_QUERIES][6 + i]
        sentences = vectors.embeddings[SENTENCES][3 + i % 3][: COUNTS["positive"][i % 3]]
        exponentials = [math.exp(cosine(query, sentence) / TEMPERATURE) for sentence in sentences]
        written_out.append(-math.log(exponentials[index] / sum(exponentials)))
    assert float(loss) == pytest.approx(sum(written_out) / len(written_out), rel=1e-5)


def test_padding_among_sentences_changes_no_score_and_gets_no_gradient() -> None:
    vectors = make_vectors()
    documents, sentences = vectors.embeddings[DOCUMENTS], vectors.embeddings[SENTENCES].requires_grad_()
    queries = vectors.embeddings[QUERIES]
    wider = torch.cat([sentences, torch.zeros(9, 3, 8)], dim=1)
    scores = late_scores(queries, documents, sentences)
    torch.testing.assert_close(late_scores(queries, documents, wider), scores)
    scores.sum().backward()
    assert sentences.grad is not None
    assert sentences.grad.isfinite().all()
    assert not sentences.grad[~sentences.any(dim=-1)].any()


@pytest.fixture
def triples() -> list[dict]:
    texts = {
        "anchor": ["The cat sat. It was warm!", "A dog. A bird. A fish."],
        "positive": ["Die Katze. Sie saß da. Es war warm!", "Ein Hund."],
        "negative": ["The cow.", "The sun. The moon."],
    }
    return [
        {"concept_id": f"c{i}", "negative_id": f"n{i}", "anchor_language": "en", "positive_language": "de"}
        | {role: {"text": text[i], "language": "de" if role == "positive" else "en"} for role, text in texts.items()}
        | {"query": "warm", "seed": i}
        for i in range(2)
    ]


@pytest.mark.parametrize("path", ["sentence_encoder", "document_encoder", "both"])
def test_sentence_queries_are_the_sentences_that_their_index_names(
    path: str, triples: list[dict], tokenizer: HMDETokenizer
) -> None:
    batch = collate(triples, ["anchor", "positive", "negative"], tokenizer, path, sentence_queries=3)  # type: ignore[arg-type]
    paths = ["sentence_encoder", "document_encoder"] if path == "both" else [path]
    expected = [kind for kind in batch.rows if kind.text == "sentence_queries"]
    assert [kind.path for kind in expected] == paths
    assert batch.sentence_index is not None
    assert len(batch.sentence_index) == 6
    sentences = [["Die Katze.", "Sie saß da.", "Es war warm!"], ["Ein Hund."]]
    own = [sentences[i % 2][index] for i, index in enumerate(batch.sentence_index.tolist())]
    for kind in expected:
        read = tokenizer(own, as_queries=kind == SENTENCE_QUERIES, padding=True)["input_ids"]
        rows = [ids[: len(other)] for ids, other in zip(batch.rows[kind]["input_ids"][6:].tolist(), read)]
        assert rows == read


def test_both_scales_come_from_one_pass_and_are_trained_by_it(
    triples: list[dict], tokenizer: HMDETokenizer, model: HMDEForDocumentEmbedding
) -> None:
    roles = ["anchor", "positive", "negative"]
    batch = collate(triples, roles, tokenizer, sentence_queries=2)
    encoder = TwoPathEncoder(model, sentences=True).eval()
    embeddings = encoder(batch.rows)
    output = model(**batch.rows[DOCUMENTS])
    torch.testing.assert_close(embeddings[SENTENCES], output.last_hidden_state)
    losses = LateInteraction()(BatchVectors(embeddings, batch, TEMPERATURE))
    (losses["late"] + losses["sentence"]).backward()
    weights = dict(model.hmde.named_parameters())
    untrained = [name for name, weight in weights.items() if weight.grad is None]
    assert not untrained, untrained
