"""NTDV in training: two frozen models of translation, and between their encoders and decoders what is trained (Li 2021,
chapter 3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedTokenizerBase

from common.saved_models import model_type_of
from modeling_sentences import NTDVConfig, NTDVModel
from training.data.parallel import Pairs
from training.data.sentence_batches import tokenized
from training.decoders import GRUDecoder
from training.loop.cached_gradients import Chunk, Embeddings
from training.losses.sentences import translation
from training.recipes import PretrainSentencesRecipe
from training.sentence_models import DECODER, SENTENCES_AT_ONCE, SentenceEncoder, next_tokens

PAIRS_OF_EVIDENCE = 100_000  # in which words are counted, at most, to know their language

OF_BOTH = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "pad_token_id")  # that must be the same
OF_A_TOKENIZER = ("model", "normalizer", "pre_tokenizer", "post_processor", "added_tokens")


class NTDVEncoder(SentenceEncoder):
    """From rows to context vectors and to what their translation costs.

    The decoder of each direction looks at the context vectors where it looked at the states of its own encoder, after
    the third of the shared layers, which makes them as wide as these. The thesis counts three and describes two.

    Args:
        model: with the encoders of the two models of translation.
        decoders: theirs, in the order of the languages that are read.
        with_vectors: whether an objective compares the context vectors of both sides.
        label_smoothing: of the translation.
    """

    model: NTDVModel

    def __init__(
        self, model: NTDVModel, decoders: list[GRUDecoder], *, with_vectors: bool, label_smoothing: float
    ) -> None:
        super().__init__(model, "cls", with_vectors=with_vectors, label_smoothing=label_smoothing)
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
            chunk: `sentences`, each with its translation into the other language, see SentenceBatch.

        Returns:
            of `sentences`, if asked for, their context vectors end to end (rows, heads * state size); as `translation`,
            the sum over the tokens of each row's translation, (rows, 1).
        """
        rows = chunk["sentences"]
        contexts = self.model(
            input_ids=rows["input_ids"],
            attention_mask=rows["attention_mask"],
            languages=1 - rows["target_language"],
        ).contexts
        embeddings = {"sentences": contexts.flatten(1)} if self.with_vectors else {}
        return embeddings | {"translation": self._translation_of_contexts(contexts, rows)}

    def _translation_of_contexts(self, contexts: Tensor, rows: dict[str, Tensor]) -> Tensor:
        seen = self.to_decoder(contexts)
        losses = contexts.new_zeros(len(contexts), dtype=torch.float32)
        for language, decoder in enumerate(self.decoders):
            of_language = (rows["target_language"] == 1 - language).nonzero().flatten()
            if len(of_language):
                logits, tokens, row_of = next_tokens(cast(GRUDecoder, decoder), seen, None, rows, of_language)
                losses = losses.index_add(0, row_of, translation(logits, tokens, self.label_smoothing))
        return losses.unsqueeze(1)


def check_two_languages(recipe: PretrainSentencesRecipe, tables: list[str]) -> None:
    """Whether a model of translation with attention, or an NTDV, can learn from a corpus.

    Args:
        tables: of the corpus, `<one>-<other>`.

    Raises:
        ValueError: the corpus has more than one pair of languages, or another one than the recipe.
    """
    if len(tables) > 1 or not {*recipe.pivots} <= {*tables[0].split("-")}:
        raise ValueError(
            f"{recipe.corpus} has pairs of {', '.join(tables)}, and pivots {', '.join(recipe.pivots)}; a model of "
            "translation, and an NTDV, knows two languages: give a corpus of these alone, and name them there"
        )


def tokenizer_of_translators(recipe: PretrainSentencesRecipe) -> PreTrainedTokenizerBase:
    """The one of both.

    Raises:
        ValueError: there is no such folder, or their tokenizers differ.
    """
    for folder in recipe.translators:
        model_type_of("translators", folder)
    first, second = (AutoTokenizer.from_pretrained(folder) for folder in recipe.translators)
    of_first, of_second = (json.loads(tokenizer.backend_tokenizer.to_str()) for tokenizer in (first, second))
    if any(of_first[part] != of_second[part] for part in OF_A_TOKENIZER):
        raise ValueError(
            f"the tokenizer of {recipe.translators[0]} is not that of {recipe.translators[1]}, but an NTDV has one; "
            f"train the second again, with tokenizer: {recipe.translators[0]} in place of its vocabulary_size"
        )
    return first


