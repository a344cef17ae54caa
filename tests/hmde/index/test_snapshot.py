"""The stored table: its versions, damage to its files, and the model that made it."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
import pytest

from hmde.documents.documents import Document
from hmde.index.encoder import Encoder
from hmde.index.index import Index
from hmde.index.ranking import rank
from hmde.index.snapshot import FORMAT, TABLE, IndexNotFound, is_index, open_snapshot, store_errors
from hmde.index.update import remove_documents, update_index
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.hmde.small_index import CHANGED, TEXTS, as_kept, check_index, documents_of

pytestmark = pytest.mark.lancedb


def test_a_reader_keeps_the_version_that_it_opened(tmp_path: Path, encoder: Encoder) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder)
    before = open_snapshot(tmp_path)
    update_index(tmp_path, documents_of(CHANGED), encoder)
    update_index(tmp_path, documents_of({"new": CHANGED["new"]}), encoder)
    assert before.documents(list(rank(before, "Hund", encoder, "bm25"))) == documents_of({"dog": TEXTS["dog"]})
    assert set(rank(before, "Le chat", encoder)) == set(TEXTS)
    assert set(rank(open_snapshot(tmp_path), "Le chat", encoder)) == {"new"}


def test_a_folder_without_an_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(IndexNotFound, match=f"{tmp_path} holds no index; make one with: .* {tmp_path} --model MODEL"):
        open_snapshot(tmp_path)
    for use in (open_snapshot, Index, lambda url: update_index(url, [], None), lambda url: remove_documents(url, [])):
        with pytest.raises(ValueError, match="s3://bucket/index is a URL, and an index is a folder; copy it into one"):
            use("s3://bucket/index")


def test_an_index_of_another_format_is_refused_with_both_numbers_and_the_way_out(
    index_folder: Path, encoder: Encoder
) -> None:
    table = lancedb.connect(index_folder).open_table(TABLE)
    for metadata, found in (({"format": str(FORMAT + 1)}, FORMAT + 1), ({}, 1)):
        lancedb.connect(index_folder).create_table(
            TABLE, schema=pa.schema(list(table.schema), metadata), mode="overwrite"
        )
        message = f"{index_folder} has format {found}, and this hmde reads and writes format {FORMAT}; index .* again"
        for reads in (open_snapshot, lambda folder: update_index(folder, documents_of(TEXTS), encoder)):
            with pytest.raises(ValueError, match=message):
                reads(index_folder)


def test_documents_vectors_and_sentences_come_in_the_order_in_which_they_are_asked_for(
    index_folder: Path, encoder: Encoder
) -> None:
    index = open_snapshot(index_folder)
    documents = documents_of(TEXTS)
    vectors, sentences = encoder.encode_with_sentences(documents)
    for order in ([3, 0, 2], [1], [2, 1, 0, 3]):
        ids = [documents[place].id for place in order]
        assert index.documents(ids) == [documents[place] for place in order]
        found_vectors, languages = index.vectors_and_languages(ids)
        np.testing.assert_allclose(found_vectors, vectors[order], atol=1e-6)
        assert languages == {documents[place].id: documents[place].language for place in order}
        cosines = [as_kept(sentences[place].vectors, encoder) @ vectors[0] for place in order]
        best_and_first = [[float(row.max()) for row in cosines], [float(row[0]) for row in cosines]]
        np.testing.assert_allclose(index.cosines_of_sentences(vectors[0], ids), best_and_first, atol=1e-5)
        for found, place in zip(index.sentences(ids), order, strict=True):
            assert found.spans == sentences[place].spans
            np.testing.assert_allclose(found.vectors, as_kept(sentences[place].vectors, encoder), atol=1e-6)
    assert index.documents([]) == []


def test_an_index_counts_its_documents_and_names_their_languages(tmp_path: Path, encoder: Encoder) -> None:
    documents = [Document(name, "", language, "x") for name, language in zip("abcd", ["fr", None, "de", "fr"])]
    update_index(tmp_path, documents, encoder)
    assert len(open_snapshot(tmp_path)) == 4
    assert open_snapshot(tmp_path).languages == ["de", "fr"]


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["cut", "remove"])
def test_damaged_files_are_named_with_the_way_to_repair_or_harm_nothing(
    tmp_path: Path, index_folder: Path, encoder: Encoder, harm: str
) -> None:
    copy = tmp_path / "copy"
    refused: list[str] = []
    for file in sorted(path for path in index_folder.rglob("*") if path.is_file()):
        shutil.copytree(index_folder, copy, dirs_exist_ok=False)
        damaged = copy / file.relative_to(index_folder)
        if harm == "cut":
            os.truncate(damaged, file.stat().st_size // 2)
        else:
            damaged.unlink()
        for ranking in ("dense", "bm25", "late"):
            try:
                hits = Index(copy, encoder).search("Le chat", 4, ranking=ranking)
                assert all(hit.document.text == TEXTS[hit.document.id] for hit in hits)
            except ValueError as error:
                refused.append(str(error))
        shutil.rmtree(copy)
    assert refused
    for message in refused:
        assert message.startswith(f"{copy} is damaged or not complete")
        assert message.endswith("remove the folder and index them again")


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ("lance error: No space left on device (os error 28)", OSError, r"the disk of here is full; make room and"),
        ("Permission denied (os error 13)", ValueError, "here may not be written by this user: Permission denied"),
        ("Read-only file system (os error 30)", ValueError, "here may not be written by this user: Read-only"),
        ("not found", ValueError, r"here is damaged or not complete \(not found\); the documents are where they were"),
    ],
)
def test_an_error_of_lancedb_is_said_with_the_folder_and_the_remedy(said: str, error: type, message: str) -> None:
    for raised in (RuntimeError, OSError):
        with pytest.raises(error, match=message), store_errors("here"):
            raise raised(said)


def test_files_that_vanish_under_an_open_index_are_named_whatever_reads_them(
    index_folder: Path, encoder: Encoder
) -> None:
    (query,) = encoder.encode_queries(["The cat"])
    readers: list[Callable] = [
        lambda index: index.nearest(query, 2),
        lambda index: index.nearest_sentences(query, 2),
        lambda index: index.nearest_sentences(query, 2, "id = 'cat'"),
        lambda index: index.bm25(["cat"], 2),
    ]
    opened = [open_snapshot(index_folder) for _ in readers]
    assert opened[2].signs  # read before, so that only the condition is left to read
    shutil.rmtree(index_folder)
    for read, index in zip(readers, opened):
        with pytest.raises(ValueError, match="index is damaged or not complete"):
            read(index)


def test_the_language_of_a_document_tells_where_its_sentences_end(tmp_path: Path, encoder: Encoder) -> None:
    text = "Das steht in Kap. Drei. Der Hund sah sie."
    documents = [Document(language, "", language, text) for language in ("de", "en")]
    update_index(tmp_path, documents, encoder, sentences=True)
    kept, read_again = open_snapshot(tmp_path).sentences(["de", "en"]), encoder.encode_sentences(documents)
    for of_german, of_english in (kept, read_again):
        assert [text[begin:end] for begin, end in of_german.spans] == ["Das steht in Kap. Drei.", "Der Hund sah sie."]
        assert len(of_english.spans) == 3


def test_an_index_made_by_another_model_is_refused(
    tmp_path: Path, labse: Path, encoder: Encoder, make_model: Callable[..., HMDEForDocumentEmbedding]
) -> None:
    update_index(tmp_path, documents_of(TEXTS), encoder)
    other_weights = Encoder("other", make_model(labse, document_norm="pre"), encoder.tokenizer)
    shorter = HMDETokenizer.from_sentence_encoder(str(labse), max_sentences=4)
    prompted = HMDETokenizer.from_sentence_encoder(str(labse), sentence_prompt="the")
    others = [other_weights, *(encoder._replace(name="other", tokenizer=other) for other in (shorter, prompted))]
    for other in others:
        with pytest.raises(ValueError, match=r"another model .* than other"):
            update_index(tmp_path, documents_of(TEXTS | {"new": "The dog."}), other)
        with pytest.raises(ValueError, match="new index in another folder"):
            open_snapshot(tmp_path).check(other)
    check_index(tmp_path, TEXTS, encoder)


def test_a_model_with_weights_that_are_not_finite_makes_no_index(tmp_path: Path, encoder: Encoder) -> None:
    damaged = copy.deepcopy(encoder.model)
    damaged.hmde.document_encoder.layers[0].attention.value.weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        update_index(tmp_path / "index", documents_of(TEXTS), Encoder("damaged", damaged, encoder.tokenizer))
    assert not is_index(tmp_path / "index")
