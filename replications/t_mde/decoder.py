"""T-MDE's decoder (Li 2021, section 4.2), needed in training alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, RobertaPreLayerNormConfig, RobertaPreLayerNormModel

LANGUAGE_SIZE = 32  # of the vector of the target language, as in LASER

# What the decoder's configuration takes over from the encoder's.
TAKEN_OVER = (
    *("vocab_size", "pad_token_id", "hidden_size", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps", "initializer_range"),
)


class TransformerDecoder(nn.Module):
    """One pre-norm layer of a transformer as wide as the encoder.

    Its cross-attention sees what it is given of the encoder: one vector, or all hidden states. To each the target
    language is joined, as in the authors' code, by the feed-forward network of equation 4.6. Tokens have vectors of
    their own here, where they are read and where they are predicted, as the published number of weights (table 4.1)
    has it.

    Args:
        encoder: configuration of the encoder.
        num_languages: target languages.
        max_length: tokens of a translation at most.

    Raises:
        ValueError: the encoder is no transformer of BERT's kind, whose sizes the layer takes over.
    """

    def __init__(self, encoder: PreTrainedConfig, num_languages: int, max_length: int) -> None:
        super().__init__()
        lacking = [name for name in TAKEN_OVER if not hasattr(encoder, name)]
        if lacking:
            raise ValueError(
                f"a {encoder.model_type} model has no {', '.join(lacking)}, which the decoder takes over from the "
                "encoder; take an encoder of BERT's or XLM-R's kind"
            )
        config = RobertaPreLayerNormConfig(
            **{name: getattr(encoder, name) for name in TAKEN_OVER},
            num_hidden_layers=1,
            max_position_embeddings=encoder.pad_token_id + 1 + max_length,
            type_vocab_size=1,
            is_decoder=True,
            add_cross_attention=True,
            use_cache=False,
        )
        self.languages = nn.Embedding(num_languages, LANGUAGE_SIZE)
        self.joined = nn.Linear(config.hidden_size + LANGUAGE_SIZE, config.hidden_size)
        self.layer = RobertaPreLayerNormModel(config, add_pooling_layer=False)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        nn.init.normal_(self.lm_head.weight, std=config.hidden_size**-0.5)

    def forward(self, memory: Tensor, mask: Tensor | None, languages: Tensor, tokens: Tensor) -> Tensor:
        """
        Args:
            memory: (rows, positions, hidden), what the decoder sees of the encoder: one vector, or all hidden states.
            mask: (rows, positions), 1 where there is one; None where all are.
            languages: (rows,), the target languages, by their places among the pivots.
            tokens: (rows, tokens), of the translation.

        Returns:
            (rows, tokens, hidden), which `lm_head` turns into logits of the next token.
        """
        languages = self.languages(languages).unsqueeze(1).expand(-1, memory.shape[1], -1)
        return self.layer(
            input_ids=tokens,
            encoder_hidden_states=self.joined(torch.cat([memory, languages], dim=-1)),
            encoder_attention_mask=mask,
        ).last_hidden_state
