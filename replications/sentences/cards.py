"""The README.md of a folder of parallel text, and that of a sentence encoder that was trained on one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from training.loop.loop import Progress
from training.model_card import as_yaml, card_data, dev_result, write_card

TEMPLATES = Path(__file__).parent / "templates"
P_AT_1 = "The share of dev sentences whose nearest one in the other language is their translation, mean of both ways"
ABOUT = "A multilingual sentence encoder, trained on pairs of sentences that are translations of each other."


def sentence_pairs_card(name: str, recipe: Any, statistics: dict[str, dict[str, int]]) -> str:
    """
    Args:
        name: of the data set.
        recipe: a `SentencePairsRecipe`.
        statistics: by pair of languages: the pairs of each split, and those left out, by reason.
    """
    data = DatasetCardData(
        language=sorted({code for languages in recipe.files for code in languages.split("-")}),
        task_categories=["translation"],
        pretty_name=name,
        configs=[{"config_name": languages, "data_files": f"pairs/{languages}.parquet"} for languages in recipe.files],
    )
    reasons = list(dict.fromkeys(reason for counts in statistics.values() for reason in counts))
    return str(
        DatasetCard.from_template(
            data, str(TEMPLATES / "sentence_pairs.md"), name=name, recipe=recipe, statistics=statistics, reasons=reasons
        )
    )


def write_sentence_card(
    recipe: Any,
    folder: Path,
    progress: Progress,
    *,
    about: str = ABOUT,
    score: str = "p_at_1",
    measure: str = P_AT_1,
    task: str = "translation-retrieval",
) -> None:
    """Write the `README.md` of a sentence encoder.

    Args:
        recipe: a `PairsOptions`.
        folder: the finished model's.
        about: what the model is.
        score: the name of the dev score over all tables.
        measure: what the dev scores are.
        task: what the Hub calls that which was measured.
    """
    options = asdict(recipe)
    kept_scores = progress.history[progress.kept_step]
    tables = [name.removesuffix(f"_{score}") for name in kept_scores if name.endswith(f"_{score}")]
    columns = [*(f"{table}_{score}" for table in tables), score]
    name = recipe.push_to_hub or recipe.output
    data = card_data(
        options.get("sentence_encoder"),
        language=sorted({language for table in tables for language in table.split("-")}),
        model_name=name,
        pipeline_tag="feature-extraction",
        tags=["sentence-embeddings", "multilingual", "cross-lingual-retrieval"],
        eval_results=[dev_result(task, Path(recipe.corpus).name, "accuracy", score, kept_scores[score])],
    )
    write_card(
        folder,
        TEMPLATES / "sentence_encoder.md",
        data,
        name=name,
        about=about,
        start=data.base_model or options.get("sentence_encoder"),
        pooling=options.get("pooling"),
        layer=options.get("sentence_layer"),
        measure=measure,
        own_code=any(folder.glob("modeling_*.py")),
        recipe=as_yaml(options),
        kept_step=progress.kept_step,
        steps=max(progress.history),
        tables=tables,
        rows=[[step, *(f"{scores[column]:.3f}" for column in columns)] for step, scores in progress.history.items()],
    )
