"""The systems under comparison: texts in, unit vectors out. Knows no data files and no measures.

All but BM25, Longformer and the models of sentence-transformers are computed by one piece of code, so that their speeds
and precisions compare. An HMDE whose document encoder is the untrained identity (`document_norm="pre"`) takes the mean
of the vectors of a document's pieces, whatever the tokenizer makes its pieces: the first tokens, sliding windows, or
sentences.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import bm25s
import numpy as np
import Stemmer
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import tqdm

from evaluation.saved_models import model_type_of
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.configuration_hmde import SentencePooling
from modeling_hmde.modeling_hmde import MAX_TOKENS_PER_BUCKET
from modeling_hmde.packing_hmde import bucket_by_length
from modeling_hmde.tokenization_hmde import Piece

Dtype = Literal["float32", "bfloat16"]
Run = dict[str, dict[str, float]]  # score by query_id and doc_id


class System(Protocol):
    """What an evaluation asks of a system."""

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, hidden), float32, rows of unit length."""

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        """(documents, hidden), float32, rows of unit length. All documents are in one language, an ISO 639-1 code."""


@dataclass
class HMDESystem:
    """A system that is an HMDE, its tokenizer and nothing else.

    Args:
        model: on its device, in its dtype.
        tokenizer: decides what the pieces of a document are.
        show_progress_bar: over texts.
    """

    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer
    show_progress_bar: bool = False

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        vectors = self.model.encode_queries(
            queries, self.tokenizer, normalize=False, show_progress_bar=self.show_progress_bar
        )
        return _to_unit_length(vectors)

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        vectors = self.model.encode_documents(
            documents, self.tokenizer, language=language, normalize=False, show_progress_bar=self.show_progress_bar
        )
        return _to_unit_length(vectors)


@dataclass
class SentenceTransformersSystem:
    """A model of sentence-transformers with all its modules, so LaBSE with its dense layer and normalisation.

    Args:
        model: on its device, in its dtype.
        query_prompt, document_prompt: put before each text; empty for what the model itself says.
    """

    model: SentenceTransformer
    query_prompt: str = ""
    document_prompt: str = ""

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return self._encode(self.model.encode_query, queries, self.query_prompt)

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        return self._encode(self.model.encode_document, documents, self.document_prompt)

    def _encode(self, encode: Any, texts: Sequence[str], prompt: str) -> np.ndarray:
        vectors = encode(list(texts), prompt=prompt or None, convert_to_numpy=False, show_progress_bar=False)
        return _to_unit_length(torch.stack(list(vectors)).float().cpu().numpy())


