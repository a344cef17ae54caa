"""One model of several trainings: the mean of their weights, and its card."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from replications.hmde_small.rotate import main as rotate_main
from replications.hmde_small.rotate import rotate
from training import average


@pytest.fixture
def models(labse, make_model, tokenizer, tmp_path) -> list[str]:
    """Two HMDEs of one kind."""
    for seed, name in enumerate(("one", "other")):
        model = make_model(labse)
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in model.parameters():
                weight += 1e-2 * torch.randn_like(weight)
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    return [str(tmp_path / "one"), str(tmp_path / "other")]


def test_an_average_has_the_mean_of_all_weights(models, documents, tokenizer, tmp_path):
    one, other = models
    average.main(["--models", f"[{one}, {one}, {other}]", "--output", str(tmp_path / "mean")])
    one_by_one, other_targets = (load_file(Path(folder) / "model.safetensors") for folder in models)
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    assert mean.keys() == one_by_one.keys()
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (2 * one_by_one[name] + other_targets[name]) / 3, rtol=0, atol=1e-6)
    assert HMDETokenizer.from_pretrained(tmp_path / "mean")(documents) == tokenizer(documents)
    card = (tmp_path / "mean" / "README.md").read_text()
    assert "the mean of those of 3 models" in card
    assert "## Results" not in card  # nothing was measured


def test_an_average_reads_longer_documents_than_its_models_where_asked_to(models, tmp_path):
    text, mean = "The cat sat on the mat. " * 50, str(tmp_path / "mean")
    limited = HMDETokenizer.from_pretrained(models[0], max_sentences=9), HMDEConfig.from_pretrained(models[0])
    limited[1].max_sentences = 9
    shutil.copytree(models[0], tmp_path / "limited")
    for part in limited:
        part.save_pretrained(tmp_path / "limited")
    average.main(["--models", f"[{models[0]}, {tmp_path / 'limited'}]", "--output", mean, "--max_sentences", "50"])
    one, same = (HMDEForDocumentEmbedding.from_pretrained(folder) for folder in (models[0], mean))
    shorter, longer = (HMDETokenizer.from_pretrained(folder) for folder in (models[0], mean))
    assert shorter.max_sentences < longer.max_sentences == same.config.max_sentences == 50
    assert longer.model_max_length == 50 * longer.max_sentence_length
    assert "50 sentences" in (tmp_path / "mean" / "README.md").read_text()
    found = same.encode_documents([text], longer, sentences=True)
    shorter.max_sentences = 50
    np.testing.assert_array_equal(found[0], one.encode_documents([text], shorter))
    assert len(found[1][0].spans) == 50


def test_what_has_no_average_is_refused_before_anything_is_written(models, labse, make_model, tokenizer, tmp_path):
    shorter, output = tmp_path / "shorter", ["--output", str(tmp_path / "mean")]
    make_model(labse, max_sentences=5).save_pretrained(shorter)
    tokenizer.save_pretrained(shorter)
    with pytest.raises(ValueError, match="differ in more than their weights: max_sentences; name"):
        average.main(["--models", f"[{models[0]}, {shorter}]", *output])
    with pytest.raises(ValueError, match="two folders at least"):
        average.main(["--models", f"[{models[0]}]", *output])
    with pytest.raises(ValueError, match=r"other exists; remove it"):
        average.main(["--models", f"[{models[0]}, {models[1]}]", "--output", models[1]])
    with pytest.raises(ValueError, match="output is empty; name a folder to write"):
        average.main(["--models", f"[{models[0]}, {models[1]}]", "--output", ""])
    no_corpus = r"shorter has no articles/\*\.parquet with an article; make a corpus with python -m training\.corpus"
    with pytest.raises(ValueError, match=no_corpus):
        average.main(["--models", f"[{models[0]}, {models[1]}]", *output, "--corpus", str(shorter)])
    positions = str(tmp_path / "positions")
    make_model(labse, document_positions=True, max_sentences=5).save_pretrained(positions)
    tokenizer.save_pretrained(positions)
    with pytest.raises(ValueError, match=r"max_sentences is 6, but .*positions has learned positions for 5 sentences"):
        average.main(["--models", f"[{positions}, {positions}]", *output, "--max_sentences", "6"])
    assert not (tmp_path / "mean").exists()


def test_models_of_different_rotations_or_vocabularies_have_no_mean(models, tmp_path):
    output = ["--output", str(tmp_path / "mean")]
    model, tokenizer = HMDEForDocumentEmbedding.from_pretrained(models[0]), HMDETokenizer.from_pretrained(models[0])
    rotations = [torch.eye(model.config.hidden_size), torch.eye(model.config.hidden_size).flip(0)]
    for name, rotation in zip(("as-it-was", "turned"), rotations):
        rotate(model, rotation, [])
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    with pytest.raises(ValueError, match=r"turned and .*as-it-was are rotated .* before that, and rotate the mean"):
        average.main(["--models", f"[{tmp_path / 'as-it-was'}, {tmp_path / 'turned'}]", *output])
    written = (Path(models[1]) / "tokenizer.json").read_text(encoding="utf-8")
    (Path(models[1]) / "tokenizer.json").write_text(written.replace('"Hund"', '"Hand"'), encoding="utf-8")
    with pytest.raises(ValueError, match=r"other and .*one have different vocabularies; name models of one kind"):
        average.main(["--models", f"[{models[0]}, {models[1]}]", *output])
    assert not (tmp_path / "mean").exists()


@pytest.mark.slow
def test_a_sentence_encoder_is_neither_averaged_nor_rotated(labse, corpus_folder, tmp_path):
    output = ["--output", str(tmp_path / "output")]
    with pytest.raises(ValueError, match=r"models: .*labse is no HMDE; make one of it"):
        average.main(["--models", f"[{labse}, {labse}]", *output])
    with pytest.raises(ValueError, match=r"model: .*labse is no HMDE; make one of it"):
        rotate_main(["--model", str(labse), "--corpus", str(corpus_folder), *output])
