"""Multi-head attention: self, cross, causal, grouped; one head is the smallest number of heads."""

import re
from collections.abc import Iterator

from torch import Tensor

from headwork.checking import equations
from headwork.checking.calling import Candidate
from headwork.checking.layering import eps_of
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.subjects import attention
from headwork.checking.subjects.blocks import ROLE_SETS, Block, block_readings, cases
from headwork.checking.wiring import attention_wirings

SPLIT = ("bare split", "split", "qkv")
HEAD_MISTAKES = (
    Mistake("split", "view", "The heads are split by a view without a transpose: each head gets a piece of the tokens instead of a piece of the width.", "Look at how the heads are split.", "Which axis varies fastest in memory, and which one do you want apart?", SPLIT, "splitting-or-projecting"),
    Mistake("split", "heads as tokens", "Attention runs between the heads of one token, not between tokens: the head axis was not moved before the product.", "Look at the axes of the product of queries and keys.", "What is the shape of the scores?", ("scores", "split"), "multi-head-shapes"),
    Mistake("split", "joined otherwise", "The heads are split in another order than they are joined: the head varies fastest in the split, and slowest in the join.", "Look at how the heads are split and joined.", "Which axis varies fastest in each?", ("axes", "join"), "multi-head-shapes"),
    Mistake("join", "view", "The heads are joined without a transpose back: tokens and heads are mixed.", "Look at how the heads are joined.", "Which axis varies fastest in memory before the view?", ("bare join", "join"), "multi-head-shapes"),
    Mistake("join", "mean", "The heads are averaged instead of concatenated.", "Look at how the heads are joined.", "How wide is the result before the output projection?", ("mean", "join"), "heads-add-up"),
    Mistake("join", "sum", "The heads are added instead of concatenated.", "Look at how the heads are joined.", "How wide is the result before the output projection?", ("mean", "join"), "heads-add-up"),
    Mistake("join", "interleaved", "The heads are joined in another order than they were split: the width of a head varies slowest.", "Look at how the heads are joined.", "Which axis should vary fastest?", ("join",), "multi-head-shapes"),
    Mistake("output", "not used", "The output projection is made, but not used.", "Look at the last line of forward.", "Which of your parameters gets no gradient?", ("return", "output"), "heads-add-up"),
    Mistake("output", "is v", "The value projection is used once more as the output projection.", "Look at the output projection.", "Which layer does that name or index stand for?", ("output", "return"), "heads-add-up"),
    Mistake("output", "twice", "The output projection is applied twice.", "Look at the output projection.", "How often is it called?", ("output",), None),
    Mistake("weights", "k as q", "The keys are projected with the weights of the queries.", "Look at the three projections.", "Which of your parameters gets no gradient?", ("qkv",), "parameters-of-attention"),
    Mistake("weights", "v as k", "The values are projected with the weights of the keys.", "Look at the three projections.", "Which of your parameters gets no gradient?", ("qkv",), "parameters-of-attention"),
    Mistake("weights", "v as q", "The values are projected with the weights of the queries.", "Look at the three projections.", "Which of your parameters gets no gradient?", ("qkv",), "parameters-of-attention"),
    Mistake("weights", "no q", "The queries are not projected.", "Look at the three projections.", "Which of your parameters gets no gradient?", ("qkv",), "parameters-of-attention"),
    Mistake("weights", "no k", "The keys are not projected.", "Look at the three projections.", "Which of your parameters gets no gradient?", ("qkv",), "parameters-of-attention"),
    Mistake("weights", "no v", "The values are not projected.", "Look at the three projections.", "Which of your parameters gets no gradient?", ("qkv",), "parameters-of-attention"),
    Mistake("weights", "q and k exchanged", "The layer called query projects the keys, and the one called key the queries.", "Look at the three projections.", "Which input goes through which layer?", ("qkv",), "perturbed-key-or-query"),
    Mistake("weights", "k and v exchanged", "The layer called key projects the values, and the one called value the keys.", "Look at the three projections.", "Which input goes through which layer?", ("qkv",), None),
    Mistake("source", "queries from memory", "The queries come from the memory, and keys and values from x: cross-attention is the other way round.", "Look at what is projected.", "Who asks, and who is asked?", ("qkv",), "cross-attention-of-two-lengths"),
    Mistake("source", "values from x", "The values come from x, not from the memory.", "Look at what is projected.", "Whose content should be averaged?", ("qkv",), "cross-attention-of-two-lengths"),
    Mistake("source", "memory unused", "The memory is not used: keys and values come from x.", "Look at what is projected.", "Which argument of forward is never read?", ("qkv",), "cross-attention-of-two-lengths"),
    Mistake("groups", "tiled", "The heads of keys and values are tiled (repeat), where each should serve neighbouring query heads (repeat_interleave).", "Look at how keys and values are repeated.", "Which query heads share key head 0?", ("repeat",), "cost-of-heads"),
)  # fmt: skip
ROTARY_MISTAKES = (
    Mistake("turned_too", "values", "The values are turned too: rotary codes are for queries and keys only.", "Look at what is rotated.", "Should the content depend on where it stands?", ("sin", "qkv"), "relative-scores-know-the-shift"),
    Mistake("turned_too", "queries only", "Only the queries are turned: the scores then depend on the position of the query, not on the distance.", "Look at what is rotated.", "What is the product of a turned and an unturned vector?", ("sin", "qkv"), "relative-scores-know-the-shift"),
)  # fmt: skip
# A different first and last size for heads and their width is needed to tell n_heads from d; the library's own
# parameters-of-attention has the counts.
CONVENTIONS = (
    *attention.CAUSAL_CONVENTIONS,
    Convention("split", "interleaved", "heads interleaved in the width"),
    Convention("wrapped", "added", "adds its input to the output"),
    Convention("wrapped", "added and normalised", "adds its input and normalises"),
    Convention("turned", "pairs", "turns queries and keys by rotary codes (pairs)"),
    Convention("turned", "halves", "turns queries and keys by rotary codes (halves)"),
)


