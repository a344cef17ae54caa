"""A demo: ask in one language, find documents in all, and see which sentences made them match.

    python demo/app.py

Two environment variables say what is shown: HMDE_MODEL, a saved HMDE (folder or Hub name), and HMDE_DOCUMENTS, a folder
of `<language>.jsonl` whose lines have a "title" and a "text". On a Space the documents lie beside this file, in docs/.
"""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

import gradio as gr
from transformers import AutoModel, AutoTokenizer

MODEL = os.environ.get("HMDE_MODEL", "runs/hmde-sample")
DOCUMENTS = Path(os.environ.get("HMDE_DOCUMENTS", Path(__file__).parent / "docs"))
NUM_HITS = 5

EXAMPLES = [
    "Why does the tail always point away from the Sun?",
    "Wie entsteht eine Sonnenfinsternis?",
    "Какое животное спит зимой?",
    "谁发明了印刷术？",
]

STYLE = """
.hit { border: 1px solid var(--border-color-primary); border-radius: 12px; padding: 14px 18px; margin-bottom: 12px;
       background: var(--background-fill-primary); }
.hit header { display: flex; align-items: baseline; gap: 10px; margin-bottom: 6px; }
.hit h3 { margin: 0; font-size: 1.1rem; color: var(--body-text-color); }
.hit .language { font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; padding: 1px 8px;
                 border-radius: 999px; background: var(--background-fill-secondary);
                 color: var(--body-text-color-subdued); }
.hit .score { margin-left: auto; font-variant-numeric: tabular-nums; color: var(--body-text-color-subdued); }
.hit p { margin: 0; line-height: 1.7; color: var(--body-text-color); }
.hit mark { color: inherit; border-radius: 4px; padding: 1px 2px; box-decoration-break: clone;
            background: rgba(245, 166, 35, var(--share)); }
"""

# Fonts as objects: `launch` compares them with those of gradio's own themes and stumbles over strings.
FONTS = [gr.themes.Font(name) for name in ("system-ui", "Noto Sans", "Helvetica", "sans-serif")]
THEME = gr.themes.Default(primary_hue="amber", neutral_hue="stone", font=FONTS)

tokenizer = AutoTokenizer.from_pretrained(MODEL, trust_remote_code=True)
model = AutoModel.from_pretrained(MODEL, trust_remote_code=True)
documents = [
    {"language": file.stem, **json.loads(line)}
    for file in sorted(DOCUMENTS.glob("*.jsonl"))
    for line in file.read_text(encoding="utf-8").splitlines()
]
vectors = model.encode_documents(
    [document["text"] for document in documents],
    tokenizer,
    language=[document["language"] for document in documents],
    show_progress_bar=True,
)
LANGUAGES = sorted({document["language"] for document in documents})


def search(question: str, languages: list[str]) -> str:
    """The best documents in some languages, as HTML."""
    places = [place for place, document in enumerate(documents) if document["language"] in languages]
    if not question.strip() or not places:
        return ""
    (query,) = model.encode_queries([question], tokenizer)
    best = sorted(places, key=lambda place: vectors[place] @ query, reverse=True)[:NUM_HITS]
    return "".join(
        explain(question, documents[place]["text"], documents[place]["language"], documents[place]["title"])
        for place in best
    )


def explain(question: str, text: str, language: str, title: str) -> str:
    """A document as HTML, each sentence that adds more than its share to the cosine with the question marked."""
    if not question.strip() or not text.strip():
        return ""
    (explanation,) = model.explain(question, [text], tokenizer, language=language)
    even = explanation.score / len(explanation.sentences)
    strongest = explanation.sentences[0].score
    marked, shown = "", 0
    for begin, end, score in sorted(explanation.sentences):
        # From nothing at an even share of the score to full colour at the strongest sentence.
        share = 0.75 * max(score - even, 0) / max(strongest - even, 1e-6)
        sentence = html.escape(text[begin:end])
        marked += html.escape(text[shown:begin])
        marked += (
            f'<mark style="--share: {share:.2f}" title="{score:+.3f} of {explanation.score:.3f}">{sentence}</mark>'
        )
        shown = end
    marked += html.escape(text[shown:])
    return (
        f'<article class="hit" lang="{html.escape(language)}"><header><h3>{html.escape(title)}</h3>'
        f'<span class="language">{html.escape(language)}</span>'
        f'<span class="score">{explanation.score:.3f}</span></header><p>{marked}</p></article>'
    )


with gr.Blocks(title="HMDE") as demo:
    gr.Markdown(
        "# Ask in one language, find in all\n"
        "HMDE gives a whole document one vector, the mean of what its sentences become in context. So a score is a sum "
        "over sentences; those that add more than their share are marked, and the pointer over one shows its number."
    )
    with gr.Tab("Search"):
        with gr.Row(equal_height=True):
            question = gr.Textbox(
                label="Question, in any language", placeholder=EXAMPLES[0], scale=3, elem_id="question"
            )
            languages = gr.CheckboxGroup(LANGUAGES, value=LANGUAGES, label="Documents in", scale=2)
        button = gr.Button("Search", variant="primary")
        gr.Examples([[example] for example in EXAMPLES], inputs=[question])
        hits = gr.HTML(elem_id="hits")
        gr.on([question.submit, button.click], search, [question, languages], hits, api_name="search")
    with gr.Tab("Your own text"):
        own_question = gr.Textbox(label="Question, in any language")
        own_text = gr.Textbox(label="Document", lines=10)
        own_language = gr.Textbox(label="Its language, as an ISO 639-1 code", value="en", max_lines=1)
        own_button = gr.Button("Show what matches", variant="primary")
        own_hit = gr.HTML()
        own_title = gr.State("Your text")
        own_button.click(explain, [own_question, own_text, own_language, own_title], own_hit, api_name="explain")

if __name__ == "__main__":
    demo.launch(css=STYLE, theme=THEME)
