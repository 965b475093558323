r"""An LSTM keeps a memory for n tokens with a gate of 1 - 1/n: its gradient is the product of the forget gates.

The cell is $c_t = f_t \odot c_{t-1} + i_t \odot g_t$, so along the cell $\partial c_n/\partial c_j =
\prod_{t=j+1}^{n} f_t$. A constant bias $b$ gives $\sigma(b)^{n-j}$: like the recurrent network's $\rho^{n-j}$ it
fades exponentially, but a gate cannot exceed 1, so it never explodes, and the rate is learned. With $b = \ln(T - 1)$
the gate is $1 - 1/T$, and what is left after $T$ tokens is $(1 - 1/T)^T \approx 1/e$. PyTorch's default bias near 0
forgets half at each token; the usual $b = 1$ keeps 0.73.

A gate that reads its input, $f_t = \sigma(b + u)$ with $u$ normal of spread $s$, multiplies random factors, and the
logarithms add:

$$\mathbb E \ln \frac{\partial c_n}{\partial c_j} = (n - j)\; \mathbb E \ln \sigma(b + s z) < (n - j) \ln \sigma(b)$$

so a gate that varies forgets faster than its mean. Attention keeps $1/n$ at any distance.

It stops being true when the hidden state steers the gates strongly: then $\partial c_n/\partial c_j$ has further
paths.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwork.functional import scaled_dot_product_attention
from headwork.lab.plots import COLOURS, MARKERS, MEASURED, PREDICTED, Figure, legend_outside, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, exact, seeded


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment, smallest={"n_tokens": 3, "n_texts": 20}):
    """PyTorch's LSTM cell, biases of its forget gate, and texts to read."""

    biases: tuple[float, ...] = (0.0, 1.0, 3.0, 5.0)
    spread: float = 1.0
    n_tokens: int = 48
    d: int = 8
    n_texts: int = 50
    hidden_steers: float = 0.0
    """The size of the weights from the hidden state to the gates."""


@dataclass(frozen=True)
class Result:
    """|dc_n / dc_j| by distance, with constant gates and with gates that read; and that of attention."""

    setup: Setup
    constant: Float[Tensor, "bias distance"]
    reading: Float[Tensor, "bias 2"]
    """The mean of the logarithm over the longest distance, per token, with its standard error."""
    chrono: float
    """What is left after n tokens with a bias of ln(n - 1)."""
    attention: float
    """|dh_n / dx_1| with equal weights and values that are the tokens."""


@seeded
def run(setup: Setup) -> Result:
    constant, reading = [], []
    for bias in setup.biases:
        constant.append(_kept(setup, bias, 0.0, 1).mean((1, 2)))
        logs = _kept(setup, bias, setup.spread, setup.n_texts)[-1].log() / (setup.n_tokens - 1)
        each = logs.mean(1)
        reading.append(torch.stack([each.mean(), each.std() / setup.n_texts**0.5]))
    after = _kept(setup, math.log(setup.n_tokens - 2), 0.0, 1)[-1].mean().item()
    x = torch.randn(setup.n_tokens, setup.d, dtype=torch.float64, requires_grad=True)
    out = scaled_dot_product_attention(torch.zeros(1, setup.d, dtype=torch.float64), x, x)
    attention = torch.autograd.grad(out[0, 0], x)[0][0, 0].item()
    return Result(setup, torch.stack(constant), torch.stack(reading), after, attention)


