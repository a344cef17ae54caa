"""`from hmde import Index`: documents are added, changed, removed and found, and their metadata filter."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hmde
from hmde import Document, Documents, Index
from hmde.documents.documents import Columns
from hmde.index.encoder import Encoder
from hmde.index.snapshot import IndexNotFound, InvalidCondition, open_snapshot
from hmde.index.update import update_index
from modeling_hmde import HMDETokenizer
from tests.hmde.small_index import TEXTS, CountingEncoder, check_index, documents_of
from tests.paths import REPOSITORY

pytestmark = pytest.mark.lancedb

YEARS = {"cat": 1999, "dog": 2010, "chat": 2020, "кот": 2021}


@pytest.fixture
def index(tmp_path: Path, encoder: Encoder) -> Index:
    index = Index(tmp_path / "years", encoder)
    index.update([Document(name, name, "en", text, {"year": YEARS[name], "by": name}) for name, text in TEXTS.items()])
    return index


def ids(index: Index, where: str | None = None, **options: object) -> set[str]:
    return {hit.document.id for hit in index.search("The cat", 10, where=where, **options)}


def test_the_package_gives_what_it_names_and_no_more() -> None:
    assert hmde.Document is Document
    with pytest.raises(AttributeError, match="module 'hmde' has no attribute 'Path'"):
        hmde.Path  # noqa: B018, which hmde.documents.documents imports


def test_documents_are_added_replaced_and_removed_and_the_others_stay(tmp_path: Path, encoder: Encoder) -> None:
    index = Index(tmp_path / "index", encoder)
    with pytest.raises(IndexNotFound):
        index.search("The cat")
    assert index.add(documents_of({"cat": TEXTS["cat"], "dog": TEXTS["dog"]})) == (2, 0, 0, 0, 0)
    assert len(index) == 2
    assert index.add(iter(documents_of({"dog": "Der Hund schlief.", "new": TEXTS["chat"]}))) == (1, 1, 0, 0, 0)
    assert len(index) == 3
    check_index(index.folder, {"cat": TEXTS["cat"], "dog": "Der Hund schlief.", "new": TEXTS["chat"]}, encoder)
    with pytest.raises(TypeError, match="ids is the string 'cat'; give a list of ids"):
        index.remove("cat")
    assert index.remove({"cat", "unknown"}) == 1
    assert (len(index), ids(index)) == (2, {"dog", "new"})
    assert index.update(documents_of(TEXTS)) == (3, 1, 1, 0, 0)
    assert len(index) == len(TEXTS)
    check_index(index.folder, TEXTS, encoder)


def test_an_index_is_not_opened_with_another_model(index: Index, encoder: Encoder, labse: Path) -> None:
    other = HMDETokenizer.from_sentence_encoder(str(labse), max_sentences=4)
    with pytest.raises(ValueError, match="made by another model"):
        Index(index.folder, encoder._replace(name="other", tokenizer=other))


def test_an_index_whose_model_was_moved_is_named_with_the_way_to_say_where_the_model_is(
    tmp_path: Path, model_folder: Path
) -> None:
    shutil.copytree(model_folder, tmp_path / "model")
    Index(tmp_path / "index", str(tmp_path / "model"), dtype="float32").add(documents_of(TEXTS))
    (tmp_path / "model").rename(tmp_path / "moved")
    with pytest.raises(
        ValueError, match=f"index {tmp_path}/index does not load: {tmp_path}/model does not open"
    ) as error:
        Index(tmp_path / "index")
    assert str(error.value).endswith("say where it is: --model FOLDER, or Index(folder, model)")
    assert len(Index(tmp_path / "index", str(tmp_path / "moved"), dtype="float32")) == len(TEXTS)
    with pytest.raises(ValueError, match=f"^{tmp_path}/model does not open"):
        Index(tmp_path / "index", str(tmp_path / "model"))


def test_what_another_process_changes_is_seen(index: Index, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmde.index.index.SECONDS_BETWEEN_LOOKS", 0.0)
    Index(index.folder, encoder).remove(["cat"])
    assert ids(index) == {"dog", "chat", "кот"}


def test_an_index_that_is_made_again_in_its_folder_is_seen_and_its_model_checked(
    index: Index, encoder: Encoder, labse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmde.index.index.SECONDS_BETWEEN_LOOKS", 0.0)
    assert index.languages == ["en"]
    version = index.snapshot.table.version
    shutil.rmtree(index.folder)
    update_index(index.folder, [Document("hund", "", "de", TEXTS["dog"], {"year": 2000, "by": "x"})], encoder)
    assert open_snapshot(index.folder).table.version == version
    for ranking in ("dense", "bm25", "late"):
        assert {hit.document.id for hit in index.search("Hund", ranking=ranking)} == {"hund"}
    assert (len(index), index.languages) == (1, ["de"])
    shutil.rmtree(index.folder)
    other = HMDETokenizer.from_sentence_encoder(str(labse), max_sentences=4)
    update_index(index.folder, documents_of(TEXTS), encoder._replace(name="other", tokenizer=other))
    with pytest.raises(ValueError, match=r"made by another model \(other\)"):
        index.search("Hund")


def test_an_index_that_nobody_changes_is_opened_once(
    index: Index, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmde.index.index.SECONDS_BETWEEN_LOOKS", 0.0)
    opened = index.snapshot
    time.sleep(0.001)
    assert index.snapshot is opened
    monkeypatch.setattr("hmde.index.index.SECONDS_BETWEEN_LOOKS", 3600.0)
    monkeypatch.setattr("hmde.index.index.open_snapshot", None)  # so that a look would be an error
    assert index.snapshot is opened


@pytest.mark.parametrize("ranking", ["dense", "bm25", "hybrid", "late"])
def test_a_condition_on_metadata_leaves_the_others_out(index: Index, ranking: str) -> None:
    found = {"bm25": {"cat"}}
    assert ids(index, "year < 2015", ranking=ranking) == found.get(ranking, {"cat", "dog"})
    assert ids(index, "year < 2015 OR by = 'chat' -- or so", ranking=ranking, languages=["en"]) == found.get(
        ranking, {"cat", "dog", "chat"}
    )
    assert ids(index, "year > 3000", ranking=ranking) == set()
    assert ids(index, "id IN ('dog') AND language = 'en'", ranking=ranking) == found.get(ranking, {"dog"}) - {"cat"}


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("yeah > 1", "No field named yeah"),
        ("year >", "Expected: an expression"),
        ("year", "Cannot infer common argument type"),
        ("year > 'a'", "Cannot cast string 'a'"),
        ("", "Expected: an expression"),
        ("year IN (SELECT 1)", "not supported"),
        ("select > 6", "Expected: an expression"),
        ("true; drop", "found: ;"),
        ("true) OR true", "Invalid function"),
        ("true AS BOOLEAN) OR (true", "found: AS"),
        ("year = max(year)", r"does not support logical expression AggregateFunction\)"),
        ("row_number() OVER () = 1", r"does not support logical expression WindowFunction\)"),
        ("id = ?", "panicked"),
    ],
)
def test_a_condition_that_is_none_is_refused_with_the_columns_that_there_are(
    index: Index, where: str, reason: str
) -> None:
    with pytest.raises(InvalidCondition, match=reason) as error:
        index.search("The cat", where=where)
    assert str(error.value).endswith("on these columns: id, title, language, text, year, by")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", ["1/0 = 1", "CAST(by AS INT) > 3", "regexp_match(by, '(')"])
def test_a_condition_that_fails_on_a_document_is_no_damage_of_the_index(index: Index, where: str) -> None:
    with pytest.raises(InvalidCondition, match="fails on one of them"):
        index.search("The cat", where=where)


@pytest.mark.parametrize("ranking", ["dense", "bm25", "hybrid", "late"])
def test_all_documents_may_be_asked_for(index: Index, ranking: str) -> None:
    assert len(index.search("The cat", 2**31 - 1, ranking=ranking)) == (1 if ranking == "bm25" else 4)


def test_a_condition_may_name_the_text(index: Index) -> None:
    assert ids(index, "text LIKE '%Hund%' OR title = '('") == {"dog"}


@pytest.mark.parametrize("code", ["EN", "eng", "en-GB", "en_US"])
def test_a_language_may_be_named_by_any_of_its_codes(index: Index, code: str) -> None:
    assert ids(index, languages=[code]) == ids(index, languages=["en"]) != set()
    assert index.count([code]) == index.count(["en"]) > 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ranking": "lat"}, ValueError, "ranking is 'lat'; choose one of dense, bm25, hybrid, late"),
        ({"hits": 0}, ValueError, "hits is 0; give 1 or more"),
        ({"hits": 2**31}, ValueError, "hits is 2147483648; give 1 or more, and at most 2147483647"),
        ({"offset": -1}, ValueError, "offset is -1; give 0 or more"),
        ({"languages": "en"}, TypeError, "languages is the string 'en'; give a list"),
        ({"query": ""}, ValueError, "without a word; write what is to be found"),
        ({"query": " \n\u00a0"}, ValueError, "without a word; write what is to be found"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_by_name(
    index: Index, counting: CountingEncoder, arguments: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        Index(index.folder, counting).search(**{"query": "The cat", **arguments})
    assert counting.encoded == []


def test_other_metadata_are_written_without_encoding_again(index: Index, counting: CountingEncoder) -> None:
    again = Index(index.folder, counting)
    documents = [Document(name, name, "en", text, {"year": 3000, "new": name == "cat"}) for name, text in TEXTS.items()]
    assert again.update(documents) == (0, 4, 0, 0, 0)
    assert counting.encoded == []
    assert again.update(documents) == (0, 0, 0, 4, 0)
    (hit,) = again.search("The cat", where="new", ranking="dense")
    assert hit.document.metadata == {"year": 3000, "new": True}
    assert hit.to_dict()["metadata"] == {"year": 3000, "new": True}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"vector": 1}, "metadata may not be named 'vector'"),
        ({"two words": 1}, "metadata may not be named 'two words'"),
        ({"_score": 1}, "metadata may not be named '_score'"),
        ({"tags": ["a"]}, r"tags is \['a'\]; it must be a string, a number, true or false"),
        ({"year": None}, "year is None; it must be a string"),
        ({"year": np.float64(2)}, r"year is np.float64\(2.0\); it must be a string, a number"),
        ({"by": np.str_("x")}, r"by is np.str_\('x'\); it must be a string"),
        ({"year": 2**63}, "year is 9223372036854775808; give a finite number of at most 64 bits"),
        ({"year": math.nan}, "year is nan; give a finite number"),
        ({"year": -math.inf}, "year is -inf; give a finite number"),
    ],
)
def test_metadata_that_cannot_be_kept_are_refused(metadata: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"one: {message}"):
        Document("one", "", None, "text", metadata)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("id", 1, "1: id is 1; it must be a string"),
        ("title", None, "one: title is None; it must be a string, of"),
        ("language", math.nan, "one: language is nan; it must be a string or None"),
        ("text", None, "one: text is None; it must be a string"),
        ("text", np.str_("x"), r"one: text is np.str_\('x'\); it must be a string"),
    ],
)
def test_a_field_that_is_no_string_is_refused_with_the_document(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Document(**{"id": "one", "title": "", "language": None, "text": "text", field: value})


def test_metadata_of_another_type_are_refused_before_anything_is_encoded(
    index: Index, counting: CountingEncoder
) -> None:
    again = Index(index.folder, counting)
    for value, message in (("old", "year is of type string, but the index keeps it as int64"), (1.5, "double")):
        with pytest.raises(ValueError, match=message):
            again.add([Document("new", "", None, "A text.", {"year": value})])
    mixed = [Document("a", "", None, "A text.", {"new": 1}), Document("b", "", None, "A text.", {"new": "1"})]
    with pytest.raises(ValueError, match="b: new is '1', and of another document it is of type int; make them alike"):
        again.add(mixed)
    assert counting.encoded == []
    assert len(again) == 4


def test_an_integer_that_a_fraction_cannot_stand_beside_is_refused(tmp_path: Path, encoder: Encoder) -> None:
    sizes = [
        Document("a", "", None, "The cat.", {"size": 0.5}),
        Document("b", "", None, "The dog.", {"size": 2**53 + 1}),
    ]
    with pytest.raises(ValueError, match="9007199254740993 is outside of the range exactly representable"):
        Index(tmp_path / "index", encoder).add(sizes)


def test_columns_of_tables_are_metadata(tmp_path: Path, encoder: Encoder) -> None:
    rows = [
        {"id": 1, "text": "The cat sat.", "year": 2020, "price": 1, "by": "A"},
        {"id": 2, "text": "The dog sat.", "year": math.nan, "price": 2.5, "by": None},
    ]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    published = pa.array([18262], pa.date32())  # 2020-01-01
    pq.write_table(
        pa.table({"text": ["Le chat."], "published": published, "year": [2021]}), tmp_path / "docs" / "b.parquet"
    )
    columns = Columns(metadata=["year", "price", "by", "published"])
    index = Index(tmp_path / "index", encoder)
    index.update(Documents(tmp_path / "docs", columns=columns))
    metadata = {hit.document.id: hit.document.metadata for hit in index.search("The cat")}
    assert metadata == {
        "a.jsonl#1": {"year": 2020, "price": 1.0, "by": "A"},
        "a.jsonl#2": {"price": 2.5},
        "b.parquet#1": {"year": 2021, "published": "2020-01-01"},
    }
    assert ids(index, "published < '2021' OR price > 2") == {"a.jsonl#2", "b.parquet#1"}


def test_an_index_is_opened_by_its_folder_alone_from_a_fresh_process(
    index: Index, run_in_a_fresh_process: Callable[..., str]
) -> None:
    program = f"from hmde import Index; print(Index({str(index.folder)!r}, dtype='float32').search('The cat')[0].score)"
    printed = run_in_a_fresh_process(program, folder=REPOSITORY, path=[str(REPOSITORY)])
    assert float(printed) == pytest.approx(index.search("The cat")[0].score, abs=1e-6)


def test_a_document_that_is_too_long_is_named_where_no_cut_is_wanted(tmp_path: Path, model_folder: Path) -> None:
    tokenizer = HMDETokenizer.from_pretrained(model_folder)
    long = Document("long", "Long", "en", "The cat sat. " * (tokenizer.max_sentences + 1))
    short = Document("short", "Short", "en", "The cat sat.")
    index = Index(tmp_path / "index", str(model_folder), dtype="float32", truncation="error")
    index.add([short])
    with pytest.raises(ValueError, match=r"^long \('The cat sat.*tokens more than are read \(max_sentences"):
        index.add([short, long])
    assert len(index) == 1


def test_each_row_that_is_read_in_part_is_named_with_its_share_and_all_are_counted(
    tmp_path: Path, encoder: Encoder, caplog: pytest.LogCaptureFixture
) -> None:
    row = "The cat sat. " * (4 * encoder.tokenizer.max_sentences)
    lines = [{"id": name, "text": text} for name, text in (("a", row), ("b", "The cat."), ("c", row))]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    changes = Index(tmp_path / "index", encoder).update(Documents(tmp_path / "rows.jsonl"))
    assert (changes.added, changes.truncated) == (3, 2)
    said = [record.message for record in caplog.records if "of it is read" in record.message]
    assert said == [f"rows.jsonl#{name}: only the first 24.9% of it is read; divide it to read all" for name in "ac"]
