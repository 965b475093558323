r"""Layer norm lets an output depend on its row (its own vector), batch norm on its column (one feature of the batch).

For $X \in \mathbb{R}^{B \times D}$, layer norm takes mean and variance over the $D$ features of each row $i$,
$z_{ij} = (x_{ij} - \mu_i)/\sigma_i$. Its derivative, with $\epsilon$ left out, is

$$\frac{\partial z_{ij}}{\partial x_{i'j'}} = \frac{\delta_{ii'}}{\sigma_i}
\left(\delta_{jj'} - \frac1D - \frac{z_{ij}\,z_{ij'}}{D}\right)$$

Zero for another row, and in general not zero within the row: $y_{ij}$ depends on (i) $x_{ij}$ and (iii) $x_{ij'}$.
Batch norm is the same for $X^\top$, in training, where it takes mean and variance over the $B$ rows of each column $j$:

$$\frac{\partial z_{ij}}{\partial x_{i'j'}} = \frac{\delta_{jj'}}{\sigma_j}
\left(\delta_{ii'} - \frac1B - \frac{z_{ij}\,z_{i'j}}{B}\right)$$

so $y_{ij}$ depends on (i) $x_{ij}$ and (ii) $x_{i'j}$. (At inference batch norm uses the statistics it has kept from
training: then on (i) alone.) Neither looks at (iv), another row *and* another column. A sentence next to others in a
batch is therefore safe with layer norm, and not with batch norm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwork.functional import batch_norm, layer_norm, rms_norm
from headwork.lab.plots import Axes, Figure, outline, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, same, seeded
from headwork.layers import LayerNorm

Norm = Literal["layer norm", "batch norm", "rms norm"]
NORMS: dict[Norm, Callable[[Tensor], Tensor]] = {
    "layer norm": lambda x: layer_norm(x, eps=0.0),
    "batch norm": lambda x: batch_norm(x, eps=0.0),
    "rms norm": lambda x: rms_norm(x, eps=0.0),
}
KINDS = ("(i) itself", "(ii) same column", "(iii) same row", "(iv) neither")


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A batch of vectors; which norm is taken for which."""

    n_rows: int = 4
    n_columns: int = 5
    over_rows: Norm = "layer norm"
    over_columns: Norm = "batch norm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.n_rows, self.n_columns) < 3:  # of two numbers a norm keeps the sign alone: its derivative is 0
            raise ValueError(f"n_rows and n_columns must be 3 or more, got {self.n_rows} and {self.n_columns}")


@dataclass(frozen=True)
class Result:
    """The derivatives of all outputs by all inputs, measured and predicted, of layer norm and of batch norm."""

    setup: Setup
    layer: Float[Tensor, "row column in_row in_column"]
    layer_predicted: Float[Tensor, "row column in_row in_column"]
    batch: Float[Tensor, "row column in_row in_column"]
    batch_predicted: Float[Tensor, "row column in_row in_column"]
    module: float
    """How far the module LayerNorm is from the equation."""
    at_inference: int
    """How many pairs of an output and an input depend on each other in batch norm with running statistics."""


@seeded
def run(setup: Setup) -> Result:
    x = torch.randn(setup.n_rows, setup.n_columns, dtype=torch.float64)
    of_transposed = rearrange(predict(x.T), "column row in_column in_row -> row column in_row in_column")
    module = LayerNorm(setup.n_columns, eps=0.0).double()
    return Result(
        setup,
        _jacobian(NORMS[setup.over_rows], x),
        predict(x),
        _jacobian(NORMS[setup.over_columns], x),
        of_transposed,
        largest_difference(_jacobian(module, x), _jacobian(NORMS["layer norm"], x)),
        int(_jacobian(nn.BatchNorm1d(setup.n_columns).double().eval(), x).ne(0).sum()),
    )


def _jacobian(norm: Callable[[Tensor], Tensor], x: Tensor) -> Float[Tensor, "row column in_row in_column"]:
    jacobian: Tensor = torch.autograd.functional.jacobian(norm, x, vectorize=True)  # type: ignore[no-untyped-call]
    return jacobian


def predict(x: Float[Tensor, "row column"]) -> Float[Tensor, "row column row column"]:
    """The formula above, entry by entry."""
    n_rows, d = x.shape
    predicted = torch.zeros(n_rows, d, n_rows, d, dtype=x.dtype)
    for i, row in enumerate(x):
        sigma = row.std(unbiased=False)
        z = (row - row.mean()) / sigma
        predicted[i, :, i, :] = (torch.eye(d, dtype=x.dtype) - 1 / d - torch.outer(z, z) / d) / sigma
    return predicted


def _count(jacobian: Float[Tensor, "row column in_row in_column"]) -> dict[str, int]:
    """How many pairs of an output and an input depend on each other, for each of the four kinds of pairs."""
    n_rows, n_columns = jacobian.shape[:2]
    row = torch.eye(n_rows, dtype=torch.bool)[:, None, :, None]
    column = torch.eye(n_columns, dtype=torch.bool)[None, :, None, :]
    kinds = (row & column, ~row & column, row & ~column, ~row & ~column)
    return {kind: int((jacobian.ne(0) & pairs).sum()) for kind, pairs in zip(KINDS, kinds, strict=True)}


