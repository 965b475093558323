r"""With tokens in columns QK' compares features, [768, 768]; tokens are compared by Q'K, which is [6, 6].

The sheet's $X$ is [768, 6]: 6 tokens of width 768, one in each column, and $Q = W^QX$, $K = W^KX$, $V = W^VX$ are
[768, 6] too. The formula $\operatorname{softmax}(QK^\top/\sqrt{d_k})V$ is written for tokens in *rows*. With tokens in
columns it has to be transposed, $Q = Q_{rows}^\top$ and so on:

$$\text{output} = \left(\operatorname{softmax}\frac{Q^\top K}{\sqrt{d_k}}\;V^\top\right)^\top
= V \operatorname{softmax}\left(\frac{Q^\top K}{\sqrt{d_k}}\right)^\top$$

with weights of [6, 6], a row for each query. $QK^\top$ fits too, is [768, 768], and even the output has the right
shape, so nobody notices. What goes wrong:

- $\text{output}_t = A\,v_t$ with the same [768, 768] matrix $A$ for each token $t$: features are mixed, tokens are not.
  With $A$ as it is, no value passes from one token to another.
- $A$ is a sum over *all* tokens, and no mask of queries and keys fits it: the past sees the future.
- $(QK^\top)_{ij}$ is a sum of $n = 6$ products, not of $d = 768$. With entries of variance 1 the scores have variance
  about $n$, after the division by $\sqrt d$ only $n/d$ (in full $\frac nd(1 + \frac{n-1}d)$, as all tokens share their
  projections): the softmax is close to $1/768$ everywhere, and all features of a token become nearly the same number,
  the mean of its values.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.functional import attention_scores, attention_weights, scaled_dot_product_attention
from headwork.lab.plots import MEASURED, PREDICTED, Axes, Figure, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, same, seeded

Between = Literal["tokens", "features"]
STANDARD_ERRORS = 5


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """The sheet's X, tokens in columns; and other numbers of tokens, for the variance of the scores."""

    d_model: int = 768
    n_tokens: int = 6
    lengths: tuple[int, ...] = (2, 6, 24, 96)
    n_samples: int = 8
    between: Between = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_samples < 2 or self.n_tokens < 2:
            raise ValueError(f"n_samples and n_tokens must be 2 or more, got {self.n_samples} and {self.n_tokens}")


@dataclass(frozen=True)
class Attended:
    """What comes out if attention is between tokens, or between features."""

    weights: Float[Tensor, "query key"]
    output: Float[Tensor, "d_model token"]
    passes: int
    """Pairs of an output and another token whose value reaches it, the weights as they are."""
    leaks: int
    """Pairs of an output and a later token that it depends on, behind a causal mask if one fits."""
    variance: Float[Tensor, "length"]
    variance_error: Float[Tensor, "length"]


@dataclass(frozen=True)
class Result:
    """Both ways, on the same X with the same projections."""

    setup: Setup
    tokens: Attended
    features: Attended

    @property
    def chosen(self) -> Attended:
        return self.tokens if self.setup.between == "tokens" else self.features


@seeded
def run(setup: Setup) -> Result:
    w = torch.randn(3, setup.d_model, setup.d_model, dtype=torch.float64) / math.sqrt(setup.d_model)
    x = torch.randn(setup.d_model, setup.n_tokens, dtype=torch.float64)
    many = [torch.randn(setup.n_samples, setup.d_model, n, dtype=torch.float64) for n in setup.lengths]
    return Result(setup, _see("tokens", x, w, many), _see("features", x, w, many))


def _see(between: Between, x: Float[Tensor, "d_model token"], w: Tensor, many: list[Tensor]) -> Attended:
    beta = 1 / math.sqrt(len(x))
    q, k, v = _rows(between, w @ x)
    weights = attention_weights(q, k, beta=beta)
    causal = between == "tokens"  # between features there is nobody who could look ahead

    def attend(x: Tensor) -> Tensor:
        return _rows(between, scaled_dot_product_attention(*_rows(between, w @ x), causal=causal, beta=beta))

    passed = _reached(lambda v: _rows(between, weights @ _rows(between, v)), _rows(between, v))
    leaked = _reached(attend, x).triu(1)
    scores = [beta * attention_scores(*_rows(between, w[:2, None] @ xs)) for xs in many]
    variances = [of_length.square().mean((-2, -1)) for of_length in scores]
    return Attended(
        weights,
        _rows(between, weights @ v),
        int(passed.sum() - passed.diagonal().sum()),
        int(leaked.sum()),
        torch.stack([variance.mean() for variance in variances]),
        torch.stack([variance.std() / math.sqrt(len(variance)) for variance in variances]),
    )


def _rows(between: Between, t: Float[Tensor, "*batch d_model token"]) -> Float[Tensor, "*batch query d"]:
    """Columns as the rows that the library compares (and back): this transposition is all that the sheet lacks."""
    return t.mT if between == "tokens" else t


def _reached(function: Callable[[Tensor], Tensor], x: Float[Tensor, "d_model token"]) -> Float[Tensor, "token token"]:
    """1 where an output (in rows) changes if another token is put into a column."""
    reached, before = [], function(x)
    for column in range(x.shape[1]):
        other = x.clone()
        other[:, column] = torch.randn(len(x), dtype=x.dtype)
        reached.append((function(other) - before).abs().amax(0) > 1e-12)
    return torch.stack(reached, dim=1).double()


