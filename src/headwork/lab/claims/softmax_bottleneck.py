r"""A model of width d can say only log-probabilities of rank d + 1; the best it can do is an Eckart-Young remainder.

The logits of all contexts are a product $H W^\top$ of a matrix of width $d$ and the output embeddings, and
normalising subtracts a number from each row: $\log P$ has rank at most $d + 1$, however many words and contexts there
are. A final LayerNorm without bias takes a dimension away (its outputs sum to 0): rank $d$. RMSNorm does not.

What does that cost, if the language has a higher rank? For logits $A$ that are small (scale $s$), with rows centred,
the divergence of two softmaxes is half the variance of the difference of their logits,

$$\mathrm{KL} = \frac{1}{2V}\,|a - \hat a|^2\,(1 + O(s))$$

and the best approximation of rank $d$ in this norm is that of Eckart and Young. So the cross-entropy of the best
model of width $d$ exceeds the entropy, in the mean over $n$ contexts, by

$$\frac{1}{2 n V} \sum_{i > d} \sigma_i(A)^2$$

with the singular values $\sigma_i$ of the centred logits. A mixture of several softmaxes is not bound by it: the
logarithm of a sum has no such rank.

It stops being true when probabilities are far from even: the norm then has weights of its own, and a model can spend
its rank on the likely words.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork import choices
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, same, seeded
from headwork.models import Decoder, DecoderConfig

SD = 1.6
"""Of measured over predicted excess, over 20 seeds: times the scale, over the root of the number of logits."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A random language with small logits, models of several widths fitted to it, and decoders of several widths."""

    n_contexts: int = 40
    vocab: int = 30
    scale: float = 0.01
    widths: tuple[int, ...] = (2, 8, 16, 24)
    decoders: tuple[int, ...] = (8, 16)
    n_texts: int = 60
    heads: Literal["one softmax", "mixture of two"] = "one softmax"


@dataclass(frozen=True)
class Result:
    """The excess cross-entropy of the best model of each width, and the rank of what decoders say."""

    setup: Setup
    excess: Float[Tensor, "width"]
    singular: Float[Tensor, "rank"]
    """Of the centred logits of the language."""
    singular_as_drawn: Float[Tensor, "rank"]
    """Of the logits before centring, for a near theory."""
    rank: dict[str, list[int]]


@seeded
def run(setup: Setup) -> Result:
    logits = setup.scale * torch.randn(setup.n_contexts, setup.vocab, dtype=torch.float64)
    excess = torch.tensor([_best_fit(logits, width) for width in setup.widths])
    ranks = {
        name: [_rank(setup, width, norm) for width in setup.decoders]
        for name, norm in (("LayerNorm", choices.LayerNorm()), ("RMSNorm", choices.RMSNorm()))
    }
    centred = logits - logits.mean(1, keepdim=True)
    return Result(setup, excess, torch.linalg.svdvals(centred), torch.linalg.svdvals(logits), ranks)


def _best_fit(logits: Float[Tensor, "context vocab"], width: int) -> float:
    """The smallest mean divergence of a product of this width, from random factors, by BFGS."""
    n, vocab = logits.shape
    log_p, size = logits.log_softmax(-1), logits.std().sqrt()
    factors = [(size * torch.randn(m, width, dtype=torch.float64)).requires_grad_() for m in (n, vocab)]
    search = torch.optim.LBFGS(
        factors,
        max_iter=1500,
        tolerance_grad=1e-16,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
        history_size=30,
    )
    unit = logits.square().mean()

    def divergence() -> Tensor:
        log_q = (factors[0] @ factors[1].mT).log_softmax(-1)
        return (log_p.exp() * (log_p - log_q)).sum(-1).mean()

    def scaled() -> Tensor:
        search.zero_grad()
        loss = divergence() / unit
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    search.step(scaled)  # type: ignore[no-untyped-call]
    return divergence().item()


@torch.no_grad()
def _rank(setup: Setup, width: int, norm: choices.AnyNorm) -> int:
    """Of the log-probabilities after every token of random texts."""
    config = DecoderConfig(
        vocab=5 * width,
        d_model=width,
        n_layers=1,
        heads=choices.Heads(n_heads=2),
        feed_forward=choices.FeedForward(d_ff=2 * width),
        norm=norm,
    )
    text = torch.randint(config.vocab, (setup.n_texts, 4))
    said = [Decoder(config).double().eval()(text).flatten(0, 1).log_softmax(-1) for _ in range(2)]
    log_p = said[0] if setup.heads == "one softmax" else (said[0].exp() + said[1].exp()).log()
    values = torch.linalg.svdvals(log_p)
    return int((values > 1e-10 * values[0]).sum())


def verdict(result: Result) -> Verdict:
    setup = result.setup
    n, vocab = setup.n_contexts, setup.vocab
    squares = result.singular.square()
    checks = []
    for width, seen in zip(setup.widths, result.excess.tolist(), strict=True):
        left = squares[width:].sum().item()
        near = {
            "a singular value less": squares[width + 1 :].sum().item() / left,
            "logits not centred": (result.singular_as_drawn[width:].square().sum() / left).item(),
        }
        what = f"excess of the best model of width {width}, over the remainder"
        checks.append(
            about(what, 1, seen / (left / (2 * n * vocab)), sd=SD * setup.scale / (n * vocab) ** 0.5, near=near)
        )
    ranks = [
        same(
            f"rank of log P of a decoder of width {d}, {name}",
            d + extra,
            rank,
            near={"one more": d + extra + 1, "one less": d + extra - 1},
        )
        for name, extra in (("LayerNorm", 0), ("RMSNorm", 1))
        for d, rank in zip(setup.decoders, result.rank[name], strict=True)
    ]
    return Verdict(
        (*checks, *ranks), why="The product of two matrices has no more rank than the axis in the middle is wide."
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="A narrow model cannot say everything, and how much it cannot is known")
    squares = result.singular.square()
    width = range(len(squares) - 1)
    remainder = [squares[d:].sum().item() / (2 * setup.n_contexts * setup.vocab) for d in width]
    left.semilogy(width, remainder, **PREDICTED | {"label": "predicted remainder"})
    left.semilogy(setup.widths, result.excess.numpy(), **MEASURED | {"color": COLOURS[0]})
    left.set(xlabel="width d", ylabel="excess cross-entropy (nats)", xticks=setup.widths)
    left.legend(frameon=False, loc="lower left")
    for offset, (name, ranks) in enumerate(result.rank.items()):
        expected = [d + offset for d in setup.decoders]
        right.plot(setup.decoders, expected, **PREDICTED | {"label": "" if offset else "predicted: d, d + 1"})
        style = MEASURED | {"marker": MARKERS[offset], "color": COLOURS[offset + 1], "label": f"measured, {name}"}
        right.plot(setup.decoders, ranks, **style)
    right.set(xlabel="width of the decoder d", ylabel="rank of log P", xticks=setup.decoders, yticks=setup.decoders)
    right.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="Yang et al. 2018, Breaking the softmax bottleneck: a high-rank RNN language model (arXiv:1711.03953)",
    setup=Setup(),
    small=Setup(n_contexts=12, vocab=8, widths=(3,), decoders=(8,), n_texts=20),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"a mixture of two softmaxes": {"heads": "mixture of two"}},
    confidence="Ranks are exact; the next term of the divergence is as small as the logits: 5 standard "
    "deviations (SD) of it.",
)
