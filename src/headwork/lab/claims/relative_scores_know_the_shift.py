r"""Relative scores depend on positions through the shift alone: move the whole image, and the scores move with it.

In the shapes of equation (1) ($Z_q$ and $Z_k$ are rows, $W_q, W_k \in \mathbb{R}^{D_i \times D_{hid}}$,
$\widetilde W_k \in \mathbb{R}^{D_{hid} \times D_p}$, and $u$, $v$ are columns of $D_{hid}$) equation (6) reads

$$A_{q,k} = Z_q W_q W_k^\top Z_k^\top + Z_q W_q \widetilde W_k r_\delta + u^\top W_k^\top Z_k^\top
+ v^\top \widetilde W_k r_\delta$$

Positions enter through $r_\delta$ with $\delta = q - k$ only, so moving every pixel by the same step changes nothing.
With absolute positions it does.

The Gaussian encoding of equation (7) leaves the last term alone, (b.1):

$$A_{q,k} = v^\top r_\delta = -\alpha\,(|\delta|^2 - 2\Delta_1\delta_1 - 2\Delta_2\delta_2)$$

(with $D_{hid} = D_p = 3$, which $\widetilde W_k = I$ asks for).
"""

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from headwork.functional import (
    absolute_scores,
    gaussian_vectors,
    grid_shifts,
    quadratic_codes,
    relative_scores,
    sinusoidal_positions_2d,
)
from headwork.lab.measuring import exists, product_as_printed, shape_of
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, seeded

