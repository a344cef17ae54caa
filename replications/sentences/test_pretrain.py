"""Training of sentence encoders on pairs of sentences, on tiny models."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from replications.sentences import pretrain
from replications.sentences.encoder import SentenceEncoder, load_encoder, take_layers
from replications.sentences.pairs import DevPairs
from tests.sentence_pairs import NO_DROPOUT, logged_values, options, write_pairs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("parallel"))


def test_the_kept_encoder_has_the_score_of_its_card(pairs, xlmr, tmp_path):
    changes = {"losses": {"align": {}}, "architecture": NO_DROPOUT, "epochs": 12, "prompt": "See: "}
    pretrain.main(options(pairs, xlmr, tmp_path / "model", **changes))
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
    changes = {"losses": {"align": {}}, "max_steps": 2, "eval_steps": 1, "warmup_steps": 0, "keep": keep}
    pretrain.main(options(pairs, xlmr, tmp_path / "model", **changes))
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert f"The model kept is that of optimizer step {kept} of 2." in card.text
    (checkpoint,) = (tmp_path / "model-training" / "checkpoints").glob("*00002")
    last = load_file(checkpoint / "model.safetensors")
    model = AutoModel.from_pretrained(tmp_path / "model").state_dict()
    same = [torch.equal(model[name.removeprefix("model.")], weight) for name, weight in last.items() if "dense" in name]
    assert all(same) == (keep == "last")


@pytest.mark.parametrize("schedule", ["linear", "inverse_sqrt"])
def test_the_learning_rate_rises_and_falls_as_the_schedule_says(pairs, xlmr, tmp_path, monkeypatch, schedule):
    logged = logged_values(monkeypatch)
    changes = {"losses": {"align": {}}, "schedule": schedule, "max_steps": 8, "warmup_steps": 2}
    pretrain.main(options(pairs, xlmr, tmp_path / "model", **changes))
    falling = [{"linear": (8 - step) / 6, "inverse_sqrt": math.sqrt(2 / step)}[schedule] for step in range(3, 9)]
    assert logged["learning_rate"] == pytest.approx([1e-3 * factor for factor in (0.5, 1, *falling)])


def test_the_kept_layers_are_those_of_the_start(xlmr):
    model, start = (load_encoder(str(xlmr), {}, 128) for _ in range(2))
    take_layers(model, [1])
    assert model.config.num_hidden_layers == 1
    kept, expected = model.encoder.layer[0].state_dict(), start.encoder.layer[1].state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in expected.items())


def test_vectors_are_those_of_the_pooling_that_the_recipe_names(xlmr):
    model = AutoModel.from_pretrained(xlmr).eval()
    ids, mask = torch.tensor([[0, 6, 7, 2], [0, 8, 2, 1]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
    cls, mean = (
        SentenceEncoder(model, pooling).sentence_vectors({"input_ids": ids, "attention_mask": mask})
        for pooling in ("cls", "mean")
    )
    torch.testing.assert_close(cls, expected[:, 0])
    torch.testing.assert_close(mean[1], expected[1, :3].mean(dim=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": "nowhere"}, "nowhere has no pairs/<one>-<other>.parquet"),
        ({"sentence_encoder": "nowhere"}, "sentence_encoder: nowhere does not open"),
        ({"losses": {"distillation": {"teacher": "nowhere"}}}, "teacher: nowhere does not open"),
        ({"losses": {"distillation": {}}}, "teacher"),
        ({"losses": {"align": None}}, "losses has no loss; name some of align, distillation"),
        ({"losses": {"align": {"weight": 0.0}}}, "weight"),
        ({"losses.mlm.weight": 1.0}, "losses.mlm"),
        ({"batch_size": 17}, "a batch of 17 examples over all processes is more than there are: 16"),
        ({"layers": [2]}, r"layers is \[2\], but the encoder has 2 layers; name some from 0 to 1"),
        ({"max_length": 600}, "max_length is 600, but the encoder has 512 positions"),
        ({"architecture": {"num_layerz": 2}}, "xlm-roberta has no field num_layerz"),
        ({"resume": True}, "no checkpoint to resume from"),
    ],
)
def test_a_bad_recipe_is_refused_before_anything_is_written(pairs, xlmr, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        pretrain.main(options(pairs, xlmr, tmp_path / "model", **({"losses": {"align": {}}} | changes)))
    assert not list(tmp_path.iterdir())


def test_a_run_does_not_go_on_with_another_teacher_in_the_same_folder(pairs, xlmr, tmp_path):
    teacher = shutil.copytree(xlmr, tmp_path / "teacher")
    losses = {"distillation": {"teacher": str(teacher)}}
    arguments = options(pairs, xlmr, tmp_path / "model", losses=losses, max_steps=1)
    pretrain.main(arguments)
    (teacher / "another.txt").touch()
    with pytest.raises(ValueError, match=r"files of the teacher was '[0-9a-f]+' and is '[0-9a-f]+'; start anew"):
        pretrain.main([*arguments, "--resume", "true"])


def test_a_student_narrower_than_its_teacher_is_refused(pairs, xlmr, labse, tmp_path):
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=16)
    BertModel(config).save_pretrained(tmp_path / "narrow")
    AutoTokenizer.from_pretrained(labse).save_pretrained(tmp_path / "narrow")
    with pytest.raises(ValueError, match="have 32 values and those of the student 16; give the student a hidden_size"):
        pretrain.main(
            options(pairs, tmp_path / "narrow", tmp_path / "model", losses={"distillation": {"teacher": str(labse)}})
        )


def test_a_loss_that_is_not_a_number_stops_the_run_and_names_its_pair(pairs, xlmr, tmp_path, monkeypatch):
    forward = SentenceEncoder.forward

    def spoil(encoder, chunk):
        embeddings = forward(encoder, chunk)
        embeddings["sentences"].data[1] = torch.nan
        return embeddings

    monkeypatch.setattr(SentenceEncoder, "forward", spoil)
    with pytest.raises(FloatingPointError, match=r"align_loss is nan in a batch in which the embeddings of \w+ \(en-"):
        pretrain.main(options(pairs, xlmr, tmp_path / "model", losses={"align": {}}))
