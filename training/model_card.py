"""The README.md of a trained model: what it was made of, how, what was measured, how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from common.saved_models import card_of
from modeling_hmde.publishing_hmde import METADATA, model_card

TRAINING = """\
## How it was trained

On the corpus *{corpus}*: {num_triples} triples of an anchor, a positive in another language and a
hard negative.{taught}

| language | documents |
|---|---|
{documents}

The model kept is that of optimizer step {kept_step} of {steps}. The whole recipe:

```yaml
{recipe}
```
"""

RESULTS = """
## Results

Mean reciprocal rank of a dev concept's document in another language, in a pool of up to {num_concepts} concepts:
`document` when its document is the query, `title` when its title is.

| | document | title | mean |
|---|---|---|---|
{results}
"""

MEAN = """\
## How it was trained

Its weights are the mean of those of {count} models, which began with the same sentence encoder and were trained apart
from each other (model soups; Wortsman et al., ICML 2022).

{trainings}
"""


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
    base_model, licence = origin_of(recipe["sentence_encoder"])
    scores = history[kept_step]
    data = ModelCardData(
        **METADATA,
        language=sorted(statistics["articles"]),
        license=licence,
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
    distillation = recipe["losses"]["distillation"]
    taught = f" It learned the vectors of *{Path(distillation['teacher']).name}*." if distillation else ""
    training = TRAINING.format(
        corpus=Path(recipe["corpus"]).name,
        taught=taught,
        num_triples=statistics["triples"]["train"],
        documents="\n".join(f"| {language} | {count} |" for language, count in sorted(statistics["articles"].items())),
        kept_step=kept_step,
        steps=max(history),
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip(),
    )
    training += results_of(
        {f"step {step}" if step else "before training": scores for step, scores in history.items()},
        recipe["eval_concepts"],
    )
    sentence_encoder = base_model or recipe["sentence_encoder"]
    model_card(name, config, data, sentence_encoder, training).save(folder / "README.md")


def write_card_of_mean(
    folder: Path,
    name: str,
    config: Any,
    models: list[str],
    scores: dict[str, dict[str, float]],
    num_concepts: int,
) -> None:
    """Write the `README.md` of the mean of several models, with what their cards say of their trainings.

    Args:
        folder: the mean's.
        name: of the mean, as it is shown and loaded.
        config: the mean's HMDEConfig.
        models: folders of the models, whose first one's card gives the metadata.
        scores: dev scores by name, the mean's last; empty if nothing was measured.
        num_concepts: the pool's size.
    """
    cards = {model: card_of(model) for model in models}
    first = cards[models[0]]
    base_model, licence = origin_of(models[0])
    data = ModelCardData(
        **METADATA,
        language=first.data.get("language") if first else None,
        license=licence,
        base_model=base_model,
        model_name=name,
    )
    training = MEAN.format(
        count=len(models),
        trainings="\n\n".join(
            f"### {model}\n\n{section(card.text, 'How it was trained') if card else ''}".strip()
            for model, card in cards.items()
        ),
    )
    if scores:
        training += results_of(scores, num_concepts)
    model_card(name, config, data, base_model or "", training).save(folder / "README.md")


def section(text: str, heading: str) -> str:
    """What stands below a heading of the second level, up to the next one; empty if there is no such heading."""
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0].strip()


def results_of(scores: dict[str, dict[str, float]], num_concepts: int) -> str:
    """The section on dev scores, which are given by the name of a row."""
    rows = "\n".join(
        f"| {name} | {of['document_mrr']:.3f} | {of['title_mrr']:.3f} | {of['mrr']:.3f} |"
        for name, of in scores.items()
    )
    return RESULTS.format(num_concepts=num_concepts, results=rows)


SENTENCE_CARD = """\
---
{{ card_data }}
---

# {{ name }}

