"""Attack the code, and print how many attacks it withstood.

    make attack
    python -m tests.attack --minutes 20 --seed 7 --areas '[pretraining, texts]'

An area is a function that makes one attack from a random generator and an empty folder. It returns what it did, and
raises where the code did not withstand: a wrong result, a half-written file, an error without a sentence. Areas take
turns until the time is up. A failure is printed with the command that repeats it.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

from rich.console import Console
from rich.table import Table

from common.command_line import options_from, run
from tests.attack import (
    checkpoints,
    corpora,
    demos,
    encodings,
    files,
    fuzz,
    indexes,
    models,
    pretraining,
    secrets,
    signals,
    tables,
    texts,
    vectors,
)

Attack = Callable[[Random, Path], str]

AREAS: dict[str, Attack] = {
    "pretraining is killed": pretraining.kill,
    "pretraining by two is killed": pretraining.kill_of_two,
    "pretraining is asked to stop": pretraining.ask_to_stop,
    "pretraining twice into one output": pretraining.two_into_one,
    "checkpoints are damaged": checkpoints.damage,
    "two runs share sentence vectors": vectors.share,
    "evaluations share document vectors": vectors.cache,
    "the corpus builder is killed": corpora.kill,
    "an index is killed": indexes.kill,
    "encoding is killed": encodings.kill,
    "documents change while they are encoded": encodings.change,
    "strange files are read": files.read,
    "damaged models are loaded": models.load,
    "hostile tables are encoded": tables.encode,
    "hostile tables are indexed": tables.index,
    **signals.ATTACKS,
    "all scripts, segmentation": fuzz.segment,
    "all scripts, vectors": fuzz.encode,
    "all scripts, index": fuzz.index,
    "all scripts, time": fuzz.grow,
    "texts, sentence by sentence": texts.encode,
    "texts, passages and ModernBERT": texts.encode_in_passages,
    "texts, ONNX Runtime": texts.encode_by_onnx,
    "tokens of the Hub": secrets.upload,
}
if texts.E5.exists():
    AREAS["texts, multilingual-e5-small"] = texts.encode_with_e5
if importlib.util.find_spec("gradio"):
    AREAS["the demo, by HTTP"] = demos.ask


@dataclass
class AttackOptions:
    """Attack the code, area by area, until the time is up."""

    areas: list[str] = field(default_factory=lambda: list(AREAS))
    """Names, or beginnings of names; all areas if not given."""

    minutes: float = 10.0
    """Time budget. The attack that is under way is finished."""

    first: int = 0
    """Index of the first attack in each area."""

    attacks: int | None = None
    """Attacks in each area at most."""

    seed: int = 0
    """Seed of everything that is drawn."""


@dataclass
class Tally:
    """Attacks and failures of one area."""

    attacks: int = 0
    failures: list[str] = field(default_factory=list)


def main(argv: list[str] | None = None) -> None:
    options = options_from(AttackOptions, argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes what it starts behind itself deaf to it
    tallies = attack(options)
    table = Table("area", "attacks", "failures", title=f"Attacks, seed {options.seed}", title_justify="left")
    for area, tally in tallies.items():
        table.add_row(area, str(tally.attacks), str(len(tally.failures)))
    Console().print(table)
    if any(tally.failures for tally in tallies.values()):
        sys.exit(1)


def attack(options: AttackOptions) -> dict[str, Tally]:
    """Alternate the areas until the time is up.

    Raises:
        ValueError: there is no such area.
    """
    for name in options.areas:
        if not any(area.startswith(name) for area in AREAS):
            raise ValueError(f"there is no area {name!r}; choose among {', '.join(AREAS)}")
    tallies = {area: Tally() for area in AREAS if area.startswith(tuple(options.areas))}
    ends = time.monotonic() + 60 * options.minutes
    index = options.first
    while time.monotonic() < ends and (options.attacks is None or index < options.first + options.attacks):
        for area, tally in tallies.items():
            with tempfile.TemporaryDirectory() as folder:
                tally.attacks += 1
                try:
                    AREAS[area](Random(f"{options.seed} {area} {index}"), Path(folder))
                except Exception:
                    tally.failures.append(traceback.format_exc())
                    again = f"--seed {options.seed} --areas '[\"{area}\"]' --first {index} --attacks 1"
                    print(f"{area}, attack {index}:\n{tally.failures[-1]}repeat: python -m tests.attack {again}")
        index += 1
    demos.stop()
    return tallies


if __name__ == "__main__":
    run(main)
