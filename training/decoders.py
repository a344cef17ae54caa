"""What translates from the vector or the states of a sentence (Li 2021, sections 3.2 and 4.2; LASER): needed in
training alone."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel, RobertaPreLayerNormConfig, RobertaPreLayerNormModel

from training.recipes import PretrainSentencesRecipe

LANGUAGE_SIZE = 32  # of the vector of the target language, as in LASER

# What the transformer's configuration has of the encoder's.
OF_ENCODER = (
    *("vocab_size", "pad_token_id", "hidden_size", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps", "initializer_range"),
)


class TransformerDecoder(nn.Module):
    """One pre-norm layer of a transformer as wide as the encoder (T-MDE).

    Its cross-attention sees what it is given of the encoder: one vector, or all states. To each the target language is
    joined, as in the authors' code, by the feed-forward network of equation 4.6. Words have vectors of their own here,
    where they are read and where they are predicted, as the published number of weights (table 4.1) has it.

    Args:
        encoder: configuration of the encoder.
        recipe: says how long texts are, and the languages.

    Raises:
        ValueError: the encoder is no transformer of BERT's kind, whose sizes the layer takes over.
    """

    def __init__(self, encoder: PreTrainedConfig, recipe: PretrainSentencesRecipe) -> None:
        super().__init__()
        lacking = [name for name in OF_ENCODER if not hasattr(encoder, name)]
        if lacking:
            raise ValueError(
                f"a {encoder.model_type} model has no {', '.join(lacking)}, which the decoder takes over from the "
                "encoder; take an encoder of BERT's or XLM-R's kind, or the decoder lstm"
            )
        config = RobertaPreLayerNormConfig(
            **{name: getattr(encoder, name) for name in OF_ENCODER},
            num_hidden_layers=1,
            max_position_embeddings=encoder.pad_token_id + 1 + recipe.max_length,
            type_vocab_size=1,
            is_decoder=True,
            add_cross_attention=True,
            use_cache=False,
        )
        self.languages = nn.Embedding(len(recipe.pivots), LANGUAGE_SIZE)
        self.joined = nn.Linear(config.hidden_size + LANGUAGE_SIZE, config.hidden_size)
        self.layer = RobertaPreLayerNormModel(config, add_pooling_layer=False)
        self.words = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        nn.init.normal_(self.words.weight, std=config.hidden_size**-0.5)

    def forward(self, seen: Tensor, mask: Tensor | None, languages: Tensor, tokens: Tensor) -> Tensor:
        """
        Args:
            seen: (rows, states, hidden), of the encoder.
            mask: (rows, states), 1 where there is a state; None where all are.
            languages: (rows,), the target languages.
            tokens: (rows, tokens), of the translation.

        Returns:
            (rows, tokens, hidden), from which `words` predicts the next token.
        """
        languages = self.languages(languages).unsqueeze(1).expand(-1, seen.shape[1], -1)
        return self.layer(
            input_ids=tokens,
            encoder_hidden_states=self.joined(torch.cat([seen, languages], dim=-1)),
            encoder_attention_mask=mask,
        ).last_hidden_state


class LSTMDecoder(nn.Module):
    """One layer of an LSTM, whose first state and cell are made of the vector, and which reads the vector again beside
    each token and the target language (LASER).

    As the thesis describes it; its code reads the state before, which the LSTM has anyway, once more beside them.

    Args:
        encoder: the encoder, whose word vectors are as wide as those here.
        recipe: says the width, and the languages.
    """

    def __init__(self, encoder: PreTrainedModel, recipe: PretrainSentencesRecipe) -> None:
        super().__init__()
        hidden, vocabulary = encoder.config.hidden_size, encoder.config.vocab_size
        width = cast(nn.Embedding, encoder.get_input_embeddings()).embedding_dim
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=encoder.config.pad_token_id)
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)
        self.languages = nn.Embedding(len(recipe.pivots), LANGUAGE_SIZE)
        self.first_state = nn.Linear(hidden, recipe.decoder_size)
        self.first_cell = nn.Linear(hidden, recipe.decoder_size)
        self.layer = nn.LSTM(width + hidden + LANGUAGE_SIZE, recipe.decoder_size, batch_first=True)
        self.words = nn.Linear(recipe.decoder_size, vocabulary)
        self.dropout = nn.Dropout(getattr(encoder.config, "hidden_dropout_prob", 0.1))

    def forward(self, seen: Tensor, mask: Tensor | None, languages: Tensor, tokens: Tensor) -> Tensor:
        """
        Args:
            seen: (rows, 1, hidden), the vectors.
            mask: None.
            languages: (rows,), the target languages.
            tokens: (rows, tokens), of the translation.

        Returns:
            (rows, tokens, width), from which `words` predicts the next token.
        """
        beside = torch.cat([seen, self.languages(languages).unsqueeze(1)], dim=-1).expand(-1, tokens.shape[1], -1)
        start = self.first_state(seen).transpose(0, 1), self.first_cell(seen).transpose(0, 1)
        states, _ = self.layer(torch.cat([self.dropout(self.tokens(tokens)), beside], dim=-1), start)
        return self.dropout(states)


class GRUDecoder(nn.Module):
    """A conditional GRU with attention over the states of the encoder (Nematus; Sennrich et al., 2017), on which NTDV
    stands: the state first reads the token before, then what it looks at, and predicts from both and the token.

    It translates into one language, and all of its widths are the encoder's: those of word vectors, and for its state
    that of a state of the encoder in one direction.

    Args:
        encoder: configuration of the encoder.

    Raises:
        ValueError: the encoder is no GRU.
    """

    def __init__(self, encoder: PreTrainedConfig) -> None:
        super().__init__()
        if encoder.model_type != "gru":
            raise ValueError(
                f"the decoder gru translates what an encoder of model_type gru reads, and not {encoder.model_type}; "
                "choose that encoder, or the decoder transformer or lstm"
            )
        words, seen = encoder.embedding_size, encoder.hidden_size
        width = seen // 2
        self.tokens = nn.Embedding(encoder.vocab_size, words, padding_idx=encoder.pad_token_id)
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)
        self.first_state = nn.Linear(seen, width)
        self.after_token = nn.GRUCell(words, width)
        self.after_look = nn.GRUCell(seen, width)
        self.of_state = nn.Linear(width, seen, bias=False)
        self.of_seen = nn.Linear(seen, seen)
        self.score = nn.Linear(seen, 1, bias=False)
        self.joined = nn.Linear(width + words + seen, words)
        self.words = nn.Linear(words, encoder.vocab_size)
        self.dropout = nn.Dropout(encoder.hidden_dropout_prob)

    def forward(self, seen: Tensor, mask: Tensor | None, languages: Tensor, tokens: Tensor) -> Tensor:
        """
        Args:
            seen: (rows, states, hidden), of the encoder.
            mask: (rows, states), 1 where there is a state; None where all are.
            languages: (rows,), not read: there is one target language.
            tokens: (rows, tokens), of the translation.

        Returns:
            (rows, tokens, word width), from which `words` predicts the next token.
        """
        is_state = torch.ones_like(seen[..., 0]) if mask is None else mask.to(seen)
        mean = (seen * is_state.unsqueeze(-1)).sum(dim=1) / is_state.sum(dim=1, keepdim=True)
        state = torch.tanh(self.first_state(mean))
        of_seen = self.of_seen(seen)
        given = self.dropout(self.tokens(tokens))
        states, looks = [], []
        for token in given.unbind(dim=1):
            state = self.after_token(token, state)
            scores = self.score(torch.tanh(of_seen + self.of_state(state).unsqueeze(1))).squeeze(-1)
            weights = F.softmax(scores.masked_fill(is_state == 0, -torch.inf), dim=-1)
            look = (weights.unsqueeze(1) @ seen).squeeze(1)
            state = self.after_look(look, state)
            states.append(state)
            looks.append(look)
        joined = torch.cat([torch.stack(states, dim=1), given, torch.stack(looks, dim=1)], dim=-1)
        return self.dropout(torch.tanh(self.joined(joined)))
