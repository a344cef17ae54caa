"""The systems: each equals a slow and obvious computation by plain transformers, one piece of a text at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from evaluation.__main__ import main
from evaluation.datasets.retrieval_sets import DocumentFile
from evaluation.recipes import SystemOptions
from evaluation.systems import check_systems, l2_normalize, load_system
from evaluation.systems.bm25 import rank
from evaluation.systems.hmde import HMDESystem
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.segmentation_hmde import sentence_spans

WORDS = ["the", "cat", "sat", "on", "mat", "it", "was", "warm", "there", "dog", "see"]
PROMPTS = {"query_prompt": "query: ", "document_prompt": "passage: "}


def mean_vector(folder: Path, pieces: list[list[int]], pooling: str = "mean") -> np.ndarray:
    """The mean over the sentence encoder's vectors of some pieces, to unit length: one forward pass a piece."""
    encoder = AutoModel.from_pretrained(folder)
    vectors = []
    for piece in pieces:
        with torch.no_grad():
            output = encoder(input_ids=torch.tensor([piece]))
        states = output.last_hidden_state[0]
        vectors.append({"mean": states.mean(dim=0), "cls": states[0], "pooler": output.pooler_output[0]}[pooling])
    mean = torch.stack(vectors).mean(dim=0).numpy()
    return mean / math.sqrt(float((mean**2).sum()))


def ids_of(folder: Path, text: str, **options: object) -> list[int]:
    return AutoTokenizer.from_pretrained(folder)(text, **options)["input_ids"]


def overflowing_windows(folder: Path, text: str, length: int) -> list[list[int]]:
    """LaBSE-Seg's windows as its authors made them, with the overflow of the tokenizers library."""
    stride = (length - 2) // 3
    return ids_of(folder, text, truncation=True, max_length=length, stride=stride, return_overflowing_tokens=True)


def pieces_of(row: list[int], start_token_id: int) -> list[list[int]]:
    starts = [place for place, token in enumerate(row) if token == start_token_id] + [len(row)]
    return [row[begin:end] for begin, end in itertools.pairwise(starts)]


@pytest.mark.parametrize("max_length", [8, 9, 10, 14])
def test_windows_overlap_by_a_third_whatever_the_length_of_the_document(labse: Path, max_length: int) -> None:
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), max_sentence_length=max_length, segmentation="windows")
    for length in range(4 * max_length):
        text = " ".join(itertools.islice(itertools.cycle(WORDS), length))
        row = tokenizer(text)["input_ids"]
        assert pieces_of(row, tokenizer.start_token_id) == overflowing_windows(labse, text, max_length), length


