r"""BERT hides the padding, GPT the future, T5 the padding of the source twice and the future once: then nothing leaks.

A key that a query may not use has weight 0, so neither it nor anything computed from it can change the output. Which
keys must be hidden?

| model | attention | mask |
|---|---|---|
| BERT | encoder, self | padding |
| GPT | decoder, self | causal |
| T5 | encoder, self | padding of the source |
| T5 | decoder, cross | padding of the source |
| T5 | decoder, self | causal |

A padding token must not change the output of any real one. With the padding on the *right* every padding token is later
than every real one, so the causal mask hides it already. Padding on the left, as it is usual when a batch of texts is
to be continued, comes *before* the real tokens: then GPT needs the padding mask as well. In T5 the padding of the
source has two ways to the output: through the encoder into the real tokens of the memory, and directly, as a key of the
cross-attention. To close one of them is not enough.

Each leak is measured by writing other words into what should be hidden, and looking at the outputs of the real tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwork import choices
from headwork.lab.plots import FLOOR, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import ROUNDING, Claim, Experiment, Verdict, exact, largest_difference, seeded
from headwork.models import Decoder, DecoderConfig, Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig

Leaks = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Small models with random weights, and texts of several lengths padded to the longest."""

    n_tokens: int = 11
    lengths: tuple[int, ...] = (3, 7, 5)
    vocab: int = 97
    d_model: int = 32
    n_layers: int = 3
    bert: Literal["padding mask", "no mask"] = "padding mask"
    gpt: Literal["padding right", "padding left"] = "padding right"
    t5: Literal["encoder and cross", "encoder", "cross"] = "encoder and cross"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= min(self.lengths) <= max(self.lengths) < self.n_tokens:
            raise ValueError(f"lengths must lie in 2 .. n_tokens - 1 = {self.n_tokens - 1}, got {self.lengths}")


@dataclass(frozen=True)
class Result:
    """How much the outputs of real tokens change with what they should not see, and with what is left open."""

    setup: Setup
    hidden: Leaks
    left_open: Leaks


@seeded
def run(setup: Setup) -> Result:
    parts = [_bert(setup), _gpt(setup), _t5(setup)]
    return Result(
        setup,
        {name: leak for hidden, _ in parts for name, leak in hidden.items()},
        {name: leak for _, left_open in parts for name, leak in left_open.items()},
    )


def _bert(setup: Setup) -> tuple[Leaks, Leaks]:
    config = EncoderConfig(vocab=setup.vocab, head=choices.NoHead(), n_layers=setup.n_layers, **_sizes(setup))
    model = Encoder(config).double().eval()
    real = _real(setup, "right")
    masks: dict[str, Tensor | None] = {"padding mask": real, "no mask": None}
    padding = {name: _leak(setup, partial(model, visible=mask), real, ~real) for name, mask in masks.items()}
    later = _leak(setup, lambda ids: model(ids, visible=real), *_split_in_time(real))
    return (
        {"BERT, padding": padding[setup.bert]},
        {"BERT without a mask, padding": padding["no mask"], "BERT reads both ways, later words": later},
    )


def _gpt(setup: Setup) -> tuple[Leaks, Leaks]:
    config = DecoderConfig(vocab=setup.vocab, n_layers=setup.n_layers, **_sizes(setup))
    model = Decoder(config).double().eval()
    right, left = _real(setup, "right"), _real(setup, "left")
    only_causal = {
        "padding right": _leak(setup, model.hidden, right, ~right),
        "padding left": _leak(setup, model.hidden, left, ~left),
    }
    return (
        {
            "GPT, later words": _leak(setup, model.hidden, *_split_in_time(right)),
            "GPT, padding": only_causal[setup.gpt],
            "GPT with padding left and a padding mask": _leak(
                setup, lambda ids: model.hidden(ids, visible=left), left, ~left
            ),
        },
        {"GPT with padding left, only causal": only_causal["padding left"]},
    )


def _t5(setup: Setup) -> tuple[Leaks, Leaks]:
    n = setup.n_layers
    config = EncoderDecoderConfig(vocab=setup.vocab, n_encoder_layers=n, n_decoder_layers=n, **_sizes(setup))
    model = EncoderDecoder(config).double().eval()
    real, every = _real(setup, "right"), torch.ones(len(setup.lengths), setup.n_tokens, dtype=torch.bool)
    source, target = _words(setup), _words(setup)

    def translate(source: Tensor, target: Tensor, encoder: bool = True, cross: bool = True) -> Tensor:
        memory = model.encode(source, visible=real if encoder else None)
        return model.unembed(model.decode(target, memory, memory_visible=real if cross else None))

    def of_target(ids: Tensor) -> Tensor:
        return translate(source, ids)

    masked = {
        name: _leak(setup, partial(translate, target=target, encoder=encoder, cross=cross), every, ~real)
        for name, encoder, cross in (
            ("encoder and cross", True, True),
            ("encoder", True, False),
            ("cross", False, True),
        )
    }
    return (
        {
            "T5, padding of the source": masked[setup.t5],
            "T5, padding of the target": _leak(setup, of_target, real, ~real),
            "T5, later words of the target": _leak(setup, of_target, *_split_in_time(real)),
        },
        {
            "T5 with a padding mask in the encoder only": masked["encoder"],
            "T5 with a padding mask in the cross-attention only": masked["cross"],
        },
    )


