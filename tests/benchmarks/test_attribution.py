"""The evaluation of attribution: measures against counts by hand, and a run from files to files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.attribution import Ranked, answers_first, chance, main, measures, rank, rank_of_answer
from modeling_hmde import DocumentSentences, HMDEForDocumentEmbedding, HMDETokenizer
from replications.datasets.lareqa import Paragraph, Question

TEXT = "The cat sat on the mat. It was warm there! Did the dog see it?"


def squad(*paragraphs: tuple[str, dict[str, tuple[str, list[int]]]]) -> str:
    """Paragraphs and, by id, their questions with where the answers begin, as a file in SQuAD's format."""
    written = [
        {
            "context": context,
            "qas": [
                {"id": id, "question": text, "answers": [{"answer_start": begin, "text": "?"} for begin in begins]}
                for id, (text, begins) in questions.items()
            ],
        }
        for context, questions in paragraphs
    ]
    return json.dumps({"data": [{"title": "", "paragraphs": written[:1]}, {"title": "", "paragraphs": written[1:]}]})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    english = squad((TEXT, {"q1": ("Who sat?", [4]), "q2": ("Who saw it?", [51]), "q3": ("Unasked?", [0])}))
    german = squad(
        ("Der Hund sah die Katze. Sie lag in der Sonne.", {"q1": ("Wer?", [17]), "q2": ("Wen?", [])}),
        ("Le chat dort.", {"q4": ("Qui?", [3])}),
    )
    (folder / "en.json").write_text(english, encoding="utf-8")
    (folder / "de.json").write_text(german, encoding="utf-8")
    return folder


def test_the_answers_rank_is_that_of_the_sentence_in_which_it_begins() -> None:
    sentences = [(24, 42), (0, 23), (43, 62)]
    ranks = {answers: rank_of_answer(Ranked(sentences, list(answers))) for answers in [(24,), (22,), (50, 3), (90,)]}
    assert ranks == {(24,): 1, (22,): 2, (50, 3): 2, (90,): float("inf")}


def compared(*vectors: list[float]) -> DocumentSentences:
    """Sentences of ten characters each."""
    return DocumentSentences(spans_of(vectors), torch.nn.functional.normalize(torch.tensor(vectors)))


def spans_of(vectors: Sequence[list[float]]) -> list[tuple[int, int]]:
    return [(10 * place, 10 * place + 9) for place in range(len(vectors))]


UP, RIGHT = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])


def test_measures_are_shares_of_questions_and_leave_out_paragraphs_of_one_sentence() -> None:
    vectors = [[[0.0, 1.0], [1.0, 0.0], [3.0, 0.5], [2.0, 0.1]], [[1.0, 0.2]]]
    asked = [Question("q1", "up", [0]), Question("q2", "right", [12]), Question("q3", "right", [1])]
    asked += [Question("q4", "asked in no other language", [1]), Question("q5", "up", [])]
    paragraphs = [Paragraph("", asked, []), Paragraph("", [Question("q6", "up", [0])], [])]
    queries = {"q1": UP, "q2": RIGHT, "q3": RIGHT, "q5": UP, "q6": UP}
    ranked = rank(queries, paragraphs, [compared(*one) for one in vectors])
    # up: 1, 0, .16, .05 -> first; right: 0, 1, .99, .999 -> second and last; a vector's length does not count.
    assert measures(ranked) == pytest.approx(
        {"answer first": 2 / 3, "answer in first three": 2 / 3, "beginning first": 1 / 3, "questions": 3}
    )
    assert measures(answers_first(ranked)) == pytest.approx(
        {"answer first": 1, "answer in first three": 1, "beginning first": 2 / 3, "questions": 3}
    )
    assert chance(ranked) == pytest.approx(
        {"answer first": 1 / 4, "answer in first three": 3 / 4, "beginning first": 1 / 4, "questions": 3}
    )
    assert chance([Ranked([(0, 9), (10, 19)], [0])])["answer in first three"] == 1


def test_a_run_writes_a_table_a_measure(
    data: Path, labse: Path, tmp_path: Path, make_model: Callable[..., HMDEForDocumentEmbedding]
) -> None:
    make_model(labse).save_pretrained(tmp_path / "hmde")
    HMDETokenizer.from_sentence_encoder(str(labse)).save_pretrained(tmp_path / "hmde")
    systems = {
        "sentences": {"kind": "sentences", "model": str(labse), "pooling": "cls"},
        "hmde": {"kind": "hmde", "model": str(tmp_path / "hmde")},
    }
    output = tmp_path / "output"
    main(
        [f"--data={data}", "--languages=[en, de]", f"--systems={json.dumps(systems)}", f"--output={output}"],
    )
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert set(results["systems"]) == {
        f"{name}{column}" for name in systems for column in ("", ", chance", ", answers")
    }
    assert results["systems"]["hmde, chance"]["en-de"]["answer first"] == 0.5
    assert (output / "results.md").read_text(encoding="utf-8").count("| paragraphs in de |") == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "missing"),
        ("no JSON", "SQuAD's format"),
        ('{"data": [{}]}', "SQuAD's format"),
        ("[" * 100_000, "SQuAD's format"),
        ('{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "q1"}]}]}]}', "SQuAD's format .* KeyError"),
        (squad((TEXT, {"other": ("Who?", [0])})), "ids"),
    ],
)
def test_bad_files_are_named_before_anything_is_computed(data: Path, content: str | None, message: str) -> None:
    (data / "de.json").unlink()
    if content is not None:
        (data / "de.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as refusal:
        main([f"--data={data}", "--languages=[en, de]", "--systems={}", f"--output={data}"])
    assert "de.json" in str(refusal.value)


def test_systems_without_sentences_are_refused(data: Path, tmp_path: Path) -> None:
    systems = json.dumps({"first": {"kind": "first", "model": "m", "pooling": "cls"}})
    with pytest.raises(ValueError, match=r"(?s)hmde.*sentences.*Got value: first"):
        main([f"--data={data}", "--languages=[en, de]", f"--systems={systems}", f"--output={tmp_path}"])
