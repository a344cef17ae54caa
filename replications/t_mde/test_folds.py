"""Table 4.12's ten folds are disjoint and rotated, and its t-test is the one of a textbook."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from scipy import stats

from replications.t_mde import draw_folds
from replications.t_mde.compare_folds import main as compare
from replications.t_mde.draw_folds import main as draw

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw_folds, "HALF", 3)


def mldoc(folder: Path, count: int) -> Path:
    """Documents of English and German, `count` of each, in the three files of a language."""
    folder.mkdir()
    for name in ("english", "german"):
        lines = [f"CCAT\tdocument {number} of {name}. (c) Reuters Limited 1996.\n" for number in range(count)]
        for part, some in {"train.10000": lines[:-8], "dev": lines[-8:-4], "test": lines[-4:]}.items():
            (folder / f"{name}.{part}").write_text("".join(some), encoding="utf-8")
    return folder


def read(folder: Path, fold: int, part: str, language: str = "en") -> list[str]:
    return (folder / str(fold) / f"{language}.{part}.tsv").read_text(encoding="utf-8").splitlines()


def test_five_disjoint_samples_make_ten_folds_whose_halves_change_places(tmp_path: Path) -> None:
    data, output = mldoc(tmp_path / "mldoc", 40), tmp_path / "folds"
    draw(["--data", str(data), "--output", str(output), "--languages", "[en, de]"])
    assert sorted(path.name for path in output.iterdir()) == sorted(map(str, range(1, 11)))
    for language in ("en", "de"):
        used = Counter(text for fold in range(1, 11) for text in read(output, fold, "train", language))
        assert sorted(used.values()) == [1] * 30  # ten training sets of three, all different
        (dev,) = {tuple(read(output, fold, "dev", language)) for fold in range(1, 11)}
        assert len({*dev} - {*used}) == 3
        for fold in range(1, 11, 2):
            assert read(output, fold, "train", language) == read(output, fold + 1, "test", language)
            assert read(output, fold, "test", language) == read(output, fold + 1, "train", language)
    assert "Reuters" not in "".join(read(output, 1, "train"))  # as LASER's script leaves the texts
    files = {path: path.read_bytes() for path in output.rglob("*.tsv")}
    draw(["--data", str(data), "--output", str(tmp_path / "again"), "--languages", "[en, de]"])
    assert {path: (tmp_path / "again" / path.relative_to(output)).read_bytes() for path in files} == files


def test_too_few_documents_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = mldoc(tmp_path / "mldoc", 32)
    with pytest.raises(ValueError, match=r"has 32 documents of en in .*; ten folds need 33"):
        draw(["--data", str(data), "--output", str(tmp_path / "folds"), "--languages", "[en]"])
    assert not (tmp_path / "folds").exists()


def write_results(folder: Path, scores: dict[str, list[float]]) -> None:
    folder.mkdir()
    tasks = {
        f"fold-{fold + 1}-frozen": {
            system: {"averages": {"average, across languages": {"accuracy": values[fold]}}}
            for system, values in scores.items()
        }
        for fold in range(10)
    }
    (folder / "results.json").write_text(json.dumps({"tasks": tasks}), encoding="utf-8")


def test_the_test_is_paired_two_sided_and_not_corrected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = [0.70, 0.72, 0.71, 0.69, 0.73, 0.70, 0.71, 0.72, 0.70, 0.71]
    scores = {
        "a": near,
        "b": [value + gain for value, gain in zip(near, [0.02, 0.03, 0.01, 0.02, 0.04, 0.02, 0.03, 0.01, 0.02, 0.03])],
        "c": [value + gain for value, gain in zip(near, [0.02, -0.03, 0.01, -0.02, 0.04, 0.02, -0.03, 0.01, 0, 0.03])],
    }
    write_results(tmp_path / "evaluation", scores)
    compare(["--evaluation", str(tmp_path / "evaluation"), "--pairs", "[[a, b], [a, c]]"])
    shown = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in capsys.readouterr().out.splitlines()}
    for row, (first, second) in {"a, b": "ab", "a, c": "ac"}.items():
        differences = [one - other for one, other in zip(scores[first], scores[second])]
        mean = sum(differences) / 10
        deviation = math.sqrt(sum((difference - mean) ** 2 for difference in differences) / 9)
        p = 2 * stats.t.sf(abs(mean) / (deviation / math.sqrt(10)), df=9)
        assert shown[row][3].strip(" |") == f"{p:.3f}" + ("*" if p < 0.01 else "")
    assert "*" in shown["a, b"][3]
    assert "*" not in shown["a, c"][3]


def test_a_system_that_was_not_evaluated_is_named(tmp_path: Path) -> None:
    write_results(tmp_path / "evaluation", {"t-mde": [0.5] * 10})
    with pytest.raises(ValueError, match=r"has no \S+ on every task; it has t-mde"):
        compare(["--evaluation", str(tmp_path / "evaluation")])
