"""NTDV against chapter 3 of the thesis, written out, and both phases of its training end to end."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from replications.drawn_pairs import DrawnPairs
from replications.laser.modeling_laser import LaserConfig, LaserModel
from replications.ntdv import pretrain, train_translator
from replications.ntdv.decoder import GRUDecoder
from replications.ntdv.encoder import NTDVEncoder, language_evidence
from replications.ntdv.losses import LOSSES, BothWays, SquaredDistance
from replications.ntdv.modeling_ntdv import GRUConfig, GRUModel, NTDVConfig, NTDVModel
from replications.ntdv.pretrain import NTDVCollator
from replications.ntdv.train_translator import TranslatorRecipe, translator_encoder
from replications.sentences.batches import SentenceBatch
from replications.sentences.losses import PairVectors
from replications.sentences.pairs import Pair
from replications.translation.data import TranslationCollator
from replications.translation.losses import drawn_by_lot
from tests.pretraining import FSDP2, two_have_the_gradients_of_one
from tests.sentence_pairs import SENTENCES, logged_values, options, write_pairs, write_table
from tests.tiny_encoders import randomise, unigram_tokenizer

IDS = torch.tensor([[0, 5, 9, 6, 2], [0, 7, 2, 1, 1], [0, 8, 12, 2, 1]])
MASK = (IDS != 1).long()
WIDTH, HEADS = 6, 3


def gru_model(num_hidden_layers: int = 1) -> GRUModel:
    sizes = {"embedding_size": 5, "hidden_size": 2 * WIDTH, "num_hidden_layers": num_hidden_layers}
    model = GRUModel(GRUConfig(vocab_size=len(unigram_tokenizer()), **sizes))
    randomise(model, seed=1)
    return model.eval()


def ntdv(vector: str = "concat", heads: int = HEADS) -> NTDVModel:
    """With random weights, which reads a text with the words 7 or 12 by its second encoder."""
    sizes = {"embedding_size": 5, "state_size": WIDTH, "num_attention_heads": heads}
    config = NTDVConfig(vocab_size=len(unigram_tokenizer()), vector=vector, languages=["en", "de"], **sizes)
    model = NTDVModel(config)
    randomise(model, seed=2)
    model.evidence[[7, 12]] = 1.0
    return model.eval()


def slow_gru(
    cell: torch.nn.Module, inputs: list[Tensor], suffix: str = "", state: Tensor | None = None
) -> list[Tensor]:
    """The states of a GRU, one after another (thesis, section 2.1.3)."""
    from_input, from_state = getattr(cell, f"weight_ih{suffix}"), getattr(cell, f"weight_hh{suffix}")
    bias_of_input, bias_of_state = getattr(cell, f"bias_ih{suffix}"), getattr(cell, f"bias_hh{suffix}")
    state = torch.zeros(cell.hidden_size) if state is None else state
    states = []
    for entering in inputs:
        reset, update, new = (from_input @ entering + bias_of_input).chunk(3)
        reset_before, update_before, new_before = (from_state @ state + bias_of_state).chunk(3)
        keep = (update + update_before).sigmoid()
        candidate = (new + (reset + reset_before).sigmoid() * new_before).tanh()
        state = (1 - keep) * candidate + keep * state
        states.append(state)
    return states


def slow_encoder(encoder: GRUModel, ids: Tensor) -> list[Tensor]:
    states = list(encoder.embeddings.weight[ids])
    for layer in range(encoder.config.num_hidden_layers):
        forward = slow_gru(encoder.gru, states, f"_l{layer}")
        backward = slow_gru(encoder.gru, states[::-1], f"_l{layer}_reverse")[::-1]
        states = [torch.cat(both) for both in zip(forward, backward)]
    return states


def slow_contexts(model: NTDVModel, ids: Tensor, language: int) -> tuple[list[list[Tensor]], list[Tensor]]:
    """U_i, of each head its tokens (equation 3.1), and p_i (3.2)."""
    states = slow_gru(model.gru, slow_encoder(model.encoders[language], ids), "_l0")
    heads = []
    for head in range(model.config.num_attention_heads):
        part = slice(head * WIDTH, (head + 1) * WIDTH)
        query, key, value = (project.weight[part] for project in (model.query, model.key, model.value))
        token_vectors = []
        for looking in states:
            scores = [math.exp(float((query @ looking) @ (key @ seen)) / math.sqrt(WIDTH)) for seen in states]
            token_vectors.append(sum(score / sum(scores) * (value @ seen) for score, seen in zip(scores, states)))
        heads.append(token_vectors)
    return heads, [sum(token_vectors) / len(token_vectors) for token_vectors in heads]


@torch.no_grad()
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_encoder_of_a_translator_reads_both_ways(num_layers):
    model = gru_model(num_layers)
    found = model(IDS, MASK).last_hidden_state
    for row, length in enumerate(MASK.sum(dim=1).tolist()):
        expected = torch.stack(slow_encoder(model, IDS[row, :length]))
        torch.testing.assert_close(found[row, :length], expected)


@torch.no_grad()
@pytest.mark.parametrize("vector", ["sum", "concat"])
def test_the_vector_is_equations_3_1_to_3_4(vector):
    model = ntdv(vector)
    found = model(IDS, MASK)
    assert model.config.hidden_size == found.pooler_output.shape[1] == (WIDTH if vector == "sum" else HEADS * WIDTH)
    for row, (length, language) in enumerate(zip(MASK.sum(dim=1).tolist(), [0, 1, 1])):
        heads, contexts = slow_contexts(model, IDS[row, :length], language)
        torch.testing.assert_close(found.contexts[row], torch.stack(contexts))
        expected = sum(contexts) if vector == "sum" else torch.cat(contexts)
        torch.testing.assert_close(found.pooler_output[row], expected)
        assert torch.equal(found.last_hidden_state[row, 0], found.pooler_output[row])
        for token in range(1, length):
            token_vector = [token_vectors[token] for token_vectors in heads]
            expected = sum(token_vector) if vector == "sum" else torch.cat(token_vector)
            torch.testing.assert_close(found.last_hidden_state[row, token], expected)


@torch.no_grad()
def test_the_tokens_of_a_text_say_which_encoder_reads_it_unless_it_is_told():
    model = ntdv()
    assert model.identify(IDS, MASK).tolist() == [0, 1, 1]
    by_itself, told = model(IDS, MASK), model(IDS, MASK, languages=torch.tensor([0, 1, 1]))
    assert torch.equal(by_itself.pooler_output, told.pooler_output)
    other = model(IDS, MASK, languages=torch.tensor([0, 0, 1])).pooler_output
    torch.testing.assert_close(other[[0, 2]], told.pooler_output[[0, 2]])
    assert not torch.isclose(other[1], told.pooler_output[1]).any()


def slow_logits(decoder: GRUDecoder, seen: list[Tensor], tokens: list[int]) -> list[Tensor]:
    """A conditional GRU with attention, token by token, state by state: the logits after each token."""
    state = torch.tanh(decoder.first_state(sum(seen) / len(seen)))
    logits = []
    for token in tokens:
        word = decoder.tokens.weight[token]
        (state,) = slow_gru(decoder.after_token, [word], state=state)
        from_states = [decoder.key(one) + decoder.query.weight @ state for one in seen]
        scores = [math.exp(float(decoder.score.weight[0] @ torch.tanh(one))) for one in from_states]
        look = sum(score / sum(scores) * one for score, one in zip(scores, seen))
        (state,) = slow_gru(decoder.after_look, [look], state=state)
        logits.append(decoder.lm_head(torch.tanh(decoder.joined(torch.cat([state, word, look])))))
    return logits


def cost(logits: list[Tensor], tokens: list[int]) -> float:
    """The cross-entropy of the tokens, each given those before it."""
    return -sum(float(torch.log_softmax(token_vector, dim=-1)[token]) for token_vector, token in zip(logits, tokens))


TRANSLATOR = {"architecture": {"model_type": "gru", "embedding_size": 12, "hidden_size": 32}, "max_length": 100}
NTDV = {
    "losses": {"translation": {}, "squared_distance": {"weight": 0.5, "num_negatives": 2, "margin": 8.0}},
    "num_attention_heads": 3,
    "max_length": 100,
}


def arguments(corpus: Path, output: Path, **changes: object) -> list[str]:
    """Those of the command."""
    return options(corpus, None, output, **changes)


def pair(index: int, first: str = "The cat sat there.", second: str = "Die Katze lag.") -> Pair:
    return Pair(f"p{index}", f"p{index}", first, second, ("en", "de"), seed=index)


PAIRS = [pair(0), pair(1, "It was warm", "Hund"), pair(2, "cat", "Der Hund sah die Katze.")]


@torch.no_grad()
def test_a_translator_looks_at_all_states_of_its_encoder():
    options = TranslatorRecipe(corpus="", output="", **TRANSLATOR, vocabulary_size=60, target_language="de")
    torch.manual_seed(0)
    encoder = translator_encoder("en", options, unigram_tokenizer()).eval()
    randomise(encoder, seed=1)
    rows = TranslationCollator(unigram_tokenizer(), 100, ["de"], both_sides=False)(PAIRS).rows["sentences"]
    found = encoder({"sentences": rows})["translation"]
    right = count = 0
    for row, (first, second, *_) in enumerate((pair.first, pair.second) for pair in PAIRS):
        ids, tokens = (unigram_tokenizer()(text)["input_ids"] for text in (first, second))
        logits = slow_logits(encoder.decoder, slow_encoder(encoder.model, torch.tensor(ids)), tokens[:-1])
        assert found[row].item() == pytest.approx(cost(logits, tokens[1:]), rel=1e-4)
        right += sum(int(token_vector.argmax()) == token for token_vector, token in zip(logits, tokens[1:]))
        count += len(tokens) - 1
    assert encoder.token_accuracy([{"sentences": rows}]) == pytest.approx(right / count)


def in_training() -> NTDVEncoder:
    model = ntdv()
    decoders = [GRUDecoder(encoder.config) for encoder in model.encoders]
    encoder = NTDVEncoder(model, decoders, with_vectors=True)
    randomise(encoder, seed=3)
    return encoder


def ntdv_batch() -> SentenceBatch:
    return NTDVCollator(unigram_tokenizer(), 100, ["en", "de"], both_sides=True)(PAIRS)


@torch.no_grad()
def test_each_sentence_of_a_pair_is_translated_from_its_contexts_by_the_decoder_of_its_language():
    encoder = in_training()
    found = encoder({"sentences": ntdv_batch().rows["sentences"]})
    texts = [pair.first for pair in PAIRS] + [pair.second for pair in PAIRS]
    for row, (text, translated) in enumerate(zip(texts, texts[3:] + texts[:3])):
        ids, tokens = (unigram_tokenizer()(side)["input_ids"] for side in (text, translated))
        language = int(row >= 3)
        _, contexts = slow_contexts(encoder.model, torch.tensor(ids), language)
        torch.testing.assert_close(found["sentences"][row], torch.cat(contexts))
        seen = [encoder.to_decoder(context) for context in contexts]
        logits = slow_logits(encoder.decoders[language], seen, tokens[:-1])
        assert found["translation"][row].item() == pytest.approx(cost(logits, tokens[1:]), rel=1e-4)


@torch.no_grad()
def test_the_decoder_sees_nothing_of_a_text_but_its_context_vectors(monkeypatch):
    """Other tokens with the same context vectors cost the same; other context vectors do not."""
    encoder, rows = in_training(), ntdv_batch().rows["sentences"]
    contexts = encoder.model(rows["input_ids"], rows["attention_mask"], 1 - rows["target_language"]).contexts
    before = encoder({"sentences": rows})["translation"]
    forward = NTDVModel.forward

    def replaced(change: float) -> Tensor:
        def fixed(model, *args, **kwargs):
            output = forward(model, *args, **kwargs)
            output.contexts = contexts + change
            return output

        with monkeypatch.context() as patch:
            patch.setattr(NTDVModel, "forward", fixed)
            other = rows | {"input_ids": rows["input_ids"].where(rows["input_ids"] < 5, 9)}
            return encoder({"sentences": other})["translation"]

    assert torch.equal(replaced(0.0), before)
    assert not torch.isclose(replaced(0.1), before).any()


def test_gradients_reach_the_shared_layers_and_nothing_else():
    encoder = in_training().train()
    encoder({"sentences": ntdv_batch().rows["sentences"]})["translation"].sum().backward()
    shared = ("model.gru.", "model.query.", "model.key.", "model.value.", "to_decoder.")
    reached = {name for name, weight in encoder.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert reached == {name for name, _ in encoder.named_parameters() if name.startswith(shared)}
    assert not any(part.training for part in (*encoder.model.encoders, *encoder.decoders))


@pytest.mark.parametrize("num_negatives", [2, 20])
def test_the_distance_constraint_of_cnv_is_equations_3_6_to_3_8(num_negatives):
    """Both ways. Negatives are other sentences in the translation's language; of more than N_s some are drawn."""
    alpha = 2 * math.sqrt(5)
    options = SquaredDistance(margin=alpha, num_negatives=num_negatives)
    contexts = torch.randn(2, 7, 3, 5, generator=torch.Generator().manual_seed(0))
    contexts[1] = contexts[0] + 0.9 * contexts[1]
    concepts = torch.tensor([10, 11, 12, 13, 14, 10, 16])  # of one sentence there are two translations
    languages = torch.tensor([[1] * 7, [3] * 7])

    def frobenius(matrix: Tensor) -> float:
        return math.sqrt(sum(float(value) ** 2 for value in matrix.flatten()))

    v_norm = sum(frobenius(matrix) for side in contexts for matrix in side) / 14
    expected, costing = 0.0, 0
    for side in (0, 1):
        others = concepts[:, None] != concepts[None, :]
        drawn = drawn_by_lot(others, concepts, concepts, num_negatives)
        assert drawn.sum(dim=1).tolist() == [min(num_negatives, int(count)) for count in others.sum(dim=1)]
        for row in range(7):
            for j in drawn[row].nonzero().flatten():
                k = frobenius(contexts[side][row] - contexts[1 - side][row]) ** 2
                k -= frobenius(contexts[side][row] - contexts[1 - side][j]) ** 2
                negative_distance = max(0.0, alpha + alpha * k / (2 * v_norm + 1))
                expected += negative_distance / 14
                costing += negative_distance > 0
    assert 0 < costing < drawn.sum() * 2
    batch = SentenceBatch({}, {}, concepts, languages, [])
    loss = LOSSES["squared_distance"](PairVectors({"sentences": contexts.flatten(0, 1).flatten(1)}, batch), options)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_translation_loss_is_the_mean_over_the_tokens_of_both_ways():
    """Twice that is l_ab + l_ba of equation 3.8 over the tokens of a sentence."""
    batch = ntdv_batch()
    found = in_training()(batch.rows)
    loss = LOSSES["translation"](PairVectors(found, batch), BothWays())
    texts = [text for pair in PAIRS for text in (pair.first, pair.second)]
    tokens = sum(len(unigram_tokenizer()(text)["input_ids"]) - 1 for text in texts)
    assert loss.item() == pytest.approx(found["translation"].sum().item() / tokens, rel=1e-5)


