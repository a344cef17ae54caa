"""The demo: what a browser shows of a search, and what a Space reads of its folder."""

from __future__ import annotations

import html
import json
import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import SpaceCard

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from tests.paths import REPOSITORY

pytestmark = pytest.mark.lancedb

DEMO = REPOSITORY / "demo"
TEXT = "The cat sat on the mat. <b>It was warm there!</b>"


@pytest.fixture(scope="module")
def app(
    labse: Path, make_model: Callable[..., HMDEForDocumentEmbedding], tmp_path_factory: pytest.TempPathFactory
) -> SimpleNamespace:
    pytest.importorskip("gradio", reason="pip install '.[demo]'")
    folder = tmp_path_factory.mktemp("demo")
    make_model(labse).save_pretrained(folder / "model")
    HMDETokenizer.from_sentence_encoder(str(labse)).save_pretrained(folder / "model")
    (folder / "docs").mkdir()
    (folder / "docs" / "en.jsonl").write_text(json.dumps({"title": "Cat & mat", "text": TEXT}) + "\n")
    odd = [
        "",
        {"title": None, "text": "Das Erste.\u2028Das Zweite."},
        {"text": None},
        {"text": ""},
        {"text": "Kein Titel."},
    ]
    rows = [{"title": "Hund", "text": "Der Hund schlief."}, *odd]
    lines = (json.dumps(row, ensure_ascii=False) if row else " " for row in rows)
    (folder / "docs" / "de.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HMDE_MODEL", str(folder / "model"))
        patch.setenv("HMDE_DOCUMENTS", str(folder / "docs"))
        return SimpleNamespace(**runpy.run_path(str(DEMO / "app.py")))


def test_texts_are_shown_as_they_are_and_nothing_in_them_becomes_markup(app: SimpleNamespace) -> None:
    shown = app.search("Who sat?", ["en"])
    assert "Cat &amp; mat" in shown
    assert "<b>" not in shown
    assert "&lt;b&gt;It was warm there!" in shown
    assert "Hund" not in shown
    assert app.search("  ", ["en"]) == app.search("Who sat?", []) == ""


def test_documents_without_title_or_text_and_with_odd_line_ends_are_shown(app: SimpleNamespace) -> None:
    shown = app.search("Hund", ["de"])
    assert shown.count("<article") == 4
    assert "Das Erste." in shown
    assert "Kein Titel." in shown


def test_the_sentence_that_is_nearest_to_the_question_is_marked_most(app: SimpleNamespace) -> None:
    text = "Le chat dort. Der Hund schlief. The cat sat."
    question = "Der Hund schlief."
    shares = {
        html.unescape(sentence): float(share)
        for share, sentence in re.findall(r"--share: ([\d.]+)[^>]*>(.*?)</mark>", app.explain(question, text, "de"))
    }
    explanations = app.encoder.model.explain(question, [text], app.encoder.tokenizer, language="de", scoring="maximum")
    begin, end, _ = explanations[0].sentences[0]
    assert max(shares, key=shares.__getitem__) == text[begin:end]
    assert max(shares.values()) == 0.75
    assert len(shares) == 3


@pytest.mark.parametrize("nothing", [None, "", " \n"])
def test_nothing_asked_shows_nothing(app: SimpleNamespace, nothing: str | None) -> None:
    assert (
        app.search(nothing, ["de"]) == app.explain(nothing, "Ein Text.", "de") == app.explain("Was?", nothing, "") == ""
    )
    assert "Ein Text." in app.explain("Was?", "Ein Text.", None)


def test_a_browser_shows_the_documents_of_a_question(app: SimpleNamespace) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    _, url, _ = app.demo.launch(prevent_thread_lock=True, quiet=True, css=app.STYLE, theme=app.THEME)
    try:
        with playwright.sync_playwright() as browsers:
            browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(url)
            page.locator("#question textarea").fill("Wo schlief der Hund?")
            page.locator("#question textarea").press("Enter")
            page.wait_for_selector("#hits article.hit", timeout=60_000)
            titles = page.locator("#hits h3").all_inner_texts()
            assert {"Cat & mat", "Hund"} <= {*titles}
            assert page.locator("#hits mark").all_inner_texts().count("Der Hund schlief.") == 1
            browser.close()
    finally:
        app.demo.close()


def test_the_theme_can_be_compared_with_gradios_own_as_launch_does(app: SimpleNamespace) -> None:
    themes = pytest.importorskip("gradio").themes
    assert app.THEME.to_dict() == app.THEME.to_dict()
    for theme in (themes.Default(), themes.Base(), themes.Soft(), themes.Monochrome()):
        assert app.THEME.to_dict() != theme.to_dict()


def test_a_space_finds_its_app_in_the_folder() -> None:
    metadata = SpaceCard.load(DEMO / "README.md").data
    assert metadata.sdk == "gradio"
    assert (DEMO / metadata.app_file).is_file()
    assert len(metadata.short_description) <= 60, "the Hub refuses longer ones"
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {metadata["colorFrom"], metadata["colorTo"]} <= colours
