"""Checkpoints are cut, changed or lost, and runs are resumed with other recipes and corpora."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

from tests.attack.runs import arguments, last_words, run, undisturbed, weights, workshop


def damage(random: Random, folder: Path) -> str:
    """One to three files of a run's checkpoints are damaged. It goes on to the same weights, or refuses in words."""
    expected, _ = undisturbed("nothing")
    output, log = folder / "model", folder / "log"
    training = shutil.copytree(_half_way(), folder / "model-training")
    files = sorted(path for path in (training / "checkpoints").rglob("*") if path.is_file())
    damaged = [_damage(random, path) for path in random.sample(files, random.randint(1, 3))]
    code = run(arguments(output, resume="true"), log)
    if code == 0:
        assert weights(output) == expected, f"other weights after {damaged}"
        return f"went on after {damaged}"
    words = last_words(log)
    assert words.startswith("ValueError: "), f"{words} after {damaged}"
    assert not output.exists()
    return f"refused after {damaged}: {words}"


def _half_way() -> Path:
    """The training folder of a run of four steps, whose recipe says six."""
    output = workshop() / "half-way"
    training = workshop() / "half-way-training"
    if not training.exists():
        assert run(arguments(output, max_steps=6, keep_checkpoints=3), workshop() / "log") == 0
        newest = max((training / "checkpoints").glob("step-*"))
        shutil.rmtree(newest)
        for manifest in (training / "checkpoints").glob("step-*/manifest.json"):
            content = json.loads(manifest.read_text())
            assert content["run"]["max_steps"] == 6
    return training


def _damage(random: Random, path: Path) -> str:
    content = bytearray(path.read_bytes())
    kind = random.choice(["cut", "changed", "empty", "missing"])
    if kind == "cut":
        path.write_bytes(content[: random.randrange(len(content))] if content else b"x")
    elif kind == "changed" and content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        path.write_bytes(content)
    elif kind == "missing":
        path.unlink()
    else:
        path.write_bytes(b"")
    return f"{path.parent.name}/{path.name} {kind}"