ROUNDING = 2**18
"""In eps: scores are of order 100."""
D_P = 3


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A small object that stands somewhere on a grid, and then one step further; a Gaussian head."""

    n_rows: int = 6
    n_columns: int = 7
    d_in: int = 8
    d_hid: int = 5
    alpha: float = 0.7
    centre: tuple[float, float] = (1.0, -2.0)
    codes: Literal["of the shift", "of the key"] = "of the shift"


@dataclass(frozen=True)
class Result:
    """Scores of the same pairs before and after a step, relative and absolute; and those of a Gaussian head."""

    setup: Setup
    library: Float[Tensor, "query key"]
    by_hand: Float[Tensor, "query key"]
    other_sign: Float[Tensor, "query key"]
    """The same with delta = k - q."""
    before: dict[str, Float[Tensor, "from_pixel to_pixel"]]
    after: dict[str, Float[Tensor, "from_pixel to_pixel"]]
    gaussian: Float[Tensor, "query key"]
    third_as_printed: str
    second_as_printed: str
    """W_q times the identity of equation (7)."""


@dataclass(frozen=True)
class _Matrices:
    w_q: Float[Tensor, "d_in d_hid"]
    w_k: Float[Tensor, "d_in d_hid"]
    w_r: Float[Tensor, "d_hid d_p"]
    u: Float[Tensor, "d_hid"]
    v: Float[Tensor, "d_hid"]


@seeded
def run(setup: Setup) -> Result:
    image = torch.randn(setup.n_rows, setup.n_columns, setup.d_in, dtype=torch.float64)
    matrices = _Matrices(
        w_q=torch.randn(setup.d_in, setup.d_hid, dtype=torch.float64),
        w_k=torch.randn(setup.d_in, setup.d_hid, dtype=torch.float64),
        w_r=0.1 * torch.randn(setup.d_hid, D_P, dtype=torch.float64),
        u=torch.randn(setup.d_hid, dtype=torch.float64),
        v=torch.randn(setup.d_hid, dtype=torch.float64),
    )
    moved = image.roll((1, 1), (0, 1))
    p = rearrange(sinusoidal_positions_2d(setup.n_rows, setup.n_columns, setup.d_in).double(), "r c d -> (r c) d")
    before, after = (
        {
            "relative": _relative(setup, x, matrices),
            "absolute": absolute_scores(x.flatten(0, 1), p, matrices.w_q, matrices.w_k).total(),
        }
        for x in (image, moved)
    )
    start, end = _object(setup, 0), _object(setup, 1)
    return Result(
        setup,
        before["relative"],
        torch.from_numpy(predict(setup, image, matrices)),
        torch.from_numpy(predict(setup, image, matrices, sign=-1)),
        {kind: scores[start][:, start] for kind, scores in before.items()},
        {kind: scores[end][:, end] for kind, scores in after.items()},
        _gaussian(setup, image),
        _third_as_printed(image.flatten(0, 1), matrices),
        product_as_printed(matrices.w_q, torch.eye(D_P, dtype=torch.float64)),
    )


def _object(setup: Setup, step: int) -> Int[Tensor, "pixel"]:
    """The pixels of the upper left part, or the same one step down and to the right."""
    pixels = torch.arange(setup.n_rows * setup.n_columns).reshape(setup.n_rows, setup.n_columns)
    return pixels[step : step + setup.n_rows - 1, step : step + setup.n_columns - 1].flatten()


def _codes(setup: Setup) -> tuple[Float[Tensor, "shift d_p"], Int[Tensor, "query key"]]:
    """The code of every shift, and which one belongs to a pair."""
    rows, columns = setup.n_rows, setup.n_columns
    shifts = torch.cartesian_prod(torch.arange(1 - rows, rows), torch.arange(1 - columns, columns))
    delta = rearrange(grid_shifts(rows, columns), "r c i j two -> (r c) (i j) two")
    if setup.codes == "of the key":
        delta = delta[:1].expand_as(delta)
    index = (delta[..., 0] + rows - 1) * (2 * columns - 1) + delta[..., 1] + columns - 1
    return quadratic_codes(shifts).double(), index


def _relative(setup: Setup, image: Tensor, m: _Matrices) -> Float[Tensor, "query key"]:
    z = image.flatten(0, 1)
    codes, index = _codes(setup)
    return relative_scores(z @ m.w_q, z @ m.w_k, codes @ m.w_r.T, index, m.u, m.v).total()


def predict(setup: Setup, image: Tensor, m: _Matrices, sign: int = 1) -> np.ndarray:
    """Equation (6), pair by pair, in NumPy."""
    w_q, w_k, w_r, u, v = (t.numpy() for t in (m.w_q, m.w_k, m.w_r, m.u, m.v))
    pixels = [(i, j) for i in range(setup.n_rows) for j in range(setup.n_columns)]
    scores = np.empty((len(pixels), len(pixels)))
    for a, q in enumerate(pixels):
        for b, k in enumerate(pixels):
            z_q, z_k, delta = image[q].numpy(), image[k].numpy(), sign * np.subtract(q, k)
            r = np.array([delta @ delta, *delta])
            scores[a, b] = z_q @ w_q @ w_k.T @ z_k + z_q @ w_q @ w_r @ r + u @ w_k.T @ z_k + v @ w_r @ r
    return scores


def _gaussian(setup: Setup, image: Tensor) -> Float[Tensor, "query key"]:
    """Equation (7) put into (6); the library's centre is where the head looks, the sheet's Delta its opposite."""
    centre = -torch.tensor([setup.centre], dtype=torch.float64)
    (v,) = gaussian_vectors(centre, torch.tensor([setup.alpha], dtype=torch.float64))
    nothing = torch.zeros(setup.d_in, D_P, dtype=torch.float64)
    m = _Matrices(nothing, nothing, torch.eye(D_P, dtype=torch.float64), torch.randn(D_P, dtype=torch.float64), v)
    return _relative(setup, image, m)


def predict_gaussian(setup: Setup, factor: float = 2.0) -> Float[Tensor, "query key"]:
    """The answer to (b.1)."""
    pixels = torch.cartesian_prod(torch.arange(setup.n_rows), torch.arange(setup.n_columns)).double()
    delta = pixels[:, None] - pixels[None]
    inner = delta @ torch.tensor(setup.centre, dtype=torch.float64)
    return -setup.alpha * (delta.square().sum(-1) - factor * inner)


def _third_as_printed(z: Float[Tensor, "pixel d_in"], m: _Matrices) -> str:
    """u' W_k Z_k with the W_k of equation (1) and a row Z_k, for u of either width."""
    found = []
    for width in (m.w_k.shape[1], m.w_k.shape[0]):
        factors = (torch.zeros(1, width, dtype=torch.float64), m.w_k, z[:1])
        fits = exists(partial(torch.linalg.multi_dot, factors))
        shapes = " ".join(f"({shape_of(factor)})" for factor in factors)
        found.append(f"u of width {width} fits" if fits else f"{shapes} does not exist")
    return ", and ".join(found)


