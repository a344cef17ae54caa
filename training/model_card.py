"""The README.md of a trained model: what it was made of, how, what was measured, how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError

from modeling_hmde.publishing_hmde import METADATA, model_card

TRAINING = """\
## How it was trained

On the corpus *{corpus}*: {num_triples} triples of an anchor, a positive in another language and a hard negative.

| language | documents |
|---|---|
{documents}

The model kept is that of optimizer step {best_step} of {steps}. The whole recipe:

```yaml
{recipe}
```

## Results

Mean reciprocal rank of a dev concept's document in another language, in a pool of up to {num_concepts} concepts:
`document` when its document is the query, `title` when its title is.

| | document | title | mean |
|---|---|---|---|
{results}
"""


def write_model_card(
    folder: Path,
    name: str,
    recipe: dict[str, Any],
    config: Any,
    statistics: dict[str, Any],
    history: dict[int, dict[str, float]],
    best_step: int,
) -> None:
    """Write `README.md`, with metadata that the Hub accepts.

    Args:
        folder: the model's.
        name: of the model, as it is shown and loaded.
        recipe: all fields of the run.
        config: the model's HMDEConfig.
        statistics: of the corpus (`statistics.json`).
        history: dev scores by optimizer step, step 0 being the untrained start.
        best_step: the step whose model is kept.
    """
    base_model = base_model_of(recipe["sentence_encoder"])
    scores = history[best_step]
    data = ModelCardData(
        **METADATA,
        language=sorted(statistics["articles"]),
        license="apache-2.0",
        base_model=base_model,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="text-retrieval",
                task_name="Cross-lingual document retrieval",
                dataset_type="custom",
                dataset_name=Path(recipe["corpus"]).name,
                dataset_split="dev",
                metric_type="mrr",
                metric_name=f"MRR ({label})",
                metric_value=round(scores[key], 4),
            )
            for key, label in (("document_mrr", "document to document"), ("title_mrr", "title to document"))
        ],
    )
    training = TRAINING.format(
        corpus=Path(recipe["corpus"]).name,
        num_triples=statistics["triples"]["train"],
        documents="\n".join(f"| {language} | {count} |" for language, count in sorted(statistics["articles"].items())),
        best_step=best_step,
        steps=max(history),
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip(),
        num_concepts=recipe["eval_concepts"],
        results="\n".join(
            f"| {f'step {step}' if step else 'before training'} | {scores['document_mrr']:.3f} |"
            f" {scores['title_mrr']:.3f} | {scores['mrr']:.3f} |"
            for step, scores in history.items()
        ),
    )
    sentence_encoder = base_model or recipe["sentence_encoder"]
    model_card(name, config, data, sentence_encoder, training).save(folder / "README.md")


def base_model_of(sentence_encoder: str) -> str | None:
    """The Hub name of a sentence encoder: itself, or for a folder the base model that its own card names."""
    if not Path(sentence_encoder).is_dir():
        return sentence_encoder
    card = Path(sentence_encoder) / "README.md"
    try:
        return ModelCard.load(card).data.get("base_model") if card.exists() else None
    except (ValueError, HFValidationError):  # a README without metadata
        return None
