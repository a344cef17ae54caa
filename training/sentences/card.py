"""The model card of a sentence encoder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from huggingface_hub import EvalResult

from training.loop.loop import Progress
from training.model_card import TEMPLATES, as_yaml, card_data, write_card
from training.sentences.recipe import PairsOptions

P_AT_1 = "The share of dev sentences whose nearest one in the other language is their translation, mean of both ways"
ABOUT = "A multilingual sentence encoder, trained on pairs of sentences that are translations of each other."
POOLING = {"cls": "the hidden state of its first token", "mean": "the mean of the hidden states of its tokens"}


def write_sentence_card(
    recipe: PairsOptions,
    folder: Path,
    progress: Progress,
    *,
    about: str = ABOUT,
    score: str = "p_at_1",
    measure: str = P_AT_1,
) -> None:
    """Write `README.md`, with metadata that the Hub accepts.

    Args:
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