def build_ntdv(recipe: PretrainSentencesRecipe, tokenizer: PreTrainedTokenizerBase, pairs: Pairs) -> NTDVEncoder:
    """The NTDV to train, on the two models of translation that the recipe names.

    Args:
        tokenizer: theirs.
        pairs: in which words are counted, to know their language later.

    Raises:
        ValueError: one of them is no model of translation, or has no decoder; their sizes differ; or they do not
            translate the languages into each other.
    """
    there, back = (recipe.pivots[0], recipe.pivots[1]), (recipe.pivots[1], recipe.pivots[0])
    found = [(folder, translator(folder)) for folder in recipe.translators]
    by_way = {(config.source_language, config.target_language): (folder, config) for folder, config in found}
    if by_way.keys() != {there, back}:
        ways = " and ".join(f"{config.source_language}-{config.target_language}" for _, config in found)
        raise ValueError(
            f"translators translate {ways}, but pivots has {', '.join(recipe.pivots)}; name a model of translation "
            "from each of them into the other"
        )
    (_, first), (_, second) = found
    differing = [name for name in OF_BOTH if getattr(first, name) != getattr(second, name)]
    if differing:
        raise ValueError(
            f"{' and '.join(recipe.translators)} differ in {', '.join(differing)}, but an NTDV shares what is above "
            "them; train both with the same architecture and tokenizer"
        )
    architecture = {name: value for name, value in recipe.architecture.items() if name != "model_type"}
    model = NTDVModel(
        NTDVConfig(
            vocab_size=first.vocab_size,
            embedding_size=first.embedding_size,
            num_hidden_layers=first.num_hidden_layers,
            state_size=first.hidden_size // 2,
            pad_token_id=first.pad_token_id,
            languages=list(recipe.pivots),
            **architecture,
        )
    )
    decoders = []
    for way, encoder in zip((there, back), model.encoders):
        folder, config = by_way[way]
        encoder.load_state_dict(AutoModel.from_pretrained(folder, dtype=torch.float32).state_dict())
        decoder = GRUDecoder(config)
        decoder.load_state_dict(load_file(Path(folder, DECODER)))
        decoders.append(decoder)
    model.evidence.copy_(evidence_of_language(pairs, tokenizer, recipe))
    if recipe.compile:
        model.compile(dynamic=True)
    return NTDVEncoder(
        model,
        decoders,
        with_vectors="squared_distance" in recipe.objectives,
        label_smoothing=recipe.label_smoothing,
    )


def translator(folder: str) -> Any:
    """The configuration of a model of translation.

    Raises:
        ValueError: it is of another kind, or its decoder was not kept.
    """
    kind = model_type_of("translators", folder)
    if kind != "gru":
        raise ValueError(
            f"translators: {folder} holds a model of type {kind}; an NTDV stands on models of type gru, which "
            "training/pretrain_sentences.py makes with the decoder gru"
        )
    if not Path(folder, DECODER).is_file():
        raise ValueError(f"translators: {folder} has no {DECODER}; train it with keep_decoder true")
    return AutoConfig.from_pretrained(folder)


def evidence_of_language(pairs: Pairs, tokenizer: PreTrainedTokenizerBase, recipe: PretrainSentencesRecipe) -> Tensor:
    """How much each word speaks for the second of the two languages: the logarithm of how many times as often as in the
    first it stands in the training pairs, where each word is counted once more than it does.

    Returns:
        (vocabulary,), of which the sum over a text is above 0 where it is in the second language (naive Bayes).
    """
    counts = np.ones((2, len(tokenizer)))
    first_language = pairs.languages[0].split("-")[0]
    sentences = iter(pairs.sentences(PAIRS_OF_EVIDENCE))
    while texts := [text for _, text in zip(range(2 * SENTENCES_AT_ONCE), sentences)]:
        for side in range(2):
            language = recipe.pivots.index(first_language) ^ side
            rows = tokenized(tokenizer, recipe.max_length, texts[side::2])
            words = rows["input_ids"][rows["special_tokens_mask"] == 0]
            counts[language] += np.bincount(words.numpy(), minlength=len(tokenizer))
    counts[:, tokenizer.all_special_ids] = 1
    shares = counts / counts.sum(axis=1, keepdims=True)
    evidence = np.log(shares[1] / shares[0])
    evidence[tokenizer.all_special_ids] = 0  # which stand in every text
    return torch.tensor(evidence, dtype=torch.float32)
