"""The methods of encoding documents that benchmarks/encode.py compares.

    hmde       encode_documents, each sentence read by itself (paper)
    passages   the same, with sentences read together in passages of 512 tokens, as the recipes for CPUs have it; in
               passages of fewer tokens in passages_128 and passages_256
    padded     the scheme of the authors' research code: every sentence padded to the longest of a batch, every document
               to the most sentences, one sentence position of all documents at a time. The same vectors as hmde.
    windows    sentence-transformers on windows of 128 tokens that overlap by a third, and their mean (paper, section
               3.3)
    flat       an encoder of the same sizes on the first 4,096 tokens of each document as one sequence. Its speed alone
               means something: its positions beyond the encoder's own are untrained.

A method that ends in _float32 is the same in float32. One that ends in _tokens is the same from tokens on, without the
tokenizer: what is left for a GPU to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModel, AutoTokenizer, BatchEncoding

from hmde.common.device import device
from hmde.documents.documents import Document
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.configuration_hmde import SentencePooling
from modeling_hmde.packing_hmde import bucket_by_length

MethodName = Literal[
    "hmde", "passages", "passages_128", "passages_256", "padded", "windows", "flat",
    "hmde_float32", "passages_float32", "padded_float32",
    "hmde_tokens", "passages_tokens",
]  # fmt: skip

WINDOW, FLAT, PASSAGE = 128, 4096, 512  # tokens
POOLINGS_OF_PADDED = ("cls", "mean", "pooler")


@dataclass
class Setting:
    """What all methods have in common.

    Args:
        encoder: folder or Hub name of the sentence encoder.
        dtype: of weights and activations, unless a method's name ends in _float32.
        pooling: how a sentence vector is read from the encoder.
        document_prompt: put before each sentence, window or document.
        max_sentences: of a document.
        batch_size: documents together in `padded`, windows together in `windows`.
    """

    encoder: str
    dtype: torch.dtype
    pooling: SentencePooling
    document_prompt: str
    max_sentences: int
    batch_size: int


@dataclass
class Method:
    """A method of encoding documents.

    Args:
        encode: documents -> (documents, hidden).
        work: documents -> their number of tokens without padding, and the floating point operations that these take.
        dtype: of weights and activations.
    """

    encode: Callable[[Sequence[Document]], np.ndarray]
    work: Callable[[Sequence[Document]], tuple[int, float]]
    dtype: torch.dtype


def load_method(name: MethodName, setting: Setting) -> Method:
    """The method of a name; see the module's description."""
    loaders: dict[str, Callable[[Setting, torch.dtype], Method]] = {
        "hmde": load_hmde,
        "hmde_tokens": partial(load_hmde, from_tokens=True),
        "passages": partial(load_hmde, passage_length=PASSAGE),
        "passages_128": partial(load_hmde, passage_length=128),
        "passages_256": partial(load_hmde, passage_length=256),
        "passages_tokens": partial(load_hmde, passage_length=PASSAGE, from_tokens=True),
        "padded": load_padded,
        "windows": load_windows,
        "flat": load_flat,
    }
    dtype = torch.float32 if name.endswith("_float32") else setting.dtype
    return loaders[name.removesuffix("_float32")](setting, dtype)


def untrained_hmde(
    setting: Setting, dtype: torch.dtype, **options: str | int
) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    model = HMDEForDocumentEmbedding.from_sentence_encoder(
        setting.encoder,
        dtype=dtype,
        sentence_pooling=setting.pooling,
        sentence_modules=(),  # as in the research code, nothing follows the pooling
        document_norm="pre",
        max_sentences=setting.max_sentences,
        **options,
    )
    tokenizer = HMDETokenizer.from_sentence_encoder(
        setting.encoder, max_sentences=setting.max_sentences, sentence_prompt=setting.document_prompt
    )
    return model.to(device()), tokenizer  # type: ignore[arg-type]


class CachingTokenizer:
    """A tokenizer that tokenizes each document once. In all else it is the tokenizer."""

    def __init__(self, tokenizer: HMDETokenizer) -> None:
        self.tokenizer = tokenizer
        self.rows: dict[tuple[str, str], tuple[list[int], list[int]]] = {}

    def __call__(self, texts: list[str], language: Sequence[str], **options: bool) -> BatchEncoding:
        if any(options.values()):
            raise ValueError(f"only rows of tokens are kept, but {options} asks for more")
        keys = list(zip(texts, language))
        new = list(dict.fromkeys(key for key in keys if key not in self.rows))
        if new:
            new_texts, languages = zip(*new)
            rows = self.tokenizer(list(new_texts), language=list(languages))
            self.rows |= zip(new, zip(rows.input_ids, rows.sentence_ids))
        input_ids, sentence_ids = zip(*(self.rows[key] for key in keys))
        return BatchEncoding({"input_ids": input_ids, "sentence_ids": sentence_ids})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def load_hmde(setting: Setting, dtype: torch.dtype, passage_length: int = 0, from_tokens: bool = False) -> Method:
    model, tokenizer = untrained_hmde(setting, dtype, passage_length=passage_length)
    if from_tokens:  # the work is counted before the time is taken, so the tokens are in the cache by then
        tokenizer = CachingTokenizer(tokenizer)  # type: ignore[assignment]

    def encode(documents: Sequence[Document]) -> np.ndarray:
        texts, languages = [document.text for document in documents], [document.language for document in documents]
        return model.encode_documents(texts, tokenizer, language=languages)

    return Method(encode, partial(hierarchical_work, model, tokenizer), dtype)


