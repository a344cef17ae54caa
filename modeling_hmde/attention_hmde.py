"""An attention function in the form in which transformers calls them: `packed`, for sequences end to end."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as sdpa
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before torch 2.10
    varlen_attn = None  # type: ignore[assignment]

logger = logging.get_logger(__name__)

# Attention implementations for sequences end to end: ours, and the flash-attn package's through transformers.
PACKED_ATTENTION = ("packed", "flash_attention_2", "flash_attention_3")

# Attention scores that one thread computes at once: one MiB in bfloat16, which fits the second-level cache of a core.
SCORES_AT_ONCE = 2**19


def packed_attention_arguments(lengths: Tensor) -> dict[str, Any]:
    """The arguments that tell a packed attention where sequences of `lengths` (sequences,) begin and end, by the names
    that transformers' flash attention uses."""
    bounds = nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    longest = int(lengths.max())
    return {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest}


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention within each of the sequences that lie end to end in one row, bidirectional or causal as the layer is.

    On a GPU in half precision it is core PyTorch's variable-length flash attention, which has no dropout. Elsewhere it
    makes one call for each run of sequences of equal length, so they should be sorted. The call is scaled dot product
    attention, or `attention_by_products` where that is faster.

    Args:
        module: the attention layer that calls. Its `is_causal` says whether a token attends to later ones.
        query, key, value: (1, heads, tokens, head width). Keys and values may have fewer heads, of which each serves a
            group of the query's.
        attention_mask: not used; the bounds of the sequences take its place.
        cu_seq_lens_q: (sequences + 1,), int32, the index of each sequence's first token, then the count of all tokens.
        max_length_q: tokens of the longest sequence.
        sliding_window: a token attends to those fewer than this many tokens away. None: to all of its sequence.
        is_causal: what the encoder's configuration says in place of the layer. None: it says nothing.
        softcap: refused; a layer that gives it bounds its scores.

    Returns:
        (1, tokens, heads, head width), and no weights.

    Raises:
        ValueError: the layer does not say whether it is causal, or bounds its scores, or the bounds of the sequences
            are missing because something other than HMDE calls the encoder.
    """
    causal = getattr(module, "is_causal", None) if is_causal is None else is_causal
    if causal is None or softcap is not None:
        lack = "bounds its scores" if causal is not None else "does not say whether it is causal"
        raise ValueError(
            f"{type(module).__name__} {lack}, and packed attention would compute something else; choose another "
            'attention: set_attn_implementation("sdpa")'
        )
    if cu_seq_lens_q is None or max_length_q is None:
        raise ValueError(
            "packed attention needs cu_seq_lens_q and max_length_q, which HMDE gives it for rows of tokens; to export "
            'the model, or to call its sentence encoder alone, choose another: set_attn_implementation("sdpa")'
        )
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (projected.repeat_interleave(groups, dim=1) for projected in (key, value))
    if has_variable_length_kernel(value):
        if dropout:
            logger.warning_once("variable-length attention has no dropout, so training drops no attention weight")
        query, key, value = (projected.squeeze(0).transpose(0, 1) for projected in (query, key, value))
        bounds, longest = cu_seq_lens_q, max_length_q
        reach = -1 if sliding_window is None else sliding_window - 1
        window = (reach, 0 if causal else reach)
        attended: Any = varlen_attn(
            query, key, value, bounds, bounds, longest, longest, scale=scaling, window_size=window
        )
        return attended.unsqueeze(0), None

    lengths, counts = torch.unique_consecutive(cu_seq_lens_q.diff(), return_counts=True)
    runs = list(zip(counts.tolist(), lengths.tolist()))
    # The backward of `split` is one concatenation; each slice would have a gradient of the size of all tokens.
    sizes = [count * length for count, length in runs]
    attend = attention_by_products if products_are_faster(query) else sdpa
    attended_runs = []
    for run, *parts in zip(runs, *(projected.squeeze(0).split(sizes, dim=1) for projected in (query, key, value))):
        queries, keys, values = (part.unflatten(1, run).transpose(0, 1) for part in parts)
        mask = attention_mask_of(run[1], sliding_window, causal, query.device)
        attended = attend(queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling)
        attended_runs.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(attended_runs).unsqueeze(0), None


def products_are_faster(query: Tensor) -> bool:
    """Whether `attention_by_products` is faster than PyTorch's attention: in bfloat16 on a CPU, unless the CPU has AMX,
    which PyTorch's attention uses too, and no backward pass follows."""
    in_bfloat16 = query.device.type == "cpu" and query.dtype == torch.bfloat16
    return in_bfloat16 and (query.requires_grad or not has_tiles())


@functools.cache
def has_tiles() -> bool:
    """Whether the CPU multiplies matrices of bfloat16 by tiles (Intel's AMX)."""
    capabilities: dict = getattr(torch.cpu, "get_capabilities", dict)()  # not in older releases
    return bool(capabilities.get("amx_bf16"))


def has_variable_length_kernel(values: Tensor) -> bool:
    return varlen_attn is not None and values.is_cuda and values.dtype in (torch.bfloat16, torch.float16)


def attention_mask_of(length: int, width: int | None, causal: bool, device: torch.device) -> Tensor | None:
    """(length, length), True where a token (row) attends to another (column), which is fewer than `width` tokens away
    and, if `causal`, not later. None where all attend to all."""
    width = length if width is None else width
    if length <= width and not causal:
        return None
    positions = torch.arange(length, device=device)
    distances = positions.unsqueeze(1) - positions
    return (distances < width) & (distances >= 0 if causal else distances > -width)


def attention_by_products(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float, scale: float | None
) -> Tensor:
    """Scaled dot product attention by batched matrix products with a softmax between them.

    A CPU with native bfloat16 support uses it in matrix products (oneDNN), but without AMX not in PyTorch's attention,
    whose backward pass is slower still on either. Some heads are computed at once, so that their scores fit the caches.

    Args:
        query, key, value: (sequences, heads, tokens, head width).
        attn_mask: (tokens, tokens), True where a token attends to another. None: everywhere.
        dropout_p: share of the weights that is dropped.
        scale: factor of the products; 1 over the root of the head width if not given.

    Returns:
        the shape of `value`.
    """
    tokens, head_width = query.shape[-2:]
    scale = head_width**-0.5 if scale is None else scale
    heads_at_once = max(1, SCORES_AT_ONCE * torch.get_num_threads() // tokens**2)
    attended = []
    for queries, keys, values in zip(*(heads.flatten(0, 1).split(heads_at_once) for heads in (query, key, value))):
        scores = torch.baddbmm(queries.new_zeros(()), queries, keys.transpose(1, 2), beta=0, alpha=scale)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        attended.append(nn.functional.dropout(scores.softmax(dim=-1), dropout_p) @ values)
    return torch.cat(attended).view(value.shape)


ALL_ATTENTION_FUNCTIONS.register("packed", packed_attention)
