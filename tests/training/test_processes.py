"""Vectors of two processes, as each of them sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor, nn

from replications.t_mde.losses import mean_of_all_processes
from tests.pretraining import in_processes
from training.data.batches import Batch
from training.loop.distributed import gradients_synchronised, most_of_any_process
from training.loop.processes import rows_of_all_processes, rows_of_other_processes
from training.losses.batch import Documents

CPU = torch.device("cpu")
ROWS = [torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0], [7.0, 8.0]])]
CONCEPTS = {"anchor": [0, 1], "positive": [0, 1], "negative": [7, 8]}


def of_two(compute: Callable[[int], Tensor], folder: Path) -> list[Tensor]:
    """What each of two processes computes."""

    def work(rank: int) -> None:
        dist.init_process_group("gloo")
        torch.save(compute(rank), folder / str(rank))
        dist.barrier()

    assert in_processes(2, work) == [0, 0]
    return [torch.load(folder / str(rank)) for rank in range(2)]


def test_all_rows_are_in_the_order_of_ranks_and_others_without_ones_own(tmp_path: Path) -> None:
    def compute(rank: int) -> Tensor:
        return torch.cat([rows_of_all_processes(ROWS[rank]), rows_of_other_processes(ROWS[rank])])

    for rank, found in enumerate(of_two(compute, tmp_path)):
        assert torch.equal(found, torch.cat([*ROWS, ROWS[1 - rank]]))


def test_a_row_has_the_gradients_of_the_losses_of_all_processes(tmp_path: Path) -> None:
    """Process 0 weighs rows by 1, 2, 3, 4, process 1 by 10 times as much."""

    def compute(rank: int) -> Tensor:
        rows = ROWS[rank].clone().requires_grad_()
        weights = 10**rank * torch.arange(1.0, 5.0)
        (rows_of_all_processes(rows).sum(dim=1) * weights).sum().backward()
        assert rows.grad is not None
        return rows.grad

    found = torch.cat(of_two(compute, tmp_path))
    assert torch.equal(found, 11 * torch.arange(1.0, 5.0).unsqueeze(1).expand(4, 2))


def test_a_mean_is_over_the_values_of_all_processes_or_over_what_they_count(tmp_path: Path) -> None:
    def compute(rank: int) -> Tensor:
        values = torch.tensor([1.0, 2.0, 3.0]) if rank else torch.tensor([10.0])
        means = [
            mean_of_all_processes(values),
            mean_of_all_processes(values, 2 + rank),
            mean_of_all_processes(values, 0),
        ]
        return torch.stack(means)

    for found in of_two(compute, tmp_path):
        torch.testing.assert_close(found, torch.tensor([16 / 4, 16 / 5, 16.0]))


def test_alone_a_process_is_all_there_is() -> None:
    assert torch.equal(rows_of_all_processes(ROWS[0]), ROWS[0])
    assert rows_of_other_processes(ROWS[0]).shape == (0, 2)
    assert float(mean_of_all_processes(torch.tensor([1.0, 3.0]))) == 2
    assert float(mean_of_all_processes(torch.empty(0))) == 0


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(3, 5), (5, 3)])
def test_the_largest_count_is_that_of_any_process(tmp_path: Path, counts: tuple[int, int]) -> None:
    found = of_two(lambda rank: torch.tensor(most_of_any_process(counts[rank], CPU)), tmp_path)
    assert [int(count) for count in found] == [5, 5]


@pytest.mark.parametrize("synchronised", [True, False])
def test_gradients_are_means_over_processes_where_asked_for(tmp_path: Path, synchronised: bool) -> None:
    """The gradient of process 0 is 1, that of process 1 is 3."""

    def compute(rank: int) -> Tensor:
        accelerator = Accelerator(cpu=True)
        encoder = accelerator.prepare(nn.Linear(1, 1, bias=False))
        with gradients_synchronised(accelerator, encoder, synchronised):
            assert accelerator.sync_gradients == synchronised
            encoder(torch.tensor([[1.0 + 2 * rank]])).sum().backward()
        return encoder.module.weight.grad.flatten()

    assert torch.cat(of_two(compute, tmp_path)).tolist() == ([2.0, 2.0] if synchronised else [1.0, 3.0])


def test_after_an_error_the_optimizer_of_the_next_run_steps() -> None:
    """Accelerate keeps whether optimizers step for the whole process, beyond the run."""
    encoder = nn.Linear(1, 1)
    with pytest.raises(ValueError, match="not finite"), gradients_synchronised(Accelerator(cpu=True), encoder, False):
        raise ValueError("the loss is not finite")
    optimizer = Accelerator(cpu=True).prepare(torch.optim.SGD(encoder.parameters(), lr=1.0))
    before = encoder.bias.clone()
    encoder(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert torch.equal(encoder.bias, before - 1)


@pytest.mark.parametrize("hard_negatives", ["own", "all", "none"])
def test_candidates_are_the_documents_of_both_processes_and_all_hard_negatives_where_asked_for(
    tmp_path: Path, hard_negatives: str
) -> None:
    """Row i of process r is [100 r + i], its concept 10 r more than on process 0."""

    def compute(rank: int) -> Tensor:
        concepts = {role: torch.tensor(numbers) + 10 * rank for role, numbers in CONCEPTS.items()}
        vectors = torch.arange(6.0).unsqueeze(1) + 100 * rank
        documents = Documents(vectors, Batch({}, concepts, ["a", "b"]))
        found = documents.candidates("positive", "negative", hard_negatives)  # type: ignore[arg-type]
        assert found.others is not None
        others, other_concepts = found.others
        assert torch.equal(found.positives, vectors[2:4])
        assert torch.equal(found.negatives, vectors[4:])
        return torch.stack([others.flatten(), other_concepts.float()])

    for rank, found in enumerate(of_two(compute, tmp_path)):
        rows, concepts = [2, 3, *([4, 5] if hard_negatives == "all" else [])], [0, 1, 7, 8]
        other = 1 - rank
        assert found[0].tolist() == [row + 100 * other for row in rows]
        assert found[1].tolist() == [concept + 10 * other for concept in concepts[: len(rows)]]
