"""Fit the sentence head of an HMDE: vectors of sentences from the pass that makes the document's.

    python -m training.sentence_head --model runs/hmde-small --corpus runs/corpus --output runs/hmde-two-scales

A model that reads passages needs a second pass for the vectors of sentences, each read by itself. The head learns these
from what the first pass knows, by least squares over the sentences of the corpus: no gradient, no learning rate, one
reading of the documents. All other weights stay as they are, and so do the vectors of documents and queries.

Least squares draws what it cannot tell towards the mean, and vectors near the mean are near all queries. So what it
predicts is scaled around the mean until it varies as much as the vectors that it learns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import common.terminal
import common.threads

import torch
from torch import Tensor

from common.command_line import options_from, run
from common.device import device, dtype_of
from common.files import check_is_new, folder_written_whole
from common.numbers import PositiveFloat, PositiveInt
from common.progress import progress_bar
from common.saved_models import load_hmde, save_changed
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.packing_hmde import padded_batches
from modeling_hmde.sentence_head_hmde import SentenceHead
from training.data.articles import load_articles, rows_of_split

DOCUMENTS_AT_ONCE = 64
MAX_TOKENS = 16_384


@dataclass(kw_only=True)
class SentenceHeadRecipe:
    """Fit the sentence head of an HMDE."""

    model: str
    """Folder or Hub name of an HMDE that reads passages."""

    corpus: str
    """Output of `python -m training.corpus`. Its documents for training are read, without their triples."""

    output: str
    """Folder to write."""

    max_documents: PositiveInt = 6000
    """How many documents are read, as evenly from all languages as there are enough."""

    max_dev_documents: PositiveInt = 200
    """How many dev documents show what the head has learned, likewise."""

    ridge: PositiveFloat = 0.01
    """How much the head is held near 0, as a share of the mean variance of what it reads."""

    seed: int = 42
    """Seed of the draw."""


@dataclass
class Moments:
    """Sums over sentences, float64, from which least squares follows.

    Args:
        inputs, targets: how many numbers a sentence's states and its vector have.
    """

    inputs: int
    targets: int
    count: int = 0
    sums: Tensor = field(init=False)
    """(inputs + targets,)"""
    products: Tensor = field(init=False)
    """(inputs, inputs + targets), of the states with all"""
    squares: float = 0.0
    """The sum of the squared targets."""

    def __post_init__(self) -> None:
        self.sums = torch.zeros(self.inputs + self.targets, dtype=torch.float64)
        self.products = torch.zeros(self.inputs, self.inputs + self.targets, dtype=torch.float64)

    def add(self, states: Tensor, vectors: Tensor) -> None:
        """
        Args:
            states: (sentences, inputs).
            vectors: (sentences, targets).
        """
        both = torch.cat([states, vectors], dim=1).float().cpu()
        self.count += len(both)
        self.sums += both.sum(dim=0, dtype=torch.float64)
        self.products += both[:, : self.inputs].T @ both
        self.squares += float(both[:, self.inputs :].double().square().sum())


def least_squares(moments: Moments, ridge: float) -> tuple[Tensor, Tensor]:
    """Weight (targets, inputs) and bias (targets,), float64, of the linear map with the least squared error, scaled
    around the mean until its results vary as much as the targets.

    Args:
        ridge: as in SentenceHeadRecipe.
    """
    means = moments.sums / moments.count
    products = moments.products / moments.count - means[: moments.inputs, None] * means
    covariance, cross = products.split([moments.inputs, moments.targets], dim=1)
    held = covariance + ridge * covariance.diagonal().mean() * torch.eye(moments.inputs, dtype=torch.float64)
    solution = torch.linalg.solve(held, cross)
    input_means, target_means = means.split([moments.inputs, moments.targets])
    variance = moments.squares / moments.count - target_means.square().sum()
    predicted = (solution * (covariance @ solution)).sum()
    solution = solution * (variance / predicted).sqrt()
    return solution.T, target_means - input_means @ solution


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(SentenceHeadRecipe, argv)
    check_is_new(recipe.output)
    reader, tokenizer = load_hmde(recipe.model, dtype_of("auto"))
    if not reader.config.passage_length:
        raise ValueError(f"{recipe.model} reads each sentence by itself, so it needs no head for vectors of sentences")
    train, dev = (
        draw_documents(Path(recipe.corpus), split, count, recipe.seed)
        for split, count in (("train", recipe.max_documents), ("dev", recipe.max_dev_documents))
    )
    reader.to(device())  # type: ignore[arg-type]
    head = fitted_head(reader, tokenizer, train, recipe.ridge)
    share = explained(head, reader, tokenizer, dev)
    learned = f"explains {share:.3f} of the variance of sentence vectors in {len(dev)} dev documents"
    model, _ = load_hmde(recipe.model, torch.float32)
    model.config.sentence_head, model.hmde.sentence_head = True, head
    with folder_written_whole(recipe.output) as folder:
        change = f"A sentence head, fitted by least squares, {learned}."
        save_changed(model, tokenizer, folder, recipe.model, recipe.output, "Sentence head", change)
    print(f"the head {learned}")


def draw_documents(corpus: Path, split: str, count: int, seed: int) -> list[tuple[str, str]]:
    """`count` texts and their languages, or all that there are.

    Raises:
        ValueError: the corpus has no article of the split.
    """
    drawn = []
    for language, articles in load_articles(corpus).items():
        texts = rows_of_split(articles, split)["text"]
        order = Random(f"{seed}-{language}").sample(range(len(texts)), len(texts))
        # Documents of different languages take turns, until the count is reached.
        drawn += [(turn, language, texts[row]) for turn, row in enumerate(order[:count])]
    if not drawn:
        raise ValueError(f"{corpus} has no article of the split {split}; see its articles/*.parquet")
    drawn.sort(key=lambda one: one[:2])
    return [(text, language) for _, language, text in drawn[:count]]


@torch.inference_mode()
def states_and_vectors(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[tuple[str, str]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """What the head reads (sentences, inputs), and the vectors of the same sentences read by themselves (sentences,
    hidden), for some documents at a time."""
    with progress_bar("documents", len(documents)) as progress:
        for first in range(0, len(documents), DOCUMENTS_AT_ONCE):
            texts, languages = zip(*documents[first : first + DOCUMENTS_AT_ONCE])
            rows = tokenizer(list(texts), language=list(languages))
            tokens = {name: rows[name] for name in ("input_ids", "sentence_ids")}
            for batch, inputs in padded_batches(tokenizer, tokens, MAX_TOKENS):
                inputs = inputs.to(model.device)
                states = model.hmde.read_sentences(**inputs, with_states=True)[2]
                assert states is not None
                yield states, model.hmde.encode_sentences(**inputs, alone=True)[1]
                progress.update(len(batch))


@torch.no_grad()
def fitted_head(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[tuple[str, str]], ridge: float
) -> SentenceHead:
    """The sentence head that suits a model best on some texts with their languages; float32, on the CPU."""
    head = SentenceHead(model.config)
    moments = Moments(head.in_features, head.out_features)
    for states, vectors in states_and_vectors(model, tokenizer, documents):
        moments.add(states, vectors)
    weight, bias = least_squares(moments, ridge)
    head.weight.copy_(weight)
    head.bias.copy_(bias)
    return head


@torch.no_grad()
def explained(
    head: SentenceHead, model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: list[tuple[str, str]]
) -> float:
    """The squared correlation of what the head gives and what it is to give, over all sentences and numbers."""
    pairs = [
        (head(states.float().cpu()), vectors.float().cpu())
        for states, vectors in states_and_vectors(model, tokenizer, documents)
    ]
    found, wanted = (torch.cat(parts) for parts in zip(*pairs))
    found, wanted = found - found.mean(dim=0), wanted - wanted.mean(dim=0)
    return float(((found * wanted).sum() / (found.norm() * wanted.norm())).square())


if __name__ == "__main__":
    run(main)
