"""From texts to vectors and explanations, with the tokenizer: what `HMDEForDocumentEmbedding` does beside `forward`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from numbers import Integral
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from transformers.utils.logging import tqdm

from .attribution_hmde import DocumentSentences, Explanation, score_sentences, spans_of_sentences
from .packing_hmde import padded_batches
from .refusals_hmde import refuse_truncated
from .segmentation_hmde import check_texts, language_of_each
from .tokenization_hmde import HMDETokenizer

Item = TypeVar("Item")
Language = str | Sequence[str | None] | None
Truncation = Literal[True, "error"]

# Texts that a thread tokenizes together while the model encodes those before them: so many, and no more characters.
TEXTS_PER_TOKENIZATION = 256
CHARACTERS_PER_TOKENIZATION = 2**24

# From a batch to the vectors of its texts (texts, hidden), or None, and to those of the sentences of each text
# (sentences, hidden), L2-normalised, float32, on the CPU.
Read = Callable[[Any], tuple[Tensor | None, Iterable[Tensor]]]


def sentence_vectors(output: Any, size: int | None = None) -> Sequence[Tensor]:
    """For each document of an HMDEOutput the first `size` numbers of the vectors of its sentences, L2-normalised."""
    real = output.sentence_lengths > 0
    vectors = nn.functional.normalize(output.sentence_vectors[real][:, :size].float(), dim=-1).cpu()
    return vectors.split(real.sum(dim=1).tolist())


class InferenceMixin(nn.Module):
    """Encodes and explains texts, for a model that has an `HMDEModel` as `hmde`, and `embed_queries`."""

    config: Any
    hmde: Any
    dtype: Any
    device: Any
    embed_queries: Callable[..., Tensor]

    def encode_documents(
        self,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: Language = None,
        sentences: bool = False,
        truncate_dim: int | None = None,
        normalize: bool = True,
        return_tensors: str = "np",
        truncation: Truncation = True,
        max_tokens_per_batch: int = 262_144,
        show_progress_bar: bool = False,
    ) -> Any:
        """Embed documents of any length (up to the tokenizer's `max_sentences`), any number and any language.

        Args:
            documents: texts. The embedding of an empty text is that of an empty sentence.
            tokenizer: the one saved with this model.
            language: ISO 639-1 code for all documents, or one for each; it selects the sentence splitter's rules.
            sentences: also give the vectors of the sentences of each document. One pass gives both, unless sentences
                share passages (`passage_length` of HMDEConfig): then each is read again by itself.
            truncate_dim: give the first so many numbers of each vector, for a model that was trained to be cut.
            normalize: give L2-normalised embeddings, whose dot products are cosines.
            return_tensors: `np`, or `pt` on the model's device; float32 at least, because cosines that differ by less
                than half precision can tell decide on an order.
            truncation: what is longer than the tokenizer's limits loses its end, which is said once, or, with "error",
                is refused before the model reads it.
            max_tokens_per_batch: most tokens in one call of the model. It changes speed, but not results, and memory
                only a little, because the model computes one bucket of sentences of similar length at a time.
            show_progress_bar: count the documents that are done.

        Returns:
            (documents, hidden), in the order given. Repeated documents are computed once. With `sentences`, a pair: the
            same, and for each document its `DocumentSentences`, whose vectors, L2-normalised, are in the same space.

        Raises:
            TypeError: `documents` is one string, or something in it is not a string, or a language is no string, or
                `truncate_dim` no whole number.
            ValueError: there are not as many languages as documents, `truncate_dim` is not a size of vectors, a text
                is too long and `truncation` is "error", or a vector is not finite.
        """
        size = self._vector_size(truncate_dim, return_tensors)

        def read(inputs: Any) -> tuple[Tensor, Iterable[Tensor]]:
            output = self(**inputs, output_sentence_vectors=sentences, return_dict=True)
            return output.pooler_output, sentence_vectors(output, size) if sentences else ()

        vectors, described = self._encode(
            documents,
            tokenizer,
            read,
            size,
            sentences=sentences,
            language=language,
            truncation=truncation,
            max_tokens_per_batch=max_tokens_per_batch,
            show_progress_bar=show_progress_bar,
        )
        embeddings = finished(vectors, normalize, return_tensors)
        return (embeddings, described) if sentences else embeddings

    def encode_queries(
        self,
        queries: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        truncate_dim: int | None = None,
        normalize: bool = True,
        return_tensors: str = "np",
        truncation: Truncation = True,
        max_tokens_per_batch: int = 262_144,
        show_progress_bar: bool = False,
    ) -> Any:
        """Embed queries, by the path that `query_path` of the configuration names; arguments and result as in
        `encode_documents`."""
        vectors, _ = self._encode(
            queries,
            tokenizer,
            lambda inputs: (self.embed_queries(**inputs), ()),
            self._vector_size(truncate_dim, return_tensors),
            as_queries=self.config.query_path == "sentence_encoder",
            truncation=truncation,
            max_tokens_per_batch=max_tokens_per_batch,
            show_progress_bar=show_progress_bar,
        )
        return finished(vectors, normalize, return_tensors)

    def explain(
        self,
        query: str,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: Language = None,
    ) -> list[Explanation]:
        """Which sentences of each document match a query.

        Args:
            query: one text, in any language.
            documents, tokenizer, language: as in `encode_documents`.

        Returns:
            one explanation for each document, in the order given: `sentences`, each with `begin`, `end` (characters of
            the document) and `score`, the cosine of its vector with the query, highest first; and the document's
            `score`, that of its best sentence.

        Raises:
            TypeError: `query` is no string, `documents` is one string, or something in it is not a string.
        """
        if not isinstance(query, str):
            raise TypeError(f"query is {type(query).__name__}, not str; give one text")
        prepared = self.prepare_sentences(documents, tokenizer, language=language)
        (vector,) = self.encode_queries([query], tokenizer, return_tensors="pt").float().cpu()
        return [score_sentences(vector, document) for document in prepared]

    def prepare_sentences(
        self,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: Language = None,
        max_tokens_per_batch: int = 16_384,
    ) -> list[DocumentSentences]:
        """All that `explain` computes without the query, so that many queries can be compared with the same documents.

        Arguments and errors as in `explain` and `encode_documents`.

        Returns:
            what `score_sentences` takes, one for each document; float32, on the CPU.
        """
        alone = bool(self.config.passage_length)  # then the pass for the document is not needed

        def read(inputs: Any) -> tuple[None, Iterable[Tensor]]:
            wanted = {"sentences_only": alone, "output_sentence_vectors": not alone}
            return None, sentence_vectors(self(**inputs, **wanted, return_dict=True))

        return self._encode(
            documents,
            tokenizer,
            read,
            self.config.hidden_size,
            sentences=True,
            language=language,
            max_tokens_per_batch=max_tokens_per_batch,
        )[1]

    def _vector_size(self, truncate_dim: Any, return_tensors: str) -> int:
        """Numbers of each vector; checks what is asked of the result."""
        if return_tensors not in ("np", "pt"):
            raise ValueError(f"return_tensors is {return_tensors!r}; it must be 'np' or 'pt'")
        size = self.config.hidden_size if truncate_dim is None else truncate_dim
        if isinstance(size, bool) or not isinstance(size, Integral):
            raise TypeError(f"truncate_dim is {size!r}; give a whole number")
        size = int(size)
        if not 0 < size <= self.config.hidden_size:
            raise ValueError(f"truncate_dim is {size}; vectors have from 1 to {self.config.hidden_size} numbers")
        return size

    def _encode(
        self,
        texts: Sequence[str],
        tokenizer: HMDETokenizer,
        read: Read,
        size: int,
        *,
        max_tokens_per_batch: int,
        language: Language = None,
        as_queries: bool = False,
        sentences: bool = False,
        truncation: Truncation = True,
        show_progress_bar: bool = False,
    ) -> tuple[Tensor, list[DocumentSentences]]:
        """Vectors of `texts` (texts, size), each read as a document, or, `as_queries`, as one sentence; and their
        sentences, if `read` gives `sentences`, whose places in the texts are needed then."""
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise TypeError(f"got {type(texts).__name__}; give a list of strings, [text] for a single one")
        texts = [*texts]
        texts = texts and check_texts(texts)
        if truncation not in get_args(Truncation):
            raise ValueError(f"truncation is {truncation!r}; it must be True, or 'error' to refuse what is too long")
        keys = [*zip(texts, language_of_each(texts, language))]
        distinct = [*dict.fromkeys(keys)]  # repeated ones are encoded once
        device = self.device if self.device.type != "meta" else "cpu"  # where accelerate's hooks move the inputs
        vectors = torch.zeros(len(distinct), size, dtype=torch.promote_types(self.dtype, torch.float32), device=device)
        described: dict[int, DocumentSentences] = {}

        def tokenize(window: range) -> Any:
            found = [distinct[place] for place in window]
            reading: dict[str, Any] = {"as_queries": True} if as_queries else {"language": [code for _, code in found]}
            reading |= {"return_offsets_mapping": sentences, "return_truncated": truncation == "error"}
            rows = tokenizer([text for text, _ in found], **reading)
            if truncation == "error":
                lost = dict(zip(found, rows["num_truncated_tokens"]))
                refuse_truncated(texts, [lost.get(key, 0) for key in keys], tokenizer)
            return rows

        windows = [*windows_of([len(text) for text, _ in distinct])]
        with evaluating(self), tqdm(total=len(distinct), disable=not show_progress_bar, unit="text") as progress:
            for window, rows in zip(windows, read_ahead(map(tokenize, windows))):
                tokens = {name: rows[name] for name in ("input_ids", "sentence_ids")}
                for batch, inputs in padded_batches(tokenizer, tokens, max_tokens_per_batch):
                    embeddings, of_sentences = read(inputs.to(device))
                    if embeddings is not None:
                        vectors[window.start + batch.to(device)] = embeddings[:, :size].to(vectors)
                    for index, states in zip(batch.tolist(), of_sentences):
                        text = distinct[window[index]][0]
                        spans = spans_of_sentences(text, rows["sentence_ids"][index], rows["offset_mapping"][index])
                        described[window[index]] = DocumentSentences(spans, states)
                    progress.update(len(batch))
        places = {key: place for place, key in enumerate(distinct)}
        indices = [places[key] for key in keys]
        self._check_finite(vectors, described, indices)
        return vectors[indices], [described[index] for index in indices] if sentences else []

    def _check_finite(self, vectors: Tensor, described: dict[int, DocumentSentences], indices: list[int]) -> None:
        """
        Args:
            vectors, described: of the distinct texts.
            indices: of each text, among the distinct ones.
        """
        finite = vectors.isfinite().all(dim=1).tolist()
        for place, document in described.items():
            finite[place] &= bool(document.vectors.isfinite().all())
        if not all(finite):
            raise ValueError(
                f"the vector of text {indices.index(finite.index(False))} is not finite: the model's weights are "
                f"damaged, so load it anew; or the range of {self.dtype} is too small for them, so use float32"
            )


def windows_of(lengths: Sequence[int]) -> Iterator[range]:
    """The texts that are tokenized together, as ranges of their indices. lengths: characters of each text."""
    first = characters = 0
    for index, length in enumerate(lengths):
        if index - first == TEXTS_PER_TOKENIZATION or (index > first and characters > CHARACTERS_PER_TOKENIZATION):
            yield range(first, index)
            first, characters = index, 0
        characters += length
    if first < len(lengths):
        yield range(first, len(lengths))


def finished(vectors: Tensor, normalize: bool, return_tensors: str) -> Any:
    """The vectors as they were asked for, `np` or `pt`."""
    if normalize:
        vectors = nn.functional.normalize(vectors, dim=-1)
    return vectors.float().cpu().numpy() if return_tensors == "np" else vectors


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients inside the block; then each module is in the mode it was in before. Threads may
    share a model that is not in training."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def read_ahead(items: Iterable[Item], depth: int = 1) -> Generator[Item, None, None]:
    """The same items; a thread makes up to `depth` of them while the caller uses those before.

    >>> list(read_ahead(map(len, ["a", "bc"])))
    [1, 2]
    """
    iterator = iter(items)
    end: Any = object()
    with ThreadPoolExecutor(max_workers=1) as thread:
        ahead = deque(thread.submit(next, iterator, end) for _ in range(depth))
        try:
            while (item := ahead.popleft().result()) is not end:
                ahead.append(thread.submit(next, iterator, end))
                yield item
        finally:
            thread.shutdown(cancel_futures=True)  # a caller that stops waits for one item at most
