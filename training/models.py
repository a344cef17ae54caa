"""The model to train: how it starts, and what of it is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hmde.common.saved_models import model_type_of, opening, tokenizer_options
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from training.lora import add_lora
from training.pretrain_recipe import PretrainRecipe


def build(recipe: PretrainRecipe) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    """The HMDE to train, and its tokenizer, which cuts documents as the configuration says.

    Raises:
        ValueError: there is no such sentence encoder, the architecture does not fit it, or the tokenizer has no such
            option.
    """
    start = recipe.sentence_encoder
    is_hmde = model_type_of("sentence_encoder", start) == HMDEConfig.model_type
    make_model = trained_hmde if is_hmde else HMDEForDocumentEmbedding.from_sentence_encoder
    make_tokenizer: Any = HMDETokenizer.from_pretrained if is_hmde else HMDETokenizer.from_sentence_encoder
    HMDEConfig.refuse_unknown_fields(recipe.architecture)
    if given := {"max_sentences", "max_sentence_length"} & recipe.tokenizer.keys():
        raise ValueError(f"tokenizer: {', '.join(sorted(given))} belongs to architecture, so that both know it")
    known = tokenizer_options()
    if unknown := recipe.tokenizer.keys() - set(known):
        raise ValueError(f"tokenizer: {', '.join(sorted(unknown))} is no option; those known are {', '.join(known)}")
    with opening(start, "sentence_encoder"):
        model = make_model(start, **recipe.architecture, dtype=torch.float32)
        limits = {name: getattr(model.config, name) for name in ("max_sentences", "max_sentence_length")}
        tokenizer = make_tokenizer(start, **limits, **recipe.tokenizer)
    sentence_dropout = 0.0 if recipe.freeze == "sentence_encoder" else recipe.sentence_dropout
    if sentence_dropout is not None:
        set_dropout(model.hmde.sentence_encoder, sentence_dropout)
    if recipe.freeze == "word_embeddings":
        model.get_input_embeddings().requires_grad_(False)
    elif recipe.freeze == "sentence_encoder":
        model.hmde.sentence_encoder.requires_grad_(False)
        model.hmde.sentence_modules.requires_grad_(False)
    if recipe.lora is not None:
        model.hmde.sentence_modules.requires_grad_(False)
        add_lora(model.hmde.sentence_encoder, recipe.lora)
    return model, tokenizer


def set_dropout(encoder: nn.Module, dropout: float) -> None:
    """Set all dropout within an encoder. Attention that draws it by a function has it as a number."""
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
        for name in ("dropout", "attention_dropout"):
            if isinstance(getattr(module, name, None), int | float):
                setattr(module, name, dropout)


def trained_hmde(start: str, dtype: torch.dtype, **architecture: Any) -> HMDEForDocumentEmbedding:
    """An HMDE to train further, with what the architecture changes of its configuration.

    Raises:
        ValueError: the architecture does not fit the weights.
    """
    config = HMDEConfig.from_pretrained(start, **architecture)
    loaded: Any = HMDEForDocumentEmbedding.from_pretrained(
        start, config=config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
    )
    model, loading = loaded
    if any(loading.values()):
        faults = "; ".join(f"{fault}: {', '.join(map(str, keys))}" for fault, keys in loading.items() if keys)
        raise ValueError(f"the architecture does not fit the weights of {start}; leave its own as it is ({faults})")
    return model
