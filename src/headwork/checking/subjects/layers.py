"""Encoder and decoder layers: pre and post norm, with whatever is wrong inside of their parts."""

import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from headwork.checking import equations
from headwork.checking.calling import Candidate
from headwork.checking.layering import layer_wirings
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.pointing import is_whole, own_source
from headwork.checking.subjects import activation, attention, multi_head
from headwork.checking.subjects.blocks import (
    CROSS,
    CROSS_AS_THREE,
    SELF,
    SELF_AS_THREE,
    Block,
    block_readings,
    cases,
)

ADD = ("residual", "norm")
LAYER_MISTAKES = (
    Mistake("residual", "no attention", "The residual connection around attention is missing.", "Look at the additions.", "What reaches the next layer if attention returns 0?", ("attend", "residual"), "gradients-through-depth"),
    Mistake("residual", "no feed-forward", "The residual connection around the feed-forward network is missing.", "Look at the additions.", "What reaches the next layer if it returns 0?", ("feed", "residual2"), "gradients-through-depth"),
    Mistake("residual", "none", "Both residual connections are missing.", "Look at the additions.", "What reaches the next layer if the parts return 0?", ("attend",), "gradients-through-depth"),
    Mistake("residual", "from the norm", "The residual is taken from the normalised x, and should be from x itself.", "Look at what is added.", "Is there a path without a norm from bottom to top?", ADD, "gradients-through-depth"),
    Mistake("residual", "from the input", "The second residual is taken from the input of the layer: what attention added is lost.", "Look at what is added.", "Which x is it?", ("residual2",), "gradients-through-depth"),
    Mistake("norms", "one shared", "One norm is used twice: each sublayer has its own.", "Look at the norms.", "Which parameter gets no gradient?", ("norm2", "norm"), "layer-norm-of-a-token"),
    Mistake("norms", "no first", "The first norm is missing.", "Look at the norms.", "How many are there, and how many are used?", ("norm", "attend"), "layer-norm-of-a-token"),
    Mistake("norms", "no second", "The second norm is missing.", "Look at the norms.", "How many are there, and how many are used?", ("feed", "norm2"), "layer-norm-of-a-token"),
    Mistake("norms", "none", "The norms are made, but not used.", "Look at the norms.", "Which parameter gets no gradient?", ("def",), "layer-norm-of-a-token"),
    Mistake("norms", "post then pre", "The two sublayers have different orders: norm after the first, before the second.", "Look at the norms.", "Is it norm(x + f(x)) or x + f(norm(x))?", ("norm2", "norm"), "gradients-through-depth"),
    Mistake("norms", "pre then post", "The two sublayers have different orders: norm before the first, after the second.", "Look at the norms.", "Is it norm(x + f(x)) or x + f(norm(x))?", ("norm2", "norm"), "gradients-through-depth"),
    Mistake("norms", "of the sublayer", "The norm is applied to the sublayer only, before the residual is added.", "Look at the order of norm and addition.", "Is it norm(x + f(x)) or x + norm(f(x))?", ("norm",), "gradients-through-depth"),
    Mistake("feed", "reads the input", "The feed-forward network reads the input of the layer, not what attention returned.", "Look at what the feed-forward network is given.", "Which x is it?", ("feed",), None),
    Mistake("feed", "reads attention", "The feed-forward network reads what attention returned, before the residual connection and the norm.", "Look at what the feed-forward network is given.", "Which x is it?", ("feed",), None),
    Mistake("feed", "not used", "The feed-forward network is made, but not used.", "Look at forward.", "Which parameter gets no gradient?", ("return",), None),
)  # fmt: skip
CROSS_MISTAKES = (
    Mistake("order", "cross first", "Cross-attention comes before self-attention.", "Look at the order.", "What should the decoder do first?", ("cross",), "which-mask-goes-where"),
    Mistake("order", "cross not used", "Cross-attention is made, but not used: the decoder does not see the source.", "Look at forward.", "What changes with another source?", ("cross made", "def"), "cross-attention-of-two-lengths"),
    Mistake("memory_mask", "not used", "The padding of the source is not hidden in cross-attention.", "Look at the masks.", "Which mask belongs to cross-attention?", ("cross unmasked", "layer without the mask of the source", "cross"), "which-mask-goes-where"),
    Mistake("target_mask", "not used", "The mask of the target is not used: self-attention sees the future.", "Look at the masks.", "Which mask belongs to self-attention?", ("attend unmasked", "layer without the mask of the target", "attend"), "which-mask-goes-where"),
    Mistake("source", "queries from memory", "Cross-attention takes its queries from the memory, and keys and values from the target: it is the other way round.", "Look at cross-attention.", "Who asks, and who is asked?", ("cross",), "cross-attention-of-two-lengths"),
    Mistake("source", "values from x", "Cross-attention takes its values from the target, not from the memory.", "Look at cross-attention.", "Whose content should be averaged?", ("cross",), "cross-attention-of-two-lengths"),
    Mistake("source", "memory unused", "Cross-attention attends to the target: the memory is not used.", "Look at cross-attention.", "What changes with another source?", ("cross",), "cross-attention-of-two-lengths"),
    Mistake("residual", "no cross", "The residual connection around cross-attention is missing.", "Look at the additions.", "What reaches the next layer if it returns 0?", ("cross",), "gradients-through-depth"),
)  # fmt: skip
PARTS = tuple(
    m for m in (*attention.MISTAKES, *multi_head.HEAD_MISTAKES, *activation.FEED_FORWARD_MISTAKES)
    if m.option in ("scale", "softmax", "split", "join", "output", "hidden", "causal", "act", "mask_of") and m.value not in ("d_value", "after renormalised", "n_heads", "square", "sigmoid", "twice", "sum", "log")
)  # fmt: skip
NORM_FORMS = (
    Mistake("form", "unbiased", "The norms use the unbiased variance (divided by d - 1).", "Look at the norm.", "Is it divided by d or by d - 1?", ("variance",), "layer-norm-of-a-token"),
)  # fmt: skip
CONVENTIONS = (
    Convention("norm_order", "pre", "norm first"),
    Convention("form", "annotated", "the annotated transformer's norm"),
    *activation.ACTIVATION_CONVENTIONS[:3],
    Convention("causal", "past", "hides the future by itself"),
    Convention("turned", "pairs", "turns queries and keys by rotary codes (pairs)"),
    Convention("turned", "halves", "turns queries and keys by rotary codes (halves)"),
)


