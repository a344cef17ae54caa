"""Tiny sentence encoders with random weights, saved as real checkpoint folders, and the HMDEs made from them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer

DOCUMENTS = [
    "The cat sat on the mat. It was warm there! Did the dog see it?",
    "Der Hund sah die Katze. Sie lag in der Sonne.\nDann schlief auch er ein, denn es war ein langer Tag gewesen.",
    "Le chat dort.",
    "Кот спит на ковре. Собака смотрит на него.",
    "猫在垫子上睡觉。狗看着它！天气很暖和。",
    "แมวนอนบนเสื่อ",
]
WORDS = sorted({*re.findall(r"\w+", " ".join(DOCUMENTS[:4]))})
CHARACTERS = sorted({*"".join(DOCUMENTS), *map(chr, range(0x21, 0x7F))} - {" ", "\n"})


def fast(tokenizer: Tokenizer, side: str = "right", **names: str | AddedToken) -> PreTrainedTokenizerFast:
    """transformers' tokenizer, with its special tokens named."""
    tokens = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side=side, **tokens)


def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of LaBSE's kind, with other ids for the special tokens than LaBSE's."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = dict.fromkeys([*special, *CHARACTERS, *(f"##{character}" for character in CHARACTERS), *WORDS])
    tokenizer = Tokenizer(models.WordPiece({piece: id for id, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = decoders.WordPiece()
    return fast(tokenizer, pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")


def unigram_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of XLM-R's kind: "<s>" is an ordinary and most probable piece of its vocabulary, and its normalizer
    makes ASCII of full-width characters."""
    scores = {"<s>": 0.0, "<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0, "▁": -3.0}
    scores |= dict.fromkeys([f"▁{word}" for word in WORDS], -4.0)
    scores |= dict.fromkeys(CHARACTERS, -6.0)
    scores |= {"<mask>": 0.0}
    tokenizer = Tokenizer(models.Unigram(list(scores.items()), unk_id=3))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.decoder = decoders.Metaspace()
    mask = AddedToken("<mask>", lstrip=True, special=True)
    return fast(tokenizer, bos="<s>", pad="<pad>", eos="</s>", unk="<unk>", cls="<s>", sep="</s>", mask=mask)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of ModernBERT's kind: bytes, merged to a few words."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "ca", "cat"]
    merges = [("t", "h"), ("th", "e"), ("c", "a"), ("ca", "t")]
    tokenizer = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", cls), ("[SEP]", sep)]
    )
    return fast(tokenizer, pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")


def randomise(module: torch.nn.Module, seed: int) -> None:
    """Every weight, also those that start at 0 or 1, at random and large enough that every term of a sum counts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            mean = 1.0 if name.lower().endswith("norm.weight") else 0.0
            parameter.normal_(mean, std=0.4, generator=generator)


def save_encoder(encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    randomise(encoder, seed=1)
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def save_labse(folder: Path) -> Path:
    """A checkpoint of LaBSE's shape: BERT with a pooler, WordPiece."""
    tokenizer = wordpiece_tokenizer()
    config = BertConfig(**SIZES, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    return save_encoder(BertModel(config), tokenizer, folder)


def save_modernbert(folder: Path) -> Path:
    """A checkpoint of ModernBERT's shape: rotary positions, local attention, no pooler, bytes."""
    tokenizer = byte_tokenizer()
    config = ModernBertConfig(
        **SIZES,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        global_attn_every_n_layers=2,
        local_attention=16,
    )
    return save_encoder(ModernBertModel(config), tokenizer, folder)


@pytest.fixture(scope="session")
def labse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_labse(tmp_path_factory.mktemp("encoders") / "labse")


@pytest.fixture(scope="session")
def xlmr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of XLM-R's shape: positions counted from `pad_token_id + 1`, Unigram."""
    tokenizer = unigram_tokenizer()
    config = XLMRobertaConfig(
        **SIZES, vocab_size=len(tokenizer), pad_token_id=1, max_position_embeddings=514, type_vocab_size=1
    )
    return save_encoder(XLMRobertaModel(config), tokenizer, tmp_path_factory.mktemp("encoders") / "xlmr")


@pytest.fixture(scope="session")
def modernbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_modernbert(tmp_path_factory.mktemp("encoders") / "modernbert")


@pytest.fixture(scope="session", params=["labse", "xlmr", "modernbert"])
def encoder_folder(request: pytest.FixtureRequest) -> Path:
    """Each of the sentence encoders in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., HMDEForDocumentEmbedding]:
    """A function from a sentence encoder's folder and options of `HMDEConfig` to an HMDE that is no identity."""

    def make(folder: Path, **options: object) -> HMDEForDocumentEmbedding:
        sizes = {"num_document_attention_heads": 4, "document_intermediate_size": 64}
        model = HMDEForDocumentEmbedding.from_sentence_encoder(str(folder), **(sizes | options))
        randomise(model.hmde.document_encoder, seed=2)
        return model

    return make


@pytest.fixture(scope="session")
def model(labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding]) -> HMDEForDocumentEmbedding:
    """An HMDE on the LaBSE-shaped encoder, with the paper's options. Not to be changed."""
    return make_model(labse)


@pytest.fixture(scope="session")
def tokenizer(labse: Path) -> HMDETokenizer:
    """The tokenizer of `model`. Not to be changed."""
    return HMDETokenizer.from_sentence_encoder(str(labse))


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny corpus. A run keeps its sentence vectors beside it, so each file of tests has its own."""
    from tests.pretraining import write_corpus

    return write_corpus(tmp_path_factory.mktemp("pretrain"))


@pytest.fixture(scope="session")
def model_folder(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Where `model` and `tokenizer` are saved. Not to be changed."""
    folder = tmp_path_factory.mktemp("models") / "hmde"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def exported_folder(
    xlmr: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Where an HMDE that reads passages is saved, and exported to ONNX. Not to be changed.

    An export takes seconds, so the processes of a run of tests share it.
    """
    from hmde.commands import export
    from hmde.commands.options import ExportOptions

    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "exported"
    with FileLock(f"{folder}.lock"):
        if not (folder / "onnx").exists():
            # With the residual of the recipes, as theirs, the cosines are above 0.
            passages = {"max_sentence_length": 40, "passage_length": 40, "document_pooling": "token_mean"}
            options = {"sentence_pooling": "mean", "document_residual": 0.5, **passages}
            make_model(xlmr, **options).save_pretrained(folder)
            tokenizer = HMDETokenizer.from_sentence_encoder(str(xlmr), sentence_prompt="der: ", query_prompt="die: ")
            tokenizer.save_pretrained(folder)
            export.main(ExportOptions(str(folder)))
    return folder


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """Six documents in six languages, of one to three sentences."""
    return DOCUMENTS
