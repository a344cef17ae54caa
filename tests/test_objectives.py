"""InfoNCE against equation 1 written out."""

import math

import pytest
import torch
from torch import Tensor

from training.objectives import info_nce

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


def test_the_sum_over_anchors_is_equation_1(triples):
    losses = info_nce(
        *triples, concepts=numbered(0, 1, 2, 3, 4), negative_concepts=numbered(5, 6, 7, 8, 9), temperature=TEMPERATURE
    )
    assert losses.shape == (5,)
    assert float(losses.sum()) == pytest.approx(equation_1(*triples), rel=1e-9)


def test_all_hard_negatives_enter_every_denominator(triples):
    anchors, positives, negatives = triples
    losses = info_nce(
        *triples,
        concepts=numbered(0, 1, 2, 3, 4),
        negative_concepts=numbered(5, 6, 7, 8, 9),
        temperature=TEMPERATURE,
        hard_negatives="all",
    )
    candidates = [*positives, *negatives]
    exponentials = [math.exp(cosine(anchors[3], other) / TEMPERATURE) for other in candidates]
    assert float(losses[3]) == pytest.approx(-math.log(exponentials[3] / sum(exponentials)), rel=1e-9)


def test_without_hard_negatives_only_the_positives_count(triples):
    anchors, positives, _ = triples
    losses = info_nce(
        *triples,
        concepts=numbered(0, 1, 2, 3, 4),
        negative_concepts=numbered(5, 6, 7, 8, 9),
        temperature=TEMPERATURE,
        hard_negatives="none",
    )
    exponentials = [math.exp(cosine(anchors[0], other) / TEMPERATURE) for other in positives]
    assert float(losses[0]) == pytest.approx(-math.log(exponentials[0] / sum(exponentials)), rel=1e-9)


@pytest.mark.parametrize("hard_negatives", ["own", "all"])
def test_a_document_of_the_anchors_concept_is_never_its_negative(triples, hard_negatives):
    """Rows 0 and 1 are of one concept, which is also the concept of row 2's hard negative."""
    anchors, positives, negatives = triples
    options = {
        "concepts": numbered(0, 0, 2, 3, 4),
        "negative_concepts": numbered(5, 6, 0, 8, 9),
        "temperature": TEMPERATURE,
        "hard_negatives": hard_negatives,
    }
    before = info_nce(anchors, positives, negatives, **options)
    positives, negatives = positives.clone(), negatives.clone()
    positives[1] += 10 * anchors[0] + 100 * anchors[3]  # row 0 must not notice, row 3 must
    negatives[2] += 10 * anchors[0]
    after = info_nce(anchors, positives, negatives, **options)
    assert float(after[0]) == pytest.approx(float(before[0]), rel=1e-9)
    assert float(after[3]) > float(before[3]) + 0.1


def test_the_lengths_of_vectors_do_not_matter(triples):
    options = {"concepts": numbered(0, 1, 2, 3, 4), "negative_concepts": numbered(5, 6, 7, 8, 9), "temperature": 0.1}
    scaled = (3 * triples[0], 0.2 * triples[1], 7 * triples[2])
    torch.testing.assert_close(info_nce(*scaled, **options), info_nce(*triples, **options))


@pytest.mark.parametrize("hard_negatives", ["own", "none"])
def test_negatives_from_beyond_the_batch_enter_every_denominator_but_for_those_of_the_anchors_concept(
    triples, hard_negatives
):
    anchors, positives, negatives = triples
    torch.manual_seed(1)
    others = torch.randn(3, 8, dtype=torch.float64)
    losses = info_nce(
        *triples,
        concepts=numbered(0, 1, 2, 3, 4),
        negative_concepts=numbered(5, 6, 7, 8, 9),
        temperature=TEMPERATURE,
        hard_negatives=hard_negatives,
        others=others,
        other_concepts=numbered(1, 20, 21),
    )
    for anchor in (0, 1):
        candidates = [*positives, *([negatives[anchor]] if hard_negatives == "own" else []), *others[anchor:]]
        exponentials = [math.exp(cosine(anchors[anchor], other) / TEMPERATURE) for other in candidates]
        expected = -math.log(exponentials[anchor] / sum(exponentials))
        assert float(losses[anchor]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("hard_negatives", ["own", "all"])
def test_mixed_documents_that_share_one_concept_are_no_negatives(triples, hard_negatives):
    """Row 0's positive and row 1's share concept 1; row 0's hard negative is mixed with one of concept 0."""
    anchors, positives, negatives = triples
    options = {
        "concepts": torch.tensor([[0, 1], [1, 2], [3, 4], [5, 6], [7, 8]]),
        "negative_concepts": torch.tensor([[10, 0], [11, 12], [13, 14], [15, 16], [17, 18]]),
        "temperature": TEMPERATURE,
        "hard_negatives": hard_negatives,
    }
    before = info_nce(anchors, positives, negatives, **options)
    positives, negatives = positives.clone(), negatives.clone()
    positives[1] += 10 * anchors[0]
    negatives[0] += 10 * anchors[0]
    after = info_nce(anchors, positives, negatives, **options)
    assert float(after[0]) == pytest.approx(float(before[0]), rel=1e-9)


def test_a_learned_temperature_has_a_finite_gradient_where_negatives_are_masked(triples):
    temperature = torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
    losses = info_nce(
        *triples, concepts=numbered(0, 0, 2, 3, 4), negative_concepts=numbered(5, 6, 7, 8, 9), temperature=temperature
    )
    losses.sum().backward()
    assert temperature.grad.isfinite()
