"""Gaussian attention on a grid: `softmax(-alpha |key - query - centre|^2)`."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headwork.checking import equations
from headwork.checking.calling import Candidate, role_of, tensors_of
from headwork.checking.names import SIZE_NAMES
from headwork.checking.option import Case, How, Mistake, Reading, Subject, Weights
from headwork.checking.subjects.simple import Target, ways, works

ROWS, COLUMNS, HEADS, D = 4, 5, 3, 7


def cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    heads = 1 if reading.facts["one"] else HEADS
    centre = torch.randn(heads, 2, generator=generator, dtype=torch.float64)
    alpha = 0.3 + torch.rand(heads, generator=generator, dtype=torch.float64)
    x = torch.randn(2, ROWS, COLUMNS, D, generator=generator, dtype=torch.float64)
    return {"x": x, "centre": centre, "alpha": alpha, "rows": ROWS, "columns": COLUMNS}


def class_readings(candidate: Candidate) -> Iterator[Reading]:
    """A module that is made of grid, centres and alphas, and returns scores or weights without an input.

    A Delta is that of the ETH sheet, query - key: minus the centre.
    """
    names = {
        role_of(p["name"], ("grid", "rows", "columns", "centre", "alpha"), SIZE_NAMES): p["name"]
        for p in candidate.facts.get("init") or []
    }
    if not {"centre", "alpha"} <= set(names):
        return

    def run(case: Case) -> dict[str, Tensor]:
        centre = -case["centre"] if "delta" in names["centre"].lower() else case["centre"]
        values = {**case, "centre": centre, "grid": (ROWS, COLUMNS)}
        made = candidate.program.make(candidate.name, (), {n: values[r] for r, n in names.items() if r is not None})
        h, n = len(case["alpha"]), ROWS * COLUMNS
        for _, t in tensors_of(candidate.program.call(made.id)):
            if t.numel() == h * n * n:
                found = t.double().reshape(h, n, n)
                sums = found.sum(-1)
                is_weights = bool((found >= 0).all()) and bool((sums - sums.flatten()[0]).abs().max() < 1e-6)
                return {"output": found if is_weights else found.softmax(-1)}
        return {}

    facts = {"seed": candidate.program.first_seed, "one": False, "kind": "weights"}
    reading = Reading(
        (f"made of ({', '.join(names.values())})", "scores of every pair of pixels"), run, 0.0, facts=facts
    )
    if works(run, cases(reading, 0)):
        yield reading


def readings(candidate: Candidate) -> Iterator[Reading]:
    if candidate.kind == "class":
        yield from class_readings(candidate)
    sets = (("x", "centre", "alpha"), ("rows", "columns", "centre", "alpha"), ("centre", "alpha", "rows", "columns"))
    for target, roles, assignment in ways(candidate, sets):
        for one in (False, True):
            for kind in ("output", "weights"):

                def run(
                    case: Case, target: Target = target, assignment: Any = assignment, one: bool = one, kind: str = kind
                ) -> dict[str, Tensor]:
                    values = {
                        **case,
                        "centre": case["centre"][0] if one else case["centre"],
                        "alpha": float(case["alpha"][0]) if one else case["alpha"],
                    }
                    h, n = len(case["alpha"]), ROWS * COLUMNS
                    for _, t in tensors_of(target.call(assignment, values)):
                        if kind == "output" and t.numel() == 2 * h * n * D:
                            t = t.double()
                            return {
                                "output": t.reshape(2, h, ROWS, COLUMNS, D)
                                if t.shape[1:2] == (h,) or h == 1
                                else t.movedim(-2, 1).reshape(2, h, ROWS, COLUMNS, D)
                            }
                        if kind == "weights" and t.numel() == h * n * n:
                            return {"output": t.double().reshape(h, n, n)}
                    return {}

                facts = {"seed": candidate.program.first_seed, "one": one, "kind": kind}
                said = (
                    assignment.said([p["name"] for p in candidate.parameters]),
                    "one head" if one else "several heads",
                    f"returns the {kind}",
                )
                reading = Reading(said, run, 0.1 * one + 0.05 * (kind == "weights"), facts=facts)
                if works(run, cases(reading, 0)):
                    yield reading


def expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    weights = equations.gaussian_weights(ROWS, COLUMNS, case["centre"], case["alpha"], how)
    if reading.facts["kind"] == "weights":
        return weights
    flat = case["x"].reshape(2, 1, ROWS * COLUMNS, D)
    return (weights @ flat).reshape(2, len(case["alpha"]), ROWS, COLUMNS, D)


SCORE = ("alpha", "variance", "return")
SUBJECT = Subject(
    name="gaussian attention",
    title="Gaussian attention",
    pattern=r".*relative_?positional_?emb.*|.*gauss.*|quadratic_(position|att).*",
    mistakes=(
        Mistake("shift", "plus", "The sign of the shift is turned: a head should look at query + centre (with the ETH sheet's Delta = query - key: at query - Delta).", "Look at key - query - centre.", "Which pixel does a head with centre (or Delta) (1, 0) look at?", ("centre", "distance"), "theorem-1"),
        Mistake("shift", "absent", "The centre is not used.", "Look for the centre.", "What do two heads with different centres see?", ("centre", "distance"), "theorem-1"),
        Mistake("axes", "exchanged", "Row and column of the centre are exchanged.", "Look at the axes.", "Which pixel does a head with centre (1, 0) look at?", ("centre", "distance"), "theorem-1"),
        Mistake("alpha", "variance", "alpha is used as a standard deviation: the exponent is -|.|^2 / (2 alpha^2), and should be -alpha |.|^2.", "Look at alpha.", "Does a larger alpha look more sharply?", SCORE, "theorem-1"),
        Mistake("alpha", "half", "alpha is halved.", "Look at alpha.", "What is the exponent?", SCORE, None),
        Mistake("alpha", "positive", "The exponent is positive: the head looks at the furthest pixels.", "Look at the sign.", "Where is the largest weight?", SCORE, None),
        Mistake("alpha", "inverse", "The squared distance is divided by alpha, and should be multiplied.", "Look at alpha.", "Does a larger alpha look more sharply?", SCORE, None),
        Mistake("alpha", "square", "alpha is squared.", "Look at alpha.", "What is the exponent?", SCORE, None),
        Mistake("distance", "root", "The distance is not squared.", "Look at the distance.", "Is the exponent a quadratic form?", ("root", "variance"), None),
        Mistake("distance", "sizes", "The distance is the sum of absolute values, not of squares.", "Look at the distance.", "Is the exponent a quadratic form?", ("absolute", "distance"), None),
        Mistake("softmax", "queries", "The softmax runs over the queries, and should run over the keys.", "Look at the softmax.", "Which axis sums to 1?", ("softmax",), "rows-or-columns"),
        Mistake("softmax", "none", "The weights are not normalised.", "Look at the weights.", "What does a row sum to?", ("softmax", "return"), None),
    ),
    conventions=(), readings=readings, cases=cases, expected=expected, kinds=("function", "class", "instance"), n_cases=3,
)  # fmt: skip
