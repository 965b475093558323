r"""A recurrent network with attention learns to reverse texts, and its weights show which token each output copies.

The encoder is a recurrent network that reads a text in both directions; its states are $h_1, \dots, h_n$. The decoder,
another one, writes the text backwards; before output $i$ its state is $s_i$. Without attention all that the decoder
knows of the text has to pass through the one vector with which it starts. With attention it also reads a mean of all
states of the encoder, as Bahdanau, Cho and Bengio have it:

$$c_i = \sum_j \alpha_{ij} h_j, \qquad
\alpha_{ij} = \operatorname{softmax}_j\bigl(w \cdot \tanh(W_q s_i + W_k h_j)\bigr)$$

The score is a small network of query and key instead of their product. Nobody tells the network where to look: the loss
is that of the outputs alone. The output $i$ is the token $n + 1 - i$, so a network that uses the attention has its
largest weights on the other diagonal of the table $\alpha$: an alignment that can be read off.

Both networks learn from the same number of texts. The one without attention knows both ends of the text best, where its
encoder stopped, and the middle least; with more steps, or a wider state, it would learn that too.
"""

import copy
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from headwork.inspection import record
from headwork.lab.plots import COLOURS, MEASURED, PREDICTED, Figure, panels, series, whole_ticks
from headwork.lab.toolkit import (
    N_SD,
    Claim,
    Experiment,
    Verdict,
    about,
    at_least,
    exact,
    largest_difference,
    seeded,
)
from headwork.layers import AdditiveAttention

SPREAD = 0.012
"""The standard deviation of the lead in accuracy over seeds: measured."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """Random texts to reverse, and two networks that are alike but for the attention."""

    n_tokens: int = 10
    n_kinds: int = 10
    """Kinds of tokens."""
    d: int = 32
    n_steps: int = 300
    batch_size: int = 64
    n_unseen: int = 200
    lr: float = 1e-2
    enough: float = 0.9
    """At least so many of the outputs look most at the token that they copy."""
    attends: bool = True
    """Whether the first of the two networks has attention at all."""


@dataclass(frozen=True)
class Result:
    """The share of outputs that are right, one by one, on texts that were not seen; and the weights on them."""

    setup: Setup
    with_attention: Float[Tensor, "output"]
    without: Float[Tensor, "output"]
    weights: Float[Tensor, "text output token"]
    query: Float[Tensor, "text output d"]
    """W_q s."""
    key: Float[Tensor, "text token d"]
    """W_k h."""
    score: Float[Tensor, "d"]
    """w."""


class Recurrent(nn.Module):
    """An encoder-decoder of two recurrent networks, with or without attention between them."""

    def __init__(self, setup: Setup, *, attends: bool) -> None:
        super().__init__()
        d, self.start = setup.d, setup.n_kinds
        self.embed = nn.Embedding(setup.n_kinds + 1, d)
        self.encoder = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * d, d)
        self.decoder = nn.GRU(d, d, batch_first=True)
        self.attention = AdditiveAttention(d, 2 * d, d) if attends else None
        self.out = nn.Linear(3 * d, setup.n_kinds)

    def forward(
        self, text: Int[Tensor, "text token"], target: Int[Tensor, "text output"]
    ) -> Float[Tensor, "text output kind"]:
        """The scores of every output, after the right ones before it."""
        states, last = self.encoder(self.embed(text))
        last = torch.cat([last[0], last[1]], -1)
        before = torch.cat([torch.full_like(target[:, :1], self.start), target[:, :-1]], 1)
        own, _ = self.decoder(self.embed(before), self.bridge(last)[None])
        read = last[:, None].expand(-1, target.shape[1], -1)
        if self.attention is not None:
            read = self.attention(own, states, states)
        return self.out(torch.cat([own, read], -1))


@seeded
def run(setup: Setup) -> Result:
    first, second = _train(setup, attends=setup.attends), _train(setup, attends=False)
    text = torch.randint(setup.n_kinds, (setup.n_unseen, setup.n_tokens))
    target = text.flip(1)
    attention = first.attention or AdditiveAttention(setup.d, 2 * setup.d, setup.d)
    states, own = [], []
    first.encoder.register_forward_hook(lambda _, __, out: states.append(out[0]))
    first.decoder.register_forward_hook(lambda _, __, out: own.append(out[0]))
    with torch.no_grad():
        right, without = ((model(text, target).argmax(-1) == target).double().mean(0) for model in (first, second))
        attention = copy.deepcopy(attention).double()
        with record(attention) as seen:
            attention(own[0].double(), states[0].double(), states[0].double())
        query, key = attention.query(own[0].double()), attention.key(states[0].double())
    return Result(setup, right, without, seen["weights"].detach(), query, key, attention.score.detach())


def _train(setup: Setup, *, attends: bool) -> Recurrent:
    model = Recurrent(setup, attends=attends)
    optimiser = torch.optim.Adam(model.parameters())
    schedule = OneCycleLR(optimiser, setup.lr, total_steps=setup.n_steps + 1)
    for _ in range(setup.n_steps):
        text = torch.randint(setup.n_kinds, (setup.batch_size, setup.n_tokens))
        target = text.flip(1)
        loss = F.cross_entropy(model(text, target).flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return model


def predict_weights(
    query: Float[Tensor, "text output d"], key: Float[Tensor, "text token d"], score: Float[Tensor, "d"]
) -> Float[Tensor, "text output token"]:
    """The softmax of w . tanh(q + k), one output and one token at a time."""
    scores = [[(q + k).tanh() @ score for k in key.unbind(1)] for q in query.unbind(1)]
    return torch.stack([torch.stack(row, -1) for row in scores], 1).softmax(-1)


def predict_products(
    query: Float[Tensor, "text output d"], key: Float[Tensor, "text token d"]
) -> Float[Tensor, "text output token"]:
    """The same with the product of query and key as the score."""
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1)


def verdict(result: Result) -> Verdict:
    n, n_unseen = result.setup.n_tokens, result.setup.n_unseen
    accuracy, without = result.with_attention.mean().item(), result.without.mean().item()
    largest = result.weights.argmax(-1)
    aligned, straight = (
        (largest == at).double().mean().item() for at in (torch.arange(n - 1, -1, -1), torch.arange(n))
    )
    sd = math.sqrt((1 - 1 / n) / n / n_unseen)  # of a share of guesses, if all outputs of a text guess alike
    predicted = predict_weights(result.query, result.key, result.score)
    products = predict_products(result.query, result.key)
    return Verdict(
        checks=(
            at_least(
                "outputs whose largest weight is on the token that they copy",
                result.setup.enough,
                aligned,
                near={"by chance": about("", 1 / n, aligned, sd=sd), "in order": about("", straight, aligned, sd=sd)},
            ),
            at_least(
                f"lead of attention, in outputs right ({N_SD} deviations)",
                N_SD * SPREAD,
                accuracy - without,
                near={"no lead": about("", 0, accuracy - without, sd=SPREAD)},
            ),
            exact(
                "weights against the softmax of w . tanh(q + k)",
                largest_difference(result.weights, predicted),
                near={"the product of query and key": largest_difference(result.weights, products)},
            ),
        ),
        why="What the state of the decoder need not hold it can look up, and where it looks is the alignment.",
    )


def figure(result: Result) -> Figure:
    n = result.setup.n_tokens
    drawing, (left, right) = panels(2, title="A recurrent network reverses a text by looking at the right token")
    left.imshow(result.weights[0].numpy(), cmap="Greys", vmin=0, vmax=1)
    left.plot(range(n - 1, -1, -1), range(n), **PREDICTED | {"color": COLOURS[1], "label": "predicted"})
    left.set(xlabel="token that is read", ylabel="output", title="measured: weights for one text")
    left.legend(frameon=False, loc="upper left", fontsize=7)
    outputs = range(n)
    right.plot(outputs, result.with_attention.numpy(), **MEASURED | {"label": "measured, with attention"})
    right.plot(outputs, result.without.numpy(), **MEASURED | series("s") | {"label": "measured, without"})
    right.axhline(1 / result.setup.n_kinds, color="0.6", linewidth=0.8)
    right.text(n - 1, 1 / result.setup.n_kinds, "by chance", ha="right", va="top", fontsize=7)
    right.set(xlabel="output", ylabel="share of outputs right", ylim=(0, 1.05))
    right.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.1))
    for ax in (left, right):
        whole_ticks(ax)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="C182",
    question="1",
    setup=Setup(),
    small=Setup(n_steps=200, batch_size=32, lr=2e-2, enough=0.3),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"no attention": {"attends": False}, "attention that is not trained": {"n_steps": 1}},
    confidence="The weights are exact up to rounding; the lead is at least 5 standard deviations (SD) over seeds.",
)
