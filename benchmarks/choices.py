"""What each choice in a pretraining recipe gives: models that differ in one thing, compared on development sets.

    python -m benchmarks.choices --config configuration/benchmarks/choices.yaml

Trains every choice with every seed by training/pretrain.py and compares the models of the last step, not the best ones
on dev concepts. Each result is appended to results.jsonl at once and is not trained again when the command is repeated.
Writes the table of means over seeds to results.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common.threads

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.measure import write_results
from common.command_line import options_from, run
from common.device import Dtype, dtype_of
from evaluation.classifiers import fit_logistic_regression
from evaluation.datasets.labelled_sets import read_labelled_texts
from evaluation.datasets.retrieval_sets import RetrievalSet, read_retrieval_set
from evaluation.recipes import RetrievalTask, SystemOptions
from evaluation.systems import System, load_system
from evaluation.systems.hmde import HMDESystem
from evaluation.tables import Table, averages
from evaluation.tasks.retrieval import evaluate_retrieval, groups_of
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from training.data.sentence_vectors import encode_sentences, fingerprint_of_vectors

PRETRAIN = Path(__file__).resolve().parents[1] / "training" / "pretrain.py"

# The sentence vectors and lengths of a text, by what made them, its language and the text.
KeptSentences = dict[tuple[str, str, str], tuple[Tensor, Tensor]]


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
    baselines: dict[str, SystemOptions] = field(default_factory=dict)
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
        self.maker = fingerprint_of_vectors(self.model, self.tokenizer, "")

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
    output.mkdir(parents=True, exist_ok=True)
    file = output / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    sets = {
        name: read_retrieval_set(task.data, task.pairs, task.split, task.query_source)
        for name, task in benchmark.retrieval.items()
    }
    kept: KeptSentences = {}

    def keep(name: str, seed: int | None, system: System) -> None:
        results.append({"name": name, "seed": seed, "scores": scores_of(system, benchmark, sets)})
        with file.open("a") as lines:
            lines.write(json.dumps(results[-1]) + "\n")
        print(json.dumps(results[-1]), flush=True)

    done = {(result["name"], result["seed"]) for result in results}
    for name, system in benchmark.baselines.items():
        if (name, None) not in done:
            baseline = load_system(system, dtype_of(benchmark.dtype))
            keep(name, None, SystemFromKeptSentences(baseline.model, baseline.tokenizer, kept=kept))
    for seed in benchmark.seeds:
        for name, options in benchmark.choices.items():
            if (name, seed) not in done:
                model, tokenizer = trained(benchmark, output / f"{name}-{seed}", options | {"seed": seed})
                keep(name, seed, SystemFromKeptSentences(model, tokenizer, kept=kept))
    write_results(benchmark, table(results).to_markdown(), results=results)


def trained(
    benchmark: ChoicesBenchmark, folder: Path, options: dict[str, Any]
) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    """The model of the last step of a run, which is trained if it does not exist."""
    if not folder.exists():
        given = {"corpus": benchmark.corpus, "sentence_encoder": benchmark.sentence_encoder, "output": str(folder)}
        arguments = on_command_line(given | {"keep": "last"} | options)
        subprocess.run([sys.executable, PRETRAIN, "--config", benchmark.recipe, *arguments], check=True)
    model = HMDEForDocumentEmbedding.from_pretrained(folder, dtype=dtype_of(benchmark.dtype))
    return model, HMDETokenizer.from_pretrained(folder)


def on_command_line(options: dict[str, Any]) -> list[str]:
    """
    >>> on_command_line({"freeze": "nothing", "max_steps": 16})
    ['--freeze', 'nothing', '--max_steps', '16']
    """
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return [part for name, text in texts.items() for part in (f"--{name}", text)]


def scores_of(system: System, benchmark: ChoicesBenchmark, sets: dict[str, RetrievalSet]) -> dict[str, float]:
    """The measure of each task, averaged as its report averages it, and the accuracy on topics."""
    scores = {}
    for name, task in benchmark.retrieval.items():
        rows = evaluate_retrieval(system, sets[name], task.pairs, task.depth)
        for group, found in averages(rows, groups_of(task.pairs, task.training_languages), [task.measure]).items():
            scores[f"{name}, {task.measure}, {group}".removesuffix(", average").replace("average, ", "")] = found[
                task.measure
            ]
    if benchmark.topics:
        examples = [read_labelled_texts(Path(benchmark.topics) / f"en.{part}.tsv") for part in ("train", "dev")]
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
