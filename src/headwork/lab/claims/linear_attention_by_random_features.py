r"""Positive random features make the softmax kernel linear; their relative variance is (e^(|q+k|^2) - 1)/m.

For $w \sim N(0, I)$ and $\phi_w(x) = e^{w \cdot x - |x|^2/2}$ the mean of $\phi_w(q)\,\phi_w(k)$ is $e^{q \cdot k}$,
since $\mathbb E\,e^{w \cdot u} = e^{|u|^2/2}$. So $m$ features replace the $n \times n$ table by two products,
$\phi(Q)\,(\phi(K)^\top V)$. These take $4nmd$ FLOPs, and making the features $4nmd$ more, instead of $4n^2d$: it pays
from $n = 2m$ tokens on. What does it cost in accuracy? The second moment
is $\mathbb E\,e^{2 w \cdot (q+k) - |q|^2 - |k|^2} = e^{2|q+k|^2 - |q|^2 - |k|^2}$, so relative to the kernel itself

$$\frac{\operatorname{Var}}{e^{2 q \cdot k}} = \frac{e^{|q+k|^2} - 1}{m}$$

Sines and cosines have the same mean, $e^{(|q|^2+|k|^2)/2}\cos(w \cdot (q - k))$, and the relative variance

$$\frac{\cosh|q-k|^2 - 1}{m}$$

The one is exact for $k = -q$, where the kernel is smallest, the other for $k = q$, where it is largest. But most keys
are *not* the one that a query looks for: their kernels are small, a sum of sines is then mostly noise, and it can be
negative.

It stops being true when queries and keys are long: at $|q + k|^2 = 10$ a relative error of 0.1 takes two million
features.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from headwork.functional import attention_scores, softargmax
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, same, seeded

Kind = Literal["positive", "sines"]
ANGLES = (0, 45, 90, 135, 180)
"""Between query and key, in degrees."""
CHUNK = 2_000


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A query and a key of one length and several angles, numbers of features, and a text to attend to."""

    d: int = 8
    length: float = 0.5
    n_features: tuple[int, ...] = (16, 64, 256)
    n_draws: int = 20_000
    n_tokens: int = 1_024
    normalised: bool = True
    """Whether the features have their factor e^(-|x|^2 / 2)."""


@dataclass(frozen=True)
class Result:
    """Relative variances with their standard errors: by number of features, and by angle for the fewest; and FLOPs."""

    setup: Setup
    variance: Float[Tensor, "features 2"]
    by_angle: dict[Kind, Float[Tensor, "angle 2"]]
    mean: Float[Tensor, "2"]
    """Of the estimate, over the kernel."""
    flops: dict[str, int]


@seeded
def run(setup: Setup) -> Result:
    kinds: tuple[Kind, ...] = ("positive", "sines")
    right = [_estimates(setup, "positive", 90, m) for m in setup.n_features]
    fewest = setup.n_features[0]
    angles: dict[Kind, Tensor] = {
        kind: torch.stack([_spread(_estimates(setup, kind, angle, fewest)) for angle in ANGLES]) for kind in kinds
    }
    most = right[-1]
    return Result(
        setup,
        torch.stack([_spread(seen) for seen in right]),
        angles,
        torch.stack([most.mean(), most.std() / len(most) ** 0.5]),
        _flops(setup),
    )


