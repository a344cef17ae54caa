"""Texts in the scripts of all languages, drawn by hypothesis, which also finds the smallest text that fails: tokenizer,
segmentation, packing and index."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from modeling_hmde.segmentation_hmde import replace_surrogates, sentence_spans
from tests.attack.commands import call
from tests.attack.runs import saved_hmde
from tests.attack.texts import TAGS, hmde

BATCHES = 25  # of one attack, by hypothesis, each of at most
TEXTS = 40
LARGE_BATCHES, TEXTS_OF_A_LARGE_BATCH = 3, 500  # drawn without hypothesis, which takes long for each character
LANGUAGES = [
    None,
    *["en", "de", "fr", "ru", "zh", "ja", "th", "hi", "ar", "he", "am", "my", "ka", "el", "ko", "fa", "ta", "xx"],
]

# First and last character of the scripts of Unicode's multilingual planes in which languages are written today.
SCRIPTS = [
    *[(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F)],
    *[(0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x780, 0x7BF), (0x7C0, 0x7FF), (0x900, 0x97F), (0x980, 0x9FF)],
    *[(0xA00, 0xA7F), (0xA80, 0xAFF), (0xB00, 0xB7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xC80, 0xCFF), (0xD00, 0xD7F)],
    *[(0xD80, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF)],
    *[(0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1400, 0x167F), (0x1680, 0x169F), (0x16A0, 0x16FF)],
    *[(0x1780, 0x17FF), (0x1800, 0x18AF), (0x1B00, 0x1B7F), (0x1C50, 0x1C7F), (0x2000, 0x206F), (0x2C00, 0x2C5F)],
    *[(0x2D30, 0x2D7F), (0x3000, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA48F), (0xAC00, 0xD7A3)],
    *[(0xD800, 0xDFFF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFE0F), (0xFF00, 0xFFEF), (0x10400, 0x1044F)],
    *[(0x11000, 0x110CF), (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F), (0x1F1E6, 0x1F1FF), (0x1F300, 0x1FAFF)],
    *[(0x20000, 0x2A6DF), (0xE0000, 0xE007F), (0x0, 0x1F), (0x7F, 0x9F)],
]


def _in_script(script: tuple[int, int]) -> st.SearchStrategy[str]:
    first, last = script
    characters = st.integers(first, last).map(chr)
    return st.lists(characters, min_size=1, max_size=30).map("".join)


ENDS = [". ", "! ", "? ", "。", "।", "؟ ", "\n", " ", "… ", "”", "(", '"', "\u200b", *TAGS]
PIECES = st.one_of(st.sampled_from(SCRIPTS).flatmap(_in_script), st.sampled_from(ENDS), st.text(max_size=20))
DOCUMENTS = st.lists(st.lists(PIECES, max_size=12).map("".join), min_size=1, max_size=TEXTS)


def _text(random: Random) -> str:
    scripts = random.choices(SCRIPTS, k=random.randint(0, 3))
    pieces = []
    for first, last in random.choices(scripts, k=random.randint(1, 12)) if scripts else ():
        pieces += [chr(random.randint(first, last)) for _ in range(random.randint(1, 12))]
        pieces.append(random.choice(ENDS))
    return "".join(pieces)


def _for_each_batch(random: Random, check: Callable[[list[str], str | None], None], batches: int = BATCHES) -> int:
    """Draw batches and check them. Returns how many texts there were."""
    drawn = 0

    @seed(random.getrandbits(64))
    @settings(
        max_examples=batches,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(DOCUMENTS, st.sampled_from(LANGUAGES))
    def batch(texts: list[str], language: str | None) -> None:
        nonlocal drawn
        drawn += len(texts)
        check(texts, language)

    batch()
    for _ in range(LARGE_BATCHES):
        check([_text(random) for _ in range(TEXTS_OF_A_LARGE_BATCH)], random.choice(LANGUAGES))
    return drawn + LARGE_BATCHES * TEXTS_OF_A_LARGE_BATCH


def segment(random: Random, folder: Path) -> str:
    """Spans point at what there is to see of a text, in order, and nothing to see lies between them."""

    def check(texts: list[str], language: str | None) -> None:
        for text in map(replace_surrogates, texts):
            spans = list(sentence_spans(text, language))
            bounds = [0, *(bound for span in spans for bound in span), len(text)]
            assert bounds == sorted(bounds), f"{spans} of {text!r}"
            for begin, end in spans:
                assert text[begin:end] == text[begin:end].strip() != "", f"{(begin, end)} of {text!r}"
            for (_, end), (begin, _) in pairwise([(0, 0), *spans, (len(text), len(text))]):
                between = text[end:begin]
                assert not any(character.isalnum() for character in between), f"{between!r} of {text!r} is lost"

    return f"{_for_each_batch(random, check, 4 * BATCHES)} texts"


def encode(random: Random, folder: Path) -> str:
    """The vector of a text does not depend on its batch, and the spans of its sentences point at it."""
    model, tokenizer = hmde(random.choice(["labse", "modernbert"]))

    def check(texts: list[str], language: str | None) -> None:
        vectors, described = model.encode_documents(texts, tokenizer, language=language, sentences=True)
        chosen = len(texts[0]) % len(texts)
        alone = model.encode_documents([texts[chosen]], tokenizer, language=language)
        np.testing.assert_allclose(vectors[chosen], alone[0], atol=2e-4)
        assert np.isfinite(vectors).all()
        for text, sentences in zip(texts, described):
            assert len(sentences.spans) == len(sentences.vectors)
            spans = [span for span in sentences.spans if span != (0, 0)]
            assert spans == sorted(spans), f"{spans} of {text!r}"
            assert all(0 <= begin <= end <= len(text) for begin, end in spans), f"{spans} of {text!r}"
        assert np.isfinite(model.encode_queries(texts, tokenizer)).all()

    return f"{_for_each_batch(random, check)} texts"


def index(random: Random, folder: Path) -> str:
    """An index gives back every document as it was, and finds each by its own vector. In a process of its own."""
    texts: list[str] = []
    _for_each_batch(random, lambda batch, _: texts.extend(batch))

    def make(argv: list[str]) -> None:
        from search.documents import Document
        from search.encoder import Encoder
        from search.snapshot import open_snapshot
        from search.update import update_index

        documents = [Document(f"{number} {text[:9]}", text[:20], None, text) for number, text in enumerate(texts)]
        encoder = Encoder.load(str(saved_hmde()), "float32")
        update_index(folder / "index", documents, encoder)
        found = open_snapshot(folder / "index")
        assert found.documents([document.id for document in documents]) == documents
        sample = documents[:: max(1, len(documents) // 20)]
        for document, vector in zip(sample, encoder.encode(sample)):
            assert max(found.nearest(vector, 3).values()) > 0.999, document
            found.bm25(document.text.split(), 3)

    ended = call(make, [], folder / "log", seconds=600)
    assert ended.code == 0, ended.output[-3000:]
    return f"{len(texts)} texts"


def grow(random: Random, folder: Path) -> str:
    """Reading a text of sixteen times the length takes about sixteen times as long, not 256 times."""
    _, tokenizer = hmde("labse")
    first, last = random.choice(SCRIPTS)
    piece = "".join(chr(random.randint(first, last)) for _ in range(random.randint(1, 30)))
    piece += random.choice(["", " ", ". ", "\n", '"', "(", "。", "\u0301", "\u200d", "“"])
    text = replace_surrogates(piece * (160_000 // len(piece)))
    reads: dict[str, Callable[[str], object]] = {
        "segmentation": lambda text: list(sentence_spans(text)),
        "tokenizer": lambda text: tokenizer(text, return_truncated=True),
    }
    for name, read in reads.items():
        seconds = [_cpu_seconds(read, text[:length]) for length in (10_000, 40_000, 160_000)]
        assert seconds[-1] < 0.05 + 48 * max(seconds[0], 0.002), f"{name} of {piece!r} takes {seconds}"
    return f"{len(text)} characters of {piece!r}"


def _cpu_seconds(read: Callable[[str], object], text: str) -> float:
    """The lesser of two times, which other programs do not change."""
    times = []
    for _ in range(2):
        began = time.process_time()
        read(text)
        times.append(time.process_time() - began)
    return min(times)
