"""What a recipe of an evaluation can say of systems and tasks of other papers, too. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluation.recipes import ClassificationTask, EvaluationRecipe, RetrievalTask, SystemOptions
from evaluation.registry import SYSTEMS, TASKS, SystemKind
from hmde.common.numbers import PositiveInt
from replications.system_options import OtherSystemOptions

SYSTEMS["longformer"] = SystemKind(
    "replications.longformer.system",
    takes=("model", "pooling", "query_prompt", "document_prompt", "global_attention"),
)
SYSTEMS["sentence_transformers"] = SystemKind(
    "replications.sentence_transformers_system",
    takes=("model", "query_prompt", "document_prompt", "max_length", "trust_remote_code"),
)
TASKS["reranking"] = "replications.reranking"
TASKS["translation_search"] = "replications.translation_search"
TASKS["mlp_classification"] = "replications.mldoc"
TASKS["svm_classification"] = "replications.topics.svm"
SYSTEMS["classifier"] = SystemKind("replications.topics.finetuned", takes=("model",))
TASKS["finetuned_classification"] = SYSTEMS["classifier"].module


@dataclass
class TranslationTask(RetrievalTask):
    """See replications/translation_search.py.

    Args:
        training_languages: that the systems were trained on. Pairs of two of them are averaged apart from others.
    """

    def takes(self, system: SystemOptions) -> bool:
        return not system.ranks


@dataclass(kw_only=True)
class RerankingTask(RetrievalTask):
    """See replications/reranking.py.

    Args:
        rerank: folder of <pair>.run files whose first documents are ranked anew.
        rerank_depth: how many documents of a run are ranked anew.
    """

    rerank: str
    rerank_depth: PositiveInt = 100

    @property
    def folders(self) -> list[str]:
        return [self.data, self.rerank]

    def takes(self, system: SystemOptions) -> bool:
        return not system.ranks


@dataclass(kw_only=True)
class FinetunedTask(ClassificationTask):
    """See replications/topics/finetuned.py.

    Args:
        models: classifiers that were trained as a whole, on the first train language, by name: their folders or Hub
            names.
    """

    models: dict[str, str]

    @property
    def systems(self) -> dict[str, SystemOptions]:
        return {name: SystemOptions("classifier", model) for name, model in self.models.items()}

    def takes(self, system: SystemOptions) -> bool:
        return False


@dataclass
class ReplicationsRecipe(EvaluationRecipe):
    """A comparison: every system on every task, those of other papers too. See EvaluationRecipe.

    Args:
        systems: by name, each with its `kind` and the options of that kind.
        reranking: tasks by name, as those of `retrieval`: the first documents of a given run are ranked anew.
        translation_search: tasks by name, as those of `retrieval`: sentences seek their translations.
        mlp_classification: tasks by name, as those of `classification`, with the small network above frozen vectors by
            which LASER and T-MDE report MLDoc.
        svm_classification: likewise, with a support vector machine above frozen vectors.
        finetuned_classification: likewise, of classifiers that were trained as a whole.
        published: file of published numbers to show beside ours; replications/published.py describes it.
    """

    systems: Mapping[str, OtherSystemOptions]
    reranking: dict[str, RerankingTask] = field(default_factory=dict)
    translation_search: dict[str, TranslationTask] = field(default_factory=dict)
    mlp_classification: dict[str, ClassificationTask] = field(default_factory=dict)
    svm_classification: dict[str, ClassificationTask] = field(default_factory=dict)
    finetuned_classification: dict[str, FinetunedTask] = field(default_factory=dict)
    published: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, system in self.systems.items():
            if system.kind == "classifier":
                raise ValueError(f"system {name} is a classifier; name it in models of a finetuned_classification task")
