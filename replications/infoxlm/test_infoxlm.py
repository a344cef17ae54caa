"""InfoXLM's rows, and its losses against their equations, written out in loops."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from replications.infoxlm.data import InfoXLMCollator, InfoXLMPair, InfoXLMPairs, Texts
from replications.infoxlm.losses import (
    MMLM,
    TLM,
    InfoXLMLosses,
    XlCo,
    cross_lingual_contrast,
    infoxlm_losses,
)
from replications.masked_lm import check_mask_token
from replications.sentences.batches import SentenceBatch
from replications.sentences.losses import PairVectors, chosen_losses, weighted_losses
from replications.sentences.pairs import DevPairs
from tests.arithmetic import PAIRS, inner, softmax, vectors
from tests.pretraining import write_corpus
from tests.sentence_pairs import write_pairs
from tests.tiny_encoders import unigram_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("parallel"))


def example(index: int = 0, **changes: object) -> InfoXLMPair:
    values = {
        "languages": ("en", "de"),
        "first": "The cat sat.",
        "second": "Die Katze lag.",
        "text": "Der Hund sah die Katze.",
    }
    return InfoXLMPair(id=f"p{index}", name=f"p{index}", seed=index, **(values | changes))


@pytest.mark.slow
def test_a_pair_is_mixed_with_one_of_other_languages(folder):
    pairs = InfoXLMPairs(folder, "train", mixup=True)
    partners = set()
    for epoch in range(30):
        pairs.set_epoch(epoch)
        for index in range(len(pairs)):
            assert pairs[index].mixed[1].startswith("Le" if index < 12 else "Die")
            partners.add(pairs[index].mixed)
    assert partners == {(pair.first, pair.second) for pair in map(pairs.__getitem__, range(len(pairs)))}


@pytest.mark.slow
def test_texts_are_passages_of_training_articles(tmp_path):
    corpus = write_corpus(tmp_path)
    texts = Texts(corpus, language_exponent=0.7, max_length=2)
    pairs = InfoXLMPairs(write_pairs(tmp_path), "train", texts=texts)
    articles = [article["text"] for table in texts.articles.values() for article in table]
    for index in range(len(pairs)):
        assert any(pairs[index].text in article for article in articles)
        assert 0 < len(pairs[index].text) <= 2 * 16
    assert all(article["split"] == "train" for table in texts.articles.values() for article in table)


@pytest.mark.slow
def test_a_corpus_without_training_articles_is_named(tmp_path):
    article = {"concept_id": "Q1", "text": "A cat.", "split": "dev"}
    Dataset.from_list([article]).to_parquet(tmp_path / "articles" / "en.parquet")
    with pytest.raises(ValueError, match="has no article of split 'train'; make a corpus"):
        Texts(tmp_path, 1.0, max_length=8)


@pytest.mark.slow
def test_masking_has_berts_statistics_over_a_hundred_thousand_tokens():
    """15 % of the words, of these 80 % masked, 10 % another, 10 % as they were; never a special token. Within four
    standard deviations."""
    tokenizer = unigram_tokenizer()
    collate = InfoXLMCollator(tokenizer, 1002, losses=InfoXLMLosses(mmlm=MMLM()))
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
        picked_losses = ids[labels != -100]
        words += ids.numel() - 2 * len(ids)
        picked += len(picked_losses)
        masked += int((picked_losses == tokenizer.mask_token_id).sum())
        kept += int((picked_losses == cat).sum())
        assert set(ids[labels == -100].tolist()) == {tokenizer.cls_token_id, cat, tokenizer.sep_token_id}
    assert words == 100_000

    def close(count: int, total: int, chance: float) -> bool:
        return abs(count - total * chance) < 4 * (total * chance * (1 - chance)) ** 0.5

    assert close(picked, words, 0.15)
    assert close(masked, picked, 0.8)
    assert close(kept, picked, 0.1 + 0.1 / len(tokenizer))


@pytest.mark.slow
def test_the_text_of_a_dev_pair_is_one_of_its_sides(folder):
    tokenizer = unigram_tokenizer()
    pairs = DevPairs(folder, 4, seed=0).examples()
    rows = InfoXLMCollator(tokenizer, 128, losses=InfoXLMLosses(mmlm=MMLM()))(pairs).rows["mmlm"]
    sides = set()
    for pair, ids, labels, mask in zip(pairs, rows["input_ids"], rows["labels"], rows["attention_mask"]):
        text = torch.where(labels == -100, ids, labels)[mask == 1].tolist()
        sides.add([tokenizer(side)["input_ids"] for side in (pair.first, pair.second)].index(text))
    assert sides == {0, 1}


def test_tlm_reads_both_sentences_in_one_row():
    tokenizer = unigram_tokenizer()
    row = InfoXLMCollator(tokenizer, 128, losses=InfoXLMLosses(tlm=TLM()))([example()]).rows["tlm"]
    ids = torch.where(row["labels"] == -100, row["input_ids"], row["labels"])[0]
    assert ids.tolist() == tokenizer("The cat sat.", "Die Katze lag.")["input_ids"]


def test_xlco_joins_the_sides_of_two_pairs_in_all_orders_each_language_on_its_side():
    tokenizer = unigram_tokenizer()
    collate = InfoXLMCollator(tokenizer, 128, losses=InfoXLMLosses(xlco=XlCo()))
    first, second = ["The cat sat.", "It was warm"], ["Die Katze lag.", "Le chat"]
    orders = {
        tuple(tokenizer(*side)["input_ids"]): (name, order)
        for name, sentences in (("first", first), ("second", second))
        for order, side in enumerate((sentences, sentences[::-1]))
    }
    seen = set()
    for seed in range(60):
        batch = collate([example(seed, mixed=("It was warm", "Le chat"))])
        sides = batch.rows["queries"], batch.other_rows["keys"]
        query, key = (orders[tuple(rows["input_ids"][0].tolist())] for rows in sides)
        assert query[0] != key[0]
        seen.add((query, key))
    assert len(seen) == 8


def test_a_row_is_masked_alike_whatever_stands_beside_it():
    """Or two processes would not have the batch of one."""
    collate = InfoXLMCollator(unigram_tokenizer(), 128, losses=InfoXLMLosses(mmlm=MMLM(), tlm=TLM()))
    pairs = [example(0), example(1, text="Le chat dort. " * 5, first="The cat " * 9), example(2)]
    together = collate(pairs)
    for index, pair in enumerate(pairs):
        alone = collate([pair])
        for name in ("mmlm", "tlm"):
            length = alone.rows[name]["input_ids"].shape[1]
            for key in ("input_ids", "labels"):
                assert torch.equal(alone.rows[name][key][0], together.rows[name][key][index, :length])


def test_the_prompt_stands_before_both_sides_of_cross_lingual_contrast():
    tokenizer = unigram_tokenizer()
    batch = InfoXLMCollator(tokenizer, 128, "cat: ", losses=InfoXLMLosses(xlco=XlCo()))([example()])
    first, second = (tokenizer(f"cat: {text}")["input_ids"] for text in ("The cat sat.", "Die Katze lag."))
    sides = [batch.rows["queries"]["input_ids"][0].tolist(), batch.other_rows["keys"]["input_ids"][0].tolist()]
    assert sorted(sides) == sorted([first, second])


def test_a_loss_of_masked_tokens_is_a_mean_over_the_masked_tokens():
    labels = torch.tensor([[-100, 3, 4], [-100, -100, 1]])
    batch = SentenceBatch({"mmlm": {"labels": labels}}, {}, torch.arange(2), torch.zeros(2, 2), ["one", "two"])
    chosen = chosen_losses(InfoXLMLosses(mmlm=MMLM(weight=2.0)))
    vectors = PairVectors({"mmlm": torch.tensor([[4.0], [8.0]])}, batch)
    losses = weighted_losses(chosen, infoxlm_losses(None, 100, nullcontext), vectors)
    assert losses["mmlm_loss"].item() == pytest.approx(2 * 12 / 3)


def test_a_tokenizer_without_a_mask_token_is_named_with_the_way_out():
    tokenizer: PreTrainedTokenizerFast = unigram_tokenizer()
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match=r"the tokenizer of encoder has no mask token, .* give it one"):
        check_mask_token(tokenizer, "encoder")


def test_cross_lingual_contrast_is_equation_6_of_infoxlm_over_a_temperature():
    queries, keys, queue = vectors(1), vectors(2), vectors(3, rows=5)
    concepts, queue_concepts = torch.tensor([10, 11, 12, 13]), torch.tensor([20, 11, 21, 22, 23])
    found = cross_lingual_contrast(
        queries, keys, queue, concepts=concepts, other_concepts=queue_concepts, temperature=0.25
    )
    for row in range(PAIRS):
        scores = [inner(queries[row], key) / 0.25 for key in keys]
        scores += [
            inner(queries[row], key) / 0.25 for key, concept in zip(queue, queue_concepts) if concept != concepts[row]
        ]
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
