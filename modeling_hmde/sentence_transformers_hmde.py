"""HMDE as the one module of a SentenceTransformer, which reads a model folder by its `modules.json`.

Knows sentence-transformers' protocol for modules and does not import it: this file ships with every model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

if TYPE_CHECKING:
    from typing import Self

CONFIG = {
    "model_type": "SentenceTransformer",
    "prompts": {"query": "", "document": ""},  # the tokenizer puts its own before queries and sentences
    "default_prompt_name": None,
    "similarity_fn_name": "cosine",
}
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers_hmde.HMDESentenceTransformersModule"}]


def write_sentence_transformers_files(folder: Path) -> None:
    """The files by which `SentenceTransformer(folder, trust_remote_code=True)` finds the module below.

    A configuration that is there already is kept: sentence-transformers writes its own before it saves the module.
    """
    config = folder / "config_sentence_transformers.json"
    if not config.exists():
        config.write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")
    (folder / "modules.json").write_text(json.dumps(MODULES, indent=2) + "\n", encoding="utf-8")


class HMDESentenceTransformersModule(nn.Module):
    """Texts in, `sentence_embedding` out: that of a document, or of a query where `task` is "query".

    `encode_document` and `encode_query` set the task; `encode` reads documents. Training reads a column as queries
    where `router_mapping` says so: `SentenceTransformerTrainingArguments(router_mapping={"anchor": "query"})`.

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
        inputs: list[str],
        prompt: str | None = None,
        task: str | None = None,
        language: str | None = None,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The tokenizer's `input_ids` and `attention_mask`, (texts, tokens), and the task, which `forward` needs.

        Args:
            prompt: put before each text, in addition to the tokenizer's own prompts.
            task: "query" for queries; all else are documents.
            language: code of all texts, for the sentence splitter's rules.
            max_length: tokens of a text; `max_seq_length` if not given.
        """
        texts = [prompt + text for text in inputs] if prompt else list(inputs)
        features = self.tokenizer(
            texts,
            as_queries=task == "query",
            language=language,
            padding=True,
            truncation=True,
            max_length=max_length,
            return_tensors="pt",
        )
        return {**features, "task": task}

    def forward(
        self, features: dict[str, Any], task: str | None = None, language: str | None = None
    ) -> dict[str, Tensor]:
        """Adds `sentence_embedding`, (texts, hidden). The language has done its part in `preprocess`."""
        tokens = {name: features[name] for name in ("input_ids", "attention_mask")}
        if (task or features.get("task")) == "query":
            return features | {"sentence_embedding": self.model.embed_queries(**tokens)}
        return features | {"sentence_embedding": self.model(**tokens).pooler_output}

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
