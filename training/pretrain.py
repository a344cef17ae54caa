"""Pretrain an HMDE on triples of documents (paper, section 2.2).

    accelerate launch training/pretrain.py --config configuration/pretrain/sample.yaml [--key value ...]

Reads a corpus of `python -m training.corpus`; writes a model folder ready for the Hub, and beside it a training folder
with checkpoints and logs, from which `--resume true` resumes. On SIGTERM it finishes the step, saves a checkpoint and
exits with code 143. All options: `python training/pretrain.py --help`, or training/pretrain_recipe.py. The same from
Python: training/train.py.
"""

from __future__ import annotations

import hmde.common.threads

from accelerate.utils import set_seed

from hmde.common.command_line import options_from, run
from training.data.triples import Triples
from training.loop.loop import check_options
from training.losses.loss import needs_of_all
from training.model_card import write_model_card
from training.models import build
from training.pretrain_recipe import PretrainRecipe
from training.train import train


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(PretrainRecipe, argv)
    check_options(recipe)
    set_seed(recipe.seed)
    losses = recipe.losses.chosen
    symmetric = needs_of_all(losses).symmetric
    triples = Triples(recipe.corpus, "train", symmetric=symmetric, queries=recipe.queries, seed=recipe.seed)
    model, tokenizer = build(recipe)
    train(model, tokenizer, triples, losses, recipe, write_model_card)


if __name__ == "__main__":
    run(main)
