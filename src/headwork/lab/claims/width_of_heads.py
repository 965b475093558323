r"""Heads of width D_o give a convolution the rank D_o at each kernel position: the Main Theorem needs D_o large enough.

With hard heads the layer is $\sum_h Z_{q + f(h)} W^{(h)} + b$ with $W^{(h)} = W_v^{(h)} W_{out}^{(h)}$, a product of a
$D_{in} \times D_o$ and a $D_o \times D_{out}$ matrix: its rank is at most $D_o$. The kernel of a convolution has any
$D_{in} \times D_{out}$ matrix at each position, of rank $\min(D_{in}, D_{out})$. So $D_o \ge \min(D_{in}, D_{out})$ is
needed, and it is enough.

For narrower heads the best is known (Eckart and Young): the first $D_o$ terms of the singular value decomposition of
each matrix. If the pixels are independent with the same variance, the share of the output that is left over is

$$\frac{\sum_\delta \sum_{i > D_o} s_i(W_\delta)^2}{\sum_\delta \sum_i s_i(W_\delta)^2}$$

Theorem 1 of the sheet asks for $D_o \ge D_{out}$, which is enough. The Main Theorem asks for nothing and promises all
$D_{out}$ channels; the paper it comes from (Cordonnier et al., 2020) promises $\min(D_o, D_{out})$.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headwork.lab.plots import MEASURED, PREDICTED, PRINTED, Figure, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, seeded
from headwork.layers import GaussianAttention

HARD = 60.0


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_images": 10}):
    """Random images, a random kernel, heads of several widths, and which terms of the kernel they get."""

    kernel: int = 3
    d_in: int = 6
    d_out: int = 5
    widths: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    n_images: int = 40
    image: int = 24
    terms: Literal["largest", "smallest"] = "largest"


@dataclass(frozen=True)
class Result:
    """The share of the convolution that heads of each width leave over, measured with its error, and predicted."""

    setup: Setup
    left_over: Float[Tensor, "width"]
    standard_error: Float[Tensor, "width"]
    predicted: Float[Tensor, "width"]
    one_less: Float[Tensor, "width"]
    """What heads one narrower, and one wider, would leave over."""
    one_more: Float[Tensor, "width"]


@seeded
def run(setup: Setup) -> Result:
    images = torch.randn(setup.n_images, setup.image, setup.image, setup.d_in, dtype=torch.float64)
    kernel = torch.randn(setup.d_out, setup.d_in, setup.kernel, setup.kernel, dtype=torch.float64)
    margin = setup.kernel // 2
    wanted = F.conv2d(images.movedim(-1, 1), kernel).movedim(1, -1)
    inside = slice(margin, setup.image - (setup.kernel - 1 - margin))
    u, s, v = torch.linalg.svd(rearrange(kernel, "out channel i j -> (i j) channel out"), full_matrices=False)
    if setup.terms == "smallest":
        u, s, v = u.flip(-1), s.flip(-1), v.flip(-2)
    shares, errors = [], []
    for width in setup.widths:
        with torch.no_grad():
            seen = _layer(setup, width, u[..., :width] * s[:, None, :width], v[:, :width])(images)[:, inside, inside]
        of_image = (seen - wanted).square().sum((1, 2, 3)) / wanted.square().sum((1, 2, 3)).mean()
        shares.append(of_image.mean())
        errors.append(of_image.std() / setup.n_images**0.5)
    ranks = [min(width, setup.d_in, setup.d_out) for width in setup.widths]
    predicted = (torch.stack([predict(kernel, rank + more) for rank in ranks]) for more in (0, -1, 1))
    return Result(setup, torch.stack(shares), torch.stack(errors), *predicted)


def predict(kernel: Float[Tensor, "out channel i j"], width: int) -> Tensor:
    """The share of the squared singular values beyond the first ones, over all positions of the kernel."""
    squares = torch.linalg.svdvals(kernel.permute(2, 3, 1, 0)).square()
    # heads cannot be wider than the matrix, and no head at all leaves everything
    return squares[..., min(max(width, 0), *kernel.shape[:2]) :].sum() / squares.sum()


def _layer(
    setup: Setup, width: int, of_values: Float[Tensor, "head d_in rank"], of_out: Float[Tensor, "head rank d_out"]
) -> GaussianAttention:
    """One hard head for each kernel position, with the two factors of its matrix; zeros fill what the rank leaves."""
    n_heads = setup.kernel**2
    layer = GaussianAttention(setup.d_in, n_heads, d_value=width, d_out=setup.d_out, bias=False).double()
    along = torch.arange(setup.kernel, dtype=torch.float64) - setup.kernel // 2
    layer.set_centres(torch.cartesian_prod(along, along), torch.full((n_heads,), HARD, dtype=torch.float64))
    missing = width - of_values.shape[-1]
    of_values, of_out = F.pad(of_values, (0, missing)), F.pad(of_out, (0, 0, 0, missing))
    with torch.no_grad():
        layer.get_parameter("value.weight").copy_(rearrange(of_values, "head d rank -> (head rank) d"))
        layer.out.weight.copy_(rearrange(of_out, "head rank d -> d (head rank)"))
    return layer


def verdict(result: Result) -> Verdict:
    setup = result.setup
    enough = min(setup.d_in, setup.d_out)
    rows = zip(
        setup.widths, result.predicted.tolist(), result.left_over.tolist(), result.standard_error.tolist(), strict=True
    )
    return Verdict(
        checks=tuple(
            about(
                f"share left over by heads of width {width}",
                expected,
                seen,
                sd=error if width < enough else None,
                near={"one rank less": result.one_less[row].item()}
                | ({"one rank more": result.one_more[row].item()} if width < enough else {}),
            )
            for row, (width, expected, seen, error) in enumerate(rows)
        ),
        why="A product of matrices has no more rank than the axis in the middle is wide.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="One head for each kernel position is not enough if the heads are too narrow")
    ax.axhline(0, **PRINTED)
    ax.plot(setup.widths, result.predicted.numpy(), **PREDICTED)
    ax.plot(setup.widths, result.left_over.numpy(), **MEASURED)
    enough = min(setup.d_in, setup.d_out)
    ax.axvline(enough, color="0.6", linewidth=0.8, zorder=0)
    ax.text(enough - 0.05, 0.3, "min(D_in, D_out)", ha="right")
    ax.set(xlabel="width of a head D_o", ylabel="share of the output left over", xticks=setup.widths)
    ax.legend(frameon=False)
    return drawing


def _narrow(result: Result) -> str:
    setup = result.setup
    return (
        f"{setup.kernel**2} heads of dimension {setup.widths[0]}, each with the best matrix of its rank, leave "
        f"{result.left_over[0]:.0%} of a convolution from {setup.d_in} to {setup.d_out} channels; "
        f"of dimension {setup.widths[-1]}, {result.left_over[-1]:.0e}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="ETH",
    question="Main Theorem",
    setup=Setup(),
    small=Setup(kernel=2, d_in=3, d_out=4, widths=(1, 2, 3, 5), n_images=20, image=16),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"the smallest terms of the kernel instead of the largest": {"terms": "smallest"}},
    confidence="Exact where heads are wide enough, otherwise within 5 standard deviations (SD), over images.",
    errata=(
        Erratum(
            where="Main Theorem",
            printed=r"heads of dimension $D_o$ can express any convolution with $D_{out}$ output channels",
            right=r"with $\min(D_o, D_{out})$ output channels, as in the paper; "
            r"or if $D_o \ge D_{out}$, as in Theorem 1",
            measured=_narrow,
        ),
    ),
)
