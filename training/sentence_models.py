"""What is wrapped around a sentence encoder to train it: how it starts, what of it is read and what is trained."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from common.saved_models import model_type_of
from modeling_hmde.layers_hmde import keep_layers
from training.data.sentence_batches import IGNORED, tokenized
from training.decoders import GRUDecoder, LSTMDecoder, TransformerDecoder
from training.loop.cached_gradients import Chunk, Embeddings, Rows, cut_into_chunks, embed_chunks
from training.losses.sentences import masked_words, translation, words_from_vectors
from training.recipes import COMPARING, PREDICTING, PretrainSentencesRecipe, SentencePooling

Decoder = TransformerDecoder | LSTMDecoder | GRUDecoder

DECODER = "decoder.safetensors"  # in the folder of an encoder
SENTENCES_AT_ONCE = 512  # that are evaluated; of these, those of like length are read together


class SentenceEncoder(nn.Module):
    """From rows to what the objectives ask of them, in one forward pass, as distributed training needs it.

    Args:
        model: a transformer, or one with a head that predicts masked words, where an objective needs that.
        pooling, sentence_layer: of a sentence's vector, see PretrainSentencesRecipe.
        with_vectors: whether an objective compares the vectors of `sentences`.
        decoder: what translates sentences, where an objective needs that.
        bottleneck: whether it sees the vector of a sentence alone, or all states.
        label_smoothing: of the translation.
        with_projection: whether the vectors of `queries` and `keys` pass a linear layer (InfoXLM, section 3.3), square
            and without bias, which starts at N(0, 0.02) as in the authors' code, and is not saved.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pooling: SentencePooling,
        sentence_layer: int | None = None,
        *,
        with_vectors: bool = True,
        decoder: Decoder | None = None,
        bottleneck: bool = True,
        label_smoothing: float = 0.0,
        with_projection: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.sentence_layer = sentence_layer
        self.with_vectors = with_vectors
        self.decoder = decoder
        self.bottleneck = bottleneck
        self.label_smoothing = label_smoothing
        self.projection = None
        if with_projection:
            self.projection = nn.Linear(model.config.hidden_size, model.config.hidden_size, bias=False)
            nn.init.normal_(self.projection.weight, std=0.02)

    def forward(self, chunk: Chunk) -> Embeddings:
        """
        Args:
            chunk: rows by name, see SentenceBatch.

        Returns:
            of `mmlm` and `tlm`, the sum over the masked tokens of each row, (rows, 1); of `sentences`, their vectors
            (rows, hidden), as `words`, how far the words predicted from them are from their targets, (rows, 1), and as
            `translation`, the sum over the tokens of each row's translation, (rows, 1); of `queries` and `keys`, their
            projected vectors (rows, hidden).
        """
        embeddings: Embeddings = {}
        for name, rows in chunk.items():
            if name in ("mmlm", "tlm"):
                embeddings[name] = self._masked_words(rows)
                continue
            states = self._states(rows)
            vectors = self._pooled(states, rows)
            if name in ("queries", "keys"):
                embeddings[name] = vectors if self.projection is None else self.projection(vectors)
                continue
            if self.with_vectors:
                embeddings[name] = vectors
            if "target_ids" in rows:
                divergences = words_from_vectors(
                    predict(self.model, vectors), rows["target_ids"], rows["target_shares"]
                )
                embeddings["words"] = divergences.unsqueeze(1)
            if "target_tokens" in rows:
                embeddings["translation"] = self._translation(states, vectors, rows)
        if torch.is_grad_enabled():
            # Processes wait for the gradients of all weights, but not every row reaches the heads and the layers above
            # the sentence layer. Where it does not, they get a gradient of 0.
            words = self.model.get_input_embeddings().weight  # which every row reaches
            weights = [weight for weight in self.parameters() if weight.requires_grad and weight is not words]
            nothing = 0 * torch.stack([weight.flatten()[0] for weight in weights]).sum()
            embeddings = {name: vectors + nothing for name, vectors in embeddings.items()}
        return embeddings

    def sentence_vectors(self, rows: Rows) -> Tensor:
        """(rows, tokens) -> (rows, hidden)."""
        return self._pooled(self._states(rows), rows)

    def _states(self, rows: Rows) -> Tensor:
        """(rows, tokens) -> (rows, tokens, hidden)."""
        outputs = self.model.base_model(
            input_ids=rows["input_ids"],
            attention_mask=rows["attention_mask"],
            output_hidden_states=self.sentence_layer is not None,
        )
        return outputs.last_hidden_state if self.sentence_layer is None else outputs.hidden_states[self.sentence_layer]

    def _pooled(self, states: Tensor, rows: Rows) -> Tensor:
        if self.pooling == "cls":
            return states[:, 0]
        mask = rows["attention_mask"].unsqueeze(-1)
        return (states * mask).sum(dim=1) / mask.sum(dim=1)

    def _masked_words(self, rows: Rows) -> Tensor:
        states = self.model.base_model(
            input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]
        ).last_hidden_state
        masked = rows["labels"] >= 0
        losses = masked_words(predict(self.model, states[masked]), rows["labels"][masked])
        row_of = masked.nonzero()[:, 0]
        return losses.new_zeros(len(masked)).index_add(0, row_of, losses).unsqueeze(1)

    def _translation(self, states: Tensor, vectors: Tensor, rows: Rows) -> Tensor:
        """What the tokens of the translation cost, of each row the sum, (rows, 1). Of a row without, 0."""
        assert self.decoder is not None
        translated = (rows["target_language"] != IGNORED).nonzero().flatten()
        seen, mask = (vectors.unsqueeze(1), None) if self.bottleneck else (states, rows["attention_mask"])
        losses = vectors.new_zeros(len(vectors), dtype=torch.float32)
        if len(translated):
            logits, tokens, row_of = next_tokens(self.decoder, seen, mask, rows, translated)
            losses = losses.index_add(0, row_of, translation(logits, tokens, self.label_smoothing))
        return losses.unsqueeze(1)

    @torch.no_grad()
    def token_accuracy(self, chunks: list[Chunk]) -> float:
        """The share of the tokens of all translations that are the decoder's first choice, given those before them.

        Args:
            chunks: of `sentences` that are all translated, from all states.
        """
        assert self.decoder is not None
        was_training = self.training
        self.eval()
        right = count = 0
        for chunk in chunks:
            rows = chunk["sentences"]
            all_rows = torch.arange(len(rows["input_ids"]), device=rows["input_ids"].device)
            logits, tokens, _ = next_tokens(self.decoder, self._states(rows), rows["attention_mask"], rows, all_rows)
            right += int((logits.argmax(dim=-1) == tokens).sum())
            count += len(tokens)
        self.train(was_training)
        return right / count

    @torch.no_grad()
    def encode(
        self, sentences: list[str], tokenizer: PreTrainedTokenizerBase, max_length: int, max_tokens: int
    ) -> np.ndarray:
        """(sentences, hidden), float32, in the order of the sentences, without dropout.

        Args:
            max_tokens: to encode at once.
        """
        was_training = self.training
        self.eval()
        device = next(self.parameters()).device
        order = np.argsort([len(sentence) for sentence in sentences], kind="stable")
        parts = []
        for first in range(0, len(order), SENTENCES_AT_ONCE):
            texts = [sentences[index] for index in order[first : first + SENTENCES_AT_ONCE]]
            rows = {name: rows.to(device) for name, rows in tokenized(tokenizer, max_length, texts).items()}
            for chunk in cut_into_chunks({"sentences": rows}, max_tokens):
                parts.append(self.sentence_vectors(chunk["sentences"]).float().cpu())
        self.train(was_training)
        vectors = torch.cat(parts).numpy()
        return vectors[np.argsort(order)]


