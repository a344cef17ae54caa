"""A new sentence encoder, for papers that start from none. Its tokenizer is trained on pairs, or given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from hmde.common.files import folder_written_whole
from hmde.common.fingerprints import fingerprint
from hmde.common.numbers import PositiveInt
from hmde.common.saved_models import model_type_of, opening
from replications.sentences.encoder import check_architecture, load_encoder
from replications.sentences.stage import PairsOptions
from replications.t_mde.data import DrawnPairs
from training.loop.checkpoints import training_folder

SENTENCE_PAIRS_OF_A_VOCABULARY = 1_000_000  # on which a tokenizer is trained, at most


@dataclass(kw_only=True)
class StartOptions(PairsOptions):
    """An encoder to start from, or a new one."""

    sentence_encoder: str | None = None
    """Hub name or folder of the encoder to start from; a new one, of `architecture`, if not given."""

    architecture: dict[str, Any] = field(default_factory=dict)
    """Fields of the encoder's configuration that differ from the start's; of a new encoder, its `model_type` too."""

    vocabulary_size: PositiveInt | None = None
    """Train a tokenizer of that many entries on the pairs, for a new encoder."""

    tokenizer: str | None = None
    """Hub name or folder of the tokenizer of a new encoder, in place of vocabulary_size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        tokenizers = {"vocabulary_size": self.vocabulary_size, "tokenizer": self.tokenizer}
        given = [name for name, value in tokenizers.items() if value]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} each say what the tokenizer is; give one of them")
        if self.sentence_encoder is None and not ("model_type" in self.architecture and given):
            raise ValueError(
                "a new encoder needs its model_type in architecture and a vocabulary_size or a tokenizer; or name a "
                "sentence_encoder to start from"
            )
        if self.sentence_encoder is not None and given:
            raise ValueError(
                f"the word embeddings of {self.sentence_encoder} belong to its tokenizer; leave {given[0]} out"
            )


def start_encoder(options: StartOptions, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The encoder that the options name, or a new one for the tokenizer.

    Raises:
        ValueError: there is no such encoder, or the architecture is none that it can have.
    """
    if options.sentence_encoder is not None:
        return load_encoder(options.sentence_encoder, options.architecture, options.max_length)
    architecture = dict(options.architecture)
    model_type = architecture.pop("model_type")
    ids = {
        name: getattr(tokenizer, name)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
    }
    try:
        config = AutoConfig.for_model(model_type, vocab_size=len(tokenizer), **ids)
    except ValueError as error:
        raise ValueError(f"architecture: there is no model_type {model_type!r} in transformers") from error
    unknown = [name for name in architecture if not hasattr(config, name)]
    for name, value in architecture.items():
        setattr(config, name, value)
    check_architecture(config, unknown, options.max_length)
    return AutoModel.from_config(config, dtype=torch.float32)


def start_tokenizer(options: StartOptions, pairs: DrawnPairs, accelerator: Accelerator) -> PreTrainedTokenizerBase:
    """The tokenizer of the encoder to start from, or the one that the options name; or a new one, trained once and kept
    in the training folder.

    Raises:
        ValueError: there is no such encoder or tokenizer.
    """
    if options.sentence_encoder is not None:
        model_type_of("sentence_encoder", options.sentence_encoder)
        return AutoTokenizer.from_pretrained(options.sentence_encoder)
    if options.tokenizer is not None:
        with opening(options.tokenizer, "tokenizer"):
            return AutoTokenizer.from_pretrained(options.tokenizer)
    assert options.vocabulary_size is not None
    name = fingerprint(pairs.fingerprint, options.vocabulary_size, options.seed)
    folder = training_folder(options.output) / f"tokenizer-{name}"
    if accelerator.is_main_process and not folder.exists():
        sentences = pairs.sentences(SENTENCE_PAIRS_OF_A_VOCABULARY)
        with folder_written_whole(folder) as partial:
            train_tokenizer(sentences, options.vocabulary_size).save_pretrained(partial)
    accelerator.wait_for_everyone()
    return AutoTokenizer.from_pretrained(folder)


def train_tokenizer(sentences: Iterable[str], vocabulary_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of XLM-R's kind, one vocabulary for all languages, lower-cased."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=vocabulary_size, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        cls_token="<s>",
        sep_token="</s>",
    )
