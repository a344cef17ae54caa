"""`training/pretrain.py` for an HMDE on an encoder of a replication.

    accelerate launch -m replications.pretrain --config configuration/pretrain/sample.yaml \\
        --sentence_encoder runs/t-mde --architecture.sentence_pooling cls
"""

from __future__ import annotations

import hmde.common.terminal
import hmde.common.threads

import replications.t_mde  # noqa: F401  # so that transformers opens its encoders
from hmde.common.command_line import run
from training.pretrain import main

if __name__ == "__main__":
    run(main)
