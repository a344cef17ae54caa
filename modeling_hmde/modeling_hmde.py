"""HMDE: a hierarchical multilingual document encoder.

    tokens -> sentence encoder -> sentence vectors -> document encoder -> document embedding

A pretrained multilingual sentence encoder makes a vector of each sentence. A shallow transformer, the document encoder,
contextualises the vectors of a document's sentences, and their mean is the document's embedding. A query is read by the
sentence encoder alone, or as a short document (`query_path`).

After Galoğlu, Litschko and Glavaš, "A General-Purpose Multilingual Document Encoder", 2023: "the paper".
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_hmde import HMDEConfig
from .document_encoder_hmde import DocumentEncoder, DocumentPositions, ResidualProjection
from .encoders_hmde import encoder_family
from .inference_hmde import InferenceMixin
from .loading_hmde import AUTO_MAP, ShipsCode, be_found_by_dill, check_weights, refuse_arguments
from .outputs_hmde import HMDEOutput
from .packing_hmde import scatter_sentences
from .pipeline_hmde import read_pipeline
from .sentence_modules_hmde import load_weights, make_modules
from .sentence_reading_hmde import SentenceReadingMixin
from .sentence_transformers_hmde import write_sentence_transformers_files
from .tokenization_hmde import HMDETokenizer

if TYPE_CHECKING:
    from typing import Self


# The modules of an `HMDEModel`; what else a model has is a head.
HMDE_MODULES = ("sentence_encoder", "sentence_modules", "document_encoder", "rotation")

# `from_sentence_encoder` reads these fields from the checkpoint, so they may not be given.
READ_FROM_THE_CHECKPOINT = {"sentence_config", "start_token_id", "pad_token_id", "num_special_tokens"}


class Rotation(nn.Linear):
    """The last step of a model that is rotated: an orthogonal matrix, which leaves cosines as they are, turns all
    vectors so that their first numbers tell most. It starts as the identity."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config.hidden_size, config.hidden_size, bias=False)


class HMDEPreTrainedModel(ShipsCode, PreTrainedModel):
    config: HMDEConfig
    config_class = HMDEConfig
    base_model_prefix = "hmde"
    supports_gradient_checkpointing = True
    _no_split_modules = ["DocumentLayer"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    accepts_loss_kwargs = False  # losses are means, so the Trainer must divide them by the accumulation steps

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (ResidualProjection, DocumentPositions)) and self.config.document_norm == "pre":
            for parameter in module.parameters():
                init.zeros_(parameter)
        elif isinstance(module, DocumentEncoder):
            init.normal_(module.dbos, std=self.config.initializer_range)
        elif isinstance(module, Rotation):
            init.eye_(module.weight)
        else:
            super()._init_weights(module)

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """The default is "packed", as that of other models is "sdpa"."""
        return super().get_correct_attn_implementation(requested_attention or "packed", is_init_check)

    @staticmethod
    def _finalize_model_loading(model: Any, load_config: Any, loading_info: Any) -> Any:
        """Refuses a folder that lacks weights, other than those of a head, unless `ignore_mismatched_sizes` is true:
        transformers draws them at random, however large they are, and only says so in a table."""
        if not load_config.ignore_mismatched_sizes:
            missing = loading_info.missing_and_mismatched() - model.all_tied_weights_keys.keys()
            # The weights of a head, ours or a subclass's, may be missing: they are trained anew.
            parts = (f"{module}." for module in HMDE_MODULES)
            own = [name for name in missing if name.removeprefix("hmde.").startswith((*parts,))]
            check_weights(load_config.pretrained_model_name_or_path, own)
        return PreTrainedModel._finalize_model_loading(model, load_config, loading_info)

    @classmethod
    def from_sentence_encoder(cls, name_or_path: str, **options: Any) -> Self:
        """An HMDE with a pretrained sentence encoder below and an untrained document encoder above.

        Args:
            name_or_path: a Hub name or a folder: a pipeline of sentence-transformers, or a transformer by itself.
            options: fields of `HMDEConfig`, `num_labels`, and `dtype` and `attn_implementation`, for both encoders.
                The sentence encoder's configuration and the token ids are read from the checkpoint. So are
                `sentence_pooling` and `sentence_modules` where they are not given and there is a pipeline;
                `sentence_modules=()` leaves out what follows the pooling there, such as LaBSE's `Dense`; modules that
                are given have new weights.

        Raises:
            ValueError, TypeError: the tokenizer has no padding token, the pipeline has a module that HMDE does not
                know, or an option is unknown or impossible, or read from the checkpoint.
        """
        loading = {key: options.pop(key) for key in ("dtype", "attn_implementation") if key in options}
        HMDEConfig.refuse_unknown_fields(options)
        if given := READ_FROM_THE_CHECKPOINT & options.keys():
            raise ValueError(f"{', '.join(sorted(given))}: read from {name_or_path}, so leave it out")
        tokenizer = HMDETokenizer.from_sentence_encoder(name_or_path)
        pipeline = read_pipeline(name_or_path, options.get("sentence_pooling"), options.get("sentence_modules"))
        options = {"sentence_pooling": pipeline.pooling, "sentence_modules": pipeline.modules} | options
        sentence_config = AutoConfig.from_pretrained(name_or_path, subfolder=pipeline.encoder)
        sentence_encoder, report = auto_class(sentence_config).from_pretrained(
            name_or_path, subfolder=pipeline.encoder, config=sentence_config, output_loading_info=True, **loading
        )
        check_weights(name_or_path, (name for name in report["missing_keys"] if not name.startswith("pooler.")))
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
        pooler = ("pooler.",) if config.sentence_pooling != "pooler" else ()
        weights = {key: value for key, value in sentence_encoder.state_dict().items() if not key.startswith(pooler)}
        model.base_model.sentence_encoder.load_state_dict(weights)
        load_weights(model.base_model.sentence_modules, name_or_path, pipeline)
        return model.eval()

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """As for other models. The folder opens where only transformers is installed: it holds HMDE's code.

        Raises:
            ValueError: the weights are in shards (FSDP2), and no `state_dict` is given.
        """
        sharded = any(hasattr(weight, "device_mesh") for weight in self.parameters())
        if sharded and kwargs.get("state_dict") is None and getattr(self.config, "distributed_config", None) is None:
            raise ValueError(
                "the weights are in shards, of which each process has its own; give the whole ones: state_dict="
                "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), both of "
                "torch.distributed.checkpoint.state_dict"
            )
        self.config.auto_map = dict(AUTO_MAP)
        super().save_pretrained(save_directory, **kwargs)
        write_sentence_transformers_files(Path(save_directory))


