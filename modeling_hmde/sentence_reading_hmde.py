"""From rows of tokens to sentence vectors: what an `HMDEModel` does with its sentence encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from .attention_hmde import PACKED_ATTENTION, packed_attention_arguments
from .encoders_hmde import encoder_family, first_position, longest_text
from .packing_hmde import (
    Passages,
    Sentences,
    bucket_by_length,
    find_sentences,
    join_sentences,
    pad_tokens,
    ranges,
    sentences_by_start_token,
    tokens_of,
)
from .pooling_hmde import pool, pool_sentences

# Most tokens in one call of the sentence encoder. It changes memory and speed, not results. On a CPU the hidden states
# of so many tokens fit into the caches. On a GPU more are needed, or starting the kernels takes longer than their work.
MAX_TOKENS_PER_BUCKET = 4096
MAX_TOKENS_PER_BUCKET_ON_GPU = 65_536


class SentenceReadingMixin(nn.Module):
    """Reads sentences, for a model that has a sentence encoder and what follows its pooling."""

    config: Any
    sentence_encoder: Any
    sentence_modules: nn.Sequential
    get_input_embeddings: Callable[[], nn.Module]

    def encode_sentences(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        alone: bool = False,
    ) -> tuple[Sentences, Tensor]:
        """The sentences of a batch of documents, as the sentence encoder reads them, and their vectors (sentences,
        hidden).

        Args:
            input_ids, attention_mask, sentence_ids: see `forward`.
            alone: each sentence is read by itself, whatever the configuration's `passage_length`.
        """
        if torch.compiler.is_exporting():
            raise ValueError(
                "the sentences of a row are found by its tokens, so this model cannot be exported with rows of tokens; "
                "export its forward_by_passage, with the inputs that tokenizer.by_passage makes"
            )
        passage_length = 0 if alone else self.config.passage_length
        sentences, passages = self._find_passages(input_ids, attention_mask, sentence_ids, passage_length)
        self._check_positions(passages.length)
        budget = MAX_TOKENS_PER_BUCKET_ON_GPU if input_ids.is_cuda else MAX_TOKENS_PER_BUCKET
        buckets = bucket_by_length(passages.length, budget)
        order = [ranges(passages.first_sentence[bucket], passages.num_sentences[bucket]) for bucket in buckets]
        bucket_sentences = [Sentences(*(field[indices] for field in sentences)) for indices in order]
        passage_lengths = [passages.length[bucket] for bucket in buckets]
        sentence_config = self.sentence_encoder.config
        if encoder_family(sentence_config).packable and sentence_config._attn_implementation in PACKED_ATTENTION:
            words = self._words(input_ids, bucket_sentences, passage_lengths)
            vectors = [self._encode_packed(*bucket) for bucket in zip(words, bucket_sentences, passage_lengths)]
        else:
            vectors = [self._encode_padded(input_ids, *bucket) for bucket in zip(bucket_sentences, passage_lengths)]
        in_order = torch.cat(order).argsort()
        return sentences, self.sentence_modules(torch.cat(vectors)[in_order])

    def _find_passages(
        self, input_ids: Tensor, attention_mask: Tensor | None, sentence_ids: Tensor | None, passage_length: int
    ) -> tuple[Sentences, Passages]:
        """The sentences of a batch as they are read, and the passages. Arguments as in `encode_sentences`.

        Raises:
            ValueError: there is no row, or an id is outside the vocabulary; and what `find_sentences` and
                `sentences_by_start_token` refuse.
        """
        if not len(input_ids):
            raise ValueError("input_ids has no row; give at least one document")
        vocab_size = self.config.sentence_config.vocab_size
        outside = (input_ids < 0) | (input_ids >= vocab_size)
        if outside.any():
            row, column = outside.nonzero()[0].tolist()
            raise ValueError(
                f"input_ids[{row}, {column}] is {int(input_ids[row, column])}, outside the vocabulary of {vocab_size}; "
                "use the tokenizer that was saved with this model"
            )
        if attention_mask is None:
            attention_mask = input_ids != self.config.pad_token_id if sentence_ids is None else sentence_ids >= 0
        if sentence_ids is None:
            sentence_ids = sentences_by_start_token(input_ids, attention_mask, self.config.start_token_id)
        sentences = find_sentences(sentence_ids, attention_mask)
        return join_sentences(sentences, passage_length, self.config.left_out_in_passages)

    def _check_positions(self, passage_lengths: Tensor) -> None:
        """
        Raises:
            ValueError: a passage has more tokens than the sentence encoder has positions for.
        """
        table = getattr(getattr(self.sentence_encoder, "embeddings", None), "position_embeddings", None)
        positions = longest_text(self.sentence_encoder.config)
        if isinstance(table, nn.Embedding) and positions is not None and (longest := passage_lengths.max()) > positions:
            raise ValueError(
                f"a sentence or passage has {int(longest)} tokens, but the sentence encoder has {positions} positions; "
                f"set the tokenizer's max_sentence_length to {positions} or less"
            )

    def _words(
        self, input_ids: Tensor, buckets: list[Sentences], passage_lengths: list[Tensor]
    ) -> Iterable[dict[str, Tensor]]:
        """The tokens of each bucket as the sentence encoder takes them, in one row: ids, or word embeddings.

        For a backward pass, the embeddings are looked up once for all buckets: a lookup for each would give a gradient
        of the size of the whole embedding matrix each time. A hook on the word embeddings, such as NEFTune's, sees each
        passage in a row of its own, as in a padded batch.
        """
        embed = self.get_input_embeddings()
        if embed._forward_hooks:
            padded = (
                pad_tokens(input_ids, *bucket, self.config.pad_token_id) for bucket in zip(buckets, passage_lengths)
            )
            return ({"inputs_embeds": embed(ids)[mask.bool()].unsqueeze(0)} for ids, mask in padded)
        ids_of_buckets = [tokens_of(input_ids, bucket) for bucket in buckets]
        sharded = any(hasattr(weight, "device_mesh") for weight in embed.parameters())  # until its encoder is called
        if torch.is_grad_enabled() and not sharded:
            embeddings = embed(torch.cat(ids_of_buckets).unsqueeze(0)).split([*map(len, ids_of_buckets)], dim=1)
            return ({"inputs_embeds": bucket} for bucket in embeddings)
        return ({"input_ids": ids.unsqueeze(0)} for ids in ids_of_buckets)

    def _encode_packed(self, words: dict[str, Tensor], sentences: Sentences, passage_lengths: Tensor) -> Tensor:
        """The words of passages end to end -> the vectors of their sentences (sentences, hidden). passage_lengths:
        (passages,), tokens of each."""
        first_positions = torch.full_like(passage_lengths, first_position(self.sentence_encoder.config))
        output = self.sentence_encoder(
            **words,
            position_ids=ranges(first_positions, passage_lengths).unsqueeze(0),
            **packed_attention_arguments(passage_lengths),
        )
        tokens = output.last_hidden_state.squeeze(0)
        return pool(self.config.sentence_pooling, tokens, sentences.length, self.sentence_encoder)

    def _encode_padded(self, input_ids: Tensor, sentences: Sentences, passage_lengths: Tensor) -> Tensor:
        """As `_encode_packed`, each passage in a row of its own, padded at its end. input_ids: (documents, tokens)."""
        ids, mask = pad_tokens(input_ids, sentences, passage_lengths, self.config.pad_token_id)
        output = self.sentence_encoder(input_ids=ids, attention_mask=mask)
        tokens = output.last_hidden_state[mask.bool()]
        return pool(self.config.sentence_pooling, tokens, sentences.length, self.sentence_encoder)

    def encode_passages(self, input_ids: Tensor, attention_mask: Tensor | None, sentence_lengths: Tensor) -> Tensor:
        """Passages (documents, passages, tokens) and the tokens of each sentence (documents, sentences) -> sentence
        vectors (documents, sentences, hidden), zero where there is no sentence. All shapes follow from the inputs'."""
        real = input_ids != self.config.pad_token_id if attention_mask is None else attention_mask.bool()
        # A passage of padding alone attends to its first token, or its softmax would be over nothing.
        first = torch.zeros_like(real)
        first[:, :, 0] = True
        output = self.sentence_encoder(
            input_ids=input_ids.flatten(0, 1), attention_mask=(real | first).flatten(0, 1).long()
        )
        if self.config.sentence_pooling == "pooler":  # with this pooling, a passage is one sentence
            vectors = output.pooler_output.unflatten(0, input_ids.shape[:2])
        else:
            tokens = output.last_hidden_state.unflatten(0, input_ids.shape[:2]).flatten(1, 2)
            vectors = pool_sentences(self.config.sentence_pooling, tokens, real.flatten(1), sentence_lengths)
        return self.sentence_modules(vectors).masked_fill((sentence_lengths == 0).unsqueeze(-1), 0)
