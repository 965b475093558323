r"""With 5 tokens of width 768 and 12 heads: queries [1, 5, 12, 64], attention [1, 12, 5, 5], output [1, 5, 768].

The sheet asks for the shapes in its notebook. Every projection keeps the tokens, and its $h \cdot d_{head} = d$ numbers
are cut into heads; a weight belongs to a head and a pair of tokens; a mix of values has the shape of a value:

| variable | here | axes | shape |
|---|---|---|---|
| tokens | x | batch, token, d | [1, 5, 768] |
| qis_mh | queries | batch, token, head, d / h | [1, 5, 12, 64] |
| kis_mh | keys | batch, token, head, d / h | [1, 5, 12, 64] |
| vis_mh | values | batch, token, head, d / h | [1, 5, 12, 64] |
| attmat_mh | weights | batch, head, token, token | [1, 12, 5, 5] |
| zis_mh | heads | batch, token, head, d / h | [1, 5, 12, 64] |
| zis | output | batch, token, d | [1, 5, 768] |

Only attmat_mh grows with the square of the tokens. Every other variable holds $n\,d$ numbers, attmat_mh $h\,n^2$: they
are equal at $n = d/h$, the width of a head.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch

from headwork.inspection.tracing import trace
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, same, seeded
from headwork.layers import MultiHeadAttention

Shape = tuple[int, ...]
NAMES = {
    "attmat_mh": "weights",
    "qis_mh": "queries",
    "kis_mh": "keys",
    "vis_mh": "values",
    "zis_mh": "heads",
    "zis": "output",
}
"""The names of the notebook, and those of the library."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """One layer of ViT-B on a few tokens, and longer texts for the count."""

    n_tokens: int = 5
    d_model: int = 768
    n_heads: int = 12
    lengths: tuple[int, ...] = (5, 16, 64, 256, 1024)
    heads: Literal["all their own", "one wide head", "shared keys and values"] = "all their own"


@dataclass(frozen=True)
class Result:
    """The shapes as they come out of the library, by the names of the notebook."""

    setup: Setup
    shapes: dict[str, Shape]
    by_length: dict[int, dict[str, Shape]]


@seeded
def run(setup: Setup) -> Result:
    n_heads = 1 if setup.heads == "one wide head" else setup.n_heads
    n_kv_heads = 1 if setup.heads == "shared keys and values" else n_heads
    layer = MultiHeadAttention(setup.d_model, n_heads, n_kv_heads=n_kv_heads)
    return Result(setup, _shapes(layer, setup.n_tokens), {n: _shapes(layer, n) for n in setup.lengths})


def _shapes(layer: MultiHeadAttention, n_tokens: int) -> dict[str, Shape]:
    tokens = torch.randn(1, n_tokens, layer.d_model)
    rows = trace(layer, tokens, tokens)
    return {"tokens": tuple(tokens.shape)} | {theirs: rows[ours].shape for theirs, ours in NAMES.items()}


def predict(setup: Setup, n: int) -> dict[str, Shape]:
    d, h = setup.d_model, setup.n_heads
    whole, cut = (1, n, d), (1, n, h, d // h)
    names = {"tokens": whole, "attmat_mh": (1, h, n, n), "zis": whole}
    return {name: names.get(name, cut) for name in ("tokens", *NAMES)}


def verdict(result: Result) -> Verdict:
    setup = result.setup
    sheet = predict(setup, setup.n_tokens)
    other = predict(replace(setup, n_heads=2 * setup.n_heads), setup.n_tokens)
    longer = predict(setup, setup.n_tokens + 1)
    headline = ("attmat_mh", *(name for name in sheet if name != "attmat_mh"))
    other_lengths = sum(shapes != predict(setup, n) for n, shapes in result.by_length.items())
    return Verdict(
        checks=(
            *(
                same(
                    f"shape of {name}",
                    str(list(sheet[name])),
                    str(list(result.shapes[name])),
                    near={"twice the heads": str(list(other[name]))}
                    if other[name] != sheet[name]
                    else {"a token more": str(list(longer[name]))},
                )
                for name in headline
            ),
            same("lengths at which another shape comes out", 0, other_lengths, near={"one": 1}),
        ),
        why="Heads cut the width, not the tokens; and a weight belongs to a head and a pair of tokens.",
    )


def figure(result: Result) -> Figure:
    setup, lengths = result.setup, list(result.setup.lengths)
    drawing, (left, right) = panels(
        2, title="Every variable grows with the tokens; only the attention table as their square"
    )
    names = list(predict(setup, setup.n_tokens))
    predicted = [_numbers(predict(setup, setup.n_tokens)[name]) for name in names]
    left.plot(predicted, range(len(names)), **PREDICTED | {"linestyle": "none", "marker": "|", "markersize": 13})
    left.plot([_numbers(result.shapes[name]) for name in names], range(len(names)), **MEASURED)
    for row, name in enumerate(names):
        left.text(_numbers(result.shapes[name]) * 1.35, row, str(list(result.shapes[name])), va="center")
    left.set_xscale("log")
    left.set(xlabel="numbers it holds", ylabel="variable of the notebook", yticks=range(len(names)), yticklabels=names)
    left.set_xlim(min(predicted) / 2, max(predicted) * 12)
    left.invert_yaxis()
    left.set_title(f"{setup.n_tokens} tokens of width {setup.d_model}, {setup.n_heads} heads")
    for (name, power), marker in zip((("attmat_mh", "h n^2"), ("qis_mh", "n d")), MARKERS, strict=False):
        line = ("--", ":")[power == "n d"]
        counts = [_numbers(predict(setup, n)[name]) for n in lengths]
        right.loglog(lengths, counts, **PREDICTED | {"label": f"predicted: {power}", "linestyle": line})
        counts = [_numbers(shapes[name]) for shapes in result.by_length.values()]
        right.loglog(lengths, counts, **MEASURED | series(marker) | {"label": f"measured: {name}"})
    right.axvline(setup.d_model // setup.n_heads, ymax=0.55, color="0.6", linewidth=0.8, zorder=0)
    right.text(setup.d_model / setup.n_heads * 1.15, 400, "d / h")
    right.set(xlabel="tokens n", ylabel="numbers it holds", xticks=lengths, xticklabels=lengths)
    right.minorticks_off()
    right.legend(frameon=False, loc="upper left")
    return drawing


def _numbers(shape: Shape) -> int:
    return torch.Size(shape).numel()


CLAIM = Claim(
    __name__,
    __doc__,
    document="QMUL",
    question="3(1)",
    setup=Setup(),
    small=Setup(n_tokens=5, lengths=(5, 64)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "one head as wide as the token": {"heads": "one wide head"},
        "keys and values that all heads share": {"heads": "shared keys and values"},
    },
    confidence="Exact: shapes.",
)