@pytest.mark.parametrize("length", [0, 1, 126, 127, 210, 211, 126 + 84 * 31, 126 + 84 * 31 + 1, 5000])
@pytest.mark.parametrize("most", [None, 50])
def test_windows_are_of_128_tokens_and_at_most_32_or_as_many_as_asked_for(labse: Path, length: int, most) -> None:
    system = load_system(SystemOptions("windows", model=str(labse), pooling="mean", max_pieces=most))
    most = most or 32
    text = "cat dog " * (length // 2) + "hund" * (length % 2)
    windows = pieces_of(system.tokenizer(text)["input_ids"], system.tokenizer.start_token_id)
    assert windows == overflowing_windows(labse, text, 128)[:most]
    assert len(windows) == min(max(math.ceil((length - 42) / 84), 1), most)


@pytest.mark.parametrize("pooling", ["mean", "cls", "pooler"])
def test_windows_equal_the_mean_of_one_window_at_a_time(labse: Path, pooling: str) -> None:
    system = load_system(SystemOptions("windows", model=str(labse), pooling=pooling, max_length=12))
    texts = ["", "the cat", "the dog sat on the warm mat " * 5, "der hund sah die katze " * 2]
    expected = [mean_vector(labse, overflowing_windows(labse, text, 12), pooling) for text in texts]
    assert system.encode_documents(texts, "en") == pytest.approx(np.stack(expected), abs=1e-5)


def test_each_window_has_the_prompt(labse: Path) -> None:
    system = load_system(
        SystemOptions("windows", model=str(labse), pooling="mean", max_length=40, document_prompt="passage: ")
    )
    prompt = ids_of(labse, "passage:", add_special_tokens=False)
    room = 40 - 2 - len(prompt)
    windows = pieces_of(system.tokenizer("cat dog " * 30)["input_ids"], system.tokenizer.start_token_id)
    text_ids = ids_of(labse, "cat dog " * 30, add_special_tokens=False)
    assert [window[1 : 1 + len(prompt)] for window in windows] == [prompt] * len(windows)
    assert [window[1 + len(prompt) : -1] for window in windows[:2]] == [
        text_ids[:room],
        text_ids[room - room // 3 : 2 * room - room // 3],
    ]


@pytest.mark.parametrize("encoder", ["labse", "xlmr"])
def test_first_equals_the_encoder_on_the_first_tokens(
    encoder: str, request: pytest.FixtureRequest, documents: list[str]
) -> None:
    folder = request.getfixturevalue(encoder)
    texts = [*documents, "", "the cat sat " * 300]
    for limit in (None, 16):
        system = load_system(SystemOptions("first", model=str(folder), pooling="mean", max_length=limit, **PROMPTS))
        expected = [
            mean_vector(folder, [ids_of(folder, f"passage: {text}".strip(), truncation=True, max_length=limit or 512)])
            for text in texts
        ]
        assert system.encode_documents(texts, "en") == pytest.approx(np.stack(expected), abs=1e-5)


@pytest.mark.parametrize("encoder", ["labse", "xlmr"])
def test_sentences_equal_the_mean_of_one_sentence_at_a_time(
    encoder: str, request: pytest.FixtureRequest, documents: list[str]
) -> None:
    folder = request.getfixturevalue(encoder)
    system = load_system(SystemOptions("sentences", model=str(folder), pooling="mean", **PROMPTS))
    texts = [*documents, " ".join(f"The cat saw {number} dogs." for number in range(150))]
    expected = []
    for text in texts:
        sentences = [text[begin:end] for begin, end in sentence_spans(text, "en")][:128]
        expected.append(mean_vector(folder, [ids_of(folder, f"passage: {sentence}") for sentence in sentences]))
    assert system.encode_documents(texts, "en") == pytest.approx(np.stack(expected), abs=1e-5)


def test_sentences_are_an_hmde_before_its_training(labse: Path, documents: list[str]) -> None:
    untrained = HMDEForDocumentEmbedding.from_sentence_encoder(
        str(labse), sentence_pooling="mean", document_norm="pre", document_positions=True
    )
    tokenizer = HMDETokenizer.from_sentence_encoder(str(labse), sentence_prompt="passage: ", query_prompt="query: ")
    before = HMDESystem(untrained, tokenizer)
    system = load_system(SystemOptions("sentences", model=str(labse), pooling="mean", **PROMPTS))
    assert system.encode_documents(documents, "de") == pytest.approx(before.encode_documents(documents, "de"), abs=1e-6)
    assert system.encode_queries(documents) == pytest.approx(before.encode_queries(documents), abs=1e-6)


@pytest.mark.parametrize("kind", ["first", "windows", "sentences"])
def test_queries_are_one_sentence_with_their_own_prompt(labse: Path, kind: str) -> None:
    system = load_system(SystemOptions(kind, model=str(labse), pooling="mean", **PROMPTS))
    queries = ["The cat. The dog?", "katze", "cat " * 600]
    limit = 512 if kind == "first" else 128
    ids = [ids_of(labse, f"query: {query}", truncation=True, max_length=limit) for query in queries]
    expected = [mean_vector(labse, [query]) for query in ids]
    assert system.encode_queries(queries) == pytest.approx(np.stack(expected), abs=1e-5)


def test_the_language_reaches_the_sentence_splitter(labse: Path) -> None:
    system = load_system(SystemOptions("sentences", model=str(labse), pooling="mean"))
    text = "Am 3. Oktober sah der Hund die Katze."  # only German rules read a day and its month
    assert len(list(sentence_spans(text, "de"))) != len(list(sentence_spans(text, "en")))
    assert not np.allclose(system.encode_documents([text], "de"), system.encode_documents([text], "en"), atol=1e-3)


def test_an_hmde_from_a_folder_equals_the_one_in_memory(
    tmp_path: Path, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[str]
) -> None:
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    recipe = SystemOptions("hmde", model=str(tmp_path))
    check_systems({"saved": recipe})
    saved, in_memory = load_system(recipe), HMDESystem(model, tokenizer)
    assert saved.encode_queries(documents) == pytest.approx(in_memory.encode_queries(documents), abs=1e-6)
    vectors = saved.encode_documents(documents, "en")
    assert vectors == pytest.approx(in_memory.encode_documents(documents, "en"), abs=1e-6)
    assert vectors == pytest.approx(model.encode_documents(documents, tokenizer, language="en"), abs=1e-6)


@pytest.mark.parametrize("kind", ["first", "windows", "sentences"])
def test_bfloat16_is_near_float32_and_its_vectors_have_unit_length(
    labse: Path, kind: str, documents: list[str]
) -> None:
    recipe = SystemOptions(kind, model=str(labse), pooling="mean")
    half, full = load_system(recipe, "bfloat16"), load_system(recipe)
    assert half.model.dtype == torch.bfloat16
    vectors = half.encode_documents(documents, "en")
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert (vectors * full.encode_documents(documents, "en")).sum(axis=1) == pytest.approx(1, abs=1e-2)


def test_a_vector_that_is_not_finite_is_refused(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tokenizer: HMDETokenizer
) -> None:
    broken = make_model(labse, sentence_pooling="mean")
    embeddings = broken.get_input_embeddings().weight
    with torch.no_grad():
        embeddings[tokenizer.convert_tokens_to_ids("cat")] = torch.inf
    with pytest.raises(ValueError, match="text 1 is not finite"):
        HMDESystem(broken, tokenizer).encode_documents(["dog", "cat"], "en")


def test_a_zero_vector_stays_zero() -> None:
    vectors = l2_normalize(np.array([[0, 0], [3, 4]], dtype=np.float32))
    assert vectors == pytest.approx(np.array([[0, 0], [0.6, 0.8]]))
    assert vectors.dtype == np.float32


def test_what_is_wrong_with_a_system_is_found_before_any_is_loaded(
    tmp_path: Path, labse: Path, model: HMDEForDocumentEmbedding
) -> None:
    hmde = tmp_path / "hmde"
    model.save_pretrained(hmde)
    good = SystemOptions("first", model=str(labse), pooling="mean")
    wrong = {
        "a/b": (good, "system 'a/b' names files"),
        "no-hmde": (SystemOptions("hmde", model=str(labse)), "no-hmde: .* is no HMDE"),
        "an-hmde": (SystemOptions("first", model=str(hmde), pooling="cls"), "an-hmde: .* holds an HMDE, no sentence"),
        "absent": (SystemOptions("hmde", model=str(tmp_path / "absent")), "absent does not open"),
    }
    check_systems({"good": good, "hmde": SystemOptions("hmde", model=str(hmde))})
    for name, (recipe, message) in wrong.items():
        with pytest.raises(ValueError, match=message):
            check_systems({"good": good, name: recipe})
    with pytest.raises(ValueError, match="systems is empty"):
        check_systems({})


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("windos", {}, r"kind is 'windos'; it must be one of hmde, first"),
        ("windows", {"pooling": "cls"}, r"'pooling': 'cls'\}; of kind windows it needs a model and"),
        ("first", {"model": "x", "pooling": "cls", "max_pieces": 2}, "'max_pieces'.*may have"),
        ("hmde", {"model": "x", "pooling": "cls"}, r"may have \['model'\]"),
        ("late", {"model": "x", "query_prompt": "q: "}, r"may have \['model'\]"),
        ("hybrid", {}, "needs a model and"),
        ("bm25", {"model": "x"}, r"has no model and may have \[\]"),
    ],
)
def test_a_kind_has_its_own_options_and_no_others(kind: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SystemOptions(kind, **options)


@pytest.mark.parametrize(
    ("option", "value"),
    [("pooling", "first"), ("max_length", 0), ("poling", "cls")],
)
def test_the_command_line_refuses_what_no_kind_takes(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=option):
        main(["--output=x", f"--systems={{here: {{kind: windows, model: x, {option}: {value}}}}}"])


def test_passages_equal_the_mean_over_the_tokens_of_a_document_read_at_once(labse: Path) -> None:
    """In documents of at most 512 tokens, each sentence behind the prompt, all between one start and one end token."""
    documents = ["The cat sat on the mat. It was warm there!", "Le chat dort."]
    system = load_system(SystemOptions("passages", model=str(labse), pooling="mean", **PROMPTS))
    encoder = AutoModel.from_pretrained(labse)
    expected = []
    for text in documents:
        ids = ids_of(labse, " ".join(f"passage: {text[begin:end]}" for begin, end in sentence_spans(text, "en")))
        with torch.no_grad():
            mean = encoder(torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
        expected.append((mean / mean.norm()).numpy())
    assert system.encode_documents(documents, "en") == pytest.approx(np.stack(expected), abs=1e-5)


@pytest.mark.parametrize(("max_length", "longest_sentence"), [(40, 40), (256, 128), (None, 128)])
def test_the_length_of_passages_bounds_their_sentences_too(labse: Path, max_length, longest_sentence) -> None:
    system = load_system(SystemOptions("passages", model=str(labse), pooling="mean", max_length=max_length))
    assert system.model.config.passage_length == (max_length or 512)
    assert system.model.config.max_sentence_length == system.tokenizer.max_sentence_length == longest_sentence


def test_bm25_scores_are_those_of_its_formula() -> None:
    documents = {"d1": "cats and dogs", "d2": "a cat, a cat and a mat", "d3": "der hund"}
    run = rank({"q1": "Cats", "q2": "cat hund", "q3": "bird"}, documents, "en", depth=10)

    def weight(count: int, length: int) -> float:
        mean_length = (3 + 7 + 2) / 3
        return count / (count + 1.5 * (1 - 0.75 + 0.75 * length / mean_length))

    def idf(documents_with: int) -> float:
        return math.log(1 + (3 - documents_with + 0.5) / (documents_with + 0.5))

    cats = {"d2": idf(2) * weight(2, 7), "d1": idf(2) * weight(1, 3)}
    assert run["q1"] == pytest.approx(cats, abs=1e-5)
    assert run["q2"] == pytest.approx(cats | {"d3": idf(1) * weight(1, 2)}, abs=1e-5)
    assert run["q3"] == {}
    assert list(rank({"q": "cat"}, documents, "en", depth=1)["q"]) == [max(cats, key=cats.__getitem__)]


def test_bm25_reads_a_file_of_documents_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "en.jsonl").write_text('{"doc_id": "d1", "text": "a dog"}\n{"doc_id": "d2", "text": "a cat"}\n')
    monkeypatch.setattr(DocumentFile, "__getitem__", None)  # opens the file for each document
    assert list(rank({"q": "cats"}, DocumentFile(tmp_path / "en.jsonl"), "en", depth=2)["q"]) == ["d2"]


def test_bm25_reads_scripts_without_spaces_by_pairs_of_characters() -> None:
    documents = {"cat": "猫在垫子上睡觉", "dog": "狗看着它"}
    assert list(rank({"q": "睡觉的猫"}, documents, "zh", depth=2)["q"]) == ["cat"]
