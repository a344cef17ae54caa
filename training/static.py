"""A static sentence encoder: no layers, so that the vector of a token is the same in every text.

It starts as Model2Vec does (Tulkens and van Dongen, 2024), with the vector that the whole encoder gives to each token
by itself, and training goes on from there. A static encoder may grow: layers are put on it that start without effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from hmde.common.saved_models import check_is_hmde, load_hmde
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.encoders_hmde import first_position
from modeling_hmde.inference_hmde import evaluating
from training.layers import take_layers

TOKENS_AT_ONCE = 1024
SIF_COEFFICIENT = 1e-4


@torch.no_grad()
def make_static(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> None:
    """Give the word embeddings of an encoder, whose layers are then taken out, the vectors of its tokens.

    A frequent token says little, so its vector is moved towards the mean of all (SIF; Arora et al., 2017). Its
    frequency follows from its place in the vocabulary by Zipf's law, as in Model2Vec. What else the encoder adds to a
    token, such as its type, starts at 0, and its norm at the scale of the vectors. As all vectors of an encoder lie
    around their mean, far from 0, the norm changes their differences little.

    Raises:
        ValueError: the vector of a sentence is not the mean over its tokens, since it has another pooling, or since
            modules follow it.
    """
    if model.config.sentence_pooling != "mean":
        raise ValueError(
            f"layers is [], but sentence_pooling is {model.config.sentence_pooling!r}, and without layers no token "
            "knows of the others; set architecture.sentence_pooling mean, or keep some layers"
        )
    if modules := model.config.sentence_modules:
        raise ValueError(f"layers is [], but the encoder is followed by sentence_modules, {modules}; keep some layers")
    encoder: Any = model.hmde.sentence_encoder
    words: Any = model.get_input_embeddings()
    vectors = vectors_of_tokens(model, tokenizer)
    zipf = 1 / torch.arange(1, len(vectors) + 1)
    weights = SIF_COEFFICIENT / (SIF_COEFFICIENT + zipf / zipf.sum())
    for module in encoder.modules():
        if isinstance(module, nn.Embedding):
            module.weight.zero_()
        elif isinstance(module, nn.LayerNorm):
            nn.init.constant_(module.weight, float(vectors.std(dim=1).mean()))
            nn.init.zeros_(module.bias)
    mean = vectors.mean(dim=0)
    words.weight[: len(vectors)] = mean + weights.unsqueeze(1) * (vectors - mean)


@torch.no_grad()
def put_layers_on(model: HMDEForDocumentEmbedding, source: str, layers: Sequence[int]) -> None:
    """Put layers of another HMDE on a static one. At first they add 0 to every token, so that vectors stay the same:
    what attention and feed-forward networks give out is multiplied by 0, and the norms between keep what they get.

    Args:
        source: Hub name or folder of an HMDE with a sentence encoder of the same kind and width.
        layers: which of its layers, counted from 0.

    Raises:
        ValueError: the model has layers, the other model is no HMDE of the same kind, or it has no such layer.
    """
    static: Any = model.hmde.sentence_encoder
    if static.config.num_hidden_layers:
        raise ValueError(
            f"layers_of is for a static sentence_encoder, and this one has {static.config.num_hidden_layers} layers; "
            "leave layers_of out to keep some of them"
        )
    check_is_hmde("layers_of", source)
    whole: Any = load_hmde(source, torch.float32)[0]
    encoder: Any = whole.hmde.sentence_encoder
    kinds = [(one.config.model_type, one.config.hidden_size) for one in (static, encoder)]
    if kinds[0] != kinds[1] or kinds[0][0] not in ("bert", "xlm-roberta"):
        raise ValueError(
            f"layers_of is {source}, whose sentence encoder has the kind and width {kinds[1]}, and the static one has "
            f"{kinds[0]}; layers of bert and xlm-roberta can be put on one of the same kind and width"
        )
    take_layers(encoder, layers)
    encoder.resize_token_embeddings(static.config.vocab_size)
    encoder.load_state_dict(static.state_dict(), strict=False)  # all but the layers
    positions = encoder.embeddings.position_embeddings.weight
    positions[:] = positions[first_position(encoder.config)].clone()  # a static encoder reads every token there
    norm, last = encoder.embeddings.LayerNorm, encoder.encoder.layer[-1].output.LayerNorm
    last.load_state_dict(norm.state_dict())
    scale = float(norm.weight.mean())
    for branch in (part for layer in encoder.encoder.layer for part in (layer.attention.output, layer.output)):
        branch.dense.weight.zero_()
        branch.dense.bias.zero_()
    for between in (part for part in encoder.modules() if isinstance(part, nn.LayerNorm) and part is not last):
        nn.init.constant_(between.weight, scale)
        nn.init.zeros_(between.bias)
    model.hmde.sentence_encoder = encoder
    model.config.sentence_config = encoder.config


def vectors_of_tokens(model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer) -> Tensor:
    """(tokens, hidden), the sentence vector of each token of the vocabulary as a text of its own."""
    before, after = tokenizer.num_special_tokens
    frame = torch.tensor(tokenizer("")["input_ids"])
    ids = torch.arange(len(tokenizer)).unsqueeze(1)
    prefix, suffix = (part.expand(len(ids), -1) for part in (frame[:before], frame[len(frame) - after :]))
    texts = torch.cat([prefix, ids, suffix], dim=1).split(TOKENS_AT_ONCE)
    with evaluating(model):
        vectors = [
            model.hmde.encode_sentences(rows, sentence_ids=torch.zeros_like(rows))[1]
            for rows in tqdm(texts, desc="vectors of tokens", disable=None)
        ]
    return torch.cat(vectors)
