"""Scaled dot-product attention, as a function or as a module without parameters."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwork.checking import equations
from headwork.checking.calling import Assignment, Candidate, assignments, call, pick, role_of
from headwork.checking.constructing import make, numbers_read
from headwork.checking.mask_meanings import KIND_OF_RANK, MEANINGS, encode_mask, random_visible
from headwork.checking.names import SIZE_NAMES
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.runner import ProgramError, Result
from headwork.checking.subjects.blocks import weight_arguments

SCALE = ("scale", "scores")
SCALE_MISTAKES = (
    Mistake("scale", "none", "The scores are not scaled: they should be divided by the square root of the width of a head.", "Look at the scores before the softmax.", "What is the variance of a dot product of two vectors of width d?", ("scores",), "variance-of-dot-product"),
    Mistake("scale", "d_model", "The scores are scaled by the width of the model, not of the head: divide by sqrt(d_model / n_heads).", "Look at the number under the root.", "How wide are the vectors whose dot product is taken?", ("width", "scale", "scores"), "width-of-heads"),
    Mistake("scale", "d", "The scores are divided by the width of a head, not by its square root.", "Look at the scale of the scores.", "What is the standard deviation of a dot product, and what its variance?", SCALE, "variance-of-dot-product"),
    Mistake("scale", "multiplied", "The scores are multiplied by sqrt(d) instead of divided by it.", "Look at the scale of the scores.", "Should the scale make the scores larger or smaller?", SCALE, "softmax-saturates"),
    Mistake("scale", "n_key", "The scores are scaled by the number of keys, not by the width of a head.", "Look at the number under the root.", "Which axis does that size belong to?", ("width", "scale", "scores"), "variance-of-dot-product"),
    Mistake("scale", "n_query", "The scores are scaled by the number of queries, not by the width of a head.", "Look at the number under the root.", "Which axis does that size belong to?", ("width", "scale", "scores"), "variance-of-dot-product"),
    Mistake("scale", "quarter", "The scores are divided by d^(1/4): that is for queries and keys both, and here only one of them is scaled.", "Look at where the scale is applied.", "If q and k are each multiplied by d^(-1/4), what happens to their product?", SCALE, "variance-of-dot-product"),
    Mistake("scale", "d_value", "The scores are scaled by the width of the values, not of the keys.", "Look at the number under the root.", "Whose dot product is it?", ("width", "scale", "scores"), "variance-of-dot-product"),
    Mistake("scale", "n_heads", "The scores are scaled by the number of heads, not by the width of a head.", "Look at the number under the root.", "Which axis does that size belong to?", ("width", "scale", "scores"), "variance-of-dot-product"),
    Mistake("scale", "after", "The scale is applied after the softmax, to the weights: they no longer sum to 1.", "Look at the order of scale and softmax.", "What do the rows of your weights sum to?", SCALE, "softmax-saturates"),
    Mistake("scale", "after, d_model", "The weights are divided by the square root of the width of the model after the softmax: the scores should be divided, before it, and by the width of a head.", "Look at the order of scale and softmax, and at the number.", "What do the rows of your weights sum to?", SCALE, "softmax-saturates"),
    Mistake("scale", "square", "The scores are divided by d squared, not by the square root of d.", "Look at the scale of the scores.", "Is it d**0.5 or d**2?", SCALE, "variance-of-dot-product"),
)  # fmt: skip
SOFTMAX = ("softmax",)
SOFTMAX_MISTAKES = (
    Mistake("softmax", "queries", "The softmax runs over the queries: each column of the weights sums to 1, and each row should.", "Look at the softmax.", "Which axis of the weights sums to 1, and which should?", SOFTMAX, "rows-or-columns"),
    Mistake("softmax", "heads", "The softmax runs over the heads: it should run over the keys, the last axis.", "Look at the softmax.", "Which axis does its dim belong to in this layout?", SOFTMAX, "rows-or-columns"),
    Mistake("softmax", "batch", "The softmax runs over the batch: examples change each other, and no row of the weights sums to 1.", "Look at the softmax.", "Which axis does its dim belong to?", SOFTMAX, "rows-or-columns"),
    Mistake("softmax", "all", "The softmax runs over queries and keys together: the whole matrix of weights sums to 1, and each row should.", "Look at the softmax.", "What does one row of the weights sum to?", SOFTMAX, "rows-or-columns"),
    Mistake("softmax", "none", "There is no softmax: the raw scores are used as weights.", "Look at what multiplies the values.", "Are your weights positive, and do they sum to 1?", ("weights", "mix", "scores"), "kernel-smoother"),
    Mistake("softmax", "sigmoid", "A sigmoid takes the place of the softmax: the weights of a query do not sum to 1.", "Look at how scores become weights.", "What do the rows of your weights sum to?", ("sigmoid", "scores"), "kernel-smoother"),
    Mistake("softmax", "log", "The weights are log_softmax: negative numbers, where softmax is meant.", "Look at the softmax.", "Are your weights positive?", SOFTMAX, "kernel-smoother"),
    Mistake("softmax", "twice", "The softmax is taken twice: the weights are nearly uniform.", "Count the softmaxes.", "What is the softmax of numbers between 0 and 1?", SOFTMAX, "softmax-saturates"),
    Mistake("softmax", "sum", "The scores are divided by their sum, without the exponential.", "Look at how scores become weights.", "What if a score is negative?", ("sum", "mean", "scores"), "kernel-smoother"),
)  # fmt: skip
PRODUCT_MISTAKES = (
    Mistake("mixed", "keys", "The weights are multiplied with the keys, not with the values.", "Look at the last product.", "What is it that attention averages?", ("mix",), "kernel-smoother"),
    Mistake("mixed", "queries", "The weights are multiplied with the queries, not with the values.", "Look at the last product.", "What is it that attention averages?", ("mix",), "kernel-smoother"),
    Mistake("mixed_by", "transposed", "The weights are transposed before they meet the values: each value is spread instead of each query served.", "Look at the last product.", "Which axis of the weights should be summed over?", ("mix",), "attention-in-matrix-form"),
    Mistake("scores", "swapped", "Queries and keys are exchanged in the scores: row i holds the scores of key i.", "Look at the product of queries and keys.", "Which index should be the row?", ("scores",), "attention-in-matrix-form"),
    Mistake("scores", "not transposed", "The keys are not transposed in the scores: it only runs because there are as many tokens as the head is wide.", "Look at the product of queries and keys.", "What are the shapes of the two factors?", ("scores",), "attention-in-matrix-form"),
    Mistake("scores", "cosine", "The scores are cosines: queries and keys are normalised first.", "Look at the scores.", "Is it the dot product that you compute?", ("normalize", "scores"), None),
)  # fmt: skip
MASK = ("mask", "triangle", "causal")
MASK_MISTAKES = (
    Mistake("hidden", "ignored", "The mask is not applied: hidden keys are seen.", "Look for the mask.", "Where does your mask meet the scores?", ("mask", "softmax"), "which-mask-goes-where"),
    Mistake("hidden", "inverted", "The mask is inverted: what should be hidden is seen, and the rest is hidden.", "Look at the mask.", "What does True mean for the function that fills?", MASK, "which-mask-goes-where"),
    Mistake("hidden", "after", "The mask is applied after the softmax, and the weights are not normalised again: they sum to less than 1.", "Look at the order of mask and softmax.", "What do the rows of your weights sum to?", ("mask after", "mask", "triangle"), "which-mask-goes-where"),
    Mistake("hidden", "zero", "Hidden scores are set to 0, not to minus infinity: e^0 = 1, so hidden keys still get weight.", "Look at the number that hidden scores get.", "What is the softmax of 0?", ("fill", "mask"), "which-mask-goes-where"),
    Mistake("hidden", "one", "Hidden scores are set to 1, not to minus infinity: hidden keys get weight.", "Look at the number that hidden scores get.", "What is the softmax of it?", ("fill", "mask"), "which-mask-goes-where"),
    Mistake("hidden", "too small", "Hidden scores are set to -1, which hides nothing: minus infinity is meant, or -1e9.", "Look at the number that hidden scores get.", "How much weight does it leave?", ("fill", "mask"), "which-mask-goes-where"),
    Mistake("hidden", "plus", "Hidden scores are set to +1e9: everything goes to what should be hidden.", "Look at the sign of the number that hidden scores get.", "Where does the softmax put its weight?", ("fill", "mask"), "which-mask-goes-where"),
    Mistake("hidden", "added", "The mask is added to the scores as 0 and 1: hidden keys are only a little less visible.", "Look at how the mask meets the scores.", "What must be added to a score to hide it?", ("fill", "mask"), "which-mask-goes-where"),
    Mistake("mask_of", "another sentence", "The mask of another sentence is used: the batch is in another order in the mask than in the scores.", "Look at the shape of the mask.", "Which sentence does row 0 of the mask belong to?", MASK, "which-mask-goes-where"),
    Mistake("mask_of", "folded otherwise", "The mask of another sentence is used: the heads are folded into the batch in one order, and the mask is repeated in the other (repeat where repeat_interleave is meant).", "Look at how the mask is repeated for the heads.", "Which sentence and head is entry 1 of the folded batch?", ("repeat", "mask"), "which-mask-goes-where"),
    Mistake("mask_of", "first sentence", "The mask of the first sentence is used for all of them.", "Look at the batch axis of the mask.", "What if two sentences have different lengths?", MASK, "which-mask-goes-where"),
    Mistake("mask_of", "queries", "The mask is applied to the queries: its two axes are exchanged.", "Look at the axes of the mask.", "Is it row or column that a padded key should lose?", MASK, "which-mask-goes-where"),
)  # fmt: skip
CAUSAL = ("triangle", "causal", "mask")
CAUSAL_MISTAKES = (
    Mistake("causal", "one ahead", "One future token gets through: position 3 sees position 4 (the diagonal is off by one).", "Look at the diagonal of the causal mask.", "What does the first token see?", CAUSAL, "causal-mask-leaks-nothing"),
    Mistake("causal", "itself hidden", "A token cannot see itself: the diagonal is hidden too (off by one), and the first token sees nothing.", "Look at the diagonal of the causal mask.", "What does the first token see?", CAUSAL, "causal-mask-leaks-nothing"),
    Mistake("causal", "future", "The causal mask is inverted: a token sees itself and the future, not the past.", "Look at the causal mask.", "What does the last token see?", CAUSAL, "causal-mask-leaks-nothing"),
    Mistake("causal", "future only", "The causal mask is inverted: a token sees only the future.", "Look at the causal mask.", "What does the last token see?", CAUSAL, "causal-mask-leaks-nothing"),
)  # fmt: skip
CAUSAL_CONVENTIONS = (
    Convention("causal", "past", "hides the future by itself"),
    Convention("aligned", "first key", ""),
)  # fmt: skip


def aligned_only_if_causal(how: How) -> bool:
    return "aligned" not in how or "causal" in how


MISTAKES = (*SCALE_MISTAKES, *SOFTMAX_MISTAKES, *PRODUCT_MISTAKES, *MASK_MISTAKES, *CAUSAL_MISTAKES)
NO_CAUSAL = Mistake("causal", "missing", "The future is not hidden: its name says causal, and every position sees every other.", "Look for the causal mask.", "What does position 0 see?", ("softmax", "scores"), "causal-mask-leaks-nothing")  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where the axes of "batch head token d" go; `batch` and `heads` are the sizes that fit."""

    said: str
    batch: int
    heads: int
    encode: Callable[[Tensor], Tensor]
    decode: Callable[[Tensor, int, int], Tensor]
    ranks: Sequence[str]


