"""The systems under comparison: texts in, unit vectors out. Knows no data files and no measures.

All but BM25, Longformer and the models of sentence-transformers are computed by one piece of code, so that their speeds
and precisions compare. An HMDE whose document encoder is the untrained identity (`document_norm="pre"`) takes the mean
of the vectors of a document's pieces, whatever the tokenizer makes its pieces: the first tokens, sliding windows, or
sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from common.device import device
from common.progress import progress_bar
from common.saved_models import model_type_of
from evaluation.datasets.files import Run
from evaluation.recipes import SystemRecipe
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.configuration_hmde import SentencePooling
from modeling_hmde.encoders_hmde import check_sentence_layer
from modeling_hmde.modeling_hmde import MAX_TOKENS_PER_BUCKET
from modeling_hmde.packing_hmde import bucket_by_length
from modeling_hmde.tokenization_hmde import Piece, Tokens

if TYPE_CHECKING:  # importing them takes seconds, and few recipes need them
    from sentence_transformers import SentenceTransformer

    from search.documents import Document


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
    """

    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        return _to_unit_length(self.model.encode_queries(queries, self.tokenizer, normalize=False))

    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        return _to_unit_length(
            self.model.encode_documents(documents, self.tokenizer, language=language, normalize=False)
        )


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
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    global_attention: bool = True
    pooling: SentencePooling = "cls"
    query_prompt: str = ""
    document_prompt: str = ""

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
        for batch in bucket_by_length(padded_lengths, MAX_TOKENS_PER_BUCKET):
            self._set_windows(self._windows_for(int(lengths[batch].max())))
            padded = self.tokenizer.pad(
                {"input_ids": [rows[index] for index in batch]},
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
        """The window of each layer for a text of `length` tokens.

        A token sees half a window on either side, so a short text needs only narrow windows: the vectors stay the same
        and a query costs less. A row must be a multiple of every layer's window; powers of two make sure that it is.
        """
        whole_text = 1 << (2 * length - 1).bit_length()
        return [min(window, whole_text) for window in self.windows]

    def _set_windows(self, windows: list[int]) -> None:
        self.model.config.attention_window = windows
        encoder: Any = self.model.encoder
        for layer, window in zip(encoder.layer, windows):
            layer.attention.self.one_sided_attn_window_size = window // 2


class BM25:
    """Words in common, weighted as in Lucene; the baseline of retrieval within one language. Has no vectors.

    Words are lower-cased and, where Snowball has the language, stemmed. Scripts without spaces between words are read
    as pairs of characters.
    """

    def rank(
        self,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        language: str,
        depth: int,
        threshold: float = 0,
        name: str = "",
    ) -> Run:
        """The `depth` best documents of each query, without those that share no word with it.

        Args:
            queries: text by query_id.
            documents: text by doc_id, in the queries' language.
            language: ISO 639-1 code of both.
            depth: documents a query ranks at most.
            threshold: a score that a ranked document exceeds.
            name: of the progress bar.
        """
        import bm25s

        from search.bm25 import terms  # needs PyStemmer

        index = bm25s.BM25(method="lucene")
        doc_ids = list(documents)
        run: Run = {}
        with progress_bar(name, len(documents) + len(queries), delay=1) as progress:

            def terms_of(text: str) -> list[str]:
                progress.update()
                return terms(text, language)

            index.index([terms_of(text) for text in documents.values()], show_progress=False)
            for query_id, text in queries.items():
                known = [term for term in terms_of(text) if term in index.vocab_dict]
                scores = index.get_scores(known) if known else np.zeros(len(doc_ids), dtype=np.float32)
                best = np.lexsort((np.arange(len(scores)), -scores))[:depth]
                run[query_id] = {doc_ids[row]: float(scores[row]) for row in best if scores[row] > threshold}
        return run


@dataclass
class SearchSystem:
    """What `python -m search query` shows: the rankings of search/ranking.py that need more than two vectors.

    Args:
        name: folder or Hub name of the model.
        model: on its device, in its dtype.
        tokenizer: the model's.
        ranking: see search/ranking.py.
    """

    name: str
    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer
    ranking: Literal["hybrid", "late"]

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, hidden), float32, rows of unit length."""
        return self.model.encode_queries(queries, self.tokenizer)

    def rank(
        self,
        queries: Mapping[str, str],
        vectors: Mapping[str, np.ndarray],
        documents: Iterable[Document],
        folder: Path,
        depth: int,
        name: str = "",
    ) -> Run:
        """The documents of each query: the first as a user finds them, behind them the nearest of the others.

        The score is the rank, negated: where two scores are equal, search and trec_eval would not agree on the order.

        Args:
            queries: text by query_id.
            vectors: (hidden,), of each query.
            documents: the collection; can be read again and again.
            folder: where the index is kept.
            depth: documents a query ranks at most.
            name: of the progress bar.
        """
        from search.encoder import Encoder  # needs the extra `search`
        from search.index import open_index
        from search.ranking import CANDIDATES, rank
        from search.update import update_index

        encoder = Encoder(self.name, self.model, self.tokenizer)
        update_index(folder, documents, encoder, sentences=self.ranking == "late")
        index = open_index(folder)
        run: Run = {}
        with progress_bar(name, len(queries), unit="query") as progress:
            for query_id, text in queries.items():
                vector = vectors[query_id]
                first = rank(index, text, encoder, self.ranking, CANDIDATES, vector=vector)
                ranked = dict.fromkeys([*first, *rank(index, text, encoder, "dense", depth, vector=vector)])
                run[query_id] = {doc_id: -float(place) for place, doc_id in zip(range(depth), ranked)}
                progress.update()
        return run


class CuttingTokenizer(HMDETokenizer):
    """Cuts a document without a warning: where to cut is part of what a baseline is."""

    def _warn_of_truncation(self, pieces: list[Piece], row: Piece, limit: int | None) -> None:
        pass


class WindowTokenizer(CuttingTokenizer):
    """Makes the pieces of a document overlapping windows of its tokens, however its sentences run.

    A window and the next share a third of their text (paper, section 3.3: N_S / 3, 42 tokens of 128 with a start and
    an end token). The last window ends where the document ends, so it may be shorter.
    """

    def _frame_tokens(self, tokens: Tokens, begin: int, prompt_ids: list[int], once: bool) -> list[Piece]:
        if once:  # a query
            return super()._frame_tokens(tokens, begin, prompt_ids, once)
        room = self.max_sentence_length - len(self._prefix_ids) - len(self._suffix_ids) - len(prompt_ids)
        overlap = room // 3
        starts = range(0, max(len(tokens.ids) - overlap, 1), room - overlap)
        return [self._frame_piece(prompt_ids, tokens, slice(start, start + room), begin) for start in starts]


# How each use of a sentence encoder divides a document and takes the mean of the pieces: the tokenizer, its options and
# fields of HMDEConfig.
SENTENCES = {"segmentation": "sentences", "max_sentences": 128, "max_sentence_length": 128}
PIECES: dict[str, tuple[type[HMDETokenizer], dict[str, Any], dict[str, Any]]] = {
    "first": (CuttingTokenizer, {"segmentation": "chunks", "max_sentences": 1, "max_sentence_length": 512}, {}),
    "windows": (WindowTokenizer, {"segmentation": "chunks", "max_sentences": 32, "max_sentence_length": 128}, {}),
    "sentences": (CuttingTokenizer, SENTENCES, {}),
    "weighted_sentences": (CuttingTokenizer, SENTENCES, {"document_pooling": "token_mean"}),
    "passages": (CuttingTokenizer, SENTENCES, {"document_pooling": "token_mean", "passage_length": 512}),
}


def check_systems(systems: dict[str, SystemRecipe]) -> None:
    """Find what is wrong with the systems of a recipe before any of them computes.

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
    if system.kind not in PIECES and system.sentence_layer is not None:
        raise ValueError(
            f"system {name} is of kind {system.kind}; a sentence_layer is chosen for {', '.join(PIECES)} only"
        )
    if system.kind == "longformer" and system.pooling == "pooler":
        raise ValueError(f"system {name} is a Longformer, whose pooler was never trained; its pooling is cls or mean")
    if not system.is_hmde and system.query_path is not None:
        raise ValueError(f"system {name} is of kind {system.kind}; only queries of an HMDE have a query_path")
    if system.is_hmde and any((system.pooling, system.query_prompt, system.document_prompt, system.max_length)):
        raise ValueError(
            f"system {name} is an HMDE, whose folder says its pooling, prompts and max_length; leave them out, or "
            "choose another kind"
        )
    if system.kind == "sentence_transformers":
        return  # its configuration need not be one of transformers
    model_type = model_type_of(name, system.model)
    for kind, kinds, is_one in (
        ("hmde", "hmde, hybrid or late", system.is_hmde),
        ("longformer", "longformer", system.kind == "longformer"),
    ):
        if is_one != (model_type == kind):
            raise ValueError(
                f"system {name} is of kind {system.kind}, but {system.model} holds a model of type {model_type}; the "
                f"kind is {kinds} for a model of type {kind} and only then"
            )
    if system.sentence_layer is not None:
        try:
            check_sentence_layer(system.sentence_layer, AutoConfig.from_pretrained(system.model))
        except ValueError as error:
            raise ValueError(f"system {name}: {error}") from None


