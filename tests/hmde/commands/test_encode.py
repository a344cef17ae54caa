"""Encoding a collection: what is written, what a stopped run leaves, and how several processes share the work."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from hmde.__main__ import main
from hmde.commands import encode as module
from hmde.commands.options import EncodeOptions
from hmde.documents.documents import Document
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


def assert_complete(output: Path, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, table: pa.Table) -> None:
    ids, embeddings = written(output)
    assert ids == table["id"].to_pylist()
    assert embeddings.dtype == np.float32
    texts, languages = table["text"].to_pylist(), table["language"].to_pylist()
    np.testing.assert_allclose(embeddings, model.encode_documents(texts, tokenizer, language=languages), atol=1e-5)
    assert not list(output.glob(".*"))


def test_every_document_of_all_files_is_written_once_in_order(
    saved: str,
    collection: Path,
    tmp_path: Path,
    table: pa.Table,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
) -> None:
    main(arguments(saved, collection, tmp_path / "out"))
    assert_complete(tmp_path / "out", model, tokenizer, table)
    assert len(list((tmp_path / "out").glob("shard-*"))) == 12


def test_lines_of_json_are_read_too_and_languages_reach_the_splitter(
    saved: str, tmp_path: Path, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer
) -> None:
    text = "Das steht in Kap. Drei. Ja."
    rows = [{"concept_id": number, "text": text, "code": code} for number, code in enumerate(["de", "fr"])]
    file = tmp_path / "documents.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    main(arguments(saved, file, tmp_path / "out", **{"columns.id": "concept_id", "columns.language": "code"}))
    ids, embeddings = written(tmp_path / "out")
    assert ids == ["0", "1"]
    expected = model.encode_documents([text] * 2, tokenizer, language=["de", "fr"])
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
    assert not np.allclose(expected[0], expected[1], atol=1e-3)


def test_a_second_run_computes_the_missing_shards_only(saved: str, collection: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    main(arguments(saved, collection, output))
    shards = sorted(output.glob("shard-*"))
    shards[3].unlink()
    before = {path: path.stat().st_mtime_ns for path in shards if path.exists()}
    main(arguments(saved, collection, output))
    assert sorted(output.glob("shard-*")) == shards
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_two_processes_that_are_killed_and_started_again_write_what_one_writes(
    saved: str,
    collection: Path,
    tmp_path: Path,
    table: pa.Table,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "out"
    written_whole = module.file_written_whole

    def die_at_some_shard(path: Path) -> AbstractContextManager[Path]:
        if path.name in ("shard-000004.parquet", "shard-000007.parquet"):
            os.kill(os.getpid(), signal.SIGKILL)
        return written_whole(path)

    def work(_rank: int) -> None:
        main(arguments(saved, collection, output))

    with monkeypatch.context() as patch:
        patch.setattr(module, "file_written_whole", die_at_some_shard)
        assert in_processes(2, work) == [-signal.SIGKILL] * 2
    before = {path: path.stat().st_mtime_ns for path in output.glob("shard-*.parquet")}
    assert sorted(path.name for path in before) == [f"shard-00000{number}.parquet" for number in (0, 1, 2, 3, 5)]
    assert in_processes(2, work) == [0, 0]
    assert_complete(output, model, tokenizer, table)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_shards_of_another_recipe_are_not_mixed_with_these(saved: str, collection: Path, tmp_path: Path) -> None:
    main(arguments(saved, collection, tmp_path / "out"))
    with pytest.raises(ValueError, match=r"recipe\.json differs from these options"):
        main(arguments(saved, collection, tmp_path / "out", documents_per_shard=9))


def test_what_cannot_be_encoded_is_named_before_anything_is_computed(
    saved: str, labse: Path, collection: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with pytest.raises(ValueError, match="is no HMDE"):
        main(arguments(str(labse), collection, output))
    with pytest.raises(ValueError, match=r"a\.parquet, row 1: there is no 'name'; every row must have one"):
        main(arguments(saved, collection, output, **{"columns.id": "name"}))
    with pytest.raises(ValueError, match=r"lies in .* and would be read as documents"):
        main(arguments(saved, tmp_path, output))
    with pytest.raises(ValueError, match="Not of type PositiveInt: 0"):
        main(arguments(saved, collection, output, documents_per_shard=0))
    assert not output.exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "holds no document; documents are files that end in"),
        ('{"id": 1, "text": "a"}\n{"id"', r"documents\.jsonl, line 2: is no JSON"),
        (
            '{"id": 1, "text": "a"}\n{"id": true, "text": "b"}',
            r"documents\.jsonl, line 2: id is True; it must be a",
        ),
        ('{"id": 1, "text": "a"}\n{"text": "b"}', r"documents\.jsonl, line 2: there is no 'id'"),
        (
            '{"id": 1, "text": "a"}\n{"id": null, "text": "b"}',
            r"documents\.jsonl, line 2: id is None; it must be a",
        ),
        ('{"id": 1, "text": "a"}\n\n{"id": "1", "text": "b"}', r"the id 1 is used twice"),
        ('{"id": 1, "text": "a"}\n{"id": 2, "text": ["b"]}', r"documents\.jsonl, line 2: text is \['b'\]; it must be"),
        ('{"id": 1, "text": "a"}\n{"id": 2}', r"documents\.jsonl, line 2: there is no 'text'"),
    ],
)
def test_a_row_that_cannot_be_encoded_is_named_before_anything_is_computed(
    saved: str, tmp_path: Path, lines: str, message: str
) -> None:
    (tmp_path / "documents.jsonl").write_text(lines)
    with pytest.raises(ValueError, match=message):
        main(arguments(saved, tmp_path / "documents.jsonl", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_data_set_of_the_hub_is_read_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"id": 7, "text": "The cat."},
        {"id": 8, "text": None},
        {"id": 9, "text": "Le chat."},
        {"id": 10, "text": 3},
    ]

    def load(name: str, subset: str, *, split: str, streaming: bool) -> list[dict[str, object]]:
        assert (name, subset, split, streaming) == ("someone/texts", "news", "test", True)
        return rows

    monkeypatch.setattr(module, "load_dataset", load)
    recipe = EncodeOptions("someone/texts", "output", "model", subset="news", split="test")
    documents = module.read_documents(recipe)
    assert [(document.id, document.text) for document in islice(documents, 2)] == [("7", "The cat."), ("9", "Le chat.")]
    with pytest.raises(ValueError, match="someone/texts, row 4: text is 3; it must be a string"):
        next(documents)


def rewritten(output: Path, saved: str, collection: Path) -> list[int]:
    """The numbers of the shards that a further run writes."""
    before = {path: path.stat().st_mtime_ns for path in output.glob("shard-*")}
    main(arguments(saved, collection, output))
    shards = sorted(output.glob("shard-*"))
    return [number for number, path in enumerate(shards) if path.stat().st_mtime_ns != before.get(path)]


def flip_a_bit_of_the_embeddings(shard: Path) -> None:
    column = pq.ParquetFile(shard).metadata.row_group(0).column(2)
    content = bytearray(shard.read_bytes())
    content[column.dictionary_page_offset + column.total_compressed_size // 2] ^= 1
    shard.write_bytes(content)


def test_what_has_changed_is_encoded_again_and_nothing_else(
    saved: str,
    collection: Path,
    tmp_path: Path,
    table: pa.Table,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
) -> None:
    output = tmp_path / "out"
    main(arguments(saved, collection, output))
    assert rewritten(output, saved, collection) == []
    appended = pa.table({"id": ["new"], "text": ["Der Hund schlief."], "language": ["de"]})
    pq.write_table(appended, collection / "c.parquet")
    assert rewritten(output, saved, collection) == [11]
    assert_complete(output, model, tokenizer, pa.concat_tables([table, appended]))
    texts = table["text"].to_pylist()
    texts[20] = "Le chat dort."
    changed = table.set_column(1, "text", [texts])
    pq.write_table(changed.slice(0, 40), collection / "a.parquet")
    assert rewritten(output, saved, collection) == [2]
    (collection / "c.parquet").unlink()
    pq.write_table(changed.slice(40, 16), collection / "b.parquet")
    assert rewritten(output, saved, collection) == []
    assert_complete(output, model, tokenizer, changed.slice(0, 56))
    shard = pq.read_table(output / "shard-000006.parquet")
    renamed = shard.rename_columns([*shard.column_names[:2], "vectors"]).replace_schema_metadata(shard.schema.metadata)
    pq.write_table(renamed, output / "shard-000006.parquet")
    assert rewritten(output, saved, collection) == [6]
    os.truncate(output / "shard-000003.parquet", 100)
    flip_a_bit_of_the_embeddings(output / "shard-000005.parquet")
    assert rewritten(output, saved, collection) == [3, 5]
    assert_complete(output, model, tokenizer, changed.slice(0, 56))


def test_documents_that_change_while_they_are_encoded_are_refused(
    saved: str,
    collection: Path,
    tmp_path: Path,
    table: pa.Table,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of two processes may have read them before and the other after."""
    written_whole = module.file_written_whole

    def change(path: Path) -> AbstractContextManager[Path]:
        pq.write_table(table.slice(50), collection / "b.parquet")
        return written_whole(path)

    with monkeypatch.context() as patch:
        patch.setattr(module, "file_written_whole", change)
        with pytest.raises(ValueError, match="changed while they were encoded; run again when they are final"):
            main(arguments(saved, collection, tmp_path / "out"))
    main(arguments(saved, collection, tmp_path / "out"))
    assert_complete(tmp_path / "out", model, tokenizer, pa.concat_tables([table.slice(0, 40), table.slice(50)]))


