"""What tests of the evaluation share."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.tasks import SystemRun


@pytest.fixture
def system_run(tmp_path: Path) -> SystemRun:
    """Of a system on a task, whose vectors are kept in a new folder."""
    return SystemRun(tmp_path, "task", "system", "key", "key")
