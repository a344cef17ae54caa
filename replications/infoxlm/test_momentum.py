"""The momentum encoder follows the trained one, and its queue keeps the newest vectors."""

from __future__ import annotations

import torch
from torch import nn

from replications.infoxlm.momentum import MomentumQueue
from training.loop.distributed import follow


def make_queue(encoder: nn.Module) -> MomentumQueue:
    return MomentumQueue(encoder, size=5, hidden_size=3, momentum=0.9, device=torch.device("cpu"))


def test_the_queue_keeps_the_newest_vectors_and_their_concepts() -> None:
    queue = make_queue(nn.Linear(2, 3))
    assert queue.vectors.shape == (0, 3)
    rows = torch.arange(24, dtype=torch.float16).view(8, 3).requires_grad_()
    queue.push(rows[:2], torch.tensor([0, 1]))
    assert queue.concepts.tolist() == [0, 1]
    queue.push(rows[2:], torch.tensor([2, 3, 4, 5, 6, 7]))
    assert queue.concepts.tolist() == [3, 4, 5, 6, 7]
    assert queue.concepts.dtype == torch.long
    torch.testing.assert_close(queue.vectors, rows[3:].detach().float())
    assert not queue.vectors.requires_grad


def test_the_momentum_encoder_is_a_copy_that_follows_step_by_step_without_dropout_or_gradients() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(2, 3), nn.Dropout()).train()
    start = [weight.detach().clone() for weight in encoder.parameters()]
    queue = make_queue(encoder)
    assert not any(module.training for module in queue.encoder.modules())
    assert not any(weight.requires_grad for weight in queue.encoder.parameters())
    assert encoder.training
    assert all(weight.requires_grad for weight in encoder.parameters())
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(1)
    for before, followed in zip(start, queue.encoder.parameters()):
        torch.testing.assert_close(followed, before)
    queue.after_step(encoder)
    for before, followed in zip(start, queue.encoder.parameters()):
        torch.testing.assert_close(followed, before + 0.1)  # a tenth of the way


def test_weights_that_are_trained_may_follow_too() -> None:
    slow, fast = nn.Linear(2, 3), nn.Linear(2, 3)
    expected = 0.75 * slow.weight + 0.25 * fast.weight
    follow(slow, fast, momentum=0.75)
    torch.testing.assert_close(slow.weight, expected)
    assert slow.weight.requires_grad
    assert fast.weight.grad is None


def test_a_queue_goes_on_where_it_was_saved() -> None:
    torch.manual_seed(0)
    saved = make_queue(nn.Linear(2, 3))
    saved.push(torch.randn(4, 3), torch.arange(4))
    found = make_queue(nn.Linear(2, 3))
    found.load_state_dict(saved.state_dict())
    torch.testing.assert_close(found.vectors, saved.vectors)
    assert found.concepts.tolist() == [0, 1, 2, 3]
    for one, other in zip(saved.encoder.parameters(), found.encoder.parameters()):
        torch.testing.assert_close(one, other)


def test_weights_that_are_not_trained_are_not_saved_with_the_queue() -> None:
    """They are those with which the queue of a resumed run starts."""
    encoder = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
    encoder[0].requires_grad_(False)
    saved, found = make_queue(encoder), make_queue(encoder)
    with torch.no_grad():
        encoder[1].weight.add_(1)
    saved.after_step(encoder)
    state = saved.state_dict()
    assert state["encoder"].keys() == {"1.weight", "1.bias"}
    found.load_state_dict(state)
    for one, other in zip(saved.encoder.parameters(), found.encoder.parameters()):
        torch.testing.assert_close(one, other)
