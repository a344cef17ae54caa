"""The public test sets by mteb's own tasks, so that numbers are those of its leaderboard: XQuADRetrieval,
SIB200Classification and Tatoeba, on the files that `python -m replications.datasets.public` fetched.

    python -m benchmarks.mteb_tasks --model runs/hmde-small --public data/public --output runs/mteb [--key value ...]

Only where its data come from differs. Questions and paragraphs are those of XQuAD-R, whose texts are XQuAD's; its
Romanian is not among them. Writes

    results.json     the main score of each part of each task, all measures of mteb, and its version
    results.md       a table: the mean of each task
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import hmde.common.threads

import mteb
from datasets import Dataset
from mteb.models import SentenceTransformerEncoderWrapper

from benchmarks.measure import markdown_table, write_results
from evaluation.datasets.files import lines
from hmde.common.command_line import options_from, run
from hmde.common.device import Dtype, device, dtype_of
from replications.datasets.files import table
from replications.datasets.lareqa import read_paragraphs


@dataclass
class MTEBOptions:
    """A model on the public test sets by mteb's own tasks.

    Args:
        model: folder or Hub name that sentence-transformers opens; an HMDE, too.
        public: folder that `python -m replications.datasets.public` wrote.
        output: folder to write.
        tasks: the names of some of mteb's tasks.
        parts: of these tasks, such as hi or tha_Thai; all that there are if none is named.
        prompts: what is put before a `query` and a `document`, where the model does not say it.
        dtype: float32, bfloat16, or auto: bfloat16 where the CPU or the GPU has native support for it.
    """

    model: str
    public: str
    output: str
    tasks: list[str] = field(default_factory=lambda: list(DATA))
    parts: list[str] = field(default_factory=list)
    prompts: dict[str, str] = field(default_factory=dict)
    dtype: Dtype = "auto"


def main(argv: list[str] | None = None) -> None:
    options = options_from(MTEBOptions, argv)
    if unknown := {*options.tasks} - DATA.keys():
        raise ValueError(f"tasks has {sorted(unknown)}; there are {', '.join(DATA)}")
    tasks = {}
    for name in options.tasks:
        split, read = DATA[name]
        parts = {part: data for part, data in read(Path(options.public)) if part in (options.parts or [part])}
        if not parts:
            raise ValueError(f"{name} has none of the parts {options.parts} in {options.public}")
        task: Any = mteb.get_task(name, hf_subsets=list(parts), eval_splits=[split])
        task.dataset, task.data_loaded = parts, True
        tasks[name] = task
    model = SentenceTransformerEncoderWrapper(
        options.model,
        device=device(),
        model_prompts=options.prompts or None,
        trust_remote_code=True,
        model_kwargs={"dtype": dtype_of(options.dtype)},
    )
    scores: dict[str, dict[str, float]] = {}
    measures: dict[str, list[Mapping[str, Any]]] = {}
    for name, task in tasks.items():
        (result,) = mteb.evaluate(model, task, cache=None, co2_tracker=False).task_results
        measures[name] = result.scores[DATA[name][0]]
        scores[name] = {one["hf_subset"]: one["main_score"] for one in measures[name]}
    means = [{"task": name, "parts": len(found), "mean": mean(found.values())} for name, found in scores.items()]
    columns = {"task": "", "parts": "", "mean": ".4f"}
    write_results(options, markdown_table(columns, means), mteb=version("mteb"), scores=scores, measures=measures)


def xquad(folder: Path) -> Iterator[tuple[str, Any]]:
    """Questions seek the paragraph that answers them; nDCG@10."""
    for file in sorted((folder / "lareqa").glob("*.json")):
        paragraphs = list(enumerate(read_paragraphs(file)))
        asked = {
            question.name: (str(number), question.text) for number, found in paragraphs for question in found.questions
        }
        data = {
            "corpus": Dataset.from_list(
                [{"id": str(number), "text": found.text, "title": ""} for number, found in paragraphs]
            ),
            "queries": Dataset.from_list([{"id": name, "text": text} for name, (_, text) in asked.items()]),
            "relevant_docs": {name: {paragraph: 1} for name, (paragraph, _) in asked.items()},
            "top_ranked": None,
        }
        yield file.stem, {"validation": data}


def sib200(folder: Path) -> Iterator[tuple[str, Any]]:
    """Topics of sentences, learnt from ten draws of eight sentences a topic in the same language; accuracy."""
    for part in sorted((folder / "sib200" / "data").glob("*")):
        rows = {split: list(table(part / f"{split}.tsv", "category", "text")) for split in ("train", "test")}
        topics = sorted({topic for topic, _ in rows["train"]})
        yield (
            part.name,
            {
                split: Dataset.from_dict(
                    {"text": [text for _, text in own], "label": [topics.index(topic) for topic, _ in own]}
                )
                for split, own in rows.items()
            },
        )


def tatoeba(folder: Path) -> Iterator[tuple[str, Any]]:
    """Sentences seek their English translations; F1."""
    for english in sorted((folder / "tatoeba").glob("*.eng")):
        part = english.stem.removeprefix("tatoeba.")
        foreign = english.with_suffix(f".{part.split('-')[0]}")
        columns = {f"sentence{side}": [line for _, line in lines(file)] for side, file in ((1, foreign), (2, english))}
        yield part, {"test": Dataset.from_dict(columns)}


# Of each task, the split that its numbers are of, and what reads its data.
DATA: dict[str, tuple[str, Callable[[Path], Iterator[tuple[str, Any]]]]] = {
    "XQuADRetrieval": ("validation", xquad),
    "SIB200Classification": ("test", sib200),
    "Tatoeba": ("test", tatoeba),
}


if __name__ == "__main__":
    run(main)
