"""Sentence encoders with a head that predicts tokens: InfoXLM's and the lightweight encoder's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from replications.new_encoder import StartOptions, start_encoder
from replications.sentences.batches import Rows, SentenceCollator
from replications.sentences.encoder import cut_encoder, prepare_encoder
from replications.sentences.stage import SentenceEncoderOptions


@dataclass(kw_only=True)
class MaskedLMOptions(StartOptions, SentenceEncoderOptions):
    """An encoder to start from, or a new one, and how the vector of a sentence is read from it."""


def encoder_with_head(options: MaskedLMOptions, tokenizer: PreTrainedTokenizerBase, with_head: bool) -> PreTrainedModel:
    """The encoder to train; with a head that predicts tokens, where a loss reads it.

    Raises:
        ValueError: there is no such encoder, or its head is of a kind that is not known here.
    """
    model = start_encoder(options, tokenizer)
    masked = start_encoder(options, tokenizer, AutoModelForMaskedLM) if with_head else None
    cut_encoder(model, options.layers, options.sentence_layer, options.freeze == "word_embeddings")
    if masked is not None:
        masked.config.num_hidden_layers = model.config.num_hidden_layers
        setattr(masked, masked.base_model_prefix, model)  # the whole encoder, with its pooler
        masked.tie_weights()
        check_head(masked, options.sentence_encoder or model.config.model_type)
    prepare_encoder(model, options)
    return masked or model


def maskable(collate: SentenceCollator, *texts: list[str]) -> Rows:
    """The rows of some texts, with `special_tokens_mask` (rows, tokens), 1 for special tokens and in padding."""
    return collate.tokenized(*texts, return_special_tokens_mask=True)


def predict_tokens(model: PreTrainedModel, hidden_states: Tensor) -> Tensor:
    """The head of a masked language model: (..., hidden) -> logits (..., vocabulary)."""
    for name, part in model.named_children():
        if name != model.base_model_prefix:
            hidden_states = part(hidden_states)
    return hidden_states


@torch.no_grad()
def check_head(model: PreTrainedModel, name: str) -> None:
    """
    Raises:
        ValueError: the parts of a masked language model beside its encoder, one after another, are not its head.
    """
    inputs = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    model.eval()
    expected = model(**inputs).logits
    try:
        same = torch.allclose(predict_tokens(model, model.base_model(**inputs).last_hidden_state), expected, atol=1e-4)
    except (RuntimeError, TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            f"the head of {name} that predicts tokens is of a kind that is not known here; start from an encoder of "
            "BERT's, XLM-R's or ModernBERT's kind, or leave out the losses that predict tokens"
        )


def check_mask_token(tokenizer: PreTrainedTokenizerBase, name: str | None) -> None:
    """
    Raises:
        ValueError: the tokenizer of the encoder `name` has no mask token.
    """
    if tokenizer.mask_token is None:
        raise ValueError(
            f"the tokenizer of {name} has no mask token, which losses that mask tokens need; give it one "
            '(tokenizer.add_special_tokens({"mask_token": "<mask>"}), then '
            "model.resize_token_embeddings(len(tokenizer)), and save both), or leave these losses out"
        )
