"""Functions that make masks: causal, padding, window."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headwork.checking.calling import Candidate, tensors_of
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.subjects.simple import Target, ways, works

MEANINGS = {"True or 1 = may attend": 0.0, "True or 1 = hidden": 0.01, "added, -inf = hidden": 0.02}
PAD = 0


def understand(t: Tensor, meaning: str) -> Tensor | None:
    """What may be seen, as 0 and 1."""
    values = t.double()
    if meaning.startswith("added"):
        if not bool(((values == 0) | (values < -1e3)).all()) or not bool((values < -1e3).any()):
            return None
        return (values == 0).double()
    if not bool(((values == 0) | (values == 1)).all()):
        return None
    return values if meaning.endswith("attend") else 1 - values


def mask_readings(candidate: Candidate, sets: Any, cases: Any, shapes: Any) -> Iterator[Reading]:
    for target, roles, assignment in ways(candidate, sets, (), {"pad": PAD, "positions": None}):
        for meaning, cost in MEANINGS.items():

            def run(
                case: Case, target: Target = target, assignment: Any = assignment, meaning: str = meaning
            ) -> dict[str, Tensor]:
                for _, t in tensors_of(target.call(assignment, case)):
                    if len(case["shape"]) == 2 and t.ndim == 3 and len(t) == 3 and bool((t == t[:1]).all()):
                        t = t[0]  # the same for every sentence
                    for shape in shapes(case):
                        if t.numel() == torch.Size(shape).numel() and tuple(s for s in t.shape if s != 1) == tuple(
                            s for s in shape if s != 1
                        ):
                            seen = understand(t, meaning)
                            if seen is not None:
                                return {"output": seen.reshape(shape).expand(case["shape"]).contiguous()}
                return {}

            facts = {"seed": candidate.program.first_seed, "roles": tuple(roles)}
            reading = Reading(
                (assignment.said([p["name"] for p in candidate.parameters]), meaning), run, cost, facts=facts
            )
            if works(run, cases(reading, 0)):
                yield reading


def causal_cases(reading: Reading, number: int) -> Case:
    n = (6, 5, 2)[number % 3]
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    return {
        "n": n,
        "n_key": n,
        "shape": (n, n),
        "x": torch.randn(3, n, 4, generator=generator, dtype=torch.float64),
        "ids": torch.randint(1, 9, (3, n), generator=generator),
    }


def causal_readings(candidate: Candidate) -> Iterator[Reading]:
    yield from mask_readings(
        candidate, (("n",), ("n", "n_key"), ("x",), ("ids",)), causal_cases, lambda case: [case["shape"]]
    )


def causal_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    n = case["n"]
    ones = torch.ones(n, n, dtype=torch.float64)
    return {
        None: ones.tril(),
        "itself hidden": ones.tril(-1),
        "one ahead": ones.tril(1),
        "future": ones.triu(),
        "future only": ones.triu(1),
        "everything": ones,
        "diagonal": ones.tril() * ones.triu(),
    }[how.get("causal")]  # type: ignore[index]


TRI = ("triangle", "causal", "positions", "return")
CLAIM = "causal-mask-leaks-nothing"
CAUSAL = Subject(
    name="causal mask",
    title="a causal mask",
    pattern=r".*(causal|subsequent|look_?ahead|autoregressive|tril|no_?peek|future|triangular)\w*|(make_|create_|get_|generate_)?(decoder|tgt|trg|attention|attn)_?mask|(make_|create_|get_|generate_)?mask",
    mistakes=(
        Mistake("causal", "one ahead", "One future token gets through: the diagonal is off by one.", "Look at the diagonal.", "What does the first token see?", TRI, CLAIM),
        Mistake("causal", "itself hidden", "A token cannot see itself: the diagonal is off by one, and the first token sees nothing.", "Look at the diagonal.", "What does the first token see?", TRI, CLAIM),
        Mistake("causal", "future", "It shows the future and hides the past: upper and lower triangle are exchanged.", "Look at the last row.", "What does the last token see?", TRI, CLAIM),
        Mistake("causal", "future only", "It shows only the future: upper and lower triangle are exchanged.", "Look at the last row.", "What does the last token see?", TRI, CLAIM),
        Mistake("causal", "everything", "It hides nothing.", "Look at the first row.", "What does the first token see?", TRI, CLAIM),
        Mistake("causal", "diagonal", "A token sees only itself.", "Look at the last row.", "What does the last token see?", TRI, CLAIM),
    ),
    conventions=(), readings=causal_readings, cases=causal_cases, expected=causal_expected, kinds=("function", "class", "instance"), strict=False, n_cases=3,
)  # fmt: skip


def padding_cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    n = (7, 6, 5)[number % 3]
    lengths = torch.tensor([n - 2, n, 2])
    ids = torch.randint(1, 9, (3, n), generator=generator)
    ids[torch.arange(n) >= lengths[:, None]] = PAD
    return {
        "ids": ids,
        "lengths": lengths,
        "n": n,
        "shape": (3, n, n) if reading.facts.get("square") else (3, 1, n),
        "pad": PAD,
        "x": ids,
        "q_ids": ids,
        "k_ids": ids,
        "columns": n,
    }


def padding_readings(candidate: Candidate) -> Iterator[Reading]:
    yield from mask_readings(
        candidate,
        (("ids",), ("lengths", "n"), ("lengths",), ("ids", "pad"), ("q_ids", "k_ids")),
        padding_cases,
        lambda case: [(3, 1, case["n"]), (3, case["n"], case["n"])],
    )


def padding_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    n, lengths = case["n"], case["lengths"]
    at = torch.arange(n)
    limit: Tensor = lengths + {"one more": 1, "one less": -1}.get(str(how.get("end")), 0)
    seen = at < limit[:, None]
    if how.get("side") == "left":
        seen = at >= (n - limit)[:, None]
    elif how.get("side") == "first sentence":
        seen = seen[:1].expand(3, n)
    elif how.get("side") == "nothing":
        seen = torch.ones_like(seen)
    elif how.get("side") == "queries":
        return seen[:, :, None].expand(case["shape"]).double() if case["shape"][1] == n else seen[:, None].double()
    elif how.get("side") == "inverted":
        seen = ~seen
    return seen[:, None].double().expand(case["shape"]).contiguous()


END = ("comparison", "positions", "mask", "return")
PADDING = Subject(
    name="padding mask",
    title="a padding mask",
    pattern=r".*(pad(ding)?_?mask|mask_?pad|key_?padding|src_?mask|length(s)?_?(to_)?mask|sequence_?mask|source_?mask|valid_mask|mask_from_length).*|padding",
    mistakes=(
        Mistake("end", "one more", "One token of padding is seen: the comparison is off by one (<= for <).", "Look at the comparison.", "What does length 2 show?", END, "which-mask-goes-where"),
        Mistake("end", "one less", "The last real token is hidden: the comparison is off by one.", "Look at the comparison.", "What does length 2 show?", END, "which-mask-goes-where"),
        Mistake("side", "left", "The padding is taken to be on the left.", "Look at the comparison.", "Which tokens are real?", END, None),
        Mistake("side", "first sentence", "The lengths of the first sentence are used for all.", "Look at the batch.", "What if two sentences have different lengths?", END, None),
        Mistake("side", "nothing", "It hides nothing.", "Look at the comparison.", "Which token is the padding?", END, None),
    ),
    conventions=(), readings=padding_readings, cases=padding_cases, expected=padding_expected, kinds=("function", "class", "instance"), strict=False, n_cases=3,
)  # fmt: skip


def window_cases(reading: Reading, number: int) -> Case:
    n = (8, 7, 6)[number % 3]
    return {"n": n, "radius": (2, 1, 3)[number % 3], "n_key": n, "shape": (n, n)}


def window_readings(candidate: Candidate) -> Iterator[Reading]:
    yield from mask_readings(candidate, (("n", "radius"),), window_cases, lambda case: [case["shape"]])


def window_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    n, r = case["n"], case["radius"]
    shift = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    past = how.get("side") == "past"
    if how.get("edge") == "open":
        r = r - 1
    elif how.get("edge") == "one more":
        r = r + 1
    elif how.get("edge") == "full width":
        r = r // 2
    seen = (shift >= -r) & (shift <= (0 if past else r))
    if how.get("wrong") == "one side":
        seen = shift <= r
    elif how.get("wrong") == "past side":
        seen = shift >= -r
    elif how.get("wrong") == "future":
        seen = (shift >= 0) & (shift <= r)
    elif how.get("wrong") == "outside":
        seen = ~seen
    elif how.get("wrong") == "itself hidden":
        seen = seen & (shift != 0)
    elif how.get("wrong") == "around":
        seen = (shift.abs() <= r) | (shift.abs() >= n - r)
    return seen.double()


EDGE = ("comparison", "triangle", "return")
WINDOW = Subject(
    name="window mask",
    title="a window mask",
    pattern=r".*(window|sliding|local|band)\w*",
    mistakes=(
        Mistake("wrong", "one side", "The window is open towards the past: everything before it is seen.", "Look at far tokens.", "What does the last token see?", EDGE, "window-mask-mixes-locally"),
        Mistake("wrong", "past side", "The window is open towards the future: everything after it is seen.", "Look at far tokens.", "What does the first token see?", EDGE, "window-mask-mixes-locally"),
        Mistake("wrong", "outside", "The window is inverted: what lies outside is seen.", "Look at the diagonal.", "Does a token see itself?", EDGE, "window-mask-mixes-locally"),
        Mistake("wrong", "itself hidden", "A token cannot see itself.", "Look at the diagonal.", "Does a token see itself?", EDGE, "window-mask-mixes-locally"),
        Mistake("wrong", "future", "The window lies in the future.", "Look at the last row.", "What does the last token see?", EDGE, None),
        Mistake("wrong", "around", "The window wraps around: the first token sees the last.", "Look at the corners.", "Are first and last token neighbours?", EDGE, None),
    ),
    conventions=(
        Convention("side", "past", "towards the past only"), Convention("edge", "open", "the size counts the token itself"),
        Convention("edge", "full width", "the size is the whole width"),
    ),
    readings=window_readings, cases=window_cases, expected=window_expected, kinds=("function", "class", "instance"), strict=False, n_cases=3,
)  # fmt: skip