def test_the_shared_layers_have_the_published_sizes():
    """Table 3.1, with the states of Nematus below: 1024 in either direction. On no memory."""
    with torch.device("meta"):
        models = {vector: NTDVModel(NTDVConfig(vector=vector)) for vector in ("sum", "concat")}
    assert {vector: model.config.hidden_size for vector, model in models.items()} == {"sum": 1024, "concat": 4096}
    assert models["sum"].gru.weight_ih_l0.shape == (3 * 1024, 2048)
    assert models["sum"].query.weight.shape == (4 * 1024, 1024)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English and German alone."""
    folder = write_pairs(tmp_path_factory.mktemp("parallel"))
    (folder / "pairs" / "en-fr.parquet").unlink()
    return folder


@pytest.fixture(scope="module")
def translators(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first phase: German to English, and back with the same tokenizer. The other order than an NTDV's."""
    folder = tmp_path_factory.mktemp("translators")
    into = {"de-en": {"vocabulary_size": 60, "target_language": "en"}}
    into["en-de"] = {"tokenizer": folder / "de-en", "target_language": "de"}
    for name, changes in into.items():
        train_translator.main(arguments(corpus, folder / name, **TRANSLATOR, **changes, max_steps=6))
        AcceleratorState._reset_state(reset_partial_state=True)
    return [folder / name for name in into]


