"""The commands as programs on small inputs: run anew, or in a fork of this process, which has their imports already."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

# What the commands import, but for LanceDB, which does not survive a fork.
import evaluation.compare  # noqa: F401
import search.encode_collection  # noqa: F401
import training.finetune
import training.pretrain_sentences  # noqa: F401
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests import sentence_pairs
from tests.attack.commands import SECONDS_TO_REFUSE, Ended, wait
from tests.attack.runs import arguments, saved_hmde, workshop
from tests.paths import REPOSITORY

WORDS = ["cat", "dog", "mat", "sun", "Katze", "Hund", "chat", "кот"]
STOPPING = (signal.SIGINT, signal.SIGTERM)

# The digest of a file, or the scores of a run by query_id and doc_id.
Result = str | dict[tuple[str, str], float]


class Program(NamedTuple):
    """A command line of Python, the folder or file that it makes, and the folder of what it reads."""

    argv: list[str]
    made: Path
    inputs: Path


def start(
    program: Program,
    log: Path,
    *,
    anew: bool = False,
    prepare: Callable[[], object] = lambda: None,
    environment: dict[str, str] | None = None,
) -> int:
    """Start a program, and return its process. Whatever it prints goes to `log`.

    Args:
        anew: in a new interpreter, as a user does, which takes seconds more.
        prepare: done in the process of the program before it begins.
        environment: of a new interpreter.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until the process is ready to end as the program does
    process = os.fork()
    if process:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        return process
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _unlock_progress_bars()
        for descriptor in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        prepare()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        if anew:
            given = os.environ | {"PYTHONPATH": str(REPOSITORY)} if environment is None else environment
            os.execve(sys.executable, [sys.executable, *program.argv], given)
        code = _run_here(program.argv)
    except KeyboardInterrupt:
        print("stopped by SIGINT", file=sys.stderr)
        code = 128 + signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _unlock_progress_bars() -> None:
    """Else a process that was killed while it drew one may hold their lock for ever."""
    kinds: list[Any] = [tqdm]
    for kind in kinds:
        kind.set_lock(threading.RLock())
        kinds += kind.__subclasses__()


def _run_here(argv: list[str]) -> int:
    os.environ["ACCELERATE_USE_CPU"] = "true"
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def finish(process: int, log: Path, seconds: float = SECONDS_TO_REFUSE) -> Ended:
    """Wait for the end of a program. Arguments and errors as in `wait`."""
    return wait(process, log, seconds)


def run(program: Program, log: Path, **options: object) -> Ended:
    """Start a program anew in its log, and wait for it. Options as in `start`."""
    log.unlink(missing_ok=True)
    return finish(start(program, log, **options), log)  # type: ignore[arg-type]


def resumed(program: Program) -> Program:
    """The program that goes on where this one ended: only training has to be told so."""
    training = program.made.with_name(f"{program.made.name}-training")
    checkpoints = [*training.glob("checkpoints/step-????????"), *training.glob("checkpoint-*/trainer_state.json")]
    goes_on = checkpoints and not program.made.exists()
    return program._replace(argv=[*program.argv, "--resume", "true"]) if goes_on else program


def check_whole(name: str, program: Program, folder: Path) -> None:
    """A program has made what it makes where nothing disturbs it, and left nothing else.

    Raises:
        AssertionError: it has not.
    """
    found, expected = results(program.made), undisturbed(name).results
    assert found.keys() == expected.keys(), f"{name} has made {sorted(found)}, and not {sorted(expected)}"
    other = [file for file, result in expected.items() if not is_same(found[file], result)]
    assert not other, f"{name} has made something else: {other}"
    check_nothing_half(name, folder, (".partial", ".replaced", ".removed", ".lock"))


def check_nothing_half(name: str, folder: Path, endings: tuple[str, ...] = (".partial", ".replaced")) -> None:
    """
    Args:
        endings: of hidden files that may not be there. A lock that was taken at the moment of a signal may stay, and
            what was being removed: the next run removes it.

    Raises:
        AssertionError: what is half written was not removed.
    """
    left = [str(path) for path in folder.rglob("*") if path.name.startswith(".") and path.name.endswith(endings)]
    assert not left, f"{name} leaves {left}"