FULL = ("b1qk", "bqk", "qk", "b11k", "bhqk", "bk", "b1k")
LAYOUTS = (
    Layout("batch, head, token, width", 2, 3, lambda t: t, lambda t, b, h: t, FULL),
    Layout("batch, token, width", 2, 1, lambda t: t[:, 0], lambda t, b, h: t[:, None], ("bqk", "qk", "b1k", "bk", "1qk")),
    Layout("token, width", 1, 1, lambda t: t[0, 0], lambda t, b, h: t[None, None], ("qk", "k")),
    Layout("batch, token, head, width", 2, 3, lambda t: t.transpose(1, 2).contiguous(), lambda t, b, h: t.transpose(1, 2), FULL),
    Layout("heads folded into the batch, token, width", 2, 3, lambda t: t.flatten(0, 1), lambda t, b, h: t.view(b, h, *t.shape[1:]), ("nqk", "bqk", "qk", "bk")),
    Layout("token, batch, width", 2, 1, lambda t: t[:, 0].transpose(0, 1).contiguous(), lambda t, b, h: t.transpose(0, 1)[:, None], ("bqk", "qk", "bk")),
    Layout("width, token", 1, 1, lambda t: t[0, 0].T.contiguous(), lambda t, b, h: t.T[None, None], ("qk", "k")),
)  # fmt: skip
WIDTH = 11
SHAPES = {
    "cross": (5, 7, 11, 13),
    "self": (5, 5, 11, 13),
    "one width": (5, 7, 11, 11),
    "same": (5, 5, 11, 11),
    "square": (11, 11, 11, 11),
}
"""Queries, keys, width, width of the values: as different as the program allows."""


