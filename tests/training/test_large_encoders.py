"""The recipes for large encoders, from start to a model that users open, on tiny encoders of the same architectures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn
from transformers import (
    AutoModel,
    Gemma3TextConfig,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.hub_stand_in import Hub
from tests.paths import REPOSITORY
from tests.tiny_encoders import SIZES, save_encoder
from tests.training.corpus.own_articles import LANGUAGES, article, run, write_articles
from training import pretrain
from training.release import average

PRETRAIN = REPOSITORY / "configuration" / "pretrain"


def tokenizer(before: str, after: str, side: str = "right") -> PreTrainedTokenizerFast:
    """Bytes, with special tokens before and after a text."""
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    found = Tokenizer(models.BPE({piece: place for place, piece in enumerate(bytes_)}, []))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens(["<pad>", "<s>", "</s>"])
    special = [(token, found.token_to_id(token)) for token in ("<s>", "</s>")]
    found.post_processor = processors.TemplateProcessing(single=f"{before} $A {after}".strip(), special_tokens=special)
    return PreTrainedTokenizerFast(
        tokenizer_object=found,
        pad_token="<pad>",
        bos_token="<s>" if before else None,
        eos_token="</s>",
        padding_side=side,
    )


def pipeline(
    folder: Path, config: PreTrainedConfig, tokens: PreTrainedTokenizerFast, pooling: str, *behind: nn.Module
) -> Path:
    """A tiny random encoder, saved as a pipeline of sentence-transformers."""
    save_encoder(AutoModel.from_config(config), tokens, folder / "transformer")
    transformer = Transformer(str(folder / "transformer"))
    SentenceTransformer(modules=[transformer, Pooling(config.hidden_size, pooling), *behind]).save(str(folder / "all"))
    return folder / "all"


GEMMA = SIZES | {"num_key_value_heads": 1, "head_dim": 8, "vocab_size": 259, "pad_token_id": 256, "bos_token_id": 257}
GEMMA |= {"eos_token_id": 258, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
QWEN = SIZES | {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 259, "pad_token_id": 256, "eos_token_id": 258}
MODERNBERT = SIZES | {"vocab_size": 259, "pad_token_id": 256, "local_attention": 16, "global_attn_every_n_layers": 2}
MODERNBERT |= {"bos_token_id": 257, "cls_token_id": 257, "eos_token_id": 258, "sep_token_id": 258}


def harrier(folder: Path) -> Path:
    return pipeline(folder, Gemma3TextConfig(**GEMMA), tokenizer("<s>", "</s>"), "lasttoken", Normalize())


def qwen3(folder: Path) -> Path:
    return pipeline(folder, Qwen3Config(**QWEN), tokenizer("", "</s>", side="left"), "lasttoken", Normalize())


def granite(folder: Path) -> Path:
    return pipeline(folder, ModernBertConfig(**MODERNBERT), tokenizer("<s>", "</s>"), "cls", Normalize())


def embedding_gemma(folder: Path) -> Path:
    dense = [Dense(32, 64, bias=False, activation_function=nn.Identity())]
    dense += [Dense(64, 32, bias=False, activation_function=nn.Identity())]
    config = Gemma3TextConfig(**GEMMA, use_bidirectional_attention=True)
    return pipeline(folder, config, tokenizer("<s>", "</s>"), "mean", *dense, Normalize())


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
    ("recipe", "make_encoder"),
    [
        ("harrier-270m", harrier),
        ("qwen3-0.6b", qwen3),
        ("granite-311m", granite),
        ("embeddinggemma-300m", embedding_gemma),
    ],
)
def test_a_recipe_goes_from_start_to_a_model_that_users_open(
    corpus_folder: Path,
    tmp_path: Path,
    documents: list[str],
    encoded_elsewhere: Callable[[Path, list[str]], dict[str, np.ndarray]],
    recipe: str,
    make_encoder: Callable[[Path], Path],
    adapter: bool,
) -> None:
    start = make_encoder(tmp_path / "encoder")
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
    hub: Hub,
    run_in_a_fresh_process: Callable[..., str],
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

    pretrain.main(arguments("recommended", corpus, harrier(tmp_path / "encoder"), tmp_path / "first"))
    models = []
    for seed in ("42", "43"):
        models.append(str(tmp_path / f"second-{seed}"))
        second = arguments("recommended-second-stage", corpus, tmp_path / "first", Path(models[-1]))
        pretrain.main([*second, "--seed", seed])
    mean = str(tmp_path / "mean")
    average.main(
        ["--models", f"[{', '.join(models)}]", "--output", mean, "--corpus", str(corpus), "--max_sentences", "2048"]
    )
    rotated = ["--model", mean, "--corpus", str(corpus), "--sizes", "[]", "--output", str(tmp_path / "rotated")]
    program = "import runpy; runpy.run_module('training.release.rotate', run_name='__main__', alter_sys=True)"
    rotated += ["--push_to_hub", "someone/recommended"]
    run_in_a_fresh_process(program, *rotated, folder=tmp_path, path=[str(REPOSITORY)], offline=False)

    check_finished(tmp_path / "rotated", documents, encoded_elsewhere(tmp_path / "rotated", documents))
    uploaded = hub.files("someone/recommended")["model.safetensors"]
    assert uploaded == (tmp_path / "rotated" / "model.safetensors").read_bytes()