def test_a_model_that_was_trained_further_encodes_everything_again(
    saved: str, collection: Path, tmp_path: Path, table: pa.Table, tokenizer: HMDETokenizer
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved, folder)
    main(arguments(str(folder), collection, tmp_path / "out"))
    trained = HMDEForDocumentEmbedding.from_pretrained(folder)
    with torch.no_grad():
        trained.get_input_embeddings().weight.mul_(1.5)
    trained.save_pretrained(folder)
    main(arguments(str(folder), collection, tmp_path / "out"))
    assert_complete(tmp_path / "out", trained, tokenizer, table)


def test_embeddings_of_another_model_damaged_or_missing_ones_are_refused(
    saved: str, collection: Path, tmp_path: Path, table: pa.Table
) -> None:
    main(arguments(saved, collection, tmp_path / "out"))
    other = tmp_path / "other"
    shutil.copytree(saved, other)
    (other / "added").touch()
    with pytest.raises(ValueError, match=r"shard-000000\.parquet was made by another model"):
        PrecomputedEmbeddings(tmp_path / "out", str(other))
    nameless = tmp_path / "nameless" / "shard-000000.parquet"
    nameless.parent.mkdir()
    pq.write_table(table.append_column("content_hash", table["id"]).replace_schema_metadata(None), nameless)
    with pytest.raises(ValueError, match=r"shard-000000\.parquet was made by another model"):
        PrecomputedEmbeddings(nameless.parent, saved)
    with pytest.raises(ValueError, match="holds no embeddings"):
        PrecomputedEmbeddings(collection, saved)
    flip_a_bit_of_the_embeddings(tmp_path / "out" / "shard-000000.parquet")
    with pytest.raises(ValueError, match=r"shard-000000\.parquet is damaged"):
        PrecomputedEmbeddings(tmp_path / "out", saved).find([Document("", "", "en", table["text"][0].as_py())])
    os.truncate(tmp_path / "out" / "shard-000001.parquet", 100)
    with pytest.raises(ValueError, match=r"shard-000001\.parquet is damaged"):
        PrecomputedEmbeddings(tmp_path / "out", saved)
