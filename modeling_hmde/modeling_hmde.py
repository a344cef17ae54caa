"""HMDE: a hierarchical multilingual document encoder.

    tokens -> sentence encoder -> sentence vectors -> document encoder -> document embedding

A pretrained multilingual sentence encoder makes a vector of each sentence. A shallow transformer, the document encoder,
contextualises the vectors of a document's sentences, and their mean is the document's embedding. A query is one
sentence, and its embedding is the sentence encoder's vector.

After Galoğlu, Litschko and Glavaš, "A General-Purpose Multilingual Document Encoder", 2023: "the paper".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import CommitInfo, ModelCard
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel
from transformers import initialization as init
from transformers.dynamic_module_utils import custom_object_save
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .attention_hmde import PACKED_ATTENTION, packed_attention_arguments
from .configuration_hmde import HMDEConfig
from .document_encoder_hmde import DocumentEncoder, DocumentPositions, ResidualProjection
from .encoders_hmde import encoder_family, first_position
from .inference_hmde import InferenceMixin
from .layers_hmde import auto_class, cut_above_layer
from .loading_hmde import check_weight_map, check_weights
from .outputs_hmde import HMDEOutput, selected
from .packing_hmde import (
    PackedTokens,
    Passages,
    Sentences,
    bucket_by_length,
    find_sentences,
    join_sentences,
    pack_tokens,
    pad_tokens,
    ranges,
    scatter_sentences,
    sentences_by_start_token,
)
from .pipeline_hmde import read_pipeline
from .pooling_hmde import POOLINGS, pool_sentences
from .publishing_hmde import model_card, upload
from .sentence_modules_hmde import load_weights, make_modules
from .sentence_transformers_hmde import write_sentence_transformers_files
from .tokenization_hmde import HMDETokenizer

if TYPE_CHECKING:
    from typing import Self

# Most tokens in one call of the sentence encoder. It changes memory and speed, not results. On a CPU the hidden states
# of so many tokens fit into the caches. On a GPU more are needed, or starting the kernels takes longer than their work.
MAX_TOKENS_PER_BUCKET = 4096
MAX_TOKENS_PER_BUCKET_ON_GPU = 65_536


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
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As of other models.

        Raises:
            ValueError: weights are missing, other than those of a classifier, or lie outside of the folder. With
                `ignore_mismatched_sizes=True`, those that are missing are new.
        """
        if pretrained_model_name_or_path is not None:
            check_weight_map(Path(pretrained_model_name_or_path))
        return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)

    @staticmethod
    def _finalize_model_loading(model: Any, load_config: Any, loading_info: Any) -> Any:
        # transformers draws here what is missing at random, whatever its size, and says so in a table.
        if not load_config.ignore_mismatched_sizes:
            missing = loading_info.missing_and_mismatched() - model.all_tied_weights_keys.keys()
            check_weights(load_config.pretrained_model_name_or_path, missing, head="classifier.")
        return PreTrainedModel._finalize_model_loading(model, load_config, loading_info)

    @classmethod
    def from_sentence_encoder(cls, name_or_path: str, **options: Any) -> Self:
        """An HMDE with a pretrained sentence encoder below and an untrained document encoder above.

        Args:
            name_or_path: a Hub name or a folder: a pipeline of sentence-transformers, or a transformer by itself.
            options: fields of `HMDEConfig`, `num_labels`, and `dtype` and `attn_implementation`, for both encoders.
                The sentence encoder's configuration and the token ids are read from the checkpoint. So are
                `sentence_pooling` and `sentence_modules` where they are not given and there is a pipeline;
                `sentence_modules=()` leaves out what follows the pooling there, such as LaBSE's `Dense`.

        Raises:
            ValueError, TypeError: the tokenizer has no padding token, the pipeline has a module that HMDE does not
                know, or an option is unknown or impossible.
        """
        loading = {key: options.pop(key) for key in ("dtype", "attn_implementation") if key in options}
        HMDEConfig.refuse_unknown_fields(options)
        tokenizer = HMDETokenizer.from_sentence_encoder(name_or_path)
        pipeline = read_pipeline(name_or_path, options.get("sentence_pooling"), options.get("sentence_modules"))
        options = {"sentence_pooling": pipeline.pooling, "sentence_modules": pipeline.modules} | options
        sentence_config = AutoConfig.from_pretrained(name_or_path, subfolder=pipeline.encoder)
        sentence_encoder, report = auto_class(sentence_config).from_pretrained(
            name_or_path, subfolder=pipeline.encoder, config=sentence_config, output_loading_info=True, **loading
        )
        check_weights(name_or_path, report["missing_keys"], head="pooler.")
        sentence_encoder.config.name_or_path = ""  # may be a path of this machine; the model card names the encoder
        config = HMDEConfig(
            sentence_config=sentence_encoder.config,
            start_token_id=tokenizer.start_token_id,
            pad_token_id=tokenizer.pad_token_id,
            num_special_tokens=tokenizer.num_special_tokens,
            **options,
        )
        config._attn_implementation = loading.get("attn_implementation")  # HMDEConfig(...) has reset the sub-config's
        model = cls(config).to(sentence_encoder.dtype)
        if config.sentence_layer is not None:
            cut_above_layer(sentence_encoder, config.sentence_layer)
        pooler = ("pooler.",) if config.sentence_pooling != "pooler" else ()
        weights = {key: value for key, value in sentence_encoder.state_dict().items() if not key.startswith(pooler)}
        model.base_model.sentence_encoder.load_state_dict(weights)
        if options["sentence_modules"] == pipeline.modules:
            load_weights(model.base_model.sentence_modules, name_or_path, pipeline)
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
        self.sentence_encoder = auto_class(config.sentence_config).from_config(
            config.sentence_config, attn_implementation=attention
        )
        if getattr(self.sentence_encoder.config, "use_cache", False):
            self.sentence_encoder.config.use_cache = False  # of keys and values, for texts that are written on
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
        self.sentence_modules = make_modules(config.sentence_modules)
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
        sentence_ids: Tensor | None = None,
        sentence_lengths: Tensor | None = None,
        output_hidden_states: bool | int | Sequence[int] | None = None,
        output_attentions: bool | None = None,
        output_sentence_encoder: bool = False,
        **kwargs: Any,
    ) -> HMDEOutput:
        """Encode documents.

        Args:
            input_ids: (documents, tokens), padded at either end, or, with `sentence_lengths`, (documents, passages,
                tokens).
            attention_mask: of the shape of `input_ids`, 1 for real tokens. None: 1 wherever `sentence_ids` is not -1,
                or, without them, `input_ids` is not padding.
            sentence_ids: (documents, tokens), of each token the index of its sentence. None: each sentence begins with
                the start token.
            sentence_lengths: (documents, sentences). For exporters, which need shapes that do not depend on the tokens:
                `tokenizer.by_passage` makes these inputs, and nothing is checked.
            output_hidden_states, output_attentions: also return those of the document encoder (see `HMDEOutput`).
                Attention weights are kept by `attn_implementation="eager"` only. None: as the configuration says.
                Indices ask for these hidden states alone, from the end where negative.
            output_sentence_encoder: return those of the sentence encoder too. It is run once more for them, on all
                passages in one batch, and needs `attn_implementation` "eager" or "sdpa".

        Raises:
            ValueError: an id is out of the vocabulary, a row is all padding or has neither `sentence_ids` nor a start
                token at its start, or the attention does not keep its weights.
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
        if sentence_lengths is None:
            sentences, vectors = self.encode_sentences(input_ids, attention_mask, sentence_ids)
            sentence_embeddings, sentence_lengths = scatter_sentences(vectors, sentences, len(input_ids))
        else:
            sentence_embeddings = self._encode_passages(input_ids, attention_mask, sentence_lengths)
        contextualised, documents = self.document_encoder(
            sentence_embeddings, sentence_lengths, hidden_states, attentions
        )
        output = HMDEOutput(
            last_hidden_state=contextualised,
            pooler_output=documents,
            sentence_embeddings=sentence_embeddings,
            sentence_lengths=sentence_lengths,
            hidden_states=None if hidden_states is None else selected(hidden_states, output_hidden_states),
            attentions=None if attentions is None else tuple(attentions),
        )
        if output_sentence_encoder:
            sentences, passages = self._find_passages(
                input_ids, attention_mask, sentence_ids, self.config.passage_length
            )
            ids, mask = pad_tokens(input_ids, sentences, passages.length, self.config.pad_token_id)
            requested = {"output_hidden_states": hidden_states is not None, "output_attentions": output_attentions}
            lower = self.sentence_encoder(input_ids=ids, attention_mask=mask, **requested)
            if hidden_states is not None:
                output.sentence_encoder_hidden_states = selected(lower.hidden_states, output_hidden_states)
            output.sentence_encoder_attentions = lower.attentions
        return output

    def encode_sentences(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        passage_length: int | None = None,
    ) -> tuple[Sentences, Tensor]:
        """The sentences of a batch of documents, as the sentence encoder reads them, and their vectors (sentences,
        hidden).

        Args:
            input_ids, attention_mask, sentence_ids: see `forward`.
            passage_length: None: the configuration's.
        """
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            raise ValueError(
                "the sentences of a row are found by its tokens, so this model cannot be exported with rows of tokens; "
                "export it with the inputs that tokenizer.by_passage makes"
            )
        if passage_length is None:
            passage_length = self.config.passage_length
        sentences, passages = self._find_passages(input_ids, attention_mask, sentence_ids, passage_length)
        budget = MAX_TOKENS_PER_BUCKET_ON_GPU if input_ids.is_cuda else MAX_TOKENS_PER_BUCKET
        buckets = bucket_by_length(passages.length, budget)
        order = [ranges(passages.first_sentence[bucket], passages.num_sentences[bucket]) for bucket in buckets]
        bucket_sentences = [Sentences(*(field[indices] for field in sentences)) for indices in order]
        passage_lengths = [passages.length[bucket] for bucket in buckets]
        sentence_config = self.sentence_encoder.config
        if encoder_family(sentence_config).packable and sentence_config._attn_implementation in PACKED_ATTENTION:
            packs = [pack_tokens(input_ids, *bucket) for bucket in zip(bucket_sentences, passage_lengths)]
            embeddings = self._embed_tokens(packs)
            vectors = [*map(self._encode_packed, packs, embeddings, (bucket.length for bucket in bucket_sentences))]
        else:
            vectors = [
                self._encode_padded(*pad_tokens(input_ids, bucket, lengths, self.config.pad_token_id), bucket.length)
                for bucket, lengths in zip(bucket_sentences, passage_lengths)
            ]
        return sentences, self.sentence_modules(torch.cat(vectors)[torch.cat(order).argsort()])

    def _find_passages(
        self, input_ids: Tensor, attention_mask: Tensor | None, sentence_ids: Tensor | None, passage_length: int
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
            attention_mask = input_ids != self.config.pad_token_id if sentence_ids is None else sentence_ids >= 0
        if sentence_ids is None:
            sentence_ids = sentences_by_start_token(input_ids, attention_mask, self.config.start_token_id)
        sentences = find_sentences(sentence_ids, attention_mask)
        return join_sentences(sentences, passage_length, self.config.left_out_in_passages)

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
        pool = POOLINGS[self.config.sentence_pooling]
        return pool(output.last_hidden_state.squeeze(0), lengths, self.sentence_encoder)

    def _encode_padded(self, ids: Tensor, mask: Tensor, lengths: Tensor) -> Tensor:
        """Passages (passages, tokens) -> the vectors of their sentences, whose tokens `lengths` (sentences,) counts."""
        output = self.sentence_encoder(input_ids=ids, attention_mask=mask)
        if self.config.sentence_pooling == "pooler":
            return output.pooler_output  # with this pooling, a passage is one sentence
        pool = POOLINGS[self.config.sentence_pooling]
        return pool(output.last_hidden_state[mask.bool()], lengths, self.sentence_encoder)

    def _encode_passages(self, input_ids: Tensor, attention_mask: Tensor | None, sentence_lengths: Tensor) -> Tensor:
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


class HMDEForDocumentEmbedding(InferenceMixin, HMDEPreTrainedModel):
    """Documents and queries as vectors in one space, whatever their languages. Compare them by cosine."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        self.hmde = HMDEModel(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        sentence_lengths: Tensor | None = None,
        **kwargs: Any,
    ) -> HMDEOutput:
        """Document embeddings: `pooler_output`, (documents, hidden). Arguments and errors as in `HMDEModel.forward`.

        The first output, which `pipeline("feature-extraction")` returns, is `last_hidden_state`: vectors of sentences.
        For vectors of documents call `encode_documents`, also with a pipeline's `model` and `tokenizer`.
        """
        return self.hmde(input_ids, attention_mask, sentence_ids, sentence_lengths, **kwargs)

    def embed_queries(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, sentence_ids: Tensor | None = None
    ) -> Tensor:
        """Query embeddings (queries, hidden), by the path that `query_path` of the configuration names.

        Args:
            input_ids: (queries, tokens). For the sentence encoder alone (paper, section 3.2), one sentence a row:
                `tokenizer(queries, as_queries=True)`. For both encoders, documents: `tokenizer(queries)`.
            attention_mask, sentence_ids: (queries, tokens).

        Raises:
            ValueError: a row for the sentence encoder has more than one sentence, or the errors of `HMDEModel.forward`.
        """
        if self.config.query_path == "document_encoder":
            return self(input_ids, attention_mask, sentence_ids).pooler_output
        sentences, vectors = self.hmde.encode_sentences(input_ids, attention_mask, sentence_ids)
        if len(vectors) != len(input_ids):
            row = int(sentences.document[sentences.position == 1][0])
            raise ValueError(f"query {row} has more than one sentence; tokenize queries with as_queries=True")
        return vectors


class HMDEForSequenceClassification(HMDEPreTrainedModel):
    """A linear classifier on the document embedding: softmax(W d + b), equation 2."""

    accepts_loss_kwargs = False  # the loss is a mean, so the Trainer must divide it by the accumulation steps

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels or 0
        self.hmde = HMDEModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify documents.

        Args:
            input_ids, attention_mask, sentence_ids: see `HMDEModel.forward`.
            labels: (documents,) int64 class ids, (documents, labels) float for several labels a document, or
                (documents,) float with one label for regression; `config.problem_type` decides where it is set.

        Returns:
            `logits` (documents, labels), `loss` if there are labels, and `hidden_states` and `attentions` on request
            (see `HMDEOutput`).
        """
        output = self.hmde(input_ids, attention_mask, sentence_ids, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(output.pooler_output))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss, logits, output.hidden_states, output.attentions)


HMDEForDocumentEmbedding.register_for_auto_class("AutoModel")
HMDEForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")

__all__ = ["HMDEForDocumentEmbedding", "HMDEForSequenceClassification", "HMDEModel", "HMDEOutput"]
