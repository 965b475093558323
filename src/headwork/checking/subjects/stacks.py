"""Stacks of layers: the encoder that reads vectors, and the decoder that reads a memory beside vectors or ids."""

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from headwork.checking.calling import Candidate
from headwork.checking.layering import all_layers, split_layers
from headwork.checking.option import Case, How, Reading, Subject, Weights
from headwork.checking.subjects import layers, models
from headwork.checking.subjects.blocks import CROSS, VOCAB, Block, block_readings, cases


def wirings(block: Block, cross: bool) -> list[Weights]:
    assert block.made is not None
    stacks, rest = split_layers(block.parameters)
    if len(stacks) != 1:
        return []
    facts = block.made.facts
    return [
        {**w, "layers": own}
        for own in all_layers(next(iter(stacks.values())), block.n_heads, facts, block.d_model, cross)
        for w in models.rest_wirings(rest, facts, block.d_model, (VOCAB,))
    ][:48]


def encoder_readings(candidate: Candidate) -> Iterator[Reading]:
    extra = {"not": layers.unlikely(candidate)}
    yield from block_readings(
        candidate, lambda block: wirings(block, cross=False), sizes=models.MODEL_SIZES, extra=extra
    )


def decoder_readings(candidate: Candidate) -> Iterator[Reading]:
    yield from block_readings(
        candidate,
        lambda block: wirings(block, cross=True),
        role_sets=(CROSS, {"target": "target", "memory": "memory"}),
        masks={"memory_mask": "memory_visible", "tgt_mask": "visible"},
        sizes=models.MODEL_SIZES,
        extra={"not": layers.unlikely(candidate)},
    )


def expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    """Layers one after the other, a last norm and perhaps a head; ids are embedded first."""
    roles = reading.facts["roles"]
    if "target" in roles:
        if w["tokens"] is None:
            raise ValueError("there is no table")
        x = models.embed(case["target"], w, how)
    else:
        if how.get("positions") or how.get("embedding"):
            raise ValueError("nothing is embedded")
        x = case["x"]
    memory = case["memory"] if "memory" in roles else None
    seen = case.get("memory_visible")
    x = models.run_stack(x, w["layers"], case.get("visible"), how, reading.facts["n_heads"], memory, seen)
    return models.to_logits(models.finish(x, w, how), w, how)


PARTS = tuple(
    replace(m, point=("layer without a mask", *m.point)) if (m.option, m.value) == ("hidden", "ignored") else m
    for m in models.PARTS
)
MISTAKES = tuple(replace(m, point=("return",)) if m.option == "final_norm" else m for m in models.MODEL_MISTAKES)
STACK_MISTAKES = tuple(m for m in MISTAKES if m.option in ("stack", "final_norm", "head"))
ENCODER = Subject(
    name="encoder stack", title="a stack of encoder layers", pattern=r"(?!.*(decoder|layer)).*encoder(_?stack)?|transformer(_?(stack|blocks))?",
    mistakes=(*STACK_MISTAKES, *PARTS), conventions=layers.CONVENTIONS, readings=encoder_readings, cases=cases, expected=expected,
    kinds=("class", "instance"), strict=False, n_cases=3,
)  # fmt: skip
DECODER = Subject(
    name="decoder stack", title="a stack of decoder layers", pattern=r"(?!.*(encoder|layer)).*decoder(_?stack)?",
    mistakes=(*MISTAKES, *layers.CROSS_MISTAKES, *models.PARTS), conventions=models.CONVENTIONS, readings=decoder_readings, cases=cases, expected=expected,
    kinds=("class", "instance"), strict=False, n_cases=3,
)  # fmt: skip
