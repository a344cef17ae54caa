"""What HMDE knows about families of sentence encoders: one table. It needs no torch, like the configuration."""

from __future__ import annotations

from typing import Any, NamedTuple


class EncoderFamily(NamedTuple):
    """What HMDE must know about an encoder and cannot read in its configuration.

    Args:
        packable: it takes `position_ids` and `inputs_embeds`, and passes the attention's arguments down to it, so that
            sentences can lie end to end in one row (see `packed_attention`). Each family is listed because others may
            accept the same arguments and ignore them.
        positions_after_padding: its first position is `pad_token_id + 1`, so that XLM-R's 514 positions serve 512
            tokens.
        has_decoder: what AutoModel opens has a decoder too; HMDE takes the encoder alone.
    """

    packable: bool = False
    positions_after_padding: bool = False
    has_decoder: bool = False


# By `model_type`. An encoder that is not listed gets padded batches and counts its positions from 0.
ENCODER_FAMILIES = {
    "bert": EncoderFamily(packable=True),
    "camembert": EncoderFamily(packable=True, positions_after_padding=True),
    "eurobert": EncoderFamily(packable=True),
    "gemma3_text": EncoderFamily(packable=True),
    "llama": EncoderFamily(packable=True),
    "modernbert": EncoderFamily(packable=True),
    "mpnet": EncoderFamily(positions_after_padding=True),
    "mt5": EncoderFamily(has_decoder=True),
    "nomic_bert": EncoderFamily(packable=True),
    "qwen2": EncoderFamily(packable=True),
    "qwen3": EncoderFamily(packable=True),
    "roberta": EncoderFamily(packable=True, positions_after_padding=True),
    "roberta-prelayernorm": EncoderFamily(positions_after_padding=True),
    "t5": EncoderFamily(has_decoder=True),
    "umt5": EncoderFamily(has_decoder=True),
    "xlm-roberta": EncoderFamily(packable=True, positions_after_padding=True),
    "xlm-roberta-xl": EncoderFamily(positions_after_padding=True),
}


def encoder_family(sentence_config: Any) -> EncoderFamily:
    """The family of the encoder that a configuration describes."""
    return ENCODER_FAMILIES.get(sentence_config.model_type, EncoderFamily())


def first_position(sentence_config: Any) -> int:
    """The position id of a text's first token."""
    return sentence_config.pad_token_id + 1 if encoder_family(sentence_config).positions_after_padding else 0


def longest_text(sentence_config: Any) -> int | None:
    """Most tokens of a text that an encoder has positions for; None if it has no table of positions."""
    positions = getattr(sentence_config, "max_position_embeddings", None)
    return None if positions is None else positions - first_position(sentence_config)
