"""PDF page by page: by poppler's pdftotext where it is installed, else by PDFium.

Both give the same for most files. Chrome prints Arabic, Indic and Thai script so that only a reader of /ActualText gets
the words right, which PDFium is not (MRR of Arabic pages .56, by poppler .97, of the true text .97).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import unicodedata
from collections import Counter
from itertools import pairwise
from typing import Any

import regex

from hmde.documents.content import Content, UnreadableFile
from hmde.documents.wrapping import unwrapped

_SECONDS = 120  # for poppler to read a file
_WIDE = r"\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"
_UNSURE = re.compile("[\u0590-\u08ff\u0900-\u109f\u1780-\u17ff\ufb1d-\ufdff\ufe70-\ufefc]")  # scripts PDFium may garble
_DIRECTIONS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Poppler writes punctuation between Arabic or Hebrew words from left to right, and the ligature lam-alef as alef-lam:
# here the cases in which no word of Arabic has these letters in this order.
_LEFT_TO_RIGHT = re.compile("\u202a([^\\w\u202c]+)\u202c")
_STOP_FIRST = re.compile("(?m)^\u202b\u202a([.,:;!?]+)\u202c(.+)$")
_LAM_ALEF = re.compile("(?<=\u0627)([\u0622\u0623\u0625])\u0644|\\b(\u0627)\u0644\\b")
_EDGE = 2  # lines at the top and at the bottom of a page that may be a header or a footer
_ALIKE = 0.995  # share of the pairs of letters in which two readers agree, at least
_WAY_OUT = "install poppler (apt install poppler-utils; brew install poppler) and update the index"


def pdf(content: bytes) -> Content:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise UnreadableFile("is encrypted; save it without its password", "encrypted") from None
        raise
    texts = _by_poppler(content, len(document))
    notes = []
    if texts is None:
        texts = _by_pdfium(document)
        if _is_garbled("\n".join(texts)):
            notes.append(f"may be read with words reversed, split or letter by letter; {_WAY_OUT}")
    elif _is_unsure("\n".join(texts)) and not _is_of_chrome(document) and not _alike(texts, _by_pdfium(document)):
        notes.append("may be read with wrong words, since poppler and PDFium differ; index what it was printed from")
    if any(map(_LAM_ALEF.search, texts)):
        notes.append(
            "has words with lam and alef in the wrong order, which poppler writes; only plain cases are put right"
        )
    images = [number for number, text in enumerate(texts, 1) if not text.strip() and _has_image(document[number - 1])]
    if images and len(images) < len(texts):
        numbers = ", ".join(map(str, images[:10])) + (", ..." if len(images) > 10 else "")
        notes.append(f"has {len(images)} pages that are pictures ({numbers}); recognise their text first: ocrmypdf")
    texts = _without_headers([_cleaned(text) for text in texts])
    texts = [re.sub(r"\n\s*\n", "\n", unwrapped(text, full=0.8, least=0)) for text in texts]
    pages = [(f"page {number}", text) for number, text in enumerate(texts, 1)]
    headings = frozenset(" ".join(bookmark.get_title().split()) for bookmark in document.get_toc())
    return Content(document.get_metadata_value("Title"), None, pages, tuple(notes), headings)


def _by_poppler(content: bytes, num_pages: int) -> list[str] | None:
    """The text of each page; None if poppler is not installed or does not manage it."""
    if shutil.which("pdftotext") is None:
        return None
    command = ["pdftotext", "-q", "-enc", "UTF-8", "-eol", "unix", "-", "-"]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    pages = done.stdout.decode("utf-8", "replace").split("\f")[:-1]
    return pages if len(pages) == num_pages and any(page.strip() for page in pages) else None


def _by_pdfium(document: Any) -> list[str]:
    """The text of each page, with forms and notes made part of it."""
    import pypdfium2

    document.init_forms()
    texts = []
    for number in range(len(document)):
        page = document[number]
        pypdfium2.raw.FPDFPage_Flatten(page.raw, pypdfium2.raw.FLAT_NORMALDISPLAY)
        page.close()  # what was made part of the page is there when it is opened again
        texts.append(document[number].get_textpage().get_text_range())
    return texts


def _has_image(page: Any) -> bool:
    import pypdfium2

    return next(page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE]), None) is not None


def _is_garbled(text: str) -> bool:
    """Whether most words are single letters, or many full stops stand alone, or PDFium may garble the script.

    >>> texts = ("Y\\na\\np\\na\\ny\\nz", "A line.", "\\u0645\\u0631\\u062d", "A line A line . .", "A . . . . . 5")
    >>> [_is_garbled(text) for text in texts]
    [True, False, True, True, False]
    """
    words = re.findall(rf"[^\W\d_{_WIDE}]+", text)
    single = sum(len(word) == 1 for word in words)
    text = re.sub(r"([.,]\s+){4,}", " ", text)  # between a heading and its page, in a table of contents
    alone = sum(word in (".", ",") for word in text.split())
    return single > max(0.6 * len(words), 5) or alone > 0.2 * len(re.findall("[.,]", text)) or _is_unsure(text)


def _is_unsure(text: str) -> bool:
    """Whether a tenth of the letters is of scripts that readers of PDFs may garble."""
    return len(_UNSURE.findall(text)) > 0.1 * sum(map(str.isalpha, text))


def _is_of_chrome(document: Any) -> bool:
    """Whether /ActualText holds what the glyphs do not tell, which poppler reads and PDFium does not."""
    return document.get_metadata_value("Producer").startswith("Skia/PDF")


def _alike(pages: list[str], others: list[str]) -> bool:
    """Whether two readers read nearly the same words, in whatever order they read columns."""
    own, other = (Counter(pairwise(_letters("".join(map(_cleaned, texts))))) for texts in (pages, others))
    return (own & other).total() >= _ALIKE * max(own.total(), other.total())


def _letters(text: str) -> str:
    """
    >>> _letters("\\u0e19\\u0e33 1.") == "\\u0e19\\u0e4d\\u0e321"
    True
    """
    return "".join(char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char)[0] in "LMN")


def _cleaned(page: str) -> str:
    """A page with line feeds, without marks of direction and without the spaces that justify lines of Chinese and
    Japanese or part a letter from its mark; PDFium writes U+FFFE or U+0002 for the hyphen of a divided word, often
    without a line break behind it."""
    page = re.sub("[\ufffe\x02](\r\n?|\n)?", "\xad\n", page).replace("\r\n", "\n").replace("\r", "\n")
    page = _STOP_FIRST.sub(r"\2\1", page)
    page = _LEFT_TO_RIGHT.sub(lambda found: found[1][::-1], page)
    page = _LAM_ALEF.sub(lambda found: "\u0644" + (found[1] or found[2]), _DIRECTIONS.sub("", page))
    return regex.sub(rf"(?<=[{_WIDE}]) (?=[{_WIDE}])|(?<=\w) (?=\p{{M}})", "", page).strip()


def _without_headers(pages: list[str]) -> list[str]:
    """The pages without the lines at their edges that stand on more than half of them, whatever their numbers.

    >>> _without_headers(["Report\\nOne.\\n1", "Report\\nTwo.\\n2", "Three."])
    ['One.', 'Two.', 'Three.']
    """
    lines = [page.split("\n") for page in pages]
    edges = [{_pattern(line) for line in page[:_EDGE] + page[-_EDGE:] if line.strip()} for page in lines]
    count = Counter(pattern for edge in edges for pattern in edge)
    repeated = {pattern for pattern, times in count.items() if times > len(pages) / 2 and len(pages) > 2}
    kept = []
    for page in lines:
        middle = range(_EDGE, len(page) - _EDGE)
        rest = (line for number, line in enumerate(page) if number in middle or _pattern(line) not in repeated)
        kept.append("\n".join(rest).strip())
    return kept if any(kept) else pages


def _pattern(line: str) -> str:
    return re.sub(r"\d+", "#", line.strip())
