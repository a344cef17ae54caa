"""Pretraining of sentence encoders end to end, on tiny models."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, DistilBertConfig, DistilBertModel

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.pretraining import gradients, in_processes
from tests.sentence_pairs import CLASER, CTMDE, CTMDE_P, INFOXLM, LIGHTWEIGHT, NO_DROPOUT, options, write_pairs
from training import pretrain_sentences
from training.data.parallel import DevPairs
from training.recipes import PretrainSentencesRecipe
from training.sentence_models import SentenceEncoder, build_sentence_encoder, train_tokenizer

TINY = {
    "model_type": "bert",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_act": "silu",
}


pytestmark = pytest.mark.usefixtures("fresh_accelerator")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("parallel"))


@pytest.fixture(params=["infoxlm", "lightweight", "student", "new", "ctmde", "ctmde_p", "claser"])
def run(request: pytest.FixtureRequest, pairs, xlmr, labse, tmp_path) -> list[str]:
    """The options of a run of each kind."""
    start, changes = {
        "infoxlm": (xlmr, INFOXLM),
        "lightweight": (labse, LIGHTWEIGHT),
        "student": (xlmr, {"objectives": '{"distillation": 1.0}', "teacher": labse, "layers": "[1]"}),
        "ctmde": (None, CTMDE),
        "ctmde_p": (None, CTMDE_P),
        "claser": (None, CLASER),
        "new": (None, LIGHTWEIGHT | {"architecture": json.dumps(TINY), "vocabulary_size": 60}),
    }[request.param]
    return options(pairs, start, tmp_path / "model", **changes, max_steps=4)


def test_a_run_leaves_an_encoder_that_the_auto_classes_and_hmde_open(run, pairs, tmp_path):
    pretrain_sentences.main(run)
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
    assert ("trust_remote_code" in card.text) == bool([*Path(folder).glob("*.py")])
    assert "| step | en-de | en-fr | mean |" in card.text
    training = tmp_path / "model-training"
    assert {"kept", "checkpoints"} <= {path.name for path in training.iterdir()}


def test_the_kept_encoder_has_the_score_of_its_card(pairs, xlmr, tmp_path):
    changes = {"objectives": '{"align": 1.0}', "architecture": NO_DROPOUT, "epochs": 12, "prompt": "See: "}
    pretrain_sentences.main(options(pairs, xlmr, tmp_path / "model", **changes))
    card = ModelCard.load(tmp_path / "model" / "README.md")
    rows = [line.split(" | ") for line in card.text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    scores = {int(row[0].strip("| ")): float(row[-1].strip("| ")) for row in rows}
    assert scores[max(scores)] > scores[0]
    encoder = SentenceEncoder(AutoModel.from_pretrained(tmp_path / "model"), "mean")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")

    def encode(sentences: list[str]) -> np.ndarray:
        return encoder.encode([f"See: {sentence}" for sentence in sentences], tokenizer, 128, 1000)

    assert DevPairs(pairs, 1000, 42).evaluate(encode)["p_at_1"] == pytest.approx(max(scores.values()), abs=5e-4)


@pytest.mark.parametrize(("keep", "kept"), [("best", 0), ("last", 2)])
def test_the_last_step_is_kept_where_the_recipe_says_so(pairs, xlmr, tmp_path, monkeypatch, keep, kept):
    scores = iter([0.9, 0.5, 0.7])
    monkeypatch.setattr(DevPairs, "evaluate", lambda *_: {"p_at_1": next(scores)})
    changes = {"objectives": '{"align": 1.0}', "max_steps": 2, "eval_steps": 1, "warmup_steps": 0, "keep": keep}
    pretrain_sentences.main(options(pairs, xlmr, tmp_path / "model", **changes))
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert f"The model kept is that of optimizer step {kept} of 2." in card.text
    (checkpoint,) = (tmp_path / "model-training" / "checkpoints").glob("*00002")
    last = load_file(checkpoint / "model.safetensors")
    model = AutoModel.from_pretrained(tmp_path / "model")
    same = [torch.equal(weight, last[f"model.{name}"]) for name, weight in model.named_parameters() if "dense" in name]
    assert all(same) == (keep == "last")


def test_every_loss_of_a_run_falls(pairs, xlmr, tmp_path, monkeypatch):
    logged: dict[str, list[float]] = {}

    def note(accelerator: Accelerator, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            if name.endswith("_loss"):
                logged.setdefault(name, []).append(value)

    monkeypatch.setattr(Accelerator, "log", note)
    objectives = {"mmlm": 1.0, "tlm": 1.0, "ugt": 1.0, "align": 1.0, "distillation": 1.0}
    changes = {"objectives": json.dumps(objectives), "teacher": xlmr, "layers": "[0]", "architecture": NO_DROPOUT}
    pretrain_sentences.main(options(pairs, xlmr, tmp_path / "model", **changes, epochs=10, eval_steps=100))
    assert logged.keys() == {f"{name}_loss" for name in objectives}
    for name, losses in logged.items():
        assert np.mean(losses[-8:]) < 0.95 * np.mean(losses[:8]), name


@pytest.mark.parametrize("keep", [True, False])
def test_the_head_that_predicts_words_is_kept_or_dropped(pairs, xlmr, tmp_path, keep):
    changes = {"objectives": '{"mmlm": 1.0}', "keep_mlm_head": str(keep).lower(), "max_steps": 1}
    pretrain_sentences.main(options(pairs, xlmr, tmp_path / "model", **changes))
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert any("lm_head" in name for name in weights) == keep
    _, loading = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not loading["missing_keys"]
    if keep:
        _, loading = AutoModelForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
        assert not loading["missing_keys"]


@pytest.mark.parametrize("keep", [True, False])
def test_the_decoder_is_dropped_or_kept_for_a_run_that_goes_on_from_the_folder(pairs, tmp_path, keep):
    first = CTMDE | {"objectives": '{"translation": 1.0}', "keep_decoder": str(keep).lower(), "max_steps": 3}
    pretrain_sentences.main(options(pairs, None, tmp_path / "model", **first))
    assert (tmp_path / "model" / "decoder.safetensors").exists() == keep
    _, loading = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    second = {"sentence_encoder": str(tmp_path / "model"), "objectives": {"translation": 0.5, "distance": 0.25}}
    recipe = PretrainSentencesRecipe(corpus="", output="", pooling="cls", max_length=100, **second)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    encoder = build_sentence_encoder(recipe, tokenizer)
    if keep:
        kept = load_file(tmp_path / "model" / "decoder.safetensors")
        assert all(torch.equal(weight, kept[name]) for name, weight in encoder.decoder.state_dict().items())
        recipe.pivots = ["en"]
        with pytest.raises(ValueError, match=r"decoder.safetensors is of another decoder than the recipe says; give"):
            build_sentence_encoder(recipe, tokenizer)


def test_sinusoidal_positions_are_those_of_the_transformer_and_stay(pairs, tmp_path):
    pretrain_sentences.main(options(pairs, None, tmp_path / "model", **CTMDE, max_steps=3))
    table = AutoModel.from_pretrained(tmp_path / "model").embeddings.position_embeddings.weight
    for place, column in ((0, 0), (7, 4), (199, 13)):
        angle = place / 10_000 ** (2 * (column // 2) / 32)
        expected = (math.cos if column % 2 else math.sin)(angle) * 0.02 * math.sqrt(2)
        assert table[place, column].item() == pytest.approx(expected, abs=1e-6)
    new = CTMDE | {"architecture": json.dumps({"model_type": "modernbert", "hidden_size": 48}), "max_length": 30}
    with pytest.raises(ValueError, match="sinusoidal_positions: a modernbert model has no table of positions"):
        pretrain_sentences.main(options(pairs, None, tmp_path / "other", **new))


def test_a_decoder_cannot_take_over_the_sizes_of_any_encoder(modernbert):
    recipe = PretrainSentencesRecipe(
        corpus="", output="", sentence_encoder=str(modernbert), objectives={"translation": 1.0}
    )
    with pytest.raises(ValueError, match=r"a modernbert model has no hidden_act, .* take an encoder of BERT's"):
        build_sentence_encoder(recipe, AutoTokenizer.from_pretrained(modernbert))


@pytest.mark.parametrize("schedule", ["linear", "inverse_sqrt"])
def test_the_learning_rate_rises_and_falls_as_the_schedule_says(pairs, xlmr, tmp_path, monkeypatch, schedule):
    rates = {}

    def note(accelerator: Accelerator, values: dict[str, float], step: int) -> None:
        if "learning_rate" in values:
            rates[step] = values["learning_rate"]

    monkeypatch.setattr(Accelerator, "log", note)
    changes = {"objectives": '{"align": 1.0}', "schedule": schedule, "max_steps": 8, "warmup_steps": 2}
    pretrain_sentences.main(options(pairs, xlmr, tmp_path / "model", **changes))
    assert rates[1] == pytest.approx(0.5e-3)
    assert rates[2] == pytest.approx(1e-3)
    for step in (3, 8):
        falling = {"linear": (8 - step) / 6, "inverse_sqrt": math.sqrt(2 / step)}[schedule]
        assert rates[step] == pytest.approx(1e-3 * falling)


@pytest.mark.parametrize("name", ["labse", "xlmr", "modernbert"])
def test_masked_words_are_predicted_as_the_auto_class_predicts_them(name, request):
    folder = request.getfixturevalue(name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    recipe = PretrainSentencesRecipe(corpus="", output="", sentence_encoder=str(folder), objectives={"mmlm": 1.0})
    encoder = build_sentence_encoder(recipe, tokenizer).eval()
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, tokenizer.pad_token_id]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    labels = torch.tensor([[-100, 12, -100, 13], [14, -100, -100, -100]])
    found = encoder({"mmlm": {"input_ids": ids, "attention_mask": mask, "labels": labels}})["mmlm"]
    logits = encoder.model(input_ids=ids, attention_mask=mask).logits
    expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(dim=1)
    torch.testing.assert_close(found[:, 0], expected)


def test_the_kept_layers_are_those_of_the_start(xlmr):
    tokenizer = AutoTokenizer.from_pretrained(xlmr)
    start = AutoModel.from_pretrained(xlmr)
    options = {"corpus": "", "output": "", "sentence_encoder": str(xlmr), "objectives": {"mmlm": 1.0}}
    model = build_sentence_encoder(PretrainSentencesRecipe(**options, layers=[1]), tokenizer).model
    assert model.config.num_hidden_layers == model.base_model.config.num_hidden_layers == 1
    kept, expected = model.base_model.encoder.layer[0].state_dict(), start.encoder.layer[1].state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in expected.items())


def test_vectors_are_those_of_the_layer_and_the_pooling_that_the_recipe_names(xlmr):
    model = AutoModel.from_pretrained(xlmr).eval()
    ids, mask = torch.tensor([[0, 6, 7, 2], [0, 8, 2, 1]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    states = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    for layer in (1, 2, None):
        expected = states[2 if layer is None else layer]
        cls, mean = (
            SentenceEncoder(model, pooling, layer).sentence_vectors({"input_ids": ids, "attention_mask": mask})
            for pooling in ("cls", "mean")
        )
        torch.testing.assert_close(cls, expected[:, 0])
        torch.testing.assert_close(mean[1], expected[1, :3].mean(dim=0))


def test_a_trained_vocabulary_cuts_and_joins_sentences_and_is_lower_case():
    sentences = ["The cat sat on the mat.", "Die Katze lag auf der Matte.", "Le chat dort."] * 9
    tokenizer = train_tokenizer(sentences, 60)
    assert len(tokenizer) <= 60
    ids = tokenizer("The CAT", "chat")["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True).split() == ["the", "cat", "chat"]
    assert [ids[0], ids.count(tokenizer.sep_token_id)] == [tokenizer.cls_token_id, 3]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer("☃")["input_ids"][2] == tokenizer.unk_token_id


FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "NO_WRAP"}
ALL = {
    "objectives": json.dumps(
        dict.fromkeys(
            ["mmlm", "tlm", "xlco", "ugt", "align", "similarity", "distillation", "translation", "distance"], 1.0
        )
    ),
    "num_negatives": 2,
    "queue_size": 8,  # whole batches, of which processes have the pairs in another order
    "queue_momentum": 0.9,
    "sentence_layer": 1,
    "architecture": NO_DROPOUT,
    "learning_rate": 1e-4,
    "gradient_accumulation_steps": 2,
    "max_steps": 2,
    "eval_steps": 2,
    "save_steps": 2,
}


@pytest.mark.parametrize(
    ("environment", "max_tokens_per_chunk"),
    [({}, 4096), ({}, 60), (FSDP2, 60)],
    ids=["ddp-whole", "ddp-in-chunks", "fsdp2-in-chunks"],
)
def test_two_processes_have_the_gradients_of_one(pairs, xlmr, tmp_path, monkeypatch, environment, max_tokens_per_chunk):
    """With all objectives at once, accumulation, and chunks of rows that do not reach every weight."""
    changes = ALL | {"teacher": xlmr, "max_tokens_per_chunk": max_tokens_per_chunk}
    one = options(pairs, xlmr, tmp_path / "one", **changes, batch_size=4)
    two = options(pairs, xlmr, tmp_path / "two", **(changes | {"batch_size": 2}))
    expected = gradients(pretrain_sentences.main, monkeypatch, 1, one, tmp_path / "of-one")
    found = gradients(pretrain_sentences.main, monkeypatch, 2, two, tmp_path / "of-two", **environment)
    assert len(expected) == 2
    for before, after in zip(expected, found):
        assert before.keys() == after.keys()
        for name, gradient in before.items():
            torch.testing.assert_close(after[name], gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("start", [CTMDE_P, CLASER], ids=["ctmde_p", "claser"])
def test_two_processes_have_the_gradients_of_one_in_encoders_of_our_own(pairs, tmp_path, monkeypatch, start):
    architecture = json.loads(start["architecture"])
    architecture |= {name: value for name, value in json.loads(NO_DROPOUT).items() if name in architecture}
    changes = start | {"architecture": json.dumps(architecture), "max_tokens_per_chunk": 60, "max_steps": 1}
    one = options(pairs, None, tmp_path / "one", **changes, batch_size=4)
    two = options(pairs, None, tmp_path / "two", **changes, batch_size=2)
    (expected,) = gradients(pretrain_sentences.main, monkeypatch, 1, one, tmp_path / "of-one")
    (tokenizer,) = (tmp_path / "one-training").glob("tokenizer-*")  # trained twice, it may not come out the same
    shutil.copytree(tokenizer, tmp_path / "two-training" / tokenizer.name)
    (found,) = gradients(pretrain_sentences.main, monkeypatch, 2, two, tmp_path / "of-two")
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        # Words that start small are normalised: that makes gradients large, and with them what rounding does.
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_goes_on_bit_for_bit(pairs, xlmr, tmp_path, processes):
    """With dropout, masks, mixup, a queue, a momentum encoder and a teacher."""
    changes = ALL | {"teacher": xlmr, "architecture": "{}", "max_steps": 6, "batch_size": 2}

    def run(name: str, *more: str, kill_at: int = 0) -> list[int | None]:
        log = Accelerator.log

        def note(accelerator: Accelerator, values: dict[str, float], step: int) -> None:
            if accelerator.is_main_process and "mmlm_loss" in values:
                kept = sorted(
                    (key, value.hex()) for key, value in values.items() if "loss" in key or key == "grad_norm"
                )
                with (tmp_path / f"{name}.txt").open("a") as file:
                    file.write(f"{step} {kept}\n")
            if kill_at and step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            log(accelerator, values, step=step)

        def work(rank: int) -> None:
            Accelerator.log = note
            pretrain_sentences.main([*options(pairs, xlmr, tmp_path / name, **changes), *more])

        return in_processes(processes, work)

    assert run("whole") == [0] * processes
    assert run("killed", kill_at=3)[0] == -signal.SIGKILL
    (tmp_path / "killed.txt").unlink()
    assert run("killed", "--resume", "true") == [0] * processes
    expected, found = ((tmp_path / f"{name}.txt").read_text().splitlines() for name in ("whole", "killed"))
    assert found == expected[2:]
    before, after = (
        load_file(tmp_path / f"{name}-training" / "checkpoints" / "step-00000006" / "model.safetensors")
        for name in ("whole", "killed")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": "nowhere"}, "nowhere has no pairs/<one>-<other>.parquet"),
        ({"sentence_encoder": "nowhere"}, "sentence_encoder: nowhere is no model folder"),
        ({"teacher": "nowhere", "objectives": '{"distillation": 1.0}'}, "teacher: nowhere is no model folder"),
        ({"teacher": "somewhere"}, "a teacher needs the objective distillation"),
        ({"objectives": '{"distillation": 1.0}'}, "distillation needs a teacher"),
        ({"objectives": "{}"}, "objectives has no name; it must have some of mmlm, tlm"),
        ({"objectives": '{"mlm": 1.0}'}, "objectives has mlm; it must have some of mmlm, tlm"),
        ({"objectives": '{"mmlm": 0.0}'}, "the weight of objective mmlm is 0.0; it must be above 0"),
        ({"objectives": '{"ugt": 1.0, "xtr": 1.0}'}, "objectives has ugt and xtr, which take the same rows"),
        ({"objectives": '{"xlco": 1.0}'}, "queue_size is 0; it must be above 0 where xlco is"),
        ({"queue_size": 4}, "queue_size is 4; .* and 0 where it is not"),
        ({"queue_size": 17, "objectives": '{"xlco": 1.0}'}, "queue_size is 17, but .* has 16 training pairs"),
        ({"batch_size": 17}, "a batch of 17 examples over all processes is more than there are: 16"),
        ({"sentence_layer": 3}, "sentence_layer is 3, but the encoder has 2 layers; give one from 1 to 2"),
        ({"sentence_layer": 0}, "sentence_layer is 0, but the encoder has 2 layers"),
        ({"layers": "[2]"}, r"layers is \[2\], but the encoder has 2 layers; name some from 0 to 1"),
        ({"layers": "[]"}, r"layers is \[\], but the encoder has 2 layers"),
        ({"max_length": 600}, "max_length is 600, but the encoder has 514 positions"),
        ({"architecture": '{"num_layerz": 2}'}, "xlm-roberta has no field num_layerz"),
        ({"vocabulary_size": 100}, "belong to its tokenizer; leave vocabulary_size out"),
        (
            {"objectives": '{"translation": 1.0}', "pivots": "[fr]"},
            "has pairs of en-de, of which neither is among pivo",
        ),
        ({"objectives": '{"translation": 1.0}', "pivots": "[]"}, "pivots is empty"),
        ({"decoder": "lstm", "bottleneck": "false"}, "an lstm has no attention"),
        ({"keep_decoder": "true"}, "keep_decoder is true, but there is no objective translation"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0; it must be at least 0 and below 1"),
        ({"num_negatives": 0}, "num_negatives is 0; it must be at least 1"),
        ({"margin": -1.0}, "margin is -1.0; it must be at least 0"),
        ({"sinusoidal_positions": "true"}, "has positions of its own; leave sinusoidal_positions"),
        ({"keep_mlm_head": "true"}, "keep_mlm_head is true, but no objective trains the head"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"resume": "true"}, "no checkpoint to resume from"),
        ({"texts": "nowhere"}, r"nowhere has no articles/\*\.parquet with an article; make a corpus"),
    ],
)
def test_a_bad_recipe_is_refused_before_anything_is_written(pairs, xlmr, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        pretrain_sentences.main(
            options(pairs, xlmr, tmp_path / "model", **({"objectives": '{"align": 1.0}'} | changes))
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "{}"}, "a new encoder needs its model_type in architecture and a vocabulary_size"),
        ({"architecture": '{"model_type": "birt"}'}, "there is no model_type 'birt'"),
        ({"architecture": '{"model_type": "bert", "num_layerz": 2}'}, "bert has no field num_layerz"),
        ({"layers": "[0]"}, "a new encoder has none"),
    ],
)
def test_a_new_encoder_that_cannot_be_is_refused(pairs, tmp_path, changes, message):
    new = {"objectives": '{"align": 1.0}', "architecture": json.dumps(TINY), "vocabulary_size": 60} | changes
    with pytest.raises(ValueError, match=message):
        pretrain_sentences.main(options(pairs, None, tmp_path / "model", **new))


def test_a_student_narrower_than_its_teacher_is_refused(pairs, labse, tmp_path):
    new = {"architecture": json.dumps(TINY | {"hidden_size": 16}), "vocabulary_size": 60, "teacher": labse}
    with pytest.raises(
        ValueError, match="have 32 values and those of the student 16; give the student a hidden_size of 32"
    ):
        pretrain_sentences.main(options(pairs, None, tmp_path / "model", objectives='{"distillation": 1.0}', **new))


def test_a_head_of_another_kind_is_refused_rather_than_trained_wrongly(labse, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(labse)
    tokenizer.save_pretrained(tmp_path)
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    DistilBertModel(DistilBertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path)
    recipe = PretrainSentencesRecipe(corpus="", output="", sentence_encoder=str(tmp_path), objectives={"mmlm": 1.0})
    with pytest.raises(ValueError, match=r"the head of .* that predicts words is of a kind that is not known here"):
        build_sentence_encoder(recipe, tokenizer)


def test_a_loss_that_is_not_a_number_stops_the_run_and_names_its_pair(pairs, xlmr, tmp_path, monkeypatch):
    forward = SentenceEncoder.forward

    def spoil(encoder, chunk):
        embeddings = forward(encoder, chunk)
        embeddings["sentences"].data[1] = torch.nan
        return embeddings

    monkeypatch.setattr(SentenceEncoder, "forward", spoil)
    with pytest.raises(FloatingPointError, match=r"align_loss is nan in a batch in which the embeddings of \w+ \(en-"):
        pretrain_sentences.main(options(pairs, xlmr, tmp_path / "model", objectives='{"align": 1.0}'))
