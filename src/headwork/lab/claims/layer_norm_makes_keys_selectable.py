r"""A key inside the convex hull of the others wins for no query; behind LayerNorm every key is a corner, from d = 3 on.

A score is linear in the key, so over the hull it is largest at a corner: a key wins for some query if and only if it
is a corner of the hull of all keys. Of $n$ normal keys how many are that? A facet is spanned by $d$ keys with all
others on one side. The hyperplane through $d$ normal points has a normal distance from the origin of variance $1/d$
(by the Blaschke-Petkantschin formula), so with $\Phi$ the normal distribution function

$$\mathbb E\,(\text{facets}) = 2\binom nd\; \mathbb E\,\Phi(p)^{n-d}, \qquad p \sim N(0, \tfrac1d)$$

In the plane there are as many corners as facets (sides); in space, by Euler's formula, half of the facets and two.
That is 8 of 60 keys for $d = 2$, and 19 for $d = 3$: the others can never get the largest weight.

LayerNorm and RMSNorm put all keys on a sphere, where each is a corner: the key itself, as a query, picks it, since
$k_j \cdot k_j > k_j \cdot k_i$ for any other vector of the same length. But LayerNorm takes a dimension away: for $d
= 2$ it leaves the two points $(1, -1)$ and $(-1, 1)$, and hardly ever is a key alone.

It stops being true when the norm has a large eps or comes before the projection $W_K$ to fewer dimensions, which can
put a key inside the hull again; two keys that are multiples of each other become one.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import attention_scores, layer_norm, rms_norm, softargmax
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, legend_outside, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, same, seeded

Norm = Literal["none", "LayerNorm", "RMSNorm"]
SHARP = 1e9
"""An inverse temperature that leaves ties, and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Normal keys in two and three dimensions, and many draws of them."""

    n_keys: tuple[int, ...] = (6, 12, 24)
    n_draws: int = 400
    norm: Norm = "LayerNorm"
    d_norm: int = 3


@dataclass(frozen=True)
class Result:
    """Keys that win for some query: without a norm, the mean over the draws with its standard error; and behind one."""

    setup: Setup
    corners: dict[int, Float[Tensor, "n_keys 2"]]
    """By dimension."""
    behind: int
    """Of the most keys, those that win for some query in every draw: the fewest."""
    rms_in_the_plane: int
    layer_norm_in_the_plane: int
    """The median of the draws."""


@seeded
def run(setup: Setup) -> Result:
    corners = {}
    for d in (2, 3):
        rows = []
        for n in setup.n_keys:
            found = torch.stack([_n_corners(torch.randn(n, d, dtype=torch.float64)) for _ in range(setup.n_draws)])
            rows.append(torch.stack([found.mean(), found.std() / setup.n_draws**0.5]))
        corners[d] = torch.stack(rows)
    most = max(setup.n_keys)
    return Result(
        setup,
        corners,
        min(_n_winners(_apply(setup.norm, most, setup.d_norm)) for _ in range(setup.n_draws)),
        min(_n_winners(_apply("RMSNorm", most, 2)) for _ in range(setup.n_draws)),
        sorted(_n_winners(_apply("LayerNorm", most, 2)) for _ in range(setup.n_draws))[setup.n_draws // 2],
    )


def _apply(norm: Norm, n: int, d: int) -> Float[Tensor, "key d"]:
    keys = torch.randn(n, d, dtype=torch.float64)
    return {"none": keys, "LayerNorm": layer_norm(keys, eps=0.0), "RMSNorm": rms_norm(keys, eps=0.0)}[norm]


def _n_winners(keys: Float[Tensor, "key d"]) -> int:
    """Keys that get more than half of the weight if they are the query themselves."""
    weights = softargmax(attention_scores(keys, keys), SHARP)
    return int((weights.diagonal() > 0.5).sum())


def _n_corners(keys: Float[Tensor, "key d"]) -> Float[Tensor, ""]:
    """Keys that win or tie for some query: enough are the normals of all planes through d keys, both ways."""
    n, d = keys.shape
    points = keys[torch.combinations(torch.arange(n), d)]
    edges = points[:, 1:] - points[:, :1]
    if d == 2:
        normal = torch.stack([-edges[:, 0, 1], edges[:, 0, 0]], -1)
    else:
        normal = torch.linalg.cross(edges[:, 0], edges[:, 1])
    queries = torch.cat([normal, -normal]) / normal.norm(dim=-1).repeat(2)[:, None]
    return (softargmax(attention_scores(queries, keys), SHARP) > 0.01).any(0).sum().double()


def predict_corners(n: int, d: int, *, spread: float = 1.0) -> float:
    """By the trapezium rule; `spread` times 1/d is the variance of the distance."""
    p = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    density = (-(p.square()) * d / (2 * spread)).exp() * math.sqrt(d / (2 * math.pi * spread))
    facets = 2 * math.comb(n, d) * torch.trapezoid(torch.special.ndtr(p) ** (n - d) * density, p).item()
    return facets if d == 2 else facets / 2 + 2


def verdict(result: Result) -> Verdict:
    setup, most = result.setup, max(result.setup.n_keys)
    counts = [
        about(
            f"keys of {n} that win for some query, d = {d}",
            predict_corners(n, d),
            seen,
            sd=error,
            near={
                "half as many keys again": predict_corners(n + n // 2, d),
                "a distance of variance 1 / (d + 1)": predict_corners(n, d, spread=d / (d + 1)),
            },
        )
        for d, rows in result.corners.items()
        for n, (seen, error) in zip(setup.n_keys, rows.tolist(), strict=True)
    ]
    without = round(predict_corners(most, setup.d_norm)) if setup.d_norm <= 3 else most - 1
    return Verdict(
        checks=(
            same(
                f"keys of {most} that win behind the norm, d = {setup.d_norm}",
                most,
                result.behind,
                near={"as without": without},
            ),
            same(
                f"keys of {most} that win behind RMSNorm, d = 2",
                most,
                result.rms_in_the_plane,
                near={"all but one": most - 1},
            ),
            same(
                f"keys of {most} that win behind LayerNorm, d = 2",
                0,
                result.layer_norm_in_the_plane,
                near={"two, one for each point": 2, "all": most},
            ),
            *counts,
        ),
        why="On a sphere no point is a mean of others, and a linear function is largest at a corner.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="Without a norm most keys can never win; on LayerNorm's sphere all can")
    n = range(4, max(setup.n_keys) + 1)
    for (d, rows), marker, colour in zip(result.corners.items(), MARKERS, COLOURS, strict=False):
        ax.plot(n, [predict_corners(m, d) for m in n], **PREDICTED | {"label": "predicted" if d == 2 else ""})
        style = MEASURED | {"marker": marker, "color": colour, "label": f"measured, no norm, d = {d}"}
        ax.plot(setup.n_keys, rows[:, 0].numpy(), **style)
    ax.plot(n, n, **PREDICTED | {"label": "", "color": "0.6"})
    style = MEASURED | {"marker": "D", "color": COLOURS[2], "label": f"measured, {setup.norm}, d = {setup.d_norm}"}
    ax.plot(max(setup.n_keys), result.behind, **style)
    style = MEASURED | {"marker": "v", "color": COLOURS[3], "label": "measured, LayerNorm, d = 2"}
    ax.plot(max(setup.n_keys), result.layer_norm_in_the_plane, **style)
    ax.set(xlabel="keys n", ylabel="keys that win for some query", xticks=setup.n_keys, ylim=(-1, None))
    legend_outside(ax)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="Brody, Alon and Yahav 2023, On the expressivity role of LayerNorm in Transformers' attention "
    "(arXiv:2305.02582)",
    setup=Setup(),
    small=Setup(n_keys=(8,), n_draws=100),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"no norm": {"norm": "none"}, "LayerNorm in the plane": {"d_norm": 2}},
    confidence="With a norm exact; without, the tolerance is 5 standard deviations (SD) of the mean over the draws.",
)
