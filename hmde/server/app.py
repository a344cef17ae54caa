"""The endpoints. /docs describes them to users.

One thread computes with the model. Requests that arrive while it computes are encoded together afterwards. The index is
opened again when it has changed.
"""

from __future__ import annotations

import asyncio
import base64
import html
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from torch import from_numpy

from hmde.documents.documents import Document
from hmde.index.encoder import Encoder, cut
from hmde.index.highlight import STYLE, marked
from hmde.index.hits import Hit
from hmde.index.index import Index
from hmde.server.batching import Batcher
from hmde.server.guards import BodyLimit, Limits, required, say_errors
from hmde.server.schemas import EmbeddingsRequest, RerankDocument, RerankRequest, SearchRequest
from modeling_hmde import DocumentSentences, late_score, score_sentences

PAGE = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))
CONNECTIONS = 1024  # at once; a client above them is answered 503
SECONDS_TO_STOP = 30  # for requests that are being answered when the server is told to stop


def serve(index: Index, host: str, port: int, token: str | None = None) -> None:
    """Serves an index until the process gets SIGTERM or SIGINT, then answers what has arrived and returns."""
    uvicorn.run(
        make_app(index, token),
        host=host,
        port=port,
        access_log=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )


def make_app(index: Index, token: str | None = None, limits: Limits = Limits()) -> FastAPI:  # noqa: B008
    """The app of an index.

    Args:
        index: it may be changed, here or by other processes.
        token: what clients must send; None if all may ask.
        limits: of requests.
    """
    app = FastAPI(title="Search across languages", description="Search in an index, embeddings and reranking.")
    app.add_middleware(BodyLimit, limits=limits)
    say_errors(app)
    encoder = index.encoder
    model_thread = ThreadPoolExecutor(1, "model")
    name = Path(encoder.name).name
    allowed = [Depends(required(token))]

    registry = CollectorRegistry()
    requests = Counter("hmde_requests", "Requests, by path and status.", ["path", "status"], registry=registry)
    seconds = Histogram("hmde_request_seconds", "From request to answer, by path.", ["path"], registry=registry)
    together = Histogram(
        "hmde_texts_together",
        "Texts encoded in one call.",
        buckets=[1, 2, 4, 8, 16, 32, 64, 128, 256],
        registry=registry,
    )

    def batcher(encode: Callable[[Sequence[str]], Any]) -> Batcher:
        def counted(texts: Sequence[str]) -> Any:
            together.observe(len(texts))
            return encode(texts)

        return Batcher(counted, model_thread, limits.texts, limits.waiting)

    def with_tokens(encode: Callable[[Sequence[str]], np.ndarray]) -> Batcher:
        # Tokens are counted in the same call: afterwards, the count would wait until the next batch is encoded.
        return batcher(lambda texts: list(zip(encode(texts), num_tokens(texts, encoder))))

    embed_queries = with_tokens(encoder.encode_queries)
    embed_documents = with_tokens(lambda texts: encoder.encode(unnamed(texts)))
    encode_queries = batcher(encoder.encode_queries)
    encode_sentences = batcher(lambda texts: list(zip(*encoder.encode_with_sentences(unnamed(texts)))))

    async def find(asked: SearchRequest) -> list[Hit]:
        limits.check([asked.query])
        (vector,) = await encode_queries([asked.query])
        keeps_sentences = await asyncio.to_thread(lambda: index.snapshot.keeps_sentences)
        # Where no sentences are kept, the search encodes the found documents, and only one thread may use the model.
        return await asyncio.get_running_loop().run_in_executor(
            None if keeps_sentences else model_thread,
            lambda: index.search(
                asked.query,
                asked.hits,
                ranking=asked.ranking,
                languages=asked.languages,
                where=asked.where,
                vector=vector,
            ),
        )

    @app.middleware("http")
    async def measured(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        began, status = time.perf_counter(), 500
        try:
            response = await answer(request)
            status = response.status_code
        finally:
            path = getattr(request.scope.get("route"), "path", "other")
            requests.labels(path, status).inc()
            seconds.labels(path).observe(time.perf_counter() - began)
        return response

    @app.post("/search", dependencies=allowed)
    async def search(asked: SearchRequest) -> dict[str, Any]:
        """The best documents of the index, and their sentences with begin and end in the text, best first."""
        return {"hits": [hit.to_dict(asked.sentences, asked.text) for hit in await find(asked)]}

    @app.post("/v1/embeddings", dependencies=allowed)
    async def embeddings(asked: EmbeddingsRequest) -> dict[str, Any]:
        """L2-normalised embeddings of documents or queries, as OpenAI's API gives them."""
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        limits.check(texts)
        hidden = encoder.model.config.hidden_size
        if asked.dimensions is not None and asked.dimensions > hidden:
            raise HTTPException(400, f"dimensions is {asked.dimensions}; vectors of this model have {hidden}")
        found = await (embed_queries if asked.input_type == "query" else embed_documents)(texts)
        vectors = np.stack([vector for vector, _ in found])
        if asked.dimensions is not None:
            vectors = cut(vectors, asked.dimensions)
        values = [encoded(vector, asked.encoding_format) for vector in vectors]
        data = [{"object": "embedding", "index": number, "embedding": value} for number, value in enumerate(values)]
        tokens = sum(count for _, count in found)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": name, "data": data, "usage": usage}

    @app.post("/rerank", dependencies=allowed)
    @app.post("/v1/rerank", dependencies=allowed, include_in_schema=False)
    @app.post("/v2/rerank", dependencies=allowed, include_in_schema=False)
    async def rerank(asked: RerankRequest) -> dict[str, Any]:
        """Documents by relevance: by the cosines of a document and of its best sentence with the query."""
        texts = [document.text if isinstance(document, RerankDocument) else document for document in asked.documents]
        limits.check([asked.query])
        limits.check(texts)
        (query,), documents = await asyncio.gather(encode_queries([asked.query]), encode_sentences(texts))
        scores = [relevance(query, *document) for document in documents]
        best = sorted(range(len(texts)), key=lambda place: -scores[place])[: asked.top_n]
        results: list[dict[str, Any]] = [{"index": place, "relevance_score": scores[place]} for place in best]
        if asked.return_documents:
            shown = unnamed([texts[place] for place in best])  # without lone surrogates
            results = [result | {"document": {"text": document.text}} for document, result in zip(shown, results)]
        return {"model": name, "results": results}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the index can be read."""
        return {"status": "ok", "model": name, "documents": await asyncio.to_thread(len, index)}

    @app.get("/metrics", dependencies=allowed)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", dependencies=allowed, response_class=HTMLResponse, include_in_schema=False)
    async def page(question: str = "", language: str = "") -> str:
        known = await asyncio.to_thread(lambda: index.languages)
        languages = [language] if language in known else None
        hits = await find(SearchRequest(query=question, languages=languages)) if question.strip() else []
        return PAGE.substitute(
            style=STYLE,
            question=html.escape(question),
            characters=limits.characters,
            languages="".join(
                f"<option{' selected' * (code == language)}>{html.escape(code)}</option>" for code in known
            ),
            hits="".join(marked(hit.document, hit.score, hit.explanation) for hit in hits),
        )

    return app


def unnamed(texts: Sequence[str]) -> list[Document]:
    return [Document("", "", None, text) for text in texts]


def relevance(query: np.ndarray, document: np.ndarray, sentences: DocumentSentences) -> float:
    """By the cosines of a document (hidden,) and of its best sentence with a query (hidden,); see `late_score`."""
    return late_score(float(document @ query), score_sentences(from_numpy(query), sentences).score)


def num_tokens(texts: Sequence[str], encoder: Encoder) -> list[int]:
    """Tokens that the model reads of each text as a document."""
    return list(map(len, encoder.tokenizer(list(texts)).input_ids))


def encoded(vector: np.ndarray, encoding_format: str) -> Any:
    """A vector as a list of numbers, or as base64 of float32, little-endian."""
    if encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
