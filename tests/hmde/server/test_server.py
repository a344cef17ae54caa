"""What the server answers, asked by the clients that people have: the real ones of OpenAI and Cohere among them."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cohere
import httpx
import numpy as np
import openai
import pytest

import hmde.index.index
from hmde.__main__ import main
from hmde.documents.documents import Document
from hmde.index.encoder import Encoder
from hmde.index.index import Index
from hmde.index.update import update_index
from hmde.server import schemas
from hmde.server.app import make_app
from hmde.server.batching import Batcher
from hmde.server.guards import Limits
from tests.hmde.server.running_server import running
from tests.hmde.small_index import TEXTS, CountingEncoder, documents_of
from tests.paths import REPOSITORY

pytestmark = pytest.mark.lancedb

DOCUMENTS = list(TEXTS.values())
# Other programs may have the cores, so an answer may take any time.
get, post = partial(httpx.get, timeout=None), partial(httpx.post, timeout=None)


@pytest.fixture(scope="module")
def server(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    folder = tmp_path_factory.mktemp("served") / "index"
    update_index(folder, documents_of(TEXTS), encoder, sentences=True)
    limits = Limits(tokens=500, body_bytes=200_000)
    with (
        running(make_app(Index(folder, encoder), limits=limits)) as address,
        httpx.Client(base_url=address, timeout=None) as client,
    ):
        yield SimpleNamespace(address=address, client=client, folder=folder)


def test_a_search_finds_what_the_ranking_finds_with_spans_to_mark(server: SimpleNamespace, encoder: Encoder) -> None:
    answer = server.client.post("/search", json={"query": "The cat", "hits": 3, "sentences": 1, "text": True})
    expected = Index(server.folder, encoder).search("The cat", 3)
    hits = answer.json()["hits"]
    assert [(hit["id"], hit["text"]) for hit in hits] == [(hit.document.id, hit.document.text) for hit in expected]
    np.testing.assert_allclose([hit["score"] for hit in hits], [hit.score for hit in expected], atol=1e-6)
    for hit in hits:
        (sentence,) = hit["sentences"]
        assert hit["text"][sentence["begin"] : sentence["end"]] == sentence["text"] != ""


def test_an_index_without_sentences_gives_the_hits_that_it_gives_in_the_shell(tmp_path: Path, encoder: Encoder) -> None:
    update_index(tmp_path / "index", documents_of(TEXTS), encoder, sentences=False)
    index = Index(tmp_path / "index", encoder)
    expected = [hit.to_dict() for hit in index.search("The cat")]
    with running(make_app(index)) as address:
        found = post(f"{address}/search", json={"query": "The cat"}).json()["hits"]
    for hit, wanted in zip(found, expected, strict=True):
        assert hit["id"] == wanted["id"]
        for sentence, other in zip(hit["sentences"], wanted["sentences"], strict=True):
            assert sentence == other | {"score": pytest.approx(other["score"], abs=1e-5)}


def test_the_client_of_openai_gets_the_models_embeddings(server: SimpleNamespace, encoder: Encoder) -> None:
    client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=0)
    create = client.embeddings.create
    expected = encoder.model.encode_documents(DOCUMENTS, encoder.tokenizer)
    for options in ({}, {"encoding_format": "float"}):  # of itself, the client asks for base64 and decodes it
        answer = create(model="hmde", input=DOCUMENTS, **options)
        np.testing.assert_allclose([each.embedding for each in answer.data], expected, atol=1e-6)
    assert answer.usage.prompt_tokens == sum(map(len, encoder.tokenizer(DOCUMENTS).input_ids))
    (query,) = create(model="hmde", input="The cat", extra_body={"input_type": "query"}).data
    np.testing.assert_allclose(query.embedding, encoder.encode_queries(["The cat"])[0], atol=1e-6)
    (short,) = create(model="hmde", input="The cat sat.", dimensions=8).data
    (whole,) = encoder.model.encode_documents(["The cat sat."], encoder.tokenizer)
    np.testing.assert_allclose(short.embedding, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="dimensions is 4096; vectors of this model have"):
        create(model="hmde", input="The cat", dimensions=4096)


def test_dimensions_that_vectors_lack_are_refused_before_anything_is_encoded(
    counting: CountingEncoder, index_folder: Path
) -> None:
    with running(make_app(Index(index_folder, counting))) as address:
        asked = {"input": DOCUMENTS, "dimensions": 4096}
        assert post(f"{address}/v1/embeddings", json=asked).status_code == 400
    assert counting.encoded == []


def test_the_clients_of_cohere_rank_documents(server: SimpleNamespace, encoder: Encoder) -> None:
    query = encoder.encode_queries(["The cat"])[0]
    sentences = encoder.encode_sentences(documents_of(TEXTS))
    cosines = [document.vectors.numpy() @ query for document in sentences]
    sentence_scores = np.array([0.6 * found.max() + 0.1 * found[0] for found in cosines])
    expected = 0.3 * encoder.encode(documents_of(TEXTS)) @ query + sentence_scores
    for client in (cohere.ClientV2, cohere.Client):
        results = (
            client("any", base_url=server.address)
            .rerank(model="hmde", query="The cat", documents=DOCUMENTS, top_n=3)
            .results
        )
        assert [result.index for result in results] == list((-expected).argsort()[:3])
        np.testing.assert_allclose([result.relevance_score for result in results], sorted(expected)[:0:-1], atol=1e-6)


def test_documents_to_rank_may_be_objects_and_come_back_as_jina_gives_them(server: SimpleNamespace) -> None:
    documents = [{"text": text} for text in DOCUMENTS]
    asked = {"query": "The cat", "documents": documents, "return_documents": True, "model": "hmde"}
    results = server.client.post("/v1/rerank", json=asked).json()["results"]
    assert [result["document"]["text"] for result in results] == [DOCUMENTS[result["index"]] for result in results]
    assert len(results) == len(DOCUMENTS)
    del asked["return_documents"]
    for result in server.client.post("/v1/rerank", json=asked).json()["results"]:
        assert result.keys() == {"index", "relevance_score"}


def test_an_update_of_the_index_is_seen_and_health_counts_documents(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hmde.index.index, "SECONDS_BETWEEN_LOOKS", 0.0)
    update_index(tmp_path / "index", documents_of({"cat": TEXTS["cat"]}), encoder)
    with running(make_app(Index(tmp_path / "index", encoder))) as address:
        assert get(f"{address}/health").json()["documents"] == 1
        update_index(tmp_path / "index", documents_of(TEXTS), encoder)
        assert get(f"{address}/health").json()["documents"] == len(TEXTS)
        found = post(f"{address}/search", json={"query": "Der Hund"}).json()["hits"]
        assert {hit["id"] for hit in found} == {*TEXTS}


def test_requests_that_arrive_together_are_encoded_together_and_each_gets_its_own(
    counting: CountingEncoder, index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    come = threading.Semaphore(0)
    encode, ask_batcher = CountingEncoder.encode_queries, Batcher.__call__

    def slow(self: CountingEncoder, queries: list[str]) -> np.ndarray:
        if not calls:
            for _ in questions:  # wait until all have come
                come.acquire()
        calls.append(len(queries))
        return encode(self, queries)

    def counted(self: Batcher, items: list[str]) -> Awaitable[Any]:
        come.release()
        return ask_batcher(self, items)

    monkeypatch.setattr(CountingEncoder, "encode_queries", slow)
    monkeypatch.setattr(Batcher, "__call__", counted)
    questions = [f"The cat {number}" for number in range(20)]
    with running(make_app(Index(index_folder, counting))) as address, ThreadPoolExecutor(20) as threads:

        def ask(question: str) -> list[float]:
            asked = {"input": question, "input_type": "query"}
            return post(f"{address}/v1/embeddings", json=asked).json()["data"][0]["embedding"]

        answers = threads.map(ask, questions)
        np.testing.assert_allclose(list(answers), encode(counting, questions), atol=1e-5)
    assert sum(calls) == 20
    assert len(calls) == 2  # what came first, and all others


@pytest.mark.parametrize(
    ("path", "asked", "left_out"),
    [
        ("/search", {"query": "cat"}, ["ranking", "languages", "where", "hits", "sentences"]),
        ("/v1/embeddings", {"input": "cat"}, ["input_type", "dimensions", "encoding_format", "user"]),
        ("/rerank", {"query": "cat", "documents": DOCUMENTS}, ["top_n", "return_documents"]),
    ],
)
def test_a_field_that_is_null_counts_as_not_given(
    server: SimpleNamespace, path: str, asked: dict, left_out: list[str]
) -> None:
    answer = server.client.post(path, json=asked | dict.fromkeys(left_out))
    assert answer.status_code == 200
    assert answer.json() == server.client.post(path, json=asked).json()


@pytest.mark.parametrize(
    ("path", "asked", "status", "message"),
    [
        ("/search", {}, 422, "query: Field required"),
        ("/search", {"query": None}, 422, "query: Field required"),
        ("/search", [], 422, "Input should be a valid dictionary"),
        ("/search", {"query": ""}, 422, "query: String should have at least 1 character"),
        ("/search", {"query": " \n\u00a0"}, 422, "query: String should have at least 1 character"),
        ("/rerank", {"query": " ", "documents": ["cat"]}, 422, "query: String should have at least 1 character"),
        ("/search", {"query": "x" * 8193}, 422, "query: String should have at most 8192 characters"),
        ("/search", {"query": "cat", "languages": ["xx"]}, 400, "the index has no documents in xx"),
        ("/search", {"query": "cat", "where": "year >"}, 400, "'year >' is no condition on documents"),
        ("/search", {"query": "cat", "where": "count(*) > 1"}, 400, "'count(*) > 1' is no condition on documents"),
        ("/search", {"query": "cat", "where": "id = ?"}, 400, "'id = ?' is no condition on documents"),
        ("/search", {"query": ["cat"]}, 422, "query: Input should be a valid string"),
        ("/search", {"query": "cat", "ranking": "best"}, 422, "ranking: Input should be"),
        ("/search", {"query": "cat", "hits": 0}, 422, "hits: Input should be greater than or equal to 1"),
        ("/v1/embeddings", {"input": []}, 422, "input"),
        ("/v1/embeddings", {"input": [[1, 2]]}, 422, "input"),
        ("/v1/embeddings", {"input": ["cat"] * 2049}, 422, "input: List should have at most 2048 items"),
        ("/v1/embeddings", {"input": ["cat", ""]}, 200, ""),
        ("/v1/embeddings", {"input": 7}, 422, "input"),
        ("/search", {"query": "cat", "where": "1/0 = 1"}, 400, "fails on one of them"),
        ("/rerank", {"query": "cat", "documents": []}, 422, "documents"),
        ("/rerank", {"query": "cat", "documents": ["cat", "x" * 100_001]}, 422, "documents.1: String should have"),
        ("/rerank", {"query": "cat", "documents": ["x" * 200_000]}, 413, "larger than 200000 bytes"),
        (
            "/rerank",
            {"query": "cat", "documents": [{"body": "cat"}]},
            422,
            "documents.0: Input should be a valid string",
        ),
        ("/v1/embeddings", {"input": ["the cat " * 100] * 8}, 413, "tokens; send at most 500 together"),
        ("/search", {"query": "cat", "language": "ar"}, 422, "language: Extra inputs are not permitted"),
        ("/nowhere", {}, 404, "Not Found"),
    ],
)
def test_a_bad_request_is_answered_by_what_is_wrong_with_it(
    server: SimpleNamespace, path: str, asked: dict, status: int, message: str
) -> None:
    answer = server.client.post(path, json=asked)
    assert answer.status_code == status
    assert message in (answer.json()["error"]["message"] if status >= 400 else "")


@pytest.mark.parametrize(
    ("path", "asked", "status", "message"),
    [
        ("/search", {"where": "id = '\ud800'"}, 400, "is no condition on documents"),
        ("/search", {"languages": ["\ud800"]}, 400, r"the index has no documents in \ud800;"),
        ("/search", {"query": "cat \ud800"}, 422, "query: "),
        ("/rerank", {"documents": ["The cat \ud800 sat."], "return_documents": True}, 200, "The cat \ufffd sat."),
    ],
)
def test_a_lone_surrogate_is_refused_or_replaced(
    server: SimpleNamespace, path: str, asked: dict, status: int, message: str
) -> None:
    body = json.dumps({"query": "cat"} | asked)  # httpx itself would write no surrogate as an escape
    answer = server.client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert message in (answer.text if status == 200 else answer.json()["error"]["message"])


def test_clients_that_go_before_their_answer_harm_nobody(server: SimpleNamespace, encoder: Encoder) -> None:
    address = (httpx.URL(server.address).host, httpx.URL(server.address).port)
    body = json.dumps({"input": DOCUMENTS}).encode()
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    for sent in (b"", head[:20], head % len(body) + body[:10], head % len(body) + body):
        for _ in range(5):
            with socket.create_connection(address) as client:
                client.sendall(sent)
    answer = server.client.post("/v1/embeddings", json={"input": DOCUMENTS})
    found = [each["embedding"] for each in answer.json()["data"]]
    np.testing.assert_allclose(found, encoder.encode(documents_of(TEXTS)), atol=1e-6)


def test_the_clients_of_langchain_and_llamaindex_get_the_models_embeddings(
    server: SimpleNamespace, encoder: Encoder
) -> None:
    langchain = pytest.importorskip("langchain_openai", reason="pip install langchain-openai")
    llama_index = pytest.importorskip(
        "llama_index.embeddings.openai_like", reason="pip install llama-index-embeddings-openai-like"
    )
    at = {"api_key": "any", "max_retries": 0}
    base = f"{server.address}/v1"
    expected, (query,) = encoder.encode(documents_of(TEXTS)), encoder.encode_queries(["The cat"])
    client = langchain.OpenAIEmbeddings(base_url=base, model="hmde", check_embedding_ctx_length=False, **at)
    np.testing.assert_allclose(client.embed_documents(DOCUMENTS), expected, atol=1e-6)
    client = langchain.OpenAIEmbeddings(
        base_url=base,
        model="hmde",
        check_embedding_ctx_length=False,
        **at,
        model_kwargs={"extra_body": {"input_type": "query"}},
    )
    np.testing.assert_allclose(client.embed_query("The cat"), query, atol=1e-6)
    client = llama_index.OpenAILikeEmbedding(
        api_base=base, model_name="hmde", **at, embed_batch_size=8, query_kwargs={"extra_body": {"input_type": "query"}}
    )
    np.testing.assert_allclose(client.get_text_embedding_batch(DOCUMENTS), expected, atol=1e-6)


def test_more_than_may_wait_are_told_to_come_again(encoder: Encoder, index_folder: Path) -> None:
    limits = Limits(waiting=4)
    with running(make_app(Index(index_folder, encoder), limits=limits)) as address:

        async def ask_all() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=address, timeout=None) as client:
                asked = {"input": DOCUMENTS, "model": "hmde"}
                return await asyncio.gather(*(client.post("/v1/embeddings", json=asked) for _ in range(50)))

        answers = asyncio.run(ask_all())
        assert {answer.status_code for answer in answers} == {200, 503}
        assert all("come again" in answer.text for answer in answers if answer.status_code == 503)
        assert post(f"{address}/v1/embeddings", json={"input": DOCUMENTS}).status_code == 200


def test_with_a_token_all_but_health_asks_for_it(encoder: Encoder, index_folder: Path) -> None:
    with running(make_app(Index(index_folder, encoder), token="sesame")) as address:
        asked = {"query": "cat", "documents": ["The cat."], "input": "cat"}
        for path in ("/search", "/v1/embeddings", "/rerank", "/v1/rerank", "/v2/rerank"):
            assert post(f"{address}{path}", json=asked).status_code == 401, path
        for path in ("/", "/metrics"):
            refused = get(f"{address}{path}")
            assert refused.status_code == 401
            assert "Bearer TOKEN" in refused.json()["error"]["message"]
        asked = {"query": "cat"}
        wrong = post(f"{address}/search", json=asked, headers={"Authorization": "Bearer no"})
        right = post(f"{address}/search", json=asked, headers={"Authorization": "Bearer sesame"})
        assert (wrong.status_code, right.status_code) == (401, 200)
        assert get(address, auth=("", "sesame")).status_code == 200
        assert get(f"{address}/health").status_code == 200


def test_prometheus_reads_counts_and_times(server: SimpleNamespace) -> None:
    server.client.post("/search", json={"query": "The cat"})
    metrics = server.client.get("/metrics").text
    assert re.search(r'hmde_http_requests_total\{handler="/search",method="POST",status="200"\} [1-9]', metrics)
    assert "hmde_http_request_duration_seconds_bucket" in metrics


def test_the_page_names_the_languages_and_needs_no_other_address(server: SimpleNamespace) -> None:
    page = server.client.get("/").text
    assert 'data-codes="[]"' in page
    assert 'dir="auto"' in page
    docs = server.client.get("/docs").text
    assert not re.search(r"(src|href)=[\"']https?://", page + docs)
    for asset in re.findall(r"(?:src|href)=[\"']([^\"']+\\.(?:js|css))", docs):
        assert server.client.get(asset).status_code == 200


def test_what_clients_of_other_servers_expect(server: SimpleNamespace) -> None:
    assert schemas.TEXTS == 2048  # as many as OpenAI takes and its clients send
    assert [model["object"] for model in server.client.get("/v1/models").json()["data"]] == ["model"]
    for path in ("/", "/health", "/docs"):
        answer = server.client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
    answer = server.client.post("/search", json={"query": "The cat", "text": True})
    assert (answer.status_code, answer.headers["Content-Encoding"]) == (200, "gzip")
    assert (len(answer.json()["hits"]), answer.json()["total"]) == (4, 4)


@pytest.mark.parametrize(
    ("headers", "body", "status", "message"),
    [
        ({}, b"{", 422, "JSON decode error"),
        ({"Content-Type": "text/plain"}, b'{"query": "cat"}', 422, "send it with `Content-Type: application/json`"),
        (
            {"Content-Encoding": "gzip"},
            gzip.compress(b'{"query": "cat"}', mtime=0),
            415,
            "packed as gzip; send it as it is",
        ),
    ],
)
def test_a_body_of_another_kind_is_refused_by_name(
    server: SimpleNamespace, headers: dict, body: bytes, status: int, message: str
) -> None:
    answer = server.client.post("/search", content=body, headers={"Content-Type": "application/json"} | headers)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]


def test_pages_elsewhere_may_ask_where_they_are_named_and_a_proxy_may_show_the_server(
    encoder: Encoder, index_folder: Path
) -> None:
    app = make_app(Index(index_folder, encoder), cors=["https://example.org"])
    with running(app, root_path="/search") as address:
        for origin, allowed in (("https://example.org", "https://example.org"), ("https://other.org", None)):
            answer = post(f"{address}/search", json={"query": "cat"}, headers={"Origin": origin})
            assert answer.status_code == 200  # the proxy asks without its own part of the path
            assert answer.headers.get("Access-Control-Allow-Origin") == allowed
        assert "/search/openapi.json" in get(f"{address}/docs").text


def test_one_sentence_of_each_hit_is_small_and_pages_follow_one_another(encoder: Encoder, tmp_path: Path) -> None:
    long = {name: f"The cat {name} sleeps. " * 200 for name in "abc"}
    update_index(tmp_path, documents_of(long), encoder)
    with running(make_app(Index(tmp_path, encoder))) as address:
        whole = post(f"{address}/search", json={"query": "cat", "sentences": 1})
        (second,) = post(f"{address}/search", json={"query": "cat", "hits": 1, "offset": 1}).json()["hits"]
    assert len(whole.content) < 5_000
    assert second["id"] == whole.json()["hits"][1]["id"]


def test_a_question_does_not_wait_for_a_long_document_whose_client_then_goes(
    counting: CountingEncoder, index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = threading.Event(), threading.Event()
    encode = CountingEncoder.encode

    def slow(self: CountingEncoder, documents: list[Document]) -> np.ndarray:
        begun.set()
        assert let_go.wait(60)
        return encode(self, documents)

    monkeypatch.setattr(CountingEncoder, "encode", slow)
    long = ["The cat sat. " * 4_000] * 3  # each a call by itself
    with running(make_app(Index(index_folder, counting))) as address:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{address}/v1/embeddings", json={"input": long}, timeout=httpx.Timeout(None, read=2))
        assert begun.is_set()
        assert post(f"{address}/search", json={"query": "The cat"}).status_code == 200  # while the first is computed
        counting.encoded.clear()
        let_go.set()
        assert post(f"{address}/v1/embeddings", json={"input": "The dog."}).status_code == 200
    assert len(counting.encoded) == 2  # the long document that had begun, and the dog


@pytest.mark.slow
def test_a_browser_searches_on_the_page_at_both_widths(
    encoder: Encoder, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Leaves pictures in runs/page."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    texts = {
        "ar": "القطط نائمة الآن. الكلب يجري.",
        "de": "Der <b>Hund</b> schläft. " * 60,
        "en": "The cat sleeps. " * 60,
    }
    documents = [
        Document(f"{language}.txt", f"Title {language}", language, text, {"year": 2000})
        for language, text in texts.items()
    ]
    documents += [Document(f"book.pdf#page={page}", f"Book {page}", "en", f"Page {page}.") for page in range(1, 15)]
    cats = [(f"{number}.md#part=2", f"Cat {number}", "en", f"Cat number {number}.") for number in range(15)]
    documents += [Document(*cat, headings=((0, "Cats at home"),)) for cat in cats]
    update_index(tmp_path / "index", documents, encoder)
    pictures = pytestconfig.rootpath / "runs" / "page"
    with running(make_app(Index(tmp_path / "index", encoder))) as address, playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 844}, locale="en")
            page.goto(address)
            page.fill("[name=question]", "The cat")
            page.press("[name=question]", "Enter")
            page.wait_for_selector("article mark")
            assert page.locator("article").count() == 10
            assert "from 32 documents searched" in page.inner_text("#said")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.get_by_text("part 2, Cats at home").count() > 1
            assert page.locator("b").count() == 0  # nothing in a text becomes markup
            page.screenshot(path=pictures / f"hits-{width}.png")
            page.click("#next")
            page.wait_for_function("document.querySelector('#said').textContent.startsWith('Hits 11')")
            page.get_by_label("Arabic").check()
            page.wait_for_function("document.querySelectorAll('article').length === 1")
            assert page.evaluate("getComputedStyle(document.querySelector('blockquote')).direction") == "rtl"
            page.locator("summary").click()
            page.wait_for_selector("pre mark")
            page.screenshot(path=pictures / f"arabic-{width}.png")
            page.keyboard.press("j")
            assert page.evaluate("document.activeElement.tagName") == "H2"
            page.fill("[name=where]", "year > 3000")
            page.press("[name=where]", "Enter")
            page.wait_for_function("document.querySelector('#said').textContent.startsWith('Nothing found')")
            page.fill("[name=where]", "year >")
            page.press("[name=where]", "Enter")
            page.wait_for_selector("#said.wrong")
            assert "is no condition on documents" in page.inner_text("#said")
            page.screenshot(path=pictures / f"error-{width}.png")
            page.close()
        browser.close()


def test_a_port_that_is_taken_is_named_before_the_model_is_loaded(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmde.index.index.Index.__init__", None)  # so that to load one would be an error
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"no server can listen at 127.0.0.1, port {port} .*in use.*--port"):
            main(["serve", str(index_folder), "--port", str(port)])


@pytest.mark.slow
def test_the_command_answers_what_has_arrived_before_it_stops(index_folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "hmde", "serve", str(index_folder), "--port", str(port), "--dtype", "float32"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if f"running on http://127.0.0.1:{port}" in line:
                break
        client = HTTPConnection("127.0.0.1", port)
        body = json.dumps({"input": [" ".join(DOCUMENTS * 50)] * 100})
        client.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        assert get(f"http://127.0.0.1:{port}/health").status_code == 200  # so that the one before has arrived
        process.send_signal(signal.SIGTERM)
        assert len(json.load(client.getresponse())["data"]) == 100
        process.wait()
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
