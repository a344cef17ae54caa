"""The README.md of a folder of parallel text, and that of a sentence encoder that was trained on one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from training.loop.loop import Progress
from training.model_card import as_yaml, card_data, dev_result, write_card

TEMPLATES = Path(__file__).parent / "templates"


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


def write_sentence_card(recipe: Any, folder: Path, progress: Progress) -> None:
    """Write the `README.md` of a sentence encoder.

    Args:
        recipe: a `PairsOptions`.
        folder: the finished model's.
    """
    options = asdict(recipe)
    kept_scores = progress.history[progress.kept_step]
    tables = [name.removesuffix("_p_at_1") for name in kept_scores if name.endswith("_p_at_1")]
    columns = [*(f"{table}_p_at_1" for table in tables), "p_at_1"]
    name = recipe.push_to_hub or recipe.output
    dev_name = Path(recipe.corpus).name
    data = card_data(
        options.get("sentence_encoder"),
        language=sorted({language for table in tables for language in table.split("-")}),
        model_name=name,
        pipeline_tag="feature-extraction",
        tags=["sentence-embeddings", "multilingual", "cross-lingual-retrieval"],
        eval_results=[dev_result("translation-retrieval", dev_name, "accuracy", "p_at_1", kept_scores["p_at_1"])],
    )
    write_card(
        folder,
        TEMPLATES / "sentence_encoder.md",
        data,
        name=name,
        start=data.base_model or options.get("sentence_encoder"),
        pooling=options.get("pooling"),
        recipe=as_yaml(options),
        kept_step=progress.kept_step,
        steps=max(progress.history),
        tables=tables,
        rows=[[step, *(f"{scores[column]:.3f}" for column in columns)] for step, scores in progress.history.items()],
    )
