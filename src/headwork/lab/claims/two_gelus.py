r"""The two GELUs differ by at most 0.000474, at x = 2.7 and -2.7; 0.044715 brings tanh nearest to erf, not to GELU.

The exact one is $x\,\Phi(x) = \frac{x}{2}\left(1 + \operatorname{erf}\frac{x}{\sqrt2}\right)$, the other replaces
the error function by $\tanh\left(\sqrt{2/\pi}\,(x + a x^3)\right)$ with $a = 0.044715$. Both functions inside are odd,
so the difference

$$\tfrac{x}{2}\left(\operatorname{erf}\tfrac{x}{\sqrt2} - \tanh\left(\sqrt{2/\pi}\,(x + a x^3)\right)\right)$$

is even: it is the same on both sides of 0, and goes to 0 at 0 and far out.

Where does the constant come from? The first terms of the two series agree for any $a$, the second ones for
$-\frac16 = a - \frac{2}{3\pi}$, so near 0 the best one would be $a = \frac{2}{3\pi} - \frac16 = 0.04554$. But it is
the constant for which the largest difference between $\tanh$ and $\operatorname{erf}$ is smallest: then the difference
is as large above as below, and solving for that gives $0.044715$ to all its digits. For the GELU itself, where the
difference counts $x/2$ times, $a = 0.04438$ is better: at most 0.000387 instead of 0.000473, 18 % less.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headwork.functional import gelu, gelu_tanh
from headwork.lab.plots import COLOURS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, exact, largest_difference, seeded

IN_USE = 0.044715
OF_TAYLOR = 2 / (3 * math.pi) - 1 / 6
STEP = 5e-6
"""Between the constants that are tried."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_points": 1000}):
    """Where the two are compared, and what stands in for the exact one."""

    reach: float = 6.0
    n_points: int = 200_001
    other: Literal["tanh", "sigmoid"] = "tanh"
    """`sigmoid` is x sigmoid(1.702 x), a cruder one that is in use too."""


@dataclass(frozen=True)
class Result:
    """Both functions at the same points."""

    setup: Setup
    x: Float[Tensor, "point"]
    exact: Float[Tensor, "point"]
    other: Float[Tensor, "point"]
    best_for_erf: float
    """The constant with the smallest largest difference, of many that were tried: of erf, and of GELU."""
    best_for_gelu: float
    with_best: float

    @property
    def difference(self) -> Float[Tensor, "point"]:
        return self.exact - self.other

    @property
    def farthest(self) -> float:
        """The positive x at which they are farthest apart."""
        return self.x[self.difference.abs().where(self.x >= 0, 0).argmax()].item()


