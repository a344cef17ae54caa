"""The garbage collector rests while a command imports, and only then."""

from __future__ import annotations

import subprocess
import sys

from tests.paths import REPOSITORY


def test_garbage_is_collected_again_once_a_command_is_imported() -> None:
    program = (
        "import gc, common.quick_imports; before = gc.isenabled(); "
        "import search.__main__; print(before, gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], cwd=REPOSITORY, text=True)
    assert printed.split() == ["False", "True", "True"]
