"""The README.md of a trained model: what it was made of, how, what was measured, how to use it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import Environment, FileSystemLoader

from modeling_hmde import HMDEConfig
from training.loop.loop import Progress
from training.pretrain_recipe import PretrainRecipe

TEMPLATES = Path(__file__).parent / "templates"

# Metadata of every HMDE.
METADATA: dict[str, Any] = {
    "library_name": "transformers",
    "pipeline_tag": "feature-extraction",
    "tags": ["hmde", "sentence-transformers", "document-embeddings", "multilingual", "cross-lingual-retrieval"],
}


def write_model_card(recipe: PretrainRecipe, folder: Path, progress: Progress) -> None:
    """Write the `README.md` of an HMDE, with metadata that the Hub accepts.

    Args:
        folder: the finished model's.
    """
    scores, corpus = progress.history[progress.kept_step], Path(recipe.corpus).name
    statistics = json.loads((Path(recipe.corpus) / "statistics.json").read_text(encoding="utf-8"))
    name = recipe.push_to_hub or recipe.output
    found = [
        dev_result("text-retrieval", corpus, "mrr", f"MRR ({label})", scores[key])
        for key, label in (("document_mrr", "document to document"), ("title_mrr", "title to document"))
    ]
    languages = sorted(statistics["articles"])
    data = card_data(recipe.sentence_encoder, **METADATA, language=languages, model_name=name, eval_results=found)
    training = section(
        "pretraining.md",
        corpus=corpus,
        statistics=statistics,
        kept_step=progress.kept_step,
        steps=max(progress.history),
        recipe_yaml=as_yaml(asdict(recipe)),
        num_concepts=recipe.eval_concepts,
        rows={f"step {step}" if step else "before training": row for step, row in progress.history.items()},
    )
    config, sentence_encoder = HMDEConfig.from_pretrained(folder), data.base_model or recipe.sentence_encoder
    values = {"name": name, "config": config, "sentence_encoder": sentence_encoder, "training": training}
    write_card(folder, TEMPLATES / "card.md", data, **values)


def write_average_card(
    folder: Path,
    name: str,
    config: Any,
    models: list[str],
    scores: dict[str, dict[str, float]],
    num_concepts: int,
) -> None:
    """Write the `README.md` of the average of several models, with what their cards tell about their training.

    Args:
        folder: of the average.
        name: of the average, as it is shown and loaded.
        config: the average's HMDEConfig.
        models: folders of the models, whose first one's card gives the metadata.
        scores: dev scores by name, the average's last; empty if nothing was measured.
        num_concepts: the pool's size.
    """
    cards = [card_of(model) for model in models]
    first = cards[0]
    data = card_data(models[0], **METADATA, language=first.data.get("language") if first else None, model_name=name)
    trainings = [below_heading(card.text, "How it was trained") if card else "" for card in cards]
    training = section("average.md", models=models, trainings=trainings, num_concepts=num_concepts, rows=scores)
    sentence_encoder = data.base_model or config.sentence_config.model_type
    values = {"name": name, "config": config, "sentence_encoder": sentence_encoder, "training": training}
    write_card(folder, TEMPLATES / "card.md", data, **values)


def card_of(model: str) -> ModelCard | None:
    """The model card of a folder or a Hub name; None where there is none that can be read."""
    try:
        path = Path(model)
        return ModelCard.load(path / "README.md" if path.is_dir() else model)
    except (OSError, ValueError):  # no card, no network, or a README without metadata
        return None


def dev_result(task: str, corpus: str, metric: str, name: str, value: float) -> EvalResult:
    """A score on the dev split of a corpus."""
    return EvalResult(
        task_type=task,
        dataset_type="custom",
        dataset_name=corpus,
        dataset_split="dev",
        metric_type=metric,
        metric_name=name,
        metric_value=round(value, 4),
    )


def section(template: str, **values: Any) -> str:
    """A part of a card, by one of this folder's templates."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), trim_blocks=True)
    return environment.get_template(template).render(values).strip()


def below_heading(text: str, heading: str) -> str:
    """The text between a heading of the second level and the next one; empty if there is no such heading."""
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0].strip()


def card_data(start: str | None, **metadata: Any) -> ModelCardData:
    """Metadata of a trained model. Its base model and licence are those of the model that it was trained from.

    Args:
        start: Hub name or folder of the model that training started from; None if it started from random weights.
        metadata: all else, as ModelCardData takes it.
    """
    base_model, licence = origin_of(start) if start is not None else (None, None)
    return ModelCardData(**{"library_name": "transformers"} | metadata, base_model=base_model, license=licence)


def write_card(folder: Path, template: Path, data: ModelCardData, **values: Any) -> None:
    """Write the `README.md` of a model's folder by a template for Jinja that starts with the metadata."""
    ModelCard.from_template(data, template_path=str(template), **values).save(folder / "README.md")


def as_yaml(recipe: dict[str, Any]) -> str:
    """A recipe as a card shows it, and as `--config` reads it."""
    return yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip()


def origin_of(model: str) -> tuple[str | None, str | None]:
    """The Hub name of a base model and the licence that it hands on to what is trained from it; None for what no card
    says. The base model of a folder is the one that its card names."""
    card = card_of(model)
    metadata = card.data.to_dict() if card is not None else {}
    name = metadata.get("base_model") if Path(model).is_dir() else model
    return name, metadata.get("license")
