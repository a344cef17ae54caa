"""Runs of the evaluation's command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from evaluation.__main__ import main
from tests.paths import written


def evaluated(recipe: dict[str, Any], *arguments: str, command: Callable[[list[str]], None] = main) -> dict[str, Any]:
    """What the command writes to results.json. The recipe is put beside the output."""
    output = Path(recipe["output"])
    command(["--config", str(written(output.with_name("recipe.yaml"), yaml.safe_dump(recipe))), *arguments])
    return json.loads((output / "results.json").read_text(encoding="utf-8"))
