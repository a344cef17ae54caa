"""Pairs of sentences, the rows that are made of them, and the losses of their vectors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

from replications.sentences.batches import SentenceBatch, SentenceCollator
from replications.sentences.losses import (
    Align,
    PairVectors,
    SentenceLosses,
    align,
    chosen_losses,
    distillation,
    student_losses,
    weighted_losses,
)
from replications.sentences.pairs import DevPairs, Pair, Pairs, precision_at_1
from tests.arithmetic import HIDDEN, PAIRS, inner, softmax, vectors
from tests.sentence_pairs import write_pairs, write_table
from tests.tiny_encoders import unigram_tokenizer

PAIR = Pair("p0", "p0", "The cat sat.", "Die Katze lag.", ("en", "de"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("parallel"))


def test_pairs_are_those_of_the_split_with_their_languages(folder):
    pairs = Pairs(folder, "train")
    assert pairs.languages == ["en-de", "en-fr"]
    assert pairs.language_pairs().tolist() == [0] * 12 + [1] * 4
    assert [pairs[index].id for index in (0, 11, 12, 15)] == ["de4", "de15", "fr4", "fr7"]
    assert pairs[12].first == "See the eee on the vv!"
    assert pairs[12].second == "Le eee dort sur vv!"
    assert pairs[12].name == "fr4 (en-fr)"
    dev_pairs = Pairs(folder, "dev")
    assert len({dev_pairs[index].seed for index in range(8)}) == len(dev_pairs) == 8


@pytest.mark.parametrize("side", ["first", "second"])
@pytest.mark.parametrize("empty", ["", "  ", None])
def test_an_empty_side_is_named_with_its_file_and_row(tmp_path, side, empty):
    rows = [{"id": str(index), "first": "one", "second": "eins", "split": "train"} for index in range(3)]
    rows[1][side] = empty
    write_table(tmp_path / "pairs" / "en-de.parquet", rows)
    with pytest.raises(ValueError, match=rf"pairs/en-de\.parquet, row 2: {side} is empty; remove the pair"):
        Pairs(tmp_path, "train")


def test_a_column_that_holds_no_strings_is_named(tmp_path):
    rows = [{"id": index, "first": "one", "second": "eins", "split": "train"} for index in range(3)]
    (tmp_path / "pairs").mkdir()
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "pairs" / "en-de.parquet")
    with pytest.raises(ValueError, match=r"en-de\.parquet: id must hold strings; write the table anew"):
        Pairs(tmp_path, "train")


def test_a_folder_without_pairs_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"has no pairs/<one>-<other>\.parquet"):
        Pairs(tmp_path, "train")
    write_table(tmp_path / "pairs" / "en-de.parquet", [{"id": "1", "first": "a", "second": "b", "split": "test"}])
    with pytest.raises(ValueError, match="has no pair of split 'train'"):
        Pairs(tmp_path, "train")


def test_precision_at_1_is_that_of_a_loop_over_all_sentences():
    random = np.random.default_rng(0)
    first = random.normal(size=(20, 4))
    second = first + random.normal(size=(20, 4))
    hits = 0
    for one, other in ((first, second), (second, first)):
        for index, query in enumerate(one):
            cosines = [query @ vector / np.linalg.norm(query) / np.linalg.norm(vector) for vector in other]
            hits += cosines.index(max(cosines)) == index
    assert precision_at_1(first, second) == pytest.approx(hits / 40)
    assert 0 < hits < 40


def test_dev_pairs_are_sought_in_their_table(folder):
    seen = []

    def encode(sentences: list[str]) -> np.ndarray:
        seen.append(sentences)
        return np.eye(len(sentences))

    scores = DevPairs(folder, count=3, seed=0).evaluate(encode)
    assert scores == {"en-de_p_at_1": 1.0, "en-fr_p_at_1": 1.0, "p_at_1": 1.0}
    assert [len(sentences) for sentences in seen] == [3, 3, 3, 3]
    assert all(sentence.startswith("See") for sentence in seen[2])


def test_each_dev_sentence_counts_once_whatever_its_table(tmp_path):
    """Four German sentences find their translation, of two French ones none does."""
    for language, count in (("de", 4), ("fr", 2)):
        rows = [{"id": f"{language}{i}", "first": str(i), "second": language, "split": "dev"} for i in range(count)]
        write_table(tmp_path / "pairs" / f"en-{language}.parquet", rows)

    def encode(sentences: list[str]) -> np.ndarray:
        vectors = np.eye(len(sentences))
        return vectors[::-1] if sentences[0] == "fr" else vectors

    scores = DevPairs(tmp_path, count=10, seed=0).evaluate(encode)
    assert scores == {"en-de_p_at_1": 1.0, "en-fr_p_at_1": 0.0, "p_at_1": pytest.approx(4 / 6)}


def test_the_prompt_stands_before_every_sentence_that_becomes_a_vector():
    tokenizer = unigram_tokenizer()
    batch = SentenceCollator(tokenizer, 128, "cat: ", tokenizer)([PAIR])
    first, second = (tokenizer(f"cat: {text}")["input_ids"] for text in ("The cat sat.", "Die Katze lag."))
    padded = batch.rows["sentences"]
    assert padded["input_ids"][0, : len(first)].tolist() == first
    assert padded["input_ids"][1, : len(second)].tolist() == second
    assert batch.other_rows["teacher"]["input_ids"][0].tolist() == first


def test_alignment_is_equation_5_of_mao_et_al():
    first, second, others = vectors(1), vectors(2), (vectors(3), vectors(4))
    found = align(first, second, *others)
    for row in range(PAIRS):
        there = [inner(first[row], candidate) for candidate in torch.cat([second, others[1]])]
        back = [inner(second[row], candidate) for candidate in torch.cat([first, others[0]])]
        expected = -math.log(softmax(there)[row]) - math.log(softmax(back)[row])
        assert found[row].item() == pytest.approx(expected)


def test_distillation_is_the_mean_squared_difference_of_both_sides_to_the_teacher():
    first, second, teacher = vectors(1), vectors(2), vectors(3)
    for row, loss in enumerate(distillation(first, second, teacher).tolist()):
        expected = sum(
            sum((float(a) - float(b)) ** 2 for a, b in zip(side[row], teacher[row])) / HIDDEN
            for side in (first, second)
        )
        assert loss == pytest.approx(expected)


def test_losses_are_weighted_means_over_pairs():
    sentences, none = vectors(1, rows=2 * PAIRS).float(), torch.empty(0, HIDDEN)
    batch = SentenceBatch({}, {}, torch.arange(PAIRS), torch.zeros(2, PAIRS), ["pair"] * PAIRS)
    losses = SentenceLosses(align=Align(weight=5.0))
    found = weighted_losses(chosen_losses(losses), student_losses(None), PairVectors({"sentences": sentences}, batch))
    assert found.keys() == {"align_loss"}
    torch.testing.assert_close(found["align_loss"], 5 * align(*sentences.chunk(2), none, none).mean())
