"""How a saved model is loaded: what is refused before it takes memory, and where its code is found."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path


def be_found_by_dill(module: str) -> None:
    """Make a module that transformers loaded from a model's folder an attribute of its package, as an import does.

    `datasets.map` tells functions apart by dill, which looks for classes there. Where it does not find one, it copies
    the class with all that the class uses, which takes minutes.
    """
    package, _, name = module.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], name, sys.modules[module])


def refuse_misspelt(names: Iterable[str], options: Collection[str]) -> None:
    """
    Args:
        names: of arguments that are no options of HMDE's tokenizer. transformers passes some, and may add more.

    Raises:
        ValueError: one is nearly an option.
    """
    for name in names:
        if similar := get_close_matches(name, options, cutoff=0.75):
            raise ValueError(f"the tokenizer has no option {name}; did you mean {similar[0]}?")


def check_weight_map(folder: Path) -> None:
    """
    Raises:
        ValueError: the weights of a folder are said to be in a file outside of it.
    """
    for index in (*folder.glob("*.safetensors.index.json"), *folder.glob("*.bin.index.json")):
        for file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values():
            if Path(file).name != file:
                raise ValueError(f"{index} says that weights are in {file!r}, which is no file of its folder")


def check_weights(name: str, missing: Iterable[str], head: str) -> None:
    """
    Args:
        missing: names of weights that the folder lacks, or has in another shape.
        head: how the names of those begin that may be missing, because they are trained anew.

    Raises:
        ValueError: others are missing, which would be drawn at random.
    """
    lacking = sorted(weight for weight in missing if not weight.startswith(head))
    if lacking:
        examples = ", ".join(lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        raise ValueError(
            f"{name} lacks {len(lacking)} weights that its configuration describes, or has them in other shapes "
            f"({examples}); save the model anew, or download or copy the folder again"
        )
