"""What a recipe of an evaluation says of an mLongformer. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.recipes import SystemOptions


@dataclass
class LongformerOptions(SystemOptions):
    """Options of a system, and one more for those of kind `longformer`, whose pooling is cls if not given, as in the
    paper.

    Args:
        global_attention: whether the first token of a Longformer sees the whole document. The paper's code says no.
    """

    global_attention: bool = True
