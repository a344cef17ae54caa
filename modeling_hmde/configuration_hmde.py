"""The configuration of an HMDE: a sentence encoder below, a shallow document encoder above."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import transformers

try:
    from transformers import AutoConfig, PreTrainedConfig
    from transformers.configuration_utils import SubConfigSpec
except ImportError as error:
    raise ImportError(
        f"HMDE needs transformers 5.20 or newer, and this is {transformers.__version__}: pip install -U transformers"
    ) from error
from transformers.utils import is_torch_available

SentencePooling = Literal["cls", "mean", "pooler"]
DocumentPooling = Literal["mean", "token_mean", "mean_with_dbos", "dbos"]
DocumentNorm = Literal["post", "pre"]

# Sentence encoders whose first position is `pad_token_id + 1`, so that XLM-R's 514 positions serve 512 tokens.
POSITIONS_AFTER_PADDING = ("camembert", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl")


class HMDEConfig(PreTrainedConfig):
    r"""Everything that decides what an HMDE computes. The defaults are the paper's (section 2.1 and appendix A.1).

    Args:
        sentence_config: configuration of the sentence encoder (the paper's lower transformer): a configuration, its
            dictionary, or nothing for a BERT of LaBSE's size.
        start_token_id: id of the token that begins every sentence, by which the model finds the sentences of a
            document. LaBSE's `[CLS]` is 101.
        pad_token_id: id that fills up rows; where it stands, `attention_mask` is 0.
        sentence_pooling: the vector of a sentence: the last hidden state of the start token (`cls`), the mean over
            its tokens (`mean`), or the sentence encoder's own pooler (`pooler`).
        max_sentence_length: tokens of a sentence, start and end token included.
        max_sentences: sentences of a document.
        passage_length: tokens up to which the sentence encoder reads consecutive sentences of a document together, as
            one text, so that a sentence's vector, the mean over its tokens, knows its neighbours; 0 reads each sentence
            by itself, as the paper does.
        num_document_layers, num_document_attention_heads, document_intermediate_size, document_hidden_act,
            document_layer_norm_eps, document_dropout: sizes of the document encoder (the paper's upper transformer).
            Its width is the sentence encoder's.
        document_norm: `post` normalises after each residual sum, as the paper does. `pre` normalises before each
            sublayer and starts every sublayer's output projection at zero, so that an untrained document encoder
            is the identity and the document embedding starts as the mean of the sentence vectors.
        document_positions: add a learned position to each sentence vector. With `document_norm="post"`, LayerNorm
            and dropout follow, as in BERT's embeddings.
        document_pooling: the document embedding: the mean over the contextualised sentences (`mean`), the same with
            each sentence counted as often as it has tokens (`token_mean`), the mean over the sentences and the DBOS
            vector (`mean_with_dbos`), or the DBOS vector alone (`dbos`).
        document_residual: share that the sentence vectors, as they come from the sentence encoder, have in the document
            embedding beside the contextualised ones, whose mean is brought to the length of theirs. It keeps what the
            sentence encoder knows of texts that are unlike those of the training. 0, as in the paper, leaves it out.
        temperature: what cosine similarities are divided by in training (tau in equation 1).
        initializer_range: standard deviation of newly made weights.
        hidden_size: width of the document embedding; always the sentence encoder's, so there is no need to give it.

    Raises:
        ValueError, TypeError: a value is impossible. The message names the field, its value and the rule.
    """

    model_type = "hmde"
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "sentence_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")
    }

    sentence_config: Any = None  # once made: a PreTrainedConfig
    start_token_id: int = 101
    pad_token_id: int = 0
    sentence_pooling: str = "cls"
    max_sentence_length: int = 128
    max_sentences: int = 32
    passage_length: int = 0
    num_document_layers: int = 2
    num_document_attention_heads: int = 8
    document_intermediate_size: int = 2048
    document_hidden_act: str = "gelu"
    document_layer_norm_eps: float = 1e-12
    document_dropout: float = 0.1
    document_norm: str = "post"
    document_positions: bool = False
    document_pooling: str = "mean"
    document_residual: float = 0.0
    temperature: float = 0.05
    initializer_range: float = 0.02
    hidden_size: int = 0

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self._check_types()
        self._check_choices()
        self._check_ranges()
        self._check_against_sentence_encoder()
        self.hidden_size = self.sentence_config.hidden_size

    def get_text_config(self, *args: Any, **kwargs: Any) -> PreTrainedConfig:
        """The sentence encoder's, whose vocabulary `resize_token_embeddings` changes."""
        return self.sentence_config

    def _check_types(self) -> None:
        integers = (
            "start_token_id",
            "pad_token_id",
            "max_sentence_length",
            "max_sentences",
            "passage_length",
            "num_document_layers",
            "num_document_attention_heads",
            "document_intermediate_size",
        )
        for field in integers:
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{field} is {value!r}; it must be an int")
        numbers = (
            "document_layer_norm_eps",
            "document_dropout",
            "document_residual",
            "temperature",
            "initializer_range",
        )
        for field in numbers:
            value = getattr(self, field)
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise TypeError(f"{field} is {value!r}; it must be a number")
        if not isinstance(self.document_positions, bool):
            raise TypeError(f"document_positions is {self.document_positions!r}; it must be true or false")

    def _check_choices(self) -> None:
        choices: dict[str, tuple[str, ...]] = {
            "sentence_pooling": get_args(SentencePooling),
            "document_pooling": get_args(DocumentPooling),
            "document_norm": get_args(DocumentNorm),
        }
        if is_torch_available():  # AutoTokenizer reads configurations, also where ONNX Runtime does the computing
            from transformers.activations import ACT2FN

            choices["document_hidden_act"] = tuple(ACT2FN)
        for field, allowed in choices.items():
            value = getattr(self, field)
            if value not in allowed:
                raise ValueError(f"{field} is {value!r}; it must be one of {', '.join(allowed)}")

    def _check_ranges(self) -> None:
        lowest = {
            "start_token_id": 0,
            "pad_token_id": 0,
            "max_sentence_length": 3,  # a start token, one token of text, an end token
            "max_sentences": 1,
            "passage_length": 0,
            "num_document_layers": 1,
            "num_document_attention_heads": 1,
            "document_intermediate_size": 1,
        }
        for field, least in lowest.items():
            if getattr(self, field) < least:
                raise ValueError(f"{field} is {getattr(self, field)}; it must be at least {least}")
        for field in ("document_layer_norm_eps", "temperature", "initializer_range"):
            if not getattr(self, field) > 0:
                raise ValueError(f"{field} is {getattr(self, field)}; it must be above 0")
        for field in ("document_dropout", "document_residual"):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}; it must be at least 0 and below 1")
        if self.document_residual and self.document_pooling not in ("mean", "token_mean"):
            raise ValueError(
                f"document_residual is {self.document_residual}, but document_pooling is {self.document_pooling!r}, "
                "and the DBOS vector is no sentence encoder's; use 'mean' or 'token_mean'"
            )
        if 0 < self.passage_length < self.max_sentence_length:
            raise ValueError(
                f"passage_length is {self.passage_length}, but a sentence may have {self.max_sentence_length} tokens; "
                "choose at least max_sentence_length, or 0 to read each sentence by itself"
            )
        if self.passage_length and self.sentence_pooling != "mean":
            raise ValueError(
                f"passage_length is {self.passage_length}, but sentence_pooling is {self.sentence_pooling!r}, which "
                "needs a start token before each sentence, and a passage has only one; use 'mean'"
            )
        if self.start_token_id == self.pad_token_id:
            raise ValueError(f"start_token_id and pad_token_id are both {self.pad_token_id}; they must differ")

    def _check_against_sentence_encoder(self) -> None:
        sentence = self.sentence_config
        width = getattr(sentence, "hidden_size", None)
        if width is None:
            raise ValueError(f"sentence_config of type {sentence.model_type!r} has no hidden_size; use an encoder's")
        if self.hidden_size not in (0, width):
            raise ValueError(f"hidden_size is {self.hidden_size}, but the sentence encoder's is {width}; leave it out")
        if width % self.num_document_attention_heads:
            raise ValueError(
                f"num_document_attention_heads is {self.num_document_attention_heads}, which does not divide the "
                f"width {width} of the sentence encoder; choose a divisor of {width}"
            )
        for field in ("start_token_id", "pad_token_id"):
            if getattr(self, field) >= sentence.vocab_size:
                raise ValueError(
                    f"{field} is {getattr(self, field)}, outside the sentence encoder's vocabulary of "
                    f"{sentence.vocab_size}; take it from that encoder's tokenizer"
                )
        positions = getattr(sentence, "max_position_embeddings", None)
        if positions is not None and sentence.model_type in POSITIONS_AFTER_PADDING:
            positions -= sentence.pad_token_id + 1
        for field in ("max_sentence_length", "passage_length"):
            if positions is not None and getattr(self, field) > positions:
                raise ValueError(
                    f"{field} is {getattr(self, field)}, but the sentence encoder has only {positions} positions; "
                    "choose a smaller one"
                )


HMDEConfig.register_for_auto_class()

__all__ = ["HMDEConfig"]
