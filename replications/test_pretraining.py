"""Pretraining of the replications' sentence encoders end to end, on tiny models."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from replications.sentences.pairs import Pair
from replications.t_mde.data import DrawnPairs
from replications.t_mde.losses import Distance
from replications.t_mde.new_encoder import train_tokenizer
from replications.t_mde.pretrain import TMDELosses, TMDERecipe, tmde_encoder
from tests.pretraining import FSDP2, goes_on_bit_for_bit, two_have_the_gradients_of_one
from tests.sentence_pairs import (
    CTMDE_OPTIONS,
    NO_DROPOUT,
    STUDENT,
    TMDE,
    TMDE_ARCHITECTURE,
    options,
    train,
    write_pairs,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("parallel"))


def test_a_draw_is_the_same_for_the_same_seed_and_epoch_and_changes_with_either(pairs):
    def draws(seed: int, epoch: int) -> list[Pair]:
        drawn = DrawnPairs(pairs, "train", seed=seed)
        drawn.set_epoch(epoch)
        return [drawn[index] for index in range(len(drawn))]

    assert draws(1, 0) == draws(1, 0)
    assert draws(1, 0) != draws(1, 1)
    assert draws(1, 0) != draws(2, 0)


@pytest.fixture(params=["student", "ctmde"])
def run(request: pytest.FixtureRequest, pairs, xlmr, labse, tmp_path) -> tuple[str, list[str]]:
    """The command and the options of a run of each kind."""
    command, start, changes = {
        "student": (STUDENT, xlmr, {"losses": {"distillation": {"teacher": str(labse)}}, "layers": [1]}),
        "ctmde": (TMDE, None, CTMDE_OPTIONS),
    }[request.param]
    return command, options(pairs, start, tmp_path / "model", **changes, max_steps=4)


def test_a_run_leaves_an_encoder_that_the_auto_classes_and_hmde_open(run, pairs, tmp_path):
    train(*run)
    folder = str(tmp_path / "model")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    inputs = tokenizer(["The cat sat.", "Le chat dort ici."], padding=True, return_tensors="pt")
    states = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
    assert states.isfinite().all()
    hmde = HMDEForDocumentEmbedding.from_sentence_encoder(
        folder, sentence_pooling="mean", num_document_attention_heads=4
    )
    queries = hmde.encode_queries(["The cat sat."], HMDETokenizer.from_sentence_encoder(folder))
    mean = states[0][inputs["attention_mask"][0] == 1].mean(dim=0).detach().numpy()
    np.testing.assert_allclose(queries[0], mean / np.linalg.norm(mean), atol=1e-4)
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert card.data.language == ["de", "en", "fr"]
    assert "| step | en-de | en-fr | mean |" in card.text
    training = tmp_path / "model-training"
    assert {"kept", "checkpoints"} <= {path.name for path in training.iterdir()}


@pytest.mark.parametrize("keep", [True, False])
def test_the_decoder_is_dropped_or_kept_for_a_run_that_goes_on_from_the_folder(pairs, tmp_path, keep):
    first = CTMDE_OPTIONS | {"losses": {"translation": {"keep_decoder": keep}}, "max_steps": 3}
    train(TMDE, options(pairs, None, tmp_path / "model", **first))
    assert (tmp_path / "model" / "decoder.safetensors").exists() == keep
    _, loading = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    losses = TMDELosses(distance=Distance())
    start = str(tmp_path / "model")
    recipe = TMDERecipe(corpus="", output="", max_length=100, sentence_encoder=start, losses=losses)
    tokenizer = AutoTokenizer.from_pretrained(start)
    encoder = tmde_encoder(recipe, tokenizer)
    if keep:
        kept = load_file(tmp_path / "model" / "decoder.safetensors")
        assert all(torch.equal(weight, kept[name]) for name, weight in encoder.decoder.state_dict().items())
        losses.translation.pivots = ["en"]
        with pytest.raises(ValueError, match=r"decoder.safetensors is of another decoder than the recipe says; give"):
            tmde_encoder(recipe, tokenizer)


def test_sinusoidal_positions_are_those_of_the_transformer_and_stay(pairs, tmp_path):
    train(TMDE, options(pairs, None, tmp_path / "model", **CTMDE_OPTIONS, max_steps=3))
    table = AutoModel.from_pretrained(tmp_path / "model").embeddings.position_embeddings.weight
    for place, column in ((0, 0), (7, 4), (199, 13)):
        angle = place / 10_000 ** (2 * (column // 2) / 32)
        expected = (math.cos if column % 2 else math.sin)(angle) * 0.02 * math.sqrt(2)
        assert table[place, column].item() == pytest.approx(expected, abs=1e-6)
    recipe = TMDERecipe(corpus="", output="", max_length=100, sentence_encoder=str(tmp_path / "model"))
    going_on = tmde_encoder(recipe, AutoTokenizer.from_pretrained(tmp_path / "model")).model
    positions = going_on.embeddings.position_embeddings.weight
    assert torch.equal(positions, table)
    assert not positions.requires_grad
    new = CTMDE_OPTIONS | {"architecture": {"model_type": "modernbert", "hidden_size": 48}, "max_length": 30}
    with pytest.raises(ValueError, match="sinusoidal_positions: a modernbert model has no table of positions"):
        train(TMDE, options(pairs, None, tmp_path / "other", **new))


def test_a_decoder_cannot_take_over_the_sizes_of_any_encoder(modernbert):
    recipe = TMDERecipe(corpus="", output="", sentence_encoder=str(modernbert))
    with pytest.raises(ValueError, match=r"a modernbert model has no hidden_act, .* take an encoder of BERT's"):
        tmde_encoder(recipe, AutoTokenizer.from_pretrained(modernbert))


def test_a_trained_vocabulary_cuts_and_joins_sentences_and_is_lower_case():
    sentences = ["The cat sat on the mat.", "Die Katze lag auf der Matte.", "Le chat dort."] * 9
    tokenizer = train_tokenizer(sentences, 60)
    assert len(tokenizer) <= 60
    ids = tokenizer("The CAT", "chat")["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True).split() == ["the", "cat", "chat"]
    assert [ids[0], ids.count(tokenizer.sep_token_id)] == [tokenizer.cls_token_id, 3]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer("☃")["input_ids"][2] == tokenizer.unk_token_id


SHORT = {
    "learning_rate": 1e-4,
    "gradient_accumulation_steps": 2,
    "max_steps": 2,
    "eval_steps": 2,
    "save_steps": 2,
    "architecture": NO_DROPOUT,
}


def all_losses(xlmr: Path) -> dict[str, tuple[str, dict[str, object]]]:
    """The command and the options of runs with all losses of a kind at once."""
    return {
        "student": (STUDENT, {"losses": {"align": {}, "distillation": {"teacher": str(xlmr)}}}),
        "ctmde": (TMDE, {"losses": {"translation": {}, "distance": {"num_negatives": 2}}}),
    }


@pytest.mark.parametrize("kind", ["student", "ctmde"])
def test_two_processes_have_the_gradients_of_one(pairs, xlmr, tmp_path, monkeypatch, kind):
    """With all losses at once, accumulation, and chunks of rows that do not reach every weight."""
    command, changes = all_losses(xlmr)[kind]
    changes = SHORT | changes | {"max_tokens_per_chunk": 60}
    run, arguments = functools.partial(train, command), functools.partial(options, pairs, xlmr, **changes)
    assert len(two_have_the_gradients_of_one(run, monkeypatch, arguments, tmp_path, [{}, FSDP2])) == 2


@pytest.mark.parametrize("kind", ["student", "ctmde"])
def test_a_killed_run_of_two_processes_goes_on_bit_for_bit(pairs, xlmr, tmp_path, kind):
    """With dropout and draws: killed in its last step, it does the last two again, from its checkpoint."""
    command, changes = all_losses(xlmr)[kind]
    changes = SHORT | changes | {"architecture": {}, "max_steps": 4, "batch_size": 2}
    arguments = options(pairs, xlmr, tmp_path / "model", **changes)

    goes_on_bit_for_bit(functools.partial(train, command), arguments, tmp_path, processes=2)


@pytest.mark.parametrize(
    ("command", "changes", "message"),
    [
        (TMDE, {"vocabulary_size": 100}, "belong to its tokenizer; leave vocabulary_size out"),
        (TMDE, {"losses": {"translation": {"pivots": ["fr"]}}}, "has pairs of en-de, of which neither is among pivo"),
        (TMDE, {"losses": {"translation": {"pivots": []}}}, "of which neither is among pivots"),
        (TMDE, {"losses": {"translation": {"label_smoothing": 1.0}}}, "label_smoothing"),
        (TMDE, {"losses": {"distance": {"num_negatives": 0}}}, "num_negatives"),
        (TMDE, {"losses": {"distance": {"margin": -1.0}}}, "margin"),
        (TMDE, {"sinusoidal_positions": True}, "has positions of its own; leave sinusoidal_positions"),
    ],
)
def test_a_bad_recipe_is_refused_before_anything_is_written(pairs, xlmr, tmp_path, command, changes, message):
    with pytest.raises(ValueError, match=message):
        train(command, options(pairs, xlmr, tmp_path / "model", **changes))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": {}}, "a new encoder needs its model_type in architecture and a vocabulary_size"),
        ({"architecture": {"model_type": "birt"}}, "there is no model_type 'birt'"),
        ({"architecture": {"model_type": "bert", "num_layerz": 2}}, "bert has no field num_layerz"),
    ],
)
def test_a_new_encoder_that_cannot_be_is_refused(pairs, tmp_path, changes, message):
    new = {"architecture": TMDE_ARCHITECTURE, "vocabulary_size": 60} | changes
    with pytest.raises(ValueError, match=message):
        train(TMDE, options(pairs, None, tmp_path / "model", **new))
