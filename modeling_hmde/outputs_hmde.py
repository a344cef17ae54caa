"""What a model returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from transformers.utils import ModelOutput


@dataclass
class HMDEOutput(ModelOutput):
    """The encoding of a batch of documents.

    Args:
        last_hidden_state: (documents, sentences, hidden), the contextualised sentence vectors, zero at padding. With
            `document_residual`, the sentence encoder's vectors are mixed in.
        pooler_output: (documents, hidden), the document embeddings, not normalised.
        sentence_embeddings: (documents, sentences, hidden), the sentence encoder's vectors, zero at padding.
        sentence_lengths: (documents, sentences), int64, the tokens read of each sentence, 0 where there is none.
        sentence_vectors: with `output_sentence_vectors`, (documents, sentences, hidden), the vectors by which sentences
            are compared with queries, zero at padding: `last_hidden_state`, or, where sentences share passages, those
            of a second pass, which reads each sentence by itself. With `sentences_only`, the sentence encoder's of each
            sentence by itself, turned by the `rotation`.
        hidden_states: with `output_hidden_states`, the input of the document encoder and the output of each of its
            layers: (documents, 1 + sentences, hidden), the DBOS vector first, zero at padding.
        attentions: with `output_attentions`, the attention weights of each layer of the document encoder: (documents,
            heads, 1 + sentences, 1 + sentences), each row a distribution over the DBOS vector and the sentences.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    sentence_embeddings: Tensor | None = None
    sentence_lengths: Tensor | None = None
    sentence_vectors: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
