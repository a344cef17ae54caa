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
from training.losses.candidates import Candidates
from training.losses.distance_constraint import DistanceConstraint, distance_constraint, distance_constraint_losses
from training.losses.distillation import Distillation, distillation, distillation_losses
from training.losses.info_nce import InfoNCE, info_nce_losses
from training.losses.late_interaction import LateInteraction
from training.losses.queries import Queries, query_losses
from training.losses.queue import Queue, queue_losses

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
    queued = draw(4, 8), torch.tensor([1, 30, 31, 32])
    return BatchVectors(embeddings, batch, TEMPERATURE, draw(12, 8), queued, {"documents": draw(12, 8)})


def in_float32(vectors: BatchVectors) -> BatchVectors:
    """The same numbers."""
    assert vectors.key_documents is not None
    assert vectors.queued is not None
    embeddings, teacher = (
        {name: rows.float() for name, rows in by_name.items()} for by_name in (vectors.embeddings, vectors.teacher)
    )
    queued = vectors.queued[0].float(), vectors.queued[1]
    return BatchVectors(embeddings, vectors.batch, TEMPERATURE, vectors.key_documents.float(), queued, teacher)


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


def test_the_distance_constraint_takes_the_same_documents() -> None:
    vectors = make_vectors()
    anchors, positives, negatives, positive_negatives = vectors.embeddings["documents"].split(3)
    losses = distance_constraint_losses(vectors, DistanceConstraint(symmetric=True))
    concepts = {role: torch.tensor(numbers) for role, numbers in CONCEPTS.items()}
    own = Candidates(positives, negatives, concepts["anchor"], concepts["negative"])
    torch.testing.assert_close(losses["document"], distance_constraint(anchors, own).mean())
    reverse = Candidates(anchors, positive_negatives, concepts["anchor"], concepts["positive_negative"])
    torch.testing.assert_close(losses["reverse"], distance_constraint(positives, reverse).mean())


@pytest.mark.parametrize("loss", [info_nce_losses, distance_constraint_losses])
def test_without_symmetry_there_is_no_reverse_loss(loss) -> None:
    options = InfoNCE() if loss is info_nce_losses else DistanceConstraint()
    assert loss(make_vectors(), options).keys() == {"document"}


@pytest.mark.parametrize("hard_negatives", HARD_NEGATIVES)
def test_queries_of_both_paths_seek_the_positives(hard_negatives: str) -> None:
    vectors = make_vectors()
    loss = query_losses(vectors, Queries(hard_negatives=hard_negatives))["query"]  # type: ignore[arg-type]
    by_path = [
        contrast(vectors.embeddings[name], vectors.embeddings["documents"], "positive", "negative", hard_negatives)
        for name in ("queries", "queries_as_documents")
    ]
    assert float(loss) == pytest.approx(sum(by_path) / 2, rel=1e-5)


def test_anchors_seek_the_momentum_encoders_documents_beside_those_of_earlier_batches() -> None:
    vectors = make_vectors()
    assert vectors.key_documents is not None
    assert vectors.queued is not None
    _, positives, negatives, _ = vectors.key_documents.split(3)
    earlier = vectors.queued[0]
    losses = []
    for i, anchor in enumerate(vectors.embeddings["documents"][:3]):
        found = [positives[i], *(positives[j] for j in range(3) if j != i)]
        found += [negatives[i]] if i != 1 else []  # which is about the anchor's concept
        found += list(earlier[1:] if i == 1 else earlier)  # as is the first of those
        similar, *different = (math.exp(cosine(anchor, other) / TEMPERATURE) for other in found)
        losses.append(-math.log(similar / (similar + sum(different))))
    loss = queue_losses(vectors, Queue(size=4))["queue"]
    assert float(loss) == pytest.approx(sum(losses) / 3, rel=1e-5)


def test_without_a_momentum_encoder_the_queue_has_no_loss() -> None:
    vectors = make_vectors()
    vectors.key_documents = None
    assert queue_losses(vectors, Queue(size=4)) == {}


