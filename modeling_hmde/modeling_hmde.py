"""HMDE: a hierarchical multilingual document encoder.

    tokens -> sentence encoder -> sentence vectors -> document encoder -> document embedding

A pretrained multilingual sentence encoder makes a vector of each sentence; a shallow transformer, the document encoder,
lets the sentences of a document see each other; their mean is the document's embedding. A query is one sentence and
passes the sentence encoder alone. After Galoğlu, Litschko and Glavaš, "A General-Purpose Multilingual Document
Encoder", 2023, called "the paper" throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import torch
from huggingface_hub import CommitInfo, ModelCard
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.dynamic_module_utils import custom_object_save
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.logging import tqdm

from .attribution_hmde import (
    DocumentSentences,
    Explanation,
    Scoring,
    contributions,
    score_sentences,
    sentence_places,
)
from .configuration_hmde import POSITIONS_AFTER_PADDING, HMDEConfig
from .packing_hmde import (
    PACKABLE_ENCODERS,
    PACKED_ATTENTION,
    PackedTokens,
    Sentences,
    bucket_by_length,
    find_sentences,
    join_sentences,
    pack_tokens,
    packed_attention_arguments,
    pad_tokens,
    ranges,
    scatter_sentences,
)
from .publishing_hmde import model_card, upload
from .sentence_transformers_hmde import write_sentence_transformers_files
from .tokenization_hmde import HMDETokenizer

if TYPE_CHECKING:
    from typing import Self

Given = TypeVar("Given")
Made = TypeVar("Made")

# Tokens in one call of the sentence encoder. Memory grows with it, results do not change with it. A processor's caches
# hold the states of so many; a GPU wants more, to be busy longer than it takes to ask for the work.
MAX_TOKENS_PER_BUCKET = 4096
MAX_TOKENS_PER_BUCKET_ON_GPU = 65_536

# Texts that `encode_documents` tokenizes together, while the model computes those before them.
TEXTS_PER_TOKENIZATION = 1024


@dataclass
class HMDEOutput(ModelOutput):
    """What the document encoder makes of a batch of documents.

    Args:
        last_hidden_state: (documents, sentences, hidden), the contextualised sentence vectors, zero at padding. With
            `document_residual`, the sentence encoder's vectors have their share in them.
        pooler_output: (documents, hidden), the document embeddings, not normalised.
        sentence_embeddings: (documents, sentences, hidden), the sentence encoder's vectors, zero at padding.
        sentence_lengths: (documents, sentences), int64, the tokens read of each sentence, 0 where there is none.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    sentence_embeddings: Tensor | None = None
    sentence_lengths: Tensor | None = None


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attention written out. query, key, value: (documents, heads, sentences, head width)."""
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.dropout(scores.softmax(dim=-1), p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2), weights


class ResidualProjection(nn.Linear):
    """The last layer of a sublayer, whose output is added to the residual stream. Zero at the start of `pre` norm."""


class DocumentAttention(nn.Module):
    """Self-attention among the sentences of a document. (documents, sentences, hidden) -> the same shape."""

    is_causal = False

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__()
        self.config = config
        self.head_dim = config.hidden_size // config.num_document_attention_heads
        self.scaling = self.head_dim**-0.5
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = ResidualProjection(config.hidden_size, config.hidden_size)

    def forward(self, states: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> Tensor:
        heads = (*states.shape[:-1], -1, self.head_dim)
        query, key, value = (
            project(states).view(heads).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        attend: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention)
        attended, _ = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.config.document_dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return self.output(attended.reshape(states.shape))


class DocumentFeedForward(nn.Module):
    """(documents, sentences, hidden) -> the same shape."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__()
        self.input = nn.Linear(config.hidden_size, config.document_intermediate_size)
        self.activation = ACT2FN[config.document_hidden_act]
        self.output = ResidualProjection(config.document_intermediate_size, config.hidden_size)

    def forward(self, states: Tensor) -> Tensor:
        return self.output(self.activation(self.input(states)))


