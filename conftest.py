"""What holds for all tests, in tests/ and beside the code: no network, one thread, the same examples each time."""

from __future__ import annotations

import os
import signal
import sys
import threading

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: no test may reach for the network

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from tqdm import tqdm

pytest_plugins = ["tests.tiny_encoders", "tests.fresh_process"]  # what many tests share

# Programs that tests/project/test_examples.py starts, each in an environment of its own.
collect_ignore = ["tests/integrations"]

# Else tqdm shares a lock with the processes that are forked here; one that is killed while it draws would keep it.
tqdm.set_lock(threading.RLock())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes what it starts behind itself deaf to Ctrl-C
torch.set_num_threads(1)  # the models are too small to share among threads
settings.register_profile("deterministic", derandomize=True, deadline=None, database=None)
settings.load_profile("deterministic")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules without a doctest are not imported to look for one: there are two hundred."""
    if collection_path.suffix != ".py" or collection_path.name.startswith(("test_", "conftest")):
        return None
    return ">>>" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name == "hmde.index.index.Index":
            item.add_marker("lancedb")
    # LanceDB does not survive a fork, so tests that use it in their own process come after those that fork; the longest
    # file of them is not the last, for which one process would wait while the other is done.
    items.sort(key=lambda item: (item.get_closest_marker("lancedb") is not None, item.path.name != "test_update.py"))


@pytest.fixture(autouse=True)
def _fresh_accelerator() -> Iterator[None]:
    """Accelerate keeps its settings in the process; each run of ours is a process of its own."""
    forget_accelerator()  # a fixture of a whole file may have trained a model
    yield
    forget_accelerator()


def forget_accelerator() -> None:
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()


@pytest.fixture(autouse=True)
def _names_in_the_example_of_an_index(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if request.node.name == "hmde.index.index.Index":
        doctest_namespace["folder"] = request.getfixturevalue("tmp_path") / "index"
        doctest_namespace["model"] = str(request.getfixturevalue("model_folder"))
