"""mLongformer: the converted encoder gives the original's outputs, reads on where that one stops, and learns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch
import transformers
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from replications.longformer.pretrain import convert, first_token, main
from tests.pretraining import as_arguments

pytestmark = pytest.mark.slow

TEXT = "the cat sat on the mat. it was warm there! did the dog see it? "


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty training articles of two sentences, and a test article that must not be read."""
    (tmp_path / "corpus" / "articles").mkdir(parents=True)
    rows = {"text": [TEXT] * 40 + ["der hund"], "split": ["train"] * 40 + ["test"]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "corpus" / "articles" / "en.parquet")
    return tmp_path / "corpus"


@pytest.mark.parametrize("encoder", ["labse", "xlmr"])
@pytest.mark.parametrize("global_attention", [False, True])
def test_a_short_document_has_the_outputs_of_the_original_encoder(
    encoder: str, global_attention: bool, request: pytest.FixtureRequest, documents: list[str]
) -> None:
    folder = request.getfixturevalue(encoder)
    longformer, tokenizer = convert(str(folder), max_length=600, attention_window=512)
    original = AutoModel.from_pretrained(folder)
    inputs = tokenizer([*documents, TEXT * 5, ""], padding=True, return_tensors="pt")
    assert inputs["input_ids"].shape[1] <= 256
    with torch.no_grad():
        expected = original(**inputs).last_hidden_state
        mask = first_token(inputs["input_ids"]) if global_attention else None
        found = longformer.longformer(**inputs, global_attention_mask=mask).last_hidden_state
    real = inputs["attention_mask"].bool()
    assert torch.allclose(found[real], expected[real], atol=1e-4)


def test_positions_go_on_by_repetition(labse: Path, xlmr: Path) -> None:
    for folder, offset in ((labse, 0), (xlmr, 2)):
        longformer, tokenizer = convert(str(folder), max_length=1200, attention_window=32)
        old = AutoModel.from_pretrained(folder).embeddings.position_embeddings.weight[offset:]
        new = longformer.longformer.embeddings.position_embeddings.weight[tokenizer.pad_token_id + 1 :]
        assert len(old) == 512
        assert len(new) == tokenizer.model_max_length == 1200
        for place in (0, 1, 511, 512, 1023, 1024, 1199):
            assert torch.equal(new[place], old[place % 512]), place


def test_beyond_the_window_only_global_attention_reaches_the_first_token(labse: Path) -> None:
    longformer, tokenizer = convert(str(labse), max_length=1000, attention_window=8)
    texts = [f"{'cat ' * 300}{last}" for last in ("dog", "mat")]
    inputs = tokenizer(texts, return_tensors="pt")
    with torch.no_grad():
        local = longformer.longformer(**inputs).last_hidden_state[:, 0]
        mask = first_token(inputs["input_ids"])
        seeing_all = longformer.longformer(**inputs, global_attention_mask=mask).last_hidden_state[:, 0]
    assert torch.equal(local[0], local[1])
    assert not torch.allclose(seeing_all[0], seeing_all[1], atol=1e-5)


def test_the_head_of_the_checkpoint_is_kept(labse: Path, tmp_path: Path) -> None:
    source = AutoModelForMaskedLM.from_pretrained(labse)  # its head is new and random
    source.save_pretrained(tmp_path / "with-head")
    AutoTokenizer.from_pretrained(labse).save_pretrained(tmp_path / "with-head")
    longformer, tokenizer = convert(str(tmp_path / "with-head"), max_length=64, attention_window=64)
    inputs = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        assert torch.allclose(longformer(**inputs).logits, source.eval()(**inputs).logits, atol=1e-4)


