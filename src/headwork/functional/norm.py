"""Normalisation: over the features of one token (layer, RMS) or over the batch of one feature (batch)."""

import torch
from jaxtyping import Float
from torch import Tensor


def layer_norm(
    x: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, "d_model"] | None = None,
    bias: Float[Tensor, "d_model"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d_model"]:
    r"""$\gamma\,\frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$ over the features of each token.

    The variance is the biased one (divided by $d$, not $d - 1$) and $\epsilon$ stands inside the root.
    Ba, Kiros and Hinton, "Layer normalization", 2016.

    >>> layer_norm(torch.tensor([1.0, 3.0]))
    tensor([-1.0000,  1.0000])
    """
    precise = _precise(x)
    centred = precise - precise.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return _affine((centred / torch.sqrt(variance + eps)).to(x.dtype), weight, bias)


def rms_norm(
    x: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, "d_model"] | None = None,
    eps: float = 1e-6,
) -> Float[Tensor, "*batch d_model"]:
    r"""$\gamma\,\frac{x}{\sqrt{\operatorname{mean}(x^2) + \epsilon}}$: layer norm without the mean.

    Zhang and Sennrich, "Root mean square layer normalization", 2019.

    >>> rms_norm(torch.tensor([3.0, 4.0]))
    tensor([0.8485, 1.1314])
    """
    precise = _precise(x)
    mean_square = precise.square().mean(-1, keepdim=True)
    return _affine((precise / torch.sqrt(mean_square + eps)).to(x.dtype), weight, None)


def unbiased_layer_norm(
    x: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, "d_model"] | None = None,
    bias: Float[Tensor, "d_model"] | None = None,
    eps: float = 1e-6,
) -> Float[Tensor, "*batch d_model"]:
    r"""$\gamma\,\frac{x - \mu}{s + \epsilon} + \beta$ with the unbiased deviation $s$ (divided by $d - 1$).

    The norm of "The annotated Transformer" (Rush, 2018) and of the many that began there.

    >>> unbiased_layer_norm(torch.tensor([1.0, 3.0]))
    tensor([-0.7071,  0.7071])
    """
    precise = _precise(x)
    centred = precise - precise.mean(-1, keepdim=True)
    variance = centred.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
    deviation = variance.clamp(min=torch.finfo(variance.dtype).tiny).sqrt()  # the root of 0 has no gradient
    return _affine((centred / (deviation + eps)).to(x.dtype), weight, bias)


def batch_norm(
    x: Float[Tensor, "batch *position d_model"],
    weight: Float[Tensor, "d_model"] | None = None,
    bias: Float[Tensor, "d_model"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "batch *position d_model"]:
    r"""The same formula with mean and variance over the batch (and every position) of one feature, for comparison.

    Features are the last axis here, as in `layer_norm`; statistics are those of this batch, as in training.
    Ioffe and Szegedy, "Batch normalization", 2015.

    >>> batch_norm(torch.tensor([[1.0, 5.0], [3.0, 9.0]]))
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]])
    """
    over = tuple(range(x.ndim - 1))
    precise = _precise(x)
    centred = precise - precise.mean(over, keepdim=True)
    variance = centred.square().mean(over, keepdim=True)
    return _affine((centred / torch.sqrt(variance + eps)).to(x.dtype), weight, bias)


def _precise(x: Tensor) -> Tensor:
    """Half precision in float32, where squares do not overflow."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias
