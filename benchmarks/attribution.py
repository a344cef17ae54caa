"""Attribution: is the sentence that answers a question the one to which a system ascribes the match?

    python -m benchmarks.attribution --config configuration/benchmarks/attribution.yaml [--key value ...]

For each question to a paragraph that holds its answer, in every pair of languages, the sentences of the paragraph are
ranked by their cosines with the question (for the kind `sentences`, plain similarity of the sentence encoder). Beside
that stand chance, and the sentences that do answer. Paragraphs of one sentence leave nothing to rank and are left out.
Writes

    results.json     all measures by system and pair, with recipe and environment
    results.md       a table a measure: one row a mean over pairs, one column a system
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import hmde.common.threads

import numpy as np
import torch

from benchmarks.measure import write_results
from evaluation.recipes import SystemOptions
from evaluation.systems import check_systems, load_system
from evaluation.systems.hmde import HMDESystem
from evaluation.tables import Scores, Table, averages
from hmde.common.command_line import options_from, run
from hmde.common.device import Dtype, dtype_of
from modeling_hmde import DocumentSentences, score_sentences
from replications.datasets.lareqa import Paragraph, read_paragraphs

Paragraphs = Mapping[str, Sequence[Paragraph]]  # by language

# Share of questions whose answer stands in the first, or in the first three, of the ranked sentences; and of those for
# which the sentence that the paragraph begins with is ranked first.
MEASURES = ("answer first", "answer in first three", "beginning first")


@dataclass
class SentenceSystemOptions(SystemOptions):
    """A system of a kind that has sentences."""

    kind: Literal["hmde", "sentences", "passages"]


@dataclass
class AttributionRecipe:
    """A comparison of systems by the sentences they single out.

    Args:
        data: folder of `<language>.json` in SQuAD's format, paragraphs and ids the same in all languages: XQuAD, or
            XQuAD-R of LAReQA.
        languages: questions in each are asked of paragraphs in each.
        systems: by name, each with its `kind`, hmde, sentences or passages, and the options of that kind; see
            evaluation/registry.py.
        output: folder to write. Files of an earlier evaluation there are replaced.
        dtype: float32, bfloat16, or auto: bfloat16 where the CPU or the GPU has native support for it.
    """

    data: str
    languages: list[str]
    systems: dict[str, SentenceSystemOptions]
    output: str
    dtype: Dtype = "auto"


class Ranked(NamedTuple):
    """The sentences of a paragraph by their scores for one question, highest first, and where its answers begin; all in
    characters."""

    sentences: list[tuple[int, int]]
    answers: list[int]


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(AttributionRecipe, argv)
    paragraphs = {language: read_paragraphs(Path(recipe.data) / f"{language}.json") for language in recipe.languages}
    check_ids(paragraphs)
    check_systems(recipe.systems)
    columns: dict[str, Scores] = {}
    for name, options in recipe.systems.items():
        system = load_system(options, dtype_of(recipe.dtype))
        queries = {language: encode_questions(system, texts) for language, texts in paragraphs.items()}
        documents = {language: prepare(system, texts, language) for language, texts in paragraphs.items()}
        ranked = {
            f"{asked}-{language}": rank(queries[asked], paragraphs[language], documents[language])
            for asked, language in product(paragraphs, repeat=2)
        }
        columns[name] = {pair: measures(found) for pair, found in ranked.items()}
        # Tokenizers divide a paragraph differently, so each system has a chance of its own.
        columns[f"{name}, chance"] = {pair: chance(found) for pair, found in ranked.items()}
        columns[f"{name}, answers"] = {pair: measures(answers_first(found)) for pair, found in ranked.items()}
    write_results(recipe, "\n".join(tables(columns, recipe)), systems=columns)


def check_ids(paragraphs: Paragraphs) -> None:
    """
    Raises:
        ValueError: there is no language, or a language has no question with an answer that another asks.
    """
    if not paragraphs:
        raise ValueError("languages is empty; name at least one")
    asked = {
        language: {name for text in texts for name, _, _ in text.questions} for language, texts in paragraphs.items()
    }
    for language, texts in paragraphs.items():
        answered = {name for text in texts for name, _, answers in text.questions if answers}
        for other in asked:
            if not answered & asked[other]:
                raise ValueError(f"no question of {other}.json has an answer in {language}.json; check that ids agree")


def encode_questions(system: HMDESystem, paragraphs: Sequence[Paragraph]) -> dict[str, torch.Tensor]:
    """(hidden,), by the id of the question."""
    texts = {name: text for paragraph in paragraphs for name, text, _ in paragraph.questions}
    return dict(zip(texts, torch.from_numpy(system.encode_queries(list(texts.values())))))


def prepare(system: HMDESystem, paragraphs: Sequence[Paragraph], language: str) -> list[DocumentSentences]:
    """The sentences of each paragraph with their vectors."""
    texts = [paragraph.text for paragraph in paragraphs]
    return system.model.prepare_sentences(texts, system.tokenizer, language=language)


def rank(
    queries: Mapping[str, torch.Tensor], paragraphs: Sequence[Paragraph], documents: Sequence[DocumentSentences]
) -> list[Ranked]:
    """The sentences for each question that is in `queries` and has an answer, in paragraphs of several sentences."""
    return [
        Ranked([(begin, end) for begin, end, _ in score_sentences(queries[name], document).sentences], answers)
        for paragraph, document in zip(paragraphs, documents)
        for name, _, answers in paragraph.questions
        if answers and name in queries and len(document.spans) > 1
    ]


def measures(ranked: Sequence[Ranked]) -> dict[str, float]:
    """The measures, and the number of questions that they are means over."""
    ranks = [rank_of_answer(one) for one in ranked]
    beginnings = [sentences[0] == min(sentences) for sentences, _ in ranked]
    values = ([rank == 1 for rank in ranks], [rank <= 3 for rank in ranks], beginnings)
    return {name: float(np.mean(of_each)) for name, of_each in zip(MEASURES, values)} | {"questions": len(ranked)}


def rank_of_answer(ranked: Ranked) -> float:
    """The rank, from 1, of the first sentence in which an answer begins; infinity where it is in none that was read."""
    return next(
        (rank for rank, one in enumerate(ranked.sentences, start=1) if holds(one, ranked.answers)), float("inf")
    )


def holds(sentence: tuple[int, int], answers: Sequence[int]) -> bool:
    begin, end = sentence
    return any(begin <= answer < end for answer in answers)


def answers_first(ranked: Sequence[Ranked]) -> list[Ranked]:
    """The ranking that knows the answers."""
    return [Ranked(sorted(found, key=lambda one: not holds(one, answers)), answers) for found, answers in ranked]


def chance(ranked: Sequence[Ranked]) -> dict[str, float]:
    """What the measures are expected to be where sentences stand in random order."""
    counts = np.array([len(sentences) for sentences, _ in ranked])
    expected = (1 / counts, np.minimum(3 / counts, 1), 1 / counts)
    return {name: float(np.mean(of_each)) for name, of_each in zip(MEASURES, expected)} | {"questions": len(ranked)}


def tables(columns: Mapping[str, Scores], recipe: AttributionRecipe) -> list[str]:
    """A table a measure: means over pairs of one language, of two, and over the questions to paragraphs of each."""
    pairs = {f"{asked}-{language}": (asked, language) for asked, language in product(recipe.languages, repeat=2)}
    groups = {
        "same language": [pair for pair, (asked, language) in pairs.items() if asked == language],
        "across languages": [pair for pair, (asked, language) in pairs.items() if asked != language],
    } | {
        f"paragraphs in {one}": [pair for pair, (_, language) in pairs.items() if language == one]
        for one in recipe.languages
    }
    means = {name: averages(scores, groups, MEASURES) for name, scores in columns.items()}
    return [
        Table(
            f"{measure} on {Path(recipe.data).name}",
            "questions and paragraphs",
            {name: {group: scores[measure] for group, scores in rows.items()} for name, rows in means.items()},
        ).to_markdown()
        for measure in MEASURES
    ]


if __name__ == "__main__":
    run(main)
