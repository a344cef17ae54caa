"""Results for the model card of the model that made them."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import EvalResult, ModelCard

from common.files import file_written_whole
from evaluation.recipes import SystemRecipe
from evaluation.report import Results


def model_card_of(system: SystemRecipe) -> Path:
    """Raises:
    ValueError: the system is no folder with a card.
    """
    file = Path(system.model) / "README.md"
    if not file.is_file():
        raise ValueError(f"{file} is missing; only a system that is a folder with a model card can be in model_cards")
    return file


def write_model_index(file: Path, name: str, system: SystemRecipe, results: Results) -> None:
    """Put the averages of a system into the `model-index` of its card, in place of earlier ones of the same tasks.

    Args:
        file: the card.
        name: of the system in the recipe.
        system: its model is the one that must have made a result. A fine-tuned classifier of the same name is another
            model, with a card of its own.
        results: of all systems on all tasks.
    """
    own = {task: of_task[name] for task, of_task in results.items() if name in of_task}
    own = {task: result for task, result in own.items() if list(result["models"]) == [system.model]}
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
