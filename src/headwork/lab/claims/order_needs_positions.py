r"""Without positions a permutation of the tokens permutes the outputs and changes nothing else; any code ends that.

Let $P$ permute the rows of $X$. Scores become $PXW_QW_K^\top X^\top P^\top$, the softargmax of each row is permuted
with them, and

$$\operatorname{Attention}(PX) = P\,\alpha\,P^\top P X W_V = P \operatorname{Attention}(X)$$

Norms and feed-forward networks act on each token alone, so a whole encoder is *equivariant*: $f(PX) = P f(X)$. It is
not invariant, as the sheets call it: $f(PX) \ne f(X)$. Invariant is what does not ask for the order of the outputs,
such as their mean. With any position code $f(PX) \ne P f(X)$, and order can be seen. A causal mask ends equivariance as
well: the first token sees itself alone, whichever it is. (It does not number the tokens: equal tokens behind it stay
equal, unless one of them stands out, as a first token does.)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwork import choices
from headwork.lab.plots import FLOOR, MEASURED, PREDICTED, ROUNDING, Figure, on_log_axis, panels, series
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, exact, largest_difference, seeded
from headwork.models import Decoder, DecoderConfig, Encoder, EncoderConfig

Code = Literal["none", "learned", "sinusoidal", "rotary", "alibi", "buckets", "relative", "causal mask"]


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_tokens": 2}):
    """A small encoder for each position code, with random weights."""

    n_tokens: int = 13
    d_model: int = 16
    n_layers: int = 2
    n_heads: int = 2
    vocab: int = 50
    code: Code = "none"
    """Of the model that is expected not to see the order."""


@dataclass(frozen=True)
class Result:
    """For each position code, the tokens permuted before the model against the outputs permuted after it."""

    setup: Setup
    moved: dict[Code, float]
    """The largest entry of f(PX) - P f(X)."""
    changed: dict[Code, float]
    """The largest entry of f(PX) - f(X)."""
    pooled: dict[Code, float]
    """The same for the mean of the outputs."""
    equal_tokens: float
    """How far the outputs of equal tokens behind a causal mask are apart; and after a first token that is another."""
    after_first: float


@seeded
def run(setup: Setup) -> Result:
    ids = torch.randperm(setup.vocab)[None, : setup.n_tokens]
    order = torch.randperm(setup.n_tokens)
    moved, changed, pooled = {}, {}, {}
    codes = _codes(setup)
    for code, position in codes.items():
        straight, permuted = _outputs(setup, code, position, ids, order)
        moved[code] = largest_difference(permuted, straight[order])
        changed[code] = largest_difference(permuted, straight)
        pooled[code] = largest_difference(permuted.mean(0), straight.mean(0))
    equal = torch.full_like(ids, 1)
    first = torch.cat([torch.zeros_like(ids[:, :1]), equal[:, 1:]], dim=1)
    alike = [
        _outputs(setup, "causal mask", codes["causal mask"], tokens, torch.arange(setup.n_tokens))[0][1:]
        for tokens in (equal, first)
    ]
    return Result(setup, moved, changed, pooled, *(largest_difference(out, out[:1].expand_as(out)) for out in alike))


def _codes(setup: Setup) -> dict[Code, choices.TextPositions]:
    return {
        "none": choices.NoPositions(),
        "learned": choices.LearnedPositions(max_tokens=setup.n_tokens),
        "sinusoidal": choices.SinusoidalPositions(),
        "rotary": choices.RotaryPositions(),
        "alibi": choices.AlibiPositions(),
        "buckets": choices.BucketPositions(),
        "relative": choices.RelativePositions(),
        "causal mask": choices.NoPositions(),
    }


@torch.no_grad()
def _outputs(
    setup: Setup,
    code: Code,
    position: choices.TextPositions,
    ids: Int[Tensor, "1 token"],
    order: Int[Tensor, "token"],
) -> tuple[Float[Tensor, "token d"], Float[Tensor, "token d"]]:
    heads, feed_forward = choices.Heads(n_heads=setup.n_heads), choices.FeedForward(d_ff=2 * setup.d_model)
    if code == "causal mask":
        model: Encoder | Decoder = Decoder(
            DecoderConfig(
                vocab=setup.vocab,
                d_model=setup.d_model,
                n_layers=setup.n_layers,
                heads=heads,
                feed_forward=feed_forward,
                position=position,
            )
        )
    else:
        model = Encoder(
            EncoderConfig(
                vocab=setup.vocab,
                head=choices.NoHead(),
                d_model=setup.d_model,
                n_layers=setup.n_layers,
                heads=heads,
                feed_forward=feed_forward,
                position=position,
            )
        )
    model = model.double().eval()
    return model(ids)[0], model(ids[:, order])[0]


def verdict(result: Result) -> Verdict:
    code = result.setup.code
    near = {f"with the code {other!r} too": result.moved[other] for other in result.moved if other != "none"}
    of_mean = {f"with the code {other!r} too": result.pooled[other] for other in result.pooled if other != "none"}
    return Verdict(
        checks=(
            exact(
                "tokens permuted before the model, or outputs after it",
                result.moved[code],
                near={"invariant: the outputs as they were": result.changed[code]} | near,
            ),
            exact("mean of the outputs, tokens permuted or not", result.pooled[code], near=of_mean),
            exact(
                "equal tokens behind a causal mask, all outputs alike",
                result.equal_tokens,
                near={"a first token that stands out": result.after_first},
            ),
        ),
        why="Attention sums over a set of keys, and everything else looks at one token at a time.",
    )


def figure(result: Result) -> Figure:
    title = "Without positions order is invisible: the outputs move with the tokens"
    drawing, (ax,) = panels(title=title, height=3.1)
    x = range(len(result.moved))
    left, right = ([place + aside for place in x] for aside in (-0.1, 0.1))  # no marker hides another
    ax.semilogy(left, on_log_axis([*result.moved.values()]), **MEASURED | {"label": "measured: f(PX) against P f(X)"})
    style = MEASURED | series("s") | {"markerfacecolor": "0.6", "label": "measured: f(PX) against f(X), not invariant"}
    ax.semilogy(right, on_log_axis([*result.changed.values()]), **style)
    ax.plot([-0.4, 0.4], [ROUNDING, ROUNDING], **PREDICTED | {"label": "predicted: f(PX) = P f(X), below this"})
    ax.set_xticks(x, list(result.moved))
    ax.set(xlabel="position code of the model", ylabel="largest difference", ylim=(FLOOR, 1e2))
    ax.legend(frameon=False, loc="center", bbox_to_anchor=(0.6, 0.42))
    return drawing


def _equivariant(result: Result) -> str:
    return (
        f"Without positions a permutation of the tokens changes the outputs by up to {result.changed['none']:.2f}; "
        f"permuted back, they agree within {result.moved['none']:.0e}."
    )


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.3(b)",
    also=("NYU 1.4(a)", "ETH (4), (5)"),
    setup=Setup(),
    small=Setup(n_tokens=7, d_model=4, n_heads=1, n_layers=1, vocab=11),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "a model with sinusoidal positions": {"code": "sinusoidal"},
        "a model with rotary positions": {"code": "rotary"},
        "a model with a causal mask": {"code": "causal mask"},
    },
    confidence="Exact up to rounding.",
    errata=(
        Erratum(
            where="1.3(b), positional encoding",
            printed="the self-attention mechanism is permutation-invariant",
            right="it is permutation-equivariant: outputs are permuted with the tokens; invariant is what is pooled",
            measured=_equivariant,
        ),
    ),
)
