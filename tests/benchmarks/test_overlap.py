"""Overlap of training texts with test sets, on texts that share what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.overlap import main
from tests.paths import written

SHARED = "one two three four five six seven eight"


def test_texts_with_eight_words_or_twenty_characters_of_an_article_are_found(tmp_path: Path) -> None:
    chinese = "月亮围绕地球旋转并且总是以同一面朝向我们所以"
    context = f"In it: {SHARED}. And not."
    paragraph = {"context": context, "sentence_breaks": [[0, len(context) - 9], [len(context) - 8, len(context)]]}
    paragraph["qas"] = [{"id": "q", "question": f"{SHARED[:-6]} ate?", "answers": [{"answer_start": 0}]}]
    written(tmp_path / "public/lareqa/en.json", json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    written(tmp_path / "public/tatoeba/tatoeba.cmn-eng.cmn", f"{chinese}\n月亮围绕地球旋转并且。\nYes.\n")
    written(tmp_path / "public/tatoeba/tatoeba.hin-eng.hin", "मैंने कहा कि चाँद बहुत सुंदर है।\n")  # not eight words
    written(tmp_path / "public/sib200/data/eng_Latn/test.tsv", "category\ttext\nx\tNothing of this is in an article\n")
    article = f"मैंने कहा कि चाँद बहुत सुंदर नहीं है।\nA title\nYes!\nHere is {SHARED.title()}, and more.\n他说{chinese}。"
    not_trained = {"split": "dev", "text": "Nothing of this is in an article"}
    rows = [{"split": "train", "text": article}, not_trained]
    written(tmp_path / "articles/en.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    written(tmp_path / "articles/hi.jsonl", json.dumps(not_trained | {"split": "train"}) + "\n")
    arguments = [f"--articles=[{tmp_path / 'articles'}]", f"--public={tmp_path / 'public'}", "--languages=[en]"]
    main([*arguments, f"--output={tmp_path / 'out'}"])
    results = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    assert {one["set"]: (one["texts"], one["found"]) for one in results["sets"]} == {
        "lareqa": (3, 1), "sib200": (1, 0), "tatoeba": (4, 2),
    }  # fmt: skip
    assert {one["text"] for one in results["found"]} == {f"In it: {SHARED}.", chinese, "Yes."}
    with pytest.raises(ValueError, match="nowhere has no files"):
        main([arguments[0], arguments[2], f"--public={tmp_path / 'nowhere'}", f"--output={tmp_path}"])
    with pytest.raises(ValueError, match="have no tables of articles in"):
        main([f"--articles=[{tmp_path / 'public'}]", arguments[1], f"--output={tmp_path}"])
