"""What a recipe can say: options of systems and of each kind of task, and the comparison of all systems on all tasks.

Imports nothing heavy, so that a command shows its options and refuses a bad recipe at once. evaluation/registry.py says
what computes each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from evaluation.registry import SYSTEMS
from hmde.common.device import Dtype
from hmde.common.numbers import NonNegativeInt, PositiveInt

QuerySource = Literal["queries", "documents", "late_sentences"]

MEASURES = ("accuracy", "macro_f1")  # of a classification; the first has a value for each document
# `SentencePooling` of HMDEConfig, written out because a command's help waits for no torch.
Pooling = Literal["cls", "mean", "pooler", "lasttoken", "weightedmean", "max", "mean_sqrt_len_tokens"]


@dataclass
class SystemOptions:
    """A system to compare. evaluation/registry.py says what the kinds are, and which options each needs and takes.

    Args:
        kind: what the system is.
        model: folder or Hub name.
        pooling: how the vector of a text is read from a sentence encoder: this and nothing else. If not given, as its
            pipeline of sentence-transformers says, with the modules behind the pooling and its prompts.
        query_prompt, document_prompt: text put before each query and each piece of a document, such as e5's "query: "
            and "passage: ".
        max_length: tokens of a piece, including start token, end token and prompt. If not given, 512 for `first` and
            `passages`, 128 for the others.
        max_pieces: windows or sentences of a document. If not given, 32 windows, as the paper has it, or 128 sentences.
    """

    kind: str
    model: str = ""
    pooling: Pooling | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    max_length: PositiveInt | None = None
    max_pieces: PositiveInt | None = None

    def __post_init__(self) -> None:
        if self.kind not in SYSTEMS:
            raise ValueError(f"kind is {self.kind!r}; it must be one of {', '.join(SYSTEMS)}")
        takes = SYSTEMS[self.kind].takes
        if not self.given.keys() <= {"kind", *takes} or bool(self.model) != ("model" in takes):
            needs = "needs a model and" if "model" in takes else "has no model and"
            raise ValueError(
                f"a system has the options {self.given}; of kind {self.kind} it {needs} may have {list(takes)}"
            )

    @property
    def ranks(self) -> bool:
        """Whether it ranks whole collections and has no vectors to give."""
        return SYSTEMS[self.kind].ranks

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        values = ((option, getattr(self, option.name)) for option in fields(self))
        return {option.name: value for option, value in values if value != option.default}


class TaskOptions:
    """A task of any kind."""

    data: str
    measure: str

    @property
    def systems(self) -> dict[str, SystemOptions]:
        """Systems that this task alone compares, by name."""
        return {}

    @property
    def folders(self) -> list[str]:
        """What a result depends on, beside the system."""
        return [self.data]

    def takes(self, system: SystemOptions) -> bool:
        """Whether the task compares such a system of the recipe."""
        return True


@dataclass
class RetrievalTask(TaskOptions):
    """Queries and collections to compare systems on.

    Args:
        data: folder of the data set, or whatever its format reads.
        pairs: `<query language>-<document language>`, such as en-de. `en-all` searches the pool of the document
            languages of all other pairs, and reports how many of the first ten are in the query's own language.
        format: of `data`: hmde, which evaluation/datasets describes; or the full name of the module that reads it, such
            as replications.datasets.ir_datasets or replications.datasets.clef.
        split: of the qrels: qrels.<split>.tsv selects the queries or, if documents give the queries, the documents.
            Without a split: qrels.tsv and all documents.
        query_source: what the queries are: `queries`; whole `documents` (mate retrieval); or `late_sentences`, from
            the last third of long documents. The last two seek the document with the same id in another language.
        training_languages: document languages that the systems were trained on; they are averaged apart from others.
        measure: the one in the tables; the results have all.
        depth: documents that a query ranks at most. 0: all of them, so that MAP and MRR are of the whole collection;
            the run files have the first 1000, and BM25, hybrid and late rank no more.
    """

    data: str
    pairs: list[str]
    format: str = "hmde"
    split: str | None = None
    query_source: QuerySource = "queries"
    training_languages: list[str] = field(default_factory=list)
    measure: Literal["MAP", "MAP@20", "nDCG@10", "MRR", "Recall@100", "P@1"] = "MAP"
    depth: NonNegativeInt = 0


@dataclass
class ClassificationTask(TaskOptions):
    """Labelled documents to compare systems on.

    Args:
        data: folder of <language>.<part>.tsv, label TAB text: .train.tsv and .dev.tsv of each train language,
            .test.tsv of each test language; or whatever its format reads.
        test_languages: languages to test on.
        train_languages: languages that have labels to learn from.
        format: of `data`, as in a RetrievalTask.
        measure: the one in the tables; the results have both.
    """

    data: str
    test_languages: list[str]
    train_languages: list[str] = field(default_factory=lambda: ["en"])
    format: str = "hmde"
    measure: Literal["accuracy", "macro_f1"] = "accuracy"

    def __post_init__(self) -> None:
        for name in ("train_languages", "test_languages"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; name at least one")

    def takes(self, system: SystemOptions) -> bool:
        return not system.ranks


@dataclass
class EvaluationRecipe:
    """A comparison: every system on every task.

    Args:
        output: folder to write. What an earlier run left there and is still valid is not computed again.
        systems: by name, each with its `kind` and the options of that kind; see evaluation/registry.py.
        retrieval, classification: tasks by name.
        reference: the system against which the others are tested for significance. By default the last one.
        model_cards: systems whose model cards get their results (`model-index`). Each must be a folder.
        dtype: of weights and activations: float32, bfloat16, or auto, which is bfloat16 where the CPU or the GPU
            has native bfloat16 support and float32 elsewhere.
    """

    output: str
    systems: Mapping[str, SystemOptions]
    retrieval: dict[str, RetrievalTask] = field(default_factory=dict)
    classification: dict[str, ClassificationTask] = field(default_factory=dict)
    reference: str | None = None
    model_cards: list[str] = field(default_factory=list)
    dtype: Dtype = "auto"

    def __post_init__(self) -> None:
        for name in [*self.model_cards, *([self.reference] if self.reference else [])]:
            if name not in self.systems:
                raise ValueError(f"{name} is no system of this recipe; it has {', '.join(self.systems)}")
