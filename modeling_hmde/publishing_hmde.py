"""The model card, and the upload of models and folders."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitInfo, HfApi, ModelCard, ModelCardData

from .configuration_hmde import HMDEConfig

CARD = """\
---
{{ card_data }}
---

# {{ name }}

A hierarchical multilingual document encoder (HMDE): a multilingual sentence encoder below, a shallow transformer over
its sentence vectors above, trained so that documents on one subject get similar vectors whatever their languages.
Method: Galoğlu, Litschko and Glavaš, *A General-Purpose Multilingual Document Encoder*, 2023.

## Use

```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{{ name }}", trust_remote_code=True)
model = AutoModel.from_pretrained("{{ name }}", trust_remote_code=True)

documents = model.encode_documents(["A long document. In any language.", "Ein langes Dokument."], tokenizer)
queries = model.encode_queries(["long documents"], tokenizer)
similarities = queries @ documents.T  # cosines
```

The same with sentence-transformers:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{{ name }}", trust_remote_code=True)

documents = model.encode_document(["A long document. In any language.", "Ein langes Dokument."])
queries = model.encode_query(["long documents"])
similarities = model.similarity(queries, documents)
```

There, `model.encode` reads all texts as documents, also with `prompt_name="query"`.\
{% if config.query_path == "document_encoder" %} This model reads queries in the same way.{% endif %} A document's \
language, which helps to find its sentences, comes with it: `{"text": "Ja.", "language": "de"}`.
`pipeline("feature-extraction")` of transformers gives vectors of sentences; for those of documents call
`encode_documents`.

Needs `sentencex` beside these libraries. The code in this folder runs on your machine: pin it with
`revision="<commit>"`. Prompts are part of the tokenizer; give it plain texts.

## What it was made of

| | |
|---|---|
| sentence encoder | {{ sentence_encoder }} |
| document encoder | {{ config.num_document_layers }} layers, {{ config.num_document_attention_heads }} heads, \
width {{ config.hidden_size }}, {{ config.document_norm }}-norm |
| longest document | {{ config.max_sentences }} sentences of {{ config.max_sentence_length }} tokens |
| sentences read as one text | {% if config.passage_length %}up to {{ config.passage_length }} tokens\
{% else %}none, each is read by itself{% endif %} |
| document embedding | {{ config.document_pooling }}{% if config.document_residual %}, with a weight \
of {{ config.document_residual }} for the sentence encoder's own vectors{% endif %}\
{% if config.document_first_sentence %}, with a share of {{ config.document_first_sentence }} for the first sentence\
{% endif %} |
{% if training %}
{{ training }}
{% endif %}
## Limits and bias

The model works for the languages of its sentence encoder. It is weaker in languages and scripts that were rare in that
encoder's training data. Text beyond the longest document above is not read. Documents and queries are encoded apart
from each other: a cross-encoder, which reads both together, compares them better, and far more slowly.

It has not been tested whether the model's representations reflect negative societal biases and stereotypes, such as
sexism or racism. As its sentence encoder was trained on text from the web, it would not be surprising. Techniques for
debiasing pretrained language models can be applied to it as they are (ethical considerations of the paper).
"""

# Metadata of every HMDE.
METADATA: dict[str, Any] = {
    "library_name": "transformers",
    "pipeline_tag": "feature-extraction",
    "tags": ["hmde", "sentence-transformers", "document-embeddings", "multilingual", "cross-lingual-retrieval"],
}


def model_card(
    name: str, config: HMDEConfig, data: ModelCardData | None = None, sentence_encoder: str = "", training: str = ""
) -> ModelCard:
    """The card of a model that embeds documents.

    Args:
        name: of the model, as it is shown and loaded.
        config: the model's.
        data: metadata. None: that of every HMDE.
        sentence_encoder: its name. Empty: its architecture is shown instead.
        training: Markdown on corpus, recipe and results. Empty if not known.
    """
    data = data or ModelCardData(**METADATA)
    return ModelCard.from_template(
        data,
        template_str=CARD,
        name=name,
        config=config,
        sentence_encoder=sentence_encoder or config.sentence_config.model_type,
        training=training,
    )


def upload_folder(
    folder: str | Path,
    repo_id: str,
    repo_type: str = "model",
    *,
    keep_card: bool = False,
    private: bool | None = None,
    token: bool | str | None = None,
    revision: str | None = None,
    create_pr: bool | None = None,
    commit_message: str | None = None,
    commit_description: str | None = None,
) -> CommitInfo:
    """Upload a finished folder in one commit. The repository is made if it does not exist.

    Args:
        keep_card: leave the card of a repository that has one as it is.
    """
    api = HfApi(token=token)
    repo_id = api.create_repo(repo_id, repo_type=repo_type, private=private, exist_ok=True).repo_id
    if revision is not None and not revision.startswith("refs/pr"):
        api.create_branch(repo_id, repo_type=repo_type, branch=revision, exist_ok=True)
    keep_card = keep_card and api.file_exists(repo_id, "README.md", repo_type=repo_type, revision=revision)
    return api.upload_folder(
        repo_id=repo_id,
        repo_type=repo_type,
        folder_path=folder,
        revision=revision,
        ignore_patterns=["README.md"] if keep_card else None,
        create_pr=create_pr,
        commit_message=commit_message,
        commit_description=commit_description,
    )


def upload(saved: Any, repo_id: str, card: ModelCard | None, **options: Any) -> CommitInfo:
    """Upload what `saved.save_pretrained` writes.

    Args:
        saved: a model or a tokenizer.
        card: for a repository that has none.
        options: those of `upload_folder`.
    """
    with TemporaryDirectory() as folder:
        saved.save_pretrained(folder)
        if card is not None:
            card.save(Path(folder) / "README.md")
        message = {"commit_message": f"Upload {type(saved).__name__}"}
        return upload_folder(folder, repo_id, keep_card=True, **message | options)


__all__ = ["METADATA", "model_card", "upload", "upload_folder"]