def load_system(recipe: SystemRecipe, dtype: torch.dtype = torch.float32) -> System | BM25 | SearchSystem:
    """A system ready to encode, on a GPU if there is one.

    Args:
        recipe: one that `check_systems` let pass.
        dtype: of weights and activations. Vectors are float32 in any case.
    """
    if recipe.kind == "bm25":
        return BM25()
    if recipe.kind in ("hybrid", "late"):
        hmde = load_hmde(recipe, dtype)
        return SearchSystem(recipe.model, hmde.model, hmde.tokenizer, recipe.kind)
    if recipe.kind == "sentence_transformers":
        from sentence_transformers import SentenceTransformer

        sentence_transformer = SentenceTransformer(
            recipe.model,
            device=device(),
            trust_remote_code=recipe.trust_remote_code,
            model_kwargs={"dtype": dtype},
        )
        if recipe.max_length is not None:
            sentence_transformer.max_seq_length = recipe.max_length
        return SentenceTransformersSystem(sentence_transformer, recipe.query_prompt, recipe.document_prompt)
    if recipe.kind == "longformer":
        return LongformerSystem(
            AutoModel.from_pretrained(recipe.model, dtype=dtype, add_pooling_layer=False).to(device()),
            AutoTokenizer.from_pretrained(recipe.model),
            recipe.global_attention,
            recipe.pooling or "cls",
            recipe.query_prompt,
            recipe.document_prompt,
        )
    return load_hmde(recipe, dtype)


