"""The benchmark of encoding: what it compares computes the same, and its counts are right. Its times are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel

from benchmarks import encode
from benchmarks.encode import EncodeBenchmark, draw, first_sentences, lowest_cosine, main
from benchmarks.encoding_methods import Setting, load_method, operations
from hmde.documents.documents import Document
from modeling_hmde import HMDETokenizer
from modeling_hmde.segmentation_hmde import sentence_spans


def document(text: str, language: str) -> Document:
    return Document("", "", language, text)


DOCUMENTS = [
    document("The cat sat on the mat. It was warm there! Did the dog see it?", "en"),
    document("Der Hund sah die Katze. Sie lag in der Sonne.\nDann schlief auch er ein.", "de"),
    document("Le chat dort.", "fr"),
    document("Кот спит на ковре. Собака смотрит на него.", "ru"),
]


def setting(labse: Path, pooling: str = "mean") -> Setting:
    return Setting(str(labse), torch.float32, pooling, document_prompt="", max_sentences=512, batch_size=3)


def benchmark(num_documents: int, **options: object) -> EncodeBenchmark:
    return EncodeBenchmark(documents="", encoder="", output="", num_documents=num_documents, **options)


@pytest.mark.parametrize("pooling", ["cls", "mean", "pooler"])
def test_the_padded_scheme_computes_the_vectors_of_hmde(labse: Path, pooling: str) -> None:
    methods = [load_method(name, setting(labse, pooling)) for name in ("hmde", "padded")]
    with torch.no_grad():
        assert lowest_cosine(*methods, DOCUMENTS) > 1 - 1e-5


def test_the_padded_scheme_computes_the_vectors_of_hmde_though_the_encoder_normalizes(
    labse: Path, tmp_path: Path
) -> None:
    SentenceTransformer(modules=[Transformer(str(labse)), Pooling(32), Normalize()]).save(str(tmp_path))
    methods = [load_method(name, setting(tmp_path)) for name in ("hmde", "padded")]
    with torch.no_grad():
        assert lowest_cosine(*methods, DOCUMENTS) > 1 - 1e-5


@pytest.mark.parametrize("name", ["hmde", "passages"])
def test_from_tokens_on_the_vectors_are_the_same_and_no_text_is_tokenized_in_the_time(
    labse: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        expected = load_method(name, setting(labse)).encode(DOCUMENTS)
        method = load_method(f"{name}_tokens", setting(labse))
        method.work([*DOCUMENTS, *DOCUMENTS])
        monkeypatch.setattr(HMDETokenizer, "__call__", None)
        assert method.encode(DOCUMENTS) == pytest.approx(expected)


@pytest.mark.parametrize(("name", "most"), [("passages_128", 128), ("passages_256", 256), ("passages", 512)])
def test_passages_are_as_long_as_their_name_says(labse: Path, name: str, most: int) -> None:
    long = document("The cat sat on the mat. " * 32, "en")
    tokens, _ = load_method(name, setting(labse)).work([long])
    words = 32 * 7
    assert tokens == words + 2 * -(-words // ((most - 2) // 7 * 7))  # start and end token of each passage


@pytest.mark.parametrize("name", ["windows", "flat"])
def test_other_methods_make_a_vector_of_each_document(labse: Path, name: str) -> None:
    long = document(" ".join(["the cat sat"] * 200), "en")
    with torch.no_grad():
        method = load_method(name, setting(labse))
        vectors = method.encode([*DOCUMENTS, long])
        alone = method.encode([DOCUMENTS[2]])
    assert vectors.shape == (5, 32)
    assert torch.allclose(torch.tensor(vectors[2:3]), torch.tensor(alone), atol=1e-5)


def test_windows_overlap_by_a_third_and_end_with_the_document(labse: Path) -> None:
    method = load_method("windows", setting(labse))
    text = " ".join(["cat"] * 300)
    tokens, _ = method.work([document(text, "en")])
    # 126 words a window, 84 words on: windows begin at 0, 84 and 168, and the fourth would hold nothing new at 252 + 42
    assert tokens == 128 + 128 + 128 + (300 - 252) + 2


def test_tokens_are_the_real_ones_and_operations_are_those_that_torch_counts(labse: Path) -> None:
    encoder = AutoModel.from_pretrained(labse, attn_implementation="eager")
    encoder.pooler = None
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        for length in (3, 17):
            encoder(torch.full((1, length), 7))
    assert operations(encoder, [3, 17]) == counter.get_total_flops()
    tokens, _ = load_method("hmde", setting(labse)).work([document("The cat. Le chat.", "en")])
    assert tokens == 5 + 5  # a start token, two words, a full stop, an end token


def test_the_operations_of_passages_are_those_of_sentences_read_together(labse: Path) -> None:
    one_document = document("The cat. Le chat.", "en")
    (alone, sentence_work), (together, passage_work) = (
        load_method(name, setting(labse)).work([one_document]) for name in ("hmde", "passages")
    )
    assert (alone, together) == (10, 8)  # one start and one end token less
    model = AutoModel.from_pretrained(labse)
    model.pooler = None
    assert sentence_work - passage_work == operations(model, [5, 5]) - operations(model, [8])


def test_documents_are_drawn_by_their_length_and_cut_to_their_first_sentences(labse: Path) -> None:
    documents = [document("Cat. " * count, "en") for count in range(1, 41)]
    short, long = (draw(documents, kind, benchmark(5, max_sentences=4)) for kind in ("short", "long"))
    assert max(len(document.text) for document in short) <= len("Cat. " * 10)
    assert {document.text for document in long} == {"Cat. Cat. Cat. Cat."}
    with pytest.raises(ValueError, match="num_documents is 11, but only 10 are short"):
        draw(documents, "short", benchmark(11))


def test_a_document_of_so_many_sentences_has_so_many() -> None:
    german = document("Am 3. Mai schlief er. Warum? Die Katze sah ihn!\nDer Hund nicht.", "de")
    made = first_sentences([german, *DOCUMENTS], 7)
    sentences = [made.text[begin:end] for begin, end in sentence_spans(made.text, made.language)]
    assert sentences[:3] == ["Warum?", "Die Katze sah ihn!", "Der Hund nicht."]  # by English rules, the first is two
    assert len(sentences) == 7
    with pytest.raises(ValueError, match="sentences has 99, but the documents have only 12; ask for fewer"):
        first_sentences([german, *DOCUMENTS], 99)


def test_it_writes_its_tables(labse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "matmul_peak", lambda dtype: 1e9)
    rows = [
        {"text": f"{document.text}\nA line that is long enough, {index}"}
        for index in range(8)
        for document in DOCUMENTS
    ]
    (tmp_path / "en.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "out"
    options = {"documents": tmp_path, "encoder": labse, "output": output, "num_documents": 4, "rounds": 2}
    main(
        [
            *(f"--{name}={value}" for name, value in options.items()),
            "--sentences=[1, 3]",
            "--document_prompt=",
            "--dtype=float32",
        ]
    )
    results = json.loads((output / "results.json").read_text())
    assert min(results["lowest_cosine_to_padded"].values()) > 0.9999
    assert set(results["trials"]) == {"hmde", "passages", "padded", "windows", "flat"}
    assert all(set(trials) == {"short", "mixed", "long", "1", "3"} for trials in results["trials"].values())
    assert all(len(trials) == 2 for rows in results["trials"].values() for trials in rows.values())
    markdown = (output / "results.md").read_text()
    assert "Documents a second, float32" in markdown
    assert "| mixed | 1.000 |" in markdown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["flat"]}, "name it too"),
        ({"sentences": []}, "sentences is empty; name at least one number"),
        ({"pooling": "lasttoken"}, "pooling is lasttoken, and padded knows cls, mean, pooler only"),
    ],
)
def test_what_it_cannot_compare_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        benchmark(4, **options)