def wire(block: Block) -> list[Weights]:
    if not block.parameters:  # projections are somebody else's; one head of them is scaled dot-product attention
        kind = "" if block.made is None else block.made.facts["type"]
        named = block.n_heads > 1 and re.search(r"(?i)att|head|mha", kind)
        return [{}] if block.candidate is not None or named else []
    eps = 1e-5 if block.made is None else eps_of(block.made.facts)
    return [{**w, "eps": eps} for w in attention_wirings(block.parameters, block.n_heads)]


def readings(candidate: Candidate) -> Iterator[Reading]:
    yield from block_readings(candidate, wire, role_sets=ROLE_SETS)


def expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    x, keys, values = inputs_of(case, reading)
    if how.get("wrapped") == "added and normalised" and "norm.weight" not in w:
        raise ValueError("there is no norm")
    if how.get("turned_too") and not how.get("turned"):
        raise ValueError("nothing is turned")
    if how.get("output") in ("not used", "twice") and "o.weight" not in w:
        raise ValueError("there is no output projection")
    facts = reading.facts
    if how.get("scale") == "d_value" or (how.get("scale") == "n_heads" and facts["n_heads"] == 1):
        raise ValueError("values are as wide as keys, and the root of one head is 1")
    how = {**how, "blind": "anything"}
    return equations.multi_head(
        x, keys, values, w, case.get("visible"), how, facts["n_heads"], n_kv_heads=facts["n_kv_heads"]
    )


def inputs_of(case: Case, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
    roles = reading.facts["roles"]
    if "k" in roles:
        return case["x"], case["memory"], case["values"]
    if "memory" in roles:
        return case["x"], case["memory"], case["memory"]
    return case["x"], case["x"], case["x"]


SUBJECT = Subject(
    name="multi-head attention",
    title="multi-head attention",
    pattern=r".*(multi_?_?head|self_?_?att(entio)?n|cross_?_?att(entio)?n|attention_?(layer|block|head|module|wrapper)|mha|causal_?(self)?_?att|grouped_?query).*|(.*_)?attention(_v?\d)?|head|attn",
    mistakes=(*attention.MISTAKES, *HEAD_MISTAKES, *ROTARY_MISTAKES),
    conventions=CONVENTIONS,
    readings=readings,
    cases=cases,
    expected=expected,
    kinds=("function", "class", "instance"),
    strict=False,
    n_cases=4,
    reads=attention.aligned_only_if_causal,
)