def _pair(setup: Setup, angle: float) -> tuple[Float[Tensor, "d"], Float[Tensor, "d"]]:
    q, k = torch.zeros(2, setup.d, dtype=torch.float64)
    q[0] = setup.length
    k[:2] = setup.length * torch.tensor([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
    return q, k


def _features(
    setup: Setup, kind: Kind, x: Float[Tensor, "token d"], w: Float[Tensor, "draw feature d"]
) -> Float[Tensor, "draw token _"]:
    along, square = x @ w.mT, x.square().sum(-1, keepdim=True) / 2
    if kind == "positive":
        return (along - square if setup.normalised else along).exp() / w.shape[1] ** 0.5
    return torch.cat([along.cos(), along.sin()], -1) * square.exp() / w.shape[1] ** 0.5


def _estimates(setup: Setup, kind: Kind, angle: float, m: int) -> Float[Tensor, "draw"]:
    """phi(q) . phi(k), relative to the kernel that the library's scores have, for many draws of the features."""
    q, k = _pair(setup, angle)
    kernel = attention_scores(q[None], k[None]).exp()[0, 0]
    draws = []
    for start in range(0, setup.n_draws, CHUNK):
        w = torch.randn(min(CHUNK, setup.n_draws - start), m, setup.d, dtype=torch.float64)
        draws.append((_features(setup, kind, q[None], w) * _features(setup, kind, k[None], w)).sum((-2, -1)) / kernel)
    return torch.cat(draws)


def _spread(seen: Float[Tensor, "draw"]) -> Float[Tensor, "2"]:
    """The variance about 1, which is the right value, and its standard error."""
    square = (seen - 1).square()
    return torch.stack([square.mean(), square.std() / len(square) ** 0.5])


def _flops(setup: Setup) -> dict[str, int]:
    """PyTorch's own count, on tensors without numbers."""
    n, d, m = setup.n_tokens, setup.d, setup.n_features[-1]
    q, k, v = (torch.empty(n, d, device="meta") for _ in range(3))
    w = torch.empty(1, m, d, device="meta")
    found = {}
    with FlopCounterMode(display=False) as counter:
        softargmax(attention_scores(q, k)) @ v
    found["table"] = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        phi_q, phi_k = (_features(setup, "positive", x, w) for x in (q, k))
        phi_q @ (phi_k.mT @ v)
    found["features"] = counter.get_total_flops()
    return found


def predict_variance(kind: Kind, setup: Setup, angle: float) -> float:
    """Relative, of one feature."""
    cosine = math.cos(math.radians(angle))
    if kind == "positive":
        return math.exp(2 * setup.length**2 * (1 + cosine)) - 1
    return math.cosh(2 * setup.length**2 * (1 - cosine)) - 1


def verdict(result: Result) -> Verdict:
    setup, fewest = result.setup, result.setup.n_features[0]
    square = 2 * setup.length**2  # |q + k|^2 at a right angle
    by_features = [
        about(
            f"relative variance, {m} features",
            predict_variance("positive", setup, 90) / m,
            seen,
            sd=error,
            near={"|q + k|^2 / m, its first term": square / m, "e^(|q+k|^2) / m": math.exp(square) / m},
        )
        for m, (seen, error) in zip(setup.n_features, result.variance.tolist(), strict=True)
    ]
    by_angle = []
    for kind, seen in result.by_angle.items():
        for angle, (variance, error) in zip(ANGLES, seen.tolist(), strict=True):
            expected = predict_variance(kind, setup, angle) / fewest
            if 1e-12 < expected * fewest < 1.2 and angle != 90:  # beyond, the variance of the variance is too large
                other = predict_variance(kind, setup, 180 - angle) / fewest
                near = {"the other sign of k": other, "half the features": 2 * expected}
                by_angle.append(
                    about(f"relative variance at {angle} degrees, {kind}", expected, variance, sd=error, near=near)
                )
    n, d, m = setup.n_tokens, setup.d, setup.n_features[-1]
    return Verdict(
        checks=(
            *by_features,
            *by_angle,
            about(
                f"mean over the kernel, {m} features",
                1,
                result.mean[0].item(),
                sd=result.mean[1].item(),
                near={"without e^(-|x|^2 / 2)": math.exp(setup.length**2)},
            ),
            same("FLOPs of the table", 4 * n * n * d, result.flops["table"], near={"half of it": 2 * n * n * d}),
            same(
                "FLOPs of the features, which have to be made first",
                8 * n * m * d,
                result.flops["features"],
                near={"given the features": 4 * n * m * d, "m^2 d": 8 * m * m * d},
            ),
        ),
        why="A sum of independent features has the mean of one and 1/m of its variance.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(
        2, title="Positive features are sure where the kernel is small, sines where it is large"
    )
    m = torch.tensor(setup.n_features)
    left.loglog(m.numpy(), (predict_variance("positive", setup, 90) / m).numpy(), **PREDICTED)
    left.loglog(
        m.numpy(), result.variance[:, 0].numpy(), **MEASURED | {"color": COLOURS[0], "label": "measured, positive"}
    )
    top = 2 * result.variance.max().item()
    left.set(xlabel="features m", ylabel="relative variance", ylim=(top / 100, top))
    left.set_xticks(setup.n_features, [str(n) for n in setup.n_features])
    left.minorticks_off()
    left.legend(frameon=False, loc="lower left")
    fine = torch.linspace(0, 180, 100).tolist()
    for (kind, seen), marker, colour in zip(result.by_angle.items(), MARKERS, COLOURS, strict=False):
        label = "predicted" if kind == "positive" else ""
        curve = [predict_variance(kind, setup, angle) / setup.n_features[0] for angle in fine]
        right.plot(fine, curve, **PREDICTED | {"label": label, "color": colour})
        right.plot(
            ANGLES, seen[:, 0].numpy(), **MEASURED | {"marker": marker, "color": colour, "label": f"measured, {kind}"}
        )
    right.set(
        xlabel="angle between q and k (degrees)", xticks=ANGLES, ylabel=f"relative variance, m = {setup.n_features[0]}"
    )
    right.legend(frameon=False, loc="upper center")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="Katharopoulos et al. 2020, Transformers are RNNs (arXiv:2006.16236); Choromanski et al. 2021, "
    "Rethinking attention "
    "with Performers (arXiv:2009.14794)",
    setup=Setup(),
    small=Setup(n_features=(4,), n_draws=16_000),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"features without e^(-|x|^2 / 2)": {"normalised": False}},
    confidence="The tolerance is 5 standard deviations (SD) of the mean over the draws; FLOPs are counted.",
)