def predict_counts(setup: Setup, over: Literal["row", "column"]) -> dict[str, int]:
    n = setup.n_rows * setup.n_columns
    columns, rows = n * (setup.n_rows - 1), n * (setup.n_columns - 1)
    return dict(zip(KINDS, (n, 0, rows, 0) if over == "row" else (n, columns, 0, 0), strict=True))


def verdict(result: Result) -> Verdict:
    setup, layer, batch = result.setup, _count(result.layer), _count(result.batch)
    n = setup.n_rows * setup.n_columns
    return Verdict(
        checks=(
            *(
                same(f"layer norm, pairs that depend: {kind}", wanted, layer[kind], near={"one more each": wanted + n})
                for kind, wanted in predict_counts(setup, "row").items()
            ),
            *(
                same(f"batch norm, pairs that depend: {kind}", wanted, batch[kind], near={"one more each": wanted + n})
                for kind, wanted in predict_counts(setup, "column").items()
            ),
            exact(
                "derivative of layer norm against the formula",
                largest_difference(result.layer, result.layer_predicted),
                eps=2**18,
                near={
                    "d - 1 instead of d": largest_difference(
                        result.layer, result.layer_predicted * (1 - 1 / setup.n_columns) ** 0.5
                    ),
                    "the formula of batch norm": largest_difference(result.layer, result.batch_predicted),
                },
            ),
            exact(
                "derivative of batch norm against the formula",
                largest_difference(result.batch, result.batch_predicted),
                eps=2**18,
                near={"the formula of layer norm": largest_difference(result.batch, result.layer_predicted)},
            ),
            exact(
                "the module against the equation",
                result.module,
                eps=2**18,
                near={"the equation of batch norm": largest_difference(result.layer, result.batch)},
            ),
            same(
                "batch norm at inference, pairs that depend",
                n,
                result.at_inference,
                near={"as in training": n * setup.n_rows},
            ),
        ),
        why="An output knows only the numbers that its mean and variance are taken of.",
    )


def figure(result: Result) -> Figure:
    drawing, axes = panels(2, height=3.9, title="Layer norm looks along the row, batch norm along the column")
    names = ("layer norm: its own vector", "batch norm: its own feature")
    tables = ((result.layer, result.layer_predicted), (result.batch, result.batch_predicted))
    for ax, name, (measured, predicted) in zip(axes, names, tables, strict=True):
        _draw(ax, measured, predicted.ne(0))
        ax.set_title(name)
    return drawing


def _draw(ax: Axes, jacobian: Tensor, predicted: Bool[Tensor, "row column in_row in_column"]) -> None:
    flat = "row column in_row in_column -> (row column) (in_row in_column)"
    n_rows, n_columns = jacobian.shape[:2]
    ax.imshow(rearrange(jacobian.ne(0).double(), flat).numpy(), cmap="Greys", vmin=0, vmax=2)
    outline(ax, rearrange(predicted, flat))
    middle = [n_columns * i + (n_columns - 1) / 2 for i in range(n_rows)]
    words = [f"row {i}" for i in range(n_rows)]
    ax.set_xticks(middle, words)
    ax.set_yticks(middle, words, rotation=90, va="center")
    ax.tick_params(length=0)
    ax.set(xlabel="input (grey: measured influence)", ylabel="output (frames: predicted)")


def _entries(result: Result) -> str:
    counts = _count(result.layer)
    n = result.setup.n_rows * result.setup.n_columns
    return (
        f"An output of layer norm depends on {(counts['(i) itself'] + counts['(iii) same row']) // n} entries, "
        f"all {result.setup.n_columns} of its row; elementwise it would be 1."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="EECS 182",
    question="3(a)",
    setup=Setup(),
    small=Setup(n_rows=3, n_columns=4),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "batch norm taken for layer norm": {"over_rows": "batch norm"},
        "layer norm taken for batch norm": {"over_columns": "layer norm"},
        "RMS norm, the same pattern with another derivative": {"over_rows": "rms norm"},
    },
    confidence="The pattern is exact, zeros are exactly 0; derivatives agree up to rounding.",
    errata=(
        Erratum(
            where="3(a), solution",
            printed="Layer normalization is elementwise, meaning it is applied independently to each input vector",
            right="vector by vector: elementwise would mean that an output depends on (i) alone, "
            "and the answer, (i) and (iii), says otherwise",
            measured=_entries,
        ),
        Erratum(
            where="3(a), batch normalization",
            printed="Batch normalization: (i), (ii)",
            right="in training; at inference, with the running statistics, (i) alone",
            measured=lambda result: (
                f"Of {(result.setup.n_rows * result.setup.n_columns) ** 2} pairs of an output and an input, "
                f"{sum(_count(result.batch).values())} depend on each other in training, {result.at_inference} at "
                f"inference."
            ),
        ),
    ),
)