def sublayer(
    x: Tensor, f: Any, w: Weights, which: int, how: How, feed: bool, cross: bool = False, first: Tensor | None = None
) -> Tensor:
    """`norm(x + f(x))`, or with the norm first `x + f(norm(x))`."""
    order = how.get("norm_order", "post")
    fault = how.get("norms")
    if fault in ("post then pre", "pre then post"):
        order = str(fault).split(" then ")[1 if feed else 0]
    inner = {k: v for k, v in how.items() if k in ("form", "gain")}
    skipped = (fault == "no first" and not feed) or (fault == "no second" and feed) or fault == "none"

    def norm(t: Tensor) -> Tensor:
        if skipped or not w["norms"]:
            return t
        own = w["norms"][0 if fault == "one shared" else min(which, len(w["norms"]) - 1)]
        named = {
            "norm.weight": own.get("weight"),
            "norm.bias": own.get("bias"),
            "eps": w["eps"],
            "norm_kind": w["norm_kind"],
        }
        return equations.norm(t, named, "norm", inner)

    missing = {"no attention": not feed and not cross, "no feed-forward": feed, "no cross": cross, "none": True}.get(
        str(how.get("residual")), False
    )
    if fault == "of the sublayer":
        return x + norm(f(x))
    if order == "pre":
        y = norm(x)
        base = y if how.get("residual") == "from the norm" else x
        if feed and how.get("residual") == "from the input" and first is not None:
            base = first
        return f(y) if missing else base + f(y)
    base = first if feed and how.get("residual") == "from the input" and first is not None else x
    return norm(f(x)) if missing else norm(base + f(x))


def layer(
    x: Tensor,
    w: Weights,
    visible: Tensor | None,
    how: How,
    n_heads: int,
    memory: Tensor | None = None,
    memory_visible: Tensor | None = None,
    n_kv_heads: int | None = None,
) -> Tensor:
    """One layer; with a memory, a decoder layer."""
    if not w["norms"] and how.get("norms"):
        raise ValueError("there are no norms")
    own = {k: v for k, v in how.items() if k not in ("source", "wrapped")}
    beside = {k: v for k, v in how.items() if k not in ("causal", "wrapped", "turned")}

    def attend(t: Tensor) -> Tensor:
        seen = None if how.get("target_mask") == "not used" else visible
        return equations.multi_head(t, t, t, w["attention"], seen, own, n_heads, n_kv_heads=n_kv_heads)

    def look(t: Tensor) -> Tensor:
        seen = visible if how.get("source") == "memory unused" else memory_visible
        seen = None if how.get("memory_mask") == "not used" else seen
        return equations.multi_head(t, memory, memory, w["cross"], seen, beside, n_heads)  # type: ignore[arg-type]

    start = x
    crossing = memory is not None and how.get("order") != "cross not used"
    if crossing and how.get("order") == "cross first":
        x = sublayer(x, look, w, 1, how, feed=False, cross=True)
    x = sublayer(x, attend, w, 0, how, feed=False)
    if crossing and how.get("order") != "cross first":
        x = sublayer(x, look, w, 1, how, feed=False, cross=True)
    last = 2 if memory is not None else 1
    inner = {k: v for k, v in how.items() if k in ("activation", "act", "gated")}
    if how.get("feed") == "not used":
        return x
    if how.get("feed") in ("reads the input", "reads attention"):
        given = start
        if how["feed"] == "reads attention":
            if memory is not None or how.get("norm_order") == "pre":
                raise ValueError("that is another program")
            given = attend(start)
        return sublayer(
            x, lambda t: equations.feed_forward(given, w["feed"], inner), w, last, how, feed=True, first=start
        )
    return sublayer(x, lambda t: equations.feed_forward(t, w["feed"], inner), w, last, how, feed=True, first=start)