def next_tokens(
    decoder: Decoder, seen: Tensor, mask: Tensor | None, rows: Rows, translated: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What a decoder predicts of the translations of some rows.

    Args:
        seen: (rows, states, hidden), what it sees of the encoder.
        mask: (rows, states), 1 where there is a state; None where all are.
        rows: with `target_tokens` and `target_language`, see SentenceBatch.
        translated: (translated,), which rows.

    Returns:
        logits (tokens, vocabulary), given the tokens before; the tokens (tokens,); the row of each (tokens,).
    """
    targets = rows["target_tokens"][translated]
    is_token = targets[:, 1:] != IGNORED
    given = targets[:, :-1].clamp(min=0)  # what stands after the end is seen by nothing that counts
    decoded = decoder(
        seen[translated], None if mask is None else mask[translated], rows["target_language"][translated], given
    )
    return decoder.words(decoded[is_token]), targets[:, 1:][is_token], translated[is_token.nonzero()[:, 0]]


class Teacher:
    """An encoder whose vectors are learned. It stays as it is.

    Args:
        name: Hub name or folder.
        pooling: of its vectors.
        hidden_size: of the student, whose vectors must be as wide.
    """

    def __init__(self, name: str, pooling: SentencePooling, hidden_size: int, device: torch.device) -> None:
        model_type_of("teacher", name)
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModel.from_pretrained(name, dtype=torch.float32)
        if model.config.hidden_size != hidden_size:
            raise ValueError(
                f"vectors of the teacher {name} have {model.config.hidden_size} values and those of the student "
                f"{hidden_size}; give the student a hidden_size of {model.config.hidden_size}"
            )
        self.encoder = SentenceEncoder(model.requires_grad_(False).to(device).eval(), pooling)

    def embed(self, rows: dict[str, Rows], max_tokens: int) -> Tensor:
        """(sentences, hidden), without gradient."""
        return embed_chunks(self.encoder, cut_into_chunks(rows, max_tokens))["sentences"]


def predict(model: PreTrainedModel, states: Tensor) -> Tensor:
    """The head of a masked language model: (..., hidden) -> logits (..., vocabulary)."""
    for name, part in model.named_children():
        if name != model.base_model_prefix:
            states = part(states)
    return states


def build_sentence_encoder(recipe: PretrainSentencesRecipe, tokenizer: PreTrainedTokenizerBase) -> SentenceEncoder:
    """The encoder to train.

    Raises:
        ValueError: there is no such encoder, it lacks what the recipe asks for, or its head is of a kind that is not
            known here.
    """
    predicting = bool(PREDICTING & recipe.objectives.keys())
    config = configuration_of(recipe, tokenizer)
    if recipe.sentence_encoder is None:
        model = AutoModel.from_config(config, dtype=torch.float32)
        masked = AutoModelForMaskedLM.from_config(config, dtype=torch.float32) if predicting else None
    else:
        start: dict[str, Any] = {"config": config, "dtype": torch.float32}
        model = AutoModel.from_pretrained(recipe.sentence_encoder, **start)
        masked = AutoModelForMaskedLM.from_pretrained(recipe.sentence_encoder, **start) if predicting else None
    if recipe.layers is not None:
        keep_layers(model, recipe.layers)
        model.config.num_hidden_layers = len(recipe.layers)
    num_layers = model.config.num_hidden_layers
    if recipe.sentence_layer is not None and not 1 <= recipe.sentence_layer <= num_layers:
        raise ValueError(
            f"sentence_layer is {recipe.sentence_layer}, but the encoder has {num_layers} layers; give one from 1 to "
            f"{num_layers}, or none for the last"
        )
    if getattr(model, "pooler", None) is not None:
        cast(nn.Module, model.pooler).requires_grad_(False)  # which no objective reads
    if masked is not None:
        masked.config.num_hidden_layers = num_layers
        setattr(masked, masked.base_model_prefix, model)  # the whole encoder, with its pooler
        masked.tie_weights()
        check_head(masked, recipe.sentence_encoder or config.model_type)
    if recipe.sinusoidal_positions:
        make_positions_sinusoidal(model)
    if recipe.freeze == "word_embeddings":
        model.get_input_embeddings().requires_grad_(False)
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    if recipe.compile:
        model.compile(dynamic=True)
    return SentenceEncoder(
        masked or model,
        recipe.pooling,
        recipe.sentence_layer,
        with_vectors=bool(COMPARING & recipe.objectives.keys()),
        decoder=decoder_of(recipe, model) if "translation" in recipe.objectives else None,
        bottleneck=recipe.bottleneck,
        label_smoothing=recipe.label_smoothing,
        with_projection="xlco" in recipe.objectives,
    ).train()


def decoder_of(recipe: PretrainSentencesRecipe, encoder: PreTrainedModel) -> Decoder:
    """The decoder of the folder to start from, or a new one.

    Raises:
        ValueError: that of the folder is another one than the recipe asks for, or the encoder is not of the kind by
            which the decoder is made.
    """
    if recipe.decoder == "lstm":
        decoder: Decoder = LSTMDecoder(encoder, recipe)
    elif recipe.decoder == "gru":
        decoder = GRUDecoder(encoder.config)
    else:
        decoder = TransformerDecoder(encoder.config, recipe)
    saved = Path(recipe.sentence_encoder or "", DECODER)
    if recipe.sentence_encoder is not None and saved.is_file():
        try:
            decoder.load_state_dict(load_file(saved))
        except RuntimeError as error:
            raise ValueError(
                f"{saved} is of another decoder than the recipe says; give the recipe its decoder, pivots and "
                f"max_length, or remove the file to start with a new one ({error})"
            ) from error
    return decoder


@torch.no_grad()
def make_positions_sinusoidal(model: PreTrainedModel) -> None:
    """Write sines and cosines (Vaswani et al., 2017) over the position embeddings, and freeze them. Their standard
    deviation is that with which word embeddings start, to which they are added.

    Raises:
        ValueError: the model has no position embeddings.
    """
    tables = [part for name, part in model.named_modules() if name.endswith("position_embeddings")]
    if len(tables) != 1 or not isinstance(tables[0], nn.Embedding):
        raise ValueError(
            f"sinusoidal_positions: a {model.config.model_type} model has no table of positions; leave them out"
        )
    count, width = tables[0].weight.shape
    frequencies = 10_000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count)[:, None] * frequencies
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    tables[0].weight.copy_(waves * 2**0.5 * model.config.initializer_range)
    tables[0].requires_grad_(False)


def configuration_of(recipe: PretrainSentencesRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedConfig:
    """The configuration of the start with what the recipe changes, or a new one for the tokenizer.

    Raises:
        ValueError: there is no such model, it has no such field, or rows are longer than its positions.
    """
    if recipe.sentence_encoder is not None:
        model_type_of("sentence_encoder", recipe.sentence_encoder)
        config, unknown = AutoConfig.from_pretrained(
            recipe.sentence_encoder, return_unused_kwargs=True, **recipe.architecture
        )
    else:
        architecture = dict(recipe.architecture)
        model_type = architecture.pop("model_type")
        ids = {
            name: getattr(tokenizer, name)
            for name in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
        }
        try:
            config = AutoConfig.for_model(model_type, vocab_size=len(tokenizer), **ids)
        except ValueError as error:
            raise ValueError(f"architecture: there is no model_type {model_type!r} in transformers") from error
        unknown = {name: value for name, value in architecture.items() if not hasattr(config, name)}
        for name, value in architecture.items():
            setattr(config, name, value)
    if unknown:
        raise ValueError(f"architecture: a configuration of {config.model_type} has no field {', '.join(unknown)}")
    positions = getattr(config, "max_position_embeddings", recipe.max_length)
    if recipe.max_length > positions:
        raise ValueError(f"max_length is {recipe.max_length}, but the encoder has {positions} positions; lower it")
    return config


@torch.no_grad()
def check_head(model: PreTrainedModel, name: str) -> None:
    """
    Raises:
        ValueError: the parts of a masked language model beside its encoder, one after another, are not its head.
    """
    inputs = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    model.eval()
    expected = model(**inputs).logits
    try:
        same = torch.allclose(predict(model, model.base_model(**inputs).last_hidden_state), expected, atol=1e-4)
    except (RuntimeError, TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            f"the head of {name} that predicts words is of a kind that is not known here; start from an encoder of "
            "BERT's, XLM-R's or ModernBERT's kind, or leave out the objectives that predict words"
        )


def train_tokenizer(sentences: Iterable[str], vocabulary_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of XLM-R's kind, one vocabulary for all languages, lower-cased as the lightweight encoder's is."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=vocabulary_size, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        cls_token="<s>",
        sep_token="</s>",
    )


def save_sentence_encoder(
    encoder: SentenceEncoder, tokenizer: PreTrainedTokenizerBase, folder: Path, keep_head: bool, keep_decoder: bool
) -> None:
    """A folder that AutoModel and AutoTokenizer open; with the head, AutoModelForMaskedLM too. A decoder is a file
    beside."""
    model = encoder.model if keep_head else cast(PreTrainedModel, encoder.model.base_model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if keep_decoder and encoder.decoder is not None:
        save_file(encoder.decoder.state_dict(), folder / DECODER)


def sentence_parameter_groups(encoder: SentenceEncoder, recipe: PretrainSentencesRecipe) -> list[dict[str, Any]]:
    """Weight decay on matrices only."""
    groups: dict[float, list[nn.Parameter]] = {}
    for weight in encoder.parameters():
        if weight.requires_grad:
            groups.setdefault(recipe.weight_decay if weight.ndim > 1 else 0.0, []).append(weight)
    options = {"lr": recipe.learning_rate, "betas": (0.9, recipe.adam_beta2), "eps": recipe.adam_epsilon}
    return [options | {"params": weights, "weight_decay": decay} for decay, weights in groups.items()]