def _kept(setup: Setup, bias: float, spread: float, n_texts: int) -> Float[Tensor, "distance text d"]:
    """dc_n / dc_j for each distance n - j = 0 .. n - 1, feature by feature, by autograd through PyTorch's cell."""
    d, n = setup.d, setup.n_tokens
    cell = nn.LSTMCell(d, d).double()
    forget = slice(d, 2 * d)  # the gates are in the order input, forget, cell, output
    with torch.no_grad():
        cell.weight_hh.mul_(setup.hidden_steers)
        cell.weight_ih[forget] = spread * torch.eye(d)
        cell.bias_ih[forget], cell.bias_hh[forget] = bias, 0.0
    x = torch.randn(n, n_texts, d, dtype=torch.float64)
    hidden = torch.zeros(n_texts, d, dtype=torch.float64)
    states = [torch.zeros(n_texts, d, dtype=torch.float64, requires_grad=True)]
    for token in x[1:]:
        hidden, state = cell(token, (hidden, states[-1]))
        states.append(state)
    return torch.stack(torch.autograd.grad(states[-1].sum(), states)[::-1])


def predict_reading(bias: float, spread: float) -> float:
    """E ln sigmoid(b + s z), by the trapezium rule."""
    z = torch.linspace(-10, 10, 40_001, dtype=torch.float64)
    density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
    return torch.trapezoid(nn.functional.logsigmoid(bias + spread * z) * density, z).item()


def verdict(result: Result) -> Verdict:
    setup, n = result.setup, result.setup.n_tokens
    distance = torch.arange(n, dtype=torch.float64)
    gates = torch.tensor([1 / (1 + math.exp(-bias)) for bias in setup.biases], dtype=torch.float64)
    curve = gates[:, None] ** distance
    off = (result.constant / curve - 1).abs().max().item()
    one_off = (result.constant / (curve * gates[:, None]) - 1).abs().min().item()
    reading = [
        about(
            f"ln of what a gate that reads keeps per token, b = {bias:g}",
            predict_reading(bias, setup.spread),
            seen,
            sd=error,
            near={
                "the gate at its mean": math.log(gate),
                "twice the variance": predict_reading(bias, 2**0.5 * setup.spread),
            },
        )
        for bias, gate, (seen, error) in zip(setup.biases, gates.tolist(), result.reading.tolist(), strict=True)
    ]
    steps = n - 1
    return Verdict(
        checks=(
            exact("|dc_n / dc_j| against sigmoid(b)^(n - j), relative", off, near={"one token more": one_off}),
            about(
                f"what is left after {steps} tokens with b = ln({steps} - 1)",
                (1 - 1 / steps) ** steps,
                result.chrono,
                near={"1/e, its limit": math.exp(-1), "b = ln T": (steps / (steps + 1)) ** steps},
            ),
            *reading,
            about("attention: |dh_n / dx_1| against 1/n", 1 / n, result.attention, near={"1/(n - 1)": 1 / (n - 1)}),
        ),
        why="Each step multiplies the memory by its gate, and by nothing else.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (ax,) = panels(title="What an LSTM's cell keeps: the product of its forget gates, never more than 1")
    distance = range(setup.n_tokens)
    for row, (bias, marker, colour) in enumerate(zip(setup.biases, MARKERS, COLOURS, strict=False)):
        gate = 1 / (1 + math.exp(-bias))
        ax.semilogy(distance, [gate**t for t in distance], **PREDICTED | {"label": "" if row else "predicted"})
        style = MEASURED | {
            "marker": marker,
            "color": colour,
            "markevery": (2 + row, 6),
            "label": f"measured, gate bias {bias:g}",
        }
        ax.semilogy(distance, result.constant[row].numpy(), **style)
    ax.axhline(1 / setup.n_tokens, color="0.6", linewidth=0.8, label="attention: 1/n")
    ax.set(xlabel="distance n - j (tokens)", ylabel="|dc_n / dc_j|", ylim=(1e-8, 3))
    legend_outside(ax)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="NYU",
    question="1.4(a)",
    setup=Setup(),
    small=Setup(biases=(0.0, 3.0), n_tokens=16, d=4, n_texts=40),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"a hidden state that steers the gates": {"hidden_steers": 3.0}},
    confidence="Constant gates are exact up to rounding; gates that read are within 5 standard deviations "
    "(SD) of the mean.",
)
