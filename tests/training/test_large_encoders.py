"""The recipes for large encoders, from start to a model that users open, on tiny encoders of the same architectures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from replications.hmde_small import rotate
from tests.encoder_families import FAMILIES, save_family
from tests.paths import REPOSITORY
from tests.training.corpus.own_articles import LANGUAGES, article, run, write_articles
from training import average, pretrain

PRETRAIN = REPOSITORY / "configuration" / "pretrain"


def arguments(recipe: str, corpus: Path, start: Path, output: Path, *changes: str) -> list[str]:
    """The recipe as it is, but for its size."""
    few = {"max_steps": 2, "batch_size": 4, "eval_steps": 2, "save_steps": 2, "eval_concepts": 3, "warmup_steps": 1}
    few |= {"corpus": corpus, "sentence_encoder": start, "output": output, "keep": "last"}
    options = [f"--{name}={value}" for name, value in few.items()]
    return [f"--config={PRETRAIN / recipe}.yaml", *options, *changes]


def check_finished(model: Path, documents: list[str], found: dict[str, np.ndarray]) -> None:
    """A fresh process without this package and without peft has read texts as the model in this process does."""
    here, tokens = HMDEForDocumentEmbedding.from_pretrained(model), HMDETokenizer.from_pretrained(model)
    np.testing.assert_allclose(found["documents"], here.encode_documents(documents, tokens), atol=1e-5)
    np.testing.assert_allclose(found["queries"], here.encode_queries(documents, tokens), atol=1e-5)
    assert not any("lora_" in name for name in load_file(model / "model.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [True, False], ids=["lora", "without"])
@pytest.mark.parametrize(
    ("recipe", "family"),
    [
        ("harrier-270m", "harrier-270m"),
        ("qwen3-0.6b", "qwen3-embedding"),
        ("granite-311m", "granite-r2"),
        ("embeddinggemma-300m", "embeddinggemma"),
    ],
)
def test_a_recipe_goes_from_start_to_a_model_that_users_open(
    corpus_folder: Path,
    tmp_path: Path,
    documents: list[str],
    encoded_elsewhere: Callable[[Path, list[str]], dict[str, np.ndarray]],
    recipe: str,
    family: str,
    adapter: bool,
) -> None:
    start = save_family(FAMILIES[family], tmp_path / "encoder")
    changes = [] if adapter else ["--lora=null"]
    pretrain.main(arguments(recipe, corpus_folder, start, tmp_path / "model", *changes))
    check_finished(tmp_path / "model", documents, encoded_elsewhere(tmp_path / "model", documents))
    before = HMDEForDocumentEmbedding.from_sentence_encoder(
        str(start), **yaml.safe_load((PRETRAIN / f"{recipe}.yaml").read_text())["architecture"]
    ).state_dict()
    moved = {
        name
        for name, weight in load_file(tmp_path / "model" / "model.safetensors").items()
        if (weight - before[name]).any()
    }
    assert any("document_encoder" in name for name in moved)
    assert any("sentence_encoder.layers.0" in name for name in moved)
    assert any("embed" in name or "norm" in name for name in moved if "sentence_encoder" in name) != adapter
    checkpoint = load_file(tmp_path / "model-training" / "checkpoints" / "step-00000002" / "model.safetensors")
    assert any("lora_" in name for name in checkpoint) == adapter


@pytest.mark.slow
def test_the_recommended_recipe_goes_from_articles_to_a_model_on_the_hub(
    tmp_path: Path,
    documents: list[str],
    monkeypatch: pytest.MonkeyPatch,
    encoded_elsewhere: Callable[[Path, list[str]], dict[str, np.ndarray]],
) -> None:
    """The commands of docs/train.md, "With GPUs", in small."""

    def text(number: int, language: str) -> str:
        return "\n".join(f"In {language}, line {line} of document {number} is a long one." for line in range(6))

    rows = [
        article(f"Q{number}", language, ["all"], "dev" if number > 8 else "train", text(number, language))
        for number in range(12)
        for language in LANGUAGES
    ]
    corpus = tmp_path / "corpus"
    triples = run(write_articles(tmp_path / "articles", rows), corpus, "--sentences_per_document", "3")
    assert 0 < sum("#" in triple["concept_id"] for triple in triples) < len(triples)

    start = save_family(FAMILIES["harrier-270m"], tmp_path / "encoder")
    pretrain.main(arguments("recommended", corpus, start, tmp_path / "first"))
    models = []
    for seed in ("42", "43"):
        models.append(str(tmp_path / f"second-{seed}"))
        second = arguments("recommended-second-stage", corpus, tmp_path / "first", Path(models[-1]))
        pretrain.main([*second, "--seed", seed])
    mean = str(tmp_path / "mean")
    average.main(
        ["--models", f"[{', '.join(models)}]", "--output", mean, "--corpus", str(corpus), "--max_sentences", "2048"]
    )
    finished, uploaded = tmp_path / "rotated", []
    monkeypatch.setattr(rotate, "upload_folder", lambda *named: uploaded.append(named))
    rotated = ["--model", mean, "--corpus", str(corpus), "--sizes", "[]", "--output", str(finished)]
    rotate.main([*rotated, "--push_to_hub", "someone/recommended"])
    assert uploaded == [(str(finished), "someone/recommended")]
    check_finished(finished, documents, encoded_elsewhere(finished, documents))
