"""Tiny random encoders of each family, with tokenizers of their kinds trained on a small text, saved as pipelines of
sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, PreTrainedTokenizerFast

from tests.tiny_encoders import DOCUMENTS, fast, randomise

SIZE = 32
TEXTS = [*DOCUMENTS, "task: search result | query: Instruct: find it\nQuery:", "title: none | text: passage: a b c."]


def wordpiece() -> PreTrainedTokenizerFast:
    """BERT's: [CLS] before and [SEP] after a text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special))
    tokenizer.post_processor = _frame(tokenizer, "[CLS] $A [SEP]", "[CLS]", "[SEP]")
    return fast(tokenizer, pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")


def unigram(frame: str = "<s> $A </s>", pad_first: bool = False) -> PreTrainedTokenizerFast:
    """XLM-R's: <s> before and </s> after a text. With another frame, T5's."""
    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"] if pad_first else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        TEXTS, trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>")
    )
    tokenizer.post_processor = _frame(tokenizer, frame, *(token for token in ("<s>", "</s>") if token in frame))
    return fast(tokenizer, pad="<pad>", unk="<unk>", bos="<s>", eos="</s>", cls="<s>", sep="</s>", mask="<mask>")


def byte_bpe(frame: str, special: list[str], side: str = "right", **names: str) -> PreTrainedTokenizerFast:
    """GPT-2's, ModernBERT's and Qwen's: bytes and merges, with the special tokens around a text that `frame` names."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = _frame(tokenizer, frame, *(token for token in special if token in frame))
    return fast(tokenizer, side=side, **names)


def modernbert_tokens() -> PreTrainedTokenizerFast:
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    return byte_bpe("[CLS] $A [SEP]", special, pad="[PAD]", cls="[CLS]", sep="[SEP]", mask="[MASK]")


def roberta_tokens() -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    names = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    return byte_bpe("<s> $A </s>", special, **names)


def qwen3_embedding_tokens() -> PreTrainedTokenizerFast:
    """No start token; the end token that stands behind a text is the padding token too; padding on the left."""
    end = "<|endoftext|>"
    return byte_bpe(f"$A {end}", [end, "<|im_start|>", "<|im_end|>"], side="left", pad=end, eos="<|im_end|>")


def qwen_tokens() -> PreTrainedTokenizerFast:
    """No special token around a text."""
    return byte_bpe("$A", ["<|endoftext|>", "<|im_end|>"], pad="<|endoftext|>", eos="<|im_end|>")


def llama_tokens() -> PreTrainedTokenizerFast:
    """A start token alone."""
    return byte_bpe("<s> $A", ["<unk>", "<s>", "</s>"], pad="</s>", bos="<s>", eos="</s>", unk="<unk>")


def gemma_tokens() -> PreTrainedTokenizerFast:
    """Gemma's: spaces become ▁, and what is not in the vocabulary becomes bytes; <bos> before and <eos> after."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=special))
    tokenizer.post_processor = _frame(tokenizer, "<bos> $A <eos>", "<bos>", "<eos>")
    return fast(tokenizer, side="left", pad="<pad>", bos="<bos>", eos="<eos>", unk="<unk>", mask="<mask>")


def _frame(tokenizer: Tokenizer, template: str, *tokens: str) -> processors.TemplateProcessing:
    ids = [(token, tokenizer.token_to_id(token)) for token in tokens]
    return processors.TemplateProcessing(single=template, special_tokens=ids)


@dataclass
class Family:
    """An encoder as it stands on the Hub.

    Args:
        model_type, tokenizer: of the transformer.
        pooling: of its pipeline.
        config: fields of its configuration.
        modules: what follows the pooling, for vectors of 32 numbers.
        prompts: of its pipeline.
        packed: whether HMDE packs its sentences.
    """

    model_type: str
    tokenizer: Callable[[], PreTrainedTokenizerFast]
    pooling: str = "mean"
    config: dict[str, Any] = field(default_factory=dict)
    modules: Callable[[], list[nn.Module]] = list
    prompts: dict[str, str] = field(default_factory=dict)
    packed: bool = True


DECODER: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8}
GEMMA = DECODER | {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
INSTRUCTION = {"query": "Instruct: find it\nQuery:"}
GEMMA_PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}


def embedding_gemma_modules() -> list[nn.Module]:
    linear: Any = nn.Identity()
    return [
        Dense(SIZE, 64, bias=False, activation_function=linear),
        Dense(64, SIZE, bias=False, activation_function=linear),
        Normalize(),
    ]


T5: dict[str, Any] = {"d_model": SIZE, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 4}


