r"""After layer norm with scale gamma and bias beta every token has the same length: |y - beta 1| = |gamma| sqrt(d).

With $\mu = \frac1d x^\top 1$ and $\sigma^2 = \frac1d\|x - \mu 1\|^2$, and $\epsilon = 0$,

$$z = \frac{x - \mu 1}{\sigma}, \qquad z^\top 1 = 0, \qquad \|z\|^2 = \frac{d\,\sigma^2}{\sigma^2} = d$$

and $y - \beta 1 = \gamma z$, so $\|y - \beta 1\| = |\gamma|\sqrt d$ (the sheet writes $\gamma\sqrt d$, which is right
for $\gamma \ge 0$ only). Whatever came in leaves on one sphere of radius $|\gamma|\sqrt d$ around $\beta 1$, in the
plane at right angles to $1$: in three dimensions, on a circle. Only a token whose entries are all the same has no place
there: for it $\sigma = 0$.

In practice $\gamma$ is a vector and $\epsilon > 0$. Then $y - \beta$ lies on an ellipsoid,
$\min|\gamma_i|\sqrt d \le \|y - \beta\| \le \max|\gamma_i|\sqrt d$. For tokens of all directions each $z_i^2$ is 1 on
average, because all features are alike and their squares add up to $d$, so $E\|y - \beta\|^2 = \sum_i \gamma_i^2$. And
lengths are shorter by the factor $\sigma/\sqrt{\sigma^2 + \epsilon}$.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headwork.functional import rms_norm
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Axes, Figure, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, exact, seeded
from headwork.layers import LayerNorm


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Tokens of several kinds and widths, scaled by gamma and shifted by beta."""

    widths: tuple[int, ...] = (2, 8, 32, 128, 512, 2048)
    n_tokens: int = 100
    gamma: float = 1.7
    beta: float = -0.6
    eps: float = 0.0
    norm: Literal["layer norm", "with d - 1", "rms norm"] = "layer norm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.widths) < 2:
            raise ValueError(f"widths must be 2 or more, got {self.widths}")


@dataclass(frozen=True)
class Result:
    """Lengths after the norm, for each kind of tokens and each width."""

    setup: Setup
    shortest: dict[str, Float[Tensor, "width"]]
    longest: dict[str, Float[Tensor, "width"]]
    off_plane: float
    """The largest |z'1| / d of all tokens."""
    off_plane_rms: float
    """The same for RMS norm, which subtracts no mean."""
    of_ellipsoid: float
    """With a gamma for each feature: the mean of |y - beta|^2 over tokens of all directions, by the sum of gamma^2."""
    ellipsoid_sd: float
    ellipsoid_near: float
    """(sum of gamma)^2 / d, by the same sum."""
    x: Float[Tensor, "token 3"]
    y: Float[Tensor, "token 3"]


@seeded
def run(setup: Setup) -> Result:
    shortest, longest, off_plane = {}, {}, 0.0
    for kind in ("normal", "large and shifted", "heavy tails"):
        lengths = []
        for d in setup.widths:
            away = _norm(setup, _draw_tokens(kind, setup.n_tokens, d)) - setup.beta
            lengths.append(away.norm(dim=-1))
            off_plane = max(off_plane, (away.mean(-1) / setup.gamma).abs().max().item())
        shortest[kind] = torch.stack([length.min() for length in lengths])
        longest[kind] = torch.stack([length.max() for length in lengths])
    x = _draw_tokens("normal", setup.n_tokens, 3)
    rms = rms_norm(_draw_tokens("large and shifted", setup.n_tokens, d), eps=setup.eps).mean(-1).abs().max().item()
    return Result(setup, shortest, longest, off_plane, rms, *_ellipsoid(setup), x, _norm(setup, x))


def _draw_tokens(kind: str, n_tokens: int, d: int) -> Float[Tensor, "token d"]:
    normal = torch.randn(n_tokens, d, dtype=torch.float64)
    match kind:
        case "large and shifted":
            return 1000 * normal + 30
        case "heavy tails":
            return normal**5
        case _:
            return normal


def _norm(setup: Setup, x: Float[Tensor, "token d"]) -> Float[Tensor, "token d"]:
    d = x.shape[-1]
    match setup.norm:
        case "with d - 1":
            z = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
            return setup.gamma * z + setup.beta
        case "rms norm":
            return setup.gamma * rms_norm(x, eps=setup.eps) + setup.beta
        case "layer norm":
            pass
    layer = LayerNorm(d, eps=setup.eps).double()
    with torch.no_grad():
        layer.weight.fill_(setup.gamma)
        if layer.bias is not None:
            layer.bias.fill_(setup.beta)
        return layer(x)


def _ellipsoid(setup: Setup) -> tuple[float, float, float]:
    d = setup.widths[-1]
    gamma = torch.rand(d, dtype=torch.float64) + 0.5
    z = _norm(setup, _draw_tokens("normal", setup.n_tokens, d)) - setup.beta
    squared = (gamma * z / setup.gamma).square().sum(-1) / gamma.square().sum()
    sd = squared.std() / math.sqrt(setup.n_tokens)
    return squared.mean().item(), sd.item(), (gamma.mean().square() / gamma.square().mean()).item()


def predict_radius(setup: Setup) -> Float[Tensor, "width"]:
    return abs(setup.gamma) * torch.tensor(setup.widths, dtype=torch.float64).sqrt()


