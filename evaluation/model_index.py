"""Results for the model card of the model that made them."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import EvalResult, ModelCard

from evaluation.report import Results
from hmde.common.files import file_written_whole


def card_file(model: str) -> Path:
    """Raises:
    ValueError: the model is no folder with a card.
    """
    file = Path(model) / "README.md"
    if not file.is_file():
        raise ValueError(f"{file} is missing; only a system that is a folder with a model card can be in model_cards")
    return file


def write_model_index(file: Path, name: str, model: str, results: Results) -> None:
    """Put the averages of a system into the `model-index` of its card, in place of earlier ones of the same tasks.

    Args:
        file: the card.
        name: of the system in the recipe.
        model: the one that must have made a result. A fine-tuned classifier of the same name is another model, with a
            card of its own.
        results: of all systems on all tasks.
    """
    own = {task: task_results[name] for task, task_results in results.items() if name in task_results}
    own = {task: result for task, result in own.items() if list(result["models"]) == [model]}
    with file_written_whole(file) as partial:
        card = ModelCard.load(file)
        others = [other for other in card.data.eval_results or [] if other.dataset_type not in results]
        card.data.eval_results = others + [
            EvalResult(
                task_type=result["task_type"],
                dataset_type=task,
                dataset_name=f"{task} ({result['protocol']})",
                metric_type=result["measure"].lower(),
                metric_name=f"{result['measure']} ({group})",
                metric_value=round(scores[result["measure"]], 4),
            )
            for task, result in own.items()
            for group, scores in result["averages"].items()
        ]
        card.data.model_name = card.data.model_name or file.parent.name
        card.save(partial)
