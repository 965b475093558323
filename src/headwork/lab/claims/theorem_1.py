r"""One head for each kernel position makes attention the convolution; for even kernels heads have to look at q + f(h).

Let head $h$ give all its weight to one key, $k = q + f(h)$, where $f$ runs over the shifts $\Delta_K$ of the kernel.
Then

$$\text{MultiHead}(Z)_q = \sum_h Z_{q + f(h)} W^{(h)} + b$$

and with $W^{(h)} = W_{f(h)}$ this is equation (8), $\sum_{\delta \in \Delta_K} Z_{q+\delta} W_\delta + b$, term by
term.

The sheet's equation (10) instead asks for $f(h) = q - k$: these heads look at $q - f(h)$, and what they see is
$-\Delta_K$. For odd $K$ that is $\Delta_K$ in another order, and $W^{(h)} = W_{-f(h)}$ proves the theorem. For even $K$
equation (9) is lopsided: of $-K/2, \dots, K/2 - 1$ in each direction, $-K/2$ has no partner. So $1 - ((K-1)/K)^2$ of
the kernel positions are seen by no head; if pixels are independent, no choice of $W^{(h)}$ gives that share of the
output.

Gaussian heads of sharpness $\alpha$ come as close as one likes: for pixels in $[-1, 1]$ the difference is at most
$\frac{8\epsilon}{1-\epsilon}|W|_1$ with $\epsilon = e^{-\alpha}$ and the largest sum $|W|_1$ of absolute weights of an
output. Past the border they pick the nearest pixel: this is the convolution with replicate padding.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwork.functional import gaussian_attention
from headwork.lab.plots import MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, at_most, exact, largest_difference, seeded

Looks = Literal["q + f(h)", "q - f(h)"]


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_images": 8}):
    """Random images and kernels of several sizes; hard heads, and softer ones that approach them."""

    kernels: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    n_images: int = 36
    image: int = 24
    channels: int = 2
    n_out: int = 3
    alphas: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0)
    hard: float = 60.0
    looks_at: Looks = "q + f(h)"


@dataclass(frozen=True)
class Result:
    """Attention against convolution, by kernel size: hard heads, soft heads, and what the best of all W^(h) leaves."""

    setup: Setup
    difference: Float[Tensor, "kernel"]
    soft_difference: Float[Tensor, "kernel alpha"]
    bound: Float[Tensor, "kernel alpha"]
    unexplained: dict[Looks, Float[Tensor, "kernel"]]
    """The share of the output that the best of all W^(h) leaves, by where the heads look."""
    unexplained_sd: Float[Tensor, "kernel"]
    """Its standard deviation for heads at q - f(h), from the spread of the images."""
    without_one: float
    """How far attention is from the largest convolution if one head has no matrix; and with W_out = 0."""
    without_out: float


@seeded
def run(setup: Setup) -> Result:
    images = 2 * torch.rand(setup.n_images, setup.image, setup.image, setup.channels, dtype=torch.float64) - 1
    difference, soft, bounds = [], [], []
    unexplained: dict[Looks, list[float]] = {"q + f(h)": [], "q - f(h)": []}
    spread: list[float] = []
    for size in setup.kernels:
        signs = torch.randint(2, (setup.n_out, setup.channels, size, size)).double() * 2 - 1
        weight = signs / size
        convolved = _convolve(images, weight)
        difference.append(largest_difference(_attend(images, weight, setup.hard, setup.looks_at), convolved))
        sharper = [_attend(images[:2], weight, alpha, setup.looks_at) for alpha in setup.alphas]
        soft.append([largest_difference(attended, convolved[:2]) for attended in sharper])
        epsilon = torch.tensor(setup.alphas).double().neg().exp()
        bounds.append(8 * epsilon / (1 - epsilon) * weight.abs().sum((1, 2, 3)).max())
        for looks, shares in unexplained.items():
            share, sd = _unexplained(_see(images, size, setup.hard, looks), convolved, margin=size // 2)
            shares.append(share)
        spread.append(sd)
    fewer = weight.clone()
    fewer[..., 0, 0] = 0
    return Result(
        setup,
        torch.tensor(difference),
        torch.tensor(soft),
        torch.stack(bounds),
        {looks: torch.tensor(shares, dtype=torch.float64) for looks, shares in unexplained.items()},
        torch.tensor(spread, dtype=torch.float64),
        largest_difference(_attend(images, fewer, setup.hard, setup.looks_at), convolved),
        largest_difference(_attend(images, 0 * weight, setup.hard, setup.looks_at), convolved),
    )


def _shifts(size: int) -> Int[Tensor, "head 2"]:
    """Equation (9), in the order of the kernel."""
    along = torch.arange(-(size // 2), (size - 1) // 2 + 1)
    return torch.cartesian_prod(along, along)


def _convolve(
    images: Float[Tensor, "image row column channel"], weight: Float[Tensor, "out channel i j"]
) -> Float[Tensor, "image row column out"]:
    """PyTorch's convolution, with the border repeated as far as the kernel reaches."""
    before, after = weight.shape[-1] // 2, (weight.shape[-1] - 1) // 2
    padded = F.pad(images.movedim(-1, 1), (before, after, before, after), mode="replicate")
    return F.conv2d(padded, weight).movedim(1, -1)


