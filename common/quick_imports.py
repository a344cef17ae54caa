"""Import this first, and call `finish` after the last import: meanwhile, the garbage collector rests.

Imports make many objects, and nearly all stay. To look through them again and again took a third of the time that a
command needs to start.
"""

from __future__ import annotations

import gc

gc.disable()


def finish() -> None:
    """Collects again, without what the imports have made."""
    gc.freeze()
    gc.enable()
