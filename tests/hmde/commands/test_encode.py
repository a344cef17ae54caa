"""Encoding a collection: what is written, what a stopped run leaves, and how several processes share the work."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hmde.__main__ import main
from hmde.commands import encode as module
from hmde.documents.documents import Document, Documents
from hmde.index.precomputed import PrecomputedEmbeddings
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.pretraining import in_processes


@pytest.fixture
def saved(model_folder: Path) -> str:
    return str(model_folder)


@pytest.fixture(scope="module")
def table(documents: list[str]) -> pa.Table:
    """Ninety documents, each one different."""
    texts = [f"{text} {'katze ' * number}" for number in range(15) for text in documents]
    languages = ["en", "de", "fr", "ru", "zh", "th"] * 15
    return pa.table({"id": [f"doc-{number}" for number in range(90)], "text": texts, "language": languages})


@pytest.fixture
def collection(table: pa.Table, tmp_path: Path) -> Path:
    folder = tmp_path / "collection"
    folder.mkdir()
    pq.write_table(table.slice(0, 40), folder / "a.parquet")
    pq.write_table(table.slice(40), folder / "b.parquet")
    return folder


def arguments(saved: str, documents: Path, output: Path, **options: object) -> list[str]:
    given = {"model": saved, "documents_per_shard": 8, "dtype": "float32"} | options
    return ["encode", str(documents), str(output), *(f"--{name}={value}" for name, value in given.items())]


def written(output: Path) -> tuple[list[str], np.ndarray]:
    table = pa.concat_tables(pq.read_table(path) for path in sorted(output.glob("shard-*.parquet")))
    return table["id"].to_pylist(), np.stack(table["embedding"].to_numpy())


@dataclass(frozen=True)
class Encoding:
    """What the command makes of the collection."""

    saved: str
    collection: Path
    output: Path
    model: HMDEForDocumentEmbedding
    tokenizer: HMDETokenizer

    def run(self, **options: object) -> None:
        main(arguments(self.saved, self.collection, self.output, **options))

    def rewritten(self) -> list[int]:
        """The numbers of the shards that a further run writes."""
        before = {path: path.stat().st_mtime_ns for path in self.output.glob("shard-*")}
        self.run()
        shards = sorted(self.output.glob("shard-*"))
        return [number for number, path in enumerate(shards) if path.stat().st_mtime_ns != before.get(path)]

    def assert_complete(self, table: pa.Table, model: HMDEForDocumentEmbedding | None = None) -> None:
        ids, embeddings = written(self.output)
        assert ids == table["id"].to_pylist()
        assert embeddings.dtype == np.float32
        texts, languages = table["text"].to_pylist(), table["language"].to_pylist()
        expected = (model or self.model).encode_documents(texts, self.tokenizer, language=languages)
        np.testing.assert_allclose(embeddings, expected, atol=1e-5)
        assert not list(self.output.glob(".*"))


@pytest.fixture
def encoding(
    saved: str, collection: Path, tmp_path: Path, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> Encoding:
    return Encoding(saved, collection, tmp_path / "out", model, tokenizer)


def test_every_document_of_all_files_is_written_once_in_order(encoding: Encoding, table: pa.Table) -> None:
    encoding.run()
    encoding.assert_complete(table)
    assert len(list(encoding.output.glob("shard-*"))) == 12


def test_rows_that_are_read_in_part_are_named_and_counted(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"id": "short", "text": "The cat."}, {"id": "long", "text": "The cat sat. " * 10_000}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    main(arguments(saved, tmp_path / "rows.jsonl", tmp_path / "out"))
    assert "documents truncated: 1\n" in capsys.readouterr().out
    assert "long: only the first " in caplog.text


def test_two_processes_that_are_killed_and_started_again_write_what_one_writes(
    encoding: Encoding, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_whole = module.file_written_whole

    def die_at_some_shard(path: Path) -> AbstractContextManager[Path]:
        if path.name in ("shard-000004.parquet", "shard-000007.parquet"):
            os.kill(os.getpid(), signal.SIGKILL)
        return written_whole(path)

    def work(_rank: int) -> None:
        encoding.run()

    with monkeypatch.context() as patch:
        patch.setattr(module, "file_written_whole", die_at_some_shard)
        assert in_processes(2, work) == [-signal.SIGKILL] * 2
    before = {path: path.stat().st_mtime_ns for path in encoding.output.glob("shard-*.parquet")}
    assert sorted(path.name for path in before) == [f"shard-00000{number}.parquet" for number in (0, 1, 2, 3, 5)]
    assert in_processes(2, work) == [0, 0]
    encoding.assert_complete(table)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_shards_of_another_recipe_are_not_mixed_with_these(encoding: Encoding) -> None:
    encoding.run()
    with pytest.raises(ValueError, match=r"recipe\.json differs from these options"):
        encoding.run(documents_per_shard=9)


def test_what_cannot_be_encoded_is_named_before_anything_is_computed(
    encoding: Encoding, labse: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="is no HMDE"):
        encoding.run(model=labse)
    with pytest.raises(ValueError, match=r"a\.parquet, row 1: there is no 'name'; every row must have one"):
        encoding.run(**{"columns.id": "name"})
    with pytest.raises(ValueError, match=r"lies in .* and would be read as documents"):
        main(arguments(encoding.saved, tmp_path, encoding.output))
    with pytest.raises(ValueError, match="Not of type PositiveInt: 0"):
        encoding.run(documents_per_shard=0)
    assert not encoding.output.exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "holds no document; documents are files that end in"),
        ('{"id": 1, "text": "a"}\n{"id"', r"documents\.jsonl, line 2: is no JSON"),
        ('{"id": 1, "text": "a"}\n{"text": "b"}', r"documents\.jsonl, line 2: there is no 'id'"),
        ('{"id": 1, "text": "a"}\n{"id": null, "text": "b"}', r"documents\.jsonl, line 2: id is None; it must be a"),
        ('{"id": 1, "text": "a"}\n\n{"id": "1", "text": "b"}', r"the id 1 is used twice"),
    ],
)
def test_a_row_that_cannot_be_encoded_is_named_before_anything_is_computed(
    saved: str, tmp_path: Path, lines: str, message: str
) -> None:
    (tmp_path / "documents.jsonl").write_text(lines)
    with pytest.raises(ValueError, match=message):
        main(arguments(saved, tmp_path / "documents.jsonl", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("language", ["de", "detect"])
def test_an_index_finds_the_embeddings_of_documents_that_do_not_name_their_language(
    saved: str, tmp_path: Path, language: str
) -> None:
    file = tmp_path / "documents.jsonl"
    file.write_text(json.dumps({"id": "moon", "text": "Der Mond kreist um die Erde. Er ist klein."}))
    main(arguments(saved, file, tmp_path / "out", language=language))
    embeddings = PrecomputedEmbeddings(tmp_path / "out", saved)
    (in_german,), (unnamed,) = (embeddings.find([*Documents(file, code)]) for code in ("de", None))
    assert in_german is not None
    assert unnamed is None


def flip_a_bit_of_the_embeddings(shard: Path) -> None:
    column = pq.ParquetFile(shard).metadata.row_group(0).column(2)
    content = bytearray(shard.read_bytes())
    content[column.dictionary_page_offset + column.total_compressed_size // 2] ^= 1
    shard.write_bytes(content)


def test_what_has_changed_is_encoded_again_and_nothing_else(encoding: Encoding, table: pa.Table) -> None:
    encoding.run()
    assert encoding.rewritten() == []
    appended = pa.table({"id": ["new"], "text": ["Der Hund schlief."], "language": ["de"]})
    pq.write_table(appended, encoding.collection / "c.parquet")
    assert encoding.rewritten() == [11]
    encoding.assert_complete(pa.concat_tables([table, appended]))
    texts = table["text"].to_pylist()
    texts[20] = "Le chat dort."
    changed = table.set_column(1, "text", [texts])
    pq.write_table(changed.slice(0, 40), encoding.collection / "a.parquet")
    assert encoding.rewritten() == [2]
    (encoding.collection / "c.parquet").unlink()
    pq.write_table(changed.slice(40, 16), encoding.collection / "b.parquet")
    assert encoding.rewritten() == []
    encoding.assert_complete(changed.slice(0, 56))
    shard = pq.read_table(encoding.output / "shard-000006.parquet")
    renamed = shard.rename_columns([*shard.column_names[:2], "vectors"]).replace_schema_metadata(shard.schema.metadata)
    pq.write_table(renamed, encoding.output / "shard-000006.parquet")
    assert encoding.rewritten() == [6]
    (encoding.output / "shard-000004.parquet").unlink()
    os.truncate(encoding.output / "shard-000003.parquet", 100)
    flip_a_bit_of_the_embeddings(encoding.output / "shard-000005.parquet")
    assert encoding.rewritten() == [3, 4, 5]
    encoding.assert_complete(changed.slice(0, 56))


def test_documents_that_change_while_they_are_encoded_are_refused(
    encoding: Encoding, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two processes may have read them before and the other after."""
    written_whole = module.file_written_whole

    def change(path: Path) -> AbstractContextManager[Path]:
        pq.write_table(table.slice(50), encoding.collection / "b.parquet")
        return written_whole(path)

    with monkeypatch.context() as patch:
        patch.setattr(module, "file_written_whole", change)
        with pytest.raises(ValueError, match="changed while they were encoded; run again when they are final"):
            encoding.run()
    encoding.run()
    encoding.assert_complete(pa.concat_tables([table.slice(0, 40), table.slice(50)]))


