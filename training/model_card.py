"""The README.md of a trained model: what it was made of, how, what was measured, how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError

CARD = """\
---
{{ card_data }}
---

# {{ name }}

A hierarchical multilingual document encoder (HMDE): a multilingual sentence encoder below, a shallow transformer over
its sentence vectors above, trained so that documents on one subject lie side by side whatever their languages. Method:
Galoğlu, Litschko and Glavaš, *A General-Purpose Multilingual Document Encoder*, 2023.

## Use

```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{{ name }}", trust_remote_code=True)
model = AutoModel.from_pretrained("{{ name }}", trust_remote_code=True)

documents = model.encode_documents(["A long document. In any language.", "Ein langes Dokument."], tokenizer)
queries = model.encode_queries(["long documents"], tokenizer)
similarities = queries @ documents.T  # cosines
```

The code in this folder runs on your machine: pin it with `revision="<commit>"`.

## What it was made of

| | |
|---|---|
| sentence encoder | {{ base_model }} |
| document encoder | {{ document_encoder }} |
| longest document | {{ config.max_sentences }} sentences of {{ config.max_sentence_length }} tokens |
| training languages | {{ languages }} |
| training triples | {{ num_triples }} |
| optimizer steps of the kept model | {{ best_step }} of {{ steps }} |

The whole recipe:

```yaml
{{ recipe }}
```

## Results

Mean reciprocal rank of a dev concept's document in another language, in a pool of up to {{ num_concepts }} concepts:
`document` when its document is the query, `title` when its title is.

| | document | title | mean |
|---|---|---|---|
{% for step, scores in history.items() -%}
| {{ "before training" if step == 0 else "step %d" % step }} | {{ "%.3f" | format(scores.document_mrr) }} |\
 {{ "%.3f" | format(scores.title_mrr) }} | {{ "%.3f" | format(scores.mrr) }} |
{% endfor %}
## Limits and bias

The model serves the languages of its sentence encoder, and is weaker in languages and scripts of which that encoder has
seen little. What a document says after the longest length above is not read. The model has not been tested for social
bias; a sentence encoder's biases can be expected to show in it.
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
        language=sorted(statistics["articles"]),
        license="apache-2.0",
        library_name="transformers",
        pipeline_tag="feature-extraction",
        tags=["hmde", "document-embeddings", "multilingual", "cross-lingual-retrieval"],
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
    card = ModelCard.from_template(
        data,
        template_str=CARD,
        name=name,
        base_model=base_model or recipe["sentence_encoder"],
        document_encoder=(
            f"{config.num_document_layers} layers, {config.num_document_attention_heads} heads, width "
            f"{config.hidden_size}, {config.document_norm}-norm"
        ),
        config=config,
        languages=", ".join(sorted(statistics["articles"])),
        num_triples=statistics["triples"]["train"],
        num_concepts=recipe["eval_concepts"],
        best_step=best_step,
        steps=max(history),
        history=history,
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).strip(),
    )
    card.save(folder / "README.md")


def base_model_of(sentence_encoder: str) -> str | None:
    """The Hub name of a sentence encoder: itself, or for a folder the base model that its own card names."""
    if not Path(sentence_encoder).is_dir():
        return sentence_encoder
    card = Path(sentence_encoder) / "README.md"
    try:
        return ModelCard.load(card).data.get("base_model") if card.exists() else None
    except (ValueError, HFValidationError):  # a README without metadata
        return None
