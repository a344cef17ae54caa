"""Downloads of SQL dumps, from a server that breaks off."""

from __future__ import annotations

import http.server
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hmde.common.files import locked
from replications.wikipedia.download import fetch, fetch_dumps
from tests.wikipedias import all_wikis, write_tables, write_wikis


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """A server with the dumps of English and Finnish, which breaks off a first answer; and what it was asked."""
    served = tmp_path / "served"
    wikis = all_wikis()
    for language in ("en", "fi"):
        (served / f"{language}wiki" / "latest").mkdir(parents=True)
        wikis[language].write(served / f"{language}wiki" / "latest")
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = served / self.path.lstrip("/")
            begin = int(re.sub(r"\D", "", self.headers.get("Range", "0")))
            asked.append(f"{path.name} {begin}")
            if "busywiki" in self.path:
                self.send_error(503)
                return
            if not path.is_file():
                self.send_error(404)
                return
            data = path.read_bytes()
            if begin >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(data) - begin))
            self.end_headers()
            broken = "enwiki-latest-page.sql" in self.path and not begin
            self.wfile.write(data[begin : 50 if broken else None])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()


def test_a_download_resumes_verifies_and_leaves_alone_what_is_there(tmp_path, mirror):
    address, asked = mirror
    with pytest.raises(ValueError, match=r"1 files are not in .*\n +http.*/enwiki-latest-page\.sql\.gz$"):
        fetch_dumps(["en", "fi"], tmp_path / "dumps", "latest", address)
    dumps = fetch_dumps(["en", "fi"], tmp_path / "dumps", "latest", address)
    assert asked[-1] == "enwiki-latest-page.sql.gz 50"
    assert list(dumps["en"]) == ["page", "page_props", "categorylinks", "linktarget"]
    assert list(dumps["fi"]) == ["page", "page_props", "categorylinks"]
    count = len(asked)
    assert fetch_dumps(["en", "fi"], tmp_path / "dumps", "latest", address) == dumps
    assert len(asked) == count


def test_a_file_that_was_fetched_whole_but_not_renamed_is_not_fetched_again(tmp_path, mirror):
    address, asked = mirror
    name = "fiwiki-latest-page.sql.gz"
    shutil.copy(tmp_path / "served" / "fiwiki" / "latest" / name, tmp_path / f"{name}.partial")
    fetch(f"{address}/fiwiki/latest/{name}", tmp_path / name)
    assert (tmp_path / name).exists()
    assert len(asked) == 1


def test_a_wrong_checksum_is_named_and_the_fetched_file_removed(tmp_path, mirror):
    address, _ = mirror
    target = tmp_path / "dumps" / "page.sql.gz"
    target.parent.mkdir()
    with pytest.raises(ValueError, match=r"page\.sql\.gz has another SHA-1 than its list says; .*delete the list"):
        fetch(f"{address}/fiwiki/latest/fiwiki-latest-page.sql.gz", target, "00")
    assert not list(target.parent.glob("[!.]*"))


@pytest.mark.parametrize("content", ["<html>not found</html>\n", "da39a3ee  enwiki-latest-page.sql.gz\n", "\xff\n"])
def test_a_list_of_checksums_that_is_none_is_named_with_the_line(tmp_path, content):
    world = write_wikis(tmp_path)
    (world / "dumps" / "enwiki-latest-sha1sums.txt").write_bytes(content.encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"enwiki-latest-sha1sums\.txt, line 1: .*(is no checksum and file name|is not UTF-8)"
    ):
        write_tables(world, "articles")


def test_two_builders_fetch_a_dump_once(tmp_path, mirror):
    address, asked = mirror
    name = "fiwiki-latest-page.sql.gz"
    with ThreadPoolExecutor(1) as pool:
        with locked(tmp_path / name):  # the first is about to fetch it
            second = pool.submit(fetch, f"{address}/fiwiki/latest/{name}", tmp_path / name)
            shutil.copy(tmp_path / "served" / "fiwiki" / "latest" / name, tmp_path / name)
        second.result()
    assert not asked


def test_a_language_without_a_dump_is_named(tmp_path, mirror):
    with pytest.raises(ValueError, match=r"xxwiki-latest-sha1sums\.txt: 404 .*no such dump"):
        fetch_dumps(["xx"], tmp_path / "dumps", "latest", mirror[0])


def test_a_server_that_refuses_is_not_taken_for_one_without_the_dump(tmp_path, mirror):
    with pytest.raises(ValueError, match=r"cannot be downloaded \(503 Service Unavailable\); copy them there"):
        fetch_dumps(["busy"], tmp_path / "dumps", "latest", mirror[0])


def test_without_a_network_every_file_to_bring_is_listed(tmp_path):
    with pytest.raises(ValueError, match="10 files are not in") as raised:
        fetch_dumps(["en", "fi"], tmp_path / "dumps", "20250101", "http://127.0.0.1:9")
    assert str(raised.value).count("http://127.0.0.1:9/fiwiki/20250101/fiwiki-20250101-") == 5


def test_a_data_set_that_cannot_be_fetched_says_what_to_bring_where(tmp_path):
    with pytest.raises(ValueError, match=r"--articles:\n.*google/wiki40b/tree/main/zh-cn/\*\.parquet"):
        write_tables(tmp_path, "out", "--articles", "google/wiki40b", "--languages", "[zh,en]")
