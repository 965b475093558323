"""Patch embedding with its class token, and pooling."""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headwork.checking import equations
from headwork.checking.calling import Candidate, tensors_of
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.subjects.attention import SCALE_MISTAKES, SOFTMAX_MISTAKES
from headwork.checking.subjects.simple import Target, ways, works
from headwork.checking.wiring import attention_wirings, feed_forward_wirings, linears, norms

IMAGE, PATCH, CHANNELS, D = 12, 4, 3, 20
N = (IMAGE // PATCH) ** 2
PIXELS = {
    "channel, row, column": "cpq",
    "row, column, channel": "pqc",
    "column, row, channel": "qpc",
    "channel, column, row": "cqp",
}


def cut(image: Tensor, pixels: str, how: How, patch: int = PATCH) -> Tensor:
    """Patches "batch token pixel", left to right and top to bottom."""
    b, c, height, width = image.shape
    rows, columns = height // patch, width // patch
    order = how.get("patches")
    if order == "reshaped":
        return image.reshape(b, rows * columns, c * patch * patch)
    if order == "channels last reshaped":
        return image.permute(0, 2, 3, 1).reshape(b, rows * columns, c * patch * patch)
    cells = image.view(b, c, rows, patch, columns, patch)  # b c r p l q
    if order == "channels mixed":
        return cells.transpose(3, 4).reshape(b, rows * columns, c * patch * patch)
    if order == "rows and columns exchanged":
        cells = cells.permute(0, 1, 4, 3, 2, 5)  # the patches column by column
    elif order == "image transposed":
        cells = image.transpose(2, 3).reshape(b, c, columns, patch, rows, patch)
    named = dict(zip("bcrplq", range(6), strict=True))
    return cells.permute(*(named[a] for a in "brl" + pixels)).reshape(b, rows * columns, -1)


def patch_wirings(target: Target) -> Iterator[Weights]:
    found = linears(target.parameters)
    token = next(
        (
            t.reshape(1, 1, D)
            for n, t in target.parameters.items()
            if t.numel() == D and ("cls" in n.lower() or "class" in n.lower() or t.shape == (1, 1, D))
        ),
        None,
    )
    places = next(
        (
            t.reshape(-1, D)
            for t in target.parameters.values()
            if t.shape[-1] == D and t.numel() in (N * D, (N + 1) * D) and t.ndim <= 3
        ),
        None,
    )
    norm = [w for _, w in norms(target.parameters) if w["weight"].shape == (D,)]
    for own in found.values():
        t = own.get("weight", own.get("bare"))
        if t is None:
            continue
        options = []
        if t.ndim == 4 and t.shape == (D, CHANNELS, PATCH, PATCH):
            options = [("cpq", t.flatten(1), "")]
        elif tuple(t.shape) == (D, CHANNELS * PATCH**2):
            options = [(pixels, t, f"pixels of a patch in the order {said}") for said, pixels in PIXELS.items()]
        elif tuple(t.shape) == (CHANNELS * PATCH**2, D):
            options = [(pixels, t.T, f"pixels of a patch in the order {said}") for said, pixels in PIXELS.items()]
        for pixels, weight, said in options:
            yield {
                "pixels": pixels,
                "weight": weight,
                "bias": own.get("bias"),
                "token": token,
                "positions": places,
                "norm": norm[0] if norm else None,
                "said": said,
            }
    if not target.parameters:
        for said, pixels in PIXELS.items():
            yield {
                "pixels": pixels,
                "weight": None,
                "bias": None,
                "token": None,
                "positions": None,
                "norm": None,
                "said": f"pixels of a patch in the order {said}",
            }


def patch_cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    return {"image": torch.randn(2, CHANNELS, IMAGE, IMAGE, generator=generator, dtype=torch.float64), "patch": PATCH}


def patch_readings(candidate: Candidate) -> Iterator[Reading]:
    sizes = {"image": IMAGE, "patch": PATCH, "n_channels": CHANNELS, "d_model": D, "d_head": None, "n_tokens": N}
    for target, _, assignment in ways(candidate, (("image",), ("image", "patch")), ("patch",), {}, sizes):
        wired = tuple(patch_wirings(target))
        if not wired:
            continue

        def run(case: Case, target: Target = target, assignment: Any = assignment) -> dict[str, Tensor]:
            for _, t in tensors_of(target.call(assignment, case)):
                if t.ndim == 3 and t.shape[0] == 2 and t.shape[1] in (N, N + 1):
                    return {"output": t.double()}
                if t.ndim == 3 and t.shape[0] == 2 and t.shape[2] in (N, N + 1):
                    return {"output": t.double()}
                if t.ndim == 4 and t.shape[0] == 2 and t.shape[1] * t.shape[2] == N:
                    return {"output": t.double().flatten(1, 2)}
            return {}

        reading = Reading(
            (assignment.said([p["name"] for p in candidate.parameters]), "image [batch, channel, row, column]"),
            run,
            0.0,
            wired,
            {"seed": candidate.program.first_seed},
        )
        if works(run, patch_cases(reading, 0)):
            yield reading


def patch_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    x = cut(case["image"], w["pixels"], how)
    if w["weight"] is not None:
        x = torch.nn.functional.linear(x, w["weight"], None if how.get("bias") == "not used" else w["bias"])
    token, places = w["token"], w["positions"]
    if (
        (how.get("token") and token is None)
        or (how.get("positions") and places is None)
        or (how.get("norm") and w["norm"] is None)
    ):
        raise ValueError("there is none")
    if how.get("norm") == "before" and w["norm"]:
        x = torch.nn.functional.layer_norm(x, (D,), w["norm"]["weight"], w["norm"].get("bias"))
    late = token is not None and places is not None and places.shape[0] == N
    if late:
        x = x + places
    if token is not None and how.get("token") != "not used":
        repeated = token.expand(2, 1, D)
        x = torch.cat([x, repeated] if how.get("token") == "last" else [repeated, x], 1)
    if places is not None and not late and how.get("positions") != "not used":
        if how.get("positions") == "first only":
            x = x + places[:1]
        elif how.get("positions") == "multiplied":
            x = x * places[: x.shape[1]]
        elif how.get("positions") == "reversed":
            x = x + places.flip(0)
        else:
            x = x + places[: x.shape[1]]
    if how.get("axes") == "width first":
        x = x.transpose(1, 2)
    return x


CUT = ("unfold", "flatten")
PATCHES = Subject(
    name="patch embedding",
    title="patch embedding",
    pattern=r".*(patch).*|image_?to_?(tokens|seq).*|vit_?emb.*|(vi_?t)?embeddings?_?(vit)?",
    mistakes=(
        Mistake("patches", "rows and columns exchanged", "The patches are read column by column, and should be read row by row.", "Look at the order of the patches.", "Which patch is token 1?", CUT, "vit-positions-learn-a-layout"),
        Mistake("patches", "image transposed", "Rows and columns of the image are exchanged.", "Look at the axes.", "Which patch is token 1?", CUT, None),
        Mistake("patches", "reshaped", "The image is reshaped without moving axes: a token holds rows of one channel, not a square patch.", "Look at the reshape.", "Which pixels lie next to each other in memory?", ("unfold",), "vit-positions-learn-a-layout"),
        Mistake("patches", "channels last reshaped", "The image is reshaped without cutting it: a token holds a strip of a row, not a square patch.", "Look at the reshape.", "Which pixels lie next to each other in memory?", ("unfold",), None),
        Mistake("patches", "channels mixed", "The patches are cut, but reshaped without moving the channels behind them: a token holds patches of one channel, not all channels of one patch.", "Look at the axes before the reshape.", "Which axes should vary fastest in a token?", ("unfold", "flatten"), "vit-positions-learn-a-layout"),
        Mistake("axes", "width first", "The result is [batch, width, token]: the transpose after the convolution is missing.", "Look at the shape of the result.", "Which axis is the token's?", ("flatten", "return"), "shapes-of-a-notebook"),
        Mistake("token", "last", "The class token comes last, and should come first.", "Look at the concatenation.", "Which token does the classifier read?", ("cat", "class token"), "cls-gap-map"),
        Mistake("token", "not used", "The class token is made, but not used.", "Look for the class token.", "How many tokens are there?", ("class token", "return"), "cls-gap-map"),
        Mistake("positions", "not used", "The positions are made, but not added.", "Look for the positions.", "What tells two patches apart?", ("add_positions in a call", "return"), "order-needs-positions"),
        Mistake("positions", "first only", "Every token gets the same position: the first.", "Look at the positions.", "What tells two patches apart?", ("add_positions",), "order-needs-positions"),
        Mistake("positions", "multiplied", "The positions are multiplied, and should be added.", "Look at the positions.", "What if a position is 0?", ("add_positions",), None),
        Mistake("positions", "reversed", "The positions are added in reverse order.", "Look at the positions.", "Which row does the first token get?", ("add_positions",), None),
    ),
    conventions=(Convention("norm", "before", "normalises the patches"),),
    readings=patch_readings, cases=patch_cases, expected=patch_expected, kinds=("function", "class", "instance"), strict=False, n_cases=3,
)  # fmt: skip


def pool_cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    n = (6, 5, 7)[0 if reading.facts.get("fixed") else number % 3]
    lengths = torch.tensor([n - 2, n, 3])
    real = torch.arange(n) < lengths[:, None]
    mask = {"keep": real, "ones": real.double(), "block": ~real, "long": real.long()}[reading.facts["meaning"]]
    return {"x": torch.randn(3, n, 8, generator=generator, dtype=torch.float64), "mask": mask, "real": real}


def pool_readings(candidate: Candidate) -> Iterator[Reading]:
    sizes = {"d_model": POOL_D, "n_tokens": 6, "n_heads": 2, "d_head": POOL_D // 2, "d_ff": 20}
    for target, roles, assignment in ways(candidate, (("x", "mask"), ("x",)), (), {}, sizes):
        wired = tuple(pool_wirings(target))
        if not wired:
            continue
        meanings = ("keep", "ones", "long", "block") if "mask" in roles else ("keep",)
        for meaning in meanings:

            def run(case: Case, target: Target = target, assignment: Any = assignment) -> dict[str, Tensor]:
                for _, t in tensors_of(target.call(assignment, case)):
                    if tuple(t.squeeze().shape) == (3, 8):
                        return {"output": t.double().reshape(3, 8)}
                return {}

            said = {"keep": "True = real", "ones": "1 = real", "long": "1 = real", "block": "True = padding"}[meaning]
            facts = {
                "seed": candidate.program.first_seed,
                "meaning": meaning,
                "masked": "mask" in roles,
                "fixed": "all.weight" in wired[0],
            }
            reading = Reading(
                (assignment.said([p["name"] for p in candidate.parameters]), *((said,) if "mask" in roles else ())),
                run,
                0.01 * meanings.index(meaning),
                wired,
                facts,
            )
            if works(run, pool_cases(reading, 0)):
                yield reading


POOL_D = 8


def pool_wirings(target: Target) -> Iterator[Weights]:
    """Nothing to learn; a layer over all tokens; or a query that attends to them, and perhaps a network after it."""
    found = linears(target.parameters)
    flat = [own for own in found.values() if own.get("weight") is not None and own["weight"].shape[-1] == 6 * POOL_D]
    if not found or not target.parameters:
        yield {}
    elif flat and len(found) == 1:
        yield {"all.weight": flat[0]["weight"], "all.bias": flat[0].get("bias")}
    else:
        probe = next((n for n, t in target.parameters.items() if t.numel() == POOL_D and PROBE.search(n)), None)
        if probe is None:
            yield {}
            return
        rest = {n: t for n, t in target.parameters.items() if n != probe}
        feed = {n: t for n, t in rest.items() if re.search(r"(?i)ff|feed|mlp|fc", n)}
        normal = {n: t for n, t in rest.items() if re.search(r"(?i)norm|ln", n)}
        attend = {n: t for n, t in rest.items() if n not in feed and n not in normal}
        for heads in (2, 1):
            for w in attention_wirings(attend, heads)[:12]:
                fed: list[Weights | None] = [*feed_forward_wirings(feed)[:2]]
                for up in fed or [None]:
                    own = {"query": target.parameters[probe].reshape(1, 1, POOL_D), "attention": w, "feed": up}
                    yield {**own, "norm": norms(normal)[0][1] if normal else None, "n_heads": heads}


PROBE = re.compile(r"(?i)probe|query|latent|token|seed|cls|^q$")


def attention_pool(x: Tensor, real: Tensor, w: Weights, how: How) -> Tensor:
    """A learned query attends to all tokens; then `y + f(norm(y))`, where there is a network."""
    inner = {k: v for k, v in how.items() if k in ("scale", "softmax")}
    query = w["query"].expand(len(x), 1, -1)
    y = equations.multi_head(query, x, x, w["attention"], real[:, None, None], inner, w["n_heads"])
    if w["feed"] is None:
        return y[:, 0]
    normed = y if w["norm"] is None else equations.norm(y, {f"n.{k}": v for k, v in w["norm"].items()}, "n", {})
    fed = equations.feed_forward(normed, w["feed"], {"activation": how.get("activation", "gelu")})
    return (fed if how.get("residual") == "none" else y + fed)[:, 0]


def pool_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    if "all.weight" in w:
        x = case["x"].transpose(1, 2) if how.get("layer") == "exchanged" else case["x"]
        if set(how) - {"layer"}:
            raise ValueError("it is one layer")
        return F.linear(x.flatten(1), w["all.weight"], w["all.bias"])
    if "query" in w:
        if set(how) - {"scale", "softmax", "residual", "activation"}:
            raise ValueError("it attends")
        real = case["real"] if reading.facts["masked"] else torch.ones_like(case["real"])
        return attention_pool(case["x"], real, w, how)
    if set(how) & {"layer", "scale", "softmax", "residual", "activation"}:
        raise ValueError("there is nothing to learn")
    x, real = case["x"], case["real"][..., None]
    if not reading.facts["masked"]:
        real = torch.ones_like(real)
    total, count = (x * real).sum(1), real.sum(1).double()
    pool = how.get("pool", "mean")
    if not reading.facts["masked"] and pool in ("all tokens", "padded count", "inverted"):
        raise ValueError("there is no mask")
    n = x.shape[1]
    return {
        "mean": lambda: total / count,
        "first": lambda: x[:, 0],
        "max": lambda: x.masked_fill(~real, float("-inf")).amax(1),
        "last": lambda: x[torch.arange(3), real[..., 0].sum(1) - 1],
        "all tokens": lambda: x.mean(1),
        "padded count": lambda: total / n,
        "sum": lambda: total,
        "inverted": lambda: (x * ~real).sum(1) / (~real).sum(1).double(),
        "without the first": lambda: (total - x[:, 0]) / (count - 1),
        "width": lambda: (x.mean(1) * n) / 8,
        "last column": lambda: x[:, -1],
        "batch count": lambda: total / 3,
    }[str(pool)]()


POOL = ("pool", "return")
POOLING = Subject(
    name="pooling",
    title="pooling",
    pattern=r".*(pool|pooler|mean_tokens|average_tokens|sentence_emb).*|cls|gap|map|map_head|fully_connected|attention_pool\w*",
    mistakes=(
        Mistake("pool", "all tokens", "The padding is averaged too.", "Look at the mask.", "Does a longer padding change the result?", POOL, "kept-or-diluted"),
        Mistake("pool", "padded count", "The sum leaves the padding out, but it is divided by the padded length.", "Look at the denominator.", "How many tokens were added?", POOL, "kept-or-diluted"),
        Mistake("pool", "sum", "The tokens are added, and not divided by their number.", "Look at the denominator.", "Does a longer sentence have a longer vector?", POOL, "cls-gap-map"),
        Mistake("pool", "inverted", "The mask is inverted: the padding is averaged.", "Look at the mask.", "Which tokens are real?", POOL, None),
        Mistake("layer", "exchanged", "Tokens and width are exchanged before they are flattened: the layer reads the first number of every token first.", "Look at the flattening.", "Which axis varies fastest?", ("flatten", "return"), "cls-gap-map"),
        Mistake("residual", "none", "The residual connection around the feed-forward network is missing.", "Look at the additions.", "What is returned if the network returns 0?", ("return",), "cls-gap-map"),
        *(m for m in SCALE_MISTAKES if m.value in ("none", "d_model", "multiplied")),
        *(m for m in SOFTMAX_MISTAKES if m.value in ("queries", "none", "heads")),
        Mistake("pool", "batch count", "It is divided by the size of the batch, not by the number of tokens.", "Look at the denominator.", "Which axis is summed?", POOL, None),
    ),
    conventions=(Convention("pool", "first", "the first token"), Convention("pool", "max", "the maximum"), Convention("pool", "last", "the last real token"), Convention("pool", "without the first", "the mean without the class token"), Convention("activation", "relu", "ReLU"), Convention("activation", "gelu tanh", "GELU by tanh")),
    readings=pool_readings, cases=pool_cases, expected=pool_expected, kinds=("function", "class", "instance"), strict=False, n_cases=3,
)  # fmt: skip
