r"""Reading n tokens takes a chain of operations that knows no n; writing them takes n such chains, cache or no cache.

In training every token is known, and all places are computed at once: the chain of operations from input to output is
as long as the model is deep. In generation a token has to be there before the next can be computed from it, so the
chains of all steps follow each other: $n$ of them, and between two of them the choice of the token. So
"parallelization during training and inference" holds for the first half only.

A cache of keys and values does not shorten the chain; it saves work. With $L$ layers of width $d$ and feed-forward
width $f$ a token costs $P = L(8d^2 + 4df)$ in projections, and $4Ld$ for each token that it looks at. Writing $n$
tokens costs

$$n\,(P + 2dV) + 4Ld\,\tfrac{n(n+1)}{2} \quad\text{with a cache,}\qquad
\sum_{t=1}^n \bigl(t P + 4 L d\,t^2 + 2dV\bigr) \quad\text{without}$$

that is $n^2$ against $n^3$ for long texts, and $n$ against $n^2$ for short ones.

It stops being true when several tokens are proposed and checked at once (speculative decoding), or written in
parallel (non-autoregressive and diffusion models).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from headwork import choices
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, same, seeded
from headwork.models import Decoder, DecoderConfig


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A small decoder, and how many tokens it reads or writes."""

    lengths: tuple[int, ...] = (2, 4, 8, 16)
    d_model: int = 8
    d_ff: int = 12
    n_layers: int = 2
    vocab: int = 11
    cache: bool = True
    known: bool = False
    """Whether the tokens that are to be written are known before, as in training."""


@dataclass(frozen=True)
class Result:
    """Chains of operations and FLOPs for each length."""

    setup: Setup
    reading: list[int]
    writing: list[int]
    first: int
    """The chain of the first step, which has an empty cache."""
    step: int
    """The chain of one more step, by itself: its token is there, and the cache is filled."""
    choosing: int
    """Operations from the scores of a token to the vector of the next one."""
    with_cache: list[int]
    without: list[int]


@seeded
def run(setup: Setup) -> Result:
    model = Decoder(
        DecoderConfig(
            vocab=setup.vocab,
            d_model=setup.d_model,
            n_layers=setup.n_layers,
            heads=choices.Heads(n_heads=2),
            feed_forward=choices.FeedForward(d_ff=setup.d_ff),
            position=choices.NoPositions(),
        )
    ).eval()
    with sdpa_kernel(SDPBackend.MATH):
        return Result(
            setup,
            [_chain(_read(model, n)) for n in setup.lengths],
            [_chain(_read(model, n) if setup.known else _write(model, n)) for n in setup.lengths],
            _chain(_step(model, 0)),
            _chain(_step(model, 3)),
            _chain(_choose(model, torch.randn(1, 1, setup.vocab, requires_grad=True))),
            [_flops(model, n, cache=setup.cache) for n in setup.lengths],
            [_flops(model, n, cache=False) for n in setup.lengths],
        )


def _read(model: Decoder, n: int) -> Tensor:
    x = torch.randn(1, n, model.config.d_model, requires_grad=True)
    return model.unembed(model.layers(x, causal=True))


def _write(model: Decoder, n: int) -> Tensor:
    """Token by token with a cache; the next vector is a mean of all, by their probabilities: autograd sees that."""
    cache = model.new_cache()
    x = torch.randn(1, 1, model.config.d_model, requires_grad=True)
    for _ in range(n - 1):
        x = _choose(model, model.unembed(model.layers(x, causal=True, cache=cache)))
    return model.unembed(model.layers(x, causal=True, cache=cache))


def _step(model: Decoder, n_past: int) -> Tensor:
    """One token after some others, which are there already."""
    cache = model.new_cache()
    if n_past:
        with torch.no_grad():
            model.layers(torch.randn(1, n_past, model.config.d_model), causal=True, cache=cache)
    x = torch.randn(1, 1, model.config.d_model, requires_grad=True)
    return model.unembed(model.layers(x, causal=True, cache=cache))


def _choose(model: Decoder, scores: Tensor) -> Tensor:
    return scores.softmax(-1) @ model.embedding.get_parameter("table")


