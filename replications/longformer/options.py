"""What a recipe of an evaluation says of an mLongformer. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evaluation.recipes import SystemOptions


@dataclass
class LongformerOptions(SystemOptions):
    """A model that replications/longformer/pretrain.py wrote.

    Args:
        model: folder or Hub name.
        pooling: cls, the vector of the first token, as in the paper; or the mean over all tokens. Its pooler was never
            trained.
        query_prompt, document_prompt: text put before each.
        global_attention: whether the first token sees the whole document. The paper's code says no.
    """

    model: str
    pooling: Literal["cls", "mean"] = "cls"
    query_prompt: str = ""
    document_prompt: str = ""
    global_attention: bool = True
