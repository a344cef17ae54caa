"""The answers of the endpoints.

Two threads compute with the model, one for questions and one for documents. What arrives while they compute is encoded
together afterwards. The index is opened again when it has changed.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from fastapi import HTTPException
from torch import from_numpy

from hmde.documents.documents import Document
from hmde.index.encoder import cut
from hmde.index.index import Index
from hmde.server.batching import Batcher
from hmde.server.guards import Limits
from hmde.server.schemas import QUESTION_CHARACTERS, EmbeddingsRequest, RerankRequest, SearchRequest
from modeling_hmde import DocumentSentences, late_score

PAGE = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))


class Endpoints:
    """What is answered from an index.

    Args:
        index: it may be changed, here or by other processes.
        limits: of requests.
    """

    def __init__(self, index: Index, limits: Limits) -> None:
        self._index, self._limits = index, limits
        self._encoder = encoder = index.encoder
        self._name = Path(encoder.name).name
        # Questions have a thread of their own, so that none waits for a long document.
        questions, self._document_thread = ThreadPoolExecutor(1, "questions"), ThreadPoolExecutor(1, "documents")
        self._encode_questions = self._batcher(encoder.encode_queries, questions)
        # A client may send as many queries as it likes, so they wait among documents.
        self._embed_queries = self._batcher(encoder.encode_queries, self._document_thread)
        self._embed_documents = self._batcher(lambda texts: encoder.encode(unnamed(texts)), self._document_thread)
        self._encode_sentences = self._batcher(
            lambda texts: list(zip(*encoder.encode_with_sentences(unnamed(texts)))), self._document_thread
        )

    def _batcher(self, encode: Callable[[Sequence[str]], Any], thread: ThreadPoolExecutor) -> Batcher:
        return Batcher(encode, thread, self._limits.together, self._limits.waiting)

    async def _tokens_of(self, texts: Sequence[str]) -> int:
        """How many tokens the model reads of some texts as documents.

        Raises:
            HTTPException: 413, there are too many.
        """
        rows = await asyncio.to_thread(self._encoder.tokenizer, list(texts))
        tokens = sum(map(len, rows.input_ids))
        if tokens > self._limits.tokens:
            raise HTTPException(413, f"the texts have {tokens} tokens; send at most {self._limits.tokens} together")
        return tokens

    async def search(self, asked: SearchRequest) -> dict[str, Any]:
        """The best documents, each with a snippet and its sentences, best first; `total` is how many documents
        `languages` and `where` leave."""
        (vector,) = await self._encode_questions([asked.query])
        keeps_sentences = await asyncio.to_thread(lambda: self._index.snapshot.keeps_sentences)
        # Where no sentences are kept, the search encodes the found documents, and only one thread may use the model.
        hits = await asyncio.get_running_loop().run_in_executor(
            None if keeps_sentences else self._document_thread,
            lambda: self._index.search(
                asked.query,
                asked.hits,
                offset=asked.offset,
                ranking=asked.ranking,
                languages=asked.languages,
                where=asked.where,
                vector=vector,
            ),
        )
        total = await asyncio.to_thread(self._index.count, asked.languages, asked.where)
        return {"hits": [hit.to_dict(asked.sentences, asked.text) for hit in hits], "total": total}

    async def embeddings(self, asked: EmbeddingsRequest) -> dict[str, Any]:
        """L2-normalised embeddings of documents or queries, as OpenAI's API gives them."""
        tokens = await self._tokens_of(asked.input)
        hidden = self._encoder.model.config.hidden_size
        if asked.dimensions is not None and asked.dimensions > hidden:
            raise HTTPException(400, f"dimensions is {asked.dimensions}; vectors of this model have {hidden}")
        embed = self._embed_queries if asked.input_type == "query" else self._embed_documents
        vectors = np.stack(await embed(asked.input))
        if asked.dimensions is not None:
            vectors = cut(vectors, asked.dimensions)
        values = [encoded(vector, asked.encoding_format) for vector in vectors]
        data = [{"object": "embedding", "index": number, "embedding": value} for number, value in enumerate(values)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": self._name, "data": data, "usage": usage}

    async def rerank(self, asked: RerankRequest) -> dict[str, Any]:
        """Documents by relevance: by the cosines of a document and of its best sentence with the query."""
        texts = asked.documents
        await self._tokens_of(texts)
        (query,), documents = await asyncio.gather(self._encode_questions([asked.query]), self._encode_sentences(texts))
        scores = [relevance(query, *document) for document in documents]
        best = sorted(range(len(texts)), key=lambda place: -scores[place])[: asked.top_n]
        results: list[dict[str, Any]] = [{"index": place, "relevance_score": scores[place]} for place in best]
        if asked.return_documents:
            results = [result | {"document": {"text": texts[result["index"]]}} for result in results]
        return {"model": self._name, "results": results}

    async def models(self) -> dict[str, Any]:
        """The one model, as OpenAI's API lists it."""
        return {"object": "list", "data": [{"id": self._name, "object": "model", "created": 0, "owned_by": "hmde"}]}

    async def health(self) -> dict[str, Any]:
        """Whether the index can be read."""
        return {"status": "ok", "model": self._name, "documents": await asyncio.to_thread(len, self._index)}

    async def page(self) -> str:
        languages = json.dumps(await asyncio.to_thread(lambda: self._index.languages))
        return PAGE.substitute(languages=html.escape(languages), characters=QUESTION_CHARACTERS)


def unnamed(texts: Sequence[str]) -> list[Document]:
    return [Document("", "", None, text) for text in texts]


def relevance(query: np.ndarray, document: np.ndarray, sentences: DocumentSentences) -> float:
    """By the cosines of a document (hidden,) and of its sentences with a query (hidden,); see `late_score`."""
    cosines = sentences.vectors @ from_numpy(query)
    return late_score(float(document @ query), float(cosines.max()), float(cosines[0]))


def encoded(vector: np.ndarray, encoding_format: str) -> Any:
    """A vector as a list of numbers, or as base64 of float32, little-endian."""
    if encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