@pytest.mark.parametrize("encoder", ["labse", "xlmr"])
def test_loss_and_gradients_are_those_of_logits_at_every_token(
    encoder: str, request: pytest.FixtureRequest, documents: list[str]
) -> None:
    model, tokenizer = convert(str(request.getfixturevalue(encoder)), max_length=64, attention_window=16)
    inputs = tokenizer(documents, padding=True, return_tensors="pt")
    inputs["global_attention_mask"] = first_token(inputs["input_ids"])
    labels = inputs["input_ids"].clone()
    labels[torch.rand(labels.shape, generator=torch.manual_seed(0)) > 0.3] = -100
    labels[1] = -100  # a document without a labelled token
    stock = transformers.LongformerForMaskedLM(model.config).eval()
    stock.load_state_dict(model.state_dict())
    expected, found = stock(**inputs, labels=labels), model(**inputs, labels=labels)
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(found.logits, expected.logits[labels != -100])
    expected.loss.backward()
    found.loss.backward()
    gradients = dict(model.named_parameters())
    for name, parameter in stock.named_parameters():
        torch.testing.assert_close(gradients[name].grad, parameter.grad, msg=name)
    torch.testing.assert_close(
        model(**inputs, labels=labels, num_items_in_batch=1000).loss, expected.loss * (labels != -100).sum() / 1000
    )


@pytest.mark.parametrize("global_attention", [True, False])
def test_the_loss_falls_and_the_model_is_an_ordinary_checkpoint(
    corpus: Path, labse: Path, tmp_path: Path, global_attention: bool
) -> None:
    settings = {
        "encoder": labse, "corpus": corpus, "output": tmp_path / "out", "max_length": 64, "attention_window": 16,
        "global_attention": str(global_attention).lower(), "trainer.max_steps": 30, "trainer.learning_rate": 1e-2,
        "trainer.warmup_steps": 2, "trainer.per_device_train_batch_size": 8,
        "trainer.gradient_accumulation_steps": 1, "trainer.logging_steps": 10,
        "trainer.activation_checkpointing": str(global_attention).lower(),
    }  # fmt: skip
    main(as_arguments(settings))
    history = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["history"]
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert losses[-1] < 0.7 * losses[0]
    model = AutoModel.from_pretrained(tmp_path / "out")
    assert model.config.model_type == "longformer"
    assert model.config.architectures == ["LongformerForMaskedLM"]
    saved = transformers.LongformerForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)[1]
    assert not any(saved.values())
    assert AutoTokenizer.from_pretrained(tmp_path / "out").model_max_length == 64
    attention = model.encoder.layer[0].attention.self
    assert torch.equal(attention.query.weight, attention.query_global.weight) != global_attention
    with pytest.raises(ValueError, match="exists; remove it"):
        main(["--encoder", str(labse), "--corpus", str(corpus), "--output", str(tmp_path / "out")])


def test_a_killed_run_goes_on_from_its_last_whole_checkpoint(corpus: Path, labse: Path, tmp_path: Path) -> None:
    def run(output: str, **changes: object) -> list[float]:
        settings = {
            "encoder": labse, "corpus": corpus, "output": tmp_path / output, "max_length": 64, "attention_window": 16,
            "trainer.max_steps": 6, "trainer.per_device_train_batch_size": 4,
            "trainer.gradient_accumulation_steps": 1, "trainer.logging_steps": 1, "trainer.save_steps": 2,
        }  # fmt: skip
        main(as_arguments(settings | changes))
        history = json.loads((tmp_path / output / "results.json").read_text(encoding="utf-8"))["history"]
        return [entry["loss"] for entry in history if "loss" in entry]

    losses = run("whole")
    shutil.copytree(tmp_path / "whole-training", tmp_path / "killed-training")
    state = tmp_path / "killed-training" / "checkpoint-6" / "trainer_state.json"
    state.write_text('{"global_step": 6', encoding="utf-8")  # the kill came while it was saved
    with pytest.raises(ValueError, match=r"belongs to another run: mlm_probability was 0.15 and is 0.5; start anew"):
        run("killed", resume="true", mlm_probability=0.5)
    resumed = run("killed", resume="true")
    assert resumed[:4] == losses[:4]  # of the checkpoint; which tokens are masked from then on is drawn anew
    assert len(resumed) == 6


def test_what_cannot_be_converted_is_named(modernbert: Path, labse: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"encoder: .* is a modernbert model, but only bert and xlm-rob.*; name"):
        convert(str(modernbert))
    with pytest.raises(ValueError, match=r"encoder: .*nowhere does not open, as a folder or as a name on the Hub"):
        convert(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"has no articles/\*.parquet"):
        main(["--encoder", str(labse), "--corpus", str(tmp_path), "--output", str(tmp_path / "out")])
    with pytest.raises(ValueError, match="attention_window is 3; it must be even"):
        main(["--encoder", "x", "--corpus", "y", "--output", "z", "--attention_window", "3"])