def widths(candidate: Candidate) -> list[int]:
    """Widths of a head that the program was written for, as its numbers and defaults say, and the usual one."""
    numbers = numbers_read(candidate)
    optional = [p for p in candidate.facts.get("init") or [] if isinstance(p["default"], int | float)]
    numbers |= {p["name"]: p["default"] for p in optional if role_of(p["name"], ("d_head",), SIZE_NAMES)}
    roles = {name: role_of(name, ("n_heads", "d_head", "d_model", "temperature"), SIZE_NAMES) for name in numbers}
    of_role = {role: numbers[name] for name, role in roles.items()}
    found: list[float] = []
    if "d_model" in of_role and "n_heads" in of_role:
        found.append(of_role["d_model"] // of_role["n_heads"])
    found += [of_role[role] for role in ("d_head", "d_model") if role in of_role]
    if "temperature" in of_role:  # to divide by, or to multiply with
        found.append(round(max(of_role["temperature"], 1 / of_role["temperature"]) ** 2))
    return list(dict.fromkeys([*(int(n) for n in found if 2 <= n <= 1024), WIDTH]))


def attention_case(layout: Layout, shape: str, mask_kind: str, seed: int, width: int = WIDTH) -> Case:
    generator = torch.Generator().manual_seed(seed)
    n_query, n_key, d, d_value = (width if n == WIDTH else n for n in SHAPES[shape])

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    b, h = layout.batch, layout.heads
    q, k, v = normal(b, h, n_query, d), normal(b, h, n_key, d), normal(b, h, n_key, d_value)
    if mask_kind == "one padding":
        visible = random_visible("padding", 1, n_query, n_key, generator)
        assert visible is not None
        visible = visible.expand(b, 1, n_query, n_key).contiguous()
    else:
        visible = random_visible(mask_kind, b, n_query, n_key, generator)
    return {"q": q, "k": k, "v": v, "visible": visible}


def cases(reading: Reading, number: int) -> Case:
    facts = reading.facts
    kind = facts["mask kind"]
    if number % 2 == 1 and facts["mask optional"]:
        kind = "none"
    shape = facts["shape"]
    if number == 2 and shape == "cross":
        shape = "self"
    return attention_case(facts["layout"], shape, kind, facts["seed"] + number, facts["width"])


def smaller(layout: Layout, shape: str, mask_kind: str, width: int) -> Iterator[Case]:
    """Whole numbers, few of them; axes of different sizes, so that output and weights are not confused."""
    n_key = 2 if shape in ("cross", "one width") else 3
    n_query = 3
    for b, h in ((1, 1), (1, min(2, layout.heads)), (min(2, layout.batch), 1)):
        for kind in dict.fromkeys(("none", mask_kind)):
            for d in (1, 2) if width == WIDTH else (width,):
                generator = torch.Generator().manual_seed(3)
                q, k, v = (
                    torch.randint(0, 4, (b, h, n, d), generator=generator).double() for n in (n_query, n_key, n_key)
                )
                masks = {"none": None, "one padding": "padding"}
                name = masks.get(kind, kind)
                visible = None if name is None else random_visible(name, b, n_query, n_key, generator)
                yield {"q": q, "k": k, "v": v, "visible": visible}


def expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    how = {**how, "blind": "anything"}
    if reading.facts["returns"] == "weights":
        return equations.attention_weights(case["q"], case["k"], case["visible"], how)
    return equations.attention(case["q"], case["k"], case["v"], case["visible"], how)


def readings(candidate: Candidate) -> Iterator[Reading]:
    if not weight_arguments(candidate):
        for width in widths(candidate):
            yield from _of_width(candidate, width)


def _of_width(candidate: Candidate, d: int) -> Iterator[Reading]:
    targets: list[str | int] = [candidate.name]
    if candidate.kind != "function":
        sizes = {"d_head": d, "d_model": d, "temperature": math.sqrt(d), "n_tokens": 12}
        targets = [made.id for made, _ in make(candidate, sizes)]
    wholes: list[tuple[str, ...]] = [("q", "k", "v"), ("q", "k")]
    found = False
    scaled = any(
        role_of(p["name"], ("q", "k", "v", "mask", "scale")) == "scale" and not p["optional"]
        for p in candidate.parameters
    )
    for roles in wholes:
        for scale in (math.sqrt(d), 1 / math.sqrt(d), d):
            fixed = {"dropout": None, "flag": None, "scale": scale if scaled else None, "causal": None}
            for assignment in assignments(candidate.parameters, roles, ("mask",), fixed):
                for target in targets:
                    for reading in _readings(candidate, target, assignment, roles, d):
                        found = True
                        yield reading
            if not scaled:
                break
        if found:
            return


def _readings(
    candidate: Candidate, target: str | int, assignment: Assignment, roles: Sequence[str], width: int
) -> Iterator[Reading]:
    names = [p["name"] for p in candidate.parameters]
    mask_name = next((p for p, r in assignment.roles.items() if r == "mask"), None)
    returns = "output" if "v" in roles else "weights"
    for shape in SHAPES:
        any_works, n_layouts = False, 0
        for layout in LAYOUTS:
            if n_layouts == 2:
                return
            works = _try(candidate, target, assignment, layout, shape, width, None, None, returns)
            if works is None and mask_name is None:
                continue
            said = (assignment.said(names), layout.said if width == WIDTH else f"{layout.said} of {width}")
            facts = {
                "width": width,
                "layout": layout,
                "shape": shape,
                "returns": returns,
                "seed": candidate.program.first_seed,
                "mask optional": works is not None,
                "target": target,
            }
            if mask_name is None:
                any_works = True
                yield _reading(
                    candidate, target, assignment, (*said, "no mask"), {**facts, "mask kind": "none"}, None, works
                )
                continue
            n_layouts += works is not None
            if works is not None:
                bare = {**facts, "mask kind": "none", "partial": True}
                yield _reading(candidate, target, assignment, (*said, "its mask was not understood"), bare, None, works)
            for meaning_said, meaning in MEANINGS.items():
                for rank in layout.ranks:
                    answer = _try(candidate, target, assignment, layout, shape, width, meaning, rank, returns)
                    if answer is None:
                        continue
                    any_works = True
                    kind = "padding" if meaning == "lengths" else KIND_OF_RANK[rank]
                    axes = ", ".join(
                        {"b": "batch", "q": "query", "k": "key", "h": "head", "n": "batch x head"}.get(c, "1")
                        for c in rank
                    )
                    how = (*said, f"mask [{axes}]: {meaning_said}")
                    yield _reading(
                        candidate,
                        target,
                        assignment,
                        how,
                        {**facts, "mask kind": kind, "meaning": meaning, "general": kind == "each"},
                        (meaning, rank),
                        answer,
                    )
        if any_works:
            return


def _values(case: Case, layout: Layout, mask: tuple[str, str] | None, returns: str) -> dict[str, Any] | None:
    values = {role: layout.encode(case[role]) for role in ("q", "k", "v")}
    if mask is not None and case["visible"] is not None:
        encoded = encode_mask(case["visible"], *mask, case["q"].shape[1])
        if encoded is None:
            return None
        values["mask"] = encoded
    return values


def _decode(result: Result, case: Case, layout: Layout, returns: str) -> dict[str, Tensor]:
    (b, h, n_query, _), n_key = case["q"].shape, case["k"].shape[2]
    answer: dict[str, Tensor] = {}
    blank = torch.zeros(b, h, n_query, case["v"].shape[-1])
    found = pick(result, layout.encode(blank).shape) if returns == "output" else None
    if found is not None:
        answer["output"] = layout.decode(found[1], b, h)
    square = torch.zeros(b, h, n_query, n_key)
    shapes = {
        tuple(layout.encode(square).shape),
        tuple(square.shape),
        tuple(square.flatten(0, 1).shape),
        tuple(square.squeeze().shape),
    }
    for shape in shapes:
        weights = pick(result, shape, attributes=returns == "output")
        if weights is not None and weights[1].numel() == square.numel() and (found is None or weights[0] != found[0]):
            answer["weights"] = weights[1].reshape(square.shape)
            break
    if returns == "weights" and "weights" in answer:
        answer["output"] = answer["weights"]
    return answer


def _try(
    candidate: Candidate,
    target: str | int,
    assignment: Assignment,
    layout: Layout,
    shape: str,
    width: int,
    meaning: str | None,
    rank: str | None,
    returns: str,
) -> dict[str, Tensor] | None:
    mask = (meaning, rank) if meaning is not None and rank is not None else None
    kind = "none" if mask is None else "padding" if meaning == "lengths" else KIND_OF_RANK[mask[1]]
    case = attention_case(layout, shape, kind, 1000, width)
    try:
        answer = run(candidate, target, assignment, case, layout, mask, returns)
    except ProgramError as error:
        if error.is_final:
            raise
        return None
    return answer if "output" in answer else None


def run(
    candidate: Candidate,
    target: str | int,
    assignment: Assignment,
    case: Case,
    layout: Layout,
    mask: tuple[str, str] | None,
    returns: str,
) -> dict[str, Tensor]:
    values = _values(case, layout, mask, returns)
    if values is None:
        return {}
    if "mask" not in values and mask is None:
        name = next((p for p, r in assignment.roles.items() if r == "mask"), None)
        required = any(p["name"] == name and not p["optional"] for p in candidate.parameters)
        if required:
            values["mask"] = None
    return _decode(call(candidate, target, assignment, values), case, layout, returns)


def _reading(
    candidate: Candidate,
    target: str | int,
    assignment: Assignment,
    said: tuple[str, ...],
    facts: dict[str, Any],
    mask: tuple[str, str] | None,
    answer: dict[str, Tensor] | None,
) -> Reading:
    returned = (
        "returns (output, weights)"
        if answer and "weights" in answer and facts["returns"] == "output"
        else f"returns the {facts['returns']}"
    )
    facts["smaller"] = lambda: smaller(facts["layout"], facts["shape"], facts["mask kind"], facts["width"])
    cost = 0.0 if assignment.named else 0.5 + 0.1 * (list(assignment.roles.values())[:3] != ["q", "k", "v"])
    cost += 0.05 * LAYOUTS.index(facts["layout"])
    if mask is not None:
        cost += 0.01 * list(MEANINGS.values()).index(mask[0]) + 0.001 * facts["layout"].ranks.index(mask[1])
    return Reading(
        (*said, returned),
        lambda case: run(candidate, target, assignment, case, facts["layout"], mask, facts["returns"]),
        cost,
        facts=facts,
    )


SUBJECT = Subject(
    name="attention",
    title="scaled dot-product attention",
    pattern=r"(masked_|my_|base_|causal_|self_|cross_|single_head_|simple_|basic_)*(scaled_?)?(dot_?)?(prod(uct)?_?)?attention(_?(function|fn|weights|scores|head|mechanism|op|forward|v\d|\d))?|sdpa?|.*scaled_?dot.*|attend|.*dot_?product_?attention.*|attn|compute_attention.*|calc_attention.*|attention_.*",
    mistakes=tuple(m for m in MISTAKES if m.value not in ("d_model", "after, d_model")),
    conventions=CAUSAL_CONVENTIONS,
    readings=readings,
    cases=cases,
    expected=expected,
    kinds=("function", "class", "instance"),
    reads=aligned_only_if_causal,
)