def _see(
    images: Float[Tensor, "image row column channel"], size: int, alpha: float, looks: Looks
) -> Float[Tensor, "image head row column channel"]:
    """What each head sees from each pixel."""
    centre = _centres(size, looks).double()
    return gaussian_attention(images, centre, torch.full((len(centre),), alpha, dtype=torch.float64))


def _centres(size: int, looks: Looks) -> Int[Tensor, "head 2"]:
    return _shifts(size) if looks == "q + f(h)" else -_shifts(size)


def _attend(
    images: Float[Tensor, "image row column channel"],
    weight: Float[Tensor, "out channel i j"],
    alpha: float,
    looks: Looks,
) -> Float[Tensor, "image row column out"]:
    """Each head has the matrix that the kernel has at the offset where the head looks, or none if there is none."""
    size = weight.shape[-1]
    is_there = (_centres(size, looks)[:, None] == _shifts(size)).all(-1).double()
    matrices = is_there @ rearrange(weight, "out channel i j -> (i j) (channel out)")
    matrices = rearrange(matrices, "head (channel out) -> head channel out", out=len(weight))
    heads = _see(images, size, alpha, looks)
    return einsum(heads, matrices, "image head row column channel, head channel out -> image row column out")


def _unexplained(
    heads: Float[Tensor, "image head row column channel"], wanted: Float[Tensor, "image row column out"], margin: int
) -> tuple[float, float]:
    """Least squares over every W^(h), and its SD; the border is left out, where two heads see the same."""
    inside = slice(margin, heads.shape[2] - margin)
    seen = rearrange(heads[:, :, inside, inside], "image head i j channel -> (image i j) (head channel)")
    target = rearrange(wanted[:, inside, inside], "image i j out -> (image i j) out")
    left = (target - seen @ torch.linalg.lstsq(seen, target).solution).square().sum(-1)
    of_image = (t.reshape(len(heads), -1).sum(-1) for t in (left, target.square().sum(-1)))
    over, under = of_image
    share = over.sum() / under.sum()
    return share.item(), ((over - share * under).std() / under.mean() / len(heads) ** 0.5).item()


def predict_share(size: int) -> float:
    return 0.0 if size % 2 else 1 - ((size - 1) / size) ** 2


def verdict(result: Result) -> Verdict:
    setup = result.setup
    shares = zip(setup.kernels, result.unexplained["q - f(h)"].tolist(), result.unexplained_sd.tolist(), strict=True)
    of_bound = (result.soft_difference / result.bound).max().item()
    return Verdict(
        checks=(
            exact(
                "attention against convolution, every pixel and kernel",
                result.difference.max().item(),
                near={"without the first head": result.without_one},
            ),
            at_most(
                "difference of softer heads, as a share of its bound", 1, of_bound, near={"half of the bound": 0.5}
            ),
            exact(
                "left unexplained by heads at q + f(h), every kernel",
                result.unexplained["q + f(h)"].max().item(),
                near={"heads at q - f(h)": result.unexplained["q - f(h)"].max().item()},
            ),
            *(
                exact(
                    f"left unexplained by heads at q - f(h), K = {size}",
                    share,
                    near={"one of K^2 positions": abs(share - 1 / size**2)},
                )
                if size % 2
                else about(
                    f"left unexplained by heads at q - f(h), K = {size}",
                    predict_share(size),
                    share,
                    sd=sd,
                    near={"along one axis only: 1/K": 1 / size, "both axes, no corner twice": (2 * size) / size**2},
                )
                for size, share, sd in shares
            ),
        ),
        why="A head that looks at q + f(h) is one term of the convolution, whatever the size of the kernel.",
    )


