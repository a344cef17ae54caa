"""Hostile texts: many scripts, all kinds of white space, control characters, lone surrogates, special tokens spelt out.
No sentence boundary may be forged, and no embedding may be lost or depend on its neighbours."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from onnxruntime import InferenceSession

from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from release_tools import export_onnx
from tests.attack.runs import workshop
from tests.tiny_encoders import randomise, save_modernbert

ALPHABETS = [
    "abc ABC.!?",
    "\n\r\t\v\f\x00\x1b\x7f\x85\u2028\u2029\u00a0\u200b\u200d\ufeff",
    "é\u0301\u0300ßｆｕｌｌ①½ﬁ",
    "котКОТ. ",
    "猫狗。！",
    "แมวนอน",
    "नमस्ते।",
    "مرحبا. ",
    "😀👩‍👩‍👧🏳️‍🌈",
    "\ud800\udfff",
    "\U00010000\U0010ffff",
]
TAGS = ["[CLS]", "[SEP]", "[PAD]", "<s>", "</s>", "<pad>", "<mask>", "[MASK]", "[UNK]"]


def text(random: Random) -> str:
    """Up to a few hundred characters of a few alphabets, special tokens spelt out among them."""
    alphabets = random.sample(ALPHABETS, random.randint(1, 3))
    parts = []
    for _ in range(random.randint(0, 40)):
        if random.random() < 0.1:
            parts.append(random.choice(TAGS))
        else:
            parts.append("".join(random.choices(random.choice(alphabets), k=random.randint(1, 12))))
    return "".join(parts)


E5 = Path("runs/e5-small")  # `make model` unpacks it; without it, its area is left out


@functools.cache
def hmde(encoder: str) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    """An HMDE on a tiny `labse`, on a tiny `modernbert` that reads passages, or on the real `e5`."""
    options: dict[str, Any] = {"sentence_pooling": "cls", "num_document_attention_heads": 4}
    folder = workshop() / "labse"
    if encoder == "modernbert":
        options |= {"sentence_pooling": "mean", "passage_length": 64}
        folder = save_modernbert(Path(tempfile.mkdtemp(prefix="attack-")) / "modernbert")
    elif encoder == "e5":
        options |= {"sentence_pooling": "mean", "num_document_attention_heads": 6}
        folder = E5
    limits = {"max_sentence_length": 32, "max_sentences": 8}
    model = HMDEForDocumentEmbedding.from_sentence_encoder(str(folder), **options, **limits)
    randomise(model.hmde.document_encoder, seed=2)
    return model, HMDETokenizer.from_sentence_encoder(str(folder), **limits)


def encode(random: Random, folder: Path, encoder: str = "labse") -> str:
    """Thirty texts at once, and one of them by itself."""
    model, tokenizer = hmde(encoder)
    texts = [text(random) for _ in range(30)]
    language = random.choice([None, "en", "zh", "th", "xx", "\ud800", ""])
    rows = tokenizer(texts, language=language, return_offsets_mapping=True)
    for source, ids, offsets in zip(texts, rows["input_ids"], rows["offset_mapping"]):
        assert ids[0] == tokenizer.start_token_id
        sentences = ids.count(tokenizer.start_token_id)
        assert 1 <= sentences <= tokenizer.max_sentences
        assert tokenizer.pad_token_id not in ids, "a forged padding token"
        assert ids.count(tokenizer.sep_token_id) == sentences, "a forged end of a sentence"
        assert all(0 <= begin <= end <= len(source) for begin, end in offsets)
    vectors = model.encode_documents(texts, tokenizer, language=language)
    assert vectors.shape == (30, model.config.hidden_size)
    assert np.isfinite(vectors).all()
    chosen = random.randrange(30)
    alone = model.encode_documents([texts[chosen]], tokenizer, language=language)[0]
    np.testing.assert_allclose(vectors[chosen], alone, atol=1e-4)
    queries = model.encode_queries(texts, tokenizer)
    assert np.isfinite(queries).all()
    return f"30 texts, language {language!r}"


@functools.cache
def onnx_session() -> InferenceSession:
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    for part in hmde("labse"):
        part.save_pretrained(folder)
    export_onnx.main(["--model", str(folder)])
    return InferenceSession(folder / "onnx" / "model.onnx")


def encode_by_onnx(random: Random, folder: Path) -> str:
    """Thirty texts by ONNX Runtime give the vectors of PyTorch."""
    model, tokenizer = hmde("labse")
    texts = [text(random) for _ in range(30)]
    rows = tokenizer.by_passage(tokenizer(texts)["input_ids"], model.config.passage_length)
    (vectors,) = onnx_session().run(["document_embeddings"], rows)
    expected = model.encode_documents(texts, tokenizer, normalize=False)
    np.testing.assert_allclose(vectors, expected, atol=1e-3)
    return "30 texts"


def encode_in_passages(random: Random, folder: Path) -> str:
    """The same with ModernBERT below, sentences read together."""
    return encode(random, folder, "modernbert")


def encode_with_e5(random: Random, folder: Path) -> str:
    """The same with multilingual-e5-small below: its vocabulary and its normalisation."""
    return encode(random, folder, "e5")
