"""The losses of a batch of triples against sums written out over its documents, role by role (paper, equation 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.arithmetic import cosine
from training.data.batches import Batch
from training.data.kinds import DOCUMENTS, QUERIES, Kind
from training.losses import Loss, Needs, check_losses, weighted_losses
from training.losses.batch import BatchVectors
from training.losses.candidates import Candidates
from training.losses.info_nce import InfoNCE, info_nce
from training.losses.queries import Queries

TEMPERATURE = 0.2
ROLES = ("anchor", "positive", "negative", "positive_negative")
# The first and the third triple are of one concept; the hard negatives of the last two anchors are of their own.
CONCEPTS = {
    "anchor": [0, 1, 0],
    "positive": [0, 1, 0],
    "negative": [7, 1, 0],
    "positive_negative": [2, 9, 0],
}
QUERIES_AS_DOCUMENTS = Kind("queries", "document_encoder")
HARD_NEGATIVES = ["own", "all", "none"]


def make_vectors(dtype: torch.dtype = torch.float32) -> BatchVectors:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    embeddings = {DOCUMENTS: draw(12, 8), QUERIES: draw(3, 8), QUERIES_AS_DOCUMENTS: draw(3, 8)}
    concepts = {role: torch.tensor(CONCEPTS[role]) for role in ROLES}
    return BatchVectors(embeddings, Batch({}, concepts, ["a", "b", "c"]), TEMPERATURE)


def in_float32(vectors: BatchVectors) -> BatchVectors:
    """The same numbers."""
    embeddings = {kind: rows.float() for kind, rows in vectors.embeddings.items()}
    return BatchVectors(embeddings, vectors.batch, TEMPERATURE)


def contrast(anchors: Sequence[Tensor], documents: Tensor, positive: str, hard: str, hard_negatives: str) -> float:
    """The mean of equation 1 over documents (12, hidden); never against a document of one's own concept."""
    by_role = dict(zip(ROLES, documents.split(3)))
    losses = []
    for i, anchor in enumerate(anchors):
        hard_ones = {"own": [i], "all": [0, 1, 2], "none": []}[hard_negatives]
        others = [(positive, j) for j in range(3) if j != i] + [(hard, j) for j in hard_ones]
        negatives = [by_role[role][j] for role, j in others if CONCEPTS[role][j] != CONCEPTS["anchor"][i]]
        similar, *different = (
            math.exp(cosine(anchor, other) / TEMPERATURE) for other in (by_role[positive][i], *negatives)
        )
        losses.append(-math.log(similar / (similar + sum(different))))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("hard_negatives", HARD_NEGATIVES)
def test_anchors_seek_positives_and_positives_seek_anchors_each_beside_its_own_hard_negatives(
    hard_negatives: str,
) -> None:
    vectors = make_vectors()
    documents = vectors.embeddings[DOCUMENTS]
    anchors, positives, *_ = documents.split(3)
    losses = InfoNCE(hard_negatives=hard_negatives, symmetric=True)(vectors)  # type: ignore[arg-type]
    assert losses.keys() == {"document", "reverse"}
    expected = contrast(anchors, documents, "positive", "negative", hard_negatives)
    assert float(losses["document"]) == pytest.approx(expected, rel=1e-5)
    expected = contrast(positives, documents, "anchor", "positive_negative", hard_negatives)
    assert float(losses["reverse"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("hard_negatives", ["own", "none"])
def test_documents_of_other_processes_are_negatives_but_for_those_of_the_anchors_concept(hard_negatives: str) -> None:
    anchors, positives, negatives = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    others = torch.randn(3, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([1, 20, 21])
    concepts, negative_concepts = torch.arange(5), torch.arange(5, 10)
    candidates = Candidates(positives, negatives, concepts, negative_concepts, hard_negatives, others)  # type: ignore[arg-type]
    losses = info_nce(anchors, candidates, TEMPERATURE)
    assert losses.shape == (5,)
    for i in (0, 1):
        documents = [*positives, *([negatives[i]] if hard_negatives == "own" else []), *others[0][i:]]
        exponentials = [math.exp(cosine(anchors[i], document) / TEMPERATURE) for document in documents]
        assert float(losses[i]) == pytest.approx(-math.log(exponentials[i] / sum(exponentials)), rel=1e-5)


@pytest.mark.parametrize("hard_negatives", HARD_NEGATIVES)
def test_queries_of_both_paths_seek_the_positives(hard_negatives: str) -> None:
    vectors = make_vectors()
    loss = Queries(hard_negatives=hard_negatives)(vectors)["query"]  # type: ignore[arg-type]
    by_path = [
        contrast(vectors.embeddings[name], vectors.embeddings[DOCUMENTS], "positive", "negative", hard_negatives)
        for name in (QUERIES, QUERIES_AS_DOCUMENTS)
    ]
    assert float(loss) == pytest.approx(sum(by_path) / 2, rel=1e-5)


def all_losses(hard_negatives: Any = "own") -> list[Loss]:
    return [InfoNCE(symmetric=True, hard_negatives=hard_negatives), Queries(hard_negatives=hard_negatives)]


@pytest.mark.parametrize("hard_negatives", HARD_NEGATIVES)
def test_losses_of_half_precision_are_computed_in_float32(hard_negatives: str) -> None:
    vectors = make_vectors(torch.bfloat16)
    found = weighted_losses(vectors, all_losses(hard_negatives))
    expected = weighted_losses(in_float32(vectors), all_losses(hard_negatives))
    assert len(expected) == 3
    for name, loss in expected.items():
        assert found[name].dtype == torch.float32, name
        torch.testing.assert_close(found[name], loss, rtol=0, atol=0, msg=name)


def test_a_weight_multiplies_its_losses_and_what_is_left_out_has_none() -> None:
    vectors = make_vectors()
    once = weighted_losses(vectors, [InfoNCE(), Queries()])
    assert once.keys() == {"document_loss", "query_loss"}
    twice = weighted_losses(vectors, [InfoNCE(weight=2.0), Queries(weight=0.25)])
    torch.testing.assert_close(twice["document_loss"], 2 * once["document_loss"])
    torch.testing.assert_close(twice["query_loss"], once["query_loss"] / 4)


def test_cut_vectors_are_compared_with_what_is_cut_as_they_are() -> None:
    vectors = make_vectors()
    shorter = {kind: rows[..., :5] for kind, rows in vectors.embeddings.items()}
    by_hand = BatchVectors(shorter, vectors.batch, TEMPERATURE)
    whole, cut = weighted_losses(vectors, all_losses()), weighted_losses(by_hand, all_losses())
    for name, loss in weighted_losses(vectors, all_losses(), sizes=[5]).items():
        torch.testing.assert_close(loss, (whole[name] + cut[name]) / 2)
    assert not torch.equal(whole["document_loss"], cut["document_loss"])


def test_a_loss_says_what_it_needs_and_counts_once() -> None:
    needs: list[tuple[Loss, Needs]] = [
        (InfoNCE(), Needs()),
        (InfoNCE(symmetric=True), Needs(symmetric=True)),
        (Queries(), Needs(queries=True)),
    ]
    for loss, expected in needs:
        assert (loss.needs, loss.weight) == (expected, 1.0)
        assert check_losses([loss]) == expected
    assert check_losses([loss for loss, _ in needs]) == Needs(symmetric=True, queries=True)
    with pytest.raises(ValueError, match="losses has none, so that nothing is learned; give one"):
        check_losses([])
