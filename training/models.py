"""What is wrapped around an encoder to train it: how it starts, what of it is trained, what it costs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from foundation.saved_models import model_type_of
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from training.loop.cached_gradients import Chunk, Embeddings, Rows
from training.recipes import PretrainRecipe


class TwoPathEncoder(nn.Module):
    """Documents, and queries that are read as such, through both encoders, other queries through the sentence encoder
    alone: in one forward pass, as distributed training needs it."""

    def __init__(self, model: HMDEForDocumentEmbedding) -> None:
        super().__init__()
        self.model = model

    def forward(self, chunk: Chunk) -> Embeddings:
        paths = {"queries": self._embed_sentences}  # all else goes as documents do
        return {name: paths.get(name, self._embed_documents)(rows) for name, rows in chunk.items()}

    def _embed_sentences(self, rows: Rows) -> Tensor:
        return self.model.hmde.encode_sentences(rows["input_ids"], rows["attention_mask"])[1]

    def _embed_documents(self, rows: Rows) -> Tensor:
        if "sentence_embeddings" in rows:
            return self.model.hmde.document_encoder(rows["sentence_embeddings"], rows["sentence_lengths"])[1]
        return self.model(**rows).pooler_output


def build(recipe: PretrainRecipe) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    """The HMDE to train, and its tokenizer, which cuts documents as the configuration says.

    Raises:
        ValueError: there is no such sentence encoder, or the architecture does not fit it.
    """
    start = recipe.sentence_encoder
    is_hmde = model_type_of("sentence_encoder", start) == HMDEConfig.model_type
    make_model = trained_hmde if is_hmde else HMDEForDocumentEmbedding.from_sentence_encoder
    model = make_model(start, **recipe.architecture, dtype=torch.float32)
    make_tokenizer = HMDETokenizer.from_pretrained if is_hmde else HMDETokenizer.from_sentence_encoder
    limits = {name: getattr(model.config, name) for name in ("max_sentences", "max_sentence_length")}
    tokenizer = make_tokenizer(start, **limits, **recipe.tokenizer)
    sentence_dropout = 0.0 if recipe.freeze == "sentence_encoder" else recipe.sentence_dropout
    if sentence_dropout is not None:
        for module in model.hmde.sentence_encoder.modules():
            if isinstance(module, nn.Dropout):
                module.p = sentence_dropout
    if recipe.freeze == "word_embeddings":
        model.get_input_embeddings().requires_grad_(False)
    elif recipe.freeze == "sentence_encoder":
        model.hmde.sentence_encoder.requires_grad_(False)
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    if recipe.compile:
        model.hmde.sentence_encoder.compile(dynamic=True)
    return model, tokenizer


def trained_hmde(start: str, dtype: torch.dtype, **architecture: Any) -> HMDEForDocumentEmbedding:
    """An HMDE to train further, with what the architecture changes of its configuration.

    Raises:
        ValueError: the architecture has an unknown field, or does not fit the weights.
    """
    config, unknown = HMDEConfig.from_pretrained(start, return_unused_kwargs=True, **architecture)
    if unknown:
        raise ValueError(f"HMDEConfig has no field {', '.join(unknown)}; see its documentation for those it has")
    loaded: Any = HMDEForDocumentEmbedding.from_pretrained(
        start, config=config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
    )
    model, loading = loaded
    if any(loading.values()):
        faults = "; ".join(f"{fault}: {', '.join(map(str, keys))}" for fault, keys in loading.items() if keys)
        raise ValueError(f"the architecture does not fit the weights of {start}; leave its own as it is ({faults})")
    return model


def parameter_groups(model: HMDEForDocumentEmbedding, recipe: PretrainRecipe) -> list[dict[str, Any]]:
    """Weight decay on matrices only; the new document encoder at a learning rate of its own."""
    document_rate = recipe.learning_rate if recipe.document_learning_rate is None else recipe.document_learning_rate
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for part, rate in (
        (model.hmde.sentence_encoder, recipe.learning_rate),
        (model.hmde.document_encoder, document_rate),
    ):
        for weight in part.parameters():
            if weight.requires_grad:
                decay = recipe.weight_decay if weight.ndim > 1 else 0.0
                groups.setdefault((rate, decay), []).append(weight)
    return [{"params": weights, "lr": rate, "weight_decay": decay} for (rate, decay), weights in groups.items()]


def model_flops(model: HMDEForDocumentEmbedding, rows: Rows, document_path: bool) -> float:
    """Floating point operations of some rows, forward and backward, by the usual rule: two for each weight of a linear
    layer and each position going forward, four more going back where the weight is trained.

    The second forward pass of cached gradients, lookups and attention scores do not count.

    Args:
        rows: token ids, or kept sentence vectors.
        document_path: whether the rows pass the document encoder too.
    """
    flops = 0.0
    if "input_ids" in rows:
        flops += int(rows["attention_mask"].sum()) * flops_per_position(model.hmde.sentence_encoder)
    if document_path:
        if "input_ids" in rows:
            num_sentences = int((rows["input_ids"] == model.config.start_token_id).sum())
        else:
            num_sentences = int(rows["attention_mask"].sum())
        num_dbos = len(rows["attention_mask"])
        flops += (num_sentences + num_dbos) * flops_per_position(model.hmde.document_encoder)
    return flops


def flops_per_position(part: nn.Module) -> int:
    """Of one position that passes a part of a model, forward and backward."""
    layers = [module for module in part.modules() if isinstance(module, (nn.Linear, nn.LSTM))]
    matrices = [weight for layer in layers for weight in layer.parameters(recurse=False) if weight.ndim > 1]
    return sum((6 if weight.requires_grad else 2) * weight.numel() for weight in matrices)
