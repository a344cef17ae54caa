"""The endpoints. /docs describes them to users.

Two threads compute with the model, one for questions and one for documents. What arrives while they compute is encoded
together afterwards. The index is opened again when it has changed.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import HTMLResponse
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from torch import from_numpy

from hmde.documents.documents import Document
from hmde.index.encoder import Encoder, cut
from hmde.index.hits import Hit
from hmde.index.index import Index
from hmde.server.batching import Batcher
from hmde.server.guards import Limits, Requests, required, say_errors
from hmde.server.schemas import EmbeddingsRequest, RerankDocument, RerankRequest, SearchRequest
from modeling_hmde import DocumentSentences, late_score, score_sentences

PAGE = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))
CONNECTIONS = 1024  # at once; a client above them is answered 503
SECONDS_TO_STOP = 30  # for requests that are being answered when the server is told to stop


def serve(
    index: Index, host: str, port: int, token: str | None = None, cors: Sequence[str] = (), root_path: str = ""
) -> None:
    """Serves an index until the process gets SIGTERM or SIGINT, then answers what has arrived and returns. Arguments as
    in `make_app`."""
    uvicorn.run(
        make_app(index, token, cors=cors, root_path=root_path),
        host=host,
        port=port,
        access_log=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )


def make_app(
    index: Index,
    token: str | None = None,
    limits: Limits = Limits(),  # noqa: B008
    *,
    cors: Sequence[str] = (),
    root_path: str = "",
) -> FastAPI:
    """The app of an index.

    Args:
        index: it may be changed, here or by other processes.
        token: what clients must send; None if all may ask.
        limits: of requests.
        cors: origins of pages elsewhere that may ask from a browser, such as https://example.org; * for all.
        root_path: under which a proxy shows the server.
    """
    app = FastAPIOffline(
        title="Search across languages",
        description="Search in an index, embeddings and reranking.",
        root_path=root_path,
    )
    if cors:
        app.add_middleware(CORSMiddleware, allow_origins=cors, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(GZipMiddleware, minimum_size=1024)
    app.add_middleware(Requests, limits=limits)
    say_errors(app)
    encoder = index.encoder
    # Questions have a thread of their own, so that none waits for a long document.
    question_thread, document_thread = ThreadPoolExecutor(1, "questions"), ThreadPoolExecutor(1, "documents")
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

    def batcher(encode: Callable[[Sequence[str]], Any], thread: ThreadPoolExecutor = document_thread) -> Batcher:
        def counted(texts: Sequence[str]) -> Any:
            together.observe(len(texts))
            return encode(texts)

        return Batcher(counted, thread, limits.together, limits.waiting)

    embed_queries = batcher(encoder.encode_queries)  # as many as a client likes, so they wait among documents
    embed_documents = batcher(lambda texts: encoder.encode(unnamed(texts)))
    encode_queries = batcher(encoder.encode_queries, question_thread)
    encode_sentences = batcher(lambda texts: list(zip(*encoder.encode_with_sentences(unnamed(texts)))))

    async def tokens_of(texts: Sequence[str]) -> int:
        """How many tokens the model reads of some texts, which may be sent."""
        limits.check(texts)
        counts = await asyncio.to_thread(num_tokens, texts, encoder)
        limits.check_tokens(counts)
        return sum(counts)

    async def find(asked: SearchRequest) -> list[Hit]:
        limits.check_question(asked.query)
        (vector,) = await encode_queries([asked.query])
        keeps_sentences = await asyncio.to_thread(lambda: index.snapshot.keeps_sentences)
        # Where no sentences are kept, the search encodes the found documents, and only one thread may use the model.
        return await asyncio.get_running_loop().run_in_executor(
            None if keeps_sentences else document_thread,
            lambda: index.search(
                asked.query,
                asked.hits,
                offset=asked.offset,
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
        """The best documents, each with a snippet and its sentences, best first; `total` is how many documents
        `languages` and `where` leave."""
        hits = await find(asked)
        total = await asyncio.to_thread(index.count, asked.languages, asked.where)
        return {"hits": [hit.to_dict(asked.sentences, asked.text) for hit in hits], "total": total}

    @app.post("/v1/embeddings", dependencies=allowed)
    async def embeddings(asked: EmbeddingsRequest) -> dict[str, Any]:
        """L2-normalised embeddings of documents or queries, as OpenAI's API gives them."""
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        tokens = await tokens_of(texts)
        hidden = encoder.model.config.hidden_size
        if asked.dimensions is not None and asked.dimensions > hidden:
            raise HTTPException(400, f"dimensions is {asked.dimensions}; vectors of this model have {hidden}")
        vectors = np.stack(await (embed_queries if asked.input_type == "query" else embed_documents)(texts))
        if asked.dimensions is not None:
            vectors = cut(vectors, asked.dimensions)
        values = [encoded(vector, asked.encoding_format) for vector in vectors]
        data = [{"object": "embedding", "index": number, "embedding": value} for number, value in enumerate(values)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": name, "data": data, "usage": usage}

    @app.post("/rerank", dependencies=allowed)
    @app.post("/v1/rerank", dependencies=allowed, include_in_schema=False)
    @app.post("/v2/rerank", dependencies=allowed, include_in_schema=False)
    async def rerank(asked: RerankRequest) -> dict[str, Any]:
        """Documents by relevance: by the cosines of a document and of its best sentence with the query."""
        texts = [document.text if isinstance(document, RerankDocument) else document for document in asked.documents]
        limits.check_question(asked.query)
        await tokens_of(texts)
        (query,), documents = await asyncio.gather(encode_queries([asked.query]), encode_sentences(texts))
        scores = [relevance(query, *document) for document in documents]
        best = sorted(range(len(texts)), key=lambda place: -scores[place])[: asked.top_n]
        results: list[dict[str, Any]] = [{"index": place, "relevance_score": scores[place]} for place in best]
        if asked.return_documents:
            shown = unnamed([texts[place] for place in best])  # without lone surrogates
            results = [result | {"document": {"text": document.text}} for document, result in zip(shown, results)]
        return {"model": name, "results": results}

    @app.get("/v1/models", dependencies=allowed)
    async def models() -> dict[str, Any]:
        """The one model, as OpenAI's API lists it."""
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "hmde"}]}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the index can be read."""
        return {"status": "ok", "model": name, "documents": await asyncio.to_thread(len, index)}

    @app.get("/metrics", dependencies=allowed)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", dependencies=allowed, response_class=HTMLResponse, include_in_schema=False)
    async def page() -> str:
        languages = json.dumps(await asyncio.to_thread(lambda: index.languages))
        return PAGE.substitute(languages=html.escape(languages), characters=limits.question_characters)

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