ROTARY = r"rotat|rotary|\brope|_rope|freqs|cos\("


def unlikely(candidate: Candidate) -> set[tuple[str, object]]:
    """Conventions that the source does not hold: an activation that is not named, say."""
    turned: set[tuple[str, object]] = {("turned", "pairs"), ("turned", "halves")}
    if not candidate.source or not is_whole(candidate.source, candidate.name):
        return set() if re.search(ROTARY, candidate.source.lower()) else turned
    own = own_source(candidate.source, candidate.name).lower()
    signs = {"relu": "relu", "gelu": "gelu", "gelu tanh": "tanh", "silu": r"silu|swish"}
    there = {value for value, sign in signs.items() if re.search(sign, own)}
    gone: set[tuple[str, object]] = {("activation", v) for v in signs if v not in there} if there else set()
    if not re.search(r"\.std\(", own):
        gone.add(("form", "annotated"))
    root = r"(sqrt|\*\*\s*\(?(0?\.5|1\s*/\s*2)|pow\(|scal)"
    if not re.search(
        rf"\*[^\n]*{root}[^\n]*|{root}[^\n]*\*[^*]",
        re.sub(r"\n[^\n]*(score|energy|attn|attention|softmax|@|matmul)[^\n]*", "", own),
    ):
        gone.add(("embedding", "scaled"))
    if not re.search(r"tri[lu]|causal|mask|inf\b|subsequent", own):
        gone.add(("causal", "past"))
    return gone if re.search(ROTARY, own) else gone | turned


def encoder_readings(candidate: Candidate) -> Iterator[Reading]:
    def wire(block: Block) -> list[Weights]:
        assert block.made is not None
        return layer_wirings(block.parameters, block.n_heads, block.made.facts, block.d_model)

    yield from block_readings(candidate, wire, role_sets=(SELF, SELF_AS_THREE), extra={"not": unlikely(candidate)})


def encoder_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    return layer(
        case["x"], w, case.get("visible"), how, reading.facts["n_heads"], n_kv_heads=reading.facts["n_kv_heads"]
    )


def decoder_readings(candidate: Candidate) -> Iterator[Reading]:
    def wire(block: Block) -> list[Weights]:
        assert block.made is not None
        return layer_wirings(block.parameters, block.n_heads, block.made.facts, block.d_model, cross=True)

    masks = {"memory_mask": "memory_visible", "tgt_mask": "visible"}
    yield from block_readings(
        candidate, wire, role_sets=(CROSS, *CROSS_AS_THREE), masks=masks, extra={"not": unlikely(candidate)}
    )


def decoder_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    return layer(
        case["x"], w, case.get("visible"), how, reading.facts["n_heads"], case["memory"], case.get("memory_visible")
    )


ENCODER = Subject(
    name="encoder layer",
    title="an encoder layer",
    pattern=r"(?!.*decoder)(.*(encoder|transformer)_?(layer|block|cell|unit)|.*_?block|residual_attention_block|transformer_encoder_layer|gpt_?\d?_?(layer|block)|layer|encoder_?layer\w*|vi_?t_?(layer|block)|decoder_block|transformer_decoder_block)",
    mistakes=(*LAYER_MISTAKES, *PARTS, *NORM_FORMS), conventions=CONVENTIONS, readings=encoder_readings, cases=cases, expected=encoder_expected,
    kinds=("class", "instance"), strict=False, n_cases=3,
)  # fmt: skip
DECODER = Subject(
    name="decoder layer",
    title="a decoder layer",
    pattern=r".*decoder_?(layer|block|cell|unit)\w*",
    mistakes=(*LAYER_MISTAKES, *CROSS_MISTAKES, *PARTS, *NORM_FORMS), conventions=CONVENTIONS, readings=decoder_readings, cases=cases, expected=decoder_expected,
    kinds=("class", "instance"), strict=False, n_cases=3,
)  # fmt: skip
