"""The lightweight encoder's rows, and its losses against their equations, written out in loops."""

from __future__ import annotations

import math

import pytest
import torch

from replications.lightweight.data import GenerativeCollator, word_targets
from replications.lightweight.losses import LOSSES, Generative, LightweightLosses, similarity, words_from_vectors
from replications.sentences.batches import SentenceBatch
from replications.sentences.losses import PairVectors, chosen_losses, weighted_losses
from replications.sentences.pairs import DevPairs, Pair
from tests.arithmetic import PAIRS, VOCABULARY, inner, softmax, vectors
from tests.sentence_pairs import write_pairs
from tests.tiny_encoders import unigram_tokenizer


def example(index: int = 0, **changes: object) -> Pair:
    values = {
        "languages": ("en", "de"),
        "first": "The cat sat.",
        "second": "Die Katze lag.",
    }
    return Pair(id=f"p{index}", name=f"p{index}", seed=index, **(values | changes))


def test_ugt_masks_one_word_of_one_of_the_two_sentences_and_no_punctuation():
    tokenizer = unigram_tokenizer()
    collate = GenerativeCollator(tokenizer, 128, task="ugt")
    sides = set()
    for seed in range(40):
        rows = collate([example(seed, first="cat !", second="Katze ? ?")]).rows["sentences"]
        (where,) = (rows["input_ids"] == tokenizer.mask_token_id).nonzero().tolist()
        assert where[1] == 1
        sides.add(where[0])
        cat, katze = (tokenizer(word)["input_ids"][1] for word in ("cat", "Katze"))
        assert int(rows["target_ids"][where[0], 0]) == (cat, katze)[where[0]]
        assert rows["target_shares"][where[0], 0] == 0.5
    assert sides == {0, 1}


@pytest.mark.slow
def test_words_of_both_sides_are_masked_in_dev_pairs(tmp_path):
    tokenizer = unigram_tokenizer()
    pairs = DevPairs(write_pairs(tmp_path, num_pairs=32, num_dev=16), 16, seed=0).examples()
    rows = GenerativeCollator(tokenizer, 128, task="ugt")(pairs).rows["sentences"]
    masked = (rows["input_ids"] == tokenizer.mask_token_id).sum(dim=1)
    first, second = masked.chunk(2)
    assert (first + second == 1).all()
    assert 0 < first.sum() < len(pairs)


def test_xtr_masks_nothing():
    tokenizer = unigram_tokenizer()
    rows = GenerativeCollator(tokenizer, 128, task="xtr")([example()]).rows["sentences"]
    assert (rows["input_ids"] != tokenizer.mask_token_id).all()


def test_a_row_is_masked_alike_whatever_stands_beside_it():
    """Or two processes would not have the batch of one."""
    collate = GenerativeCollator(unigram_tokenizer(), 128, task="ugt")
    pairs = [example(0), example(1, first="The cat " * 9), example(2)]
    together = collate(pairs)
    for index, pair in enumerate(pairs):
        alone = collate([pair])
        for side in range(2):
            one, all_rows = alone.rows["sentences"], together.rows["sentences"]
            length = int(one["attention_mask"][side].sum())
            row = index + side * len(pairs)
            assert torch.equal(one["input_ids"][side, :length], all_rows["input_ids"][row, :length])
            num_targets = int((one["target_shares"][side] > 0).sum())
            assert torch.equal(one["target_ids"][side, :num_targets], all_rows["target_ids"][row, :num_targets])
            assert all_rows["target_shares"][row, num_targets:].sum() == 0


def test_the_generative_loss_is_a_mean_over_pairs_of_which_both_sentences_add_up():
    batch = SentenceBatch({}, {}, torch.arange(2), torch.zeros(2, 2), ["one", "two"])
    chosen = chosen_losses(LightweightLosses(generative=Generative(weight=3.0)))
    found = weighted_losses(chosen, LOSSES, PairVectors({"divergences": torch.arange(1.0, 5).unsqueeze(1)}, batch))
    assert found["generative_loss"].item() == pytest.approx(3 * (1 + 2 + 3 + 4) / 2)


def test_similarity_is_equation_6_of_the_lightweight_encoder():
    first, second, others = 0.4 * vectors(1), 0.4 * vectors(2), (vectors(3), vectors(4))
    found = similarity(first, second, *others)
    for row in range(PAIRS):
        first_targets = softmax([inner(first[row], other) for other in torch.cat([first, others[0]])])
        second_targets = softmax([inner(second[row], other) for other in torch.cat([second, others[1]])])
        expected = -sum(math.log(math.cos(math.pi / 2 * (a - b))) for a, b in zip(first_targets, second_targets))
        assert found[row].item() == pytest.approx(expected, rel=0.02)  # differences are shrunk by a thousandth


def test_similarity_is_finite_with_its_gradient_where_one_language_is_certain_of_what_the_other_denies():
    first = (100 * torch.eye(2)).requires_grad_()
    second = (100 * torch.tensor([[1.0, 0.0], [2.0, 0.0]])).requires_grad_()
    none = torch.empty(0, 2)
    loss = similarity(first, second, none, none)
    assert 2 * 6.4 < loss.max() < 2 * 6.5
    assert loss.isfinite().all()
    loss.sum().backward()
    assert first.grad is not None
    assert first.grad.isfinite().all()
    assert second.grad is not None
    assert second.grad.isfinite().all()


SENTENCE, TRANSLATION = [3, 5, 5, 7], [2, 5]  # the word 5 is in both, twice in one


def share(ids: list[int], word: int) -> float:
    return ids.count(word) / len(ids)


@pytest.mark.parametrize(
    ("objective", "masked_targets", "other_targets"),
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
def test_words_are_predicted_from_vectors_as_equations_1_to_4_have_it(objective, masked_targets, other_targets):
    """The word 5 is masked. The divergence is a sum over the whole vocabulary."""
    masked_word = None if objective == "xtr" else 5
    targets = word_targets(objective, SENTENCE, TRANSLATION, masked_word)
    for seed, ((ids, shares), expected_share) in enumerate(zip(targets, (masked_targets, other_targets))):
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
    (masked_targets, _), (other_targets, _) = word_targets("ugt", [], [], None)
    assert len(masked_targets) == len(other_targets) == 0
    none = torch.empty(1, 0)
    assert words_from_vectors(vectors(1, 1, VOCABULARY), none.long(), none).item() == 0
