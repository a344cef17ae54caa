"""A demo: ask in one language, find documents in all, and see which of their sentences answer.

    python demo/app.py

Two environment variables say what is shown: HMDE_MODEL, a saved HMDE (folder or Hub name), and HMDE_DOCUMENTS, a folder
of `<language>.jsonl` as search/documents.py reads them. On a Space the documents lie beside this file, in docs/.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import common.threads

import gradio as gr

from search.documents import Document, Documents, files_of
from search.highlight import STYLE, marked
from search.index import Index

MODEL = os.environ.get("HMDE_MODEL", "runs/hmde-small")
DOCUMENTS = Path(os.environ.get("HMDE_DOCUMENTS", Path(__file__).parent / "docs"))
NUM_HITS = 5
MAX_QUESTION, MAX_TEXT = 1_000, 100_000  # characters

EXAMPLES = [
    "Why does the tail always point away from the Sun?",
    "Wie entsteht eine Sonnenfinsternis?",
    "Какое животное спит зимой?",
    "谁发明了印刷术？",
]

# Fonts as objects: `launch` compares them with those of gradio's own themes and stumbles over strings.
FONTS = [gr.themes.Font(name) for name in ("system-ui", "Noto Sans", "Helvetica", "sans-serif")]
THEME = gr.themes.Default(primary_hue="amber", neutral_hue="stone", font=FONTS)

documents = [document for file, _ in files_of(DOCUMENTS) for document in Documents(file, language=file.stem)]
folder = tempfile.TemporaryDirectory(prefix="hmde-demo-")
index = Index(f"{folder.name}/index", MODEL)
index.update(documents, show_progress_bar=True)
LANGUAGES = index.languages


def search(question: str | None, languages: list[str]) -> str:
    """The best documents in some languages, as HTML."""
    if not question or not question.strip() or not languages:
        return ""
    hits = index.search(question[:MAX_QUESTION], NUM_HITS, languages=languages)
    return "".join(marked(hit.document, hit.score, hit.explanation) for hit in hits)


def explain(question: str | None, text: str | None, language: str | None) -> str:
    """One text as HTML."""
    if not question or not question.strip() or not text or not text.strip():
        return ""
    document = Document("", "Your text", language or None, text[:MAX_TEXT])
    model, tokenizer = index.encoder.model, index.encoder.tokenizer
    (explanation,) = model.explain(
        question[:MAX_QUESTION], [document.text], tokenizer, language=document.language, scoring="maximum"
    )
    return marked(document, explanation.score, explanation)


with gr.Blocks(title="HMDE") as demo:
    gr.Markdown(
        "# Ask in one language, find in all\n"
        "HMDE gives a whole document one vector, and each of its sentences one. Documents are ranked by both; the "
        "sentences nearest to the question are marked, and the pointer over one shows its cosine."
    )
    with gr.Tab("Search"):
        with gr.Row(equal_height=True):
            question = gr.Textbox(
                label="Question, in any language",
                placeholder=EXAMPLES[0],
                max_length=MAX_QUESTION,
                scale=3,
                elem_id="question",
            )
            languages = gr.CheckboxGroup(LANGUAGES, value=LANGUAGES, label="Documents in", scale=2)
        button = gr.Button("Search", variant="primary")
        gr.Examples([[example] for example in EXAMPLES], inputs=[question])
        hits = gr.HTML(elem_id="hits")
        gr.on([question.submit, button.click], search, [question, languages], hits, api_name="search")
    with gr.Tab("Your own text"):
        own_question = gr.Textbox(label="Question, in any language", max_length=MAX_QUESTION)
        own_text = gr.Textbox(label="Document", lines=10, max_length=MAX_TEXT)
        own_language = gr.Textbox(label="Its language, as an ISO 639-1 code", value="en", max_lines=1)
        own_button = gr.Button("Show what matches", variant="primary")
        own_hit = gr.HTML()
        own_button.click(explain, [own_question, own_text, own_language], own_hit, api_name="explain")

if __name__ == "__main__":
    demo.launch(css=STYLE, theme=THEME)
