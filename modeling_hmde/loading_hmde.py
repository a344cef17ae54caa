"""What saved models share: the code that is saved with them, where it is found, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from shutil import copyfile
from typing import Any

# By it, each Auto class finds its class in a saved folder, whichever of the models was saved there.
AUTO_MAP = {
    "AutoConfig": "configuration_hmde.HMDEConfig",
    "AutoModel": "modeling_hmde.HMDEForDocumentEmbedding",
    "AutoModelForSequenceClassification": "modeling_hmde.HMDEForSequenceClassification",
}


class ShipsCode:
    """Saves HMDE's own files beside a model, configuration or tokenizer, whatever its class: a subclass of HMDE's, or
    what a wrapper such as FSDP2 makes of it. A subclass that calls `register_for_auto_class` has its own file saved
    too."""

    _auto_class: Any

    @classmethod
    def is_remote_code(cls) -> bool:
        """Whether transformers saves the file of this class. One that inherits its Auto class is in no file of HMDE."""
        return vars(cls).get("_auto_class") is not None

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        """As for other classes of transformers; HMDE's code is written beside."""
        if not self.is_remote_code():
            self._auto_class = None  # by which transformers decides for configurations and tokenizers
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        for file in Path(__file__).parent.glob("*_hmde.py"):
            if file.parent.resolve() != folder.resolve():  # else it is there
                copyfile(file, folder / file.name)
        return super().save_pretrained(save_directory, *args, **kwargs)  # type: ignore[misc]


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


def check_weights(name: str, missing: Iterable[str]) -> None:
    """
    Args:
        missing: names of weights that the folder lacks, or has in another shape.

    Raises:
        ValueError: there are some, which would be drawn at random.
    """
    lacking = sorted(missing)
    if lacking:
        examples = ", ".join(lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        raise ValueError(
            f"{name} lacks {len(lacking)} weights that its configuration describes, or has them in other shapes "
            f"({examples}); save the model anew, or download or copy the folder again"
        )


def refuse_arguments(input_ids: Any, others: Mapping[str, Any]) -> None:
    """
    Args:
        others: arguments of a forward pass that it does not have.

    Raises:
        TypeError: there are no `input_ids`, or one of the others has a value, which would have no effect.
    """
    given = sorted(name for name, value in others.items() if value is not None)
    if {"inputs_embeds", "past_key_values"} & {*given}:
        raise TypeError(
            f"{', '.join(given)}: HMDE finds sentences by their tokens and has no cache, so it takes input_ids only; "
            "PEFT's prompt and prefix tuning need more, so use LoRA"
        )
    if given:
        raise TypeError(
            f"the forward pass of HMDE has no argument {', '.join(given)}; it takes input_ids, attention_mask and "
            "sentence_ids, which its tokenizer gives"
        )
    if input_ids is None:
        raise TypeError("input_ids are missing; HMDE's tokenizer gives them")
