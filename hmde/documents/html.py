"""HTML: the text that a browser shows of a page's main part, a line for each paragraph, row and item.

Resiliparse parses as browsers do (lexbor), at any depth, and writes the text. On the 130 pages of Mozilla's
Readability, 99.6 % of the words of an article are kept, and 90 % of the words that are kept are the article's; all that
a page shows: 100 and 75; Resiliparse's own main content: 98.6 and 93; trafilatura, at its greatest recall: 97.7 and 97.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hmde.documents.content import Content
from hmde.documents.encodings import decoded

# What browsers do not show, or show only to be chosen from.
_UNSEEN = ", ".join(
    [
        "script, style, template, noscript, svg, select, datalist, button, rt, rp",
        "video, audio, object, iframe, canvas, dialog:not([open])",
        "[hidden]:not([hidden=until-found]), [style*='display:none' i], [style*='display: none' i]",
    ]
)
# What stands around the text of a page on every page of a site; an aside with links to other pages is of this kind.
_AROUND = (
    "nav, footer, [role=navigation], [role=contentinfo], [role=banner], [role=search], "
    "aside:has(li a), aside:has(a img), aside:has(h2 a), aside:has(h3 a)"
)
_BESIDE = "aside, [role=complementary]"  # a note where it stands in the main part, else what stands beside it
# Words in the classes of what is seldom text (comments, other articles, advertisements), and of what may be text all
# the same, from Mozilla's Readability (Apache-2.0); without its "header", which holds a title. Ids may be headings.
_UNLIKELY = (
    "-ad-|ai2html|banner|breadcrumbs|combx|comment|community|cover-wrap|disqus|extra|footer|gdpr|legends|menu|"
    "related|remark|replies|rss|shoutbox|sidebar|skyscraper|social|sponsor|supplemental|ad-break|agegate|pagination|"
    "pager|popup|yom-remote"
)
_LIKELY = "and|article|body|column|content|main|mathjax|shadow"
_MOST = 0.3  # of the letters of a page that such an element has; more is the text
_MAIN = ("main, [role=main]", "article, [role=article]")
_DECLARED = re.compile(
    rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w:.-]+)|<\?xml[^>]+encoding\s*=\s*["']([\w:.-]+)""", re.I
)
_PRESCAN = 4_096  # bytes in which an encoding is declared; the standard asks for 1,024


def html(content: bytes, whole: bool = False) -> Content:
    """A page.

    Args:
        whole: read all that is shown, as of a chapter of a book, which has nothing around its text.
    """
    declared = _DECLARED.search(content, 0, _PRESCAN)
    text, notes = decoded(content, (declared[1] or declared[2]).decode("ascii") if declared else None)
    return parsed_html(text, whole)._replace(notes=notes)


def parsed_html(page: str, whole: bool = False) -> Content:
    """A page that has been decoded."""
    from resiliparse.parse.html import HTMLTree

    tree: Any = HTMLTree.parse(page)
    root = tree.document.query_selector("html")
    attributes = {name: root.getattr(name) for name in ("lang", "xml:lang")} if root else {}
    language = attributes.get("lang") or attributes.get("xml:lang")
    title = tree.title
    _remove(tree.document, _UNSEEN)
    if not _text(tree):  # a program shows the page later
        tree = HTMLTree.parse(page)
    if not whole:
        tree = _main_part(tree)
    headings = [" ".join(heading.text.split()) for heading in tree.document.query_selector_all("h1, h2, h3")]
    text = _text(tree)
    return Content(title or next(filter(None, headings), None), language, [("", text)], headings=frozenset(headings))


def _main_part(tree: Any) -> Any:
    """The tree without what stands around the text; where one element says that it is the main part, this alone."""
    from resiliparse.parse.html import HTMLTree

    complete = tree.document.query_selector("html").html
    for selector in _MAIN:
        found = [element for element in tree.document.query_selector_all(selector) if element.text.strip()]
        if len(found) == 1:
            tree = HTMLTree.parse(found[0].html)
            break
    else:
        _remove(tree.document, _BESIDE)
    _remove(tree.document, _AROUND)
    before = len(_text(tree))
    page: Any = HTMLTree.parse(tree.document.query_selector("html").html)
    most = _MOST * _letters(page.document.query_selector("html"))
    blocks = f":is(div, section, ul, ol, form, header):is({_classes(_UNLIKELY)}):not(:is({_classes(_LIKELY)}))"
    _remove(page.document, "ul, ol", _links_to_pages)
    _remove(page.document, blocks, lambda element: _letters(element) <= most)
    kept = page if len(_text(page)) >= 0.5 * before else tree  # a page may be a list of links, or of comments
    return kept if before else HTMLTree.parse(complete)


def _classes(words: str) -> str:
    """
    >>> _classes("menu|rss")
    "[class*='menu' i], [class*='rss' i]"
    """
    return ", ".join(f"[class*='{word}' i]" for word in words.split("|"))


def _links_to_pages(element: Any) -> bool:
    links = element.query_selector_all("a")
    return len(links) >= 3 and sum(map(_letters, links)) >= 0.75 * _letters(element)


def _remove(document: Any, selector: str, condition: Callable[[Any], bool] = lambda _: True) -> None:
    for element in reversed(list(document.query_selector_all(selector))):  # those in others first, while they are there
        if condition(element):
            element.decompose()


def _letters(element: Any) -> int:
    return len("".join((element.text or "").split()))


def _text(tree: Any) -> str:
    """
    >>> from resiliparse.parse.html import HTMLTree
    >>> _text(HTMLTree.parse("<p>Do&shy;nau<pre>one\\n  two</pre><table><tr><td>Ann<td>30<tr><td>Bob<td>41</table>"))
    'Donau\\none\\n  two\\nAnn 30\\nBob 41'
    """
    from resiliparse.extract.html2text import extract_plain_text

    text = extract_plain_text(tree, preserve_formatting=True, list_bullets=False, alt_texts=False)
    if not tree.document.query_selector("pre"):
        text = re.sub(r"(?m)^[^\S\n]+", "", text)  # lists are set in
    lines = (re.sub(r"[^\S\n]*\t\s*", " ", line.strip("\n\t")) for line in text.replace("\xad", "").splitlines())
    return "\n".join(line.rstrip() for line in lines if line.strip())