def _leak(
    setup: Setup,
    model: Callable[[Tensor], Tensor],
    look_at: Bool[Tensor, "batch token"],
    rewrite: Bool[Tensor, "batch token"],
) -> float:
    """How much the outputs of some tokens change if other words are written elsewhere."""
    ids = _words(setup)
    others = torch.where(rewrite, (ids + torch.randint_like(ids, 1, setup.vocab)) % setup.vocab, ids)
    with torch.no_grad():
        return largest_difference(model(ids)[look_at], model(others)[look_at])


def _sizes(setup: Setup) -> dict[str, Any]:
    return {
        "d_model": setup.d_model,
        "heads": choices.Heads(n_heads=4),
        "feed_forward": choices.FeedForward(d_ff=2 * setup.d_model),
    }


def _words(setup: Setup) -> Int[Tensor, "batch token"]:
    return torch.randint(setup.vocab, (len(setup.lengths), setup.n_tokens))


def _real(setup: Setup, padding: Literal["left", "right"]) -> Bool[Tensor, "batch token"]:
    """Counted here, not by the library's masks: it is what they are judged by."""
    rows = [[True] * length + [False] * (setup.n_tokens - length) for length in setup.lengths]
    return torch.tensor(rows if padding == "right" else [row[::-1] for row in rows])


def _split_in_time(
    real: Bool[Tensor, "batch token"],
) -> tuple[Bool[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """The first two tokens of each text, and the real ones after them."""
    early = torch.arange(real.shape[1]) < 2
    return real & early, real & ~early


def verdict(result: Result) -> Verdict:
    return Verdict(
        checks=tuple(
            exact(
                f"change: {name}",
                leak,
                near={
                    other: seen
                    for other, seen in result.left_open.items()
                    if other.split()[0] == name.split()[0].strip(",")
                },
            )
            for name, leak in result.hidden.items()
        ),
        why="A weight of 0 closes a way, and the masks of the table close every way from hidden words to the outputs.",
    )


def figure(result: Result) -> Figure:
    drawing, (ax,) = panels(height=3.6, title="With the right masks hidden words change nothing, exactly")
    rows = [*result.left_open.items(), *result.hidden.items()]
    rows = sorted(
        rows, key=lambda row: (["BERT", "GPT", "T5"].index(row[0].split()[0].strip(",")), row[0] in result.left_open)
    )
    for row, (name, leak) in enumerate(rows):
        is_open = name in result.left_open
        ax.plot(max(leak, FLOOR), row, **MEASURED | {"marker": "X" if is_open else "o", "markersize": 6})
        ax.axhline(row, color="0.9", linewidth=0.6, zorder=0)
    ax.axvline(ROUNDING, **PREDICTED)
    ax.set_xscale("log")
    ax.set(
        xlabel="change of the outputs of real tokens",
        ylabel="model, and what is rewritten",
    )
    ax.set(xlim=(FLOOR / 5, 1e2), yticks=range(len(rows)), yticklabels=[name for name, _ in rows])
    ax.set_xticks([FLOOR, 1e-12, 1e-8, 1e-4, 1], ["0", "1e-12", "1e-8", "1e-4", "1"])
    ax.minorticks_off()
    ax.invert_yaxis()
    ax.text(ROUNDING / 2, -0.8, "predicted with the masks: none\n(measured: circles)", ha="right", va="bottom")
    ax.text(ROUNDING * 2, -0.8, "predicted with a mask missing: some\n(measured: crosses)", ha="left", va="bottom")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="EECS 182",
    question="2(b)",
    setup=Setup(),
    small=Setup(n_tokens=7, lengths=(3, 5), vocab=13, d_model=8, n_layers=1),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "BERT without a padding mask": {"bert": "no mask"},
        "GPT with the padding on the left and no padding mask": {"gpt": "padding left"},
        "T5 with the padding mask in the encoder only": {"t5": "encoder"},
        "T5 with the padding mask in the cross-attention only": {"t5": "cross"},
    },
    confidence="Exact: hidden words change nothing; where a mask is missing the change is of order 1.",
)
