"""Training from Python: as the command trains, and with a loss of one's own."""

from __future__ import annotations

import dataclasses
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import set_seed
from safetensors.torch import load_file
from torch import Tensor

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.paths import REPOSITORY
from tests.pretraining import options
from training import pretrain
from training.data.triples import Triples
from training.losses import InfoNCE, Loss, Queries
from training.losses.batch import BatchVectors
from training.train import TrainOptions, train

ARCHITECTURE = {"num_document_attention_heads": 4, "document_intermediate_size": 32, "max_sentences": 4}


def made(encoder: Path) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    set_seed(42)
    model = HMDEForDocumentEmbedding.from_sentence_encoder(encoder, **ARCHITECTURE)
    return model, HMDETokenizer.from_sentence_encoder(encoder, max_sentences=4)


def short(output: Path, **changes: Any) -> TrainOptions:
    few = {"batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 1e-3, "warmup_steps": 2, "epochs": 4}
    return TrainOptions(output=str(output), **{**few, "eval_steps": 4, "save_steps": 4, "max_steps": 4} | changes)


def test_a_model_is_trained_from_python_as_by_the_command(corpus_folder: Path, labse: Path, tmp_path: Path) -> None:
    arguments = options(corpus_folder, labse, tmp_path / "command", max_steps=4, document_learning_rate=1e-2)
    pretrain.main([*arguments, "--losses", '{"info_nce": {"symmetric": true}, "queries": {"weight": 0.5}}'])
    triples = Triples(corpus_folder, "train", symmetric=True, seed=42)
    losses = [InfoNCE(symmetric=True), Queries(weight=0.5)]
    progress = train(*made(labse), triples, losses, short(tmp_path / "python", document_learning_rate=1e-2))
    assert list(progress.history) == [0, 4]
    trained, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("python", "command"))
    assert all(torch.equal(trained[name], weight) for name, weight in expected.items())


@dataclasses.dataclass(kw_only=True)
class FirstNumber(Loss):
    """The first numbers of the anchors' vectors are low."""

    def __call__(self, vectors: BatchVectors) -> dict[str, Tensor]:
        return {"first": vectors.documents.vectors["anchor"][:, 0].mean()}


def test_a_loss_of_ones_own_is_what_is_minimised(corpus_folder: Path, labse: Path, tmp_path: Path) -> None:
    model, tokenizer = made(labse)
    texts = ["The cat sat on the mat.", "Die Katze lag auf der Matte."]
    before = model.encode_documents(texts, tokenizer, normalize=False)
    options = short(tmp_path / "model", learning_rate=1e-2, keep="last")
    train(model, tokenizer, Triples(corpus_folder, "train"), [FirstNumber()], options)
    after = model.encode_documents(texts, tokenizer, normalize=False)
    assert (after[:, 0] < before[:, 0] - 1).all()


@pytest.mark.parametrize(
    ("losses", "changes", "message"),
    [
        ([], {}, "losses has none, so that nothing is learned"),
        ([InfoNCE(symmetric=True)], {}, "a loss is symmetric; give Triples symmetric=True"),
        ([InfoNCE()], {"resume": True}, "no checkpoint to resume from"),
        ([InfoNCE()], {"batch_size": 999}, "a batch of 999 examples over all processes is more than there are"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    corpus_folder: Path, labse: Path, tmp_path: Path, losses: list[Loss], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(*made(labse), Triples(corpus_folder, "train"), losses, short(tmp_path / "model", **changes))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_example_trains_a_model_that_opens(
    corpus_folder: Path,
    labse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = REPOSITORY / "examples" / "train_in_python.py"
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 35
    monkeypatch.setattr(sys, "argv", [str(program), str(labse), str(corpus_folder), str(tmp_path / "model")])
    runpy.run_path(str(program), run_name="__main__")
    assert "step 20: a document is found by one in another language with an MRR of" in capsys.readouterr().out
    model = HMDEForDocumentEmbedding.from_pretrained(tmp_path / "model")
    assert model.encode_documents(["The cat sat."], HMDETokenizer.from_pretrained(tmp_path / "model")).any()
