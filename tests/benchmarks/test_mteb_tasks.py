"""mteb's own tasks on local files: a small model goes through all three."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.mteb_tasks import main
from tests.paths import written

CATS, DOGS = "the cat sat on the mat", "the dog it was warm"


@pytest.mark.slow
def test_a_model_has_a_score_on_each_part_of_each_task(labse: Path, tmp_path: Path) -> None:
    public = tmp_path / "public"
    paragraphs = [
        {"context": text, "sentence_breaks": [], "qas": [{"id": text[4:7], "question": text, "answers": []}]}
        for text in (CATS, DOGS)
    ]
    for language in ("hi", "th"):
        written(public / f"lareqa/{language}.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    for split in ("train", "test"):
        rows = f"category\ttext\ncats\t{CATS}\ndogs\t{DOGS}\n"
        written(public / f"sib200/data/tha_Thai/{split}.tsv", rows)
    for side in ("deu", "eng"):
        written(public / f"tatoeba/tatoeba.deu-eng.{side}", f"{CATS}\n{DOGS}\n")
    options = [f"--model={labse}", f"--public={public}", f"--output={tmp_path / 'out'}"]
    main([*options, "--parts=[hi, tha_Thai, deu-eng]"])
    results = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    assert results["measures"]["Tatoeba"][0]["accuracy"] == 1
    assert results["scores"] == {
        "XQuADRetrieval": {"hi": 1.0}, "SIB200Classification": {"tha_Thai": 1.0}, "Tatoeba": {"deu-eng": 1.0},
    }  # fmt: skip
    with pytest.raises(ValueError, match="XQuADRetrieval has none of the parts"):
        main([*options, "--parts=[xx]"])
    with pytest.raises(ValueError, match=r"tasks has \['SIB'\]; there are XQuADRetrieval"):
        main([*options, "--tasks=[SIB]"])
