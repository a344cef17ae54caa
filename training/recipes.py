"""The options of the training of sentence encoders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from training.loop.options import LoopOptions

SentencePooling = Literal["cls", "mean"]
SentenceObjective = Literal[
    "mmlm",
    "tlm",
    "xlco",
    "ugt",
    "smlm",
    "xtr",
    "align",
    "similarity",
    "distillation",
    "translation",
    "distance",
    "squared_distance",
]

WORD_OBJECTIVES = {"ugt", "smlm", "xtr"}  # words predicted from the vector of a sentence
# those that compare the vectors of both sentences
COMPARING = {"align", "similarity", "distillation", "distance", "squared_distance"}
PREDICTING = {"mmlm", "tlm", *WORD_OBJECTIVES}  # those that need a head over the vocabulary


@dataclass(kw_only=True)
class PretrainSentencesRecipe(LoopOptions):
    """A pretraining run of a sentence encoder on pairs of sentences."""

    corpus: str
    """Folder of parallel text: `pairs/<one>-<other>.parquet`, see training/data/parallel.py."""

    objectives: dict[str, float]
    """What is trained towards, by name, each with its weight: mmlm, tlm, xlco (InfoXLM); ugt or one of its parts, smlm
    and xtr, align, similarity (the lightweight encoder); distillation; translation, distance (T-MDE, LASER),
    squared_distance (NTDV). See training/objectives/sentences.py."""

    queue_size: int = 0
    """Number of vectors of earlier batches, embedded by a momentum encoder, that are negatives in xlco (InfoXLM takes
    131072)."""

    queue_momentum: float = 0.9999
    """Share of its weights that the momentum encoder keeps (InfoXLM: 0.9999, or 0.999 for a large model)."""

    texts: str | None = None
    """Folder of `python -m training.corpus`, whose articles are the text of mmlm; the sentences of the pairs, each by
    itself, if not given."""

    sentence_encoder: str | None = None
    """Hub name or folder of the encoder to start from; a new one, of `architecture`, if not given."""

    architecture: dict[str, Any] = field(default_factory=dict)
    """Fields of the encoder's configuration that differ from the start's; of a new encoder, its `model_type` too."""

    layers: list[int] | None = None
    """Which layers of the encoder to start from are kept, counted from 0; all if not given."""

    vocabulary_size: int | None = None
    """Train a tokenizer of that many entries on the pairs; that of the encoder to start from if not given."""

    tokenizer: str | None = None
    """Hub name or folder of the tokenizer of a new encoder, in place of vocabulary_size."""

    translators: list[str] = field(default_factory=list)
    """Folders of the two models of translation that a new NTDV stands on, from each of `pivots` into the other, with
    their decoders. They stay as they are."""

    freeze: Literal["nothing", "word_embeddings"] = "nothing"
    """What is not trained. Frozen word_embeddings spare their large gradient."""

    max_length: int = 128
    """Tokens of a row at most, with its special tokens. A longer one is cut."""

    prompt: str = ""
    """Put before every sentence that is to become a vector (E5: `query: `)."""

    pooling: SentencePooling = "mean"
    """The vector of a sentence: the state of its first token (cls, InfoXLM), or the mean over its tokens."""

    sentence_layer: int | None = None
    """The layer, counted from 1, whose states become the vector (the universal layer of InfoXLM, 8 of 12); the last if
    not given."""

    temperature: float = 0.25
    """What inner products are divided by in xlco. The default is that of InfoXLM's code."""

    mixup: bool = True
    """Join each pair of xlco with a pair of other languages (mixup contrast)."""

    teacher: str | None = None
    """Hub name or folder of the encoder whose vectors distillation learns."""

    teacher_pooling: SentencePooling = "mean"
    """The vector of a sentence in the teacher's last layer."""

    pivots: list[str] = field(default_factory=lambda: ["en", "es"])
    """Languages into which translation goes. Every pair of languages has one of them at least."""

    decoder: Literal["transformer", "lstm", "gru"] = "transformer"
    """What translates: a layer of a transformer as wide as the encoder (T-MDE), or of an LSTM (LASER); or a GRU with
    attention, into one language, for a model of translation that an NTDV can stand on."""

    decoder_size: int = 2048
    """Width of the LSTM that translates. The default is LASER's."""

    bottleneck: bool = True
    """Translate from the vector of the sentence alone. If false, the decoder sees all its states (T-MDE_F)."""

    label_smoothing: float = 0.1
    """Of translation: the share of each target that goes to all words alike."""

    keep_decoder: bool = False
    """Save the decoder with the encoder, as decoder.safetensors. A run that starts from that folder goes on with it."""

    num_negatives: int = 40
    """Sentences that are to be farther away than the translation in either distance constraint (N_s), at most: they
    come from the batch."""

    margin: float = 0.5
    """By how much they are to be farther away (alpha), where the mean distance of the batch is 1. In squared_distance,
    what each sentence costs that is as near as the translation (NTDV: twice the root of its state_size)."""

    margin_weight: float = 1.0
    """Of that part beside the distance of the translation (lambda)."""

    sinusoidal_positions: bool = False
    """Positions of a new encoder are sines and cosines that are not trained, so that it reads texts longer than any in
    training (T-MDE)."""

    language_exponent: float = 0.7
    """A pair of languages with n pairs of sentences is drawn with a chance in proportion to n to this power; so is a
    language with n articles. The default is InfoXLM's."""

    adam_beta2: float = 0.999
    """Of AdamW (InfoXLM: 0.98)."""

    adam_epsilon: float = 1e-8
    """Of AdamW (InfoXLM: 1e-6)."""

    keep_mlm_head: bool = False
    """Save the head that predicts words with the encoder."""

    eval_pairs: int = 1000
    """Dev pairs of each pair of languages, at most, in which translations are sought."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_length", "temperature", "eval_pairs", "adam_epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.language_exponent < 0:
            raise ValueError(f"language_exponent is {self.language_exponent}; it must be at least 0")
        unknown = sorted(set(self.objectives) - set(get_args(SentenceObjective)))
        if unknown or not self.objectives:
            raise ValueError(
                f"objectives has {', '.join(unknown) or 'no name'}; it must have some of "
                f"{', '.join(get_args(SentenceObjective))}"
            )
        for name, weight in self.objectives.items():
            if not weight > 0:
                raise ValueError(f"the weight of objective {name} is {weight}; it must be above 0, or leave {name} out")
        for name in ("decoder_size", "num_negatives"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("margin", "margin_weight"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing is {self.label_smoothing}; it must be at least 0 and below 1")
        if not self.pivots and "translation" in self.objectives:
            raise ValueError("pivots is empty; name at least one language into which to translate")
        if self.decoder == "lstm" and not self.bottleneck:
            raise ValueError("an lstm has no attention; give the decoder transformer, or leave the bottleneck on")
        if self.decoder == "gru" and not self.translators:
            self._check_translator()
        if (self.architecture.get("model_type") == "ntdv") != bool(self.translators):
            raise ValueError(
                "an architecture of model_type ntdv stands on two translators, and translators belong to it; give both "
                "or neither"
            )
        if self.translators:
            self._check_ntdv()
        if self.keep_decoder and "translation" not in self.objectives:
            raise ValueError("keep_decoder is true, but there is no objective translation, which trains the decoder")
        if self.sinusoidal_positions and self.sentence_encoder is not None:
            raise ValueError(
                f"{self.sentence_encoder} has positions of its own; leave sinusoidal_positions to a new encoder"
            )
        words = sorted(WORD_OBJECTIVES & self.objectives.keys())
        if len(words) > 1:
            raise ValueError(f"objectives has {' and '.join(words)}, which take the same rows; choose one of them")
        if ("xlco" in self.objectives) != (self.queue_size > 0):
            raise ValueError(
                f"queue_size is {self.queue_size}; it must be above 0 where xlco is among the objectives, which are "
                f"{', '.join(self.objectives)}, and 0 where it is not"
            )
        if ("distillation" in self.objectives) != (self.teacher is not None):
            raise ValueError("distillation needs a teacher, and a teacher needs the objective distillation; give both")
        tokenizers = {"vocabulary_size": self.vocabulary_size, "tokenizer": self.tokenizer}
        given = [name for name, value in (tokenizers | {"translators": self.translators}).items() if value]
        if self.sentence_encoder is None and not ("model_type" in self.architecture and given):
            raise ValueError(
                "a new encoder needs its model_type in architecture and a vocabulary_size or a tokenizer; or name a "
                "sentence_encoder to start from"
            )
        if self.sentence_encoder is not None and given:
            raise ValueError(
                f"the word embeddings of {self.sentence_encoder} belong to its tokenizer; leave {', '.join(given)} out"
            )
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} each say what the tokenizer is; give one of them")
        if self.layers is not None and self.sentence_encoder is None:
            raise ValueError("layers are those of a sentence_encoder to start from; a new encoder has none")
        if self.keep_mlm_head and not PREDICTING & self.objectives.keys():
            raise ValueError(
                f"keep_mlm_head is true, but no objective trains the head; those that do are "
                f"{', '.join(sorted(PREDICTING))}"
            )

    def _check_translator(self) -> None:
        """
        Raises:
            ValueError: the recipe asks of a model of translation with attention what it cannot be.
        """
        if self.bottleneck:
            raise ValueError("the decoder gru looks at all states of the encoder; set bottleneck to false")
        if len(self.pivots) != 1:
            raise ValueError(
                f"the decoder gru translates into one language, but pivots has {', '.join(self.pivots)}; name one, and "
                "train another model for the other way"
            )
        if [*self.objectives] != ["translation"]:
            raise ValueError(
                f"the decoder gru is trained by translation alone, but objectives has {', '.join(self.objectives)}; "
                "leave the others to the NTDV that stands on it"
            )

    def _check_ntdv(self) -> None:
        """
        Raises:
            ValueError: the recipe asks of an NTDV what it cannot be.
        """
        if len({*self.translators}) != 2 or len({*self.pivots}) != 2:
            raise ValueError(
                f"translators has {', '.join(self.translators)} and pivots {', '.join(self.pivots)}; an NTDV has two "
                "languages, and a model of translation from each into the other"
            )
        unknown = sorted(self.architecture.keys() - {"model_type", "num_attention_heads", "vector"})
        if unknown:
            raise ValueError(
                f"architecture has {', '.join(unknown)}; of an NTDV num_attention_heads and vector can be chosen, all "
                "else is its translators'"
            )
        heads, vector = self.architecture.get("num_attention_heads", 4), self.architecture.get("vector", "concat")
        if not isinstance(heads, int) or heads < 1:
            raise ValueError(f"architecture has num_attention_heads {heads!r}; it must be a number, at least 1")
        if vector not in ("sum", "concat"):
            raise ValueError(f"architecture has the vector {vector!r}; it must be sum or concat")
        if "translation" not in self.objectives or self.objectives.keys() - {"translation", "squared_distance"}:
            raise ValueError(
                f"objectives has {', '.join(self.objectives)}; an NTDV is trained by translation, alone (NV) or with "
                "squared_distance (cNV)"
            )
        if self.pooling != "cls" or self.sentence_layer is not None:
            raise ValueError(
                "the first state of an NTDV is its vector; set pooling to cls and leave sentence_layer out"
            )
        for name in ("keep_decoder", "gradient_checkpointing"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} is true, but what translates is frozen, and stays in the folders of the translators; set "
                    "it to false"
                )
        if self.sinusoidal_positions or not self.bottleneck:
            raise ValueError(
                "an NTDV has no positions, and is read by its context vectors alone; leave sinusoidal_positions and "
                "bottleneck as they are"
            )
        if self.freeze != "nothing":
            raise ValueError(
                f"freeze is {self.freeze}, but of an NTDV all is frozen but the shared layers; leave it out"
            )
