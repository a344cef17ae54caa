"""What is no number is named."""

from __future__ import annotations

import math

import pytest
import torch

from training.loop.finite import check_grad_norm, check_losses

NAMES = ["Q1", "Q2", "Q3"]


def test_a_loss_that_is_no_number_names_the_examples_whose_embeddings_are_none() -> None:
    embeddings = {"documents": torch.zeros(6, 4), "queries": torch.zeros(3, 4)}
    embeddings["documents"][4, 2] = math.inf  # the second document of the second example
    losses = {"document": torch.tensor(math.nan), "query": torch.tensor(1.0)}
    with pytest.raises(FloatingPointError, match=r"^document is nan in a batch in which the embeddings of Q2 are not"):
        check_losses(losses, embeddings, NAMES)
    embeddings["queries"][2, 0] = math.nan
    with pytest.raises(FloatingPointError, match="the embeddings of Q2; Q3 are not finite"):
        check_losses(losses, embeddings, NAMES)


def test_a_loss_that_is_no_number_though_all_embeddings_are_names_the_whole_batch() -> None:
    message = r"^query is inf in the batch of Q1; Q2; Q3\. Look at these examples, .* start anew under another output"
    with pytest.raises(FloatingPointError, match=message):
        check_losses({"query": torch.tensor(math.inf)}, {"queries": torch.zeros(3, 4)}, NAMES)


def test_losses_that_are_numbers_are_let_through_and_so_is_a_gradient_of_any_length() -> None:
    check_losses({"query": torch.tensor(2.0)}, {"queries": torch.full((3, 4), math.nan)}, NAMES)
    check_grad_norm(1e30, NAMES)
    check_grad_norm(0.0, NAMES)


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_gradient_that_is_no_number_or_infinite_names_the_batch(norm: float) -> None:
    with pytest.raises(FloatingPointError, match=rf"the gradient's norm is {norm} after the batch of Q1; Q2; Q3\."):
        check_grad_norm(norm, NAMES)