{% if translates %}A model of translation: this encoder, and a decoder that looks at its states
(`decoder.safetensors`). An NTDV stands on two of them.{% else %}A multilingual sentence encoder, trained on pairs of
sentences that are translations of each other{% if base_model %}, from {{ base_model }}{% endif %}, towards
{{ objectives }}. The vector of a sentence is {{ vector }}; vectors are compared by cosine.{% endif %}

```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{{ name }}"{% if own_code %}, trust_remote_code=True{% endif %})
model = AutoModel.from_pretrained("{{ name }}"{% if own_code %}, trust_remote_code=True{% endif %})
```

{% if not translates %}`HMDEForDocumentEmbedding.from_sentence_encoder("{{ name }}", sentence_pooling="{{
recipe["pooling"] }}"{% if recipe["sentence_layer"] %}, sentence_layer={{ recipe["sentence_layer"] }}{% endif %})` makes
the lower part of a document encoder of it{% if own_code %}, after `import modeling_sentences`{% endif %}.

{% endif %}## How it was trained

The model kept is that of optimizer step {{ kept_step }} of {{ steps }}. The whole recipe:

```yaml
{{ recipe_text }}
```

## Results

{{ measure }}.

| step | {{ tables | join(" | ") }} | mean |
|{{ "---|" * (tables | length + 2) }}
{% for row in rows %}| {{ row | join(" | ") }} |
{% endfor %}
"""

P_AT_1 = "The share of dev sentences whose nearest one in the other language is their translation, mean of both ways"
TOKEN_ACCURACY = "The share of the tokens of dev translations that are the first choice, given those before them"


def write_sentence_model_card(
    folder: Path, name: str, recipe: dict[str, Any], history: dict[int, dict[str, float]], kept_step: int
) -> None:
    """Write the `README.md` of a sentence encoder, with metadata that the Hub accepts.

    Args:
        folder: the model's.
        name: of the model, as it is shown and loaded.
        recipe: all fields of the run.
        history: dev scores by optimizer step, step 0 being the untrained start.
        kept_step: the step whose model is kept.
    """
    start = recipe["sentence_encoder"]
    base_model, licence = origin_of(start) if start is not None else (None, None)
    keys = list(history[kept_step])  # the mean comes last
    tables = [key.removesuffix(f"_{keys[-1]}") for key in keys[:-1]]
    translates = keys[-1] == "token_accuracy"
    token = {"cls": "the state of its first token", "mean": "the mean of the states of its tokens"}[recipe["pooling"]]
    layer = f" in layer {recipe['sentence_layer']}" if recipe["sentence_layer"] else " in the last layer"
    data = ModelCardData(
        language=sorted({language for table in tables for language in table.split("-")}),
        license=licence,
        base_model=base_model,
        model_name=name,
        library_name="transformers",
        pipeline_tag="feature-extraction",
        tags=["sentence-embeddings", "multilingual", "cross-lingual-retrieval"],
        eval_results=[
            EvalResult(
                task_type="translation" if translates else "translation-retrieval",
                task_name="Translation" if translates else "Cross-lingual sentence retrieval",
                dataset_type="custom",
                dataset_name=Path(recipe["corpus"]).name,
                dataset_split="dev",
                metric_type="accuracy",
                metric_name="Token accuracy" if translates else "P@1",
                metric_value=round(history[kept_step][keys[-1]], 4),
            )
        ],
    )
    card = ModelCard.from_template(
        data,
        template_str=SENTENCE_CARD,
        name=name,
        base_model=base_model or start,
        objectives=", ".join(recipe["objectives"]),
        vector=token + layer,
        translates=translates,
        measure=TOKEN_ACCURACY if translates else P_AT_1,
        own_code=any(folder.glob("modeling_*.py")),
        recipe=recipe,
        recipe_text=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip(),
        kept_step=kept_step,
        steps=max(history),
        tables=tables,
        rows=[[step, *(f"{scores[key]:.3f}" for key in keys)] for step, scores in history.items()],
    )
    card.save(folder / "README.md")


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