def ntdv_arguments(corpus: Path, folders: list[Path], output: Path, **changes: object) -> list[str]:
    values = NTDV | {"translators": [str(folder) for folder in reversed(folders)], "max_steps": 6} | changes
    return arguments(corpus, output, **values)


@pytest.fixture(scope="module")
def trained(corpus: Path, translators: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second phase: a cNV."""
    output = tmp_path_factory.mktemp("trained") / "ntdv"
    pretrain.main(ntdv_arguments(corpus, translators, output))
    AcceleratorState._reset_state(reset_partial_state=True)
    return output


@pytest.mark.slow
def test_a_translator_knows_its_languages_and_its_card_what_it_is(translators):
    ways = [AutoModel.from_pretrained(folder).config for folder in translators]
    assert [(config.source_language, config.target_language) for config in ways] == [("de", "en"), ("en", "de")]
    card = (translators[0] / "README.md").read_text()
    assert "A translation (NMT) model" in card
    assert "The share of the tokens of dev translations" in card
    assert (translators[0] / "tokenizer.json").read_text() == (translators[1] / "tokenizer.json").read_text()


@pytest.mark.slow
def test_what_is_frozen_stays_bit_for_bit_and_what_is_shared_moves(trained, translators):
    """Between checkpoints, and beside the folders that were named, in the order of the pivots."""
    checkpoints = sorted((trained.parent / "ntdv-training" / "checkpoints").glob("step-*"))
    before, after = (load_file(folder / "model.safetensors") for folder in (checkpoints[0], checkpoints[-1]))
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert {name.split(".")[1 if name.startswith("model") else 0] for name in moved} == {
        *("gru", "query", "key", "value", "to_decoder")
    }
    kept = load_file(trained / "model.safetensors")
    for language, folder in enumerate(translators[::-1]):
        for name, weight in load_file(folder / "model.safetensors").items():
            assert torch.equal(kept[f"encoders.{language}.{name}"], weight)
        for name in load_file(folder / "decoder.safetensors"):
            assert f"decoders.{language}.{name}" not in after  # frozen weights are in no checkpoint


@pytest.mark.slow
def test_both_losses_fall(corpus, translators, tmp_path, monkeypatch):
    logged = logged_values(monkeypatch)
    longer = {"max_steps": 90, "epochs": 30, "learning_rate": 0.01, "eval_steps": 100, "save_steps": 100}
    pretrain.main(ntdv_arguments(corpus, translators, tmp_path / "ntdv", **longer))
    AcceleratorState._reset_state(reset_partial_state=True)
    for name in ("translation_loss", "squared_distance_loss"):
        losses = logged[name]
        assert np.mean(losses[-10:]) < 0.99 * np.mean(losses[:10]), name  # the frozen decoders know little


def test_the_weight_of_a_word_is_how_many_times_as_often_the_second_language_has_it(tmp_path):
    """The table has German first, the pivots English."""
    german, english = ["Die Katze lag.", "Der Hund sah die Katze."], ["The cat sat there.", "See the cat: the dog"]
    rows = [
        {"id": str(index), "first": first, "second": second, "split": "train"}
        for index, (first, second) in enumerate(zip(german, english))
    ]
    write_table(tmp_path / "pairs" / "de-en.parquet", rows)
    tokenizer = unigram_tokenizer()
    found = language_evidence(DrawnPairs(tmp_path, "train"), tokenizer, 100, ["en", "de"])
    counts = [Counter(id for text in texts for id in tokenizer(text)["input_ids"][1:-1]) for texts in (english, german)]
    special = {*tokenizer.all_special_ids}
    totals = [len(tokenizer) + sum(n for id, n in one_by_one.items() if id not in special) for one_by_one in counts]
    for id in range(len(tokenizer)):
        english_share, german_share = ((1 + one_by_one[id]) / total for one_by_one, total in zip(counts, totals))
        expected = 0.0 if id in special else math.log(german_share / english_share)
        assert found[id].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_dev_sentences_are_told_apart_by_their_words(trained):
    model, tokenizer = AutoModel.from_pretrained(trained), AutoTokenizer.from_pretrained(trained)
    for language, template in enumerate(SENTENCES["de"]):
        rows = tokenizer([template.format("qqq", "jj"), template.format("xyz", "k")], padding=True, return_tensors="pt")
        assert model.identify(rows["input_ids"], rows["attention_mask"]).tolist() == [language] * 2
    assert model.config.languages == ["en", "de"]


@pytest.mark.slow
def test_a_folder_can_be_read_by_the_sum_of_its_heads_too(trained):
    concatenated, added = AutoModel.from_pretrained(trained), AutoModel.from_pretrained(trained, vector="sum")
    expected = concatenated(IDS, MASK).pooler_output.unflatten(-1, (3, -1)).sum(dim=1)
    torch.testing.assert_close(added(IDS, MASK).pooler_output, expected)


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one(corpus, translators, tmp_path, monkeypatch):
    arguments = partial(ntdv_arguments, corpus, translators, max_tokens_per_chunk=60, max_steps=1)
    two_have_the_gradients_of_one(pretrain.main, monkeypatch, arguments, tmp_path, [{}, FSDP2], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_language": "fr"}, "has pairs of en-de, and the recipe names fr; a translation model, and an NTDV"),
        ({"architecture": {"model_type": "laser"}}, "has an encoder of model_type gru, and not laser"),
        ({"tokenizer": "nowhere"}, "vocabulary_size and tokenizer each say what the tokenizer is; give one"),
        ({"tokenizer": "nowhere", "vocabulary_size": None}, "tokenizer: nowhere does not open"),
    ],
)
def test_a_translator_that_cannot_be_is_refused(corpus, tmp_path, changes, message):
    values = TRANSLATOR | {"vocabulary_size": 60, "target_language": "en"} | changes
    with pytest.raises(ValueError, match=message):
        train_translator.main(arguments(corpus, tmp_path / "model", **values))
    assert not (tmp_path / "model").exists()


def test_a_translator_of_more_than_two_languages_is_refused(tmp_path):
    corpus = write_pairs(tmp_path / "parallel")
    values = TRANSLATOR | {"vocabulary_size": 60, "target_language": "en"}
    with pytest.raises(ValueError, match=r"has pairs of en-de, en-fr, .*; a translation model, and an NTDV, knows two"):
        train_translator.main(arguments(corpus, tmp_path / "model", **values))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"translators": ["nowhere", "elsewhere"]}, "translators: nowhere does not open"),
        ({"translators": ["nowhere"]}, "translators"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"vector": "mean"}, "vector"),
        ({"losses": {"align": {"weight": 1.0}}}, "align"),
        ({"pooling": "mean"}, "pooling"),
    ],
)
def test_an_ntdv_that_cannot_be_is_refused(corpus, translators, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        pretrain.main(ntdv_arguments(corpus, translators, tmp_path / "model", **changes))
    assert not (tmp_path / "model").exists()


def without_decoder(folder: Path) -> None:
    (folder / "decoder.safetensors").unlink()


def other_languages(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"source_language": "fr"}))


def other_tokenizer(folder: Path) -> None:
    unigram_tokenizer().save_pretrained(folder)


def other_sizes(folder: Path) -> None:
    config = GRUConfig(vocab_size=60, embedding_size=8, hidden_size=32, source_language="en", target_language="de")
    model = GRUModel(config)
    model.save_pretrained(folder)
    save_file(GRUDecoder(config).state_dict(), folder / "decoder.safetensors")


def other_model(folder: Path) -> None:
    LaserModel(LaserConfig(vocab_size=60, embedding_size=8, hidden_size=32)).save_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_decoder, r"en-de has no decoder\.safetensors; train it again, and keep that file"),
        (
            other_languages,
            r"translators translate fr-de and de-en; name two translation models, of which one translates back",
        ),
        (
            other_tokenizer,
            r"the tokenizer of .*en-de is not that of .*de-en, but an NTDV has one; train the second again",
        ),
        (other_sizes, r"differ in .*embedding_size, but an NTDV shares what is above them; train both with the same"),
        (other_model, r"en-de holds a model of type laser; an NTDV stands on models of type gru"),
    ],
)
def test_translators_that_do_not_belong_together_are_refused(corpus, translators, tmp_path, damage, message):
    shutil.copytree(translators[1], tmp_path / "en-de")
    damage(tmp_path / "en-de")
    with pytest.raises(ValueError, match=message):
        pretrain.main(ntdv_arguments(corpus, [translators[0], tmp_path / "en-de"], tmp_path / "model"))
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_the_same_way_twice_is_refused(corpus, translators, tmp_path):
    shutil.copytree(translators[0], tmp_path / "again")
    with pytest.raises(ValueError, match="translators translate de-en and de-en; name two translation models"):
        pretrain.main(ntdv_arguments(corpus, [translators[0], tmp_path / "again"], tmp_path / "model"))
