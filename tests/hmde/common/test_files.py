"""Files and folders are there whole or not at all, whoever else writes them and however a writer ends."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hmde.common.files import file_written_whole, folder_written_whole, locked, write_json, write_text
from tests.paths import REPOSITORY

CONTEXT = multiprocessing.get_context("fork")


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def exit_codes(*functions: Callable[[], None]) -> list[int | None]:
    """Of as many processes, each of which calls its function."""
    processes = [CONTEXT.Process(target=function) for function in functions]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


@pytest.mark.parametrize("written_whole", [file_written_whole, folder_written_whole])
def test_an_error_leaves_what_was_there_and_nothing_beside_it(written_whole, tmp_path):
    target = tmp_path / "made" / "target"
    with pytest.raises(RuntimeError, match="no"), written_whole(target):
        raise RuntimeError("no")
    assert names_in(tmp_path / "made") == set()


@pytest.mark.parametrize("written_whole", [file_written_whole, folder_written_whole])
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc] PytorchStreamWriter failed writing file data/0"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_named_where_a_library_does_not_name_it(written_whole, error, tmp_path):
    named = pytest.raises(OSError, match=r"the disk of .*/target is full; make room")
    with named as raised, written_whole(tmp_path / "target"):
        raise error
    assert raised.value.errno == errno.ENOSPC
    assert names_in(tmp_path) == set()


def test_a_file_is_as_open_to_others_as_any_other(tmp_path):
    (tmp_path / "plain").write_text("")
    (tmp_path / "plain folder").mkdir()
    write_text(tmp_path / "file", "")
    with folder_written_whole(tmp_path / "folder") as partial:
        save_file({"weight": torch.zeros(1)}, partial / "model.safetensors")  # which hides it from others
    for file in (tmp_path / "file", tmp_path / "folder" / "model.safetensors"):
        assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "folder").stat().st_mode == (tmp_path / "plain folder").stat().st_mode


def write_letters(folder: Path, letter: str) -> None:
    with folder_written_whole(folder) as partial:
        for name in range(8):
            (partial / str(name)).write_text(letter)


STEPS = [
    "remove half of an earlier one",
    "chmod",
    "remove an old one",
    "rename the old one",
    "rename the new one",
    "end",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_writer_that_is_stopped_as_it_begins_or_ends_leaves_the_old_folder_or_the_new_one(
    tmp_path, monkeypatch, step
):
    write_letters(tmp_path / "folder", "a")
    steps = iter([one for one in STEPS if one != "chmod"])

    def stop(*_, **__):
        raise KeyboardInterrupt

    def stopped(function):
        return lambda *arguments, **options: (stop if next(steps, "") == step else function)(*arguments, **options)

    with monkeypatch.context() as patched:
        if step == "chmod":
            patched.setattr(Path, "chmod", stop)
        else:
            patched.setattr(os, "replace", stopped(os.replace))
            patched.setattr(shutil, "rmtree", stopped(shutil.rmtree))
        with pytest.raises(KeyboardInterrupt):
            write_letters(tmp_path / "folder", "b")
    assert {path.read_text() for path in (tmp_path / "folder").iterdir()} == {"b" if step == "end" else "a"}
    assert names_in(tmp_path) == {"folder", *([".folder.replaced"] if step == "end" else [])}
    write_letters(tmp_path / "folder", "c")
    assert names_in(tmp_path) == {"folder"}


def test_of_two_writers_of_one_folder_each_writes_all_of_it(tmp_path, monkeypatch):
    waits = CONTEXT.Event()
    monkeypatch.setattr("hmde.common.files.logger.warning", lambda *_: waits.set())
    other = CONTEXT.Process(target=write_letters, args=(tmp_path / "folder", "b"))
    with folder_written_whole(tmp_path / "folder") as partial:
        (partial / "a").write_text("a")
        other.start()
        waits.wait()  # the other one does, while this one writes
        (partial / "0").write_text("a")
    other.join()
    assert other.exitcode == 0
    assert {path.name: path.read_text() for path in (tmp_path / "folder").iterdir()} == dict.fromkeys("01234567", "b")
    assert names_in(tmp_path) == {"folder"}


def test_what_a_killed_writer_leaves_the_next_one_removes(tmp_path):
    def write_and_die() -> None:
        with folder_written_whole(tmp_path / "folder") as partial:
            (partial / "half").write_text("")
            os.kill(os.getpid(), signal.SIGKILL)

    assert exit_codes(write_and_die) == [-signal.SIGKILL]
    assert names_in(tmp_path) == {".folder.partial", ".folder.lock"}
    write_letters(tmp_path / "folder", "a")
    assert names_in(tmp_path) == {"folder"}
    assert "half" not in names_in(tmp_path / "folder")


def test_what_a_killed_writer_leaves_is_not_found_among_the_finished_ones_nor_written_over(tmp_path):
    def write_and_die() -> None:
        with file_written_whole(tmp_path / "one.parquet") as partial:
            partial.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

    assert exit_codes(write_and_die) == [-signal.SIGKILL]
    assert any(path.suffix == ".partial" for path in tmp_path.iterdir())
    assert not list(tmp_path.glob("*.parquet"))
    with file_written_whole(tmp_path / "one.parquet") as partial:
        assert not partial.exists()  # an engine that copies to a file that exists makes a temporary one of its own
        partial.write_text("whole")
    assert names_in(tmp_path) == {"one.parquet"}


def test_a_lock_that_is_held_is_refused_to_those_who_do_not_wait(tmp_path):
    def refused() -> None:
        with (
            pytest.raises(ValueError, match=r"another process is writing .*output"),
            locked(tmp_path / "output", wait=False),
        ):
            pass

    with locked(tmp_path / "output"):
        assert exit_codes(refused) == [0]


def test_of_many_processes_that_take_one_lock_only_one_has_it_and_none_is_left(tmp_path):
    file = tmp_path / "count"
    file.write_text("0")

    def add_ones() -> None:
        for _ in range(30):
            with locked(file):
                file.write_text(str(int(file.read_text()) + 1))

    assert exit_codes(*[add_ones] * 4) == [0] * 4
    assert file.read_text() == "120"
    assert names_in(tmp_path) == {"count"}


def test_a_lock_inside_the_same_lock_leaves_it_held_until_the_outer_block_ends(tmp_path):
    def take() -> None:
        with locked(tmp_path / "output", wait=False):
            pass

    with locked(tmp_path / "output"):
        take()
        assert names_in(tmp_path) == {".output.lock"}
        assert exit_codes(take) == [1]
    assert names_in(tmp_path) == set()


def test_a_folder_that_is_written_anew_has_nothing_of_the_one_before_and_is_whole_whenever_it_is_there(
    tmp_path, monkeypatch
):
    folder = tmp_path / "folder"
    seen = []
    move, remove = os.replace, shutil.rmtree

    def look() -> None:
        if folder.exists():
            seen.append(names_in(folder))

    def replace(*paths: object) -> None:
        move(*paths)
        look()

    def rmtree(path: Path, **options: object) -> None:
        assert path != folder, "a reader would see a part of it"
        remove(path, **options)
        look()

    write_letters(folder, "a")
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with folder_written_whole(folder) as partial:
        (partial / "new").write_text("")
    assert names_in(folder) == {"new"}
    assert names_in(tmp_path) == {"folder"}
    before = {str(name) for name in range(8)}
    assert [names for names in seen if names not in (before, {"new"})] == []
    assert before in seen  # while the new one was written


def test_a_lock_is_open_to_other_users(tmp_path):
    before = os.umask(0)
    try:
        with locked(tmp_path / "output"):
            assert (tmp_path / ".output.lock").stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)


def test_a_writer_that_removes_its_own_folder_ends_with_its_own_error(tmp_path):
    def remove(partial: Path) -> None:
        partial.rmdir()
        raise RuntimeError("my own")

    with pytest.raises(RuntimeError, match="my own"), folder_written_whole(tmp_path / "folder") as partial:
        remove(partial)


def test_text_is_utf_8_in_every_locale(tmp_path):
    program = "import sys; from hmde.common.files import write_text; write_text(sys.argv[1], chr(228))"
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", program, tmp_path / "text"], check=True, env=environment)
    assert (tmp_path / "text").read_bytes() == "ä".encode()


def test_json_is_written_with_a_line_for_each_value_so_that_versions_of_it_compare(tmp_path):
    write_json(tmp_path / "a.json", {"name": "ä", "values": [1, 2]})
    expected = '{\n  "name": "ä",\n  "values": [\n    1,\n    2\n  ]\n}\n'
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == expected
