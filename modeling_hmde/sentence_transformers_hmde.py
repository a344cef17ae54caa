"""HMDE as the only module of a SentenceTransformer.

This file is saved with every model. It follows sentence-transformers' protocol for modules and does not import it, so
that library need not be installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

if TYPE_CHECKING:
    from typing import Self

# What a saved model needs: sentence-transformers names what is missing before it reads the weights.
REQUIREMENTS = {"python": ">=3.10", "torch": ">=2.8", "transformers": ">=5.20,<6", "sentencex": ">=1.0.30"}

CONFIG = {
    "model_type": "SentenceTransformer",
    "prompts": {"query": "", "document": ""},  # the tokenizer adds the model's prompts
    "default_prompt_name": None,
    "similarity_fn_name": "cosine",
}
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers_hmde.HMDESentenceTransformersModule"}]


def write_sentence_transformers_files(folder: Path) -> None:
    """The files by which `SentenceTransformer(folder, trust_remote_code=True)` finds the module below.

    What a configuration says already is kept: sentence-transformers writes its own before it saves the module.
    """
    file = folder / "config_sentence_transformers.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.exists() else CONFIG
    file.write_text(json.dumps({"requirements": REQUIREMENTS, **config}, indent=2) + "\n", encoding="utf-8")
    (folder / "modules.json").write_text(json.dumps(MODULES, indent=2) + "\n", encoding="utf-8")


def _precise(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


class HMDESentenceTransformersModule(nn.Module):
    """Texts in, `sentence_embedding` out: that of a query if `task` is "query", else that of a document.

    `encode_query` and `encode_document` set the task. `encode` reads all texts as documents, also with
    `prompt_name="query"`; `encode(texts, task="query")` reads them as queries. Training reads those columns as queries
    that `router_mapping` names: `SentenceTransformerTrainingArguments(router_mapping={"anchor": "query"})`.

    Args:
        model: an `HMDEForDocumentEmbedding`.
        tokenizer: the `HMDETokenizer` saved with it.
    """

    save_in_root = True
    modalities: ClassVar[list[str]] = ["text"]
    forward_kwargs: ClassVar[set[str]] = {"task", "language"}  # what `encode` accepts beyond its own arguments

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        *,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        trust_remote_code: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        processor_kwargs: dict[str, Any] | None = None,
        config_kwargs: dict[str, Any] | None = None,
        backend: str = "torch",
        **kwargs: Any,
    ) -> Self:
        """The module of a saved folder. `config_kwargs` are fields of HMDEConfig; the rest is as everywhere.

        Raises:
            ValueError: the backend is not torch.
        """
        if backend != "torch":
            raise ValueError(f"backend is {backend!r}; as a SentenceTransformer, HMDE runs on 'torch' only")
        source = {
            "subfolder": subfolder,
            "token": token,
            "cache_dir": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
            "trust_remote_code": trust_remote_code,
        }
        fields_and_model = source | (config_kwargs or {}) | (model_kwargs or {})
        return cls(
            AutoModel.from_pretrained(model_name_or_path, **fields_and_model),
            AutoTokenizer.from_pretrained(model_name_or_path, **source | (processor_kwargs or {})),
        )

    def save(self, output_path: str, safe_serialization: bool = True) -> None:
        """Model and tokenizer, always as safetensors, the only format that transformers writes."""
        self.model.save_pretrained(output_path)
        self.tokenizer.save_pretrained(output_path)

    def preprocess(
        self,
        inputs: list[str | dict[str, str]],
        prompt: str | None = None,
        task: str | None = None,
        language: str | None = None,
        max_length: int | None = None,
        processing_kwargs: dict[str, dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The tokenizer's `input_ids`, `attention_mask` and `sentence_ids`, (texts, tokens), and the task, which
        `forward` needs.

        Args:
            inputs: texts, or dictionaries of a text and its language: `{"text": "Ja.", "language": "de"}`.
            prompt: put before each text, in addition to the tokenizer's own prompts.
            task: "query" for queries; all else are documents.
            language: code of all texts that do not come with their own, for the sentence splitter's rules.
            max_length: most tokens of a text. None: `max_seq_length`.
            processing_kwargs: options of the tokenizer for this call, under "text" or "common".

        Raises:
            ValueError: an input is neither a string nor such a dictionary, `language` is no single code, or
                `processing_kwargs` has other parts.
        """
        others = sorted({*(processing_kwargs or {})} - {"common", "text"})
        if others:
            raise ValueError(f"processing_kwargs has {', '.join(others)}; HMDE reads 'text' and 'common' only")
        options: dict[str, Any] = {"language": language, "max_length": max_length, "padding": True, "truncation": True}
        for part in ("common", "text"):
            options |= (processing_kwargs or {}).get(part, {})
        language = options.pop("language")
        if not isinstance(language, (str, NoneType)):
            raise ValueError(
                f"language is {language!r}, but sentence-transformers sorts the texts by length, and a list would give "
                'them the wrong languages; give each text its own: [{"text": "Ja.", "language": "de"}, ...]'
            )
        read = [self._text_and_language(given, language) for given in inputs]
        features = self.tokenizer(
            [(prompt or "") + text for text, _ in read],
            language=[code for _, code in read],
            as_queries=task == "query" and self.model.config.query_path == "sentence_encoder",
            **{"return_tensors": "pt"} | options,
        )
        return {**features, "task": task}

    @staticmethod
    def _text_and_language(given: Any, language: str | None) -> tuple[str, str | None]:
        fields = {"text": given} if isinstance(given, str) else given
        known = isinstance(fields, dict) and {*fields} <= {"text", "language"}
        if not known or not isinstance(fields.get("text"), str):
            raise ValueError(f'an input is {given!r:.80}; give a string or {{"text": ..., "language": ...}}')
        return fields["text"], fields.get("language", language)

    def forward(
        self, features: dict[str, Any], task: str | None = None, language: str | None = None
    ) -> dict[str, Tensor]:
        """Adds `sentence_embedding`, (texts, hidden), float32 at least, so that cosines are. `preprocess` has used the
        language already.

        For documents, the same pass adds `token_embeddings`, (texts, sentences, hidden), and the attention mask becomes
        that of the sentences: `encode(texts, output_value="token_embeddings")` gives each text's sentence vectors.
        """
        tokens = {name: features[name] for name in ("input_ids", "attention_mask", "sentence_ids")}
        if (task or features.get("task")) == "query":
            return {**features, "sentence_embedding": _precise(self.model.embed_queries(**tokens))}
        output = self.model(**tokens)
        return {
            **features,
            "sentence_embedding": _precise(output.pooler_output),
            "token_embeddings": output.last_hidden_state,
            "attention_mask": (output.sentence_lengths > 0).long(),
        }

    @property
    def max_seq_length(self) -> int:
        """Tokens of a document; what follows is cut."""
        return self.tokenizer.model_max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.tokenizer.model_max_length = value

    def get_embedding_dimension(self) -> int:
        return self.model.config.hidden_size


__all__ = ["HMDESentenceTransformersModule", "write_sentence_transformers_files"]
