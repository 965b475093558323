"""Position codes: sinusoidal, learned, rotary, ALiBi, relative."""

import math
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headwork.checking import equations
from headwork.checking.calling import Candidate, pick, tensors_of
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.runner import Result
from headwork.checking.subjects.simple import Target, ways, works

D, N_MOST = 12, 16
ALL = ("function", "class", "instance")


# Tables that are added -------------------------------------------------------------------------------------------


def table_cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    n = (9, 6, 4, 1)[number % 4]
    d = D if reading.facts["fixed"] or number != 2 else 8
    x = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    return {
        "x": x,
        "n": n,
        "d": d,
        "positions": torch.arange(n),
        "ids": torch.randint(0, 9, (2, n), generator=generator),
    }


def written_otherwise(candidate: Candidate) -> set[tuple[str, object]]:
    """A base of 100 and an exponent of i/d give the same numbers: the source says which of the two it is not."""
    if not candidate.source:
        return set()
    has_base = re.search(r"10_?000\b|1e4|theta|base", candidate.source)
    return {("base", "100")} if has_base else {("exponent", "i"), ("angle", "i")}


DECODINGS = {"returned": 0.0, "added to x": 1.0, "added to x sqrt(d)": -1.0}


def decode_table(result: Result, case: Case, decoding: str, order: str) -> dict[str, Tensor]:
    n, d, x = case["n"], case["d"], case["x"]
    for name, t in tensors_of(result):
        if name.startswith("self.") or not t.is_floating_point():
            continue
        t = t.double()
        if decoding == "returned":
            if t.ndim == 3 and 1 in t.shape[:2] and t.shape[-1] == d:
                t = t.squeeze(0 if t.shape[0] == 1 else 1)
            if t.ndim == 3 and t.shape == x.shape and torch.equal(t[0], t[1]):
                t = t[0]
            if t.ndim == 2 and t.shape[1] == d and t.shape[0] >= n:
                return {"output": t[:n]}
            continue
        given = x if order == "batch first" else x.transpose(0, 1)
        if t.shape == given.shape:
            left = t - given * (1 if decoding == "added to x" else math.sqrt(d))
            left = left if order == "batch first" else left.transpose(0, 1)
            return {"output": left[0]}
    return {}


def table_readings(candidate: Candidate, wirings: Any = None) -> Iterator[Reading]:
    sets = (
        (("n", "d"), ("x",), ("n",), ("positions",))
        if candidate.kind == "function"
        else (("x",), ("positions",), ("n",), ("ids",))
    )
    for target, roles, assignment in ways(
        candidate,
        sets,
        (),
        {"base": 10000.0, "d": D, "n": N_MOST},
        {"d_model": D, "d_ff": D, "d_head": D, "n_tokens": N_MOST},
        fill=wirings is not None,
    ):
        wired = ({},) if wirings is None else tuple(wirings(target))
        if not wired:
            continue
        found = False
        for decoding in DECODINGS:
            for order in ("batch first", "sequence first") if "x" in roles else ("batch first",):
                if decoding != "returned" and "x" not in roles:
                    continue

                def run(
                    case: Case,
                    target: Target = target,
                    assignment: Any = assignment,
                    decoding: str = decoding,
                    order: str = order,
                ) -> dict[str, Tensor]:
                    values = dict(case)
                    if order != "batch first":
                        values["x"] = case["x"].transpose(0, 1).contiguous()
                    return decode_table(target.call(assignment, values), case, decoding, order)

                facts = {
                    "fixed": "d" not in roles, "seed": candidate.program.first_seed, "decoding": decoding, "not": written_otherwise(candidate),
                }  # fmt: skip
                said = (assignment.said([p["name"] for p in candidate.parameters]), f"the code is {decoding}", order)
                reading = Reading(
                    said if "x" in roles else said[:2],
                    run,
                    list(DECODINGS).index(decoding) * 0.1 + 0.05 * (order != "batch first"),
                    wired,
                    facts,
                )
                if works(run, table_cases(reading, 0)):
                    found = True
                    yield reading
        if found:
            return


def sinusoid_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    table = equations.sinusoid(case["n"], case["d"], how)
    return table * math.sqrt(case["d"]) if how.get("size") == "scaled" else table


