"""GELU in both forms, and the feed-forward network."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headwork.checking import equations
from headwork.checking.calling import Candidate, pick
from headwork.checking.layering import eps_of
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.subjects.blocks import Block, block_readings
from headwork.checking.subjects.blocks import cases as block_cases
from headwork.checking.subjects.simple import ways, works
from headwork.checking.wiring import feed_forward_wirings

TANH = ("cube", "erf")
ERF = ("erf",)
GELU_MISTAKES = tuple(
    Mistake("form", value, sentence, look, ask, point, "two-gelus")
    for value, sentence, look, ask, point in (
        ("constant", "The constant is 0.44715, and should be 0.044715.", "Look at the constants.", "How large is the cubic term?", TANH),
        ("constant, ten times too small", "The constant is 0.0044715, and should be 0.044715.", "Look at the constants.", "How large is the cubic term?", TANH),
        ("no cube", "x is squared in the tanh form, and should be cubed.", "Look at the power.", "Is the term odd or even?", TANH),
        ("cube left out", "The cubic term is missing in the tanh form.", "Look at the argument of tanh.", "Which two terms does it have?", ("pi", "erf")),
        ("cube scaled alone", "sqrt(2/pi) multiplies x only, and should multiply x + 0.044715 x^3.", "Look at the brackets.", "What does sqrt(2/pi) multiply?", TANH),
        ("root of pi/2", "The factor is sqrt(pi/2), and should be sqrt(2/pi).", "Look at the constants.", "Is it more or less than 1?", ("pi", "erf", "root")),
        ("no root of 2/pi", "The factor is 2/pi, and should be its square root.", "Look at the constants.", "Is there a root?", ("pi", "erf")),
        ("erf without root", "erf is taken of x, and should be of x / sqrt(2).", "Look at the argument of erf.", "How do erf and the normal distribution differ?", ERF),
        ("erf over 2", "erf is taken of x / 2, and should be of x / sqrt(2).", "Look at the argument of erf.", "How do erf and the normal distribution differ?", ERF),
        ("erf times root", "erf is taken of x * sqrt(2), and should be of x / sqrt(2).", "Look at the argument of erf.", "How do erf and the normal distribution differ?", ERF),
        ("no half", "The factor 1/2 is missing.", "Look at large x.", "What should gelu(10) be?", ("half",)),
        ("no half, tanh", "The factor 1/2 is missing in the tanh form.", "Look at large x.", "What should gelu(10) be?", ("half",)),
        ("no x", "The result is not multiplied by x: it is the distribution function.", "Look at large x.", "What should gelu(10) be?", ("half",)),
        ("no one", "The 1 in 1 + erf is missing.", "Look at negative x.", "What should gelu(-10) be?", ERF),
        ("minus", "It is 1 - erf, and should be 1 + erf.", "Look at the sign.", "What should gelu(10) be?", ERF),
        ("density", "x is multiplied by the normal density, and should be by the distribution function.", "Look at large x.", "What should gelu(10) be?", ERF),
        ("sigmoid", "It is x * sigmoid(1.702 x), an approximation of GELU that is off by up to 0.02.", "Compare with torch.nn.functional.gelu at x = 2.", "Which approximation is it?", ERF),
        ("relu", "It is ReLU.", "Look at negative x.", "What should gelu(-0.5) be?", ("return",)),
        ("silu", "It is SiLU, x * sigmoid(x).", "Compare at x = 1.", "Which distribution function is it?", ERF),
    )
)  # fmt: skip


def gelu_readings(candidate: Candidate) -> Iterator[Reading]:
    for target, _, assignment in ways(candidate, (("x",),)):

        def run(case: Case, target: Any = target, assignment: Any = assignment) -> dict[str, Tensor]:
            found = pick(target.call(assignment, case), case["x"].shape)
            return {} if found is None else {"output": found[1]}

        if works(run, {"x": torch.linspace(-3, 3, 24, dtype=torch.float64).view(2, 3, 4)}):
            yield Reading(("(x)",), run, facts={"seed": candidate.program.first_seed})


def gelu_cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    return {"x": torch.randn(2, 3, 4, generator=generator, dtype=torch.float64) * (2 if number != 1 else 1)}


def gelu_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    return equations.gelu(case["x"], how)


GELU = Subject(
    name="gelu", title="GELU", pattern=r"(.*_)?gelu(_.*)?|(new_|exact_|fast_)gelu.*", mistakes=GELU_MISTAKES, conventions=(Convention("form", "tanh", "by tanh"),),
    readings=gelu_readings, cases=gelu_cases, expected=gelu_expected, kinds=("function", "class", "instance"),
)  # fmt: skip

ACT = ("activation", "return")
FEED_FORWARD_MISTAKES = (
    Mistake("act", "missing", "There is no activation: two linear maps in a row are one linear map.", "Look between the two layers.", "What is the product of two matrices?", ("up", "return"), "feed-forward-is-1x1-convolution"),
    Mistake("act", "after", "The activation comes after the second layer, and should come between the two.", "Look at the order.", "Can the output be negative?", ("last activation", "return"), "feed-forward-is-1x1-convolution"),
    Mistake("act", "before", "The activation comes before the first layer, and should come between the two.", "Look at the order.", "What happens to a negative input?", ACT, "feed-forward-is-1x1-convolution"),
    Mistake("act", "twice", "There is a second activation after the second layer: the output cannot be negative.", "Look at the last line.", "Can the output be negative?", ("last activation", "return"), "feed-forward-is-1x1-convolution"),
    Mistake("act", "both", "The activation is applied to the gate and to what it gates.", "Look at the product.", "Which of the two factors is the gate?", ACT, None),
    Mistake("gated", "added", "Gate and value are added, and should be multiplied.", "Look at the gate.", "What should a closed gate do?", ("gate",), None),
    Mistake("activation", "softmax", "The activation is a softmax over the hidden units.", "Look at the activation.", "Do hidden units compete?", ACT, None),
    Mistake("activation", "sigmoid", "The activation is a sigmoid, which no Transformer uses here: ReLU or GELU is meant.", "Look at the activation.", "Is it bounded?", ACT, None),
)  # fmt: skip
ACTIVATION_CONVENTIONS = tuple(
    Convention("activation", value, said)
    for value, said in (("gelu", "GELU"), ("gelu tanh", "GELU by tanh"), ("silu", "SiLU"), ("squared relu", "squared ReLU"), ("quick gelu", "x sigmoid(1.702 x)"), ("leaky relu", "leaky ReLU"), ("tanh", "tanh"))
)  # fmt: skip


def wire(block: Block) -> list[Weights]:
    eps = 1e-5 if block.made is None else eps_of(block.made.facts)
    return [{**w, "eps": eps} for w in feed_forward_wirings(block.parameters)]


def feed_readings(candidate: Candidate) -> Iterator[Reading]:
    yield from block_readings(candidate, wire, masks={})


def feed_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    if (how.get("act") == "both" or how.get("gated")) and "gate.weight" not in w:
        raise ValueError("there is no gate")
    if how.get("wrapped") == "added and normalised" and "norm.weight" not in w:
        raise ValueError("there is no norm")
    return equations.feed_forward(case["x"], w, how)


FEED_FORWARD = Subject(
    name="feed-forward", title="feed-forward network", pattern=r".*(feed_?_?_?forward|ffn|mlp|position_?wise|swi_?_?glu|ge_?_?glu|pos_ff|ff_?(layer|block|network)).*|ff|glu",
    mistakes=FEED_FORWARD_MISTAKES,
    conventions=(*ACTIVATION_CONVENTIONS, Convention("wrapped", "added", "adds its input to the output"), Convention("wrapped", "added and normalised", "adds its input and normalises")),
    readings=feed_readings, cases=block_cases, expected=feed_expected, kinds=("class", "instance"), strict=False, n_cases=3,
)  # fmt: skip
