"""The fast forms: the same equations by PyTorch's fused kernels.

Each has a readable form of the same meaning (`fused_attention` ~ `scaled_dot_product_attention`,
`fused_layer_norm` ~ `layer_norm`, ...), and tests/functional/test_fused.py holds the pairs equal in value and
gradient. Layers call these; ask for attention weights and they come from the readable path.
"""

import math
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from headwork.checks import check_probability
from headwork.functional.attention import (
    LARGEST_BETA_FOR_A_SUM,
    attention_weights,
    check_attention,
    check_beta,
    check_bias,
    default_beta,
    hide_blind,
    hide_future,
    hide_unseen,
)
from headwork.functional.processor import HALF, check_products, is_under_func

MOST_KEYS_FOR_A_TABLE = 1024
"""Up to here a table of weights in half precision is small enough, and faster on a CPU."""


def fused_attention(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
    v: Float[Tensor, "*batch key d_value"],
    *,
    visible: Bool[Tensor, "*#batch #query #key"] | None = None,
    causal: bool = False,
    bias: Float[Tensor, "*#batch #query #key"] | None = None,
    beta: float | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "*batch query d_value"]:
    r"""`scaled_dot_product_attention` by PyTorch's fused kernel, which never writes the query x key table down.

    `causal=True` costs no mask at all when there is nothing else to hide. `dropout` acts on the weights, as in
    training. PyTorch falls back to a kernel with the table for dropout, for a bias that is learned, and for values of
    another width than the keys, and under torch.func (vmap, grad); a mask or a bias is itself such a table. On a CPU
    there is a table in half precision too while gradients are needed (see `_goes_back_slowly`).
    Dao et al., "FlashAttention", 2022.

    >>> q = torch.randn(1, 2, 5, 8)
    >>> fused_attention(q, q, q, causal=True).shape
    torch.Size([1, 2, 5, 8])
    """
    beta = default_beta(q) if beta is None else beta
    check_beta(beta)
    check_probability(dropout=dropout)
    if beta > LARGEST_BETA_FOR_A_SUM:
        raise ValueError(
            f"beta must be at most {LARGEST_BETA_FOR_A_SUM:g} for fused attention, got {beta}: "
            "use scaled_dot_product_attention"
        )
    check_attention(q, k, v, visible=visible)
    check_products(q)
    if (visible is not None and torch.compiler.is_exporting()) or _goes_back_slowly(q, k, v):
        # The table: elsewhere than here the kernel would give NaN for a query that sees no key.
        if causal and visible is not None:  # a key may be hidden by both together
            visible, causal = hide_future(visible, q, k), False
        weights = attention_weights(q, k, visible=visible, causal=causal, bias=bias, beta=beta)
        (v,) = hide_unseen(visible, v)
        return (F.dropout(weights, dropout) if dropout else weights) @ v
    if beta < torch.finfo(q.dtype).tiny:  # the kernel hides the future by -inf before it scales: 0 * -inf is NaN
        q, beta = beta * q, 1.0
    n_query, n_key = q.shape[-2], k.shape[-2]
    newest_query_only = causal and n_query == 1
    kernel_masks = causal and not newest_query_only and visible is None and bias is None and bool(n_query == n_key)
    if causal and not newest_query_only and not kernel_masks:
        visible = hide_future(visible, q, k)
    q, (k, v) = hide_blind(visible, q), hide_unseen(visible, k, v)
    mask: Tensor | None = visible
    if bias is not None:
        check_bias(bias, torch.Size((*q.shape[:-1], n_key)), beta)
        mask = (bias if visible is None else bias.masked_fill(~visible, -math.inf)).to(q.dtype)
    attend = partial(F.scaled_dot_product_attention, dropout_p=dropout, is_causal=kernel_masks, scale=beta)
    if is_under_func():  # through which the kernel goes slowly, or not at all
        attend = sdpa_kernel(SDPBackend.MATH)(attend)
    if q.ndim == 3:  # the fused kernel wants an axis for heads
        mask = mask[:, None] if mask is not None and mask.ndim == 3 else mask
        return attend(q[:, None], k[:, None], v[:, None], attn_mask=mask).squeeze(1)
    return attend(q, k, v, attn_mask=mask)


def _goes_back_slowly(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel's backward pass is slow: in half precision on a CPU, up to six times slower than the table.

    An autocast makes half precision of float32.
    """
    if q.device.type != "cpu" or not torch.is_grad_enabled() or k.shape[-2] > MOST_KEYS_FOR_A_TABLE:
        return False
    is_half = q.dtype in HALF or (q.dtype == torch.float32 and torch.is_autocast_enabled("cpu"))
    return is_half and any(t.requires_grad for t in (q, k, v))


def fused_layer_norm(
    x: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, "d_model"] | None = None,
    bias: Float[Tensor, "d_model"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d_model"]:
    """`layer_norm` in one kernel.

    >>> fused_layer_norm(torch.tensor([1.0, 3.0]))
    tensor([-1.0000,  1.0000])
    """
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def fused_rms_norm(
    x: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, "d_model"] | None = None,
    eps: float = 1e-6,
) -> Float[Tensor, "*batch d_model"]:
    """`rms_norm` in one kernel.

    >>> fused_rms_norm(torch.tensor([1.0, -1.0]))
    tensor([ 1.0000, -1.0000])
    """
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def fused_gelu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """`gelu` in one kernel.

    >>> fused_gelu(torch.tensor([1.0]))
    tensor([0.8413])
    """
    return F.gelu(x)


def fused_gelu_tanh(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """`gelu_tanh` in one kernel.

    >>> fused_gelu_tanh(torch.tensor([1.0]))
    tensor([0.8412])
    """
    return F.gelu(x, approximate="tanh")


def fused_rotate(
    x: Float[Tensor, "*batch token d_head"],
    cos: Float[Tensor, "*#batch token d_head"],
    sin: Float[Tensor, "*#batch token d_head"],
    layout: Literal["interleaved", "halves"] = "interleaved",
) -> Float[Tensor, "*batch token d_head"]:
    """`rotate` by the numbers of `rotary_table`, which many layers share: x cos + (b, a) sin for each pair (a, b) of x.

    >>> from headwork.functional.rotary import rotary_table, rotate
    >>> x, angles = torch.randn(5, 8), torch.randn(5, 4)
    >>> torch.allclose(fused_rotate(x, *rotary_table(angles)), rotate(x, angles), atol=1e-6)
    True
    """
    if layout == "halves":
        swapped = x.roll(x.shape[-1] // 2, -1)
    else:
        swapped = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2).flip(-1).flatten(-2)
    return torch.addcmul(x * cos.to(x.dtype), swapped, sin.to(x.dtype))
