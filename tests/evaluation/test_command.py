"""The command: from licensed data in their own formats to a report with numbers worked out by hand."""

from __future__ import annotations

import ast
import io
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from evaluation import compare as module
from evaluation import report
from evaluation.__main__ import main
from evaluation.recipes import RetrievalTask
from replications.evaluate import main as evaluate_replications
from tests.evaluation.running import evaluated
from tests.paths import REPOSITORY, written

CATS, DOGS = "the cat sat on the mat", "the dog it was warm"


def clef(folder: Path) -> Path:
    """Three topics in English; two German documents, in the news agency's form, and two Italian ones. The query of
    topic 141 has the words of D1 and I1, that of 142 the words of D2 and I2."""
    topics = {141: ("the cat", "sat on the mat"), 142: ("the dog", "it was warm"), 143: ("le chat", "dort")}
    text = "".join(
        f"<top>\n<num> C{topic} </num>\n<EN-title> {title} </EN-title>\n<EN-desc> {description} </EN-desc>\n</top>\n"
        for topic, (title, description) in topics.items()
    )
    written(folder / "topics" / "en.txt", text)
    german = "<DOC>\n<DOCNO>{}</DOCNO>\n<TI>{}</TI>\n<TX>{}</TX>\n</DOC>\n"
    italian = "<DOC>\n<DOCNO>{}</DOCNO>\n<TITLE>{}</TITLE>\n<TEXT>{}</TEXT>\n</DOC>\n"
    written(folder / "documents" / "de" / "a.sgml", german.format("D1", *topics[141]))
    written(folder / "documents" / "de" / "b.sgml", german.format("D2", *topics[142]))
    written(
        folder / "documents" / "it" / "all.sgml",
        italian.format("I1", *topics[141]) + italian.format("I2", *topics[142]),
    )
    written(folder / "qrels" / "de.txt", "141 0 D1 1\n141 0 D2 0\n142 0 D1 1\n")
    written(folder / "qrels" / "it.txt", "141 0 I1 1\n141 0 I2 1\n142 0 I1 1\n142 0 I9 1\n")
    return folder


def mldoc(folder: Path) -> Path:
    """Two classes. In German, one of four documents has the other's label."""
    for name in ("english.train.1000", "english.dev", "english.test"):
        written(folder / name, f"CCAT\t{CATS}\nMCAT\t{DOGS}\n")
    written(folder / "german.test", f"CCAT\t{CATS}\nCCAT\t{CATS}\nMCAT\t{DOGS}\nMCAT\t{CATS}\n")
    return folder


@pytest.fixture
def recipe(tmp_path: Path, labse: Path) -> dict[str, Any]:
    return {
        "output": str(tmp_path / "out"),
        "systems": {
            "bm25": {"kind": "bm25"},
            "first": {"kind": "first", "model": str(labse), "pooling": "mean"},
            "seg": {"kind": "windows", "model": str(labse), "pooling": "cls"},
        },
        "retrieval": {
            "clef": {
                "format": "replications.datasets.clef",
                "data": str(clef(tmp_path / "clef")),
                "pairs": ["en-de", "en-it"],
            }
        },
        "classification": {
            "mldoc": {
                "format": "replications.datasets.mldoc",
                "data": str(mldoc(tmp_path / "mldoc")),
                "test_languages": ["en", "de"],
            }
        },
    }


def test_clef_and_mldoc_go_through_the_whole_command(recipe: dict[str, Any]) -> None:
    results = evaluated(recipe)
    assert list(results["tasks"]) == ["clef", "mldoc"]
    assert list(results["tasks"]["clef"]) == ["first", "seg"]  # BM25 has nothing to say across languages
    for system in results["tasks"]["clef"].values():
        # German: 141 finds D1 first, 142 finds D2 before D1. Italian: 141 finds both, 142 I2 before I1; I9 is unknown.
        assert {pair: scores["MAP"] for pair, scores in system["rows"].items()} == {"en-de": 0.75, "en-it": 0.75}
        assert {pair: scores["skipped"] for pair, scores in system["rows"].items()} == {"en-de": 0, "en-it": 0}
        assert system["averages"]["average"]["MAP"] == 0.75
        assert system["unknown_in_qrels"] == {"queries": 0, "documents": 1}
    for system in results["tasks"]["mldoc"].values():
        assert {row: scores["accuracy"] for row, scores in system["rows"].items()} == {"en-en": 1.0, "en-de": 0.75}
    report = (Path(recipe["output"]) / "report.md").read_text(encoding="utf-8")
    for line in ("MAP on clef, full ranking by cosine", "| average | 0.750 | 0.750 |"):
        assert line in report.splitlines()
    assert results["_evaluate_version"]  # what evaluate.save adds
    assert results["environment"]["packages"]["torch"]
    assert results["environment"]["threads"] >= 1


def counted(loaded: list[str]) -> Callable[..., Any]:
    """load_system, which keeps the kinds of the systems that it loads."""
    load = module.load_system

    def load_counted(system: Any, dtype: Any) -> Any:
        loaded.append(system.kind)
        return load(system, dtype)

    return load_counted


