"""The kit for a GPU, as far as a CPU can tell: all of its parts but the tests themselves, on tiny models."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import Part, main, what_is_missing


def test_without_a_gpu_it_says_what_is_missing_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    with pytest.raises(ValueError, match="was built without CUDA; install one with it"):
        main(["--output", str(tmp_path / "gpu")])
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="PyTorch sees no GPU"):
        main(["--output", str(tmp_path / "gpu")])
    assert not (tmp_path / "gpu").exists()


def test_a_gpu_without_bfloat16_is_told_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert "Tesla T4 has no bfloat16" in what_is_missing()


@pytest.mark.skipif(torch.cuda.is_available(), reason="`make gpu` itself runs here")
def test_its_benchmarks_run_and_stand_in_one_table(labse: Path, tmp_path: Path, monkeypatch):
    """On the smallest models and one of the two sizes; the part of the tests is replaced by one that fails."""
    failing, parts_of, run_part = ["sh", "-c", "exit 2"], gpu.parts_of, gpu.run_part

    def run_here(part: Part, log: Path, seconds_left: float) -> None:
        """A benchmark in this process, which has imported what it imports."""
        if part.command == failing:
            run_part(part, log, seconds_left)
        else:
            _, _, module, *options = part.command
            importlib.import_module(module).main(options)
            part.outcome = "done"

    monkeypatch.setattr(gpu, "run_part", run_here)
    monkeypatch.setattr(gpu, "parts_of", lambda *given: [Part("tests", failing), *parts_of(*given)[1::2]])
    with pytest.raises(SystemExit) as ended:
        main(["--output", str(tmp_path), "--encoder", str(labse), "--small", "true"])
    assert ended.value.code == 1  # a part has failed
    content = json.loads((tmp_path / "results.json").read_text())
    outcomes = {part["name"]: part["outcome"] for part in content["parts"]}
    assert outcomes.pop("tests").startswith("failed with status 2")
    assert outcomes == {"encode-small": "done", "step-small": "done"}
    methods = ["hmde", "hmde_tokens", "passages", "passages_tokens", "padded", "windows", "flat"]
    variants = [f"{name}, 2 triples" for name in ("recommended", "padded", "float32")]
    measured = [(row["measured"], row["encoder"], row["method"]) for row in content["rows"]]
    assert measured == [
        *(("encoding", "small", method) for method in methods),
        *(("a pretraining step", "small", variant) for variant in variants),
    ]
    table = (tmp_path / "results.md").read_text()
    assert "tests: failed with status 2" in table
    assert table.count("\n| ") == 1 + len(measured)


def test_a_part_without_time_is_left_out(tmp_path):
    part = Part("tests", ["sh", "-c", "exit 2"])
    gpu.run_part(part, tmp_path / "log", seconds_left=0)
    assert (part.outcome, list(tmp_path.iterdir())) == ("left out: no time", [])


def test_a_part_that_takes_too_long_is_stopped(tmp_path):
    part = Part("tests", ["sleep", "60"])
    gpu.run_part(part, tmp_path / "log", seconds_left=0.2)
    assert part.outcome.startswith("stopped: no time left")
    assert part.seconds < 30


def test_counts_of_tests_are_read_from_their_report(tmp_path):
    assert gpu.test_counts(tmp_path) == {}
    report = '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="3"/></testsuites>'
    (tmp_path / "tests.xml").write_text(report)
    assert gpu.test_counts(tmp_path) == {"passed": 4, "failed": 2, "skipped": 3}