def verdict(result: Result) -> Verdict:
    radius = predict_radius(result.setup)
    wrong = abs(result.setup.gamma) * (torch.tensor(result.setup.widths).double() - 1).sqrt()

    def off(kind: str, radius: Tensor) -> float:
        """The largest relative error of a radius, over the shortest and the longest token of every width."""
        return max((ends[kind] / radius - 1).abs().max().item() for ends in (result.shortest, result.longest))

    return Verdict(
        checks=(
            *(
                exact(
                    f"|y - beta 1| / (|gamma| sqrt(d)) - 1, tokens: {kind}",
                    off(kind, radius),
                    eps=2**20,
                    near={"sqrt(d - 1)": off(kind, wrong), "1.001 times that": off(kind, 1.001 * radius)},
                )
                for kind in result.shortest
            ),
            exact(
                "largest mean of z",
                result.off_plane,
                eps=2**20,
                near={"RMS norm, which keeps the mean": result.off_plane_rms},
            ),
            about(
                "mean |y - beta|^2 over tokens of all directions, by the sum of gamma_i^2, for a vector gamma",
                1,
                result.of_ellipsoid,
                sd=result.ellipsoid_sd,
                near={"(sum of gamma_i)^2 / d": result.ellipsoid_near},
            ),
        ),
        why="Dividing by sigma makes the mean square 1, and d squares of mean 1 add up to d.",
    )


def figure(result: Result) -> Figure:
    setup, widths = result.setup, result.setup.widths
    drawing, (left, right) = panels(
        2, height=3.2, title="Layer norm puts every token on one sphere of radius |gamma| sqrt(d)"
    )
    _draw_circle(left, result)
    right.loglog(widths, predict_radius(setup).numpy(), **PREDICTED | {"label": "predicted: |gamma| sqrt(d)"})
    for size, (kind, marker) in enumerate(zip(result.longest, MARKERS, strict=False)):
        style = MEASURED | series(marker) | {"label": f"measured, {kind}", "markersize": 10 - 3 * size}
        right.loglog(widths, result.longest[kind].numpy(), **style | {"markerfacecolor": "none"})
    right.set(xlabel="d_model", ylabel="|y - beta 1|", xticks=widths, xticklabels=widths)
    right.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    right.minorticks_off()
    right.legend(frameon=False)
    return drawing


def _draw_circle(ax: Axes, result: Result) -> None:
    """The plane at right angles to (1, 1, 1), seen from the front."""
    setup = result.setup
    plane = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]], dtype=torch.float64)
    plane = (plane / plane.norm(dim=-1, keepdim=True)).T
    before, after = result.x @ plane, (result.y - setup.beta) @ plane
    angle = torch.linspace(0, 2 * math.pi, 200)
    radius = abs(setup.gamma) * math.sqrt(3)
    ax.plot((radius * angle.cos()).numpy(), (radius * angle.sin()).numpy(), **PREDICTED)
    ax.plot(*before.T.numpy(), color="0.6", linestyle="none", marker=".", markersize=3, label="before the norm")
    ax.plot(*after.T.numpy(), **MEASURED | {"label": "measured after"})
    ax.set(xlabel="(x1 - x2) / sqrt(2)", ylabel="(x1 + x2 - 2 x3) / sqrt(6)", title="d = 3", aspect="equal")
    ax.set(xlim=(-1.7 * radius, 1.7 * radius), ylim=(-1.8 * radius, 1.2 * radius))
    ax.legend(frameon=False, loc="lower center", ncols=2, columnspacing=0.8, handletextpad=0.4)


def _negative(result: Result) -> str:
    d, gamma = result.setup.widths[-1], -result.setup.gamma
    x = torch.linspace(-1, 1, d, dtype=torch.float64)
    length = (gamma * F.layer_norm(x, (d,), eps=0)).norm().item()
    return f"With gamma = {gamma} and d = {d} the length is {length:.3f}; as printed it would be {gamma * d**0.5:.3f}."


def _constant(result: Result) -> str:
    x = torch.full((result.setup.widths[-1],), 3.0, dtype=torch.float64)
    without, usual = (F.layer_norm(x, x.shape, eps=eps)[0].item() for eps in (0.0, 1e-5))
    return f"For x = (3, ..., 3) and eps = 0 PyTorch's layer norm gives {without}, for eps = 1e-5 it gives {usual:g}."


CLAIM = Claim(
    __name__,
    __doc__,
    document="EECS 182",
    question="3(b)",
    setup=Setup(),
    small=Setup(widths=(2, 7, 64), n_tokens=400),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "a variance with d - 1": {"norm": "with d - 1"},
        "RMS norm: the same length, but off the plane": {"norm": "rms norm"},
        "an eps that counts": {"eps": 0.1},
    },
    confidence="Exact up to rounding; the mean for a vector gamma within 5 standard deviations (SD) over tokens.",
    errata=(
        Erratum(
            where="3(b), the statement and its last line",
            printed=r"$\|y - \beta 1\|_2 = \gamma\sqrt d$",
            right=r"$|\gamma|\sqrt d$: a length is not negative, and nothing keeps a learned $\gamma$ above 0",
            measured=_negative,
        ),
        Erratum(
            where="3(b), 'given an input vector x'",
            printed=r"for any $x \in \mathbb{R}^d$, with $\epsilon = 0$",
            right=r"for any $x$ whose entries are not all the same: for $x = c\,1$ the $\sigma$ below the line is 0. "
            r"(In practice $\epsilon > 0$ is there for it, and the output is $\beta 1$.)",
            measured=_constant,
        ),
    ),
)
