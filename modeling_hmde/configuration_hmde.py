"""The configuration of an HMDE: a sentence encoder below, a shallow document encoder above."""

# No `from __future__ import annotations` here: it turns annotations into text, and @strict does not check text.

from collections.abc import Iterable
from types import NoneType
from typing import Any, ClassVar, Literal

import transformers

try:
    from transformers import AutoConfig, PreTrainedConfig
    from transformers.configuration_utils import SubConfigSpec
    from transformers.utils.type_validators import activation_fn_key, interval
except ImportError as error:
    raise ImportError(
        f"HMDE needs transformers 5.20 or newer, and this is {transformers.__version__}: pip install -U transformers"
    ) from error
from huggingface_hub.dataclasses import StrictDataclassFieldValidationError, strict

from .encoders_hmde import longest_text
from .loading_hmde import AUTO_MAP, ShipsCode, be_found_by_dill
from .pipeline_hmde import width_after

SentencePooling = Literal["cls", "mean", "pooler", "lasttoken", "weightedmean", "max", "mean_sqrt_len_tokens"]
QueryPath = Literal["sentence_encoder", "document_encoder"]

# Arguments of PreTrainedConfig that are not among its fields.
ARGUMENTS_OF_EVERY_CONFIG = {
    "attn_implementation",
    "auto_map",
    "experts_implementation",
    "per_layer_config",
    "quantization_config",
    "tie_word_embeddings",
    "tokenizer_class",
}


def with_builtin_errors(config_class: Any) -> Any:
    """A @strict class that refuses a wrong value with a TypeError or ValueError, not with the library's own error."""
    assign = config_class.__setattr__

    def __setattr__(self: Any, name: str, value: Any) -> None:
        try:
            assign(self, name, value)
        except StrictDataclassFieldValidationError as error:
            kind: Any = type(error.__cause__)
            raise kind(f"{name} is {value!r}. {error.__cause__}") from None

    config_class.__setattr__ = __setattr__
    return config_class