def t5_tokens() -> PreTrainedTokenizerFast:
    return unigram("$A </s>", pad_first=True)


FAMILIES = {
    "labse": Family("bert", wordpiece, "cls", modules=lambda: [Dense(SIZE, SIZE), Normalize()]),
    "bert": Family("bert", wordpiece),
    "e5": Family(
        "xlm-roberta", unigram, modules=lambda: [Normalize()], prompts={"query": "query: ", "passage": "passage: "}
    ),
    "bge-m3": Family("xlm-roberta", unigram, "cls", modules=lambda: [Normalize()]),
    "roberta": Family("roberta", roberta_tokens),
    "camembert": Family("camembert", unigram),
    "granite-r2": Family("modernbert", modernbert_tokens, "cls", {"local_attention": 8}, lambda: [Normalize()]),
    "mmbert": Family("modernbert", modernbert_tokens, "mean", {"local_attention": 8}),
    "harrier-270m": Family("gemma3_text", gemma_tokens, "lasttoken", GEMMA, lambda: [Normalize()], INSTRUCTION),
    "embeddinggemma": Family(
        "gemma3_text",
        gemma_tokens,
        "mean",
        GEMMA | {"use_bidirectional_attention": True},
        embedding_gemma_modules,
        GEMMA_PROMPTS,
    ),
    "qwen3-embedding": Family(
        "qwen3", qwen3_embedding_tokens, "lasttoken", DECODER, lambda: [Normalize()], INSTRUCTION
    ),
    "qwen2-sliding": Family(
        "qwen2",
        qwen_tokens,
        "lasttoken",
        {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "gte-qwen2": Family("qwen2", qwen_tokens, "lasttoken", {"num_key_value_heads": 2, "is_causal": False}),
    "eurobert": Family("eurobert", llama_tokens, "mean", {"num_key_value_heads": 2}),
    "llama": Family("llama", llama_tokens, "lasttoken", {"num_key_value_heads": 2}),
    "sgpt": Family("llama", llama_tokens, "weightedmean", {"num_key_value_heads": 2}),
    "nomic": Family("nomic_bert", wordpiece, prompts={"query": "search_query: ", "document": "search_document: "}),
    "mpnet": Family("mpnet", roberta_tokens, "mean", packed=False),
    "distilbert": Family(
        "distilbert",
        wordpiece,
        "mean",
        {"dim": SIZE, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        lambda: [Dense(SIZE, 16)],
        packed=False,
    ),
    "deberta-v2": Family("deberta-v2", unigram, "max", packed=False),
    "electra": Family("electra", wordpiece, "mean_sqrt_len_tokens", {"embedding_size": SIZE}, packed=False),
    "albert": Family("albert", unigram, "mean", {"embedding_size": 16}, packed=False),
    "roformer": Family("roformer", wordpiece, "cls", {"embedding_size": SIZE}, packed=False),
    "e5-mistral": Family(
        "mistral",
        llama_tokens,
        "lasttoken",
        {"num_key_value_heads": 2, "sliding_window": 8},
        lambda: [Normalize()],
        INSTRUCTION,
        packed=False,
    ),
    "t5": Family("t5", t5_tokens, config=T5, packed=False),
    "mt5": Family("mt5", t5_tokens, config=T5, packed=False),
    "umt5": Family("umt5", t5_tokens, config=T5, modules=lambda: [LayerNorm(SIZE)], packed=False),
    "roberta-prelayernorm": Family("roberta-prelayernorm", roberta_tokens, packed=False),
    "xlm-roberta-xl": Family("xlm-roberta-xl", unigram, packed=False),
}
SIZES = {"hidden_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def save_family(family: Family, folder: Path) -> Path:
    """Write the pipeline of an encoder of this family, with random weights, to a folder."""
    tokenizer = family.tokenizer()
    has_decoder = family.model_type in ("t5", "mt5", "umt5")
    sizes = {} if has_decoder or family.model_type == "distilbert" else SIZES
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos", "cls", "sep")}
    config = AutoConfig.for_model(family.model_type, vocab_size=len(tokenizer), **{**sizes, **ids, **family.config})
    auto_class = AutoModelForTextEncoding if has_decoder else AutoModel
    encoder = auto_class.from_config(config)
    randomise(encoder, seed=1)
    plain = folder / "plain"
    encoder.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    torch.manual_seed(2)
    modules = [Transformer(str(plain)), Pooling(SIZE, family.pooling), *family.modules()]
    SentenceTransformer(modules=modules, prompts=family.prompts or None, device="cpu").save(str(folder / "pipeline"))
    return folder / "pipeline"