class HMDEModel(SentenceReadingMixin, HMDEPreTrainedModel):
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
            self.sentence_encoder.config.use_cache = False  # the cache of keys and values, which only generation needs
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
        self.rotation = Rotation(config) if config.rotation else nn.Identity()
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.sentence_encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.sentence_encoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        output_sentence_vectors: bool = False,
        sentences_only: bool = False,
        **kwargs: Any,
    ) -> HMDEOutput:
        """Encode documents.

        Args:
            input_ids: (documents, tokens), padded at either end.
            attention_mask: (documents, tokens), 1 for real tokens. None: 1 wherever `sentence_ids` is not -1, or,
                without them, `input_ids` is not padding.
            sentence_ids: (documents, tokens), of each token the index of its sentence. None: each sentence begins with
                the start token.
            output_hidden_states, output_attentions: also return those of the document encoder (see `HMDEOutput`).
                Attention weights are kept by `attn_implementation="eager"` only. None: as the configuration says.
            output_sentence_vectors: return the vectors by which sentences are compared with queries.
            sentences_only: read each sentence by itself, with the sentence encoder alone, as it reads queries, and
                return `sentence_vectors` and `sentence_lengths` only.

        Raises:
            ValueError: an id is out of the vocabulary, a row is all padding or has neither `sentence_ids` nor a start
                token at its start, or the attention does not keep its weights.
            TypeError: there are no `input_ids`, or there is an argument that HMDE does not have.
        """
        refuse_arguments(input_ids, kwargs)
        ids: Any = input_ids
        rows = (ids, attention_mask, sentence_ids)
        if sentences_only:
            alone, lengths = self._read_rows(*rows, alone=True)
            return HMDEOutput(sentence_vectors=self.rotation(alone), sentence_lengths=lengths)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_attentions and self.config._attn_implementation != "eager":
            raise ValueError(
                f"attention by {self.config._attn_implementation} does not keep its weights, so there are no "
                'output_attentions; call model.set_attn_implementation("eager") before'
            )
        output = self._contextualise(*self._read_rows(*rows), output_hidden_states, output_attentions)
        if output_sentence_vectors and self.config.passage_length:
            output.sentence_vectors = self.rotation(self._read_rows(*rows, alone=True)[0])
        elif output_sentence_vectors:
            output.sentence_vectors = output.last_hidden_state
        return output

    def forward_by_passage(
        self, input_ids: Tensor, attention_mask: Tensor | None, sentence_lengths: Tensor
    ) -> HMDEOutput:
        """`forward` for exporters, which need shapes that do not depend on the tokens. Nothing is checked.

        Args:
            input_ids, attention_mask: (documents, passages, tokens), and
            sentence_lengths: (documents, sentences): what `tokenizer.by_passage` makes.
        """
        return self._contextualise(self.encode_passages(input_ids, attention_mask, sentence_lengths), sentence_lengths)

    def _read_rows(
        self, input_ids: Tensor, attention_mask: Tensor | None, sentence_ids: Tensor | None, *, alone: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Sentence vectors (documents, sentences, hidden) and the tokens of each sentence (documents, sentences)."""
        sentences, vectors = self.encode_sentences(input_ids, attention_mask, sentence_ids, alone)
        return scatter_sentences(vectors, sentences, len(input_ids))

    def _contextualise(
        self, sentence_embeddings: Tensor, sentence_lengths: Tensor, states: bool = False, weights: bool = False
    ) -> HMDEOutput:
        """What the document encoder makes of sentence vectors; on request, its hidden states and attention weights."""
        hidden_states: list[Tensor] | None = [] if states else None
        attentions: list[Any] | None = [] if weights else None
        contextualised, documents = self.document_encoder(
            sentence_embeddings, sentence_lengths, hidden_states, attentions
        )
        return HMDEOutput(
            last_hidden_state=self.rotation(contextualised),
            pooler_output=self.rotation(documents),
            sentence_embeddings=sentence_embeddings,
            sentence_lengths=sentence_lengths,
            hidden_states=None if hidden_states is None else tuple(hidden_states),
            attentions=None if attentions is None else tuple(attentions),
        )


class HMDEForDocumentEmbedding(InferenceMixin, HMDEPreTrainedModel):
    """Documents and queries as vectors in one space, whatever their languages. Compare them by cosine."""

    def __init__(self, config: HMDEConfig) -> None:
        super().__init__(config)
        self.hmde = HMDEModel(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> HMDEOutput:
        """Document embeddings: `pooler_output`, (documents, hidden). Arguments and errors as in `HMDEModel.forward`.

        The first output, which `pipeline("feature-extraction")` returns, is `last_hidden_state`: vectors of sentences.
        For vectors of documents call `encode_documents`, also with a pipeline's `model` and `tokenizer`.
        """
        return self.hmde(input_ids, attention_mask, sentence_ids, **kwargs)

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
        as_documents = self.config.query_path == "document_encoder"
        # By the model itself, so that whatever is wrapped around its forward pass sees queries too.
        output = self(input_ids, attention_mask, sentence_ids, sentences_only=not as_documents, return_dict=True)
        if as_documents:
            return output.pooler_output
        if output.sentence_lengths.shape[1] > 1:
            row = int(output.sentence_lengths[:, 1].nonzero()[0])
            raise ValueError(f"query {row} has more than one sentence; tokenize queries with as_queries=True")
        return output.sentence_vectors[:, 0]


class HMDEForSequenceClassification(HMDEPreTrainedModel):
    """A linear classifier on the document embedding: softmax(W d + b), equation 2."""

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
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        sentence_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify documents.

        Args:
            input_ids, attention_mask, sentence_ids, output_hidden_states, output_attentions: see `HMDEModel.forward`.
            labels: (documents,) int64 class ids, (documents, labels) float for several labels a document, or
                (documents,) float with one label for regression; `config.problem_type` decides where it is set.

        Returns:
            `logits` (documents, labels), `loss` if there are labels, and `hidden_states` and `attentions` on request
            (see `HMDEOutput`).
        """
        refuse_arguments(input_ids, kwargs)
        output = self.hmde(
            input_ids,
            attention_mask,
            sentence_ids,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
            return_dict=True,
        )
        logits = self.classifier(self.dropout(output.pooler_output))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss, logits, output.hidden_states, output.attentions)


def auto_class(sentence_config: Any) -> Any:
    """The Auto class that opens a sentence encoder, without a decoder."""
    return AutoModelForTextEncoding if encoder_family(sentence_config).has_decoder else AutoModel


HMDEForDocumentEmbedding.register_for_auto_class("AutoModel")
HMDEForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
be_found_by_dill(__name__)

__all__ = ["HMDEForDocumentEmbedding", "HMDEForSequenceClassification", "HMDEModel", "HMDEOutput"]
