"""Each objective of sentence encoders against its equation, written out in loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from training.data.sentence_batches import SentenceBatch, word_targets
from training.loop.momentum import MomentumQueue
from training.losses.sentences import (
    alignment,
    cross_lingual_contrast,
    distillation,
    masked_words,
    sentence_losses,
    similarity_alignment,
    words_from_vectors,
)
from training.recipes import PretrainSentencesRecipe

PAIRS, HIDDEN, VOCABULARY = 4, 6, 9


def vectors(seed: int, rows: int = PAIRS, columns: int = HIDDEN) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inner(one: Tensor, other: Tensor) -> float:
    return sum(float(a) * float(b) for a, b in zip(one, other))


def softmax(scores: list[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def test_a_masked_word_costs_the_negative_logarithm_of_its_probability():
    logits, labels = vectors(1, 3, VOCABULARY), torch.tensor([2, 0, 8])
    expected = [-math.log(softmax(row.tolist())[label]) for row, label in zip(logits, labels)]
    torch.testing.assert_close(masked_words(logits, labels).tolist(), expected, rtol=1e-5, atol=0)


def test_cross_lingual_contrast_is_equation_6_of_infoxlm_over_a_temperature():
    queries, keys, queue = vectors(1), vectors(2), vectors(3, rows=5)
    concepts, of_queue = torch.tensor([10, 11, 12, 13]), torch.tensor([20, 11, 21, 22, 23])
    found = cross_lingual_contrast(queries, keys, queue, concepts=concepts, other_concepts=of_queue, temperature=0.25)
    for row in range(PAIRS):
        scores = [inner(queries[row], key) / 0.25 for key in keys]
        scores += [inner(queries[row], key) / 0.25 for key, concept in zip(queue, of_queue) if concept != concepts[row]]
        assert found[row].item() == pytest.approx(-math.log(softmax(scores)[row]))


def test_no_gradient_passes_keys_or_the_queue():
    queries, keys, queue = (vectors(seed).requires_grad_() for seed in range(3))
    concepts = torch.arange(2 * PAIRS)
    cross_lingual_contrast(
        queries, keys, queue, concepts=concepts[:PAIRS], other_concepts=concepts[PAIRS:], temperature=1.0
    ).sum().backward()
    assert queries.grad is not None
    assert keys.grad is None
    assert queue.grad is None


def test_the_momentum_encoder_keeps_its_share_of_every_weight_and_takes_the_rest_of_the_trained_one():
    trained = nn.Linear(3, 2)
    queue = MomentumQueue(trained, size=4, hidden_size=2, momentum=0.75, device=torch.device("cpu"))
    before = {name: weight.clone() for name, weight in queue.encoder.named_parameters()}
    with torch.no_grad():
        for weight in trained.parameters():
            weight.normal_()
    queue.step(trained)
    for name, weight in queue.encoder.named_parameters():
        torch.testing.assert_close(weight, 0.75 * before[name] + 0.25 * dict(trained.named_parameters())[name])
        assert not weight.requires_grad


def test_alignment_is_equation_5_of_the_lightweight_encoder():
    first, second, others = vectors(1), vectors(2), (vectors(3), vectors(4))
    found = alignment(first, second, *others)
    for row in range(PAIRS):
        there = [inner(first[row], candidate) for candidate in torch.cat([second, others[1]])]
        back = [inner(second[row], candidate) for candidate in torch.cat([first, others[0]])]
        expected = -math.log(softmax(there)[row]) - math.log(softmax(back)[row])
        assert found[row].item() == pytest.approx(expected)


def test_similarity_is_equation_6_of_the_lightweight_encoder():
    first, second, others = 0.4 * vectors(1), 0.4 * vectors(2), (vectors(3), vectors(4))
    found = similarity_alignment(first, second, *others)
    for row in range(PAIRS):
        of_first = softmax([inner(first[row], other) for other in torch.cat([first, others[0]])])
        of_second = softmax([inner(second[row], other) for other in torch.cat([second, others[1]])])
        expected = -sum(math.log(math.cos(math.pi / 2 * (a - b))) for a, b in zip(of_first, of_second))
        assert found[row].item() == pytest.approx(expected, rel=0.02)  # differences are shrunk by a thousandth


def test_similarity_is_finite_with_its_gradient_where_one_language_is_certain_of_what_the_other_denies():
    first = (100 * torch.eye(2)).requires_grad_()
    second = (100 * torch.tensor([[1.0, 0.0], [2.0, 0.0]])).requires_grad_()
    none = torch.empty(0, 2)
    loss = similarity_alignment(first, second, none, none)
    assert 2 * 6.4 < loss.max() < 2 * 6.5
    assert loss.isfinite().all()
    loss.sum().backward()
    assert first.grad is not None
    assert first.grad.isfinite().all()
    assert second.grad is not None
    assert second.grad.isfinite().all()


def test_distillation_is_the_mean_squared_difference_of_both_sides_to_the_teacher():
    first, second, teacher = vectors(1), vectors(2), vectors(3)
    for row, loss in enumerate(distillation(first, second, teacher).tolist()):
        expected = sum(
            sum((float(a) - float(b)) ** 2 for a, b in zip(side[row], teacher[row])) / HIDDEN
            for side in (first, second)
        )
        assert loss == pytest.approx(expected)


SENTENCE, TRANSLATION = [3, 5, 5, 7], [2, 5]  # the word 5 is in both, twice in one


def share(ids: list[int], word: int) -> float:
    return ids.count(word) / len(ids)


@pytest.mark.parametrize(
    ("objective", "of_masked", "of_other"),
    [
        ("xtr", lambda word: share(TRANSLATION, word), lambda word: share(SENTENCE, word)),
        ("smlm", lambda word: float(word == 5), lambda word: float(word == 5)),
        (
            "ugt",
            lambda word: 0.5 * (word == 5) + 0.5 * share(TRANSLATION, word),
            lambda word: share(SENTENCE, word),
        ),
    ],
)
def test_words_are_predicted_from_vectors_as_equations_1_to_4_have_it(objective, of_masked, of_other):
    """The word 5 is masked. The divergence is a sum over the whole vocabulary."""
    masked_word = None if objective == "xtr" else 5
    targets = word_targets(objective, SENTENCE, TRANSLATION, masked_word)
    for seed, ((ids, shares), expected_share) in enumerate(zip(targets, (of_masked, of_other))):
        assert shares.sum().item() == pytest.approx(1)
        logits = vectors(seed, 1, VOCABULARY)
        predicted = softmax(logits[0].tolist())
        expected = 0.0
        for word in range(VOCABULARY):
            wanted = expected_share(word)
            if wanted:
                expected += wanted * math.log(wanted / predicted[word])
        found = words_from_vectors(logits, ids.unsqueeze(0), shares.unsqueeze(0))
        assert found.item() == pytest.approx(expected, rel=1e-5)


def test_a_sentence_without_words_is_nothing_to_predict():
    (of_masked, _), (of_other, _) = word_targets("ugt", [], [], None)
    assert len(of_masked) == len(of_other) == 0
    none = torch.empty(1, 0)
    assert words_from_vectors(vectors(1, 1, VOCABULARY), none.long(), none).item() == 0


def test_losses_are_weighted_means_over_pairs_and_over_masked_words():
    recipe = PretrainSentencesRecipe(
        corpus="",
        output="",
        sentence_encoder="x",
        objectives={"mmlm": 2.0, "ugt": 3.0, "align": 5.0},
    )
    labels = torch.tensor([[-100, 3, 4], [-100, -100, 1]])
    batch = SentenceBatch({"mmlm": {"labels": labels}}, {}, {}, torch.arange(2), torch.zeros(2, 2), ["one", "two"])
    embeddings = {
        "mmlm": torch.tensor([[4.0], [8.0]]),
        "words": torch.tensor([[1.0], [2.0], [3.0], [4.0]]),
        "sentences": vectors(1, rows=4).float(),
    }
    losses = sentence_losses(
        embeddings,
        recipe,
        concepts=batch.concepts,
        languages=batch.languages,
        num_predicted=batch.num_predicted,
    )
    first, second = embeddings["sentences"].chunk(2)
    none = torch.empty(0, HIDDEN)
    assert losses.keys() == {"mmlm_loss", "ugt_loss", "align_loss"}
    assert losses["mmlm_loss"].item() == pytest.approx(2 * 12 / 3)
    assert losses["ugt_loss"].item() == pytest.approx(3 * (1 + 2 + 3 + 4) / 2)
    torch.testing.assert_close(losses["align_loss"], 5 * alignment(first, second, none, none).mean())