def test_a_model_that_was_trained_further_encodes_everything_again(
    encoding: Encoding, tmp_path: Path, table: pa.Table
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(encoding.saved, folder)
    encoding.run(model=folder)
    trained = HMDEForDocumentEmbedding.from_pretrained(folder)
    with torch.no_grad():
        trained.get_input_embeddings().weight.mul_(1.5)
    trained.save_pretrained(folder)
    encoding.run(model=folder)
    encoding.assert_complete(table, trained)


def test_embeddings_of_another_model_damaged_or_missing_ones_are_refused(
    encoding: Encoding, tmp_path: Path, table: pa.Table
) -> None:
    encoding.run()
    other = tmp_path / "other"
    shutil.copytree(encoding.saved, other)
    (other / "added").touch()
    with pytest.raises(ValueError, match=r"shard-000000\.parquet was made by another model"):
        PrecomputedEmbeddings(encoding.output, str(other))
    nameless = tmp_path / "nameless" / "shard-000000.parquet"
    nameless.parent.mkdir()
    pq.write_table(table.append_column("content_hash", table["id"]).replace_schema_metadata(None), nameless)
    with pytest.raises(ValueError, match=r"shard-000000\.parquet was made by another model"):
        PrecomputedEmbeddings(nameless.parent, encoding.saved)
    with pytest.raises(ValueError, match="holds no embeddings"):
        PrecomputedEmbeddings(encoding.collection, encoding.saved)
    flip_a_bit_of_the_embeddings(encoding.output / "shard-000000.parquet")
    with pytest.raises(ValueError, match=r"shard-000000\.parquet is damaged"):
        PrecomputedEmbeddings(encoding.output, encoding.saved).find([Document("", "", "en", table["text"][0].as_py())])
    os.truncate(encoding.output / "shard-000001.parquet", 100)
    with pytest.raises(ValueError, match=r"shard-000001\.parquet is damaged"):
        PrecomputedEmbeddings(encoding.output, encoding.saved)