class DocumentLayer(GradientCheckpointingLayer):
    """One transformer layer over sentence vectors, normalised after each sum (BERT's form) or before each sublayer."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__()
        self.pre_norm = config.document_norm == "pre"
        self.attention = DocumentAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.document_layer_norm_eps)
        self.feed_forward = DocumentFeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.document_layer_norm_eps)
        self.dropout = nn.Dropout(config.document_dropout)

    def forward(self, states: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> Tensor:
        if self.pre_norm:
            states = states + self.dropout(self.attention(self.attention_norm(states), attention_mask, **kwargs))
            return states + self.dropout(self.feed_forward(self.feed_forward_norm(states)))
        states = self.attention_norm(states + self.dropout(self.attention(states, attention_mask, **kwargs)))
        return self.feed_forward_norm(states + self.dropout(self.feed_forward(states)))


class DocumentPositions(nn.Embedding):
    """A learned vector for the DBOS vector and for each place in a document."""


class DocumentEncoder(nn.Module):
    """The paper's upper transformer: sentence vectors behind a learned DBOS vector, contextualised and pooled."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__()
        self.config = config
        self.dbos = nn.Parameter(torch.empty(config.hidden_size))
        if config.document_positions:
            self.positions = DocumentPositions(config.max_sentences + 1, config.hidden_size)
            if config.document_norm == "post":
                self.input_norm = nn.LayerNorm(config.hidden_size, eps=config.document_layer_norm_eps)
                self.input_dropout = nn.Dropout(config.document_dropout)
        self.layers = nn.ModuleList(DocumentLayer(config) for _ in range(config.num_document_layers))

    def forward(self, sentence_embeddings: Tensor, sentence_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Contextualise and pool.

        Args:
            sentence_embeddings: (documents, sentences, hidden).
            sentence_lengths: (documents, sentences), the tokens of each sentence, 0 where there is none.

        Returns:
            the contextualised sentences, of the same shape, zero where there is none, and the document embeddings
            (documents, hidden), their mean. With `document_residual`, the sentence vectors are mixed into both.
        """
        dbos = self.dbos.to(sentence_embeddings.dtype).expand(len(sentence_embeddings), 1, -1)
        states = torch.cat([dbos, sentence_embeddings], dim=1)
        mask = nn.functional.pad(sentence_lengths > 0, (1, 0), value=True)
        states = self._add_positions(states)
        if self.config._attn_implementation in PACKED_ATTENTION:
            contextualised = self._contextualise_packed(states[mask], mask.sum(dim=1))
            states = states.masked_scatter(mask.unsqueeze(-1), contextualised)
        else:
            attention_mask = create_bidirectional_mask(self.config, states, mask)
            for layer in self.layers:
                states = layer(states, attention_mask)
        exact = states.masked_fill(~mask.unsqueeze(-1), 0).to(torch.promote_types(states.dtype, torch.float32))
        weights = self.pooling_weights(sentence_lengths).to(exact.dtype)
        weights = (weights / weights.sum(dim=1, keepdim=True)).unsqueeze(-1)
        if self.config.document_residual:
            own = nn.functional.pad(sentence_embeddings.to(exact.dtype), (0, 0, 1, 0))
            length, length_of_own = (
                (weights * vectors).sum(dim=1, keepdim=True).norm(dim=-1, keepdim=True) for vectors in (exact, own)
            )
            exact = torch.lerp(exact * (length_of_own / length), own, self.config.document_residual)
        documents = (weights * exact).sum(dim=1)
        return exact[:, 1:].to(states.dtype), documents.to(states.dtype)

    def _contextualise_packed(self, states: Tensor, lengths: Tensor) -> Tensor:
        """All layers on the states (states, hidden) of documents of so many states (documents,), end to end."""
        states, arguments = states.unsqueeze(0), packed_attention_arguments(lengths)
        for layer in self.layers:
            states = layer(states, None, **arguments)
        return states.squeeze(0)

    def _add_positions(self, states: Tensor) -> Tensor:
        if not self.config.document_positions:
            return states
        if states.shape[1] > self.positions.num_embeddings:
            raise ValueError(
                f"a document has {states.shape[1] - 1} sentences, but this model has learned positions for "
                f"{self.config.max_sentences} only; tokenize with max_sentences={self.config.max_sentences}"
            )
        states = states + self.positions(torch.arange(states.shape[1], device=states.device))
        if self.config.document_norm == "post":
            states = self.input_dropout(self.input_norm(states))
        return states

    def pooling_weights(self, sentence_lengths: Tensor) -> Tensor:
        """How often the DBOS vector and the sentences count in the mean that is the document embedding: (documents,
        sentences) -> (documents, 1 + sentences), int64."""
        counts = sentence_lengths if self.config.document_pooling == "token_mean" else sentence_lengths > 0
        counts = counts.long() * (self.config.document_pooling != "dbos")
        return nn.functional.pad(counts, (1, 0), value=int(self.config.document_pooling in ("dbos", "mean_with_dbos")))


class HMDEPreTrainedModel(PreTrainedModel):
    config: HMDEConfig
    config_class = HMDEConfig
    base_model_prefix = "hmde"
    supports_gradient_checkpointing = True
    _no_split_modules = ["DocumentLayer"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        identity_start = self.config.document_norm == "pre"
        if isinstance(module, ResidualProjection) and identity_start:
            init.zeros_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, DocumentPositions) and identity_start:
            init.zeros_(module.weight)
        elif isinstance(module, DocumentEncoder):
            init.normal_(module.dbos, std=self.config.initializer_range)
        else:
            super()._init_weights(module)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        # Packed unless asked for otherwise, as other models take sdpa unless asked for otherwise.
        return super().get_correct_attn_implementation(requested_attention or "packed", is_init_check)

    @classmethod
    def from_sentence_encoder(cls, name_or_path: str, **options: Any) -> Self:
        """An HMDE with a pretrained sentence encoder below and an untrained document encoder above.

        Args:
            name_or_path: a Hub name or a folder of any encoder whose tokenizer marks the start of a sentence.
            options: fields of `HMDEConfig`, and `num_labels`. Its token ids and the sentence encoder's configuration
                are read from the checkpoint; so are `dtype` and `attn_implementation`, which reach the sentence
                encoder.

        Raises:
            ValueError: the tokenizer has no start token, an option is unknown or impossible, or passages are asked for
                and the tokenizer does not put one token before and one after a sentence.
        """
        loading = {key: options.pop(key) for key in ("dtype", "attn_implementation") if key in options}
        unknown = sorted(set(options) - set(HMDEConfig.__dataclass_fields__) - {"num_labels"})
        if unknown:
            raise ValueError(f"HMDEConfig has no field {', '.join(unknown)}; see its documentation for those it has")
        tokenizer = HMDETokenizer.from_sentence_encoder(name_or_path)
        before, after = tokenizer.num_special_tokens
        if options.get("passage_length") and (before, after) != (1, 1):
            raise ValueError(
                f"the tokenizer of {name_or_path} puts {before} special tokens before and {after} after a sentence; to "
                "read sentences together it must be one and one, so leave passage_length at 0"
            )
        sentence_encoder = AutoModel.from_pretrained(name_or_path, **loading)
        sentence_encoder.config.name_or_path = ""  # where the weights came from belongs on the model card
        config = HMDEConfig(
            sentence_config=sentence_encoder.config,
            start_token_id=tokenizer.start_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **options,
        )
        config._attn_implementation = loading.get("attn_implementation")  # making a config resets its sub-configs'
        model = cls(config).to(sentence_encoder.dtype)
        pooler = ("pooler.",) if config.sentence_pooling != "pooler" else ()
        weights = {key: value for key, value in sentence_encoder.state_dict().items() if not key.startswith(pooler)}
        model.base_model.sentence_encoder.load_state_dict(weights)
        return model.eval()

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:  # type: ignore[override]
        # Every Auto class finds its model in every folder, whichever model was saved.
        self.config.auto_map = {
            "AutoConfig": "configuration_hmde.HMDEConfig",
            "AutoModel": "modeling_hmde.HMDEForDocumentEmbedding",
            "AutoModelForSequenceClassification": "modeling_hmde.HMDEForSequenceClassification",
        }
        Path(save_directory).mkdir(parents=True, exist_ok=True)
        custom_object_save(self, save_directory)  # also for HMDEModel, which is no Auto class's model
        write_sentence_transformers_files(Path(save_directory))
        super().save_pretrained(save_directory, **kwargs)

    def push_to_hub(self, repo_id: str, **options: Any) -> CommitInfo:  # type: ignore[override]
        """Upload weights, configuration and code. The tokenizer is pushed by itself.

        A repository without a card gets that of the folder the model was loaded from, or a new one.

        Args:
            repo_id: `name` or `organisation/name`; made if it does not exist.
            options: `private`, `token`, `revision`, `create_pr`, `commit_message`, `commit_description`.
        """
        own = Path(self.name_or_path or repo_id, "README.md")
        card = ModelCard.load(own) if own.exists() else model_card(repo_id, self.config)
        return upload(self, repo_id, card, **options)


class HMDEModel(HMDEPreTrainedModel):
    """The two encoders, without a head."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        attention = config.sentence_config._attn_implementation
        if attention is None and config.sentence_config.model_type in PACKABLE_ENCODERS:
            attention = "packed"
        self.sentence_encoder = AutoModel.from_config(config.sentence_config, attn_implementation=attention)
        pooler = getattr(self.sentence_encoder, "pooler", None)
        if config.sentence_pooling == "pooler" and pooler is None:
            raise ValueError(
                f"sentence_pooling is 'pooler', but a {config.sentence_config.model_type} model has none; "
                "use 'cls' or 'mean'"
            )
        if config.sentence_pooling != "pooler" and pooler is not None:
            self.sentence_encoder.pooler = None  # weights without a gradient would stall distributed training
        self.document_encoder = DocumentEncoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.sentence_encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.sentence_encoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> HMDEOutput:
        """Encode documents.

        Args:
            input_ids: (documents, tokens), each sentence beginning with the start token, padding at the end.
            attention_mask: (documents, tokens), 1 for real tokens. None: all that is not padding.

        Raises:
            ValueError: an id is out of the vocabulary, a row is all padding or does not begin with the start token.
        """
        sentences, vectors = self.encode_sentences(input_ids, attention_mask)
        sentence_embeddings, sentence_lengths = scatter_sentences(vectors, sentences, len(input_ids))
        contextualised, documents = self.document_encoder(sentence_embeddings, sentence_lengths)
        return HMDEOutput(
            last_hidden_state=contextualised,
            pooler_output=documents,
            sentence_embeddings=sentence_embeddings,
            sentence_lengths=sentence_lengths,
        )

    def encode_sentences(
        self, input_ids: Tensor, attention_mask: Tensor | None, passage_length: int | None = None
    ) -> tuple[Sentences, Tensor]:
        """The sentences of a batch of documents, as they are read, and their vectors (sentences, hidden).

        passage_length: the configuration's if not given.
        """
        vocab_size = self.config.sentence_config.vocab_size
        outside = (input_ids < 0) | (input_ids >= vocab_size)
        if outside.any():
            row, column = outside.nonzero()[0].tolist()
            raise ValueError(
                f"input_ids[{row}, {column}] is {int(input_ids[row, column])}, outside the vocabulary of {vocab_size}; "
                "use the tokenizer that was saved with this model"
            )
        if attention_mask is None:
            attention_mask = input_ids != self.config.pad_token_id
        sentences, passages = join_sentences(
            find_sentences(input_ids, attention_mask, self.config.start_token_id),
            self.config.passage_length if passage_length is None else passage_length,
        )
        budget = MAX_TOKENS_PER_BUCKET_ON_GPU if input_ids.is_cuda else MAX_TOKENS_PER_BUCKET
        buckets = bucket_by_length(passages.length, budget)
        order = [ranges(passages.first_sentence[bucket], passages.num_sentences[bucket]) for bucket in buckets]
        read = [Sentences(*(field[places] for field in sentences)) for places in order]
        passage_lengths = [passages.length[bucket] for bucket in buckets]
        sentence_config = self.sentence_encoder.config
        if sentence_config.model_type in PACKABLE_ENCODERS and sentence_config._attn_implementation in PACKED_ATTENTION:
            packs = [pack_tokens(input_ids, *bucket) for bucket in zip(read, passage_lengths)]
            vectors = [*map(self._encode_packed, packs, self._embed_tokens(packs), (part.length for part in read))]
        else:
            vectors = [
                self._encode_padded(*pad_tokens(input_ids, part, lengths, self.config.pad_token_id), part.length)
                for part, lengths in zip(read, passage_lengths)
            ]
        return sentences, torch.cat(vectors)[torch.cat(order).argsort()]

    def _embed_tokens(self, packs: Sequence[PackedTokens]) -> Iterator[Tensor]:
        """The word embeddings (1, tokens, hidden) of each pack, read from those of the distinct tokens of all, so that
        the embedding matrix has one gradient of its size and not one a pack."""
        ids, places = torch.cat([pack.input_ids[0] for pack in packs]).unique(return_inverse=True)
        embeddings = self.get_input_embeddings()(ids)
        for places_of_pack in places.split([pack.input_ids.shape[1] for pack in packs]):
            yield embeddings[places_of_pack].unsqueeze(0)

    def _encode_packed(self, pack: PackedTokens, embeddings: Tensor, lengths: Tensor) -> Tensor:
        """Passages end to end -> the vectors of their sentences, which have `lengths` (sentences,) tokens."""
        sentence_config = self.sentence_encoder.config
        offset = sentence_config.pad_token_id + 1 if sentence_config.model_type in POSITIONS_AFTER_PADDING else 0
        output = self.sentence_encoder(
            inputs_embeds=embeddings,
            position_ids=pack.position_ids + offset,
            **packed_attention_arguments(pack.lengths),
        )
        return self._pool_sentences(output.last_hidden_state.squeeze(0), lengths)

    def _encode_padded(self, ids: Tensor, mask: Tensor, lengths: Tensor) -> Tensor:
        """Passages (passages, tokens) -> the vectors of their sentences, which have `lengths` (sentences,) tokens."""
        output = self.sentence_encoder(input_ids=ids, attention_mask=mask)
        if self.config.sentence_pooling == "pooler":
            return output.pooler_output  # a passage is then one sentence
        return self._pool_sentences(output.last_hidden_state[mask.bool()], lengths)

    def _pool_sentences(self, states: Tensor, lengths: Tensor) -> Tensor:
        """States (tokens, hidden) of sentences that lie end to end -> their vectors (sentences, hidden)."""
        if self.config.sentence_pooling == "mean":
            exact = states.to(torch.promote_types(states.dtype, torch.float32))
            return torch.segment_reduce(exact, "mean", lengths=lengths).to(states.dtype)
        starts = states[lengths.cumsum(0) - lengths]
        return self.sentence_encoder.pooler(starts.unsqueeze(1)) if self.config.sentence_pooling == "pooler" else starts


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients; afterwards each module is in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def read_ahead(function: Callable[[Given], Made], given: Sequence[Given]) -> Iterator[Made]:
    """`map(function, given)`, each value computed by a thread while the one before it is used.

    >>> list(read_ahead(len, ["a", "bc"]))
    [1, 2]
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        futures = [thread.submit(function, first) for first in given[:1]]
        for following in given[1:]:
            made = futures.pop().result()
            futures.append(thread.submit(function, following))
            yield made
        for last in futures:
            yield last.result()


class HMDEForDocumentEmbedding(HMDEPreTrainedModel):
    """Documents and queries as vectors in one space, whatever their languages. Compare them by cosine."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        self.hmde = HMDEModel(config)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> HMDEOutput:
        """Document embeddings: `pooler_output`, (documents, hidden). See `HMDEModel.forward`."""
        return self.hmde(input_ids, attention_mask, **kwargs)

    def embed_queries(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Query embeddings (queries, hidden): the sentence encoder alone (paper, section 3.2).

        Args:
            input_ids: (queries, tokens), one sentence a row: `tokenizer(queries, as_queries=True)`.
            attention_mask: (queries, tokens).

        Raises:
            ValueError: a row holds more than one sentence, or is no row of a document (see `HMDEModel.forward`).
        """
        sentences, vectors = self.hmde.encode_sentences(input_ids, attention_mask)
        if len(vectors) != len(input_ids):
            row = int(sentences.document[sentences.position == 1][0])
            raise ValueError(f"query {row} has more than one sentence; tokenize queries with as_queries=True")
        return vectors

    def encode_documents(
        self,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: str | Sequence[str | None] | None = None,
        normalize: bool = True,
        return_tensors: str = "np",
        max_tokens_per_batch: int = 262_144,
        show_progress_bar: bool = False,
    ) -> Any:
        """Embed documents of any length (up to the tokenizer's `max_sentences`), any number and any language.

        Args:
            documents: texts. An empty one has an embedding too, that of an empty sentence.
            tokenizer: the one saved with this model.
            language: code of all documents or one a document, for the sentence splitter's rules.
            normalize: to unit length, so that dot products are cosines.
            return_tensors: `np` (float32) or `pt` (the model's dtype, on its device).
            max_tokens_per_batch: among how many tokens sentences of like length are looked for. It changes speed, not
                results, and memory little: what is computed at once is a bucket of these sentences.
            show_progress_bar: over documents.

        Returns:
            (documents, hidden), in the order given. A document that comes twice is computed once.

        Raises:
            TypeError: `documents` is one string, or something in it is not a string.
            ValueError: there are not as many languages as documents.
        """
        return self._encode(
            documents,
            tokenizer,
            lambda **inputs: self(**inputs).pooler_output,
            languages=[language] * len(documents) if language is None or isinstance(language, str) else language,
            normalize=normalize,
            return_tensors=return_tensors,
            max_tokens_per_batch=max_tokens_per_batch,
            show_progress_bar=show_progress_bar,
        )

    def encode_queries(
        self,
        queries: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        normalize: bool = True,
        return_tensors: str = "np",
        max_tokens_per_batch: int = 262_144,
        show_progress_bar: bool = False,
    ) -> Any:
        """Embed queries by the sentence encoder alone; arguments and result as in `encode_documents`."""
        return self._encode(
            queries,
            tokenizer,
            self.embed_queries,
            languages=None,
            normalize=normalize,
            return_tensors=return_tensors,
            max_tokens_per_batch=max_tokens_per_batch,
            show_progress_bar=show_progress_bar,
        )

    def explain(
        self,
        query: str,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: str | Sequence[str | None] | None = None,
        scoring: Scoring = "contribution",
    ) -> list[Explanation]:
        """Which sentences made each document match a query, with their places in the text.

        Args:
            query: one text, in any language.
            documents, tokenizer, language: as in `encode_documents`.
            scoring: `contribution` scores the document by cosine and divides this among the sentences, so that their
                scores add up to it where the embedding is a mean over sentences (see `contributions`). `maximum` is
                late interaction: a sentence is scored by the cosine of the query and its vector, the document by its
                best sentence. It finds more surely the sentence that answers.

        Returns:
            an explanation a document, in the order given: `score`, and `sentences` of `begin`, `end` (characters of
            the document) and `score`, highest first.

        Raises:
            TypeError: `documents` is one string, or something in it is not a string.
            ValueError: contributions are asked of a model that pools by its DBOS vector, or there is no such scoring.
        """
        sentences = self.encode_sentences(documents, tokenizer, language=language, scoring=scoring)
        (vector,) = self.encode_queries([query], tokenizer, return_tensors="pt").float().cpu()
        return [score_sentences(vector, document) for document in sentences]

    def encode_sentences(
        self,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: str | Sequence[str | None] | None = None,
        scoring: Scoring = "contribution",
        max_tokens_per_batch: int = 16_384,
    ) -> list[DocumentSentences]:
        """The sentences of documents, for `score_sentences`; float32, on the CPU.

        Arguments and errors as in `explain` and `encode_documents`.
        """
        if isinstance(documents, str):
            raise TypeError("got one string; give a list of strings, [text] for a single one")
        if scoring not in get_args(Scoring):
            raise ValueError(f"scoring is {scoring!r}; it must be one of {', '.join(get_args(Scoring))}")
        if scoring == "contribution" and self.config.document_pooling == "dbos":
            raise ValueError(
                "this model's document embedding is its DBOS vector (document_pooling='dbos'), to which sentences "
                "contribute no part of their own; use scoring='maximum'"
            )
        if not documents:
            return []
        rows = tokenizer(list(documents), language=language, return_offsets_mapping=True)
        compare = self._contributions if scoring == "contribution" else self._vectors_to_compare
        found: list[Any] = [None] * len(documents)
        with evaluating(self):
            for batch in bucket_by_length(torch.tensor([len(ids) for ids in rows["input_ids"]]), max_tokens_per_batch):
                ids_of_batch = [rows["input_ids"][place] for place in batch]
                inputs = tokenizer.pad({"input_ids": ids_of_batch}, return_tensors="pt").to(self.device)
                for place, compared in zip(batch.tolist(), compare(inputs)):
                    ids, offsets = rows["input_ids"][place], rows["offset_mapping"][place]
                    spans = sentence_places(documents[place], ids, offsets, self.config.start_token_id)
                    found[place] = DocumentSentences(spans, *compared)
        return found

    def _contributions(self, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """What the sentences of each document contribute (sentences, hidden), and its embedding (hidden,)."""
        output = self(**inputs)
        weights = self.hmde.document_encoder.pooling_weights(output.sentence_lengths).float()
        weights /= weights.sum(dim=1, keepdim=True)
        numbers = (output.sentence_lengths > 0).sum(dim=1).tolist()
        for number, states, shares, embedding in zip(
            numbers, output.last_hidden_state.float(), weights[:, 1:], output.pooler_output.float()
        ):
            vectors = contributions(states[:number], shares[:number], embedding)
            yield vectors.cpu(), nn.functional.normalize(embedding, dim=0).cpu()

    def _vectors_to_compare(self, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, None]]:
        """What a query is compared with in each document, of unit length (sentences, hidden): contextualised sentence
        vectors, or, where these say as much of the sentences read together with them, those of each read by itself."""
        if self.config.passage_length:
            sentences, vectors = self.hmde.encode_sentences(**inputs, passage_length=0)
            of_documents = vectors.split(sentences.document.bincount().tolist())
        else:
            output = self(**inputs)
            numbers = (output.sentence_lengths > 0).sum(dim=1).tolist()
            of_documents = [states[:number] for number, states in zip(numbers, output.last_hidden_state)]
        for vectors in of_documents:
            yield nn.functional.normalize(vectors.float(), dim=-1).cpu(), None

    def _encode(
        self,
        texts: Sequence[str],
        tokenizer: HMDETokenizer,
        embed: Callable[..., Tensor],
        *,
        languages: Sequence[str | None] | None,
        normalize: bool,
        return_tensors: str,
        max_tokens_per_batch: int,
        show_progress_bar: bool,
    ) -> Any:
        """Vectors of `texts`, read as documents where there are `languages` and as queries where there are none."""
        if isinstance(texts, str):
            raise TypeError("got one string; give a list of strings, [text] for a single one")
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"text {place} is {type(text).__name__}, not str; give a list of strings")
        if languages is not None and len(languages) != len(texts):
            raise ValueError(f"{len(texts)} texts came with {len(languages)} languages; give one code, or one a text")
        if return_tensors not in ("np", "pt"):
            raise ValueError(f"return_tensors is {return_tensors!r}; it must be 'np' or 'pt'")

        def tokenize(inputs: Sequence[tuple[str, str | None]]) -> list[list[int]]:
            read, codes = zip(*inputs)
            return tokenizer(
                list(read), **({"as_queries": True} if languages is None else {"language": codes})
            ).input_ids

        place_of: dict[tuple[str, str | None], int] = {}  # among the distinct texts: what comes twice is encoded once
        places = [place_of.setdefault(key, len(place_of)) for key in zip(texts, languages or [None] * len(texts))]
        distinct = list(place_of)
        first_places = range(0, len(distinct), TEXTS_PER_TOKENIZATION)
        windows = [distinct[first : first + TEXTS_PER_TOKENIZATION] for first in first_places]
        vectors = torch.empty(len(distinct), self.config.hidden_size, dtype=self.dtype, device=self.device)
        with evaluating(self), tqdm(total=len(distinct), disable=not show_progress_bar, unit="text") as progress:
            for first, rows in zip(first_places, read_ahead(tokenize, windows)):
                for batch in bucket_by_length(torch.tensor([len(row) for row in rows]), max_tokens_per_batch):
                    inputs = tokenizer.pad({"input_ids": [rows[place] for place in batch]}, return_tensors="pt")
                    vectors[first + batch.to(self.device)] = embed(**inputs.to(self.device)).to(self.dtype)
                    progress.update(len(batch))
        vectors = vectors[places]
        if normalize:
            vectors = nn.functional.normalize(vectors.float(), dim=-1).to(self.dtype)
        return vectors.float().cpu().numpy() if return_tensors == "np" else vectors


class HMDEForSequenceClassification(HMDEPreTrainedModel):
    """A linear classifier on the document embedding: softmax(W d + b), equation 2."""

    accepts_loss_kwargs = False  # the loss is a mean, so the Trainer must divide it by the accumulation steps

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels or 0
        self.hmde = HMDEModel(config)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify documents.

        Args:
            input_ids, attention_mask: see `HMDEModel.forward`.
            labels: (documents,) int64 class ids, (documents, labels) float for several labels a document, or
                (documents,) float with one label for regression; `config.problem_type` decides where it is set.

        Returns:
            `logits` (documents, labels), and `loss` if there are labels.
        """
        output = self.hmde(input_ids, attention_mask)
        logits = self.classifier(output.pooler_output)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)


HMDEForDocumentEmbedding.register_for_auto_class("AutoModel")
HMDEForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")

__all__ = ["HMDEForDocumentEmbedding", "HMDEForSequenceClassification", "HMDEModel", "HMDEOutput"]