BASE = ("base", "sin")
SINUSOID = Subject(
    name="sinusoidal positions",
    title="sinusoidal positions",
    pattern=r".*(sinusoid|positional_?(en|em)|position_?enc|pos_?enc|sin_?cos|pos_?emb_?sin|fixed_pos|timing_signal).*|pe|position_embeddings?_sin.*",
    mistakes=(
        Mistake("exponent", "4i", "The exponent is doubled: i already steps by two, and is multiplied by 2 once more.", "Look at the exponent.", "What is the frequency of the last pair?", BASE, "order-needs-positions"),
        Mistake("exponent", "i", "The exponent is i/d, and should be 2i/d: the frequencies only fall to 1/100.", "Look at the exponent.", "What is the frequency of the last pair?", BASE, "order-needs-positions"),
        Mistake("exponent", "own cosine", "The cosine has a frequency of its own: sine and cosine of a pair share 2i/d.", "Look at the exponent of the cosine.", "Which two columns belong together?", ("cos", "sin"), "order-needs-positions"),
        Mistake("exponent", "each", "The exponent uses twice the number of the column, not of the pair: sine and cosine of a pair have different frequencies.", "Look at the exponent.", "Is i the column or the pair?", BASE, "order-needs-positions"),
        Mistake("exponent", "one more", "The exponent starts at 2/d: the first pair should have frequency 1.", "Look at the exponent.", "What is the frequency of the first pair?", BASE, None),
        Mistake("exponent", "no minus", "The frequencies grow with i, and should fall.", "Look at the sign of the exponent.", "What is the frequency of the last pair?", BASE, None),
        Mistake("exponent", "no d", "The exponent is not divided by d.", "Look at the exponent.", "What is the frequency of the last pair?", BASE, None),
        Mistake("order", "cosine first", "Sine and cosine are exchanged: even columns are sines.", "Look at position 0.", "What should row 0 be?", ("cos", "sin"), "order-needs-positions"),
        Mistake("order", "sines only", "Both columns of a pair are sines: the odd ones should be cosines.", "Look at position 0.", "What should row 0 be?", ("last sin",), "order-needs-positions"),
        Mistake("positions", "one", "Positions start at 1, and should start at 0.", "Look at row 0.", "What should row 0 be?", ("positions",), None),
        Mistake("base", "1000", "The base is 1000, and should be 10000.", "Look at the constants.", "How long is the slowest wave?", BASE, None),
        Mistake("base", "100", "The base is 100, and should be 10000.", "Look at the constants.", "How long is the slowest wave?", BASE, None),
        Mistake("base", "100000", "The base is 100000, and should be 10000.", "Look at the constants.", "How long is the slowest wave?", BASE, None),
        Mistake("base", "e", "The base is e: the logarithm of 10000 is missing.", "Look at the constants.", "How long is the slowest wave?", BASE, None),
        Mistake("size", "scaled", "The code is multiplied by sqrt(d): that is for the embedding.", "Look at the scale.", "Which of the two is scaled in the paper?", ("scale", "return"), None),
    ),
    conventions=(
        Convention("layout", "halves", "sines in the first half, cosines in the second"),
        Convention("layout", "halves, cosine first", "cosines in the first half, sines in the second"),
        Convention("exponent", "last", "frequencies reach 1/10000 at the last pair (tensor2tensor)"),
    ),
    readings=table_readings,
    cases=table_cases,
    expected=sinusoid_expected,
    kinds=ALL,
    strict=False,
    n_cases=4,
)  # fmt: skip


def learned_wirings(target: Target) -> Iterator[Weights]:
    if target.made is None or set(target.parameters) <= set(target.made.facts["plain"]):  # a table that is not learned
        return
    tables = [t for t in target.parameters.values() if t.ndim in (2, 3) and t.shape[-1] == D and t.numel() >= 9 * D]
    if len(tables) == 1 and len(target.parameters) == 1:
        yield {"table": tables[0].reshape(-1, D)}


def learned_readings(candidate: Candidate) -> Iterator[Reading]:
    if candidate.kind != "function":
        yield from table_readings(candidate, learned_wirings)


