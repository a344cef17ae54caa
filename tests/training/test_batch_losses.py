"""The losses of a batch of triples against sums written out over its documents, role by role."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from training.data.batches import Batch
from training.losses import LOSSES, Losses, weighted_losses
from training.losses.batch import BatchVectors
from training.losses.distillation import Distillation, distillation
from training.losses.info_nce import InfoNCE, info_nce_losses
from training.losses.late_interaction import LateInteraction
from training.losses.queries import Queries, query_losses

TEMPERATURE = 0.2
ROLES = ("anchor", "positive", "negative", "positive_negative")
# The hard negative of the second anchor is about its own concept, that of the third about the first one.
CONCEPTS = {
    "anchor": [0, 1, 2],
    "positive": [0, 1, 2],
    "negative": [7, 1, 0],
    "positive_negative": [2, 9, 8],
}
HARD_NEGATIVES = ["own", "all", "none"]


def make_vectors(dtype: torch.dtype = torch.float32) -> BatchVectors:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    sentences = draw(12, 3, 8)
    sentences[2, 1:] = 0  # a document of one sentence
    embeddings = {
        "documents": draw(12, 8),
        "queries": draw(3, 8),
        "queries_as_documents": draw(3, 8),
        "sentences": sentences,
        "sentence_queries": draw(12, 8),
        "sentence_queries_as_documents": draw(12, 8),
    }
    concepts = {role: torch.tensor(CONCEPTS[role]) for role in ROLES}
    batch = Batch({}, concepts, ["a", "b", "c"], torch.tensor([0, 2, 1, 1, 0, 2]))
    return BatchVectors(embeddings, batch, TEMPERATURE, {"documents": draw(12, 8)})


def in_float32(vectors: BatchVectors) -> BatchVectors:
    """The same numbers."""
    embeddings = {name: rows.float() for name, rows in vectors.embeddings.items()}
    return BatchVectors(embeddings, vectors.batch, TEMPERATURE)


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


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
    documents = vectors.embeddings["documents"]
    anchors, positives, *_ = documents.split(3)
    losses = info_nce_losses(vectors, InfoNCE(hard_negatives=hard_negatives, symmetric=True))  # type: ignore[arg-type]
    assert losses.keys() == {"document", "reverse"}
    expected = contrast(anchors, documents, "positive", "negative", hard_negatives)
    assert float(losses["document"]) == pytest.approx(expected, rel=1e-5)
    expected = contrast(positives, documents, "anchor", "positive_negative", hard_negatives)
    assert float(losses["reverse"]) == pytest.approx(expected, rel=1e-5)


def test_without_symmetry_there_is_no_reverse_loss() -> None:
    assert info_nce_losses(make_vectors(), InfoNCE()).keys() == {"document"}


@pytest.mark.parametrize("hard_negatives", HARD_NEGATIVES)
def test_queries_of_both_paths_seek_the_positives(hard_negatives: str) -> None:
    vectors = make_vectors()
    loss = query_losses(vectors, Queries(hard_negatives=hard_negatives))["query"]  # type: ignore[arg-type]
    by_path = [
        contrast(vectors.embeddings[name], vectors.embeddings["documents"], "positive", "negative", hard_negatives)
        for name in ("queries", "queries_as_documents")
    ]
    assert float(loss) == pytest.approx(sum(by_path) / 2, rel=1e-5)


def all_losses(hard_negatives: str = "own") -> Losses:
    hard = {"hard_negatives": hard_negatives}
    return Losses(
        InfoNCE(symmetric=True, **hard),  # type: ignore[arg-type]
        Queries(**hard),  # type: ignore[arg-type]
        LateInteraction(**hard),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("hard_negatives", HARD_NEGATIVES)
def test_losses_of_half_precision_are_computed_in_float32(hard_negatives: str) -> None:
    vectors = make_vectors(torch.bfloat16)
    found = weighted_losses(vectors, all_losses(hard_negatives))
    expected = weighted_losses(in_float32(vectors), all_losses(hard_negatives))
    assert len(expected) == 5
    for name, loss in expected.items():
        assert found[name].dtype == torch.float32, name
        torch.testing.assert_close(found[name], loss, rtol=0, atol=0, msg=name)


def test_a_weight_multiplies_its_losses_and_what_is_left_out_has_none() -> None:
    vectors = make_vectors()
    once = weighted_losses(vectors, Losses(info_nce=InfoNCE(), queries=Queries()))
    assert once.keys() == {"document_loss", "query_loss"}
    twice = weighted_losses(vectors, Losses(info_nce=InfoNCE(weight=2.0), queries=Queries(weight=0.25)))
    torch.testing.assert_close(twice["document_loss"], 2 * once["document_loss"])
    torch.testing.assert_close(twice["query_loss"], once["query_loss"] / 4)


def test_cut_vectors_are_compared_with_what_is_cut_as_they_are() -> None:
    vectors = make_vectors()
    by_hand = BatchVectors(
        {name: rows[..., :5] for name, rows in vectors.embeddings.items()}, vectors.batch, TEMPERATURE
    )
    whole, cut = weighted_losses(vectors, all_losses()), weighted_losses(by_hand, all_losses())
    for name, loss in weighted_losses(vectors, all_losses(), sizes=[5]).items():
        torch.testing.assert_close(loss, (whole[name] + cut[name]) / 2)
    torch.testing.assert_close(vectors.cut(5).teacher["documents"], vectors.teacher["documents"][:, :5])


def test_a_teacher_whose_vectors_do_not_differ_gives_a_loss_that_is_a_number() -> None:
    same = torch.eye(8)[:1].expand(4, 8)
    assert float(distillation(same, same)) == 0


@pytest.mark.parametrize("name", list(LOSSES))
def test_what_a_loss_reads_is_asked_for(name: str) -> None:
    options = {
        "info_nce": InfoNCE(),
        "queries": Queries(),
        "late_interaction": LateInteraction(),
        "distillation": Distillation(teacher=""),
    }
    losses = Losses(**{name: options[name]})  # type: ignore[arg-type]
    assert losses.read_queries == (name in ("queries", "late_interaction", "distillation"))
    assert losses.read_sentences == (name in ("late_interaction", "distillation"))
    assert not losses.symmetric
    if name == "info_nce":
        options[name].symmetric = True  # type: ignore[attr-defined]
        assert losses.symmetric
