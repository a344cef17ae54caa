"""The sentence head is fitted by least squares to the vectors of sentences that are read by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from training import sentence_head
from training.sentence_head import Moments, draw_documents, explained, fitted_head, least_squares

PASSAGES = {"sentence_pooling": "mean", "max_sentence_length": 40, "passage_length": 120}


def test_least_squares_is_that_of_a_ridge_regression_scaled_to_the_targets_variance() -> None:
    random = np.random.default_rng(0)
    states = random.normal(size=(200, 6)) + 3
    vectors = states @ random.normal(size=(6, 2)) + random.normal(size=(200, 2)) - 5
    moments = Moments(6, 2)
    for first in range(0, 200, 64):
        moments.add(torch.tensor(states[first : first + 64]), torch.tensor(vectors[first : first + 64]))
    weight, bias = least_squares(moments, ridge=0.1)
    # The regression by hand: rows that hold the weights near 0 stand below those of the data.
    centred, targets = states - states.mean(axis=0), vectors - vectors.mean(axis=0)
    strength = np.sqrt(200 * 0.1 * centred.var(axis=0).mean())
    rows, wanted = np.vstack([centred, strength * np.eye(6)]), np.vstack([targets, np.zeros((6, 2))])
    solution = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    scale = np.sqrt(targets.var(axis=0).sum() / (centred @ solution).var(axis=0).sum())
    np.testing.assert_allclose(weight.numpy(), scale * solution.T, rtol=1e-4)  # sums of products are float32
    found = states @ weight.numpy().T + bias.numpy()
    np.testing.assert_allclose(found.mean(axis=0), vectors.mean(axis=0), rtol=1e-5)
    assert found.var(axis=0).sum() == pytest.approx(vectors.var(axis=0).sum(), rel=1e-5)


def test_a_head_learns_the_vectors_of_sentences_alone(
    labse: Path, tokenizer: HMDETokenizer, make_model: Callable, corpus_folder: Path
) -> None:
    model = make_model(labse, **PASSAGES)
    documents = draw_documents(corpus_folder, "train", 100, seed=0)
    head = fitted_head(model, tokenizer, documents, ridge=1e-4)
    assert explained(head, model, tokenizer, documents) > 0.8
    head.start()  # as the sentences stand in their passages
    assert explained(head, model, tokenizer, documents) < 0.5


def test_documents_of_all_languages_take_turns(corpus_folder: Path) -> None:
    drawn = draw_documents(corpus_folder, "train", 6, seed=0)
    assert sorted(language for _, language in drawn) == ["de", "de", "en", "en", "fr", "fr"]
    assert drawn == draw_documents(corpus_folder, "train", 6, seed=0)
    assert drawn != draw_documents(corpus_folder, "train", 6, seed=1)
    assert len(draw_documents(corpus_folder, "train", 1000, seed=0)) == 26, "all that there are"


def test_the_command_writes_the_model_with_a_head_and_changes_nothing_else(
    labse: Path, tokenizer: HMDETokenizer, make_model: Callable, corpus_folder: Path, tmp_path: Path
) -> None:
    make_model(labse, **PASSAGES).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    options = ["--corpus", str(corpus_folder), "--max_documents", "20", "--output", str(tmp_path / "fitted")]
    sentence_head.main(["--model", str(tmp_path / "model"), *options])
    before, after = (HMDEForDocumentEmbedding.from_pretrained(tmp_path / name) for name in ("model", "fitted"))
    assert after.config.sentence_head
    expected = before.state_dict()
    weights = after.state_dict()
    assert {*weights} - {*expected} == {"hmde.sentence_head.weight", "hmde.sentence_head.bias"}
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    card = (tmp_path / "fitted" / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n---")
    assert "# A model" in card
    assert "## Sentence head" in card
    with pytest.raises(ValueError, match="exists; remove it"):
        sentence_head.main(["--model", str(tmp_path / "model"), *options])


def test_what_needs_no_head_or_has_no_documents_is_refused(
    labse: Path, tokenizer: HMDETokenizer, make_model: Callable, corpus_folder: Path, tmp_path: Path
) -> None:
    make_model(labse).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="needs no head"):
        sentence_head.main(
            ["--model", str(tmp_path / "model"), "--corpus", str(corpus_folder), "--output", str(tmp_path / "fitted")]
        )
    assert not (tmp_path / "fitted").exists()
    with pytest.raises(ValueError, match="no article of the split test"):
        draw_documents(corpus_folder, "test", 5, seed=0)
