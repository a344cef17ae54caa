"""The evaluation of attribution: measures against counts by hand, and a run from files to files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.attribution import Question, chance, evaluate, main, rank_of_answer, read_questions
from modeling_hmde import DocumentSentences, Explanation, HMDEForDocumentEmbedding, HMDETokenizer, SentenceScore

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


def test_questions_of_one_language_meet_the_answers_of_another_by_their_ids(data: Path) -> None:
    questions, paragraphs = read_questions(data, "en-de")
    assert questions == [Question("Who sat?", 0, [17])]
    assert paragraphs == ["Der Hund sah die Katze. Sie lag in der Sonne.", "Le chat dort."]


def test_the_answers_rank_is_that_of_the_sentence_in_which_it_begins() -> None:
    explanation = Explanation(0.5, [SentenceScore(24, 42, 0.4), SentenceScore(0, 23, 0.1), SentenceScore(43, 62, 0.0)])
    assert rank_of_answer(explanation, [24]) == 1
    assert rank_of_answer(explanation, [22]) == 2
    assert rank_of_answer(explanation, [50, 3]) == 2
    assert rank_of_answer(explanation, [90]) == float("inf")


def contributing(*vectors: list[float]) -> DocumentSentences:
    """Sentences of ten characters each, with mean pooling."""
    states = torch.tensor(vectors)
    mean = states.mean(dim=0)
    return DocumentSentences(spans_of(vectors), states / (len(states) * mean.norm()), mean / mean.norm())


def compared(*vectors: list[float]) -> DocumentSentences:
    """The same sentences, each compared by itself."""
    return DocumentSentences(spans_of(vectors), torch.nn.functional.normalize(torch.tensor(vectors)), None)


def spans_of(vectors: Sequence[list[float]]) -> list[tuple[int, int]]:
    return [(10 * place, 10 * place + 9) for place in range(len(vectors))]


class Queries:
    """A system that knows the vectors of two questions."""

    def encode_queries(self, texts: list[str]) -> np.ndarray:
        return np.array([{"up": [0.0, 1.0], "right": [1.0, 0.0]}[text] for text in texts], dtype=np.float32)


def test_measures_are_shares_of_questions_and_leave_out_paragraphs_of_one_sentence() -> None:
    vectors = [[[0.0, 1.0], [1.0, 0.0], [3.0, 0.5], [2.0, 0.1]], [[1.0, 0.2]]]
    documents = [contributing(*document_cosine) for document_cosine in vectors]
    questions = [Question("up", 0, [0]), Question("right", 0, [12]), Question("right", 0, [1]), Question("up", 1, [0])]
    by_contribution = evaluate(Queries(), questions, documents)  # type: ignore[arg-type]
    # up: 1, .5, .1, 0 -> first; right: 3, 2, 1, 0 -> third and last. Paragraph 0 is behind 1 for `right`, before it
    # for `up`, so the ranks of the four questions' paragraphs are 1, 2, 2, 2.
    assert by_contribution == pytest.approx(
        {"answer first": 1 / 3, "answer in first three": 2 / 3, "paragraph MRR": 2.5 / 4, "questions": 3}
    )
    by_maximum = evaluate(Queries(), questions, [compared(*document_cosine) for document_cosine in vectors])  # type: ignore[arg-type]
    # right: the second sentence points that way entirely; its length does not count. Paragraph 0 has the best sentence
    # for both questions.
    assert by_maximum == pytest.approx(
        {"answer first": 2 / 3, "answer in first three": 2 / 3, "paragraph MRR": 3.5 / 4, "questions": 3}
    )
    assert chance(questions, documents) == pytest.approx(
        {"answer first": 1 / 4, "answer in first three": 3 / 4, "paragraph MRR": 3 / 4, "questions": 3}
    )
    assert chance([Question("up", 0, [0])], [compared([0.0, 1.0], [1.0, 0.0])])["answer in first three"] == 1


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
        [f"--data={data}", "--pairs=[en-de, de-en]", f"--systems={json.dumps(systems)}", f"--output={output}"],
    )
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert set(results["systems"]) == {
        f"{name}, {column}" for name in systems for column in ("contribution", "maximum", "chance")
    }
    assert results["systems"]["hmde, chance"]["en-de"]["answer first"] == 0.5
    assert (output / "results.md").read_text(encoding="utf-8").count("| en-de |") == 3


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
        read_questions(data, "en-de")
    assert "de.json" in str(refusal.value)


def test_systems_without_sentences_are_refused(data: Path, tmp_path: Path) -> None:
    systems = json.dumps({"first": {"kind": "first", "model": "m", "pooling": "cls"}})
    with pytest.raises(ValueError, match=r"(?s)hmde.*sentences.*Got value: first"):
        main([f"--data={data}", "--pairs=[en-de]", f"--systems={systems}", f"--output={tmp_path}"])