def _chain(out: Tensor) -> int:
    """The most operations between an input and the output, in PyTorch's own graph of the computation."""
    assert out.grad_fn is not None
    longest: dict[Node, int] = {}
    todo = [out.grad_fn]
    while todo:
        below = [each for each, _ in todo[-1].next_functions if each is not None]
        missing = [each for each in below if each not in longest]
        todo += missing
        if not missing:
            longest[todo.pop()] = max((1 + longest[each] for each in below), default=0)
    return longest[out.grad_fn]


@torch.no_grad()
def _flops(model: Decoder, n: int, *, cache: bool) -> int:
    """Of writing n tokens, counted by PyTorch for products that it computes one by one."""
    kept = model.new_cache() if cache else None
    text = torch.zeros(1, n, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        for t in range(1, n + 1):
            model(text[:, t - 1 : t] if cache else text[:, :t], cache=kept, last_only=True)
    return counter.get_total_flops()


def predict_flops(setup: Setup, n: int, *, cache: bool) -> int:
    d, layers = setup.d_model, setup.n_layers
    per_token = layers * (8 * d**2 + 4 * d * setup.d_ff)
    out = 2 * d * setup.vocab
    if cache:
        return sum(per_token + 4 * layers * d * t + out for t in range(1, n + 1))
    return sum(t * per_token + 4 * layers * d * t**2 + out for t in range(1, n + 1))


def verdict(result: Result) -> Verdict:
    setup = result.setup
    one = result.reading[0]
    checks = []
    for n, reading, writing in zip(setup.lengths, result.reading, result.writing, strict=True):
        expected = result.first + (n - 1) * (result.step + result.choosing)
        near = {"a step less": expected - result.step, "nothing to choose": result.first + (n - 1) * result.step}
        checks += [
            same(f"chain of writing {n} tokens", expected, writing, near=near),
            same(f"chain of reading {n} tokens", one, reading, near={"one operation more": one + 1}),
        ]
    for n, kept, again in zip(setup.lengths, result.with_cache, result.without, strict=True):
        expected, every = (predict_flops(setup, n, cache=cache) for cache in (True, False))
        keys = 4 * setup.n_layers * setup.d_model * n
        checks += [
            same(f"FLOPs of writing {n} tokens with a cache", expected, kept, near={"t - 1 keys": expected - keys}),
            same(f"FLOPs of writing {n} tokens without", every, again, near={"with a cache": expected}),
        ]
    return Verdict(tuple(checks), why="The next token is computed from the one before, which is not there yet.")


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Writing is sequential, with a cache or without; the cache saves work")
    n = list(setup.lengths)
    one, step = result.reading[0], result.step + result.choosing
    left.loglog(n, [result.first + (m - 1) * step for m in n], **PREDICTED)
    left.loglog(n, [one] * len(n), **PREDICTED | {"label": ""})
    left.loglog(n, result.writing, **MEASURED | {"color": COLOURS[0], "label": "measured, writing"})
    left.loglog(
        n, result.reading, **MEASURED | {"color": COLOURS[1], "marker": MARKERS[1], "label": "measured, reading"}
    )
    left.set(xlabel="tokens n", ylabel="chain of operations", ylim=(one / 2, 12 * max(result.writing)))
    for index, (counts, cache, name) in enumerate(
        ((result.without, False, "no cache"), (result.with_cache, True, "cache"))
    ):
        right.loglog(
            n, [predict_flops(setup, m, cache=cache) for m in n], **PREDICTED | {"label": "" if index else "predicted"}
        )
        style = MEASURED | {"color": COLOURS[2 + index], "marker": MARKERS[2 + index], "label": f"measured, {name}"}
        right.loglog(n, counts, **style)
    right.set(xlabel="tokens n", ylabel="FLOPs of writing", ylim=(None, 10 * max(result.without)))
    for ax in (left, right):
        ax.set_xticks(n, [str(m) for m in n])
        ax.minorticks_off()
        ax.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.4(a)",
    setup=Setup(),
    small=Setup(lengths=(2, 4)),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"no cache": {"cache": False}, "tokens that are known before": {"known": True}},
    confidence="Exact: operations are counted.",
    errata=(
        Erratum(
            where="1.4(a), first bullet",
            printed="this allows for greater parallelization during training and inference",
            right="during training, and where a text is read; a text is written token by token",
            measured=lambda result: (
                f"The chain of operations of reading {result.setup.lengths[-1]} tokens is {result.reading[-1]} long, "
                f"of writing them {result.writing[-1]}."
            ),
        ),
    ),
)
