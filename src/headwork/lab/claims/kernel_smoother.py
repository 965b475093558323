r"""Attention is the Nadaraya-Watson kernel smoother, and finds a known curve again with the error that theory predicts.

The smoother averages the $y_i$ with weights $K(x, x_i) / \sum_j K(x, x_j)$: attention with queries $x$, keys $x_i$,
values $y_i$, and $K(q, k) = e^{q \cdot k / \sqrt d}$. The Gaussian kernel of bandwidth $h$ is of this form. In

$$-\frac{(x - x_i)^2}{2h^2} = \frac{1}{h^2}\left(x\,x_i - \frac{x_i^2}{2}\right) - \frac{x^2}{2h^2}$$

the last term is the same for all keys and divides out, so the query $(x, 1)$, the key $(x_i, -\frac12 x_i^2)$ and
$\beta = 1/h^2$ give exactly its weights. (Bare positions $x$ and $x_i$ would not: $e^{q \cdot k}$ prefers long keys.)

For $n$ points per unit length with $y_i = \sin\omega x_i$ and noise of variance $\sigma^2$, smoothing damps the
sine by $e^{-\omega^2h^2/2}$ and averages the noise over $2\sqrt\pi\,h\,n$ points:

$$E[\text{error}^2] = \tfrac12\left(1 - e^{-\omega^2h^2/2}\right)^2 + \frac{\sigma^2}{2\sqrt\pi\,h\,n}$$

Attention that is too sharp repeats the noise, attention that is too soft forgets the curve: the temperature is the
bandwidth.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import scaled_dot_product_attention
from headwork.lab.plots import MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, exact, largest_difference, seeded

OMEGA = 2 * math.pi
"""One period per unit length."""
PERIODS = 4


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_points": 20, "n_samples": 20}):
    """Noisy points on a sine, many samples of them, and several bandwidths."""

    n_points: int = 100
    """In a unit of length."""
    n_samples: int = 300
    noise: float = 0.5
    bandwidths: tuple[float, ...] = (0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.25)
    keys: Literal["x and -x^2/2", "x alone"] = "x and -x^2/2"


@dataclass(frozen=True)
class Result:
    """The mean squared error for each bandwidth, with its standard error; and one sample to look at."""

    setup: Setup
    error: Float[Tensor, "bandwidth"]
    standard_error: Float[Tensor, "bandwidth"]
    from_loop: float
    """How far attention is from the smoother in NumPy; and from one of a slightly other bandwidth."""
    from_other_bandwidth: float
    x: Float[Tensor, "point"]
    y: Float[Tensor, "point"]
    where: Float[Tensor, "query"]
    curves: Float[Tensor, "bandwidth query"]


@seeded
def run(setup: Setup) -> Result:
    n, reach = setup.n_points, PERIODS / 2
    # A margin on both sides keeps the ends out of the question.
    x = torch.arange(-round(n * (reach + 1)), round(n * (reach + 1)) + 1, dtype=torch.float64) / n
    where = torch.linspace(-reach, reach, 16 * PERIODS + 1, dtype=torch.float64)[:-1]
    y = (OMEGA * x).sin()[:, None] + setup.noise * torch.randn(len(x), setup.n_samples, dtype=torch.float64)
    errors, standard_errors, curves, from_loop = [], [], [], 0.0
    for h in setup.bandwidths:
        smooth = _attend(setup, where, x, y, h)
        of_sample = (smooth - (OMEGA * where).sin()[:, None]).square().mean(0)
        errors.append(of_sample.mean())
        standard_errors.append(of_sample.std() / setup.n_samples**0.5)
        curves.append(smooth[:, 0])
        by_hand = predict_curve(where.numpy(), x.numpy(), y[:, :1].numpy(), h)
        from_loop = max(from_loop, largest_difference(smooth[:, :1], torch.from_numpy(by_hand)))
        other = predict_curve(where.numpy(), x.numpy(), y[:, :1].numpy(), 1.01 * h)
    from_other = largest_difference(smooth[:, :1], torch.from_numpy(other))
    return Result(
        setup,
        torch.stack(errors),
        torch.stack(standard_errors),
        from_loop,
        from_other,
        x,
        y[:, 0],
        where,
        torch.stack(curves),
    )


def _attend(setup: Setup, where: Tensor, x: Tensor, y: Tensor, h: float) -> Float[Tensor, "query sample"]:
    queries = torch.stack([where, torch.ones_like(where)], -1)
    keys = torch.stack([x, -x.square() / 2 if setup.keys == "x and -x^2/2" else torch.zeros_like(x)], -1)
    return scaled_dot_product_attention(queries, keys, y, beta=1 / h**2)


def predict_curve(where: np.ndarray, x: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
    """The formula of the sheet, one point at a time."""
    out = np.empty((len(where), y.shape[1]))
    for i, point in enumerate(where):
        kernel = np.exp(-((point - x) ** 2) / (2 * h**2))
        out[i] = (kernel[:, None] * y).sum(0) / kernel.sum()
    return out


def predict(setup: Setup, h: float) -> float:
    damped = 1 - math.exp(-((OMEGA * h) ** 2) / 2)
    return damped**2 / 2 + setup.noise**2 / (2 * math.sqrt(math.pi) * h * setup.n_points)


def predict_near(setup: Setup, h: float) -> dict[str, float]:
    """The term that counts at this bandwidth, with a constant off."""
    damped = (1 - math.exp(-((OMEGA * h) ** 2) / 2)) ** 2 / 2
    noise = predict(setup, h) - damped
    if noise > damped:
        return {"noise averaged over sqrt(2 pi) h n points": damped + noise * math.sqrt(2)}
    return {"the sine damped by exp(-omega^2 h^2 / 3)": noise + (1 - math.exp(-((OMEGA * h) ** 2) / 3)) ** 2 / 2}


def verdict(result: Result) -> Verdict:
    setup = result.setup
    rows = zip(setup.bandwidths, result.error.tolist(), result.standard_error.tolist(), strict=True)
    return Verdict(
        checks=(
            exact(
                "attention against the smoother",
                result.from_loop,
                eps=2**20,
                near={"a bandwidth of 1.01 h": result.from_other_bandwidth},
            ),
            *(
                about(f"squared error at h = {h:g}", predict(setup, h), seen, sd=error, near=predict_near(setup, h))
                for h, seen, error in rows
            ),
        ),
        why="The softmax divides by the sum of the kernel, and that is all that a smoother does.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    best = min(range(len(setup.bandwidths)), key=lambda i: predict(setup, setup.bandwidths[i]))
    drawing, (left, right) = panels(2, title="Attention is a kernel smoother, and its temperature is the bandwidth")
    seen = (result.x >= result.where[0]) & (result.x <= result.where[-1])
    left.plot(result.x[seen].numpy(), result.y[seen].numpy(), ".", color="0.75", markersize=2.5, label="noisy points")
    fine = torch.linspace(result.where[0].item(), result.where[-1].item(), 400)
    left.plot(fine.numpy(), (OMEGA * fine).sin().numpy(), **PREDICTED | {"label": "the curve behind them"})
    label = f"attention, h = {setup.bandwidths[best]:g}"
    left.plot(result.where.numpy(), result.curves[best].numpy(), **MEASURED | {"label": label, "markersize": 3.5})
    left.set(xlabel="x (query)", ylabel="y", ylim=(-2, 3.6))
    widths = np.logspace(math.log10(min(setup.bandwidths)), math.log10(max(setup.bandwidths)), 100)
    right.loglog(widths, [predict(setup, h) for h in widths], **PREDICTED)
    right.loglog(setup.bandwidths, result.error.numpy(), **MEASURED)
    right.set(xlabel="bandwidth h = 1 / sqrt(beta)", ylabel="mean squared error")
    right.set_xticks(setup.bandwidths[::2], [f"{h:g}" for h in setup.bandwidths[::2]])
    right.set_yticks([0.02, 0.05, 0.1, 0.2], ["0.02", "0.05", "0.1", "0.2"])
    right.minorticks_off()
    left.legend(frameon=False, loc="upper right", fontsize=7)
    right.legend(frameon=False)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="C182",
    question="non-local means",
    setup=Setup(),
    small=Setup(n_points=60, n_samples=200, bandwidths=(0.03, 0.08, 0.2)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"keys whose length counts": {"keys": "x alone"}},
    confidence="The smoother is met up to rounding, the errors within 5 standard deviations (SD) of a mean of samples.",
)
