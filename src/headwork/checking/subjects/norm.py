"""LayerNorm and RMSNorm."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headwork.checking import equations
from headwork.checking.calling import Candidate, pick, role_of
from headwork.checking.names import SIZE_NAMES
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.subjects.blocks import flat
from headwork.checking.subjects.simple import Target, ways, works
from headwork.checking.wiring import norms

EPS = (1e-5, 1e-6, 1e-12, 1e-8, 1e-3, 1e-9, 1e-7, 1e-10, 1e-4, 0.0)
GIVEN_EPS = 0.05
D = 12
AXIS = ("variance", "mean")
SHARED = (
    Mistake("axis", "tokens", "It normalises over the tokens, not over the width of each token.", "Look at the axis.", "Which numbers share a mean?", AXIS, "layer-norm-of-a-token"),
    Mistake("axis", "batch", "It normalises over the batch: examples change each other.", "Look at the axis.", "Which numbers share a mean?", AXIS, "layer-norm-of-a-token"),
    Mistake("axis", "all but the batch", "It normalises over tokens and width together: each token should have its own mean and deviation.", "Look at the axis.", "Which numbers share a mean?", AXIS, "layer-norm-of-a-token"),
    Mistake("axis", "everything", "It normalises over the whole tensor, batch included.", "Look at the axis.", "Which numbers share a mean?", AXIS, "layer-norm-of-a-token"),
    Mistake("form", "eps outside", "eps is added outside of the root: sqrt(var) + eps, where sqrt(var + eps) is meant.", "Look at eps.", "Is it added to the variance or to the deviation?", ("eps", "root"), "length-after-layer-norm"),
    Mistake("form", "no eps", "eps is missing: a constant token divides by zero.", "Look at the denominator.", "What if all numbers of a token are equal?", ("root", "variance"), "length-after-layer-norm"),
    Mistake("form", "no root", "It divides by the variance, not by its root.", "Look at the denominator.", "What is the unit of a variance?", ("eps", "variance", "return"), "length-after-layer-norm"),
    Mistake("form", "eps squared", "eps is squared.", "Look at eps.", "How large is it in the denominator?", ("eps",), None),
    Mistake("form", "sum", "It divides by the root of the sum of squares, where the mean is meant: the result has length 1, not sqrt(d).", "Look at the denominator.", "How long is a normalised token?", ("sum", "mean", "variance"), "length-after-layer-norm"),
    Mistake("gain", "not used", "The gain is there but not used.", "Look at the last line.", "Which parameter gets no gradient?", ("return",), None),
    Mistake("gain", "divided", "It divides by the gain instead of multiplying with it.", "Look at the gain.", "What does a gain of 2 do?", ("affine", "return"), None),
)  # fmt: skip
LAYER_MISTAKES = (
    *SHARED,
    Mistake("form", "unbiased", "The variance is the unbiased one (divided by d - 1): LayerNorm divides by d (torch.var has unbiased=True by default).", "Look at the variance.", "Is it divided by d or by d - 1?", ("variance",), "layer-norm-of-a-token"),
    Mistake("form", "no eps, unbiased", "The deviation is the unbiased one (divided by d - 1), and eps is missing.", "Look at the variance.", "Is it divided by d or by d - 1?", ("variance",), "layer-norm-of-a-token"),
    Mistake("form", "no root, unbiased", "It divides by the unbiased variance, not by the root of the biased one.", "Look at the denominator.", "What is the unit of a variance?", ("variance",), "length-after-layer-norm"),
    Mistake("form", "not centred", "The mean is not subtracted from the numerator.", "Look at the numerator.", "What is the mean of a normalised token?", ("denominator", "return", "variance"), "layer-norm-of-a-token"),
    Mistake("form", "mean square", "The denominator is the root of the mean square of x itself: the mean must be subtracted there too.", "Look at the variance.", "Is it the variance that you compute?", ("variance",), "layer-norm-of-a-token"),
    Mistake("offset", "not used", "The offset is there but not used.", "Look at the last line.", "Which parameter gets no gradient?", ("return",), None),
    Mistake("offset", "subtracted", "The offset is subtracted, and should be added.", "Look at the offset.", "What is its sign?", ("affine", "return"), None),
    Mistake("gain", "bias first", "The offset is added before the gain: it is scaled too.", "Look at the last line.", "In which order are gain and offset applied?", ("affine", "return"), None),
    Mistake("gain", "exchanged", "Gain and offset are exchanged.", "Look at the last line.", "Which one starts at 1?", ("affine", "return"), None),
)  # fmt: skip
RMS_MISTAKES = (
    *SHARED,
    Mistake("form", "centred", "The mean is subtracted: that is LayerNorm; RMSNorm leaves the mean.", "Look at the numerator.", "Does RMSNorm know the mean?", ("mean", "variance"), "layer-norm-of-a-token"),
    Mistake("form", "variance", "It divides by the standard deviation: RMSNorm divides by the root of the mean square, without subtracting the mean.", "Look at the denominator.", "Is it var or the mean of x squared?", ("variance",), "layer-norm-of-a-token"),
    Mistake("form", "mean of sizes", "It divides by the mean of the absolute values, not by the root of the mean square.", "Look at the denominator.", "What does RMS stand for?", ("absolute", "mean"), None),
    Mistake("form", "multiplied", "It multiplies by the root of the mean square instead of dividing by it.", "Look at the last product.", "Is it sqrt or rsqrt?", ("multiplied", "root"), None),
)  # fmt: skip


def readings(candidate: Candidate) -> Iterator[Reading]:
    for target, _, assignment in ways(
        candidate,
        (("x",), ("x", "weight"), ("x", "weight", "bias")),
        ("weight", "bias", "eps"),
        {"d": D},
        {"eps": GIVEN_EPS},
    ):
        taken = set(assignment.roles.values())
        for rank, said in ((3, "batch, token, width"), (2, "token, width")):

            def run(
                case: Case, target: Target = target, assignment: Any = assignment, taken: set[str] = taken
            ) -> dict[str, Tensor]:
                result = target.call(assignment, {k: v for k, v in case.items() if k in taken})
                found = pick(result, case["x"].shape)
                return {} if found is None else {"output": found[1]}

            facts = {"rank": rank, "taken": taken, "seed": candidate.program.first_seed, "named": assignment.named}
            reading = Reading(
                (assignment.said([p["name"] for p in candidate.parameters]), said),
                run,
                0.1 * (rank != 3),
                tuple(wirings(target, taken)),
                facts,
            )
            if works(run, cases(reading, 0)):
                yield reading
                break


def wirings(target: Target, taken: set[str]) -> Iterator[Weights]:
    given = "eps" in taken or any(role_of(n, ("eps",), SIZE_NAMES) for n in flat(target.passed))
    numbers = target.made.facts["numbers"] if target.made is not None else {}
    kept = [v for n, v in numbers.items() if role_of(n, ("eps",), SIZE_NAMES) and isinstance(v, float)]
    own = [w for _, w in norms(target.parameters)]
    vectors = [t for t in target.parameters.values() if t.ndim >= 1]
    if len(vectors) > 2 and not own:  # what an optimizer keeps may lie beside them
        known = [t for n, t in target.parameters.items() if role_of(n, ("weight", "bias"))]
        vectors = known or vectors[:2]
    options: list[Weights] = own or [{}]
    if len(own) > 1 or (len(vectors) == 2 and not own):
        options = [{"weight": a.flatten(), "bias": b.flatten()} for a, b in itertools.permutations(vectors, 2)]
    elif vectors and not own:
        options = [{"weight": vectors[0].flatten()}]
    for w in options:
        if len(w) == 2 and set(w) == {"weight", "bias"}:
            pass
        for eps in kept or dict.fromkeys((*((GIVEN_EPS,) if given else ()), *EPS)):
            yield {**w, "eps": eps}


def cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    x = normal(2, 5, D) + 0.7
    if number == 0:
        x = x * torch.logspace(-3, 0, 5, dtype=torch.float64)[:, None]  # tokens of all lengths, so that eps is seen
    x = x if reading.facts["rank"] == 3 else x[0]
    return {"x": x, "weight": 1 + 0.3 * normal(D), "bias": normal(D), "eps": GIVEN_EPS}


def _expected(case: Case, reading: Reading, w: Weights, how: How, kind: str) -> Tensor:
    taken = reading.facts["taken"]
    weight = case["weight"] if "weight" in taken else w.get("weight")
    bias = case["bias"] if "bias" in taken else w.get("bias")
    if (how.get("gain") in ("not used", "divided", "one more") and weight is None) or (
        how.get("offset") and bias is None
    ):
        raise ValueError("there is none")
    if kind == "rms":
        return equations.rms_norm(case["x"], weight, w["eps"], how)
    return equations.layer_norm(case["x"], weight, bias, w["eps"], how)


def expected_layer(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    return _expected(case, reading, w, how, "layer")


def expected_rms(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    return _expected(case, reading, w, how, "rms")


LAYER_NORM = Subject(
    name="layer norm", title="LayerNorm", pattern=r"(?!.*(rms|add|resid|sub_?layer|pre_?norm|batch_?norm|group_?norm|instance_?norm))(.*_)?(layer_?_?norm(alization|alisation)?|ln|norm(_layer|alization)?)(_?\w*)?", mistakes=LAYER_MISTAKES,
    conventions=(Convention("form", "annotated", "the annotated transformer's norm: unbiased deviation, eps added to it"),),
    readings=readings, cases=cases, expected=expected_layer, kinds=("function", "class", "instance"), n_cases=4, certain=r"layer|ln",
)  # fmt: skip
RMS_NORM = Subject(
    name="rms norm", title="RMSNorm", pattern=r".*rms_?_?norm.*|root_mean_square.*|norm", mistakes=RMS_MISTAKES,
    conventions=(Convention("gain", "one more", "the gain is stored as weight - 1"),),
    readings=readings, cases=cases, expected=expected_rms, kinds=("function", "class", "instance"), n_cases=4, certain=r"rms|root",
)  # fmt: skip