def test_what_is_done_is_skipped_and_what_has_changed_is_not(
    recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    monkeypatch.setattr(module, "load_system", counted(loaded))
    first = evaluated(recipe)
    everything = ["bm25", "first", "windows"]  # each once, whatever the number of tasks
    assert loaded == everything
    assert evaluated(recipe)["tasks"] == first["tasks"]
    assert loaded == everything
    recipe["systems"]["seg"]["pooling"] = "mean"
    evaluated(recipe)
    assert loaded[3:] == ["windows"]
    recipe["retrieval"]["clef"]["depth"] = 1
    assert evaluated(recipe)["tasks"]["clef"]["first"]["rows"]["en-de"]["MAP"] == 0.5
    assert loaded[4:] == ["bm25", "first", "windows"]


@pytest.mark.slow
def test_a_model_that_changed_in_its_folder_is_computed_anew(
    recipe: dict[str, Any], tmp_path: Path, labse: Path, xlmr: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").symlink_to(labse)
    recipe["systems"] = {"first": recipe["systems"]["first"] | {"model": str(tmp_path / "model")}}
    evaluated(recipe)
    before = sorted((Path(recipe["output"]) / "cache").iterdir())
    (tmp_path / "model").unlink()
    (tmp_path / "model").symlink_to(xlmr)
    evaluated(recipe)
    assert len(list((Path(recipe["output"]) / "cache").iterdir())) == 2 * len(before)


def test_systems_that_differ_in_their_queries_share_the_vectors_of_documents(recipe: dict[str, Any]) -> None:
    first = recipe["systems"]["first"]
    recipe["systems"] = {"first": first}
    alone = evaluated(recipe)["tasks"]["clef"]["first"]["rows"]
    before = sorted((Path(recipe["output"]) / "cache").iterdir())
    recipe["systems"]["asked"] = first | {"query_prompt": "dogs dogs dogs dogs dogs dogs dogs dogs "}
    rows = {name: result["rows"] for name, result in evaluated(recipe)["tasks"]["clef"].items()}
    assert sorted((Path(recipe["output"]) / "cache").iterdir()) == before
    assert rows["first"] == alone
    assert rows["asked"] != alone


@pytest.mark.slow
def test_what_a_result_depends_on_is_its_content_and_not_its_name(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    monkeypatch.setattr(module, "load_system", counted(loaded))
    recipe["systems"] = {"first": recipe["systems"]["first"]}
    evaluated(recipe)
    # The same files by their old name, with another judgement: D2 is relevant, too.
    written(Path(recipe["retrieval"]["clef"]["data"]) / "qrels" / "de.txt", "141 0 D1 1\n141 0 D2 1\n142 0 D1 1\n")
    assert evaluated(recipe)["tasks"]["clef"]["first"]["rows"]["en-de"]["MAP"] == 0.75
    assert loaded == ["first", "first"]
    # Another version of the evaluation's code.
    shutil.copytree(REPOSITORY / "evaluation", tmp_path / "evaluation", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "__file__", str(tmp_path / "evaluation" / "compare.py"))
    evaluated(recipe)
    assert len(loaded) == 2
    with (tmp_path / "evaluation" / "tasks" / "retrieval.py").open("a") as code:
        code.write("# another way to count\n")
    evaluated(recipe)
    assert len(loaded) == 3
    # Another version of a library: the vectors are made anew, too.
    vectors = len([*(Path(recipe["output"]) / "cache").glob("*.npy")])
    monkeypatch.setattr(module, "environment", lambda: {"packages": {"torch": "3"}})
    evaluated(recipe)
    assert len(loaded) == 4
    assert len([*(Path(recipe["output"]) / "cache").glob("*.npy")]) == 2 * vectors


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_every_stage_has_a_bar_with_a_name_and_an_end_where_there_is_a_terminal(
    recipe: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", terminal)
        evaluated(recipe)
    for bar in ("clef, first: queries: 100%", "clef, seg: documents: 100%", "mldoc, first: documents: 100%"):
        assert bar in terminal.getvalue()
    assert " 4/4 " in terminal.getvalue()  # documents of clef, in two languages
    shutil.rmtree(recipe["output"])
    evaluated(recipe)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_baselines_cut_documents_without_a_warning(recipe: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    logging.Logger.warning_once.cache_clear()  # what an earlier test heard is said again
    recipe["systems"] = {"first": recipe["systems"]["first"] | {"max_length": 5}}
    evaluated(recipe)
    assert caplog.messages == []


def test_help_and_a_misspelt_option_wait_for_no_heavy_library() -> None:
    program = """
import sys
from evaluation.__main__ import main
for arguments in (["--help"], ["--outptu", "x"]):
    try:
        main(arguments)
    except (SystemExit, ValueError):
        pass
print(sorted({"torch", "transformers", "numpy"} & set(sys.modules)))
"""
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    assert "A comparison: every system on every task." in shown
    assert shown.splitlines()[-1] == "[]"


@pytest.mark.parametrize("file", sorted((REPOSITORY / "evaluation").rglob("*.py")), ids=lambda path: path.stem)
def test_a_library_that_few_tasks_need_is_imported_where_it_is_used(file: Path) -> None:
    heavy = {"bm25s", "Stemmer", "sentence_transformers", "sklearn", "ir_datasets"}
    statements = ast.parse(file.read_text(encoding="utf-8")).body
    names = {alias.name for statement in statements if isinstance(statement, ast.Import) for alias in statement.names}
    names |= {statement.module or "" for statement in statements if isinstance(statement, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & heavy


def test_the_model_card_gets_its_results_once(recipe: dict[str, Any], tmp_path: Path, labse: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in labse.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    recipe["systems"]["first"]["model"] = str(folder)
    recipe["model_cards"] = ["first"]
    with pytest.raises(ValueError, match=r"README.md is missing"):
        evaluated(recipe)
    written(folder / "README.md", "---\nlicense: apache-2.0\n---\n\n# A model\n")
    for _ in range(2):
        evaluated(recipe)
        card = ModelCard.load(folder / "README.md")
        found = {(one.dataset_type, one.metric_name): one.metric_value for one in card.data.eval_results}
        assert found[("clef", "MAP (average)")] == 0.75
        assert found[("mldoc", "accuracy (transfer gap)")] == 0.25
        assert len(card.data.eval_results) == 5
        assert card.data.license == "apache-2.0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"systems": {}}, "systems is empty"),
        ({"retrieval": {}, "classification": {}}, r"retrieval, classification.* are \[\]; name at least one"),
        ({"reference": "none"}, "none is no system of this recipe; it has bm25"),
        ({"model_cards": ["none"]}, "none is no system of this recipe"),
        ({"retrieval": {"a/b": {"data": "d", "pairs": ["en-de"]}}}, "task 'a/b' names files"),
        (
            {"retrieval": {"mldoc": {"data": "d", "pairs": ["en-de"]}}},
            r"are \['mldoc', 'mldoc'\]; name at least one, and no two alike",
        ),
    ],
)
def test_bad_recipes_are_refused(recipe: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluated(recipe | change)
    assert not (Path(recipe["output"]) / "results").exists()


def test_all_models_are_looked_up_before_any_computes(
    recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch, xlmr: Path
) -> None:
    def fingerprint(model: str) -> str:
        if model == str(xlmr):
            raise ValueError("no such model")
        return model

    monkeypatch.setattr(module, "fingerprint_of_model", fingerprint)
    monkeypatch.setattr(module, "load_system", None)
    recipe["systems"]["last"] = recipe["systems"]["first"] | {"model": str(xlmr)}
    with pytest.raises(ValueError, match="no such model"):
        evaluated(recipe)


def test_the_report_names_the_module_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, program in (("evaluation.__main__", "evaluation"), ("replications.evaluate", "replications.evaluate")):
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(name, None))
        assert report.program() == program


def test_data_are_converted_anew_if_a_neighbour_of_their_format_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "own" / "format.py", "def convert(task, output): pass")
    monkeypatch.syspath_prepend(tmp_path)
    done = set()
    for code in ("one = 1", "two = 2"):
        written(tmp_path / "own" / "reader.py", code)
        module.converted(tmp_path / "data", RetrievalTask("none", ["en-de"], format="own.format"))
        done |= {path.name for path in (tmp_path / "data").glob("*.done")}
    assert len(done) == 2


def test_data_that_are_one_file_are_converted_anew_if_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import shutil\n\ndef convert(task, output):\n    shutil.copy(task.data, output / 'copied')\n"
    written(tmp_path / "of_one_file" / "format.py", code)
    monkeypatch.syspath_prepend(tmp_path)
    for content in ("old", "new"):
        task = RetrievalTask(str(written(tmp_path / "data.json", content)), ["en-de"], format="of_one_file.format")
        folder = Path(module.converted(tmp_path / "converted", task).data)
        assert (folder / "copied").read_text() == content


RECIPES = {path.stem for path in (REPOSITORY / "configuration/evaluate").glob("*.yaml")}
NOT_BY_THEMSELVES = {"published", "paper-authors"}  # numbers of a paper, and what is put on top of another recipe


OF_REPLICATIONS = {
    "development",
    "licensed",
    "open",
    "paper",
    "public",
    "released",
}  # name kinds that replications/ has


@pytest.mark.parametrize("name", sorted(RECIPES - NOT_BY_THEMSELVES))
def test_the_recipes_of_the_repository_are_sound(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(REPOSITORY)
    none = "{none: {kind: first, pooling: mean, model: nowhere}}"
    arguments = ["--config", f"configuration/evaluate/{name}.yaml", "--systems", none, "--output", str(tmp_path)]
    read = evaluate_replications if name in OF_REPLICATIONS else main
    with pytest.raises(ValueError, match="none: nowhere does not open"):
        read([*arguments, "--reference", "none"])
