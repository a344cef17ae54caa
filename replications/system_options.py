"""What a recipe of an evaluation says of systems that only replications/ has. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.recipes import SystemOptions


@dataclass
class OtherSystemOptions(SystemOptions):
    """Options of a system, and those of kinds that stand here alone.

    Args:
        global_attention: of a `longformer`, whose pooling is cls if not given, as in the paper: whether the first token
            sees the whole document. The paper's code says no.
        trust_remote_code: of `sentence_transformers`: whether code from the model's folder may run.
    """

    global_attention: bool = True
    trust_remote_code: bool = False