def all_losses(hard_negatives: str = "own") -> Losses:
    hard = {"hard_negatives": hard_negatives}
    return Losses(
        InfoNCE(symmetric=True, **hard),  # type: ignore[arg-type]
        DistanceConstraint(symmetric=True, **hard),  # type: ignore[arg-type]
        Queries(**hard),  # type: ignore[arg-type]
        LateInteraction(**hard),  # type: ignore[arg-type]
        Queue(size=4, **hard),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("hard_negatives", HARD_NEGATIVES)
def test_losses_of_half_precision_are_computed_in_float32(hard_negatives: str) -> None:
    vectors = make_vectors(torch.bfloat16)
    found = weighted_losses(vectors, all_losses(hard_negatives))
    expected = weighted_losses(in_float32(vectors), all_losses(hard_negatives))
    assert len(expected) == 6
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
    assert vectors.key_documents is not None
    assert vectors.queued is not None
    by_hand = BatchVectors(
        {name: rows[..., :5] for name, rows in vectors.embeddings.items()},
        vectors.batch,
        TEMPERATURE,
        vectors.key_documents[:, :5],
        (vectors.queued[0][:, :5], vectors.queued[1]),
    )
    whole, cut = weighted_losses(vectors, all_losses()), weighted_losses(by_hand, all_losses())
    for name, loss in weighted_losses(vectors, all_losses(), sizes=[5]).items():
        torch.testing.assert_close(loss, (whole[name] + cut[name]) / 2)
    assert not torch.equal(whole["queue_loss"], cut["queue_loss"])
    torch.testing.assert_close(vectors.cut(5).teacher["documents"], vectors.teacher["documents"][:, :5])
    vectors.key_documents = vectors.queued = None
    assert vectors.cut(5).key_documents is None
    assert vectors.cut(5).queued is None


def test_vectors_that_do_not_differ_give_losses_that_are_numbers() -> None:
    """As those of an untrained encoder, or of a document that stands in a corpus many times."""
    same = torch.eye(8)[:1].expand(4, 8)
    found = Candidates(same, same, torch.arange(4), torch.arange(4, 8))
    # No distance, and every negative is nearer than the margin of .5 by all of it.
    torch.testing.assert_close(distance_constraint(same, found), torch.full((4,), 0.5))
    assert float(distillation(same, same)) == 0


def test_a_kind_of_which_the_teacher_has_one_vector_counts_in_no_distillation_loss_and_is_still_reached() -> None:
    """As the query of a batch of one triple, and queries that are all the same, whose mean is not exact."""
    student, documents = torch.randn(2, 7, 8, generator=torch.Generator().manual_seed(0))
    for same in (documents[:1], documents[:1].expand(7, 8)):
        embeddings = {"documents": student.clone(), "queries": student[: len(same)].clone().requires_grad_()}
        vectors = make_vectors()
        vectors.embeddings, vectors.teacher = embeddings, {"documents": documents, "queries": same}
        loss = distillation_losses(vectors, Distillation(teacher=""))["distillation"]
        torch.testing.assert_close(loss, distillation(student, documents))
        loss.backward()
        assert embeddings["queries"].grad is not None
        assert not embeddings["queries"].grad.any()
    vectors.teacher = {"documents": same, "queries": same}
    assert float(distillation_losses(vectors, Distillation(teacher=""))["distillation"]) == 0


@pytest.mark.parametrize("name", list(LOSSES))
def test_what_a_loss_reads_is_asked_for_and_it_counts_once(name: str) -> None:
    options = {
        "info_nce": InfoNCE(),
        "distance_constraint": DistanceConstraint(),
        "queries": Queries(),
        "late_interaction": LateInteraction(),
        "queue": Queue(size=1),
        "distillation": Distillation(teacher=""),
    }
    losses = Losses(**{name: options[name]})  # type: ignore[arg-type]
    assert losses.read_queries == (name in ("queries", "late_interaction", "distillation"))
    assert losses.read_sentences == (name in ("late_interaction", "distillation"))
    assert not losses.symmetric
    assert options[name].weight == 1.0  # type: ignore[attr-defined]  # each counts once in the sum
    if name in ("info_nce", "distance_constraint"):
        options[name].symmetric = True  # type: ignore[attr-defined]
        assert losses.symmetric
