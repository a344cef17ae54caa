"""Code run by a Python that finds nothing of this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_in_a_fresh_process(code: str, *arguments: str, folder: Path) -> str:
    """What the code prints.

    Args:
        arguments: the code's `sys.argv[1:]`.
        folder: where it runs, and keeps what transformers copies.
    """
    found = subprocess.run(
        [sys.executable, "-I", "-c", code, *arguments],
        cwd=folder,
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout
