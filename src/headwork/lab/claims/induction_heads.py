r"""Two layers of attention continue a text that repeats: one looks a token back, the other for where that token was.

Layer 1 has one head that attends to the token before, and writes that token beside the present one. Layer 2 asks with
the present token for places whose token *before* was the same, and copies what stands there: if the text was $\dots
AB \dots A$, it says $B$. Built by hand, with one-hot tokens and positions and hard attention, it works on any text at
once; nothing is learned.

Take a start token, $T$ random tokens out of $V$, and then the first of them again. The second token of the text is
right. The present token stood before $k = 1 + \mathrm{Bin}(T - 1, 1/V)$ places, one of which is the right one. Equal
scores share the weight, so the right place gets $1/k$, whose mean is

$$m = \mathbb E\,\frac1{1 + \mathrm{Bin}(T - 1, p)} = \frac{1 - (1 - p)^T}{T p}, \qquad p = \frac1V$$

What the other places say is right by chance, so $P \approx m + (1 - m)/V$. (Not exactly: where they are right tells a
little about $k$. The prediction sums over the tokens that matter.) One layer alone can match the present token, but
not the one before: it finds the token itself, which is right by chance, $1/V$.

It stops being true when the tokens of a text depend on each other: where $A$ is often followed by $B$, the other
places help as well.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwork.inspection import record
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, legend_outside, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, seeded
from headwork.layers import MultiHeadAttention

HARD = 1e4
"""A beta so large that the best score takes all; equal ones share."""
CHUNK = 2_000


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Random texts of several lengths over several vocabularies, and how far back the first layer looks."""

    lengths: tuple[int, ...] = (8, 16, 32)
    vocabularies: tuple[int, ...] = (8, 16)
    n_texts: int = 20_000
    layers: Literal["both", "second alone"] = "both"
    back: int = 1


@dataclass(frozen=True)
class Result:
    """The mean over the texts, with its standard error: weight of the right place, probability of the right token."""

    setup: Setup
    weight: Float[Tensor, "vocabulary length 2"]
    right: Float[Tensor, "vocabulary length 2"]
    one_layer: Float[Tensor, "vocabulary 2"]


@seeded
@torch.no_grad()
def run(setup: Setup) -> Result:
    found = {
        (vocab, length): _read(setup, vocab, length, one_layer=setup.layers == "second alone")
        for vocab in setup.vocabularies
        for length in setup.lengths
    }
    weight, right = (
        torch.stack([torch.stack([_mean(found[v, t][i]) for t in setup.lengths]) for v in setup.vocabularies])
        for i in range(2)
    )
    alone = [_read(setup, vocab, max(setup.lengths), one_layer=True)[1] for vocab in setup.vocabularies]
    return Result(setup, weight, right, torch.stack([_mean(seen) for seen in alone]))


def _mean(seen: Float[Tensor, "text"]) -> Float[Tensor, "2"]:
    """With its standard error."""
    return torch.stack([seen.mean(), seen.std() / len(seen) ** 0.5])


def _read(
    setup: Setup, vocab: int, length: int, *, one_layer: bool
) -> tuple[Float[Tensor, "text"], Float[Tensor, "text"]]:
    """The weight of the place after the first token, and the probability of the right token, for each text."""
    n = length + 2
    before, match = _look_back(vocab + 1, n, setup.back), _find(vocab + 1, n, present=one_layer)
    weight, right = [], []
    for size in [CHUNK] * (setup.n_texts // CHUNK) + [setup.n_texts % CHUNK]:
        if not size:
            continue
        text = torch.randint(vocab, (size, length))
        start = torch.full((size, 1), vocab)
        x = _embed(torch.cat([start, text, text[:, :1]], 1), vocab + 1)
        x = x if one_layer else x + before(x, causal=True)
        with record(match, "weights") as seen:
            out = match(x[:, -1:], x)[:, 0]
        weight.append(seen["weights"][:, 0, 0, 2])
        right.append(out.gather(1, text[:, 1:2])[:, 0])
    return torch.cat(weight), torch.cat(right)


def _embed(text: Int[Tensor, "text token"], vocab: int) -> Float[Tensor, "text token d"]:
    """The token, a slot for the token before, and the position, each as one-hot."""
    token = F.one_hot(text, vocab).double()
    place = torch.eye(text.shape[1], dtype=torch.float64).expand(len(text), -1, -1)
    return torch.cat([token, torch.zeros_like(token), place], -1)


def _look_back(vocab: int, n: int, back: int) -> MultiHeadAttention:
    """Position i asks for position i - back, and its token goes to the slot beside the present token."""
    layer = _empty(2 * vocab + n, d_head=n, d_value=vocab)
    layer.query.get_parameter("weight")[:, 2 * vocab :] = torch.eye(n).roll(-back, 0)
    layer.key.get_parameter("weight")[:, 2 * vocab :] = torch.eye(n)
    layer.value.get_parameter("weight")[:, :vocab] = torch.eye(vocab)
    layer.out.weight[vocab : 2 * vocab] = torch.eye(vocab)
    return layer


def _find(vocab: int, n: int, *, present: bool) -> MultiHeadAttention:
    """The present token asks for places whose token before (or `present` token) is the same, and copies there."""
    layer = _empty(2 * vocab + n, d_head=vocab, d_value=vocab)
    layer.query.get_parameter("weight")[:, :vocab] = torch.eye(vocab)
    layer.key.get_parameter("weight")[:, slice(0, vocab) if present else slice(vocab, 2 * vocab)] = torch.eye(vocab)
    layer.value.get_parameter("weight")[:, :vocab] = torch.eye(vocab)
    layer.out.weight[:vocab] = torch.eye(vocab)
    return layer


def _empty(d_model: int, d_head: int, d_value: int) -> MultiHeadAttention:
    layer = MultiHeadAttention(d_model, 1, d_head=d_head, d_value=d_value, bias=False, beta=HARD).double()
    for weight in layer.parameters():
        weight.zero_()
    return layer


def predict_weight(length: int, vocab: int) -> float:
    return vocab / length * (1 - (1 - 1 / vocab) ** length)


def predict_probability(length: int, vocab: int) -> float:
    """The weight of the right place, and the mean of what the others say: S / k; b_i = 1 where token i is the first.

    S = sum over j = 3 .. T of b_(j-1) [token j is token 2], and b_T b_2 for the last place, which says the first token.
    """
    p = 1 / vocab

    def share(special: tuple[int, ...], n_rest: int) -> float:
        """Probability of these bits times E[1/k], the other n_rest bits being random."""
        ones = 1 + sum(special)
        mean = sum(math.comb(n_rest, i) * p**i * (1 - p) ** (n_rest - i) / (ones + i) for i in range(n_rest + 1))
        return math.prod(p if bit else 1 - p for bit in special) * mean

    def says(second: int, here: int) -> float:
        """The probability that a token is the second one, if we know of both whether they are the first one."""
        return float(here) if second else (1 - here) / (vocab - 1)

    total = predict_weight(length, vocab) + share((1, 1), length - 3)
    for here in (0, 1):
        total += share((1, here), length - 3) * says(1, here)  # j = 3: the token before it is token 2
        total += (length - 3) * sum(share((second, 1, here), length - 4) * says(second, here) for second in (0, 1))
    return total


def verdict(result: Result) -> Verdict:
    setup = result.setup
    weights, probabilities = [], []
    for row, vocab in enumerate(setup.vocabularies):
        for column, length in enumerate(setup.lengths):
            case = f"T = {length}, V = {vocab}"
            m, mean_k = predict_weight(length, vocab), 1 + (length - 1) / vocab
            off = vocab / length * (1 - (1 - 1 / vocab) ** (length - 1))
            seen, error = result.weight[row, column].tolist()
            near = {"1 / E[k]": 1 / mean_k} | ({"an exponent of T - 1": off} if length <= vocab else {})
            weights.append(about(f"weight of the right place, {case}", m, seen, sd=error, near=near))
            seen, error = result.right[row, column].tolist()
            near = {"1 / E[k]": 1 / mean_k + (1 - 1 / mean_k) / vocab} | (
                {"nothing by chance": m} if length >= vocab else {}
            )
            what = f"probability of the right token, {case}"
            probabilities.append(about(what, predict_probability(length, vocab), seen, sd=error, near=near))
    alone = [
        about(f"one layer alone, V = {v}", 1 / v, seen, sd=error, near={"one token of V / 2": 2 / v})
        for v, (seen, error) in zip(setup.vocabularies, result.one_layer.tolist(), strict=True)
    ]
    return Verdict(
        (*probabilities, *weights, *alone),
        why="The first layer brings A to the place of B; only then can the second find B by asking for A.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="Two layers continue a text that repeats; one layer guesses")
    lengths = range(min(setup.lengths), max(setup.lengths) + 1)
    for row, (vocab, marker) in enumerate(zip(setup.vocabularies, MARKERS, strict=False)):
        expected = [predict_probability(t, vocab) for t in lengths]
        ax.plot(lengths, expected, **PREDICTED | {"label": "" if row else "predicted"})
        ax.axhline(1 / vocab, color="0.6", linewidth=0.8, zorder=0)
        ax.plot(
            setup.lengths,
            result.right[row, :, 0].numpy(),
            **MEASURED | {"marker": marker, "label": f"measured, V = {vocab}"},
        )
        style = MEASURED | {"marker": marker, "markerfacecolor": "0.6", "label": f"measured, one layer, V = {vocab}"}
        ax.plot(max(setup.lengths), result.one_layer[row, 0].item(), **style)
    ax.set(xlabel="random tokens T before the repetition", ylabel="probability of the right token", ylim=(0, 1))
    ax.set_xticks(setup.lengths, [str(length) for length in setup.lengths])
    legend_outside(ax)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    paper="Olsson et al. 2022, In-context learning and induction heads (arXiv:2209.11895); Elhage et al. 2021, "
    "A mathematical framework for Transformer circuits",
    setup=Setup(),
    small=Setup(lengths=(6,), vocabularies=(4,), n_texts=4_000),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "the second layer alone": {"layers": "second alone"},
        "a first layer that looks two tokens back": {"back": 2},
    },
    confidence="The tolerance is 5 standard deviations (SD) of the mean over the texts.",
)