def _variance_between_features(n: Tensor, d: int) -> Tensor:
    return n / d * (1 + (n - 1) / d)


def _shape(t: Tensor) -> str:
    return str(list(t.shape))


def verdict(result: Result) -> Verdict:
    setup, seen, wrong = result.setup, result.chosen, result.features
    n, d, at = setup.n_tokens, setup.d_model, f"{setup.lengths[-1]} tokens"
    flat = _variance_between_features(torch.tensor(float(setup.lengths[-1])), d).item()
    error, wrong_error = seen.variance_error[-1].item(), wrong.variance_error[-1].item()
    return Verdict(
        checks=(
            same("shape of the weights", f"[{n}, {n}]", _shape(seen.weights)),
            same("shape of the output", f"[{d}, {n}]", _shape(seen.output)),
            same("pairs of an output and another token whose value reaches it", n * (n - 1), seen.passes),
            same("pairs of an output and a later token, with a causal mask", 0, seen.leaks),
            about(f"variance of the scaled scores, {at}", 1, seen.variance[-1].item(), STANDARD_ERRORS * error),
            same("shape of the weights if QK' is taken", f"[{d}, {d}]", _shape(wrong.weights)),
            same("values that reach another token if QK' is taken", 0, wrong.passes),
            same("later tokens that leak if QK' is taken", n * (n - 1) // 2, wrong.leaks),
            about(
                f"variance of the scaled scores if QK' is taken, {at}",
                flat,
                wrong.variance[-1].item(),
                STANDARD_ERRORS * wrong_error,
            ),
        ),
        why="A product sums over the axis that both sides share, and compares what is left: that must be the tokens.",
    )


def figure(result: Result) -> Figure:
    setup, d = result.setup, result.setup.d_model
    title = "Tokens in columns: QK' compares features, and hardly those"
    drawing, (left, middle, right) = panels(3, width=7.4, height=3.0, title=title)
    _draw_weights(left, result.tokens.weights, "token")
    left.set_title("Q'K: tokens look at tokens")
    _draw_weights(middle, result.features.weights, "feature")
    middle.set_title("QK': features, all about alike")
    n = torch.logspace(math.log10(min(setup.lengths)), math.log10(max(setup.lengths)), 50).double()
    right.axhline(1, **PREDICTED | {"label": "predicted, Q'K: 1"})
    right.loglog(setup.lengths, result.tokens.variance.numpy(), **MEASURED | {"label": "measured, Q'K"})
    flat = PREDICTED | {"linestyle": ":", "label": "predicted, QK': n / d"}
    right.loglog(n.numpy(), _variance_between_features(n, d).numpy(), **flat)
    style = MEASURED | {"marker": "s", "label": "measured, QK'"}
    right.loglog(setup.lengths, result.features.variance.numpy(), **style)
    right.set(xlabel="tokens n", ylabel="variance of the scaled scores", xticks=setup.lengths, ylim=(None, 100))
    right.set_xticklabels([str(length) for length in setup.lengths])
    right.minorticks_off()
    right.legend(frameon=False, loc="upper left")
    return drawing


def _draw_weights(ax: Axes, weights: Float[Tensor, "query key"], what: str) -> None:
    """Relative to a uniform weight, so that both tables have one scale: white is 0, black is 3 times the mean."""
    n = len(weights)
    step = max(1, n // 64)
    shown = (n * weights)[::step, ::step].clamp(max=3)
    ax.imshow(shown.numpy(), cmap="Greys", vmin=0, vmax=3, extent=(0, n, n, 0), interpolation="nearest")
    ax.set(xlabel=f"key {what}", ylabel=f"query {what}", xticks=(0, n), yticks=(0, n))


def _what_goes_wrong(result: Result) -> str:
    wrong, right, n = result.features, result.tokens, result.setup.n_tokens
    spread = wrong.output.std(0).mean().item(), right.output.std(0).mean().item()
    return (
        f"QK' has the shape {_shape(wrong.weights)} and Q'K {_shape(right.weights)}. With QK' the values of "
        f"{wrong.passes} of {n * (n - 1)} pairs of tokens reach each other, {wrong.leaks} of {n * (n - 1) // 2} later "
        f"tokens leak, and the features of a token differ by {spread[0]:.2g} (standard deviation), "
        f"where they should by {spread[1]:.2g}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="QMUL",
    question="1",
    setup=Setup(),
    small=Setup(d_model=192, n_tokens=5, lengths=(2, 12)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"QK' as the sheet multiplies it": {"between": "features"}},
    confidence=f"Shapes and counts are exact; variances are within {STANDARD_ERRORS} standard errors.",
    errata=(
        Erratum(
            where="1, answer (2) a",
            printed=r"$QK^\top$ of [768, 768], and a softmax of its rows",
            right=r"$Q^\top K$ of [6, 6]: tokens are the columns of $X$; "
            r"the output $V\operatorname{softmax}(Q^\top K/\sqrt{d_k})^\top$ is [768, 6], as printed",
            measured=_what_goes_wrong,
        ),
    ),
)
