"""Run the tests that peers keep of their own models on HMDE: `make peers`.

transformers' source package on PyPI holds its common tests (Apache-2.0). It is downloaded once, to .venv/peers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import transformers

PEERS = Path(__file__).resolve().parent
CACHE = PEERS.parents[1] / ".venv" / "peers"


class Report:
    """Counts what passed, and lists what did not with its reason."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.not_applicable: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.split("::", 1)[1]
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.wasxfail)
            self.not_applicable[name] = reason.removeprefix("Skipped: ")
        elif report.failed:
            self.failed[name] = str(report.longrepr).strip().splitlines()[-1]
        elif report.when == "call":
            self.passed.add(name)

    def __str__(self) -> str:
        lines = [f"passed: {len(self.passed - {*self.failed})}"]
        for title, tests in (("not applicable", self.not_applicable), ("failed", self.failed)):
            lines.append(f"{title}: {len(tests)}")
            lines += [f"  {name}: {reason}" for name, reason in sorted(tests.items())]
        return "\n".join(lines)


def unpacked_tests(version: str) -> Path:
    """The folder of transformers' source package, downloaded if it is not there."""
    folder = CACHE / f"transformers-{version}"
    if not (folder / "tests" / "__init__.py").exists():
        options = ["--no-deps", "--no-build-isolation", "--no-binary", "transformers", "--dest", str(CACHE)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, f"transformers=={version}"], check=True)
        with tarfile.open(CACHE / f"transformers-{version}.tar.gz") as archive:
            members = [member for member in archive if "/tests/" in member.name]
            archive.extractall(CACHE, members=members, filter="data")
        (folder / "tests" / "__init__.py").touch()  # as in the repository; the package leaves it out
    return folder


def main() -> int:
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path[:0] = [str(unpacked_tests(transformers.__version__)), str(PEERS.parents[1])]
    report = Report()
    options = [
        "-q",
        "--override-ini=addopts=",
        "--noconftest",
        "--show-capture=no",
        "--tb=short",
        "-p",
        "no:cacheprovider",
    ]
    status = pytest.main([*options, str(PEERS / "test_transformers.py"), *sys.argv[1:]], plugins=[report])
    print(report)
    return status


if __name__ == "__main__":
    sys.exit(main())