@dataclass
class LongformerSystem:
    """A flat model that reads long documents (mLongformer; paper, section 3.3).

    Args:
        model: a Longformer, on its device, in its dtype.
        tokenizer: whose model_max_length is the longest document.
        global_attention: whether the first token sees the whole document, or a window only, as in the paper's code.
        pooling: `cls`, the first token's vector (paper), or `mean`, of all tokens.
        query_prompt, document_prompt: put before each text.
        show_progress_bar: over texts.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    global_attention: bool = True
    pooling: SentencePooling = "cls"
    query_prompt: str = ""
    document_prompt: str = ""
    show_progress_bar: bool = False

    def __post_init__(self) -> None:
        self.windows = list(self.model.config.attention_window)

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return self._encode([self.query_prompt + query for query in queries])

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        return self._encode([self.document_prompt + document for document in documents])

    @torch.inference_mode()
    def _encode(self, texts: list[str]) -> np.ndarray:
        rows = self.tokenizer(texts, truncation=True)["input_ids"]
        vectors = np.empty((len(rows), self.model.config.hidden_size), dtype=np.float32)
        lengths = torch.tensor([len(row) for row in rows])
        widest = torch.tensor([max(self._windows_for(len(row))) for row in rows])
        padded_lengths = -(-lengths // widest) * widest  # a Longformer's rows are multiples of its widest window
        batches = bucket_by_length(padded_lengths, MAX_TOKENS_PER_BUCKET)
        for batch in tqdm(batches, disable=not self.show_progress_bar, unit="batch"):
            self._set_windows(self._windows_for(int(lengths[batch].max())))
            padded = self.tokenizer.pad(
                {"input_ids": [rows[place] for place in batch]},
                pad_to_multiple_of=max(self.model.config.attention_window),
                return_tensors="pt",
            )
            inputs = dict(padded.to(self.model.device))
            if self.global_attention:
                inputs["global_attention_mask"] = torch.zeros_like(inputs["input_ids"])
                inputs["global_attention_mask"][:, 0] = 1
            states = self.model(**inputs).last_hidden_state
            if self.pooling == "cls":
                pooled = states[:, 0].float()
            else:
                real = inputs["attention_mask"].unsqueeze(-1)
                pooled = (states.float() * real).sum(dim=1) / real.sum(dim=1)
            vectors[batch.numpy()] = pooled.cpu().numpy()
        return _to_unit_length(vectors)

    def _windows_for(self, length: int) -> list[int]:
        """The window of each layer, of which a token sees half on either side, none wider than a text of so many tokens
        can use: the vectors are the same, and a query does not cost what a document costs. A row must be a multiple of
        every layer's window, which powers of two see to where windows differ."""
        all_of_it = 1 << (2 * length - 1).bit_length()
        return [min(window, all_of_it) for window in self.windows]

    def _set_windows(self, windows: list[int]) -> None:
        self.model.config.attention_window = windows
        encoder: Any = self.model.encoder
        for layer, window in zip(encoder.layer, windows):
            layer.attention.self.one_sided_attn_window_size = window // 2


# Runs of characters of scripts that put no space between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


class BM25:
    """Words in common, weighted as in Lucene; the baseline of retrieval within one language. Has no vectors.

    Words are lower-cased and, where Snowball has the language, stemmed. Scripts without spaces between words are read
    as pairs of characters.
    """

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], language: str, depth: int, threshold: float = 0
    ) -> Run:
        """The `depth` best documents of each query, without those that share no word with it.

        Args:
            queries: text by query_id.
            documents: text by doc_id, in the queries' language.
            language: ISO 639-1 code of both.
            depth: documents a query ranks at most.
            threshold: a score that a ranked document exceeds.
        """
        index = bm25s.BM25(method="lucene")
        doc_ids = list(documents)
        index.index([terms(text, language) for text in documents.values()], show_progress=False)
        run: Run = {}
        for query_id, text in queries.items():
            known = [term for term in terms(text, language) if term in index.vocab_dict]
            scores = index.get_scores(known) if known else np.zeros(len(doc_ids), dtype=np.float32)
            best = np.lexsort((np.arange(len(scores)), -scores))[:depth]
            run[query_id] = {doc_ids[place]: float(scores[place]) for place in best if scores[place] > threshold}
        return run


def terms(text: str, language: str) -> list[str]:
    """What BM25 counts.

    >>> terms("The houses, two houses", "en")
    ['the', 'hous', 'two', 'hous']
    >>> terms("猫在睡觉 2x", "zh")
    ['猫在', '在睡', '睡觉', '2x']
    """
    found: list[str] = []
    for word in re.findall(r"\w+", _UNSPACED.sub(r" \g<0> ", text.lower())):
        if _UNSPACED.match(word) and len(word) > 1:
            found += [word[place : place + 2] for place in range(len(word) - 1)]
        else:
            found.append(word)
    try:
        return Stemmer.Stemmer(language).stemWords(found)
    except KeyError:  # a language that Snowball does not know
        return found