@with_builtin_errors
@strict
class HMDEConfig(ShipsCode, PreTrainedConfig):
    """Everything that decides what an HMDE computes. The defaults are the paper's (section 2.1 and appendix A.1).

    Args:
        sentence_config: configuration of the sentence encoder (the paper's lower transformer): a configuration or its
            dictionary. None: a BERT of LaBSE's size.
        start_token_id: id of the token that begins every sentence and stands nowhere else, if the sentence encoder has
            one. By it the model finds the sentences of rows that come without `sentence_ids`. LaBSE's `[CLS]` is 101.
        num_special_tokens: how many special tokens the tokenizer puts before and after the text of a sentence.
        pad_token_id: id that fills up rows; where it stands, `attention_mask` is 0.
        sentence_pooling: the vector of a sentence: the last hidden state of its first token (`cls`) or of its last
            (`lasttoken`); over its tokens the mean (`mean`), the mean weighted by position (`weightedmean`), the
            largest values (`max`), or the sum divided by the root of their number (`mean_sqrt_len_tokens`); or the
            output of the sentence encoder's own pooler (`pooler`).
        sentence_modules: what follows the pooling, each a dictionary of a `type` and its fields: `dense` (in_features,
            out_features, bias, activation, residual), `layer_norm` (dimension), `dropout` (p), `normalize`, `truncate`
            (size). Their weights are the model's. Empty: nothing, as in the paper.
        max_sentence_length: most tokens of a sentence, special tokens included.
        max_sentences: most sentences of a document.
        passage_length: consecutive sentences of a document are read by the sentence encoder as one text while they have
            at most this many tokens together. The vector of a sentence, pooled over its own tokens, then also depends
            on its neighbours, in a causal encoder on those before it alone. With `lasttoken`, each sentence keeps its
            end tokens, at the last of which it is read. 0: each sentence is read by itself, as in the paper.
        num_document_layers, num_document_attention_heads, document_intermediate_size, document_hidden_act,
            document_layer_norm_eps, document_dropout: sizes of the document encoder (the paper's upper transformer).
            Its width is that of the sentence vectors.
        sentence_vector_dropout: dropout on the sentence vectors before the document encoder (0.1 in the authors' code).
        classifier_dropout: dropout on the document embedding before a classifier (0.1 in the authors' scripts).
        document_norm: `post` normalises after each residual sum, as the paper does. `pre` normalises before each
            sublayer, and the output projection of every sublayer starts at zero. An untrained document encoder is then
            the identity, and the document embedding starts as the mean of the sentence vectors.
        document_positions: add a learned position to each sentence vector. With `document_norm="post"`, LayerNorm
            and dropout follow, as in BERT's embeddings.
        document_pooling: the document embedding: the mean over the contextualised sentence vectors (`mean`), the same
            mean weighted by the number of tokens (`token_mean`), the mean over the sentences and the DBOS vector
            (`mean_with_dbos`), or the DBOS vector alone (`dbos`).
        document_residual: weight, from 0 to below 1, of the sentence encoder's own vectors in the document embedding.
            The contextualised vectors, scaled to the same length, have the rest. It keeps what the sentence encoder
            knows about texts unlike the training data. 0: none, as in the paper.
        document_first_sentence: share, from 0 to below 1, of the first sentence in the mean over the sentences. All of
            them divide the rest as `document_pooling` says. A first sentence often says what a document is about, which
            a mean over sentences that are read one by one hides. 0: none, as in the paper.
        query_path: what encodes a query: the sentence encoder alone (`sentence_encoder`; paper, section 3.2), or both
            encoders, which read it as a document (`document_encoder`).
        rotation: the last step turns all vectors by an orthogonal matrix, so that their first numbers tell most (see
            `replications/hmde_small/rotate.py`). Cosines of whole vectors stay as they are.
        temperature: cosine similarities are divided by it in training (tau in equation 1).
        truncate_dims: sizes to which the vectors may be cut: training took every loss also of their first so many
            numbers (Kusupati et al., 2022), or a rotation put there what tells most.
        initializer_range: standard deviation of new weights.
        hidden_size: width of the document embedding. It is that of the sentence vectors: the sentence encoder's, or
            what the last of `sentence_modules` makes of it. There is no need to give it.

    Raises:
        ValueError, TypeError: a value is impossible, or a field unknown. The message names field, value and rule.
    """

    model_type = "hmde"
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "sentence_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")
    }

    sentence_config: Any = None  # a PreTrainedConfig, after __init__
    start_token_id: int | None = 101
    num_special_tokens: list[int] | tuple[int, ...] = (1, 1)
    pad_token_id: int = interval(min=0)(default=0)
    sentence_pooling: SentencePooling = "cls"
    sentence_modules: list[dict[str, Any]] | tuple[dict[str, Any], ...] = ()
    max_sentence_length: int = interval(min=3)(default=128)  # a start token, one token of text, an end token
    max_sentences: int = interval(min=1)(default=32)
    passage_length: int = interval(min=0)(default=0)
    num_document_layers: int = interval(min=1)(default=2)
    num_document_attention_heads: int = interval(min=1)(default=8)
    document_intermediate_size: int = interval(min=1)(default=2048)
    document_hidden_act: str = activation_fn_key(default="gelu")
    document_layer_norm_eps: int | float = interval(min=0, exclude_min=True)(default=1e-12)
    document_dropout: int | float = interval(min=0, max=1, exclude_max=True)(default=0.1)
    sentence_vector_dropout: int | float = interval(min=0, max=1, exclude_max=True)(default=0.0)
    classifier_dropout: int | float = interval(min=0, max=1, exclude_max=True)(default=0.0)
    document_norm: Literal["post", "pre"] = "post"
    document_positions: bool = False
    document_pooling: Literal["mean", "token_mean", "mean_with_dbos", "dbos"] = "mean"
    document_residual: int | float = interval(min=0, max=1, exclude_max=True)(default=0.0)
    document_first_sentence: int | float = interval(min=0, max=1, exclude_max=True)(default=0.0)
    query_path: QueryPath = "sentence_encoder"
    temperature: int | float = interval(min=0, exclude_min=True)(default=0.05)
    rotation: bool = False
    truncate_dims: list[int] | tuple[int, ...] = ()
    initializer_range: int | float = interval(min=0, exclude_min=True)(default=0.02)
    hidden_size: int = 0

    def __post_init__(self, _from_file: bool = False, **kwargs: Any) -> None:
        if not _from_file:
            self.refuse_unknown_fields(kwargs)
        if not isinstance(given := self.sentence_config, (PreTrainedConfig, dict, NoneType)):
            raise TypeError(f"sentence_config is {given!r}; it must be a configuration or a dictionary")
        super().__post_init__(**kwargs)
        self._check_combinations()
        self._check_against_sentence_encoder()
        self.hidden_size = width_after(self.sentence_modules, self.sentence_config.hidden_size)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """The configuration that a file holds, with `kwargs` in place of its own values.

        Fields of the file that HMDE does not know are kept: another version of transformers may have written them.

        Raises:
            ValueError, TypeError: a value is impossible, or an argument is no field.
        """
        if not kwargs.get("return_unused_kwargs"):
            cls.refuse_unknown_fields(kwargs)
        # To be checked together with the file's fields. A dictionary for sentence_config is merged by transformers.
        own = {name: kwargs.pop(name) for name in {*kwargs} & {*HMDEConfig.__annotations__} - {"sentence_config"}}
        config_dict = config_dict | own | {"_from_file": True}
        if layer := config_dict.pop("sentence_layer", None):  # of 0.2.0: the last of the layers in the folder
            config_dict["sentence_config"] = config_dict["sentence_config"] | {"num_hidden_layers": layer}
        return super().from_dict(config_dict, **kwargs)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        self.auto_map = {**getattr(self, "auto_map", {}), "AutoConfig": AUTO_MAP["AutoConfig"]}
        super().save_pretrained(save_directory, *args, **kwargs)

    @classmethod
    def from_json_file(cls, json_file: Any) -> Any:
        return cls.from_pretrained(json_file)

    @classmethod
    def refuse_unknown_fields(cls, names: Iterable[str]) -> None:
        """Raises: ValueError: one of the names is no field."""
        known = {name for name in dir(cls) if not callable(getattr(cls, name))} | ARGUMENTS_OF_EVERY_CONFIG
        for name in names:
            if name not in known and not name.startswith("_"):  # names that begin with "_" are transformers' own
                raise ValueError(f"HMDEConfig has no field {name}; help(HMDEConfig) describes those it has")

    @property
    def left_out_in_passages(self) -> tuple[int, int]:
        """How many special tokens before and after a sentence are left out where it stands within a passage."""
        before, after = self.num_special_tokens
        return before, 0 if self.sentence_pooling == "lasttoken" else after

    def get_text_config(self, *args: Any, **kwargs: Any) -> PreTrainedConfig:
        """The sentence encoder's, whose vocabulary `resize_token_embeddings` changes."""
        return self.sentence_config

    def _check_combinations(self) -> None:
        if self.document_pooling not in ("mean", "token_mean"):
            for field in ("document_residual", "document_first_sentence"):
                if getattr(self, field):
                    raise ValueError(
                        f"{field} is {getattr(self, field)}, but document_pooling is {self.document_pooling!r}, and "
                        "only a mean over sentences has such a share; use 'mean' or 'token_mean'"
                    )
        if 0 < self.passage_length < self.max_sentence_length:
            raise ValueError(
                f"passage_length is {self.passage_length}, but a sentence may have {self.max_sentence_length} tokens; "
                "choose at least max_sentence_length, or 0 to read each sentence by itself"
            )
        if self.passage_length and self.sentence_pooling in ("cls", "pooler"):
            raise ValueError(
                f"passage_length is {self.passage_length}, but sentence_pooling is {self.sentence_pooling!r}, which "
                "needs a start token before each sentence, and a passage has only one; use 'mean'"
            )
        if len(self.num_special_tokens) != 2 or min(self.num_special_tokens) < 0:
            raise ValueError(
                f"num_special_tokens is {self.num_special_tokens}; it must be two counts, before and after a sentence"
            )
        if self.start_token_id is not None and self.start_token_id < 0:
            raise ValueError(f"start_token_id is {self.start_token_id}; it must be greater or equal to 0, or None")
        if self.start_token_id == self.pad_token_id:
            raise ValueError(f"start_token_id and pad_token_id are both {self.pad_token_id}; they must differ")

    def _check_against_sentence_encoder(self) -> None:
        sentence = self.sentence_config
        for field in ("hidden_size", "vocab_size"):
            if not getattr(sentence, field, None):
                raise ValueError(f"sentence_config of type {sentence.model_type!r} has no {field}; use an encoder's")
        width = width_after(self.sentence_modules, sentence.hidden_size)
        if self.hidden_size not in (0, width):
            raise ValueError(f"hidden_size is {self.hidden_size}, but sentence vectors have {width}; leave it out")
        if width % self.num_document_attention_heads:
            raise ValueError(
                f"num_document_attention_heads is {self.num_document_attention_heads}, which does not divide the "
                f"width {width} of the sentence vectors; choose a divisor of {width}"
            )
        for size in self.truncate_dims:
            if not 0 < size < width:
                raise ValueError(
                    f"truncate_dims has {size}, but vectors have {width} numbers; choose from 1 to {width - 1}"
                )
        for field in ("start_token_id", "pad_token_id"):
            if (getattr(self, field) or 0) >= sentence.vocab_size:
                raise ValueError(
                    f"{field} is {getattr(self, field)}, outside the sentence encoder's vocabulary of "
                    f"{sentence.vocab_size}; take it from that encoder's tokenizer"
                )
        positions = longest_text(sentence)
        for field in ("max_sentence_length", "passage_length"):
            if positions is not None and getattr(self, field) > positions:
                raise ValueError(
                    f"{field} is {getattr(self, field)}, but the sentence encoder has only {positions} positions; "
                    "choose a smaller one"
                )


HMDEConfig.register_for_auto_class()
be_found_by_dill(__name__)

__all__ = ["HMDEConfig"]
