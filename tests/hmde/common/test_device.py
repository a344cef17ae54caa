"""All CPU cores and the fastest dtype of a machine are used unless the user says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch

from hmde.common.device import dtype_of, use_all_cores
from training.pretrain_recipe import PretrainRecipe

CORES = len(os.sched_getaffinity(0))


LAUNCHED = {"ACCELERATE_MIXED_PRECISION": "no"}  # which `accelerate launch` sets


@pytest.mark.parametrize(
    ("num_processes", "environment", "expected"),
    [
        pytest.param(1, LAUNCHED | {"OMP_NUM_THREADS": "1"}, CORES, id="launched"),
        pytest.param(CORES, LAUNCHED | {"OMP_NUM_THREADS": "1"}, 1, id="shared"),
        pytest.param(99, LAUNCHED | {"OMP_NUM_THREADS": "1"}, 1, id="crowded"),
        pytest.param(1, {"OMP_NUM_THREADS": "1"}, 1, id="not launched"),
    ],
)
def test_cores_are_divided_among_processes(monkeypatch, num_processes, environment, expected):
    for name in ("ACCELERATE_MIXED_PRECISION", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = torch.get_num_threads()
    try:
        assert use_all_cores(num_processes) == torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_the_users_number_of_threads_stays():
    code = "from hmde.common.device import use_all_cores; print(use_all_cores(2))"
    environment = os.environ | LAUNCHED | {"OMP_NUM_THREADS": "2"}  # which PyTorch reads when it is imported
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert int(run.stdout) == 2


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": True, "avx2": True, "cpu_name": "AMD EPYC"}, torch.bfloat16),
        ({"avx512_bf16": True, "amx_bf16": True, "cpu_name": "Intel Xeon"}, torch.bfloat16),
        ({"avx512_bf16": True, "amx_bf16": False, "cpu_name": "Intel Xeon"}, torch.float32),
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"bf16": True, "neon": True}, torch.bfloat16),
        ({"avx512_bf16": False, "avx2": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_the_dtype_is_the_one_in_which_the_cpu_is_faster(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert dtype_of("auto") == expected


@pytest.mark.parametrize("in_hardware", [True, False])
def test_on_a_gpu_the_gpu_decides(monkeypatch, in_hardware):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: in_hardware)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": not in_hardware})
    assert dtype_of("auto") == (torch.bfloat16 if in_hardware else torch.float32)


def test_a_dtype_that_is_named_is_taken():
    assert (dtype_of("float32"), dtype_of("bfloat16")) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(("capability", "expected"), [("avx512_bf16", "bf16"), ("avx2", "no")])
def test_training_takes_the_dtype_in_which_the_cpu_is_faster_and_says_which(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {capability: True})
    recipe = PretrainRecipe(corpus="corpus", output="output", mixed_precision="auto")
    assert asdict(recipe)["mixed_precision"] == expected