def load_padded(setting: Setting, dtype: torch.dtype) -> Method:
    model, tokenizer = untrained_hmde(setting, dtype, attn_implementation="sdpa")
    sentence_encoder, document_encoder = model.hmde.sentence_encoder, model.hmde.document_encoder

    def sentence_vectors(ids: Tensor, mask: Tensor) -> Tensor:
        """(documents, tokens) twice, one sentence of each document -> (documents, hidden)."""
        output = sentence_encoder(input_ids=ids, attention_mask=mask)
        if setting.pooling == "pooler":
            return output.pooler_output
        states, mask = output.last_hidden_state, mask.unsqueeze(-1)
        return states[:, 0] if setting.pooling == "cls" else (states * mask).sum(dim=1) / mask.sum(dim=1)

    def encode(documents: Sequence[Document]) -> np.ndarray:
        vectors = []
        for first in range(0, len(documents), setting.batch_size):
            batch = by_passage(tokenizer, documents[first : first + setting.batch_size], model.config)
            ids, mask, lengths = (torch.from_numpy(part).to(model.device) for part in batch.values())
            mask[:, :, 0] = 1  # a token of padding stands alone where a document has no sentence
            sentences = [sentence_vectors(ids[:, index], mask[:, index]) for index in range(ids.shape[1])]
            _, embeddings = document_encoder(torch.stack(sentences, dim=1), lengths)
            vectors.append(nn.functional.normalize(embeddings.float(), dim=-1).cpu())
        return torch.cat(vectors).numpy()

    return Method(encode, partial(hierarchical_work, model, tokenizer), dtype)


def load_windows(setting: Setting, dtype: torch.dtype) -> Method:
    model = SentenceTransformer(setting.encoder, device=device(), model_kwargs={"dtype": dtype})
    model.max_seq_length = WINDOW
    encoder: Any = model[0].auto_model
    tokenizer = model.tokenizer
    room = WINDOW - len(tokenizer(setting.document_prompt).input_ids)

    def windows(documents: Sequence[Document]) -> Iterator[list[str]]:
        texts = [document.text for document in documents]
        for text, offsets in zip(
            texts, tokenizer(texts, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
        ):
            firsts = range(0, max(len(offsets) - room // 3, 1), room - room // 3)
            parts = [offsets[first : first + room] for first in firsts]
            yield [text[part[0][0] : part[-1][1]] if part else "" for part in parts]

    def encode(documents: Sequence[Document]) -> np.ndarray:
        document_windows = list(windows(documents))
        vectors = model.encode(
            [window for part in document_windows for window in part],
            prompt=setting.document_prompt,
            batch_size=setting.batch_size,
            show_progress_bar=False,
        )
        bounds = np.cumsum([len(part) for part in document_windows])[:-1]
        return np.stack([part.mean(axis=0) for part in np.split(vectors, bounds)])

    def work(documents: Sequence[Document]) -> tuple[int, float]:
        texts = [setting.document_prompt + window for part in windows(documents) for window in part]
        lengths = [min(len(ids), WINDOW) for ids in tokenizer(texts).input_ids]
        return sum(lengths), operations(encoder, lengths)

    return Method(encode, work, dtype)


def load_flat(setting: Setting, dtype: torch.dtype) -> Method:
    config = AutoConfig.from_pretrained(setting.encoder, max_position_embeddings=FLAT + 2)
    loading = {"dtype": dtype, "attn_implementation": "sdpa", "ignore_mismatched_sizes": True}
    model = AutoModel.from_pretrained(setting.encoder, config=config, **loading).to(device()).eval()
    tokenizer = AutoTokenizer.from_pretrained(setting.encoder)

    def tokenize(documents: Sequence[Document]) -> list[list[int]]:
        texts = [setting.document_prompt + document.text for document in documents]
        return tokenizer(texts, truncation=True, max_length=FLAT).input_ids

    def encode(documents: Sequence[Document]) -> np.ndarray:
        rows = [torch.tensor(row) for row in tokenize(documents)]
        buckets = bucket_by_length(torch.tensor([len(row) for row in rows]), FLAT)
        vectors = []
        for bucket in buckets:
            ids = pad_sequence([rows[index] for index in bucket], True, tokenizer.pad_token_id).to(device())
            mask = ids != tokenizer.pad_token_id
            states = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
            vectors.append(((states * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)).float().cpu())
        return nn.functional.normalize(torch.cat(vectors)[torch.cat(buckets).argsort()], dim=-1).numpy()

    def work(documents: Sequence[Document]) -> tuple[int, float]:
        lengths = [len(row) for row in tokenize(documents)]
        return sum(lengths), operations(model, lengths)

    return Method(encode, work, dtype)


def by_passage(tokenizer: HMDETokenizer, documents: Sequence[Document], config: HMDEConfig) -> dict[str, np.ndarray]:
    """See `HMDETokenizer.by_passage`."""
    rows = tokenizer([document.text for document in documents], language=[document.language for document in documents])
    return tokenizer.by_passage(rows, config)


def hierarchical_work(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: Sequence[Document]
) -> tuple[int, float]:
    inputs = by_passage(tokenizer, documents, model.config)
    tokens = inputs["attention_mask"].sum(axis=2).ravel().tolist()
    states = (1 + (inputs["sentence_lengths"] > 0).sum(axis=1)).tolist()
    work = operations(model.hmde.sentence_encoder, tokens) + operations(model.hmde.document_encoder, states)
    return sum(tokens), work


def operations(encoder: nn.Module, lengths: Sequence[int]) -> float:
    """Additions and multiplications in a transformer's matrix products over sequences of these numbers of tokens."""
    weights = sum(module.weight.numel() for module in encoder.modules() if isinstance(module, nn.Linear))
    config: Any = encoder.config
    layers = max(len(part) for part in encoder.modules() if isinstance(part, nn.ModuleList))
    return 2 * weights * sum(lengths) + 4 * config.hidden_size * layers * sum(length**2 for length in lengths)