@seeded
def run(setup: Setup) -> Result:
    x = torch.linspace(-setup.reach, setup.reach, setup.n_points, dtype=torch.float64)
    other = gelu_tanh(x) if setup.other == "tanh" else x * torch.sigmoid(1.702 * x)
    few = x[x > 0][:: max(1, setup.n_points // 10_000)]
    tried = torch.arange(0.0430, 0.0460, STEP, dtype=torch.float64)
    gaps = torch.stack([torch.erf(few / 2**0.5) - torch.tanh((2 / math.pi) ** 0.5 * (few + a * few**3)) for a in tried])
    of_erf, of_gelu = gaps.abs().amax(-1), (few / 2 * gaps).abs().amax(-1)
    return Result(
        setup, x, gelu(x), other, tried[of_erf.argmin()].item(), tried[of_gelu.argmin()].item(), of_gelu.min().item()
    )


def predict_difference(x: float, a: float = IN_USE) -> float:
    """Exact minus approximate, by Python's own functions."""
    return x / 2 * (math.erf(x / math.sqrt(2)) - math.tanh(math.sqrt(2 / math.pi) * (x + a * x**3)))


def predict(a: float = IN_USE) -> tuple[float, float]:
    """Where the difference is largest, and how large: the best of a coarse search, then ever smaller steps."""
    best, step = max((i / 100 for i in range(600)), key=lambda x: abs(predict_difference(x, a))), 0.01
    while step > 1e-10:
        best = max((best - step, best, best + step), key=lambda x: abs(predict_difference(x, a)))
        step *= 0.7
    return best, abs(predict_difference(best, a))


def predict_extremes(a: float, power: int) -> tuple[float, float]:
    """The largest and the smallest of (x/2)^power (erf - tanh) on the positive axis."""
    gaps = [(2 / x) ** (1 - power) * predict_difference(x, a) for x in (i / 100 for i in range(1, 500))]
    return max(gaps), min(gaps)


def predict_constant(power: int = 0) -> float:
    """The a for which erf - tanh, or (power 1) the GELU, is as far above 0 as below, by halving an interval."""
    low, high = 0.040, OF_TAYLOR
    while high - low > 1e-8:
        middle = (low + high) / 2
        above, below = predict_extremes(middle, power)
        low, high = (middle, high) if above > -below else (low, middle)
    return low


def verdict(result: Result) -> Verdict:
    x, gap = result.x, result.difference.abs()
    where, predicted = predict()
    spacing = 2 * result.setup.reach / (result.setup.n_points - 1)
    best = predict_constant(power=1)
    return Verdict(
        checks=(
            about(
                "largest difference",
                predicted,
                gap.max().item(),
                bound=spacing**2,
                near={"at most 0.00047": 0.00047, "the best constant": predict(best)[1]},
            ),
            about("at x", where, result.farthest, bound=spacing, near={"at 2.7": 2.7, "at e": math.e}),
            exact(
                "difference at -x against that at x",
                largest_difference(gap, gap.flip(0)),
                eps=64,
                near={"one point off": largest_difference(gap, gap.flip(0).roll(1))},
            ),
            exact(
                "the exact one against PyTorch's",
                largest_difference(result.exact, F.gelu(x)),
                eps=64,
                near={"its tanh": largest_difference(result.exact, F.gelu(x, approximate="tanh"))},
            ),
            exact(
                "the other one against PyTorch's",
                largest_difference(result.other, F.gelu(x, approximate="tanh")),
                eps=64,
                near={"without tanh": largest_difference(result.other, F.gelu(x))},
            ),
            about(
                "the constant that brings tanh nearest to erf",
                predict_constant(),
                result.best_for_erf,
                bound=STEP,
                near={"0.0447": 0.0447, "Taylor": OF_TAYLOR},
            ),
            about(
                "the constant that brings GELU nearest to GELU",
                best,
                result.best_for_gelu,
                bound=STEP,
                near={"0.044715, the one in use": IN_USE},
            ),
            about(
                "largest difference with that constant",
                predict(best)[1],
                result.with_best,
                bound=spacing**2 + STEP / 2,
                near={"as with the one in use": predicted},
            ),
        ),
        why="tanh with a cubic term follows the error function closely, and x / 2 cannot make much of what is left.",
    )


def figure(result: Result) -> Figure:
    x, few = result.x, slice(0, None, max(1, len(result.x) // 60))
    where, most = predict()
    drawing, (left, right) = panels(
        2, title=f"The two GELUs look the same, and differ by at most {math.ceil(1e6 * most) / 1e6:g}"
    )
    left.plot(x.numpy(), result.exact.numpy(), **PREDICTED | {"label": "exact", "linestyle": "-"})
    left.plot(x[few].numpy(), result.other[few].numpy(), **MEASURED | {"label": "with tanh", "markersize": 3.5})
    left.set(xlabel="x", ylabel="GELU", xlim=(-4, 4), ylim=(-0.5, 4))
    curve = [1e4 * predict_difference(point) for point in x.tolist()[:: max(1, len(x) // 2000)]]
    of_taylor = [1e4 * predict_difference(point, OF_TAYLOR) for point in x.tolist()[:: max(1, len(x) // 2000)]]
    some = x[:: max(1, len(x) // 2000)].numpy()
    right.plot(some, of_taylor, color="0.55", linewidth=1.2, label="a = 0.04554 (Taylor)")
    of_gelu = predict_constant(1)
    best = [1e4 * predict_difference(point, of_gelu) for point in some.tolist()]
    right.plot(some, best, color=COLOURS[0], linewidth=1.2, label="a = 0.04438 (best for GELU)")
    right.plot(some, curve, **PREDICTED | {"label": "predicted, a = 0.044715"})
    right.plot(x[few].numpy(), 1e4 * result.difference[few].numpy(), **MEASURED | {"markersize": 3.5})
    right.axvline(where, color="0.6", linewidth=0.8, zorder=0)
    right.axvline(-where, color="0.6", linewidth=0.8, zorder=0)
    right.set(xlabel="x", ylabel="exact - with tanh (1e-4)", ylim=(-15, 5))
    for ax in (left, right):
        ax.legend(frameon=False, loc="upper left" if ax is left else "lower center", fontsize=7)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="2(b)",
    setup=Setup(),
    small=Setup(n_points=20_001),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"x sigmoid(1.702 x) instead of tanh": {"other": "sigmoid"}},
    confidence="Within a bound by the spacing of the points, and of the constants that are tried.",
)
