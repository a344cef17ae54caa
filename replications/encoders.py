"""Makes the Auto classes of transformers know the encoders of all replications, so that their folders open without
`trust_remote_code`: below an HMDE, and in the evaluation."""

from __future__ import annotations

import replications.laser
import replications.ntdv
import replications.t_mde  # noqa: F401