def load_hmde(recipe: SystemRecipe, dtype: torch.dtype = torch.float32) -> HMDESystem:
    """A system that is an HMDE: a trained one, or one whose document encoder does nothing but take the mean."""
    if recipe.is_hmde:
        tokenizer = HMDETokenizer.from_pretrained(recipe.model)
        model = HMDEForDocumentEmbedding.from_pretrained(recipe.model, dtype=dtype)
        model.config.query_path = recipe.query_path or model.config.query_path
    else:
        tokenizer_class, pieces, reading = PIECES[recipe.kind]
        if recipe.max_length is not None:
            longest = recipe.max_length
            if recipe.kind == "passages":
                reading = reading | {"passage_length": longest}
                longest = min(longest, pieces["max_sentence_length"])
            pieces = pieces | {"max_sentence_length": longest}
        tokenizer = tokenizer_class.from_sentence_encoder(
            recipe.model, sentence_prompt=recipe.document_prompt, query_prompt=recipe.query_prompt, **pieces
        )
        model = HMDEForDocumentEmbedding.from_sentence_encoder(
            recipe.model,
            dtype=dtype,
            sentence_pooling=recipe.pooling,
            sentence_layer=recipe.sentence_layer,
            max_sentence_length=pieces["max_sentence_length"],
            document_norm="pre",
            **reading,
            # The smallest document encoder there is: as the identity, it adds nothing but time.
            num_document_layers=1,
            num_document_attention_heads=1,
            document_intermediate_size=1,
        )
    model.to(device())  # type: ignore[arg-type]
    return HMDESystem(model, tokenizer)


def _to_unit_length(vectors: np.ndarray) -> np.ndarray:
    """In float32, whatever the dtype of the model.

    Raises:
        ValueError: a vector is not finite.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ValueError(f"the vector of text {np.isfinite(lengths).argmin()} is not finite; try dtype float32")
    return vectors / lengths