def results(made: Path) -> dict[str, Result]:
    """What is in the files of results that are the same in every run: their digests, and the scores of run files."""
    if made.is_file():
        return {"": "" if made.suffix == ".log" else hashlib.sha256(made.read_bytes()).hexdigest()}
    files = [path for path in made.rglob("*") if path.suffix in (".parquet", ".safetensors", ".onnx")]
    found: dict[str, Result] = {
        str(path.relative_to(made)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }
    for path in made.rglob("*.run"):
        fields = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
        found[str(path.relative_to(made))] = {(query, doc): float(score) for query, _, doc, _, score, _ in fields}
    return found


def is_same(found: Result, expected: Result) -> bool:
    """The last digits of scores may differ, because a sum depends on where the numbers lie in memory."""
    if isinstance(found, str) or isinstance(expected, str):
        return found == expected
    return found.keys() == expected.keys() and all(abs(found[key] - expected[key]) < 1e-5 for key in found)


class Undisturbed(NamedTuple):
    """What a program makes that nothing disturbs, and the seconds that it takes."""

    results: dict[str, Result]
    seconds: float


@functools.cache
def undisturbed(name: str, anew: bool = False) -> Undisturbed:
    """A run of a program, in a fork or anew."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    program = PROGRAMS[name](folder)
    began = time.monotonic()
    ended = run(program, folder / "log.txt", anew=anew)
    assert ended.code == 0, f"{name}: {ended.output}"
    assert program.made.exists(), f"{name}: {ended.output}"
    return Undisturbed(results(program.made), time.monotonic() - began)


def _inputs(folder: Path) -> Path:
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    return folder / "inputs"


def _model(folder: Path) -> Path:
    return Path(shutil.copytree(saved_hmde(), _inputs(folder) / "hmde"))


def _documents(folder: Path) -> Path:
    rows = [
        {"id": f"d{number}", "text": f"The {WORDS[number % 8]} {number} sat. It was warm."} for number in range(100)
    ]
    file = _inputs(folder) / "documents.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def _options(**options: object) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


def _index(folder: Path) -> Program:
    options = _options(model=_model(folder), dtype="float32")
    argv = ["-m", "search", "index", str(_documents(folder)), str(folder / "index"), *options]
    return Program(argv, folder / "index", _inputs(folder))


def _query(folder: Path) -> Program:
    shutil.copytree(_saved_index(), _inputs(folder) / "index")
    argv = ["-m", "search", "query", str(_inputs(folder) / "index"), "The cat sat.", "--json", "true"]
    return Program([*argv, *_options(model=_model(folder))], folder / "inputs", _inputs(folder))


def server(folder: Path) -> Program:
    """A server of an index at a port that was free; it runs until it is stopped."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    index = Path(shutil.copytree(_saved_index(), _inputs(folder) / "index"))
    argv = ["-m", "search", "serve", str(index), *_options(model=_model(folder), dtype="float32", port=port)]
    return Program(argv, index, _inputs(folder))


def is_served(program: Program) -> bool:
    """Whether a server answers before long."""
    url = f"http://127.0.0.1:{program.argv[-1]}/health"
    ends = time.monotonic() + 10 * SECONDS_TO_REFUSE
    while time.monotonic() < ends:
        with contextlib.suppress(OSError), urllib.request.urlopen(url) as answer:
            return answer.status == 200
        time.sleep(0.1)
    return False


@functools.cache
def _saved_index() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    program = _index(folder)
    ended = run(program, folder / "log.txt")
    assert ended.code == 0, ended.output
    return program.made


def _encode(folder: Path) -> Program:
    given = _options(model=_model(folder), documents=_documents(folder), output=folder / "out", dtype="float32")
    argv = ["-m", "search.encode_collection", *given, "--documents_per_shard", "16"]
    return Program(argv, folder / "out", _inputs(folder))


def _corpus(folder: Path) -> Program:
    articles = shutil.copytree(workshop() / "articles", _inputs(folder) / "articles")
    options = _options(articles=articles, output=folder / "corpus", languages='["en", "de", "fr"]')
    return Program(["-m", "training.corpus", *options], folder / "corpus", _inputs(folder))


def _pretrain(folder: Path) -> Program:
    corpus = Path(shutil.copytree(workshop() / "corpus", _inputs(folder) / "corpus"))
    encoder = shutil.copytree(workshop() / "labse", _inputs(folder) / "labse")
    options = arguments(folder / "model", corpus, sentence_encoder=encoder)
    return Program([str(REPOSITORY / "training" / "pretrain.py"), *options], folder / "model", _inputs(folder))


def _finetune(folder: Path) -> Program:
    data = _inputs(folder) / "data"
    data.mkdir()
    for part in ("train", "dev", "test"):
        lines = [f"{label}\tThe {label} {number} sat.\n" for number in range(6) for label in ("cat", "dog")]
        (data / f"en.{part}.tsv").write_text("".join(lines))
    options = _options(model=_model(folder), data=data, output=folder / "classifier", test_languages='["en"]')
    options += _options(**{"trainer.num_train_epochs": 3, "trainer.warmup_steps": 1})
    return Program([str(REPOSITORY / "training" / "finetune.py"), *options], folder / "classifier", _inputs(folder))


def _pretrain_sentences(folder: Path) -> Program:
    pairs = sentence_pairs.write_pairs(_inputs(folder) / "parallel")
    encoder = Path(shutil.copytree(workshop() / "labse", _inputs(folder) / "labse"))
    options = sentence_pairs.options(pairs, encoder, folder / "encoder", losses={"align": {}}, save_steps=2)
    return Program([str(REPOSITORY / "training" / "pretrain_sentences.py"), *options], folder / "encoder", pairs.parent)


def _sentence_pairs(folder: Path) -> Program:
    lines = [f"The cat {number} sat.\tDie Katze {number} saß.\n" for number in range(20_000)]
    file = _inputs(folder) / "cats.tsv"
    file.write_text("".join(lines))
    options = _options(files=json.dumps({"en-de": [str(file)]}), output=folder / "pairs")
    return Program(["-m", "training.corpus.sentence_pairs", *options], folder / "pairs", _inputs(folder))


def _sentence_head(folder: Path) -> Program:
    return _fitted("training.sentence_head", folder)


def _rotate(folder: Path) -> Program:
    return _fitted("release_tools.rotate", folder, sizes="[4]")


def _fitted(module: str, folder: Path, **given: object) -> Program:
    """A model in passages that a command changes by the documents of a corpus."""
    corpus = shutil.copytree(workshop() / "corpus", _inputs(folder) / "corpus")
    model = shutil.copytree(_saved_in_passages(), _inputs(folder) / "hmde")
    options = _options(model=model, corpus=corpus, output=folder / "changed", max_documents=12, **given)
    return Program(["-m", module, *options], folder / "changed", _inputs(folder))


@functools.cache
def _saved_in_passages() -> Path:
    folder, encoder = workshop() / "passages", str(workshop() / "labse")
    options: dict[str, Any] = {"sentence_pooling": "mean", "passage_length": 120, "num_document_attention_heads": 4}
    model = HMDEForDocumentEmbedding.from_sentence_encoder(encoder, max_sentence_length=40, **options)
    model.save_pretrained(folder)
    HMDETokenizer.from_sentence_encoder(encoder, max_sentence_length=40).save_pretrained(folder)
    return folder


def _average(folder: Path) -> Program:
    models = json.dumps([str(_model(folder))] * 2)
    options = _options(models=models, output=folder / "mean")
    return Program(["-m", "release_tools.average", *options], folder / "mean", _inputs(folder))


def _pack(folder: Path) -> Program:
    model = _model(folder)
    (model / "README.md").write_text("# A model\n")
    base = shutil.copytree(workshop() / "labse", _inputs(folder) / "labse")
    options = _options(model=model, base=base, output=folder / "packed")
    return Program(["-m", "release_tools.pack", "pack", *options], folder / "packed", _inputs(folder))


def _unpack(folder: Path) -> Program:
    base = shutil.copytree(workshop() / "labse", _inputs(folder) / "labse")
    release = shutil.copytree(_packed(), _inputs(folder) / "packed")
    options = _options(base=base, release=release, output=folder / "unpacked")
    return Program(["-m", "release_tools.pack", "unpack", *options], folder / "unpacked", _inputs(folder))


@functools.cache
def _packed() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    program = _pack(folder)
    ended = run(program, folder / "log.txt")
    assert ended.code == 0, ended.output
    return program.made


def _export(folder: Path) -> Program:
    model = _model(folder)
    return Program(["-m", "release_tools.export_onnx", *_options(model=model)], model / "onnx", _inputs(folder))


def _evaluate(folder: Path) -> Program:
    data = _inputs(folder) / "data"
    (data / "docs").mkdir(parents=True)
    documents = [{"doc_id": f"d{number}", "text": f"Cat {number}."} for number in range(50)]
    (data / "docs" / "en.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (data / "queries").mkdir()
    (data / "queries" / "en.tsv").write_text("".join(f"q{number}\tCat {number}?\n" for number in range(9)))
    (data / "qrels.tsv").write_text("".join(f"q{number}\t0\td{number}\t1\n" for number in range(9)))
    recipe = {
        "output": str(folder / "results"),
        "systems": {"hmde": {"kind": "hmde", "model": str(_model(folder))}},
        "retrieval": {"cats": {"data": str(data), "pairs": ["en-en"]}},
    }
    (_inputs(folder) / "recipe.yaml").write_text(json.dumps(recipe))
    argv = ["-m", "evaluation", "--config", str(_inputs(folder) / "recipe.yaml")]
    return Program(argv, folder / "results", _inputs(folder))


PROGRAMS: dict[str, Callable[[Path], Program]] = {
    "index": _index,
    "query": _query,
    "encode": _encode,
    "corpus": _corpus,
    "pretrain": _pretrain,
    "finetune": _finetune,
    "pretrain_sentences": _pretrain_sentences,
    "sentence_pairs": _sentence_pairs,
    "sentence_head": _sentence_head,
    "rotate": _rotate,
    "evaluate": _evaluate,
    "average": _average,
    "pack": _pack,
    "unpack": _unpack,
    "export": _export,
}

# Commands that do not write over what is there.
NOT_TWICE = {
    "pretrain",
    "finetune",
    "pretrain_sentences",
    "sentence_pairs",
    "sentence_head",
    "rotate",
    "average",
    "pack",
    "unpack",
}
