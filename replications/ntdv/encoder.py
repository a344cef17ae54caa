"""NTDV in training: two frozen translation models, and between their encoders and decoders what is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedTokenizerBase

from hmde.common.saved_models import model_type_of
from replications.drawn_pairs import DrawnPairs
from replications.ntdv.decoder import GRUDecoder
from replications.ntdv.modeling_ntdv import NTDVModel
from replications.sentences.batches import tokenized
from replications.sentences.encoder import SentenceEncoder
from replications.translation.encoder import DECODER, add_translation_losses
from training.loop.cached_gradients import Chunk, Embeddings

PAIRS_OF_EVIDENCE = 100_000  # in which tokens are counted, at most, to know their language
PAIRS_AT_ONCE = 512

SHARED_SIZES = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "pad_token_id")
TOKENIZER_PARTS = ("model", "normalizer", "pre_tokenizer", "post_processor", "added_tokens")


class NTDVEncoder(SentenceEncoder):
    """From rows to context vectors and to what their translation costs.

    The decoder of each direction looks at the context vectors where it looked at the hidden states of its own encoder,
    after the third of the shared layers, which makes them as wide as these. The thesis counts three and describes two.

    Args:
        model: with the encoders of the two translation models.
        decoders: theirs, in the order of the languages that are read.
        with_vectors: whether a loss compares the context vectors.
    """

    model: NTDVModel

    def __init__(self, model: NTDVModel, decoders: list[GRUDecoder], *, with_vectors: bool) -> None:
        super().__init__(model, "cls")
        self.with_vectors = with_vectors
        width = model.config.state_size
        self.to_decoder = nn.Linear(width, 2 * width)
        self.decoders = nn.ModuleList(decoders)
        self.requires_grad_(False)
        for part in (model.gru, model.query, model.key, model.value, self.to_decoder):
            part.requires_grad_(True)
        self.train()

    def train(self, mode: bool = True) -> NTDVEncoder:
        """What is frozen is as in use, without dropout."""
        super().train(mode)
        for part in (*self.model.encoders, *self.decoders):
            part.eval()
        return self

    def forward(self, chunk: Chunk) -> Embeddings:
        """
        Args:
            chunk: `sentences`, each with its translation into the other language, see NTDVCollator.

        Returns:
            if asked for, `sentences`, their context vectors end to end (rows, heads * state size); `translation`, the
            sum over the tokens of each row's translation, (rows, 1).
        """
        rows = chunk["sentences"]
        contexts = self.model(
            input_ids=rows["input_ids"],
            attention_mask=rows["attention_mask"],
            languages=1 - rows["target_language"],
        ).contexts
        memory = self.to_decoder(contexts)
        losses = contexts.new_zeros(len(contexts), dtype=torch.float32)
        for language, decoder in enumerate(self.decoders):
            translated = (rows["target_language"] == 1 - language).nonzero().flatten()
            losses = add_translation_losses(losses, decoder, memory, None, rows, translated, label_smoothing=0.0)
        embeddings = {"sentences": contexts.flatten(1)} if self.with_vectors else {}
        return embeddings | {"translation": losses.unsqueeze(1)}


def tokenizer_of_translators(translators: tuple[str, str]) -> PreTrainedTokenizerBase:
    """The one of both.

    Raises:
        ValueError: there is no such folder, or their tokenizers differ.
    """
    for folder in translators:
        model_type_of("translators", folder)
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in translators]
    first, second = (json.loads(tokenizer.backend_tokenizer.to_str()) for tokenizer in tokenizers)
    if any(first[part] != second[part] for part in TOKENIZER_PARTS):
        raise ValueError(
            f"the tokenizer of {translators[0]} is not that of {translators[1]}, but an NTDV has one; "
            f"train the second again, with tokenizer: {translators[0]} in place of its vocabulary_size"
        )
    return tokenizers[0]


def config_of_translators(translators: tuple[str, str]) -> Any:
    """The configuration of the first of two translation models that belong together.

    Raises:
        ValueError: one of them is no translation model, or has no decoder; their sizes differ; or the second does not
            translate back what the first translates.
    """
    first, second = (translator_config(folder) for folder in translators)
    if (second.source_language, second.target_language) != (first.target_language, first.source_language):
        ways = " and ".join(f"{config.source_language}-{config.target_language}" for config in (first, second))
        raise ValueError(f"translators translate {ways}; name two translation models, of which one translates back")
    differing = [name for name in SHARED_SIZES if getattr(first, name) != getattr(second, name)]
    if differing:
        raise ValueError(
            f"{' and '.join(translators)} differ in {', '.join(differing)}, but an NTDV shares what is above them; "
            "train both with the same architecture and tokenizer"
        )
    return first


def translator_config(folder: str) -> Any:
    """The configuration of a translation model.

    Raises:
        ValueError: it is of another kind, or its decoder is not there.
    """
    kind = model_type_of("translators", folder)
    if kind != "gru":
        raise ValueError(
            f"translators: {folder} holds a model of type {kind}; an NTDV stands on models of type gru, which "
            "replications/ntdv/train_translator.py makes"
        )
    if not Path(folder, DECODER).is_file():
        raise ValueError(f"translators: {folder} has no {DECODER}; train it again, and keep that file")
    return AutoConfig.from_pretrained(folder)


def load_translators(model: NTDVModel, translators: tuple[str, str]) -> list[GRUDecoder]:
    """Put the encoders of the translation models into an NTDV. Returns their decoders."""
    decoders = []
    for folder, encoder in zip(translators, model.encoders):
        encoder.load_state_dict(AutoModel.from_pretrained(folder, dtype=torch.float32).state_dict())
        decoder = GRUDecoder(AutoConfig.from_pretrained(folder))
        decoder.load_state_dict(load_file(Path(folder, DECODER)))
        decoders.append(decoder)
    return decoders


def language_evidence(
    pairs: DrawnPairs, tokenizer: PreTrainedTokenizerBase, max_length: int, languages: list[str]
) -> Tensor:
    """How much each token speaks for the second of two languages: the logarithm of its share among the tokens of the
    second language, in the training pairs, over its share among those of the first. One is added to each count, so
    that no share is 0.

    Returns:
        (vocabulary,); the sum over a text is above 0 where it is in the second language (naive Bayes).
    """
    counts = np.ones((2, len(tokenizer)))
    first_language = pairs.languages[0].split("-")[0]
    sentences = iter(pairs.sentences(PAIRS_OF_EVIDENCE))
    while texts := [text for _, text in zip(range(2 * PAIRS_AT_ONCE), sentences)]:
        for side in range(2):
            language = languages.index(first_language) ^ side
            rows = tokenized(tokenizer, max_length, texts[side::2], return_special_tokens_mask=True)
            tokens = rows["input_ids"][rows["special_tokens_mask"] == 0]
            counts[language] += np.bincount(tokens.numpy(), minlength=len(tokenizer))
    counts[:, tokenizer.all_special_ids] = 1
    shares = counts / counts.sum(axis=1, keepdims=True)
    evidence = np.log(shares[1] / shares[0])
    evidence[tokenizer.all_special_ids] = 0  # which stand in every text
    return torch.tensor(evidence, dtype=torch.float32)
