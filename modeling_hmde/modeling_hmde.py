"""HMDE: a hierarchical multilingual document encoder.

    tokens -> sentence encoder -> sentence vectors -> document encoder -> document embedding

A pretrained multilingual sentence encoder makes a vector of each sentence. A shallow transformer, the document encoder,
contextualises the vectors of a document's sentences, and their mean is the document's embedding. A query is one
sentence, and its embedding is the sentence encoder's vector.

After Galoğlu, Litschko and Glavaš, "A General-Purpose Multilingual Document Encoder", 2023: "the paper".
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
    spans_of_sentences,
)
from .configuration_hmde import HMDEConfig
from .encoders_hmde import encoder_family, first_position
from .layers_hmde import cut_above_layer
from .packing_hmde import (
    PACKED_ATTENTION,
    PackedTokens,
    Passages,
    Sentences,
    bucket_by_length,
    find_sentences,
    join_sentences,
    pack_tokens,
    packed_attention_arguments,
    pad_tokens,
    ranges,
    scatter_sentences,
    sentence_of_tokens,
)
from .publishing_hmde import model_card, upload
from .sentence_transformers_hmde import write_sentence_transformers_files
from .tokenization_hmde import HMDETokenizer

if TYPE_CHECKING:
    from typing import Self

Item = TypeVar("Item")
Result = TypeVar("Result")

# Most tokens in one call of the sentence encoder. It changes memory and speed, not results. On a CPU the states of so
# many tokens fit into the caches; on a GPU more are needed, or starting the kernels takes longer than their work.
MAX_TOKENS_PER_BUCKET = 4096
MAX_TOKENS_PER_BUCKET_ON_GPU = 65_536

# Sentence encoders whose attention in all layers takes one mask of tokens by tokens (see `HMDEModel._encode_rows`).
ENCODERS_OF_MASKED_ROWS = ("bert", "camembert", "roberta", "xlm-roberta")

# Texts that `encode_documents` tokenizes together, in a thread, while the model encodes those before them.
TEXTS_PER_TOKENIZATION = 1024


@dataclass
class HMDEOutput(ModelOutput):
    """The encoding of a batch of documents.

    Args:
        last_hidden_state: (documents, sentences, hidden), the contextualised sentence vectors, zero at padding. With
            `document_residual`, the sentence encoder's vectors are mixed in.
        pooler_output: (documents, hidden), the document embeddings, not normalised.
        sentence_embeddings: (documents, sentences, hidden), the sentence encoder's vectors, zero at padding.
        sentence_lengths: (documents, sentences), int64, the tokens read of each sentence, 0 where there is none.
        hidden_states: with `output_hidden_states`, the input of the document encoder and the output of each of its
            layers: (documents, 1 + sentences, hidden), the DBOS vector first, zero at padding; None in place of those
            that were not asked for.
        attentions: with `output_attentions`, the attention weights of each layer of the document encoder: (documents,
            heads, 1 + sentences, 1 + sentences), each row a distribution over the DBOS vector and the sentences.
        sentence_encoder_hidden_states, sentence_encoder_attentions: with `output_sentence_encoder`, the same of the
            sentence encoder: (passages, tokens, hidden) and (passages, heads, tokens, tokens). The passages of all
            documents follow each other; without `passage_length` each is a sentence.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    sentence_embeddings: Tensor | None = None
    sentence_lengths: Tensor | None = None
    hidden_states: tuple[Tensor | None, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    sentence_encoder_hidden_states: tuple[Tensor | None, ...] | None = None
    sentence_encoder_attentions: tuple[Tensor, ...] | None = None


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
    weights = nn.functional.dropout(scores.softmax(dim=-1), p=dropout)
    return (weights @ value).transpose(1, 2), weights


def is_exporting() -> bool:
    """Whether torch.export or torch.jit.trace records the model now, which allows no shape that depends on tokens."""
    return torch.jit.is_tracing() or torch.compiler.is_exporting()


def attention_mask_of(mask: Tensor, implementation: str | None, dtype: torch.dtype) -> Tensor:
    """A mask that is True where a token may be seen, in the form that the attention takes."""
    return (~mask).to(dtype) * torch.finfo(dtype).min if implementation == "eager" else mask


class ResidualProjection(nn.Linear):
    """The last layer of a sublayer: its output is added to the residual stream. Initialised to zero with `pre` norm."""


class DocumentAttention(nn.Module):
    """Self-attention among the sentences of a document. (documents, sentences, hidden) -> the same shape, and the
    attention weights (documents, heads, sentences, sentences), or None from an attention that does not keep them."""

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
        self.dropout = nn.Dropout(config.document_dropout)  # of attention weights; the attention function applies it

    def forward(self, states: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        heads = (*states.shape[:-1], -1, self.head_dim)
        query, key, value = (
            project(states).view(heads).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        attend: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention)
        attended, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout.p if self.dropout.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return self.output(attended.reshape(states.shape)), weights


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

    def forward(self, states: Tensor, attention_mask: Tensor | None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """The states (documents, sentences, hidden) and the attention weights (see `DocumentAttention`)."""
        read = self.attention_norm(states) if self.pre_norm else states
        attended, weights = self.attention(read, attention_mask, **kwargs)
        states = states + self.dropout(attended)
        if self.pre_norm:
            return states + self.dropout(self.feed_forward(self.feed_forward_norm(states))), weights
        states = self.attention_norm(states)
        return self.feed_forward_norm(states + self.dropout(self.feed_forward(states))), weights


class DocumentPositions(nn.Embedding):
    """A learned vector for the DBOS vector and for each sentence position."""


class DocumentEncoder(nn.Module):
    """The paper's upper transformer: a learned DBOS vector and the sentence vectors, contextualised and pooled."""

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

    def forward(
        self,
        sentence_embeddings: Tensor,
        sentence_lengths: Tensor,
        hidden_states: list[Tensor] | None = None,
        attentions: list[Tensor | None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Contextualise and pool.

        Args:
            sentence_embeddings: (documents, sentences, hidden).
            sentence_lengths: (documents, sentences), the tokens of each sentence, 0 where there is none.
            hidden_states, attentions: lists to which those of `HMDEOutput` are added.

        Returns:
            the contextualised sentences, of the same shape, zero where there is none, and the document embeddings
            (documents, hidden), their mean. With `document_residual`, the sentence vectors are mixed into both.
        """
        dbos = self.dbos.to(sentence_embeddings.dtype).expand(sentence_embeddings.shape[0], 1, -1)
        states = torch.cat([dbos, sentence_embeddings], dim=1)
        mask = nn.functional.pad(sentence_lengths > 0, (1, 0), value=True)
        states = self._add_positions(states).masked_fill(~mask.unsqueeze(-1), 0)
        packed = self.config._attn_implementation in PACKED_ATTENTION and not is_exporting()
        layers = self._apply_packed if packed else self._apply_padded
        if hidden_states is not None:
            hidden_states.append(states)
        for states, weights_of_layer in layers(states, mask):  # noqa: B020, the output of a layer replaces its input
            if hidden_states is not None:
                hidden_states.append(states)
            if attentions is not None:
                attentions.append(weights_of_layer)
        pooled_dtype = torch.promote_types(states.dtype, torch.float32)
        contextualised = states.to(pooled_dtype)
        weights = self.pooling_weights(sentence_lengths).to(pooled_dtype)
        weights = (weights / weights.sum(dim=1, keepdim=True)).unsqueeze(-1)
        if self.config.document_residual:
            residual = nn.functional.pad(sentence_embeddings.to(pooled_dtype), (0, 0, 1, 0))
            norm, norm_of_residual = (
                (weights * vectors).sum(dim=1, keepdim=True).norm(dim=-1, keepdim=True)
                for vectors in (contextualised, residual)
            )
            scaled = contextualised * (norm_of_residual / norm)
            contextualised = torch.lerp(scaled, residual, self.config.document_residual)
        documents = (weights * contextualised).sum(dim=1)
        return contextualised[:, 1:].to(states.dtype), documents.to(states.dtype)

    def _apply_padded(self, states: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor | None]]:
        """States and attention weights after each layer. states: (documents, 1 + sentences, hidden), mask: without the
        last dimension."""
        if is_exporting():
            attention_mask: Any = attention_mask_of(mask[:, None, None], self.config._attn_implementation, states.dtype)
        else:
            attention_mask = create_bidirectional_mask(self.config, states, mask)
        for layer in self.layers:
            states, weights = layer(states, attention_mask)
            states = states.masked_fill(~mask.unsqueeze(-1), 0)
            yield states, weights

    def _apply_packed(self, states: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, None]]:
        """As `_apply_padded`, with the documents end to end in one row."""
        packed, arguments = states[mask].unsqueeze(0), packed_attention_arguments(mask.sum(dim=1))
        for layer in self.layers:
            packed, _ = layer(packed, None, **arguments)
            yield states.masked_scatter(mask.unsqueeze(-1), packed.squeeze(0)), None

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
        """Weights of the DBOS vector and of the sentences in the document embedding, not normalised: (documents,
        sentences) -> (documents, 1 + sentences), int64."""
        counts = sentence_lengths if self.config.document_pooling == "token_mean" else sentence_lengths > 0
        counts = counts.long() * int(self.config.document_pooling != "dbos")
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
        # The default is "packed", as that of other models is "sdpa".
        return super().get_correct_attn_implementation(requested_attention or "packed", is_init_check)

    @classmethod
    def from_sentence_encoder(cls, name_or_path: str, **options: Any) -> Self:
        """An HMDE with a pretrained sentence encoder below and an untrained document encoder above.

        Args:
            name_or_path: a Hub name or a folder of any encoder whose tokenizer marks the start of a sentence.
            options: fields of `HMDEConfig`, `num_labels`, and `dtype` and `attn_implementation`, for both encoders.
                The sentence encoder's configuration and the token ids are read from the checkpoint.

        Raises:
            ValueError, TypeError: the tokenizer has no start token, an option is unknown or impossible, or
                `passage_length` is set and the tokenizer does not put one token before and one after a sentence.
        """
        loading = {key: options.pop(key) for key in ("dtype", "attn_implementation") if key in options}
        HMDEConfig.refuse_unknown_fields(options)
        tokenizer = HMDETokenizer.from_sentence_encoder(name_or_path)
        before, after = tokenizer.num_special_tokens
        if options.get("passage_length") and (before, after) != (1, 1):
            raise ValueError(
                f"the tokenizer of {name_or_path} puts {before} special tokens before and {after} after a sentence; to "
                "read sentences together it must be one and one, so leave passage_length at 0"
            )
        sentence_encoder = AutoModel.from_pretrained(name_or_path, **loading)
        sentence_encoder.config.name_or_path = ""  # may be a path of this machine; the model card names the encoder
        config = HMDEConfig(
            sentence_config=sentence_encoder.config,
            start_token_id=tokenizer.start_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **options,
        )
        config._attn_implementation = loading.get("attn_implementation")  # HMDEConfig(...) has reset the sub-config's
        model = cls(config).to(sentence_encoder.dtype)
        if config.sentence_layer is not None:
            cut_above_layer(sentence_encoder, config.sentence_layer)
        pooler = ("pooler.",) if config.sentence_pooling != "pooler" else ()
        weights = {key: value for key, value in sentence_encoder.state_dict().items() if not key.startswith(pooler)}
        model.base_model.sentence_encoder.load_state_dict(weights)
        return model.eval()

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:  # type: ignore[override]
        # Each Auto class finds its model in the folder, whichever of the models was saved there.
        self.config.auto_map = {
            "AutoConfig": "configuration_hmde.HMDEConfig",
            "AutoModel": "modeling_hmde.HMDEForDocumentEmbedding",
            "AutoModelForSequenceClassification": "modeling_hmde.HMDEForSequenceClassification",
        }
        Path(save_directory).mkdir(parents=True, exist_ok=True)
        custom_object_save(self, save_directory)  # transformers would not for HMDEModel, which has no Auto class
        write_sentence_transformers_files(Path(save_directory))
        super().save_pretrained(save_directory, **kwargs)

    def push_to_hub(self, repo_id: str, **options: Any) -> CommitInfo:  # type: ignore[override]
        """Upload weights, configuration and code. The tokenizer is pushed by itself.

        A repository without a card gets that of the folder the model was loaded from, or a new one.

        Args:
            repo_id: `name` or `organisation/name`; created if it does not exist.
            options: `private`, `token`, `revision`, `create_pr`, `commit_message`, `commit_description`.
        """
        readme = Path(self.name_or_path or repo_id, "README.md")
        card = ModelCard.load(readme) if readme.exists() else model_card(repo_id, self.config)
        return upload(self, repo_id, card, **options)


class HMDEModel(HMDEPreTrainedModel):
    """The two encoders, without a head."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        attention = config.sentence_config._attn_implementation
        if attention is None and encoder_family(config.sentence_config).packable:
            attention = "packed"
        self.sentence_encoder = AutoModel.from_config(config.sentence_config, attn_implementation=attention)
        if config.sentence_layer is not None:
            cut_above_layer(self.sentence_encoder, config.sentence_layer)
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
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool | int | Sequence[int] | None = None,
        output_attentions: bool | None = None,
        output_sentence_encoder: bool = False,
        **kwargs: Any,
    ) -> HMDEOutput:
        """Encode documents.

        It can be recorded by torch.export and torch.jit.trace (see `_encode_rows`), with room for as many sentences as
        tokens in the outputs. A query's embedding is then the first of its `sentence_embeddings`.

        Args:
            input_ids: (documents, tokens), each sentence beginning with the start token, padding at the end.
            attention_mask: (documents, tokens), 1 for real tokens. None: 1 wherever `input_ids` is not padding.
            output_hidden_states, output_attentions: also return those of the document encoder (see `HMDEOutput`).
                Attention weights are kept by `attn_implementation="eager"` only. None: as the configuration says.
                Indices ask for these hidden states alone, from the end where negative (see `_selected`).
            output_sentence_encoder: return those of the sentence encoder too. It is run once more for them, on all
                passages in one batch, and needs `attn_implementation` "eager" or "sdpa".

        Raises:
            ValueError: an id is out of the vocabulary, a row is all padding or does not begin with the start token, or
                the attention does not keep its weights.
        """
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_attentions and self.config._attn_implementation != "eager":
            raise ValueError(
                f"attention by {self.config._attn_implementation} does not keep its weights, so there are no "
                'output_attentions; call model.set_attn_implementation("eager") before'
            )
        # An index of 0 asks for a layer, though it equals False.
        hidden_states: list | None = None if output_hidden_states is None or output_hidden_states is False else []
        attentions: list | None = [] if output_attentions else None
        if is_exporting():
            sentence_embeddings, sentence_lengths = self._encode_rows(input_ids, attention_mask)
        else:
            sentences, vectors = self.encode_sentences(input_ids, attention_mask)
            sentence_embeddings, sentence_lengths = scatter_sentences(vectors, sentences, len(input_ids))
        contextualised, documents = self.document_encoder(
            sentence_embeddings, sentence_lengths, hidden_states, attentions
        )
        output = HMDEOutput(
            last_hidden_state=contextualised,
            pooler_output=documents,
            sentence_embeddings=sentence_embeddings,
            sentence_lengths=sentence_lengths,
            hidden_states=None if hidden_states is None else _selected(hidden_states, output_hidden_states),
            attentions=None if attentions is None else tuple(attentions),
        )
        if output_sentence_encoder:
            read, passages = self._find_passages(input_ids, attention_mask, self.config.passage_length)
            ids, mask = pad_tokens(input_ids, read, passages.length, self.config.pad_token_id)
            requested = {"output_hidden_states": hidden_states is not None, "output_attentions": output_attentions}
            of_sentences = self.sentence_encoder(input_ids=ids, attention_mask=mask, **requested)
            if hidden_states is not None:
                of_layers = _selected(of_sentences.hidden_states, output_hidden_states)
                output.sentence_encoder_hidden_states = of_layers
            output.sentence_encoder_attentions = of_sentences.attentions
        return output

    def encode_sentences(
        self, input_ids: Tensor, attention_mask: Tensor | None, passage_length: int | None = None
    ) -> tuple[Sentences, Tensor]:
        """The sentences of a batch of documents, as the sentence encoder reads them, and their vectors (sentences,
        hidden).

        Args:
            input_ids, attention_mask: see `forward`.
            passage_length: None: the configuration's.
        """
        if passage_length is None:
            passage_length = self.config.passage_length
        sentences, passages = self._find_passages(input_ids, attention_mask, passage_length)
        budget = MAX_TOKENS_PER_BUCKET_ON_GPU if input_ids.is_cuda else MAX_TOKENS_PER_BUCKET
        buckets = bucket_by_length(passages.length, budget)
        order = [ranges(passages.first_sentence[bucket], passages.num_sentences[bucket]) for bucket in buckets]
        read = [Sentences(*(field[indices] for field in sentences)) for indices in order]
        passage_lengths = [passages.length[bucket] for bucket in buckets]
        sentence_config = self.sentence_encoder.config
        if encoder_family(sentence_config).packable and sentence_config._attn_implementation in PACKED_ATTENTION:
            packs = [pack_tokens(input_ids, *bucket) for bucket in zip(read, passage_lengths)]
            vectors = [*map(self._encode_packed, packs, self._embed_tokens(packs), (part.length for part in read))]
        else:
            vectors = [
                self._encode_padded(*pad_tokens(input_ids, part, lengths, self.config.pad_token_id), part.length)
                for part, lengths in zip(read, passage_lengths)
            ]
        return sentences, torch.cat(vectors)[torch.cat(order).argsort()]

    def _encode_rows(self, input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Sentence vectors (documents, tokens, hidden) and lengths (documents, tokens), from rows as they are.

        For torch.export and torch.jit.trace. The shapes depend on those of the input only: there is room for as many
        sentences as tokens, and a mask keeps the sentences of a row apart, which takes memory by the square of its
        length. Nothing is checked: a wrong row gives a wrong embedding.

        Raises:
            ValueError: the sentence encoder reads sentences together, or has no attention that takes such a mask.
        """
        sentence_config = self.sentence_encoder.config
        if self.config.passage_length or sentence_config.model_type not in ENCODERS_OF_MASKED_ROWS:
            raise ValueError(
                f"a {sentence_config.model_type} encoder with passage_length={self.config.passage_length} cannot be "
                f"exported from rows of tokens: only {', '.join(ENCODERS_OF_MASKED_ROWS)} that read each sentence by "
                "itself can; `python -m release_tools.export_onnx` exports all, from tokenizer.by_passage"
            )
        real = input_ids != self.config.pad_token_id if attention_mask is None else attention_mask.bool()
        sentence, position, starts = sentence_of_tokens(input_ids, real, self.config.start_token_id)
        together = (sentence.unsqueeze(1) == sentence.unsqueeze(2)) & real.unsqueeze(1)
        # Padding sees itself, or its softmax would be over nothing.
        together = together | torch.eye(input_ids.shape[1], dtype=torch.bool, device=input_ids.device)
        output = self.sentence_encoder(
            input_ids=input_ids,
            attention_mask=attention_mask_of(together.unsqueeze(1), sentence_config._attn_implementation, self.dtype),
            position_ids=position + first_position(sentence_config),
        )
        states = output.last_hidden_state.to(torch.promote_types(self.dtype, torch.float32))
        shape = (
            input_ids.shape[0],
            self.config.max_sentences if self.config.document_positions else input_ids.shape[1],
        )
        sentence = sentence.clamp(max=shape[1] - 1)
        lengths = real.new_zeros(shape, dtype=torch.long).scatter_add(1, sentence, real.long())
        counted = real if self.config.sentence_pooling == "mean" else starts
        sums = states.new_zeros(*shape, states.shape[-1]).scatter_add(
            1, sentence.unsqueeze(-1).expand_as(states), states * counted.unsqueeze(-1)
        )
        vectors = sums / lengths.clamp(min=1).unsqueeze(-1) if self.config.sentence_pooling == "mean" else sums
        vectors = vectors.to(self.dtype)
        if self.config.sentence_pooling == "pooler":
            vectors = self.sentence_encoder.pooler(vectors.flatten(0, 1).unsqueeze(1)).view_as(vectors)
        return vectors.masked_fill((lengths == 0).unsqueeze(-1), 0), lengths

    def _find_passages(
        self, input_ids: Tensor, attention_mask: Tensor | None, passage_length: int
    ) -> tuple[Sentences, Passages]:
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
            attention_mask = input_ids != self.config.pad_token_id
        sentences = find_sentences(input_ids, attention_mask, self.config.start_token_id)
        return join_sentences(sentences, passage_length)

    def _embed_tokens(self, packs: Sequence[PackedTokens]) -> Iterator[Tensor]:
        """The word embeddings of each pack, (1, tokens, hidden).

        They are looked up once for the distinct tokens of all packs. A lookup for each pack would give a gradient of
        the size of the whole embedding matrix each time.
        """
        ids, indices = torch.cat([pack.input_ids[0] for pack in packs]).unique(return_inverse=True)
        embeddings = self.get_input_embeddings()(ids)
        for indices_of_pack in indices.split([pack.input_ids.shape[1] for pack in packs]):
            yield embeddings[indices_of_pack].unsqueeze(0)

    def _encode_packed(self, pack: PackedTokens, embeddings: Tensor, lengths: Tensor) -> Tensor:
        """Passages end to end -> the vectors of their sentences, whose tokens `lengths` (sentences,) counts."""
        output = self.sentence_encoder(
            inputs_embeds=embeddings,
            position_ids=pack.position_ids + first_position(self.sentence_encoder.config),
            **packed_attention_arguments(pack.lengths),
        )
        return self._pool_sentences(output.last_hidden_state.squeeze(0), lengths)

    def _encode_padded(self, ids: Tensor, mask: Tensor, lengths: Tensor) -> Tensor:
        """Passages (passages, tokens) -> the vectors of their sentences, whose tokens `lengths` (sentences,) counts."""
        output = self.sentence_encoder(input_ids=ids, attention_mask=mask)
        if self.config.sentence_pooling == "pooler":
            return output.pooler_output  # with this pooling, a passage is one sentence
        return self._pool_sentences(output.last_hidden_state[mask.bool()], lengths)

    def _pool_sentences(self, states: Tensor, lengths: Tensor) -> Tensor:
        """States (tokens, hidden) of sentences that lie end to end -> their vectors (sentences, hidden)."""
        if self.config.sentence_pooling == "mean":
            in_float32 = states.to(torch.promote_types(states.dtype, torch.float32))
            return torch.segment_reduce(in_float32, "mean", lengths=lengths).to(states.dtype)
        starts = states[lengths.cumsum(0) - lengths]
        return self.sentence_encoder.pooler(starts.unsqueeze(1)) if self.config.sentence_pooling == "pooler" else starts


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within it, no dropout and no gradients. Afterwards each module is in the mode it was in before."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def read_ahead(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`map(function, items)`; a thread computes the next result while the caller uses the last one.

    >>> list(read_ahead(len, ["a", "bc"]))
    [1, 2]
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        futures = [thread.submit(function, first) for first in items[:1]]
        for following in items[1:]:
            result = futures.pop().result()
            futures.append(thread.submit(function, following))
            yield result
        for last in futures:
            yield last.result()


class HMDEForDocumentEmbedding(HMDEPreTrainedModel):
    """Documents and queries as vectors in one space, whatever their languages. Compare them by cosine."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        self.hmde = HMDEModel(config)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> HMDEOutput:
        """Document embeddings: `pooler_output`, (documents, hidden). Arguments and errors as in `HMDEModel.forward`.

        The first output, which `pipeline("feature-extraction")` returns, is `last_hidden_state`: vectors of sentences.
        For vectors of documents call `encode_documents`, also with a pipeline's `model` and `tokenizer`.
        """
        return self.hmde(input_ids, attention_mask, **kwargs)

    def embed_queries(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Query embeddings (queries, hidden), by the path that `query_path` of the configuration names.

        Args:
            input_ids: (queries, tokens). For the sentence encoder alone (paper, section 3.2), one sentence a row:
                `tokenizer(queries, as_queries=True)`. For both encoders, documents: `tokenizer(queries)`.
            attention_mask: (queries, tokens).

        Raises:
            ValueError: a row for the sentence encoder has more than one sentence, or the errors of `HMDEModel.forward`.
        """
        if self.config.query_path == "document_encoder":
            return self(input_ids, attention_mask).pooler_output
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
            documents: texts. The embedding of an empty text is that of an empty sentence.
            tokenizer: the one saved with this model.
            language: ISO 639-1 code for all documents, or one for each; it selects the sentence splitter's rules.
            normalize: to unit length, so that dot products are cosines.
            return_tensors: `np` (float32) or `pt` (the model's dtype, on its device).
            max_tokens_per_batch: most tokens in one call of the model. It changes speed, not results; memory little,
                as the model computes one bucket of sentences of similar length at a time.
            show_progress_bar: count the documents that are done.

        Returns:
            (documents, hidden), in the order given. Repeated documents are computed once.

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
        """Embed queries, by the path that `query_path` of the configuration names; arguments and result as in
        `encode_documents`."""
        return self._encode(
            queries,
            tokenizer,
            self.embed_queries,
            languages=None if self.config.query_path == "sentence_encoder" else [None] * len(queries),
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
        """Which sentences make each document match a query.

        Args:
            query: one text, in any language.
            documents, tokenizer, language: as in `encode_documents`.
            scoring: `contribution` scores a document by its cosine with the query and divides that among its sentences
                (see `contributions`). `maximum` is late interaction: the score of a sentence is the cosine of its own
                vector with the query, that of the document is its best sentence's. `maximum` is better at finding the
                sentence that answers a question.

        Returns:
            one explanation for each document, in the order given: `score`, and `sentences`, each with `begin`, `end`
            (characters of the document) and `score`, highest score first.

        Raises:
            TypeError: `documents` is one string, or something in it is not a string.
            ValueError: there is no such scoring, or `contribution` is asked of a model with `document_pooling="dbos"`.
        """
        prepared = self.prepare_sentences(documents, tokenizer, language=language, scoring=scoring)
        (vector,) = self.encode_queries([query], tokenizer, return_tensors="pt").float().cpu()
        return [score_sentences(vector, document) for document in prepared]

    def prepare_sentences(
        self,
        documents: Sequence[str],
        tokenizer: HMDETokenizer,
        *,
        language: str | Sequence[str | None] | None = None,
        scoring: Scoring = "contribution",
        max_tokens_per_batch: int = 16_384,
    ) -> list[DocumentSentences]:
        """All that `explain` computes without the query, so that many queries can be compared with the same documents.

        Arguments and errors as in `explain` and `encode_documents`.

        Returns:
            what `score_sentences` takes, one for each document; float32, on the CPU.
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
        vectors_of = self._contributions if scoring == "contribution" else self._vectors_to_compare
        prepared: list[Any] = [None] * len(documents)
        with evaluating(self):
            for batch in bucket_by_length(torch.tensor([len(ids) for ids in rows["input_ids"]]), max_tokens_per_batch):
                ids_of_batch = [rows["input_ids"][index] for index in batch]
                inputs = tokenizer.pad({"input_ids": ids_of_batch}, return_tensors="pt").to(self._input_device)
                for index, vectors_and_embedding in zip(batch.tolist(), vectors_of(inputs)):
                    ids, offsets = rows["input_ids"][index], rows["offset_mapping"][index]
                    spans = spans_of_sentences(documents[index], ids, offsets, self.config.start_token_id)
                    prepared[index] = DocumentSentences(spans, *vectors_and_embedding)
        return prepared

    def _contributions(self, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each document the contributions of its sentences (sentences, hidden) and its unit embedding (hidden,)."""
        output = self(**inputs)
        weights = self.hmde.document_encoder.pooling_weights(output.sentence_lengths).float()
        weights /= weights.sum(dim=1, keepdim=True)
        counts = (output.sentence_lengths > 0).sum(dim=1).tolist()
        for count, states, weights_of_sentences, embedding in zip(
            counts, output.last_hidden_state.float(), weights[:, 1:], output.pooler_output.float()
        ):
            vectors = contributions(states[:count], weights_of_sentences[:count], embedding)
            yield vectors.cpu(), nn.functional.normalize(embedding, dim=0).cpu()

    def _vectors_to_compare(self, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, None]]:
        """For each document the unit vectors of its sentences that a query is compared with (sentences, hidden).

        They are the contextualised vectors. With `passage_length` these hold too much of the neighbouring sentences, so
        each sentence is then read by itself.
        """
        if self.config.passage_length:
            sentences, vectors = self.hmde.encode_sentences(**inputs, passage_length=0)
            of_documents = vectors.split(sentences.document.bincount().tolist())
        else:
            output = self(**inputs)
            counts = (output.sentence_lengths > 0).sum(dim=1).tolist()
            of_documents = [states[:count] for count, states in zip(counts, output.last_hidden_state)]
        for vectors in of_documents:
            yield nn.functional.normalize(vectors.float(), dim=-1).cpu(), None

    @property
    def _input_device(self) -> torch.device:
        """The device that computes; where weights are offloaded, `device` is "meta" and accelerate's hook knows it."""
        device = getattr(getattr(self, "_hf_hook", None), "execution_device", None)
        return self.device if device is None else torch.device(device)

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
        """Vectors of `texts`, each read as one sentence if `languages` is None, and as a document otherwise."""
        if isinstance(texts, str):
            raise TypeError("got one string; give a list of strings, [text] for a single one")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"text {index} is {type(text).__name__}, not str; give a list of strings")
        if languages is not None and len(languages) != len(texts):
            raise ValueError(f"{len(texts)} texts came with {len(languages)} languages; give one code, or one a text")
        if return_tensors not in ("np", "pt"):
            raise ValueError(f"return_tensors is {return_tensors!r}; it must be 'np' or 'pt'")

        def tokenize(inputs: Sequence[tuple[str, str | None]]) -> list[list[int]]:
            window, codes = zip(*inputs)
            reading = {"as_queries": True} if languages is None else {"language": codes}
            return tokenizer(list(window), **reading).input_ids

        index_of: dict[tuple[str, str | None], int] = {}  # of the distinct texts: repeated ones are encoded once
        indices = [index_of.setdefault(key, len(index_of)) for key in zip(texts, languages or [None] * len(texts))]
        distinct = list(index_of)
        first_indices = range(0, len(distinct), TEXTS_PER_TOKENIZATION)
        windows = [distinct[first : first + TEXTS_PER_TOKENIZATION] for first in first_indices]
        device = self._input_device
        vectors = torch.empty(len(distinct), self.config.hidden_size, dtype=self.dtype, device=device)
        with evaluating(self), tqdm(total=len(distinct), disable=not show_progress_bar, unit="text") as progress:
            for first, rows in zip(first_indices, read_ahead(tokenize, windows)):
                for batch in bucket_by_length(torch.tensor([len(row) for row in rows]), max_tokens_per_batch):
                    inputs = tokenizer.pad({"input_ids": [rows[index] for index in batch]}, return_tensors="pt")
                    vectors[first + batch.to(device)] = embed(**inputs.to(device)).to(device, self.dtype)
                    progress.update(len(batch))
        vectors = vectors[indices]
        if normalize:
            vectors = nn.functional.normalize(vectors.float(), dim=-1)
        return vectors.float().cpu().numpy() if return_tensors == "np" else vectors.to(self.dtype)


def _selected(states: Sequence[Tensor], wanted: Any) -> tuple[Tensor | None, ...]:
    """All hidden states for True. For an index or several, those, and None in place of the others, as transformers has
    it: so an index that there is not selects nothing."""
    if wanted is True:
        return tuple(states)
    indices = [wanted] if isinstance(wanted, int) else wanted
    chosen = {index % len(states) for index in indices if -len(states) <= index < len(states)}
    return tuple(state if index in chosen else None for index, state in enumerate(states))


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
            `logits` (documents, labels), `loss` if there are labels, and `hidden_states` and `attentions` on request
            (see `HMDEOutput`).
        """
        output = self.hmde(input_ids, attention_mask, return_dict=True, **kwargs)
        logits = self.classifier(output.pooler_output)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss, logits, output.hidden_states, output.attentions)


HMDEForDocumentEmbedding.register_for_auto_class("AutoModel")
HMDEForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")

__all__ = ["HMDEForDocumentEmbedding", "HMDEForSequenceClassification", "HMDEModel", "HMDEOutput"]