@dataclass
class SystemRecipe:
    """A system as a recipe names it.

    Args:
        kind: `hmde`, or a way to use a sentence encoder that knows no documents: `first`, the first tokens of a
            document as one sentence; `windows`, the mean over windows of 128 tokens that overlap by a third, at most 32
            of them (LaBSE-Seg; paper, section 3.3); `sentences`, the mean over its first 128 sentences, divided as
            an HMDE divides them; `weighted_sentences`, the same mean weighted by the sentences' tokens; `passages`, the
            weighted mean of sentences that are read together, up to 512 tokens at a time. Or `sentence_transformers`, a
            model of that library as it says itself; `longformer`, one that training/longformer.py wrote; `bm25`, which
            is left out where query and documents differ in language.
        model: folder or Hub name, of an HMDE or of the encoder. Left out for `bm25`.
        pooling: how the sentence encoder's vector is read from it: cls, mean or pooler; of `longformer` cls, as in the
            paper, unless it says mean. Others know their own.
        query_prompt: put before each query, such as e5's "query: ". An HMDE knows its own.
        document_prompt: put before each piece of a document, such as e5's "passage: ". An HMDE knows its own.
        max_length: tokens of a piece, start token, end token and prompt included: for `first` 512 if not given, for
            `windows` and sentences 128; of a document for `sentence_transformers`. Others know their own.
        global_attention: of `longformer`, whether the first token sees the whole document; not so in the paper's code.
        trust_remote_code: of `sentence_transformers`, whether code from the model's folder may run.
    """

    kind: Literal[
        "hmde",
        "first",
        "windows",
        "sentences",
        "weighted_sentences",
        "passages",
        "sentence_transformers",
        "longformer",
        "bm25",
    ]
    model: str = ""
    pooling: SentencePooling | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    max_length: int | None = None
    global_attention: bool = True
    trust_remote_code: bool = False


class WindowTokenizer(HMDETokenizer):
    """Makes the pieces of a document overlapping windows of its tokens, however its sentences run.

    A window and the next share a third of their text (paper, section 3.3: N_S / 3, 42 tokens of 128 with a start and
    an end token). The last window ends where the document ends, so it may be shorter.
    """

    def _frame_tokens(
        self, ids: list[int], offsets: list[tuple[int, int]], begin: int, prompt_ids: list[int], once: bool
    ) -> list[Piece]:
        if once:  # a query
            return super()._frame_tokens(ids, offsets, begin, prompt_ids, once)
        room = self.max_sentence_length - len(self._prefix_ids) - len(self._suffix_ids) - len(prompt_ids)
        overlap = room // 3
        return [
            self._frame_piece(prompt_ids, ids[first : first + room], offsets[first : first + room])
            for first in range(0, max(len(ids) - overlap, 1), room - overlap)
        ]


# How each use of a sentence encoder divides a document and takes the mean of the pieces: the tokenizer, its options and
# fields of HMDEConfig.
SENTENCES = {"segmentation": "sentences", "max_sentences": 128, "max_sentence_length": 128}
PIECES: dict[str, tuple[type[HMDETokenizer], dict[str, Any], dict[str, Any]]] = {
    "first": (HMDETokenizer, {"segmentation": "chunks", "max_sentences": 1, "max_sentence_length": 512}, {}),
    "windows": (WindowTokenizer, {"segmentation": "chunks", "max_sentences": 32, "max_sentence_length": 128}, {}),
    "sentences": (HMDETokenizer, SENTENCES, {}),
    "weighted_sentences": (HMDETokenizer, SENTENCES, {"document_pooling": "token_mean"}),
    "passages": (HMDETokenizer, SENTENCES, {"document_pooling": "token_mean", "passage_length": 512}),
}


def check_systems(systems: dict[str, SystemRecipe]) -> None:
    """Finds what is wrong with some systems before any of them computes.

    Raises:
        ValueError: there is none; a name cannot name a file; a model cannot be found or is not what its kind says; a
            pooling is missing or has no weights; or an HMDE is given what it knows itself.
    """
    if not systems:
        raise ValueError("systems is empty; name at least one")
    for name, system in systems.items():
        check_system(name, system)


