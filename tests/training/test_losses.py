"""InfoNCE against its equation written out."""

import math

import pytest
import torch
from torch import Tensor

from training.losses.candidates import Candidates
from training.losses.info_nce import info_nce

TEMPERATURE = 0.05


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


def equation_1(anchors: Tensor, positives: Tensor, negatives: Tensor) -> float:
    loss = 0.0
    for i in range(len(anchors)):
        similar = cosine(anchors[i], positives[i]) / TEMPERATURE
        denominator = math.exp(cosine(anchors[i], negatives[i]) / TEMPERATURE)
        for j in range(len(anchors)):
            denominator += math.exp(cosine(anchors[i], positives[j]) / TEMPERATURE)
        loss -= similar - math.log(denominator)
    return loss


@pytest.fixture
def triples() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    anchors, positives, negatives = torch.randn(3, 5, 8, dtype=torch.float64)
    return anchors, anchors + positives, anchors + negatives


def numbered(*concepts: int) -> Tensor:
    return torch.tensor(concepts)


def candidates(positives: Tensor, negatives: Tensor, **changes: object) -> Candidates:
    """Each anchor and each hard negative of a concept of its own, unless the changes say otherwise."""
    numbers = {"concepts": numbered(0, 1, 2, 3, 4), "negative_concepts": numbered(5, 6, 7, 8, 9)}
    return Candidates(positives, negatives, **(numbers | changes))


def test_the_sum_over_anchors_is_equation_1(triples):
    losses = info_nce(triples[0], candidates(*triples[1:]), TEMPERATURE)
    assert losses.shape == (5,)
    assert float(losses.sum()) == pytest.approx(equation_1(*triples), rel=1e-9)


def test_all_hard_negatives_enter_every_denominator(triples):
    anchors, positives, negatives = triples
    losses = info_nce(triples[0], candidates(*triples[1:], hard_negatives="all"), TEMPERATURE)
    documents = [*positives, *negatives]
    exponentials = [math.exp(cosine(anchors[3], other) / TEMPERATURE) for other in documents]
    assert float(losses[3]) == pytest.approx(-math.log(exponentials[3] / sum(exponentials)), rel=1e-9)


def test_without_hard_negatives_only_the_positives_count(triples):
    anchors, positives, _ = triples
    losses = info_nce(triples[0], candidates(*triples[1:], hard_negatives="none"), TEMPERATURE)
    exponentials = [math.exp(cosine(anchors[0], other) / TEMPERATURE) for other in positives]
    assert float(losses[0]) == pytest.approx(-math.log(exponentials[0] / sum(exponentials)), rel=1e-9)


@pytest.mark.parametrize("hard_negatives", ["own", "all"])
def test_a_document_of_the_anchors_concept_is_never_its_negative(triples, hard_negatives):
    """Rows 0 and 1 are of one concept, which is also the concept of row 2's hard negative."""
    anchors, positives, negatives = triples
    options = {
        "concepts": numbered(0, 0, 2, 3, 4),
        "negative_concepts": numbered(5, 6, 0, 8, 9),
        "hard_negatives": hard_negatives,
    }
    before = info_nce(anchors, candidates(positives, negatives, **options), TEMPERATURE)
    positives, negatives = positives.clone(), negatives.clone()
    positives[1] += 10 * anchors[0] + 100 * anchors[3]  # row 0 must not notice, row 3 must
    negatives[2] += 10 * anchors[0]
    after = info_nce(anchors, candidates(positives, negatives, **options), TEMPERATURE)
    assert float(after[0]) == pytest.approx(float(before[0]), rel=1e-9)
    assert float(after[3]) > float(before[3]) + 0.1


def test_the_lengths_of_vectors_do_not_matter(triples):
    scaled = info_nce(3 * triples[0], candidates(0.2 * triples[1], 7 * triples[2]), 0.1)
    torch.testing.assert_close(scaled, info_nce(triples[0], candidates(*triples[1:]), 0.1))


@pytest.mark.parametrize("hard_negatives", ["own", "none"])
def test_negatives_from_beyond_the_batch_enter_every_denominator_but_for_those_of_the_anchors_concept(
    triples, hard_negatives
):
    anchors, positives, negatives = triples
    torch.manual_seed(1)
    others = torch.randn(3, 8, dtype=torch.float64)
    beyond = (others, numbered(1, 20, 21))
    found = candidates(positives, negatives, hard_negatives=hard_negatives, others=beyond)
    losses = info_nce(anchors, found, TEMPERATURE)
    for anchor in (0, 1):
        documents = [*positives, *([negatives[anchor]] if hard_negatives == "own" else []), *others[anchor:]]
        exponentials = [math.exp(cosine(anchors[anchor], other) / TEMPERATURE) for other in documents]
        expected = -math.log(exponentials[anchor] / sum(exponentials))
        assert float(losses[anchor]) == pytest.approx(expected, rel=1e-9)
