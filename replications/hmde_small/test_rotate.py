"""A model whose vectors may be cut, because the first of their numbers tell most."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from replications.hmde_small import rotate
from replications.hmde_small.rotate import principal_components


@pytest.fixture
def saved(labse: Path, tokenizer: HMDETokenizer, make_model: Callable, tmp_path: Path) -> Path:
    model = make_model(labse, sentence_pooling="mean", max_sentence_length=40, passage_length=40)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("---\nlicense: mit\n---\n")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_cosines_stay_and_cut_vectors_keep_more_of_them(
    saved: Path, tokenizer: HMDETokenizer, documents: list[str], corpus_folder: Path, tmp_path: Path
) -> None:
    start = ["--corpus", str(corpus_folder), "--sizes", "[4]", "--max_documents", "12"]
    rotate.main(["--model", str(saved), *start, "--output", str(tmp_path / "once")])
    rotate.main(["--model", str(tmp_path / "once"), *start, "--output", str(tmp_path / "twice")])  # one on the other
    names = (saved, tmp_path / "once", tmp_path / "twice")
    models = [HMDEForDocumentEmbedding.from_pretrained(name) for name in names]
    assert list(models[1].config.truncate_dims) == [4]

    def vectors(model: HMDEForDocumentEmbedding, size: int | None) -> np.ndarray:
        read, sentences = model.encode_documents(documents, tokenizer, sentences=True, truncate_dim=size)
        queries = model.encode_queries(["The cat", "кот"], tokenizer, truncate_dim=size)
        return np.concatenate([read, queries, *(document.vectors.numpy() for document in sentences)])

    whole = [vectors(model, None) for model in models]
    cosines = whole[0] @ whole[0].T
    assert "## Vectors may be cut" in (tmp_path / "once" / "README.md").read_text()
    errors = []
    for model, turned in zip(models, whole):
        np.testing.assert_allclose(turned @ turned.T, cosines, atol=1e-4)
        cut = vectors(model, 4)
        errors.append(np.abs(cut @ cut.T - cosines).mean())
    assert max(errors[1:]) < 0.85 * errors[0]


def test_principal_components_are_orthogonal_and_the_longest_comes_first() -> None:
    vectors = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 9.0, 3.0])
    components = principal_components(vectors)
    torch.testing.assert_close(components @ components.T, torch.eye(3))
    lengths = (vectors @ components.T).square().sum(dim=0)
    assert lengths.tolist() == sorted(lengths.tolist(), reverse=True)
    assert components[0].abs().argmax() == 1


def test_sizes_that_cut_nothing_and_negative_seeds_are_refused(
    saved: Path, corpus_folder: Path, tmp_path: Path
) -> None:
    options = ["--model", str(saved), "--corpus", str(corpus_folder), "--output", str(tmp_path / "turned")]
    with pytest.raises(ValueError, match=r"sizes are \[4, 32\], but vectors have 32 numbers"):
        rotate.main([*options, "--sizes", "[4, 32]"])
    with pytest.raises(ValueError, match=r"(?s)seed.*v>=0"):
        rotate.main([*options, "--seed", "-1"])
    assert not (tmp_path / "turned").exists()


def test_documents_of_all_languages_take_turns(corpus_folder: Path) -> None:
    drawn = rotate.draw_documents(corpus_folder, "train", 6, seed=0)
    assert sorted(language for _, language in drawn) == ["de", "de", "en", "en", "fr", "fr"]
    assert drawn == rotate.draw_documents(corpus_folder, "train", 6, seed=0)
    assert drawn != rotate.draw_documents(corpus_folder, "train", 6, seed=1)
    assert len(rotate.draw_documents(corpus_folder, "train", 1000, seed=0)) == 27, "all that there are"


def test_a_split_without_articles_is_refused(corpus_folder: Path) -> None:
    with pytest.raises(ValueError, match="no article of the split test"):
        rotate.draw_documents(corpus_folder, "test", 5, seed=0)
