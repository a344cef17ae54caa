"""Turn the vectors of an HMDE so that they may be cut.

    python -m replications.hmde_small.rotate --model runs/hmde --corpus runs/corpus --output runs/hmde-rotated

The principal components of sentence vectors become the dimensions, the largest first, so that the first numbers of a
vector tell most. That is a rotation: cosines of whole vectors stay as they are, and vectors of documents, sentences and
queries stay in one space. Nothing is trained.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import hmde.common.threads

import torch
from torch import Tensor

from hmde.common.command_line import options_from, run
from hmde.common.device import device, dtype_of
from hmde.common.files import check_is_new, folder_written_whole, write_text
from hmde.common.numbers import PositiveInt, Seed
from hmde.common.saved_models import check_is_hmde, load_hmde
from modeling_hmde import HMDEForDocumentEmbedding
from modeling_hmde.modeling_hmde import Rotation
from training.data.articles import load_articles, rows_of_split
from training.hub import upload_folder
from training.model_card import card_of


@dataclass(kw_only=True)
class Rotate:
    """Turn the vectors of an HMDE so that they may be cut."""

    model: str
    """Folder or Hub name of the HMDE."""

    corpus: str
    """Output of `python -m training.corpus`. Sentences of its documents for training are what is to be told apart."""

    output: str
    """Folder to write."""

    sizes: list[PositiveInt] = field(default_factory=lambda: [128])
    """To how many numbers the vectors may be cut. An index cuts the vectors of sentences to the smallest of these; with
    none, it keeps all."""

    max_documents: PositiveInt = 1000
    """How many documents are read, as evenly from all languages as there are enough."""

    seed: Seed = 42
    """Seed of the draw."""

    push_to_hub: str | None = None
    """Repository to upload the folder to."""


def main(argv: list[str] | None = None) -> None:
    """
    Raises:
        ValueError: the model is no HMDE, a size is not below that of vectors, or the output exists.
    """
    options = options_from(Rotate, argv)
    check_is_new(options.output)
    check_is_hmde("model", options.model)
    reader, tokenizer = load_hmde(options.model, dtype_of("auto"))
    hidden = reader.config.hidden_size
    if max(options.sizes, default=0) >= hidden:
        raise ValueError(f"sizes are {options.sizes}, but vectors have {hidden} numbers; choose smaller ones")
    documents = draw_documents(Path(options.corpus), "train", options.max_documents, options.seed)
    texts, languages = map(list, zip(*documents))
    reader.to(device())  # type: ignore[arg-type]
    read = reader.encode_documents(texts, tokenizer, language=languages, sentences=True, show_progress_bar=True)[1]
    vectors = torch.cat([document.vectors for document in read])
    components = principal_components(vectors)
    model, _ = load_hmde(options.model, torch.float32)
    rotate(model, components, options.sizes)
    squares = (vectors @ components.T).square().mean(dim=0)
    sizes = options.sizes or [hidden // 2]
    shares = ", ".join(f"{size} numbers keep {float(squares[:size].sum()):.3f}" for size in sizes)
    kept = f"{shares} of the squared length of {len(vectors)} sentence vectors"
    with folder_written_whole(options.output) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if (card := card_of(options.model)) is not None:  # whose examples load the model by its new name
            text = str(card).replace(f'"{options.model}"', f'"{options.push_to_hub or options.output}"').rstrip()
            change = f"## Vectors may be cut\n\nA rotation puts first what tells most: {kept}.\n"
            write_text(folder / "README.md", f"{text}\n\n{change}")
    print(kept)
    if options.push_to_hub is not None:
        upload_folder(options.output, options.push_to_hub)


def draw_documents(corpus: Path, split: str, count: int, seed: int) -> list[tuple[str, str]]:
    """`count` texts of a split and their languages, as evenly from all languages as there are enough, or all texts.

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


def principal_components(vectors: Tensor) -> Tensor:
    """(vectors, hidden), L2-normalised -> (hidden, hidden), an orthogonal matrix, float32, whose rows are the
    directions in which the vectors are longest. Their mean is not taken off, because a cosine counts it."""
    eigenvectors = torch.linalg.eigh(vectors.double().T @ vectors.double()).eigenvectors
    return eigenvectors.T.flip(0).float()


@torch.no_grad()
def rotate(model: HMDEForDocumentEmbedding, components: Tensor, sizes: list[int]) -> None:
    """Turn all that the model gives by a matrix (hidden, hidden), after its own rotation if it has one."""
    own = model.hmde.rotation.weight if model.config.rotation else torch.eye(len(components))
    model.config.rotation, model.config.truncate_dims = True, sorted(sizes, reverse=True)
    model.hmde.rotation = Rotation(model.config)
    model.hmde.rotation.weight.copy_(components @ own)


if __name__ == "__main__":
    run(main)
