"""A document as HTML, its sentences marked by how well they answer a question. For the server's page and the demo.

Colours are CSS variables with the names that gradio gives them; a page of another kind defines them.
"""

from __future__ import annotations

import html

from hmde.documents.documents import Document
from modeling_hmde import Explanation

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


def marked(document: Document, score: float, explanation: Explanation) -> str:
    """A document as HTML. The mark of a sentence says how well it answers: it is strongest for the best sentence, and
    nothing for those whose score is not above the mean."""
    text, language = document.text, document.language or ""
    scores = [sentence.score for sentence in explanation.sentences]
    mean, best = sum(scores) / len(scores), scores[0]
    body, shown = "", 0
    for begin, end, sentence_score in sorted(explanation.sentences):
        share = 0.75 if sentence_score == best else 0.75 * max(sentence_score - mean, 0) / (best - mean)
        body += html.escape(text[shown:begin])
        body += (
            f'<mark style="--share: {share:.2f}" title="{sentence_score:+.3f}">{html.escape(text[begin:end])}</mark>'
        )
        shown = end
    body += html.escape(text[shown:])
    return (
        f'<article class="hit" lang="{html.escape(language)}"><header><h3>{html.escape(document.title)}</h3>'
        f'<span class="language">{html.escape(language)}</span>'
        f'<span class="score">{score:.3f}</span></header><p>{body}</p></article>'
    )
