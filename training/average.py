"""The mean of the weights of several trainings.

    python -m training.average --models '[runs/hmde-seed-42, runs/hmde-seed-43]' --output runs/hmde-mean

`make release` makes two such means: of two seeds, and of what was trained on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hmde.common.threads

import torch
from torch import Tensor

from hmde.common.command_line import options_from, run
from hmde.common.device import device, dtype_of
from hmde.common.files import check_is_new, folder_written_whole
from hmde.common.numbers import PositiveInt
from hmde.common.saved_models import check_is_hmde
from hmde.release.difference import saved_tokenizer_options
from modeling_hmde import HMDEConfig, HMDEForDocumentEmbedding, HMDETokenizer
from training.data.articles import load_articles
from training.data.dev_set import DevSet
from training.model_card import write_average_card

DEV_CONCEPTS = 200  # with fewer, models of one kind cannot be told apart


@dataclass
class Average:
    """Write the mean of the weights of several HMDEs (model soups; Wortsman et al., ICML 2022).

    Trainings that began with the same sentence encoder stay near each other, so the mean of their weights is a good
    model too, on average a better one than each of them.
    """

    models: list[str]
    """Folders of two HMDEs or more, of one architecture and with tokenizers of the same options. With `max_sentences`,
    they may read different numbers of sentences."""

    output: str
    """Folder to write. Its card quotes what the models' cards say about their training."""

    corpus: str | None = None
    """Output of `python -m training.corpus`. The mean and each model are compared on its dev concepts, for the card."""

    max_sentences: PositiveInt | None = None
    """Most sentences of a document that the mean reads; as the models if not given. Training on short documents is
    quick, and a document encoder without positions reads longer ones too."""


def main(argv: list[str] | None = None) -> None:
    """
    Raises:
        ValueError: there are fewer than two models, one is no HMDE, they differ in more than their weights, the output
            exists, the corpus has no dev concept in two languages, or the models have learned positions for fewer
            sentences than `max_sentences`.
    """
    options = options_from(Average, argv)
    models, output = options.models, options.output
    if len(models) < 2:
        raise ValueError(f"models is {models}; name two folders at least")
    check_is_new(output)
    for each in models:
        check_is_hmde("models", each)
    config = HMDEConfig.from_pretrained(models[0])
    may_differ = options.max_sentences is not None and not config.document_positions
    kept: dict[str, Any] = {"max_sentences": config.max_sentences} if may_differ else {}
    vocabulary = HMDETokenizer.from_pretrained(models[0]).get_vocab()
    for other in models[1:]:
        architectures = HMDEConfig.from_pretrained(other, **kept).to_diff_dict(), config.to_diff_dict()
        tokenizers = [saved_tokenizer_options(Path(model)) | kept for model in (other, models[0])]
        if different := differing(*architectures) | differing(*tokenizers):
            raise ValueError(
                f"{other} and {models[0]} differ in more than their weights: {', '.join(sorted(different))}; name "
                "models of one kind, or save one of them with the options of the other"
            )
        if HMDETokenizer.from_pretrained(other).get_vocab() != vocabulary:
            raise ValueError(f"{other} and {models[0]} have different vocabularies; name models of one kind")
    max_sentences = options.max_sentences or config.max_sentences
    if config.document_positions and max_sentences > config.max_sentences:
        raise ValueError(
            f"max_sentences is {max_sentences}, but {models[0]} has learned positions for {config.max_sentences} "
            "sentences; give no more"
        )
    tokenizer = HMDETokenizer.from_pretrained(models[0], max_sentences=max_sentences)
    dev_set = DevSet(load_articles(Path(options.corpus)), DEV_CONCEPTS, seed=42) if options.corpus is not None else None
    mean = mean_of(models)
    with folder_written_whole(output) as folder:
        mean.config.max_sentences = max_sentences
        mean.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        scores = {}
        if dev_set is not None:
            for name, path in [*zip(models, models), ("their mean", str(folder))]:
                model = HMDEForDocumentEmbedding.from_pretrained(path, dtype=dtype_of("auto"))
                model.to(device())  # type: ignore[arg-type]
                scores[name] = dev_set.evaluate(model, tokenizer)
        write_average_card(folder, output, mean.config, models, scores, DEV_CONCEPTS)
    print(f"wrote {output}")


def differing(options: dict[str, Any], others: dict[str, Any]) -> set[str]:
    """The names of what only one of two models has, or has otherwise."""
    absent = object()
    return {name for name in options | others if options.get(name, absent) != others.get(name, absent)}


def mean_of(models: list[str]) -> HMDEForDocumentEmbedding:
    """The mean of the weights, in float32.

    Raises:
        ValueError: the models are rotated, and not all alike.
    """
    mean: dict[str, Tensor] = {}
    rotation = None
    for each in models:
        model = HMDEForDocumentEmbedding.from_pretrained(each, dtype=torch.float32)
        if model.config.rotation:
            rotation = model.hmde.rotation.weight if rotation is None else rotation
            if not torch.equal(model.hmde.rotation.weight, rotation):
                raise ValueError(
                    f"{each} and {models[0]} are rotated in different ways, and the mean of two rotations is none; "
                    "average the models as they were before that, and rotate the mean"
                )
        for name, weight in model.state_dict().items():
            mean[name] = mean.get(name, 0) + weight / len(models)
    model.load_state_dict(mean)
    return model


if __name__ == "__main__":
    run(main)
