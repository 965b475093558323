r"""A text moved as a whole gives the same outputs with relative position codes, and others with absolute ones.

Put $s$ hidden tokens before a text, so that every position grows by $s$. A relative code enters the scores through
$i - j$ alone, as a bias $b_{i-j}$ (ALiBi, T5), as $q_i^\top r_{i-j}$ (Transformer-XL), or as a rotation of queries and
keys, $(R_i q_i)^\top (R_j k_j) = q_i^\top R_{j-i} k_j$ (rotary). Nothing changes with $s$. An absolute code is added to
the token, $x_i + p_i$, and the score

$$(x_i + p_i)^\top M (x_j + p_j) = x_i^\top M x_j + x_i^\top M p_j + p_i^\top M x_j + p_i^\top M p_j$$

changes in its last three terms. Sinusoids have a relative side: $p_i^\top p_j = \sum_m \cos(\omega_m (i - j))$ knows
the shift alone. But that is one term of four, and only for $M = I$.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork import choices
from headwork.functional import sinusoidal_positions
from headwork.lab.plots import FLOOR, MARKERS, MEASURED, Figure, draw_rounding, on_log_axis, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, exact, largest_difference, seeded
from headwork.layers import EncoderLayer
from headwork.layers.positions import make_positions

SINGLE_PRECISION = 1e-5
"""The sinusoids of the library are computed in single precision, from angles up to the number of positions."""

Code = Literal["learned", "sinusoidal", "rotary", "alibi", "buckets", "relative"]
ABSOLUTE: tuple[Code, ...] = ("learned", "sinusoidal")
RELATIVE: tuple[Code, ...] = ("rotary", "alibi", "buckets", "relative")


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A text, moved by several shifts, and one encoder layer for each position code."""

    n_tokens: int = 11
    d_model: int = 32
    n_heads: int = 4
    shifts: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    code: Code = "rotary"
    """That is expected to ignore shifts."""


@dataclass(frozen=True)
class Result:
    """For each code and shift, how far the outputs of the moved text are from those of the text."""

    setup: Setup
    difference: dict[Code, Float[Tensor, "shift"]]
    gram: float
    """How far the products of sinusoids are from the sum of cosines of the shift; and from one of base 10,100."""
    gram_of_other_base: float


@seeded
def run(setup: Setup) -> Result:
    x = torch.randn(1, setup.n_tokens, setup.d_model, dtype=torch.float64)
    difference = {}
    for code in (*ABSOLUTE, *RELATIVE):
        read = _Reader(setup, code)
        at_home = read(x, 0)
        difference[code] = torch.tensor([largest_difference(read(x, shift), at_home) for shift in setup.shifts])
    return Result(setup, difference, _gram_error(setup, 10_000.0), _gram_error(setup, 10_100.0))


def _choice(setup: Setup, code: Code) -> choices.TextPositions:
    match code:
        case "learned":
            return choices.LearnedPositions(max_tokens=setup.n_tokens + max(setup.shifts))
        case "sinusoidal":
            return choices.SinusoidalPositions()
        case "rotary":
            return choices.RotaryPositions()
        case "alibi":
            return choices.AlibiPositions()
        case "buckets":
            return choices.BucketPositions()
        case "relative":
            return choices.RelativePositions()


class _Reader:
    """A layer with its positions, which reads a text behind hidden tokens."""

    def __init__(self, setup: Setup, code: Code) -> None:
        choice = _choice(setup, code)
        self.layer = EncoderLayer(
            setup.d_model,
            heads=choices.Heads(n_heads=setup.n_heads),
            feed_forward=choices.FeedForward(d_ff=2 * setup.d_model),
            norm_order="pre",
            position=choice,
        ).double()
        self.positions = make_positions(
            choice,
            d_model=setup.d_model,
            n_heads=setup.n_heads,
            d_head=setup.d_model // setup.n_heads,
            bidirectional=True,
        ).double()
        for table in self.positions.parameters():
            torch.nn.init.normal_(table)

    @torch.no_grad()
    def __call__(self, x: Float[Tensor, "1 token d"], shift: int) -> Float[Tensor, "1 token d"]:
        """The outputs of the text when `shift` hidden tokens stand before it."""
        x = torch.cat([torch.randn(1, shift, x.shape[-1], dtype=x.dtype), x], dim=1)
        n = x.shape[1]
        positions = torch.arange(n)[None]
        vectors = self.positions.vectors(positions, n)
        x = x if vectors is None else x + vectors
        visible = (torch.arange(n) >= shift)[None].expand(n, n)
        out: Tensor = self.layer(
            x, visible, bias=self.positions.bias(x, n), rotation=self.positions.rotation(positions)
        )
        return (out if vectors is None else out - vectors)[:, shift:]


def _gram_error(setup: Setup, base: float) -> float:
    """The largest error of p_i . p_j = sum of cos(omega (i - j)), as a share of its largest value d / 2."""
    n, d = setup.n_tokens + max(setup.shifts), setup.d_model
    p = sinusoidal_positions(n, d).double()
    omega = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    apart = torch.arange(n)[:, None] - torch.arange(n)
    return largest_difference(p @ p.mT, (apart[..., None] * omega).cos().sum(-1)) / (d / 2)


def verdict(result: Result) -> Verdict:
    code = result.setup.code
    near = {f"an absolute code, {name}, too": result.difference[name].min().item() for name in ABSOLUTE}
    return Verdict(
        checks=(
            *(
                exact(f"moved text against the text, {other}", result.difference[other].max().item(), near=near)
                for other in (code, *(other for other in RELATIVE if other != code))
            ),
            about(
                "products of sinusoids against the sum of cosines",
                0,
                result.gram,
                bound=SINGLE_PRECISION,
                near={"a base of 10,100": about("", 0, result.gram_of_other_base, bound=SINGLE_PRECISION)},
            ),
        ),
        why="A relative code knows the distance of two tokens, and a move of the whole text keeps all distances.",
    )


def figure(result: Result) -> Figure:
    title = "Moving a text changes nothing for relative codes, and everything for absolute ones"
    drawing, (ax,) = panels(title=title)
    shifts = result.setup.shifts
    for index, (code, marker) in enumerate(zip(result.difference, MARKERS, strict=False)):
        beside = torch.tensor(shifts) * 1.05 ** (index - 3)  # so that no marker hides another
        kind = "absolute" if code in ABSOLUTE else "relative"
        fill = "0.6" if kind == "absolute" else "white"
        style = MEASURED | series(marker) | {"markerfacecolor": fill, "label": f"measured, {code} ({kind})"}
        ax.loglog(beside.numpy(), on_log_axis(result.difference[code]), **style)
    draw_rounding(ax, "predicted for relative codes: below")
    ax.set(xlabel="positions by which the text is moved", ylabel="largest change of an output", ylim=(FLOOR, 1e2))
    ax.set_xticks(shifts, [str(shift) for shift in shifts])
    ax.minorticks_off()
    ax.legend(frameon=False, loc="center", bbox_to_anchor=(0.5, 0.57), ncols=2)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.3(b)",
    setup=Setup(),
    small=Setup(n_tokens=5, d_model=8, n_heads=2, shifts=(1, 7)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "sinusoids, an absolute code": {"code": "sinusoidal"},
        "a learned code for each position": {"code": "learned"},
    },
    confidence="Exact up to rounding; the sinusoids within a bound for single precision.",
)
