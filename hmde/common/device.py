"""Choice of device, dtype and number of CPU threads. torch is imported late: a command shows its options at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Dtype = Literal["auto", "float32", "bfloat16"]


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def dtype_of(dtype: Dtype) -> torch.dtype:
    """The dtype of weights and activations. `auto` is bfloat16 if the GPU, or without one the CPU, supports it natively
    and multiplies by it faster (AMX on Intel's, AVX-512 BF16 on AMD's, BF16 on Arm), and float32 otherwise."""
    import torch

    if dtype != "auto":
        return getattr(torch, dtype)
    if device() == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    capabilities: dict = getattr(torch.cpu, "get_capabilities", dict)()  # not in older releases
    # An Intel Xeon whose AMX is hidden by a virtual machine encodes documents 1.7 times as fast in float32.
    intel = capabilities.get("cpu_name", "").startswith("Intel")
    fast = ("amx_bf16", "bf16") if intel else ("amx_bf16", "bf16", "avx512_bf16")
    return torch.bfloat16 if any(map(capabilities.get, fast)) else torch.float32


def use_all_cores(num_processes: int = 1) -> int:
    """Divide the CPU cores of this machine among the processes of a run, and return the threads of this process.

    `accelerate launch` sets OMP_NUM_THREADS to 1 for each process, whatever the machine has. A larger number was set by
    the user and stays; so does any number if the process was not started by `accelerate launch`.

    Args:
        num_processes: processes of the run on this machine.
    """
    import torch

    launched = "ACCELERATE_MIXED_PRECISION" in os.environ  # which `accelerate launch` always sets
    if launched and os.environ.get("OMP_NUM_THREADS", "1") == "1":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // num_processes))
    return torch.get_num_threads()
