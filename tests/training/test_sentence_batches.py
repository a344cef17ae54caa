"""Pairs of sentences, and the rows that are made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from tests.pretraining import write_corpus
from tests.sentence_pairs import write_pairs, write_table
from tests.tiny_encoders import unigram_tokenizer
from training.data.parallel import DevPairs, Example, Pairs, Texts, precision_at_1
from training.data.sentence_batches import SentenceCollator
from training.recipes import PretrainSentencesRecipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("parallel"))


def recipe(objectives: dict[str, float], **options: object) -> PretrainSentencesRecipe:
    options = {"queue_size": 4} | options if "xlco" in objectives else options
    options = {"teacher": "x"} | options if "distillation" in objectives else options
    return PretrainSentencesRecipe(
        corpus="pairs", output="model", sentence_encoder="encoder", objectives=objectives, **options
    )


def example(index: int = 0, **changes: object) -> Example:
    values = {
        "languages": ("en", "de"),
        "mixed": None,
        "first": "The cat sat.",
        "second": "Die Katze lag.",
        "text": "Der Hund sah die Katze.",
    }
    return Example(id=f"p{index}", name=f"p{index}", seed=index, **(values | changes))


def test_pairs_are_those_of_the_split_with_their_languages(folder):
    pairs = Pairs(folder, "train")
    assert pairs.languages == ["en-de", "en-fr"]
    assert pairs.language_pairs().tolist() == [0] * 12 + [1] * 4
    assert [pairs[index].id for index in (0, 11, 12, 15)] == ["de4", "de15", "fr4", "fr7"]
    assert pairs[12].first == "See the eee on the vv!"
    assert pairs[12].second == "Le eee dort sur vv!"
    assert pairs[12].name == "fr4 (en-fr)"
    assert len(Pairs(folder, "dev")) == 8


def test_a_draw_is_the_same_for_the_same_seed_and_epoch_and_changes_with_either(folder):
    def draws(seed: int, epoch: int) -> list[Example]:
        pairs = Pairs(folder, "train", mixup=True, seed=seed)
        pairs.set_epoch(epoch)
        return [pairs[index] for index in range(len(pairs))]

    assert draws(1, 0) == draws(1, 0)
    assert draws(1, 0) != draws(1, 1)
    assert draws(1, 0) != draws(2, 0)


def test_a_pair_is_mixed_with_one_of_other_languages(folder):
    pairs = Pairs(folder, "train", mixup=True)
    partners = set()
    for epoch in range(30):
        pairs.set_epoch(epoch)
        for index in range(len(pairs)):
            assert pairs[index].mixed[1].startswith("Le" if index < 12 else "Die")
            partners.add(pairs[index].mixed)
    assert partners == {(pair.first, pair.second) for pair in map(pairs.__getitem__, range(len(pairs)))}


def test_texts_are_passages_of_training_articles(tmp_path):
    corpus = write_corpus(tmp_path)
    texts = Texts(corpus, language_exponent=0.7, max_length=2)
    pairs = Pairs(write_pairs(tmp_path), "train", texts=texts)
    articles = [article["text"] for table in texts.articles.values() for article in table]
    for index in range(len(pairs)):
        assert any(pairs[index].text in article for article in articles)
        assert 0 < len(pairs[index].text) <= 2 * 16
    assert all(article["split"] == "train" for table in texts.articles.values() for article in table)


def test_a_corpus_without_training_articles_is_named(tmp_path):
    article = {"concept_id": "Q1", "text": "A cat.", "split": "dev"}
    Dataset.from_list([article]).to_parquet(tmp_path / "articles" / "en.parquet")
    with pytest.raises(ValueError, match="has no article of split 'train'; make a corpus"):
        Texts(tmp_path, 1.0, max_length=8)


@pytest.mark.parametrize("side", ["first", "second"])
@pytest.mark.parametrize("empty", ["", "  ", None])
def test_an_empty_side_is_named_with_its_file_and_row(tmp_path, side, empty):
    rows = [{"id": str(index), "first": "one", "second": "eins", "split": "train"} for index in range(3)]
    rows[1][side] = empty
    write_table(tmp_path / "pairs" / "en-de.parquet", rows)
    with pytest.raises(ValueError, match=rf"pairs/en-de\.parquet, row 1: {side} is empty; remove the pair"):
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


def test_masking_has_berts_statistics_over_a_hundred_thousand_tokens():
    """15 % of the words, of these 80 % masked, 10 % another, 10 % as they were; never a special token. Within four
    standard deviations."""
    tokenizer = unigram_tokenizer()
    collate = SentenceCollator(recipe({"mmlm": 1.0}, max_length=1002), tokenizer)
    words, picked, masked, kept = 0, 0, 0, 0
    for batch in range(10):
        text = " ".join(["cat"] * 1000)
        rows = collate([example(10 * batch + index, text=text) for index in range(10)]).rows["mmlm"]
        ids, labels = rows["input_ids"], rows["labels"]
        cat = tokenizer("cat")["input_ids"][1]
        assert (ids[:, 0] == tokenizer.cls_token_id).all()
        assert (ids[:, -1] == tokenizer.sep_token_id).all()
        assert (labels[:, [0, -1]] == -100).all()
        assert set(labels.unique().tolist()) == {-100, cat}
        of_picked = ids[labels != -100]
        words += ids.numel() - 2 * len(ids)
        picked += len(of_picked)
        masked += int((of_picked == tokenizer.mask_token_id).sum())
        kept += int((of_picked == cat).sum())
        assert set(ids[labels == -100].tolist()) == {tokenizer.cls_token_id, cat, tokenizer.sep_token_id}
    assert words == 100_000

    def close(count: int, total: int, chance: float) -> bool:
        return abs(count - total * chance) < 4 * (total * chance * (1 - chance)) ** 0.5

    assert close(picked, words, 0.15)
    assert close(masked, picked, 0.8)
    assert close(kept, picked, 0.1 + 0.1 / len(tokenizer))


def test_a_row_is_masked_alike_whatever_stands_beside_it():
    """Or two processes would not have the batch of one."""
    collate = SentenceCollator(recipe({"mmlm": 1.0, "tlm": 1.0, "ugt": 1.0}), unigram_tokenizer())
    pairs = [example(0), example(1, text="Le chat dort. " * 5, first="The cat " * 9), example(2)]
    together = collate(pairs)
    for index, pair in enumerate(pairs):
        alone = collate([pair])
        for name in ("mmlm", "tlm"):
            length = alone.rows[name]["input_ids"].shape[1]
            for key in ("input_ids", "labels"):
                assert torch.equal(alone.rows[name][key][0], together.rows[name][key][index, :length])
        for side in range(2):
            one, all_rows = alone.rows["sentences"], together.rows["sentences"]
            length = int(one["attention_mask"][side].sum())
            row = index + side * len(pairs)
            assert torch.equal(one["input_ids"][side, :length], all_rows["input_ids"][row, :length])
            num_targets = int((one["target_shares"][side] > 0).sum())
            assert torch.equal(one["target_ids"][side, :num_targets], all_rows["target_ids"][row, :num_targets])
            assert all_rows["target_shares"][row, num_targets:].sum() == 0


def test_tlm_reads_both_sentences_in_one_row():
    tokenizer = unigram_tokenizer()
    row = SentenceCollator(recipe({"tlm": 1.0}), tokenizer)([example()]).rows["tlm"]
    ids = torch.where(row["labels"] == -100, row["input_ids"], row["labels"])[0]
    assert ids.tolist() == tokenizer("The cat sat.", "Die Katze lag.")["input_ids"]


def test_ugt_masks_one_word_of_one_of_the_two_sentences_and_no_punctuation():
    tokenizer = unigram_tokenizer()
    collate = SentenceCollator(recipe({"ugt": 1.0}), tokenizer)
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


def test_xtr_masks_nothing():
    tokenizer = unigram_tokenizer()
    rows = SentenceCollator(recipe({"xtr": 1.0}), tokenizer)([example()]).rows["sentences"]
    assert (rows["input_ids"] != tokenizer.mask_token_id).all()


def test_xlco_joins_the_sides_of_two_pairs_in_all_orders_each_language_on_its_side():
    tokenizer = unigram_tokenizer()
    collate = SentenceCollator(recipe({"xlco": 1.0}), tokenizer)
    first, second = ["The cat sat.", "It was warm"], ["Die Katze lag.", "Le chat"]
    orders = {
        tuple(tokenizer(*side)["input_ids"]): (name, order)
        for name, sentences in (("first", first), ("second", second))
        for order, side in enumerate((sentences, sentences[::-1]))
    }
    seen = set()
    for seed in range(60):
        batch = collate([example(seed, mixed=("It was warm", "Le chat"))])
        sides = batch.rows["queries"], batch.key_rows["keys"]
        query, key = (orders[tuple(rows["input_ids"][0].tolist())] for rows in sides)
        assert query[0] != key[0]
        seen.add((query, key))
    assert len(seen) == 8


def test_the_prompt_stands_before_every_sentence_that_becomes_a_vector():
    tokenizer = unigram_tokenizer()
    objectives = {"align": 1.0, "xlco": 1.0, "distillation": 1.0}
    collate = SentenceCollator(recipe(objectives, prompt="cat: ", mixup=False), tokenizer, tokenizer)
    batch = collate([example()])
    first, second = (tokenizer(f"cat: {text}")["input_ids"] for text in ("The cat sat.", "Die Katze lag."))
    padded = batch.rows["sentences"]
    assert padded["input_ids"][0, : len(first)].tolist() == first
    assert padded["input_ids"][1, : len(second)].tolist() == second
    assert batch.teacher_rows["sentences"]["input_ids"][0].tolist() == first
    sides = [batch.rows["queries"]["input_ids"][0].tolist(), batch.key_rows["keys"]["input_ids"][0].tolist()]
    assert sorted(sides) == sorted([first, second])


def test_a_tokenizer_without_a_mask_token_is_named_with_the_way_out():
    tokenizer: PreTrainedTokenizerFast = unigram_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r"the tokenizer of encoder has no mask token, which mmlm, ugt needs; give it"):
        SentenceCollator(recipe({"mmlm": 1.0, "ugt": 1.0}), tokenizer)
    SentenceCollator(recipe({"align": 1.0}), tokenizer)
