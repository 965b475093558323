r"""Layer norm gives each token mean 0 and variance s^2 / (s^2 + eps), and forgets the scale and offset it came with.

With mean $\mu$ and variance $\sigma^2 = \frac1d \sum_i (x_i - \mu)^2$ over the features of one token,

$$y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}, \qquad \bar y = 0, \qquad
\operatorname{Var}(y) = \frac{\sigma^2}{\sigma^2 + \epsilon}$$

so the variance is 1 for tokens of the usual size and falls to 0 for those below $\sqrt\epsilon$. Nothing here looks at
another token: padding, batch and length do not matter. A token that is scaled and moved, $ax + b$ with $a > 0$, gives

$$\frac{a(x - \mu)}{\sqrt{a^2\sigma^2 + \epsilon}} = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon / a^2}}$$

the same but for $\epsilon$. The variance is the one with $d$, not $d - 1$: with $d - 1$ the result would be too small
by $\sqrt{1 - 1/d}$.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.functional import batch_norm, layer_norm, rms_norm
from headwork.lab.measuring import influence
from headwork.lab.plots import MEASURED, PREDICTED, Figure, on_log_axis, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, exact, largest_difference, same, seeded

N_FEW = 5
Norm = Literal["layer", "with d - 1", "eps outside the root", "over the batch"]


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"d_model": 2}):
    """Tokens of many sizes, scales to multiply one with, and what is computed."""

    d_model: int = 48
    n_tokens: int = 25
    n_scales: int = 25
    eps: float = 1e-5
    norm: Norm = "layer"


@dataclass(frozen=True)
class Result:
    """Mean and variance of each token before and after, and one token under many scales."""

    setup: Setup
    spread: Float[Tensor, "token"]
    """The standard deviation before."""
    mean: Float[Tensor, "token"]
    variance: Float[Tensor, "token"]
    scales: Float[Tensor, "scale"]
    scaled: Float[Tensor, "scale"]
    """How far the norm of a x + b is from that of x; and how far it should be."""
    should_be: Float[Tensor, "scale"]
    from_pytorch: float
    """And how far from it with twice the eps."""
    from_pytorch_other_eps: float
    with_rms: float
    """The largest mean of a token after a norm that subtracts none."""
    other_tokens: int
    """Pairs of an output and another token that it depends on."""


@seeded
def run(setup: Setup) -> Result:
    spread = torch.logspace(-5, 3, setup.n_tokens, dtype=torch.float64)
    x = torch.randn(setup.n_tokens, setup.d_model, dtype=torch.float64)
    x = (x - x.mean(-1, keepdim=True)) / x.std(-1, unbiased=False, keepdim=True) * spread[:, None]
    x = x + torch.randn(setup.n_tokens, 1, dtype=torch.float64)
    y = _norm(setup, x)
    token, scales = torch.randn(setup.d_model, dtype=torch.float64), torch.logspace(-4, 3, setup.n_scales).double()
    variants = scales[:, None] * token + torch.randn(setup.n_scales, 1, dtype=torch.float64)
    centred, variance = token - token.mean(), token.var(unbiased=False)
    should_be = [
        (centred / (variance + setup.eps / a**2).sqrt() - centred / (variance + setup.eps).sqrt()).abs().max()
        for a in scales
    ]
    few = torch.randn(N_FEW, setup.d_model, dtype=torch.float64)
    depends = influence(lambda few: _norm(setup, few), few) > 0
    return Result(
        setup,
        spread,
        y.mean(-1),
        y.var(-1, unbiased=False),
        scales,
        (_norm(setup, variants) - _norm(setup, token[None])).abs().amax(-1),
        torch.stack(should_be),
        largest_difference(y, nn.functional.layer_norm(x, (setup.d_model,), eps=setup.eps)),
        largest_difference(y, nn.functional.layer_norm(x, (setup.d_model,), eps=2 * setup.eps)),
        rms_norm(x, eps=setup.eps).mean(-1).abs().max().item(),
        int(depends.sum() - depends.diagonal().sum()),
    )


def _norm(setup: Setup, x: Float[Tensor, "token d_model"]) -> Float[Tensor, "token d_model"]:
    centred = x - x.mean(-1, keepdim=True)
    match setup.norm:
        case "layer":
            return layer_norm(x, eps=setup.eps)
        case "with d - 1":
            return centred / torch.sqrt(x.var(-1, keepdim=True) + setup.eps)
        case "eps outside the root":
            return centred / (x.std(-1, unbiased=False, keepdim=True) + setup.eps)
        case "over the batch":
            return batch_norm(x, eps=setup.eps)


def predict(spread: Tensor, eps: float) -> Float[Tensor, "..."]:
    return spread.square() / (spread.square() + eps)


def verdict(result: Result) -> Verdict:
    setup, eps, spread = result.setup, result.setup.eps, result.spread
    return Verdict(
        checks=(
            exact(
                "variance of a token against s^2 / (s^2 + eps)",
                largest_difference(result.variance, predict(spread, eps)),
                eps=2**16,
                near={
                    "d - 1 instead of d": largest_difference(
                        result.variance, predict(spread, eps) * (1 - 1 / setup.d_model)
                    ),
                    "eps outside the root": largest_difference(result.variance, (spread / (spread + eps)).square()),
                },
            ),
            exact(
                "largest mean of a token",
                result.mean.abs().max().item(),
                eps=2**16,
                near={"RMS norm, which keeps it": result.with_rms},
            ),
            exact(
                "norm of a x + b against the formula",
                largest_difference(result.scaled, result.should_be),
                eps=2**20,
                near={"the same for every a": result.scaled.max().item()},
            ),
            same("other tokens that an output depends on", 0, result.other_tokens, near={"its neighbour": N_FEW}),
            exact(
                "against PyTorch's",
                result.from_pytorch,
                eps=2**20,
                near={"twice the eps": result.from_pytorch_other_eps},
            ),
        ),
        why="Mean and variance are those of the token itself, so what it was multiplied with divides out.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Layer norm forgets how large a token was, unless it was smaller than eps")
    fine = torch.logspace(-5, 3, 300).double()
    left.semilogx(fine.numpy(), predict(fine, setup.eps).numpy(), **PREDICTED)
    left.semilogx(result.spread.numpy(), result.variance.numpy(), **MEASURED | {"label": "measured, variance"})
    left.semilogx(result.spread.numpy(), result.mean.numpy(), **MEASURED | {"marker": "x", "label": "measured, mean"})
    left.axvline(setup.eps**0.5, color="0.6", linewidth=0.8, zorder=0)
    left.text(setup.eps**0.5 * 1.2, 0.22, "sqrt(eps)")
    left.set(xlabel="standard deviation of a token before", ylabel="after the norm")
    right.loglog(result.scales.numpy(), on_log_axis(result.should_be, 1e-16), **PREDICTED)
    right.loglog(result.scales.numpy(), on_log_axis(result.scaled, 1e-16), **MEASURED)
    right.set(xlabel="scale a", ylabel="norm of a x + b against norm of x")
    left.legend(frameon=False, loc="center right")
    right.legend(frameon=False)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="2(c)",
    setup=Setup(),
    small=Setup(d_model=7, n_tokens=9, n_scales=7),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "a variance with d - 1": {"norm": "with d - 1"},
        "eps outside the root": {"norm": "eps outside the root"},
        "statistics over the batch": {"norm": "over the batch"},
    },
    confidence="Exact up to rounding.",
)
