"""The files under configuration/accelerate are what Accelerate reads."""

from __future__ import annotations

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from tests.paths import REPOSITORY

FOLDER = REPOSITORY / "configuration" / "accelerate"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_accelerate_knows_every_key(path):
    config = load_config_from_file(str(path))  # raises on an unknown key
    assert config.num_processes >= config.num_machines


def test_the_files_are_there():
    assert {path.name for path in FOLDER.iterdir()} == {
        *("one-device.yaml", "ddp.yaml", "fsdp2.yaml", "two-nodes.yaml", "slurm.sh")
    }
