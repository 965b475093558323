"""The softmax of a row of numbers."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headwork.checking.calling import Candidate, pick
from headwork.checking.option import Case, How, Mistake, Reading, Subject, Weights
from headwork.checking.subjects.simple import ways, works

LOOK = "Look at the denominator."
MISTAKES = (
    Mistake("axis", "first", "The softmax runs over the first axis: the columns sum to 1, and the rows should.", LOOK, "Which axis sums to 1?", ("mean", "softmax"), "rows-or-columns"),
    Mistake("axis", "all", "The softmax is normalised over the whole tensor: everything together sums to 1, and each row should.", LOOK, "What does one row sum to?", ("mean", "softmax"), "rows-or-columns"),
    Mistake("axis", "ignored", "The axis that is asked for is ignored.", "Look at where dim is used.", "What changes when another dim is given?", ("mean", "softmax"), "rows-or-columns"),
    Mistake("form", "keepdim", "Each row is divided by the sum of another one: the sum lost its axis (keepdim=True is missing) and was aligned to the columns.", LOOK, "What shape does the sum have?", ("mean",), "rows-or-columns"),
    Mistake("form", "overflow", "It overflows for large numbers: subtract the maximum before the exponential.", "Try it with 1000.", "What is e^1000?", ("softmax",), "softmax-saturates"),
    Mistake("form", "log", "It is the logarithm of the softmax.", "Look at the last operation.", "Are the results positive?", ("log", "return"), None),
    Mistake("form", "no exp", "The numbers are divided by their sum, without the exponential.", "Look at the numerator.", "What if a number is negative?", ("mean", "return"), "kernel-smoother"),
    Mistake("form", "exp only", "The exponentials are not divided by their sum.", LOOK, "What does a row sum to?", ("return", "softmax"), "kernel-smoother"),
    Mistake("form", "sigmoid", "It is a sigmoid of each number, not a softmax over them.", "Look at the numerator and the denominator.", "What does a row sum to?", ("softmax", "return"), None),
    Mistake("form", "base 2", "The base is 2, not e.", "Look at the exponential.", "What is it raised from?", ("base 2", "return"), "temperature"),
    Mistake("form", "minus", "The sign is turned: the smallest number gets the largest weight.", "Look at the exponent.", "Which number should win?", ("softmax",), "temperature"),
    Mistake("temperature", "multiplied", "The scores are multiplied by the temperature, where they should be divided by it.", "Look at the temperature.", "Should a high temperature make it flatter?", ("scale", "softmax"), "temperature"),
    Mistake("temperature", "ignored", "The temperature is not used.", "Look at the temperature.", "What changes with it?", ("softmax",), "temperature"),
    Mistake("temperature", "after", "The result is divided by the temperature, where the scores should be.", "Look at the temperature.", "What does a row sum to?", ("scale", "return"), "temperature"),
)  # fmt: skip


def readings(candidate: Candidate) -> Iterator[Reading]:
    for target, _, assignment in ways(candidate, (("x",),), ("dim", "temperature")):
        taken = set(assignment.roles.values())
        for rank, said in ((2, "row, number"), (3, "batch, row, number"), (1, "one row")):

            def run(case: Case, target: Any = target, assignment: Any = assignment) -> dict[str, Tensor]:
                x: Tensor = case["x"]
                found = pick(target.call(assignment, {k: v for k, v in case.items() if v is not None}), x.shape)
                return {} if found is None else {"output": found[1]}

            facts = {
                "rank": rank,
                "dim": "dim" in taken,
                "temperature": "temperature" in taken,
                "seed": candidate.program.first_seed,
            }
            reading = Reading(
                (assignment.said([p["name"] for p in candidate.parameters]), said), run, 0.1 * (rank != 2), facts=facts
            )
            if works(run, cases(reading, 0)):
                yield reading
                break


def cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    shape = {1: (5,), 2: (5, 5), 3: (2, 5, 5)}[reading.facts["rank"]]
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 2
    if number == 3:
        x = x + 800  # e^800 is not a number of any computer
    dim = (-1 if number % 2 == 0 or reading.facts["rank"] == 1 else 0) if reading.facts["dim"] else None
    return {"x": x, "dim": dim, "temperature": 2.5 if reading.facts["temperature"] else None}


def expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    x, dim, temperature = case["x"], case["dim"], case["temperature"] or 1.0
    used = how.get("temperature")
    if used is not None and not reading.facts["temperature"]:
        raise ValueError("there is no temperature")
    x = x * temperature if used == "multiplied" else x if used in ("ignored", "after") else x / temperature
    axis = -1 if dim is None else dim
    if how.get("axis") == "first":
        axis = 0
    elif how.get("axis") == "ignored":
        axis = -1
    form = how.get("form")
    if how.get("axis") == "all":
        out = x.flatten().softmax(0).view(x.shape)
    elif form == "keepdim":
        e = (x - x.amax(axis, keepdim=True)).exp()
        out = e / e.sum(axis)
    elif form == "overflow":
        out = x.exp() / x.exp().sum(axis, keepdim=True)
    elif form == "log":
        out = x.log_softmax(axis)
    elif form == "no exp":
        out = x / x.sum(axis, keepdim=True)
    elif form == "exp only":
        out = (x - x.amax(axis, keepdim=True)).exp()
    elif form == "sigmoid":
        out = x.sigmoid()
    elif form == "base 2":
        out = (x * 0.6931471805599453).softmax(axis)
    elif form == "minus":
        out = (-x).softmax(axis)
    else:
        out = x.softmax(axis)
    return out / temperature if used == "after" else out


SUBJECT = Subject(
    name="softmax", title="softmax", pattern=r"(?!.*naive)(my_|stable_|row_|custom_|_)*soft_?(arg)?max(_\w+)?", mistakes=MISTAKES, conventions=(),
    readings=readings, cases=cases, expected=expected, kinds=("function", "class", "instance"),
)  # fmt: skip
