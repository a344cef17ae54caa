"""Topics of documents across languages: a classifier learns from one language and is tested on others (section 3.2).

    python -m evaluation.classification --config configuration/evaluate/sample-classification.yaml [--key value ...]

Two protocols, whose numbers do not compare:

    frozen       document vectors as they are, a logistic regression above them trained here
    finetuned    a model that was trained as a whole, a saved HMDEForSequenceClassification, is only tested here

Writes results.json (all measures by protocol, system and language, with recipe and environment) and results.md.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jsonargparse import auto_cli
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from evaluation.readers import read_labelled_texts
from evaluation.report import Scores, Table, averages, write_report
from evaluation.systems import Dtype, SystemRecipe, check_systems, device, load_system, model_type_of
from modeling_hmde import HMDEConfig, HMDEForSequenceClassification, HMDETokenizer
from modeling_hmde.modeling_hmde import MAX_TOKENS_PER_BUCKET
from modeling_hmde.packing_hmde import bucket_by_length

MEASURES = ("accuracy", "macro_f1")

# Inverse strengths of regularisation to choose from; unit vectors need weak ones.
C_GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass
class ClassificationRecipe:
    """A comparison of systems on a classification set. At least one of `systems` and `finetuned` is given.

    Args:
        data: folder of <language>.<part>.tsv, label TAB text: <train_language>.train.tsv and .dev.tsv for `systems`,
            <language>.test.tsv of each test language for all.
        test_languages: languages to test on.
        output: folder to write. Files of an earlier evaluation there are replaced.
        systems: tested by the protocol `frozen`, by name; see SystemRecipe.
        finetuned: tested by the protocol `finetuned`: folder or Hub name of a saved HMDEForSequenceClassification, by
            name.
        train_language: the language that has labels to learn from.
        measure: the one in the tables; results.json has all.
        dtype: float32, or bfloat16, which is faster where the processor multiplies it.
    """

    data: str
    test_languages: list[str]
    output: str
    systems: dict[str, SystemRecipe] = field(default_factory=dict)
    finetuned: dict[str, str] = field(default_factory=dict)
    train_language: str = "en"
    measure: Literal["accuracy", "macro_f1"] = "accuracy"
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        if not self.test_languages:
            raise ValueError("test_languages is empty; name at least one")
        if not self.systems and not self.finetuned:
            raise ValueError("systems and finetuned are both empty; name at least one system")


class LabelledTexts(NamedTuple):
    """The documents of one file."""

    file: Path
    language: str
    labels: list[str]
    texts: list[str]


def main(argv: list[str] | None = None) -> None:
    recipe = auto_cli(ClassificationRecipe, args=argv, as_positional=False)
    tests = [read(recipe, language, "test") for language in recipe.test_languages]
    for name, model in recipe.finetuned.items():
        check_labels(tests, labels_of(name, model), known_by=f"the model {name}")
    results: dict[str, dict[str, Any]] = {}
    if recipe.systems:
        train, dev = (read(recipe, recipe.train_language, part) for part in ("train", "dev"))
        check_labels([dev, *tests], set(train.labels), known_by=str(train.file))
        check_systems(recipe.systems)
        results["frozen"] = {name: evaluate_frozen(name, recipe, train, dev, tests) for name in recipe.systems}
    if recipe.finetuned:
        results["finetuned"] = {name: evaluate_finetuned(name, recipe, tests) for name in recipe.finetuned}
    tables = [
        Table(
            f"{recipe.measure} on {Path(recipe.data).name}, protocol {protocol}",
            "test language",
            {
                name: {row: scores[recipe.measure] for row, scores in (found["languages"] | found["averages"]).items()}
                for name, found in systems.items()
            },
        )
        for protocol, systems in results.items()
    ]
    write_report(Path(recipe.output), asdict(recipe), results, tables)


def read(recipe: ClassificationRecipe, language: str, part: str) -> LabelledTexts:
    file = Path(recipe.data) / f"{language}.{part}.tsv"
    return LabelledTexts(file, language, *read_labelled_texts(file))


def check_labels(files: Sequence[LabelledTexts], known: set[str], known_by: str) -> None:
    """Raises:
    ValueError: a file has a label that cannot be predicted.
    """
    for texts in files:
        for label in texts.labels:
            if label not in known:
                raise ValueError(
                    f"{texts.file} has the label {label!r}, which {known_by} does not know: it knows "
                    f"{', '.join(sorted(known))}; use the same labels in all files"
                )


def labels_of(name: str, model: str) -> set[str]:
    """The labels that a saved classifier predicts.

    Raises:
        ValueError: there is no such model, or it is no HMDE.
    """
    if model_type_of(name, model) != "hmde":
        raise ValueError(f"{name}: {model} is no HMDE; give a folder that training/finetune.py wrote")
    return set(HMDEConfig.from_pretrained(model).label2id or ())


def evaluate_frozen(
    name: str, recipe: ClassificationRecipe, train: LabelledTexts, dev: LabelledTexts, tests: Sequence[LabelledTexts]
) -> dict[str, Any]:
    """Everything that is reported of a system whose vectors are left as they are."""
    system = load_system(recipe.systems[name], recipe.dtype)
    began = time.perf_counter()
    encoded = [system.encode_documents(part.texts, part.language) for part in (train, dev, *tests)]
    seconds = time.perf_counter() - began
    classifier = fit(encoded[0], train.labels, encoded[1], dev.labels)
    predictions = [list(classifier.predict(vectors)) for vectors in encoded[2:]]
    return report(recipe, tests, predictions) | {
        "C": classifier.C,
        "documents": sum(len(vectors) for vectors in encoded),
        "document_seconds": seconds,
    }


def evaluate_finetuned(name: str, recipe: ClassificationRecipe, tests: Sequence[LabelledTexts]) -> dict[str, Any]:
    """Everything that is reported of a classifier that was trained as a whole."""
    folder = recipe.finetuned[name]
    tokenizer = HMDETokenizer.from_pretrained(folder)
    model = HMDEForSequenceClassification.from_pretrained(folder, dtype=recipe.dtype)
    model.to(device())  # type: ignore[arg-type]
    began = time.perf_counter()
    predictions = [predict(model, tokenizer, part.texts, part.language) for part in tests]
    return report(recipe, tests, predictions) | {
        "documents": sum(len(part.texts) for part in tests),
        "document_seconds": time.perf_counter() - began,
    }


def fit(
    train_vectors: np.ndarray, train_labels: Sequence[str], dev_vectors: np.ndarray, dev_labels: Sequence[str]
) -> LogisticRegression:
    """The logistic regression of the C with the highest accuracy on dev, the smallest of equals.

    Args:
        train_vectors, dev_vectors: (documents, hidden), in the training language.
        train_labels, dev_labels: one a document.
    """
    candidates = [LogisticRegression(C=C, max_iter=10_000).fit(train_vectors, train_labels) for C in C_GRID]
    return max(candidates, key=lambda classifier: classifier.score(dev_vectors, dev_labels))


@torch.inference_mode()
def predict(
    model: HMDEForSequenceClassification, tokenizer: HMDETokenizer, texts: Sequence[str], language: str
) -> list[str]:
    """The most probable label of each text, in the order given."""
    rows = tokenizer(list(texts), language=language)["input_ids"]
    best = torch.empty(len(rows), dtype=torch.long)
    for batch in bucket_by_length(torch.tensor([len(row) for row in rows]), MAX_TOKENS_PER_BUCKET):
        inputs = tokenizer.pad({"input_ids": [rows[place] for place in batch]}, return_tensors="pt").to(model.device)
        best[batch] = model(**inputs).logits.argmax(dim=-1).cpu()
    names = model.config.id2label or {}
    return [names[label] for label in best.tolist()]


def report(
    recipe: ClassificationRecipe, tests: Sequence[LabelledTexts], predictions: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Accuracy and macro-F1 (over the labels that occur or are predicted) of each test language and their averages."""
    scores: Scores = {
        part.language: {
            "accuracy": float(accuracy_score(part.labels, predicted)),
            "macro_f1": float(f1_score(part.labels, predicted, average="macro")),
            "documents": len(part.labels),
        }
        for part, predicted in zip(tests, predictions)
    }
    groups = {
        "average": list(scores),
        f"average without {recipe.train_language}": [
            language for language in scores if language != recipe.train_language
        ],
    }
    return {"languages": scores, "averages": averages(scores, groups, MEASURES)}


if __name__ == "__main__":
    main()