def learned_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    n, table = case["n"], w["table"]
    rows = how.get("rows")
    if rows == "from one":
        return table[1 : n + 1]
    if rows == "last":
        return table[-n:]
    if rows == "same":
        return table[:1].expand(n, -1)
    if rows == "reversed":
        return table[:n].flip(0)
    if rows == "scaled":
        return table[:n] * math.sqrt(case["d"])
    return table[:n]


LEARNED = Subject(
    name="learned positions",
    title="learned positions",
    pattern=r".*(learned_?pos|learnable_?pos|position(al)?_?emb|pos_?emb|absolute_?pos|trainable_pos|positional_enc).*",
    mistakes=(
        Mistake("rows", "from one", "Positions start at 1: row 0 of the table is never used.", "Look at the positions.", "Which row does the first token get?", ("positions", "slices"), "vit-positions-learn-a-layout"),
        Mistake("rows", "last", "The last rows of the table are used, and should be the first.", "Look at the slice.", "Which row does the first token get?", ("slices", "positions"), None),
        Mistake("rows", "same", "Every token gets the same position: row 0.", "Look at the positions.", "What tells two tokens apart?", ("positions", "slices"), "order-needs-positions"),
        Mistake("rows", "reversed", "Positions run backwards.", "Look at the positions.", "Which row does the first token get?", ("positions",), None),
        Mistake("rows", "scaled", "The positions are multiplied by sqrt(d): that is for the embedding.", "Look at the scale.", "Which of the two is scaled in the paper?", ("scale",), None),
    ),
    conventions=(), readings=learned_readings, cases=table_cases, expected=learned_expected, kinds=("class", "instance"), strict=False, n_cases=3,
)  # fmt: skip


# Rotary ----------------------------------------------------------------------------------------------------------

D_HEAD = 8
LAYOUTS = {
    "batch, head, token, width": (lambda t: t, lambda t: t),
    "batch, token, head, width": (lambda t: t.transpose(1, 2).contiguous(), lambda t: t.transpose(1, 2)),
    "batch, token, width": (lambda t: t[:, 0], lambda t: t[:, None]),
    "token, width": (lambda t: t[0, 0], lambda t: t[None, None]),
}


def rotary_cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    layout = reading.facts["layout"]
    b, h = {"batch, token, width": (2, 1), "token, width": (1, 1)}.get(layout, (2, 3))
    n = (7, 5, 4)[number % 3]
    x = torch.randn(b, h, n, D_HEAD, generator=generator, dtype=torch.float64)
    positions = torch.arange(n) + (3 if number == 1 and reading.facts["moves"] else 0)
    return {"x": x, "k": torch.randn(x.shape, generator=generator, dtype=torch.float64), "positions": positions}