def figure(result: Result) -> Figure:
    setup, largest = result.setup, result.setup.kernels[-1]
    title = "Attention is convolution if head h looks at q + f(h); q - f(h) fails for even kernels"
    drawing, (left, right) = panels(2, title=title)
    predicted = [predict_share(size) for size in setup.kernels]
    style = PREDICTED | {"linestyle": "none", "marker": "_", "markersize": 16, "label": "predicted, q - f(h)"}
    left.plot(setup.kernels, predicted, **style)
    left.axhline(0, color="0.6", linewidth=0.8)
    for (looks, shares), marker in zip(result.unexplained.items(), ("s", "o"), strict=True):
        beside = [size + (0.1 if marker == "s" else -0.1) for size in setup.kernels]  # no marker hides another
        left.plot(beside, shares.numpy(), **MEASURED | series(marker) | {"label": f"measured, {looks}"})
    left.set(
        xlabel="kernel size K", ylabel="share of the output that no W gives", ylim=(-0.05, 1), xticks=setup.kernels
    )
    right.semilogy(setup.alphas, result.bound[-1].numpy(), **PREDICTED | {"label": "predicted: at most"})
    right.semilogy(setup.alphas, result.soft_difference[-1].numpy(), **MEASURED | {"label": f"measured, K = {largest}"})
    right.set(xlabel="alpha", ylabel="largest difference at any pixel")
    for ax in (left, right):
        ax.legend(frameon=False, loc="upper right")
    return drawing


def _even_kernels(result: Result) -> str:
    even = [row for row, size in enumerate(result.setup.kernels) if size % 2 == 0]
    shares = ", ".join(
        f"{result.unexplained['q - f(h)'][row].item():.0%} for K = {result.setup.kernels[row]}" for row in even
    )
    best = max(result.unexplained["q + f(h)"][row].item() for row in even)
    return (
        f"The best of all W^(h) leaves {shares} of the output of a convolution unexplained; "
        f"with heads at k = q + f(h) it leaves {best:.0e}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="1(c.2)",
    also=("ETH (8), (9)",),
    setup=Setup(),
    small=Setup(kernels=(1, 2, 3), n_images=11, image=16, channels=1, n_out=2, alphas=(1.0, 20.0)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "heads that look at q - f(h), as printed": {"looks_at": "q - f(h)"},
        "heads that are not sharp": {"hard": 2.0},
    },
    confidence="The equality is exact up to rounding; the shares for even kernels are within 5 standard deviations "
    "(SD), "
    "from the spread of the images; the bound of softer heads holds always.",
    errata=(
        Erratum(
            where="Theorem 1, equation (10) together with (8) and (9)",
            printed=r"$f(h) = q - k$, with $f$ onto $\Delta_K$",
            right=r"$f(h) = k - q$, since (8) reads pixel $p + \delta$; "
            r"as printed, the theorem holds for odd $K$ only, where $-\Delta_K = \Delta_K$",
            measured=_even_kernels,
        ),
        Erratum(
            where="Theorem 1, what exists",
            printed=r"exists a corresponding $\{W_v^{(h)}\}$",
            right=r"exist $\{W_v^{(h)}\}$, $W_{out}$ and $b_{out}$: with a given $W_{out}$ whose blocks do not have "
            r"full "
            r"rank, say $W_{out} = 0$, no $W_v$ gives the convolution",
            measured=lambda result: (
                f"With W_out = 0 the layer misses a convolution of size {result.setup.kernels[-1]} by up to "
                f"{result.without_out:.2g}, whatever W_v is; with both chosen by {result.difference[-1].item():.0e}."
            ),
        ),
    ),
)
