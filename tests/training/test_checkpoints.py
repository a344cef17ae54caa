"""Runs that are killed, stopped, starved of disk or fed with nonsense, and go on where they were."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from hmde.common.files import folder_written_whole, locked, write_json
from tests.pretraining import FSDP2, as_arguments, goes_on_bit_for_bit, options, run_noting_losses, write_corpus
from training import pretrain
from training.data.kinds import DOCUMENTS
from training.encoder import TwoPathEncoder
from training.loop import loop
from training.loop.checkpoints import (
    broken_file,
    checkpoints,
    load_newest_checkpoint,
    save_checkpoint,
    sigterm_lets_the_step_finish,
)

run = partial(run_noting_losses, pretrain.main)
CHANGES = {"losses.queries.weight": 1.0, "save_steps": 2, "max_steps": 8}


def test_a_killed_run_goes_on_bit_for_bit(corpus_folder, labse, tmp_path):
    """With dropout, drawn queries and chunks, killed somewhere in an epoch."""
    changes = CHANGES | {"max_tokens_per_chunk": 150}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(options(corpus_folder, labse, whole, **changes), tmp_path / "a") == [0]
    step = random.Random(str(changes)).randint(3, 5)
    arguments = options(corpus_folder, labse, killed, **changes)
    assert run(arguments, tmp_path / "b", at=step, signal_number=signal.SIGKILL) == [-signal.SIGKILL]
    assert not killed.exists()
    (tmp_path / "b").unlink()
    assert run([*arguments, "--resume", "true"], tmp_path / "b") == [0]

    expected, found = (tmp_path / "a").read_text().splitlines(), (tmp_path / "b").read_text().splitlines()
    assert found == expected[(step - 1) // 2 * 2 :]
    for file in ("checkpoints/step-00000006/model.safetensors", "kept/model.safetensors"):
        before, after = (load_file(tmp_path / f"{name}-training" / file) for name in ("whole", "killed"))
        assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.slow  # as one process, and gradients of two are those of one
@pytest.mark.parametrize("environment", [{}, FSDP2], ids=["ddp", "fsdp2"])
def test_a_killed_run_of_two_processes_goes_on_bit_for_bit(corpus_folder, labse, tmp_path, environment):
    arguments = options(corpus_folder, labse, tmp_path / "model", **CHANGES | {"max_steps": 4, "batch_size": 2})
    goes_on_bit_for_bit(pretrain.main, arguments, tmp_path, processes=2, **environment)


def test_sigterm_saves_and_exits_with_143(corpus_folder, labse, tmp_path):
    arguments = options(corpus_folder, labse, tmp_path / "model", max_steps=6)
    codes = run(arguments, tmp_path / "losses", at=3, signal_number=signal.SIGTERM)
    assert codes == [143]
    assert [path.name for path in checkpoints(tmp_path / "model-training" / "checkpoints")] == ["step-00000003"]
    assert run([*arguments, "--resume", "true"], tmp_path / "losses") == [0]
    assert [line.split()[0] for line in (tmp_path / "losses").read_text().splitlines()] == list("123456")


def test_sigterm_is_asked_for_only_within_the_run():
    accelerator, before = Accelerator(cpu=True), signal.getsignal(signal.SIGTERM)
    with sigterm_lets_the_step_finish(accelerator):
        assert not accelerator.check_trigger()
        os.kill(os.getpid(), signal.SIGTERM)
        assert accelerator.check_trigger()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture(scope="module")
def four_steps(corpus_folder, labse, tmp_path_factory) -> Path:
    """Where a run in `model` has made its four steps, with checkpoints of the third and fourth. Not to be changed."""
    folder = tmp_path_factory.mktemp("four-steps")
    arguments = options(corpus_folder, labse, folder / "model", max_steps=4, save_steps=1)
    assert run(arguments, folder / "losses") == [0]
    assert [path.name for path in checkpoints(folder / "model-training" / "checkpoints")] == [
        "step-00000003",
        "step-00000004",
    ]
    return folder


@pytest.fixture
def finished(four_steps, corpus_folder, labse, tmp_path) -> list[str]:
    """The arguments that go on with a copy of that run."""
    shutil.copytree(four_steps, tmp_path, dirs_exist_ok=True)
    return options(corpus_folder, labse, tmp_path / "model", max_steps=4, save_steps=1, resume="true")


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_a_broken_newest_checkpoint_falls_back_to_the_one_before_it(finished, tmp_path, caplog, damage):
    weights = tmp_path / "model-training" / "checkpoints" / "step-00000004" / "model.safetensors"
    expected = load_file(weights)
    content = bytearray(weights.read_bytes())
    weights.unlink()
    if damage == "cut":
        weights.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        weights.write_bytes(content)
    pretrain.main(finished)
    assert "step-00000004 is broken (model.safetensors is" in caplog.text
    assert all(torch.equal(value, expected[name]) for name, value in load_file(weights).items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": '{"num_document_attention_heads": 2}'}, "architecture was .*heads': 4.* and is .*heads': 2"),
        ({"batch_size": 2}, "batch_size was 4 and is 2"),
        ({"seed": 1}, "seed was 42 and is 1"),
        ({"eval_concepts": 2}, "eval_concepts was 3 and is 2"),  # scores would not compare
    ],
)
def test_another_recipe_is_refused(finished, changes, message):
    with pytest.raises(ValueError, match=message):
        pretrain.main([*finished, *as_arguments(changes)])


def test_another_corpus_and_another_number_of_processes_are_refused(finished, corpus_folder, tmp_path, capfd):
    other = write_corpus(tmp_path, number_of_concepts=11)
    with pytest.raises(ValueError, match=r"corpus was '[0-9a-f]+' and is '[0-9a-f]+'"):
        pretrain.main([*finished, "--corpus", str(other)])
    assert run(finished, tmp_path / "losses", processes=2) == [1, 1]
    assert "number of processes was 1 and is 2" in capfd.readouterr().err


def test_files_in_folders_of_a_checkpoint_are_checked_too(tmp_path, monkeypatch):
    """As FSDP writes them."""

    def save(folder: str) -> None:
        (Path(folder) / "shards").mkdir()
        (Path(folder) / "shards" / "0.bin").write_bytes(b"weights")

    accelerator = Accelerator(cpu=True)
    monkeypatch.setattr(accelerator, "save_state", save)
    save_checkpoint(accelerator, tmp_path, step=1, run={}, keep=1)
    assert broken_file(tmp_path / "step-00000001") is None
    (tmp_path / "step-00000001" / "shards" / "0.bin").write_bytes(b"others")
    assert broken_file(tmp_path / "step-00000001") == "shards/0.bin is not what was written"


def test_the_newest_of_several_whole_checkpoints_is_loaded(tmp_path, monkeypatch):
    accelerator, loaded = Accelerator(cpu=True), []
    monkeypatch.setattr(accelerator, "save_state", lambda folder: (Path(folder) / "0.bin").write_bytes(b"weights"))
    monkeypatch.setattr(accelerator, "load_state", lambda folder, **options: loaded.append(Path(folder).name))
    for step in (1, 2, 3):
        save_checkpoint(accelerator, tmp_path, step, run={"seed": 1}, keep=2)
    load_newest_checkpoint(accelerator, tmp_path, {"seed": 1})
    assert loaded == ["step-00000003"]
    (tmp_path / "step-00000003" / "0.bin").unlink()
    assert broken_file(tmp_path / "step-00000003") == "0.bin is missing"
    load_newest_checkpoint(accelerator, tmp_path, {"seed": 1})
    assert loaded == ["step-00000003", "step-00000002"]


class Process:
    """One of two, as a thread that saves its part of a checkpoint. Each is as late as the calls allow in which the
    processes wait for each other: the main process makes the folder and the manifest, and the other one writes its
    part, only when the one before it waits or has gone on without it."""

    def __init__(self, barrier: threading.Barrier, rank: int) -> None:
        self.barrier, self.is_main_process, self.rank = barrier, rank == 0, rank
        self.place = 0  # calls that it has waited in, or waits in now
        self.moved = threading.Condition()
        self.other: Process

    def wait_for_everyone(self) -> None:
        self.move(self.place + 1)
        self.barrier.wait(timeout=60)

    def move(self, place: int) -> None:
        with self.moved:
            self.place = place
            self.moved.notify_all()

    def until_the_other_waits_or_goes_on(self, place: int) -> None:
        with self.other.moved:  # the time is up only where a call is missing
            self.other.moved.wait_for(lambda: self.other.place >= place, timeout=2)

    def save_state(self, folder: str) -> None:
        if not self.is_main_process and self.place:
            self.until_the_other_waits_or_goes_on(2)
        (Path(folder) / f"{self.rank}.bin").write_bytes(b"weights")


def test_all_processes_have_written_before_a_checkpoint_is_whole(tmp_path, monkeypatch):
    barrier = threading.Barrier(2)
    main, other = (Process(barrier, rank) for rank in range(2))
    main.other, other.other = other, main
    remove, by_main_alone = shutil.rmtree, []
    (tmp_path / "step-00000000").mkdir()

    def made_late(folder: Path) -> Any:
        main.until_the_other_waits_or_goes_on(1)
        return folder_written_whole(folder)

    def written_late(path: Path, content: Any) -> None:
        main.until_the_other_waits_or_goes_on(3)
        by_main_alone.append(path.name)
        write_json(path, content)

    def removed(path: Path, **options: Any) -> None:
        by_main_alone.extend([path.name] if path.parent == tmp_path and path.name[0] != "." else [])
        remove(path, ignore_errors=True)

    monkeypatch.setattr("training.loop.checkpoints.folder_written_whole", made_late)
    monkeypatch.setattr("training.loop.checkpoints.write_json", written_late)
    monkeypatch.setattr(shutil, "rmtree", removed)

    def save(process: Process) -> bool:
        try:
            save_checkpoint(cast(Accelerator, process), tmp_path, step=1, run={}, keep=1)
            return (tmp_path / "step-00000001" / "manifest.json").is_file()
        finally:
            process.move(4)  # it waits no more

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(save, (main, other))] == [True, True]
    manifest = json.loads((tmp_path / "step-00000001" / "manifest.json").read_text())
    assert manifest["files"].keys() == {"0.bin", "1.bin"}
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert by_main_alone == ["manifest.json", "step-00000000"]


def test_a_full_disk_leaves_the_checkpoint_before(corpus_folder, labse, tmp_path, monkeypatch):
    save = Accelerator.save_state

    def fill(accelerator: Accelerator, folder: str) -> None:
        save(accelerator, folder)
        if "step-00000002" in folder:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    arguments = options(corpus_folder, labse, tmp_path / "model", max_steps=3, save_steps=1)
    with monkeypatch.context() as patch:
        patch.setattr(Accelerator, "save_state", fill)
        with pytest.raises(OSError, match=r"step 2 could not be written .*No space left.*step-00000001 is whole"):
            pretrain.main(arguments)
    folder = tmp_path / "model-training" / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["step-00000001"]
    AcceleratorState._reset_state(reset_partial_state=True)
    pretrain.main([*arguments, "--resume", "true"])


def test_a_loss_that_is_not_a_number_stops_the_run_and_names_its_triples(corpus_folder, labse, tmp_path, monkeypatch):
    steps = []
    forward = TwoPathEncoder.forward

    def spoil(encoder, chunk):
        embeddings = forward(encoder, chunk)
        steps.append(1)
        if len(steps) == 3:
            embeddings[DOCUMENTS].data[1] = torch.nan  # the anchor of the second triple
        return embeddings

    monkeypatch.setattr(TwoPathEncoder, "forward", spoil)
    arguments = options(corpus_folder, labse, tmp_path / "model", save_steps=1, gradient_accumulation_steps=1)
    with pytest.raises(FloatingPointError, match=r"document_loss is nan in a batch in which the embeddings of Q\d+ \("):
        pretrain.main(arguments)
    assert [path.name for path in checkpoints(tmp_path / "model-training" / "checkpoints")] == [
        "step-00000001",
        "step-00000002",
    ]


def test_checkpoints_of_an_earlier_run_are_neither_mixed_up_with_those_of_a_new_one_nor_removed(finished, tmp_path):
    """Whose numbers of steps may be higher, so that each new checkpoint would be removed as the oldest."""
    shutil.rmtree(tmp_path / "model")
    before = [path.name for path in checkpoints(tmp_path / "model-training" / "checkpoints")]
    arguments = [*finished[: finished.index("--resume")], "--seed", "7"]
    with pytest.raises(ValueError, match=r"model-training has checkpoints of an earlier run.* remove .*model-training"):
        pretrain.main(arguments)
    assert [path.name for path in checkpoints(tmp_path / "model-training" / "checkpoints")] == before
    shutil.rmtree(tmp_path / "model-training")
    pretrain.main(arguments)


def test_of_two_runs_into_one_output_the_second_is_refused(corpus_folder, labse, tmp_path):
    with locked(tmp_path / "model-training"):
        codes = run(options(corpus_folder, labse, tmp_path / "model", max_steps=1), tmp_path / "losses")
    assert codes == [1]
    assert not (tmp_path / "model").exists()


def test_checkpoints_that_another_run_leaves_until_this_one_has_the_lock_are_seen(
    corpus_folder, labse, tmp_path, monkeypatch
):
    start = loop.accelerator_of

    def start_late(recipe):
        (tmp_path / "model-training" / "checkpoints" / "step-00000004").mkdir(parents=True)
        return start(recipe)

    monkeypatch.setattr(loop, "accelerator_of", start_late)
    with pytest.raises(ValueError, match="has checkpoints of an earlier run"):
        pretrain.main(options(corpus_folder, labse, tmp_path / "model", max_steps=1))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe"])
def test_a_checkpoint_whose_manifest_cannot_be_read_is_a_broken_one(finished, tmp_path, caplog, content):
    (tmp_path / "model-training" / "checkpoints" / "step-00000004" / "manifest.json").write_bytes(content)
    pretrain.main(finished)
    assert "step-00000004 is broken (manifest.json: " in caplog.text