def tables(n: int, style: str) -> dict[str, Tensor]:
    i = torch.arange(D_HEAD // 2, dtype=torch.float64)
    angles = torch.arange(n, dtype=torch.float64)[:, None] * 10000.0 ** (-2 * i / D_HEAD)
    whole = (
        torch.cat([angles, angles], -1)
        if style == "halves"
        else angles.repeat_interleave(2, -1)
        if style == "pairs"
        else angles
    )
    return {"cos": whole.cos(), "sin": whole.sin(), "freqs": torch.polar(torch.ones_like(angles), angles)}


def rotary_readings(candidate: Candidate) -> Iterator[Reading]:
    sets = (
        ("x",),
        ("x", "positions"),
        ("q", "k"),
        ("q", "k", "positions"),
        ("x", "cos", "sin"),
        ("q", "k", "cos", "sin"),
        ("x", "freqs"),
        ("q", "k", "freqs"),
    )
    sizes = {"d_model": D_HEAD, "d_head": D_HEAD, "n_tokens": N_MOST, "base": 10000.0}
    for target, roles, assignment in ways(
        candidate, sets, ("positions",), {"base": 10000.0, "d": D_HEAD, "n": N_MOST, "dim": None}, sizes
    ):
        moves = "positions" in assignment.roles.values()
        styles = ("halves", "pairs", "half") if "cos" in roles else ("",)
        for layout, (encode, decode) in LAYOUTS.items():
            for style in styles:

                def run(
                    case: Case,
                    target: Target = target,
                    assignment: Any = assignment,
                    encode: Any = encode,
                    decode: Any = decode,
                    style: str = style,
                ) -> dict[str, Tensor]:
                    x = encode(case["x"])
                    values = {
                        "x": x,
                        "q": x,
                        "k": encode(case["k"]),
                        "positions": case["positions"],
                        **tables(case["x"].shape[2], style),
                    }
                    found = pick(target.call(assignment, values), x.shape)
                    return {} if found is None else {"output": decode(found[1])}

                facts = {
                    "layout": layout, "moves": moves, "seed": candidate.program.first_seed, "not": written_otherwise(candidate),
                }  # fmt: skip
                said = (
                    assignment.said([p["name"] for p in candidate.parameters]),
                    layout,
                    *((f"angles in {style}",) if style else ()),
                )
                reading = Reading(said, run, 0.05 * list(LAYOUTS).index(layout), facts=facts)
                if works(run, rotary_cases(reading, 0)):
                    yield reading


def rotary_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    return equations.rotary(case["x"], case["positions"], how)


TURN = ("turn", "sin", "cat")
ROTARY = Subject(
    name="rotary positions",
    title="rotary positions",
    pattern=r"(?!rotate_(half|every|pairs|neg)).*(rotary|ro_?pe|rotat).*",
    mistakes=(
        Mistake("angle", "4i", "The exponent is doubled: the angles fall twice as fast as base^(-2i/d).", "Look at the frequencies.", "What is the frequency of the last pair?", BASE, "relative-codes-ignore-shifts"),
        Mistake("angle", "i", "The exponent is i/d, and should be 2i/d.", "Look at the frequencies.", "What is the frequency of the last pair?", BASE, None),
        Mistake("angle", "growing", "The frequencies grow with i, and should fall.", "Look at the sign of the exponent.", "What is the frequency of the last pair?", BASE, None),
        Mistake("angle", "one more", "The exponent starts at 2/d: the first pair should turn by one radian for each position.", "Look at the frequencies.", "What is the frequency of the first pair?", BASE, None),
        Mistake("base", "1000", "The base is 1000, and should be 10000.", "Look at the constants.", "What is the frequency of the last pair?", BASE, None),
        Mistake("base", "100", "The base is 100, and should be 10000.", "Look at the constants.", "What is the frequency of the last pair?", BASE, None),
        Mistake("turn", "sign", "It is not a rotation: one of the two sines needs a minus.", "Look at the signs.", "Does it keep the length of a vector?", TURN, "relative-codes-ignore-shifts"),
        Mistake("turn", "mixed", "Halves and pairs are mixed: the angles are laid out for one, and the partners are those of the other.", "Look at which numbers form a pair.", "Do both numbers of a pair get the same angle?", TURN, "relative-codes-ignore-shifts"),
        Mistake("turn", "exchanged", "Sine and cosine are exchanged: position 0 should change nothing.", "Look at position 0.", "What is the rotation by 0?", ("sin", "turn"), None),
        Mistake("turn", "cosine only", "The sine terms are missing.", "Look at the rotation.", "How many terms has a rotated coordinate?", TURN, None),
        Mistake("turn", "no positions", "Every position is turned by the same angle.", "Look at the positions.", "What tells two tokens apart?", ("positions",), "order-needs-positions"),
        Mistake("axis", "heads", "The position is counted along the heads, not along the tokens.", "Look at the axes of the angles.", "Which axis is the token's?", ("positions", "slices"), None),
        Mistake("result", "not interleaved", "Pairs are taken from neighbours, and put back as halves: the width is permuted.", "Look at the last line.", "Where does number 1 end up?", ("cat", "return"), None),
    ),
    conventions=(
        Convention("pairs", "halves", "pairs are (i, i + d/2): halves"),
        Convention("turn", "backwards", "turns the other way, which products of queries and keys do not see"),
        Convention("turn", "from one", "positions start at 1, which products of queries and keys do not see"),
    ),
    readings=rotary_readings, cases=rotary_cases, expected=rotary_expected, kinds=ALL, strict=False, n_cases=3,
)  # fmt: skip


# ALiBi and relative distances ------------------------------------------------------------------------------------


def alibi_cases(reading: Reading, number: int) -> Case:
    n_heads = (4, 8, 2)[number % 3] if reading.facts["free"] else 4
    n = (6, 5, 7)[number % 3]
    return {"n_heads": n_heads, "n": n, "n_key": n}


def alibi_readings(candidate: Candidate) -> Iterator[Reading]:
    for target, roles, assignment in ways(
        candidate,
        (("n_heads", "n"), ("n_heads",), ("n_heads", "n", "n_key"), ("n",), ("n", "n_key")),
        (),
        {"n": 6},
        {"n_heads": 4, "n_tokens": N_MOST},
    ):
        for kind in ("bias", "slopes"):

            def run(
                case: Case, target: Target = target, assignment: Any = assignment, kind: str = kind
            ) -> dict[str, Tensor]:
                h, n = case["n_heads"], case["n"]
                result = target.call(assignment, case)
                if (
                    isinstance(result.value, list)
                    and len(result.value) == h
                    and all(isinstance(v, int | float) for v in result.value)
                ):
                    result = Result(torch.tensor(result.value, dtype=torch.float64))
                for _, t in tensors_of(result):
                    if kind == "slopes" and t.numel() == h:
                        return {"output": t.double().flatten()}
                    if kind == "bias" and t.ndim >= 3 and t.shape[-3] == h and t.shape[-1] >= n:
                        t = t.double().reshape(h, t.shape[-2], t.shape[-1])
                        return {"output": t[:, :n, :n] if t.shape[1] >= n else t[:, :, :n].expand(h, n, n)}
                return {}

            facts = {"free": "n_heads" in roles, "kind": kind, "seed": 0}
            reading = Reading(
                (assignment.said([p["name"] for p in candidate.parameters]), f"returns the {kind}"),
                run,
                0.1 * (kind == "slopes"),
                facts=facts,
            )
            if works(run, alibi_cases(reading, 0)):
                yield reading
                break


def alibi_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    if reading.facts["kind"] == "slopes":
        if how.get("sides"):
            raise ValueError("there are no sides")
        return -equations.alibi(case["n_heads"], 2, 2, {k: v for k, v in how.items() if k == "slopes"})[:, 1, 0] * (
            1 if how.get("sign") != "minus" else -1
        )
    bias = equations.alibi(case["n_heads"], case["n"], case["n_key"], how)
    if how.get("future") == "hidden":
        n = case["n"]
        bias = bias.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    return bias


SLOPE = ("slope", "base")
ALIBI = Subject(
    name="alibi",
    title="ALiBi",
    pattern=r".*(alibi|(get_)?slopes).*|linear_bias(es)?",
    mistakes=(
        Mistake("slopes", "from zero", "The slopes start at 1: the first should be 2^(-8/n).", "Look at the slopes.", "What is the exponent of the first head?", SLOPE, "relative-codes-ignore-shifts"),
        Mistake("slopes", "no heads", "The slopes are 2^-i whatever the number of heads: the exponent is -8i/n.", "Look at the slopes.", "What if there are 4 heads?", SLOPE, None),
        Mistake("slopes", "growing", "The slopes grow from head to head, and should fall.", "Look at the slopes.", "Which head sees furthest?", SLOPE, None),
        Mistake("slopes", "linear", "The slopes are i/n: they should fall by a factor from head to head.", "Look at the slopes.", "Is it a geometric series?", SLOPE, None),
        Mistake("slopes", "inverse", "The slopes are 1/i: they should fall by a factor from head to head.", "Look at the slopes.", "Is it a geometric series?", SLOPE, None),
        Mistake("slopes", "same", "Every head has the same slope.", "Look at the slopes.", "What do several heads bring then?", SLOPE, None),
        Mistake("sides", "positive", "The sign is turned: far keys get more weight.", "Look at the sign.", "Which key should win?", ("distance", "return"), None),
        Mistake("sides", "reversed", "The sign is turned: the past gets more weight the further it is.", "Look at the sign.", "Which key should win?", ("distance", "return"), None),
        Mistake("sides", "square", "The distance is squared, and should be linear.", "Look at the distance.", "What does the L of ALiBi stand for?", ("distance", "variance"), None),
    ),
    conventions=(
        Convention("sides", "signed", "slope * (key - query), for causal attention"),
        Convention("sides", "key", "slope * key up to a number for each query, which the softmax does not see"),
        Convention("sides", "key index", "slope * key, up to a number for each query, which the softmax does not see"),
        Convention("sides", "past only", "zero for the future"),
        Convention("future", "hidden", "hides the future"),
    ),
    readings=alibi_readings, cases=alibi_cases, expected=alibi_expected, kinds=ALL, n_cases=3,
)  # fmt: skip


def relative_cases(reading: Reading, number: int) -> Case:
    return {"n": (7, 5, 4)[number % 3], "n_key": (7, 5, 4)[number % 3], "most": 2}


def relative_readings(candidate: Candidate) -> Iterator[Reading]:
    for p in candidate.parameters:
        if re.search(r"max|clip|radius|k$|distance", p["name"].lower()):
            limit = p["name"]
            break
    else:
        limit = None
    for target, _, assignment in (
        ways(candidate, (("n",), ("n", "n_key")), (), {}, {})
        if limit is None
        else ways(candidate, (("n", "radius"), ("n", "n_key", "radius")), (), {}, {})
    ):

        def run(case: Case, target: Target = target, assignment: Any = assignment) -> dict[str, Tensor]:
            n = case["n"]
            for _, t in tensors_of(target.call(assignment, {**case, "radius": case["most"]})):
                if t.shape[-2:] == (n, n) and t.numel() == n * n:
                    return {"output": t.double().reshape(n, n)}
            return {}

        reading = Reading(
            (assignment.said([p["name"] for p in candidate.parameters]),),
            run,
            facts={"limit": limit is not None, "seed": 0},
        )
        if works(run, relative_cases(reading, 0)):
            yield reading


def relative_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    n, most = case["n"], case["most"]
    shift = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    if how.get("sign") == "query - key":
        shift = -shift
    rows = how.get("rows")
    if rows == "absolute":
        shift = shift.abs()
    elif rows == "key only":
        shift = torch.arange(n)[None, :].expand(n, n)
    elif rows == "sum":
        shift = torch.arange(n)[None, :] + torch.arange(n)[:, None]
    if not reading.facts["limit"]:
        if how.get("clip"):
            raise ValueError("there is no limit")
        return (shift + (n - 1 if how.get("from") == "zero" else 0)).double()
    clip = how.get("clip")
    if clip == "one side":
        shift = shift.clamp(max=most)
    elif clip == "off by one":
        shift = shift.clamp(-most + 1, most - 1)
    elif clip == "wrapped":
        shift = shift % (2 * most + 1) - most
    elif clip != "missing":
        shift = shift.clamp(-most, most)
    return (shift + (most if how.get("from") == "zero" else 0)).double()


CLIP = ("clamp", "return")
RELATIVE = Subject(
    name="relative positions",
    title="relative positions",
    pattern=r".*(relative_?(pos|dist|ind)|rel_?pos|distance_matrix|relative_shift).*",
    mistakes=(
        Mistake("clip", "missing", "The distance is not limited.", "Look at far tokens.", "How many rows does the table need?", CLIP, "relative-scores-know-the-shift"),
        Mistake("clip", "one side", "The distance is limited on one side only.", "Look at far tokens.", "What about the past?", CLIP, None),
        Mistake("clip", "off by one", "The limit is one too small.", "Look at the limit.", "Which distances are inside?", CLIP, None),
        Mistake("clip", "wrapped", "Far distances wrap around, and should stay at the limit.", "Look at far tokens.", "Is it a remainder or a limit?", CLIP, None),
        Mistake("rows", "absolute", "The sign is lost: left and right get the same code.", "Look at the distance.", "Are -1 and 1 the same?", ("absolute", "difference"), "relative-scores-know-the-shift"),
        Mistake("rows", "key only", "It is the position of the key, not a distance.", "Look at the rows.", "Does it change from query to query?", ("difference", "distance"), "relative-scores-know-the-shift"),
        Mistake("rows", "sum", "Positions are added, and should be subtracted.", "Look at the diagonal.", "What is the distance of a token to itself?", ("difference", "distance"), "relative-scores-know-the-shift"),
    ),
    conventions=(Convention("sign", "query - key", "query - key"), Convention("from", "zero", "counted from 0")),
    readings=relative_readings, cases=relative_cases, expected=relative_expected, kinds=ALL, strict=False, n_cases=3,
)  # fmt: skip