def check_system(name: str, system: SystemRecipe) -> None:
    """Raises:
    ValueError: see `check_systems`.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"system {name!r} names files; use letters, digits, '.', '-' and '_' only")
    if (system.kind == "bm25") == bool(system.model):
        raise ValueError(f"system {name} is of kind {system.kind}; only bm25 has no model")
    if not system.model:
        return
    if system.kind in PIECES and system.pooling is None:
        raise ValueError(f"system {name} has no pooling; say how its encoder was trained: cls, mean or pooler")
    if system.kind == "longformer" and system.pooling == "pooler":
        raise ValueError(f"system {name} is a Longformer, whose pooler was never trained; its pooling is cls or mean")
    if system.kind == "hmde" and any((system.pooling, system.query_prompt, system.document_prompt, system.max_length)):
        raise ValueError(
            f"system {name} is an HMDE, whose folder says its pooling, prompts and max_length; leave them out, or "
            "choose another kind"
        )
    if system.kind == "sentence_transformers":
        return  # its configuration need not be one of transformers
    model_type = model_type_of(name, system.model)
    for kind in ("hmde", "longformer"):
        if (system.kind == kind) != (model_type == kind):
            raise ValueError(
                f"system {name} is of kind {system.kind}, but {system.model} holds a model of type {model_type}; the "
                f"kind is {kind} for a model of that type and only then"
            )


def load_system(recipe: SystemRecipe, dtype: Dtype = "float32") -> System | BM25:
    """A system ready to encode, on a GPU if there is one.

    Args:
        recipe: one that `check_systems` let pass.
        dtype: of weights and activations. Vectors are float32 in any case.
    """
    if recipe.kind == "bm25":
        return BM25()
    if recipe.kind == "sentence_transformers":
        sentence_transformer = SentenceTransformer(
            recipe.model,
            device=device(),
            trust_remote_code=recipe.trust_remote_code,
            model_kwargs={"dtype": getattr(torch, dtype)},
        )
        if recipe.max_length is not None:
            sentence_transformer.max_seq_length = recipe.max_length
        return SentenceTransformersSystem(sentence_transformer, recipe.query_prompt, recipe.document_prompt)
    if recipe.kind == "longformer":
        longformer = AutoModel.from_pretrained(recipe.model, dtype=dtype, add_pooling_layer=False).to(device())
        return LongformerSystem(
            longformer,
            AutoTokenizer.from_pretrained(recipe.model),
            recipe.global_attention,
            recipe.pooling or "cls",
            recipe.query_prompt,
            recipe.document_prompt,
            show_progress_bar=sys.stderr.isatty(),
        )
    return load_hmde(recipe, dtype)


def load_hmde(recipe: SystemRecipe, dtype: Dtype = "float32") -> HMDESystem:
    """A system that is an HMDE, or an HMDE that does nothing but what its kind says."""
    if recipe.kind == "hmde":
        tokenizer = HMDETokenizer.from_pretrained(recipe.model)
        model = HMDEForDocumentEmbedding.from_pretrained(recipe.model, dtype=dtype)
    else:
        tokenizer_class, pieces, reading = PIECES[recipe.kind]
        if recipe.max_length is not None:
            pieces = pieces | {"max_sentence_length": recipe.max_length}
        tokenizer = tokenizer_class.from_sentence_encoder(
            recipe.model, sentence_prompt=recipe.document_prompt, query_prompt=recipe.query_prompt, **pieces
        )
        model = HMDEForDocumentEmbedding.from_sentence_encoder(
            recipe.model,
            dtype=dtype,
            sentence_pooling=recipe.pooling,
            max_sentence_length=pieces["max_sentence_length"],
            document_norm="pre",
            **reading,
            # The smallest document encoder there is: as the identity, it adds nothing but time.
            num_document_layers=1,
            num_document_attention_heads=1,
            document_intermediate_size=1,
        )
    model.to(device())  # type: ignore[arg-type]
    return HMDESystem(model, tokenizer, show_progress_bar=sys.stderr.isatty())


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _to_unit_length(vectors: np.ndarray) -> np.ndarray:
    """In float32, whatever the dtype of the model.

    Raises:
        ValueError: a vector is not finite.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError(f"the vector of text {np.isfinite(lengths).argmin()} is not finite; try dtype float32")
    return vectors / lengths
