"""The README.md of a trained model: what it was made of, how, what was measured, how to use it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import Environment, FileSystemLoader

from common.saved_models import card_of
from modeling_hmde.publishing_hmde import METADATA, model_card
from training.loop.loop import Progress

TEMPLATES = Path(__file__).parent / "templates"
P_AT_1 = "The share of dev sentences whose nearest one in the other language is their translation, mean of both ways"
ABOUT = "A multilingual sentence encoder, trained on pairs of sentences that are translations of each other."
POOLING = {"cls": "the hidden state of its first token", "mean": "the mean of the hidden states of its tokens"}


def write_model_card(
    folder: Path,
    name: str,
    recipe: dict[str, Any],
    config: Any,
    statistics: dict[str, Any],
    history: dict[int, dict[str, float]],
    kept_step: int,
) -> None:
    """Write `README.md`, with metadata that the Hub accepts.

    Args:
        folder: the model's.
        name: of the model, as it is shown and loaded.
        recipe: all fields of the run.
        config: the model's HMDEConfig.
        statistics: of the corpus (`statistics.json`).
        history: dev scores by optimizer step, step 0 being the untrained start.
        kept_step: the step whose model is kept.
    """
    scores = history[kept_step]
    corpus = Path(recipe["corpus"]).name
    data = card_data(
        recipe["sentence_encoder"],
        **METADATA,
        language=sorted(statistics["articles"]),
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="text-retrieval",
                task_name="Cross-lingual document retrieval",
                dataset_type="custom",
                dataset_name=corpus,
                dataset_split="dev",
                metric_type="mrr",
                metric_name=f"MRR ({label})",
                metric_value=round(scores[key], 4),
            )
            for key, label in (("document_mrr", "document to document"), ("title_mrr", "title to document"))
        ],
    )
    distillation = recipe["losses"]["distillation"]
    training = section(
        "pretraining.md",
        corpus=corpus,
        statistics=statistics,
        teacher=Path(distillation["teacher"]).name if distillation else None,
        kept_step=kept_step,
        steps=max(history),
        recipe_yaml=as_yaml(recipe),
        num_concepts=recipe["eval_concepts"],
        rows={f"step {step}" if step else "before training": scores for step, scores in history.items()},
    )
    sentence_encoder = str(data.base_model or recipe["sentence_encoder"])
    model_card(name, config, data, sentence_encoder, training).save(folder / "README.md")


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
    model_card(name, config, data, str(data.base_model or ""), training).save(folder / "README.md")


def write_sentence_card(
    recipe: Any,
    folder: Path,
    progress: Progress,
    *,
    about: str = ABOUT,
    score: str = "p_at_1",
    measure: str = P_AT_1,
) -> None:
    """Write the `README.md` of a sentence encoder.

    Args:
        recipe: a `PairsOptions`.
        folder: the finished model's.
        about: what the model is.
        score: the name of the dev score over all tables.
        measure: what the dev scores are.
    """
    options = asdict(recipe)
    start, pooling, layer = (options.get(name) for name in ("sentence_encoder", "pooling", "sentence_layer"))
    kept_scores = progress.history[progress.kept_step]
    tables = [name.removesuffix(f"_{score}") for name in kept_scores if name.endswith(f"_{score}")]
    columns = [*(f"{table}_{score}" for table in tables), score]
    is_retrieval = score == "p_at_1"
    name = recipe.push_to_hub or recipe.output
    data = card_data(
        start,
        language=sorted({language for table in tables for language in table.split("-")}),
        model_name=name,
        pipeline_tag="feature-extraction",
        tags=["sentence-embeddings", "multilingual", "cross-lingual-retrieval"],
        eval_results=[
            EvalResult(
                task_type="translation-retrieval" if is_retrieval else "translation",
                task_name="Cross-lingual sentence retrieval" if is_retrieval else "Translation",
                dataset_type="custom",
                dataset_name=Path(recipe.corpus).name,
                dataset_split="dev",
                metric_type="accuracy",
                metric_name="P@1" if is_retrieval else "Token accuracy",
                metric_value=round(kept_scores[score], 4),
            )
        ],
    )
    write_card(
        folder,
        TEMPLATES / "sentence_encoder.md",
        data,
        name=name,
        about=about,
        start=data.base_model or start,
        vector=POOLING[pooling] if pooling else None,
        pooling=pooling,
        layer=layer,
        measure=measure,
        own_code=any(folder.glob("modeling_*.py")),
        recipe=as_yaml(options),
        kept_step=progress.kept_step,
        steps=max(progress.history),
        tables=tables,
        rows=[[step, *(f"{scores[column]:.3f}" for column in columns)] for step, scores in progress.history.items()],
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
    """Write the `README.md` of a model's folder.

    Args:
        folder: the finished model's.
        template: a file for Jinja that starts with the metadata, `{{ card_data }}` between two lines `---`.
        data: the metadata.
        values: whatever else the template shows.
    """
    ModelCard.from_template(data, template_path=str(template), **values).save(folder / "README.md")


def as_yaml(recipe: dict[str, Any]) -> str:
    """A recipe as a card shows it, and as `--config` reads it."""
    return yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip()


def origin_of(model: str) -> tuple[str | None, str | None]:
    """The Hub name of a base model, and the licence that it hands on to what is trained from it, as its card says.

    Args:
        model: Hub name or folder. A folder's base model is the one that its own card names.

    Returns:
        None for what no card says.
    """
    card = card_of(model)
    metadata = card.data.to_dict() if card is not None else {}
    name = metadata.get("base_model") if Path(model).is_dir() else model
    return name, metadata.get("license")
