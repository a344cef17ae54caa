"""What each choice in a pretraining recipe gives: models that differ in one thing, compared on development sets.

    python -m benchmarks.choices --config configuration/benchmarks/choices.yaml

Trains every choice with every seed by training/pretrain.py and compares the models of the last step, not the best ones
on dev concepts. Each result is appended to results.jsonl at once, with a fingerprint of what it was made from: options,
tasks, dtype and code; corpora and models are known by their names alone. When the command is repeated, only what has
changed is trained and measured again. Writes the table of means over seeds to results.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import common.threads

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.measure import write_results
from common.command_line import options_from, run
from common.device import Dtype, dtype_of
from common.fingerprints import digest, fingerprint, fingerprint_of_code, fingerprint_of_folder
from common.saved_models import load_hmde
from evaluation.classifiers import fit_logistic_regression
from evaluation.compare import TaskWithData, read_task
from evaluation.datasets.labelled_sets import read_labelled_texts
from evaluation.recipes import RetrievalTask, SystemOptions
from evaluation.systems import System, check_systems, load_system
from evaluation.systems.hmde import HMDESystem
from evaluation.tables import Table, averages
from evaluation.tasks.retrieval import evaluate_retrieval, groups_of
from training.data.sentence_vectors import encode_sentences, fingerprint_of_vectors

PRETRAIN = Path(__file__).resolve().parents[1] / "training" / "pretrain.py"

# The sentence vectors and lengths of a text, by what made them, its language and the text.
KeptSentences = dict[tuple[str, str, str], tuple[Tensor, Tensor]]


@dataclass
class BaselineOptions(SystemOptions):
    """A system of a kind whose document vectors are made of sentence vectors."""

    kind: Literal["hmde", "first", "windows", "sentences", "weighted_sentences", "passages"]


@dataclass
class ChoicesBenchmark:
    """Recipes to compare, and the tasks to compare them on.

    Args:
        recipe: a file of configuration/pretrain, which the choices change.
        corpus, sentence_encoder: as in the recipe.
        choices: options of the recipe by the name of the choice; none for the recipe as it is.
        baselines: systems that are not trained, as in a recipe of an evaluation.
        retrieval: tasks by name, none of them a test set.
        topics: folder of en.train.tsv and en.dev.tsv, from which a logistic regression learns and is measured.
        output: folder of models and results.
        seeds: of each choice.
        dtype: of the compared models' weights and activations.
    """

    recipe: str
    corpus: str
    sentence_encoder: str
    choices: dict[str, dict[str, Any]]
    retrieval: dict[str, RetrievalTask]
    output: str
    baselines: dict[str, BaselineOptions] = field(default_factory=dict)
    topics: str | None = None
    seeds: list[int] = field(default_factory=lambda: [1, 2])
    dtype: Dtype = "auto"


@dataclass
class SystemFromKeptSentences(HMDESystem):
    """An HMDE that encodes no sentence twice, whichever model of this kind asked for it.

    Args:
        kept: shared by the models.
    """

    kept: KeptSentences = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.maker = fingerprint_of_vectors(self.model, self.tokenizer, "", "no")

    @torch.inference_mode()
    def encode_documents(self, documents: Sequence[str], language: str) -> np.ndarray:
        missing = [text for text in dict.fromkeys(documents) if (self.maker, language, text) not in self.kept]
        for place, *found in encode_sentences(self.model, self.tokenizer, missing, [language] * len(missing)):
            self.kept[self.maker, language, missing[place]] = (found[0], found[1])
        vectors = []
        for first in range(0, len(documents), 256):
            batch = [self.kept[self.maker, language, text] for text in documents[first : first + 256]]
            sentences, lengths = (pad_sequence(list(parts), True).to(self.model.device) for parts in zip(*batch))
            vectors.append(self.model.hmde.document_encoder(sentences, lengths)[1].float())
        return torch.nn.functional.normalize(torch.cat(vectors), dim=-1).cpu().numpy()


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(ChoicesBenchmark, argv)
    output = Path(benchmark.output)
    if benchmark.baselines:
        check_systems(benchmark.baselines)
    tasks = [read_task(output, name, "retrieval", task) for name, task in benchmark.retrieval.items()]
    topics = fingerprint_of_folder(Path(benchmark.topics)) if benchmark.topics else ""
    dtype, fingerprints = dtype_of(benchmark.dtype), [task.fingerprint for task in tasks]
    measured_by = fingerprint(fingerprints, topics, dtype, fingerprint_of_code())

    output.mkdir(parents=True, exist_ok=True)
    file = output / "results.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    known = {result.get("made_from"): result for result in map(json.loads, lines)}
    results = []
    kept: KeptSentences = {}

    def keep(name: str, seed: int | None, made_of: object, load: Callable[[], HMDESystem]) -> None:
        made_from = fingerprint(name, seed, made_of, measured_by)
        if made_from not in known:
            loaded = load()
            system = SystemFromKeptSentences(loaded.model, loaded.tokenizer, kept=kept)
            scores = scores_of(system, tasks, benchmark.topics)
            known[made_from] = {"name": name, "seed": seed, "scores": scores, "made_from": made_from}
            with file.open("a") as appended:
                appended.write(json.dumps(known[made_from]) + "\n")
            print(json.dumps(known[made_from]), flush=True)
        results.append(known[made_from])

    for name, baseline in benchmark.baselines.items():
        keep(name, None, baseline.given, partial(load_system, baseline, dtype))
    recipe = digest(Path(benchmark.recipe))
    for seed in benchmark.seeds:
        for name, options in benchmark.choices.items():
            made_of = fingerprint(recipe, benchmark.corpus, benchmark.sentence_encoder, options)
            folder = output / f"{name}-{seed}-{made_of}"
            keep(name, seed, made_of, partial(trained, benchmark, folder, options | {"seed": seed}))
    write_results(benchmark, table(results).to_markdown(), results=results)


def trained(benchmark: ChoicesBenchmark, folder: Path, options: dict[str, Any]) -> HMDESystem:
    """The model of the last step of a run, which is trained if it does not exist."""
    if not folder.exists():
        given = {"corpus": benchmark.corpus, "sentence_encoder": benchmark.sentence_encoder, "output": str(folder)}
        arguments = on_command_line(given | {"keep": "last"} | options)
        subprocess.run([sys.executable, PRETRAIN, "--config", benchmark.recipe, *arguments], check=True)
    return HMDESystem(*load_hmde(str(folder), dtype_of(benchmark.dtype)))


def on_command_line(options: dict[str, Any]) -> list[str]:
    """
    >>> on_command_line({"freeze": "nothing", "max_steps": 16})
    ['--freeze', 'nothing', '--max_steps', '16']
    """
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return [part for name, text in texts.items() for part in (f"--{name}", text)]


def scores_of(system: System, tasks: Sequence[TaskWithData], topics: str | None) -> dict[str, float]:
    """The measure of each task, averaged as its report averages it, and the accuracy on topics."""
    scores = {}
    for task in tasks:
        options = task.options
        rows = evaluate_retrieval(system, task.data, options.pairs, options.depth)
        groups = groups_of(options.pairs, options.training_languages)
        for group, found in averages(rows, groups, [options.measure]).items():
            column = f"{task.name}, {options.measure}, {group}".removesuffix(", average").replace("average, ", "")
            scores[column] = found[options.measure]
    if topics:
        examples = [read_labelled_texts(Path(topics) / f"en.{part}.tsv") for part in ("train", "dev")]
        train, dev = ((system.encode_documents(texts, "en"), labels) for labels, texts in examples)
        scores["topics of English dev, accuracy"] = float(fit_logistic_regression(*train).score(*dev))
    return scores


def table(results: Sequence[dict[str, Any]]) -> Table:
    """Choices in rows, with their numbers of seeds; scores in columns."""
    names = dict.fromkeys(result["name"] for result in results)
    columns: dict[str, dict[str, float]] = {}
    for name in names:
        runs = [result for result in results if result["name"] == name]
        seeds = f" ({len(runs)})" if runs[0]["seed"] is not None else ""
        for column in runs[0]["scores"]:
            values = [result["scores"][column] for result in runs]
            columns.setdefault(column, {})[name + seeds] = float(np.mean(values))
    return Table("Means over seeds, whose number stands in brackets", "choice", columns)


if __name__ == "__main__":
    run(main)
