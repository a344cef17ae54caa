"""From texts to vectors and explanations, with the tokenizer: what `HMDEForDocumentEmbedding` does beside `forward`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor, nn
from transformers.utils.logging import tqdm

from .attribution_hmde import (
    DocumentSentences,
    Explanation,
    Scoring,
    contributions,
    score_sentences,
    spans_of_sentences,
)
from .packing_hmde import padded_batches
from .tokenization_hmde import HMDETokenizer

Item = TypeVar("Item")
Result = TypeVar("Result")

# Texts that a thread tokenizes together while the model encodes those before them.
TEXTS_PER_TOKENIZATION = 1024


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
        language: str | Sequence[str | None] | None = None,
        normalize: bool = True,
        return_tensors: str = "np",
        max_tokens_per_batch: int = 262_144,
        show_progress_bar: bool = False,
    ) -> Any:
        """Embed documents of any length (up to the tokenizer's `max_sentences`), any number and any language.

        Args:
            documents: texts. The embedding of an empty text is that of an empty sentence.
            tokenizer: the one saved with this model.
            language: ISO 639-1 code for all documents, or one for each; it selects the sentence splitter's rules.
            normalize: give L2-normalised embeddings, whose dot products are cosines.
            return_tensors: `np` (float32) or `pt` (the model's dtype, on its device).
            max_tokens_per_batch: most tokens in one call of the model. It changes speed, not results; memory little,
                as the model computes one bucket of sentences of similar length at a time.
            show_progress_bar: count the documents that are done.

        Returns:
            (documents, hidden), in the order given. Repeated documents are computed once.

        Raises:
            TypeError: `documents` is one string, or something in it is not a string.
            ValueError: there are not as many languages as documents.
        """
        return self._encode(
            documents,
            tokenizer,
            lambda **inputs: self(**inputs).pooler_output,
            languages=[language] * len(documents) if language is None or isinstance(language, str) else language,
            normalize=normalize,
            return_tensors=return_tensors,
            max_tokens_per_batch=max_tokens_per_batch,
            show_progress_bar=show_progress_bar,
        )

    def encode_queries(
        self,
        queries: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        normalize: bool = True,
        return_tensors: str = "np",
        max_tokens_per_batch: int = 262_144,
        show_progress_bar: bool = False,
    ) -> Any:
        """Embed queries, by the path that `query_path` of the configuration names; arguments and result as in
        `encode_documents`."""
        return self._encode(
            queries,
            tokenizer,
            self.embed_queries,
            languages=None if self.config.query_path == "sentence_encoder" else [None] * len(queries),
            normalize=normalize,
            return_tensors=return_tensors,
            max_tokens_per_batch=max_tokens_per_batch,
            show_progress_bar=show_progress_bar,
        )

    def explain(
        self,
        query: str,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: str | Sequence[str | None] | None = None,
        scoring: Scoring = "contribution",
    ) -> list[Explanation]:
        """Which sentences make each document match a query.

        Args:
            query: one text, in any language.
            documents, tokenizer, language: as in `encode_documents`.
            scoring: `contribution` scores a document by its cosine with the query and divides that among its sentences
                (see `contributions`). `maximum` is max-sim over sentences: the score of a sentence is the cosine of its
                own vector with the query, and a document's score is that of its best sentence. `maximum` is better at
                finding the sentence that answers a question.

        Returns:
            one explanation for each document, in the order given: `score`, and `sentences`, each with `begin`, `end`
            (characters of the document) and `score`, highest score first.

        Raises:
            TypeError: `documents` is one string, or something in it is not a string.
            ValueError: there is no such scoring, or `contribution` is asked of a model with `document_pooling="dbos"`.
        """
        prepared = self.prepare_sentences(documents, tokenizer, language=language, scoring=scoring)
        (vector,) = self.encode_queries([query], tokenizer, return_tensors="pt").float().cpu()
        return [score_sentences(vector, document) for document in prepared]

    def prepare_sentences(
        self,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: str | Sequence[str | None] | None = None,
        scoring: Scoring = "contribution",
        max_tokens_per_batch: int = 16_384,
    ) -> list[DocumentSentences]:
        """All that `explain` computes without the query, so that many queries can be compared with the same documents.

        Arguments and errors as in `explain` and `encode_documents`.

        Returns:
            what `score_sentences` takes, one for each document; float32, on the CPU.
        """
        if isinstance(documents, str):
            raise TypeError("got one string; give a list of strings, [text] for a single one")
        if scoring not in get_args(Scoring):
            raise ValueError(f"scoring is {scoring!r}; it must be one of {', '.join(get_args(Scoring))}")
        if scoring == "contribution" and self.config.document_pooling == "dbos":
            raise ValueError(
                "this model's document embedding is its DBOS vector (document_pooling='dbos'), to which sentences "
                "contribute no part of their own; use scoring='maximum'"
            )
        if not documents:
            return []
        rows = tokenizer(list(documents), language=language, return_offsets_mapping=True)
        sentence_vectors = self._contributions if scoring == "contribution" else self._max_sim_vectors
        prepared: list[Any] = [None] * len(documents)
        with evaluating(self):
            batches = padded_batches(tokenizer, {"input_ids": rows["input_ids"]}, max_tokens_per_batch)
            for indices, inputs in batches:
                for index, (vectors, embedding) in zip(
                    indices.tolist(), sentence_vectors(inputs.to(self._input_device))
                ):
                    ids, offsets = rows["input_ids"][index], rows["offset_mapping"][index]
                    spans = spans_of_sentences(documents[index], ids, offsets, self.config.start_token_id)
                    prepared[index] = DocumentSentences(spans, vectors, embedding)
        return prepared

    def _contributions(self, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each document the contributions of its sentences (sentences, hidden) and its embedding (hidden,),
        L2-normalised."""
        output = self(**inputs)
        weights = self.hmde.document_encoder.pooling_weights(output.sentence_lengths).float()
        weights /= weights.sum(dim=1, keepdim=True)
        counts = (output.sentence_lengths > 0).sum(dim=1).tolist()
        for count, states, sentence_weights, embedding in zip(
            counts, output.last_hidden_state.float(), weights[:, 1:], output.pooler_output.float()
        ):
            vectors = contributions(states[:count], sentence_weights[:count], embedding)
            yield vectors.cpu(), nn.functional.normalize(embedding, dim=0).cpu()

    def _max_sim_vectors(self, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, None]]:
        """For each document the vectors of its sentences (sentences, hidden), L2-normalised.

        They are the contextualised vectors. With `passage_length` these hold too much of the neighbouring sentences, so
        each sentence is then read by itself.
        """
        if self.config.passage_length:
            sentences, vectors = self.hmde.encode_sentences(**inputs, passage_length=0)
            documents = vectors.split(sentences.document.bincount().tolist())
        else:
            output = self(**inputs)
            counts = (output.sentence_lengths > 0).sum(dim=1).tolist()
            documents = [states[:count] for count, states in zip(counts, output.last_hidden_state)]
        for vectors in documents:
            yield nn.functional.normalize(vectors.float(), dim=-1).cpu(), None

    @property
    def _input_device(self) -> torch.device:
        """Where inputs go. Where weights are offloaded, `device` is "meta", and accelerate's hook knows the device."""
        device: Any = getattr(getattr(self, "_hf_hook", None), "execution_device", None)
        return torch.device(self.device if device is None else device)

    def _encode(
        self,
        texts: Sequence[str],
        tokenizer: HMDETokenizer,
        embed: Callable[..., Tensor],
        *,
        languages: Sequence[str | None] | None,
        normalize: bool,
        return_tensors: str,
        max_tokens_per_batch: int,
        show_progress_bar: bool,
    ) -> Any:
        """Vectors of `texts`, each read as one sentence if `languages` is None, and as a document otherwise."""
        if isinstance(texts, str):
            raise TypeError("got one string; give a list of strings, [text] for a single one")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"text {index} is {type(text).__name__}, not str; give a list of strings")
        if languages is not None and len(languages) != len(texts):
            raise ValueError(f"{len(texts)} texts came with {len(languages)} languages; give one code, or one a text")
        if return_tensors not in ("np", "pt"):
            raise ValueError(f"return_tensors is {return_tensors!r}; it must be 'np' or 'pt'")

        def tokenize(inputs: Sequence[tuple[str, str | None]]) -> list[list[int]]:
            window, codes = zip(*inputs)
            reading = {"as_queries": True} if languages is None else {"language": codes}
            return tokenizer(list(window), **reading).input_ids

        positions: dict[tuple[str, str | None], int] = {}  # of the distinct texts: repeated ones are encoded once
        indices = [positions.setdefault(key, len(positions)) for key in zip(texts, languages or [None] * len(texts))]
        distinct = list(positions)
        first_indices = range(0, len(distinct), TEXTS_PER_TOKENIZATION)
        windows = [distinct[first : first + TEXTS_PER_TOKENIZATION] for first in first_indices]
        device = self._input_device
        vectors = torch.empty(len(distinct), self.config.hidden_size, dtype=self.dtype, device=device)
        with evaluating(self), tqdm(total=len(distinct), disable=not show_progress_bar, unit="text") as progress:
            for first, rows in zip(first_indices, read_ahead(tokenize, windows)):
                for batch, inputs in padded_batches(tokenizer, {"input_ids": rows}, max_tokens_per_batch):
                    vectors[first + batch.to(device)] = embed(**inputs.to(device)).to(device, self.dtype)
                    progress.update(len(batch))
        vectors = vectors[indices]
        if normalize:
            vectors = nn.functional.normalize(vectors.float(), dim=-1)
        return vectors.float().cpu().numpy() if return_tensors == "np" else vectors.to(self.dtype)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients inside the block. Afterwards each module is in the mode it was in before."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def read_ahead(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`map(function, items)`; a thread computes the next result while the caller uses the last one.

    >>> list(read_ahead(len, ["a", "bc"]))
    [1, 2]
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        futures = [thread.submit(function, first) for first in items[:1]]
        for following in items[1:]:
            result = futures.pop().result()
            futures.append(thread.submit(function, following))
            yield result
        for last in futures:
            yield last.result()