def verdict(result: Result) -> Verdict:
    moved = {kind: largest_difference(result.before[kind], result.after[kind]) for kind in result.before}
    right, other_sign, half = (
        largest_difference(result.gaussian, predict_gaussian(result.setup, factor)) for factor in (2.0, -2.0, 1.0)
    )
    return Verdict(
        checks=(
            exact(
                "relative scores before and after a step",
                moved["relative"],
                eps=ROUNDING,
                near={"absolute scores too": moved["absolute"]},
            ),
            exact(
                "relative scores against equation (6) by hand",
                largest_difference(result.library, result.by_hand),
                eps=ROUNDING,
                near={"delta = k - q": largest_difference(result.library, result.other_sign)},
            ),
            exact(
                "Gaussian scores against -alpha (|delta|^2 - 2 Delta.delta)",
                right,
                eps=ROUNDING,
                near={"+ 2 Delta.delta": other_sign, "Delta.delta once": half},
            ),
        ),
        why="A step moves queries and keys alike, and the shift between them stays.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Relative scores see how far, not where; absolute scores see where")
    low, high = result.before["relative"].min().item(), result.before["relative"].max().item()
    left.plot([low, high], [low, high], **PREDICTED | {"label": "predicted: equal", "zorder": 3})
    for kind, marker, grey in (("absolute", "x", "0.6"), ("relative", "o", "black")):
        style = MEASURED | series(marker) | {"label": f"measured, {kind}", "color": grey, "markersize": 3}
        left.plot(result.before[kind].flatten().numpy(), result.after[kind].flatten().numpy(), **style)
    left.set(xlabel="score of a pair of pixels", ylabel="score after a step of (1, 1)")
    left.set_ylim(top=2.2 * high)
    left.legend(frameon=False, loc="upper left")
    query = setup.n_rows // 2 * setup.n_columns + setup.n_columns // 2
    delta = rearrange(grid_shifts(setup.n_rows, setup.n_columns), "r c i j two -> (r c) (i j) two")[query]
    rows = [row for row in sorted(set(delta[:, 0].tolist())) if row <= setup.centre[0]]
    for row, marker in zip(rows, itertools.cycle(MARKERS), strict=False):
        here = delta[:, 0] == row
        shifts, order = delta[here, 1].sort()
        predicted, seen = (t[query][here][order].numpy() for t in (predict_gaussian(setup), result.gaussian))
        right.plot(shifts.numpy(), predicted, **PREDICTED | {"label": "predicted" if row == rows[0] else None})
        right.plot(shifts.numpy(), seen, **MEASURED | series(marker) | {"label": f"measured, shift of rows {row}"})
    right.set(xlabel="shift of columns", ylabel="Gaussian score")
    right.legend(frameon=False, fontsize=6.5)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="1(b.1)",
    also=("ETH (6)",),
    setup=Setup(),
    small=Setup(n_rows=3, n_columns=4, d_in=4, d_hid=2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"codes of where the key stands, not of the shift": {"codes": "of the key"}},
    confidence="Exact up to rounding.",
    errata=(
        Erratum(
            where="equations (6) and (7) together, and 1(b.2)",
            printed=r"$\widetilde W_k := I$ with $v \in \mathbb{R}^{D_p}$, $D_p = 3$, beside "
            r"$W_q \in \mathbb{R}^{D_i \times D_{hid}}$ with $D_{hid} = D_x \gg D_p$",
            right=r"$W_q \widetilde W_k$ in the second term of (6) asks for $D_{hid}$ rows, the identity has 3: either "
            r"$D_{hid} = D_p = 3$, or $\widetilde W_k = \binom{I_3}{0}$ and $v$ padded with zeros. $W_q = 0$ makes "
            "the term vanish, so nothing else on the sheet changes",
            measured=lambda result: f"As printed, {result.second_as_printed}.",
        ),
        Erratum(
            where="equation (6), third term",
            printed=r"$u^\top W_k Z_{k,:}$",
            right=r"$u^\top W_k^\top Z_{k,:}^\top$, with $W_k \in \mathbb{R}^{D_i \times D_{hid}}$ and rows $Z_{k,:}$ "
            "as everywhere else on the sheet",
            measured=lambda result: f"As printed, {result.third_as_printed}.",
        ),
    ),
)
