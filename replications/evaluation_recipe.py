"""What a recipe of an evaluation can say of systems and tasks of other papers, too. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evaluation.recipes import ClassificationTask, EvaluationRecipe, RetrievalTask, SystemOptions
from evaluation.registry import SYSTEMS, TASKS, SystemKind
from replications.longformer.options import LongformerOptions
from replications.question_answering.options import QuestionTask

SYSTEMS["longformer"] = SystemKind(
    "replications.longformer.system",
    needs=("model",),
    takes=("pooling", "query_prompt", "document_prompt", "global_attention"),
)
TASKS["translation_search"] = "replications.translation_search"
TASKS["mlp_classification"] = "replications.mldoc"
TASKS["questions"] = "replications.question_answering.evaluation"


class TranslationTask(RetrievalTask):
    """See replications/translation_search.py."""

    def takes(self, system: SystemOptions) -> bool:
        return not system.ranks


@dataclass
class ReplicationsRecipe(EvaluationRecipe):
    """A comparison: every system on every task, those of other papers too. See EvaluationRecipe.

    Args:
        systems: by name, each with its `kind` and the options of that kind.
        translation_search: tasks by name, as those of `retrieval`: sentences seek their translations.
        mlp_classification: tasks by name, as those of `classification`, with the small network above frozen vectors by
            which LASER, the lightweight encoder and T-MDE report MLDoc.
        questions: tasks by name.
    """

    systems: Mapping[str, LongformerOptions]
    translation_search: dict[str, TranslationTask] = field(default_factory=dict)
    mlp_classification: dict[str, ClassificationTask] = field(default_factory=dict)
    questions: dict[str, QuestionTask] = field(default_factory=dict)
