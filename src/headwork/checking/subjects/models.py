"""Whole small models: decoder, encoder, encoder-decoder and Vision Transformer."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headwork.checking import equations
from headwork.checking.calling import Assignment, Candidate, assignments, call, role_of, tensors_of
from headwork.checking.layering import all_layers, eps_of, kind_of_norms, split_layers
from headwork.checking.mask_meanings import KIND_OF_RANK, MEANINGS, encode_mask, random_visible
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.runner import ProgramError
from headwork.checking.subjects import images, layers
from headwork.checking.subjects.blocks import USUAL_SIZES, VOCAB, Block, blocks
from headwork.checking.wiring import linears, norms

N, N_CLASSES, N_MOST, PAD = 6, 5, 16, 0
MODEL_SIZES = {
    **USUAL_SIZES,
    "n_classes": N_CLASSES,
    "image": images.IMAGE,
    "patch": images.PATCH,
    "n_channels": images.CHANNELS,
    "pad": PAD,
}
MODEL_MISTAKES = (
    Mistake("positions", "not used", "The positions are made, but not added: the model does not know the order of its tokens.", "Look at the embedding.", "What tells two tokens apart?", ("add_positions in a call", "embed", "embedded"), "order-needs-positions"),
    Mistake("positions", "from one", "Positions start at 1: row 0 of the table is never used.", "Look at the positions.", "Which row does the first token get?", ("positions", "add_positions"), None),
    Mistake("positions", "same", "Every token gets the same position.", "Look at the positions.", "What tells two tokens apart?", ("positions", "add_positions"), "order-needs-positions"),
    Mistake("positions", "batch", "Positions are counted along the batch: every token of a sentence gets the same one.", "Look at the axis of the positions.", "Which axis is the token's?", ("add_positions", "positions"), "order-needs-positions"),
    Mistake("embedding", "scaled late", "The positions are multiplied by sqrt(d) too: only the embedding should be.", "Look at the scale.", "What is scaled, and what added?", ("scale", "embed"), None),
    Mistake("stack", "first only", "Every layer uses the weights of the first: the others are never used.", "Look at the loop over the layers.", "Which parameters get no gradient?", ("one layer", "in the loop", "layers"), None),
    Mistake("stack", "one object", "All layers are one and the same object ([layer] * n): they share their weights.", "Look at how the layers are made.", "How many parameters does the model have with one layer more?", ("repeated layer", "layers"), None),
    Mistake("stack", "last only", "Only the last layer acts: each one reads the embedding, not the layer before.", "Look at the loop over the layers.", "What does layer 1 read?", ("one layer", "in the loop", "layers"), "gradients-through-depth"),
    Mistake("stack", "one missing", "The last layer is not used.", "Look at the loop over the layers.", "How often does it run?", ("layers",), None),
    Mistake("stack", "none", "The layers are not used.", "Look at forward.", "Which parameters get no gradient?", ("layers", "return"), None),
    Mistake("final_norm", "not used", "The last norm is made, but not used.", "Look at the end of forward.", "Which parameter gets no gradient?", ("head", "return"), None),
    Mistake("head", "softmax", "The model returns probabilities: a loss such as cross_entropy wants logits, and takes the softmax again.", "Look at the last line.", "What does the loss do with it?", ("last softmax", "return"), "softmax-saturates"),
)  # fmt: skip
POOL_MISTAKES = (
    Mistake("pool", "sum", "The tokens are added, and not averaged.", "Look at the pooling.", "Does a longer sentence have a longer vector?", ("pool",), "cls-gap-map"),
    Mistake("pool", "second", "The classifier reads token 1, and should read token 0.", "Look at the pooling.", "Where is the class token?", ("pool", "head"), "cls-gap-map"),
    Mistake("pool", "batch", "The mean runs over the batch.", "Look at the pooling.", "Which axis is the token's?", ("pool",), None),
)  # fmt: skip
CONVENTIONS = (
    *layers.CONVENTIONS,
    Convention("embedding", "scaled", "embedding times sqrt(d)"),
    Convention("positions", "sinusoidal", "sinusoidal positions"),
    Convention("positions", "none", "no positions"),
    Convention("head", "log-softmax", "returns log-probabilities"),
)
PARTS = tuple(m for m in (*layers.LAYER_MISTAKES, *layers.PARTS))


def unlikely(candidate: Candidate, wirings: Sequence[Weights]) -> set[tuple[str, object]]:
    """Conventions that source and parameters rule out."""
    gone = layers.unlikely(candidate)
    if candidate.source and "log_softmax" not in candidate.source.lower().replace("logsoftmax", "log_softmax"):
        gone.add(("head", "log-softmax"))
    if all(w.get("positions") is not None or w.get("source", {}).get("positions") is not None for w in wirings):
        gone |= {("positions", "sinusoidal"), ("positions", "none")}
    return gone


def embed(ids: Tensor, w: Weights, how: How, segments: Tensor | None = None) -> Tensor:
    """Tokens, positions and segments; some models normalise their sum."""
    x = _embed(ids, w, how)
    if w.get("segments") is not None:
        x = x + w["segments"][segments if segments is not None else torch.zeros_like(ids)]
    own = w.get("embedding norm")
    if own is None:
        return x
    named = {**{f"norm.{k}": v for k, v in own.items()}, "eps": w["eps"], "norm_kind": w["norm_kind"]}
    return equations.norm(x, named, "norm", {k: v for k, v in how.items() if k == "form"})


def _embed(ids: Tensor, w: Weights, how: How) -> Tensor:
    x = w["tokens"][ids]
    d, n = x.shape[-1], ids.shape[1]
    if how.get("embedding") == "scaled":
        x = x * math.sqrt(d)
    places = how.get("positions")
    table = w["positions"]
    if places in ("sinusoidal", "sines from one"):
        if table is not None:
            raise ValueError("there is a table")
        table = equations.sinusoid(max(n, ids.shape[0]) + 1, d, {})
    elif table is None:
        if places != "none":
            raise ValueError("there is no table")
        return x
    if places == "none":
        raise ValueError("there is a table")
    if places == "not used":
        return x
    rows = {"from one": table[1 : n + 1], "same": table[:1], "batch": table[: ids.shape[0], None]}.get(
        str(places), table[:n]
    )
    x = x + rows
    return x * math.sqrt(d) if how.get("embedding") == "scaled late" else x


def run_stack(
    x: Tensor,
    own: Sequence[Weights],
    visible: Tensor | None,
    how: How,
    n_heads: int,
    memory: Tensor | None = None,
    memory_visible: Tensor | None = None,
) -> Tensor:
    inner = {k: v for k, v in how.items() if k not in ("positions", "embedding")}
    fault = how.get("stack")
    if (fault == "one object") != (len(own) == 1):
        raise ValueError("as many layers as there are")
    chosen = {
        "one object": [own[0]] * USUAL_SIZES["n_layers"],
        "first only": [own[0]] * len(own),
        "last only": own[-1:],
        "one missing": own[:-1],
        "none": [],
    }.get(str(fault), own)
    for w in chosen:
        x = layers.layer(x, w, visible, inner, n_heads, memory, memory_visible)
    return x


def finish(x: Tensor, w: Weights, how: How) -> Tensor:
    if w["final"] is None and how.get("final_norm"):
        raise ValueError("there is no last norm")
    if w["final"] is not None and how.get("final_norm") != "not used":
        own = w["final"]
        x = equations.norm(
            x,
            {
                "norm.weight": own.get("weight"),
                "norm.bias": own.get("bias"),
                "eps": w["eps"],
                "norm_kind": w["norm_kind"],
            },
            "norm",
            {k: v for k, v in how.items() if k == "form"},
        )
    return x


def to_logits(x: Tensor, w: Weights, how: How) -> Tensor:
    logits = F.linear(x, w["head"], w["head_bias"]) if w["head"] is not None else x
    if how.get("head") == "log-softmax":
        return logits.log_softmax(-1)
    return logits.softmax(-1) if how.get("head") == "softmax" else logits


def rest_wirings(
    rest: Mapping[str, Tensor], facts: Mapping[str, Any], d: int, n_out: Sequence[int]
) -> Iterator[Weights]:
    """Embedding, positions, last norm and head of a model, from what is left beside its layers."""
    tables = token_tables(rest, facts, d)
    names = [n for n, _ in tables]
    heads = [
        (p, own["weight"], own.get("bias"))
        for p, own in linears(rest).items()
        if "weight" in own and own["weight"].ndim == 2 and own["weight"].shape[-1] == d and f"{p}.weight" not in names
    ]
    sizes = {*n_out, *((t.shape[0] for _, t in tables) if VOCAB in n_out else ())}
    heads = [h for h in heads if h[1].shape[0] in sizes] or [h for h in heads if re.search(HEAD, h[0])]
    first = [w for path, w in norms(rest) if w["weight"].shape == (d,) and re.search(r"(?i)emb", path)]
    last = [w for path, w in norms(rest) if w["weight"].shape == (d,) and not re.search(r"(?i)emb", path)]
    ends: list[tuple[Tensor | None, Tensor | None]] = [(weight, bias) for _, weight, bias in heads[-1:]]
    ends += [(None, None), *((t, None) for _, t in (tables[:1] if not ends else ()))]
    places = position_tables(rest, facts, d)
    embedded = [(tables[0][1] if tables else None, places[0] if places else None)]
    if len(tables) == 2 and not places:  # one of them may be positions, whatever it is called
        embedded += [(tables[0][1], tables[1][1]), (tables[1][1], tables[0][1])]
    for (tokens, positions), (head, bias) in itertools.product(embedded, ends):
        yield {
            "tokens": tokens,
            "all tables": [t for _, t in tables],
            "positions": positions,
            "segments": next((t for n, t in rest.items() if t.shape[1:] == (d,) and re.search(SEGMENT, n)), None),
            "embedding norm": first[0] if first else None,
            "head": head,
            "head_bias": bias,
            "final": last[-1] if last else None,
            "eps": eps_of(facts),
            "norm_kind": kind_of_norms(facts),
            "token": next(
                (t.reshape(1, 1, d) for n, t in rest.items() if t.numel() == d and re.search(r"(?i)cls|class", n)), None
            ),
        }


HEAD = r"(?i)head|out|proj|fc|generator|unembed|class|logit|lm|linear|final"
POSITION = r"(?i)pos|wpe|pe\b|place"
SEGMENT = r"(?i)seg|token_type|type_emb"


def is_table(name: str, facts: Mapping[str, Any]) -> bool:
    """Whether a parameter belongs to an nn.Embedding, or to a class that is called like one."""
    return facts["modules"].get(name.rpartition(".")[0], "").endswith("Embedding")


def is_position(name: str) -> bool:
    """Whether the last part of a path that says so says position, and not token.

    >>> is_position("pos_emb.embedding.weight"), is_position("token_and_position.tok.weight")
    (True, False)
    """
    said = [part for part in name.split(".") if re.search(rf"{POSITION}|tok|word|vocab", part)]
    return bool(said) and re.search(POSITION, said[-1]) is not None


def token_tables(rest: Mapping[str, Tensor], facts: Mapping[str, Any], d: int) -> list[tuple[str, Tensor]]:
    """Embeddings of tokens, by the kind of their module or by their names."""
    return [
        (n, t)
        for n, t in rest.items()
        if t.ndim == 2
        and t.shape[1] == d
        and not re.search(SEGMENT, n)
        and not is_position(n)
        and (is_table(n, facts) or (t.shape[0] == VOCAB and re.search(r"(?i)emb|tok|wte|vocab|input", n)))
        and (is_table(n, facts) or not re.search(r"(?i)head|out|proj|fc|generator|unembed", n))
    ]


def position_tables(rest: Mapping[str, Tensor], facts: Mapping[str, Any], d: int) -> list[Tensor]:
    """Learned positions, in the order in which they were made."""
    usual = (N_MOST * d, (images.N + 1) * d, images.N * d)
    tokens = [n for n, _ in token_tables(rest, facts, d)]
    return [
        t.reshape(-1, d)
        for n, t in rest.items()
        if t.shape[-1:] == (d,)
        and t.ndim in (2, 3)
        and n not in tokens
        and t.numel() >= N * d
        and (is_position(n) or (t.numel() in usual and re.search(r"(?i)emb", n)))
    ]


def of_width(wirings: Sequence[Weights], width: int, d: int) -> tuple[Weights, ...]:
    """The wirings whose head gives so many numbers; without a head, a model gives as many as it is wide."""
    return tuple(w for w in wirings if (d if w["head"] is None else w["head"].shape[0]) == width)


def text_wirings(block: Block, n_out: Sequence[int]) -> Iterator[Weights]:
    assert block.made is not None
    stacks, rest = split_layers(block.parameters)
    if len(stacks) != 1:
        return
    for own in all_layers(next(iter(stacks.values())), block.n_heads, block.made.facts, block.d_model):
        for w in rest_wirings(rest, block.made.facts, block.d_model, n_out):
            if w["tokens"] is not None:
                yield {**w, "layers": own}


def ids_case(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    n, vocab = (N, N - 2, N)[number % 3], reading.facts.get("vocab", VOCAB)
    case: Case = {
        "ids": torch.randint(1, vocab, (2, n), generator=generator),
        "target": torch.randint(1, vocab, (2, n - 1), generator=generator),
        "segments": (torch.arange(n) > 2).long().expand(2, n).contiguous(),
    }
    if reading.facts.get("mask") is not None and number % 2 == 0:
        case["visible"] = random_visible("padding", 2, n, n, generator)
    return case


def model_readings(
    candidate: Candidate, wire: Any, n_out: Sequence[int], rank: int, may_be_last: bool = False
) -> Iterator[Reading]:
    """Models that read ids and return "batch token number" (rank 3) or "batch number" (rank 2).

    Where no answer has a row for each token, the targets are given too, as in training; a model that answers for the
    last token only is taken at that (`may_be_last`).
    """
    fixed = {"flag": None, "dropout": None, "positions": None}
    has_target = any(role_of(p["name"], ("ids", "mask", "target")) == "target" for p in candidate.parameters)
    problem: ProgramError | None = None
    n = 0
    for block in blocks(candidate, MODEL_SIZES):
        wirings = tuple(wire(block, n_out))[:48]
        if not wirings:
            continue
        for targets, last in ((False, False), (True, False), (False, True)):
            if (targets and not has_target) or (last and not may_be_last) or n:
                continue
            optional = ("mask", "segments", *(("target",) if targets else ()))
            for assignment in assignments(
                candidate.parameters, ("ids",), optional, fixed if targets else {**fixed, "target": None}
            ):
                try:
                    for reading in _of_model(candidate, block, wirings, assignment, rank, last):
                        n += 1
                        yield reading
                except ProgramError as error:
                    if error.is_final:
                        raise
                    problem = problem or error
    if n == 0 and problem is not None:
        raise problem


def _of_model(
    candidate: Candidate, block: Block, wirings: tuple[Weights, ...], assignment: Assignment, rank: int, last: bool
) -> Iterator[Reading]:
    facts = {
        "seed": candidate.program.first_seed,
        "n_heads": block.n_heads,
        "block": block,
        "d_model": block.d_model,
        "not": unlikely(candidate, wirings),
        "rank": rank,
        "partial": False,
        "last": last,
        "vocab": min(t.shape[0] for t in wirings[0]["all tables"]),
    }
    said: tuple[str, ...] = (assignment.said([p["name"] for p in candidate.parameters]),)
    said = (*said, "answers for the last token only") if last else said
    plain = _model_run(candidate, block, assignment, None, rank, last)
    mask = "mask" in assignment.roles.values()
    try:
        answer = plain(ids_case(Reading((), plain, facts=facts), 0))
    except ProgramError as error:
        if error.is_final or not mask:
            raise
        answer = {}
    if "output" in answer:
        own = of_width(wirings, answer["output"].shape[-1], block.d_model)
        with_or_without = (*said, "no mask given") if mask else said
        yield Reading(with_or_without, plain, 0.6 if mask else 0.0, own, {**facts, "partial": mask})
    for (meaning_said, meaning), order in itertools.product(MEANINGS.items(), MASK_RANKS) if mask else ():
        run = _model_run(candidate, block, assignment, (meaning, order), rank, last)
        reading = Reading((*said, f"mask: {meaning_said}"), run, 0.0, wirings, {**facts, "mask": KIND_OF_RANK[order]})
        try:
            answer = run(ids_case(reading, 0))
        except ProgramError as error:
            if error.is_final:
                raise
            continue
        if "output" in answer:
            yield replace(reading, wirings=of_width(wirings, answer["output"].shape[-1], block.d_model))


MASK_RANKS = ("b11k", "bk", "b1k", "b1qk", "bqk", "qk")


def _model_run(
    candidate: Candidate, block: Block, assignment: Assignment, mask: tuple[str, str] | None, rank: int, last: bool
) -> Any:
    required = {
        assignment.roles[p["name"]] for p in candidate.parameters if p["name"] in assignment.roles and not p["optional"]
    }

    def run(case: Case) -> dict[str, Tensor]:
        values: dict[str, Any] = {"ids": case["ids"], "segments": case["segments"], "target": case["ids"].roll(-1, 1)}
        if mask is not None and case.get("visible") is not None:
            encoded = encode_mask(case["visible"], *mask, block.n_heads)
            if encoded is None:
                return {}
            values["mask"] = encoded
        elif "mask" in required:
            values["mask"] = None
        given = case["ids"].shape
        leading = (given[0], 1) if last else given[: rank - 1]
        for _, t in tensors_of(call(candidate, block.target, assignment, values)):
            if not t.is_floating_point():
                continue
            if t.ndim == rank and t.shape[: rank - 1] == leading:
                return {"output": t.double()}
            if t.ndim == 2 and rank == 3 and t.shape[0] == math.prod(leading) and t.shape[1] > 1:  # (batch token)
                return {"output": t.double().view(*leading, -1)}
        return {}

    return run


def text_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    x = embed(case["ids"], w, how, case["segments"])
    x = run_stack(x, w["layers"], case.get("visible"), how, reading.facts["n_heads"])
    logits = to_logits(finish(x, w, how), w, how)
    return logits[:, -1:] if reading.facts["last"] else logits


def pool(x: Tensor, how: How) -> Tensor:
    kinds = {
        "mean": x.mean(1),
        "last": x[:, -1],
        "max": x.amax(1),
        "sum": x.sum(1),
        "second": x[:, 1],
        "batch": x.mean(0, keepdim=True)[:, 0].expand(x.shape[0], -1),
    }
    return kinds.get(str(how.get("pool")), x[:, 0])


def classifier_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    x = embed(case["ids"], w, how, case["segments"])
    x = finish(run_stack(x, w["layers"], case.get("visible"), how, reading.facts["n_heads"]), w, how)
    return to_logits(pool(x, how), w, how)


def decoder_readings(candidate: Candidate) -> Iterator[Reading]:
    yield from model_readings(candidate, text_wirings, (VOCAB,), 3, may_be_last=True)


def encoder_readings(candidate: Candidate) -> Iterator[Reading]:
    for reading in model_readings(candidate, text_wirings, (VOCAB, N_CLASSES), 3):
        yield reading
    for reading in model_readings(candidate, text_wirings, (N_CLASSES, VOCAB), 2):
        yield reading


def encoder_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    if reading.facts["rank"] == 2:
        return classifier_expected(case, reading, w, how)
    if how.get("pool"):
        raise ValueError("nothing is pooled")
    return text_expected(case, reading, w, how)


DECODER = Subject(
    name="decoder model", title="a decoder (GPT)", pattern=r".*(gpt|decoder_only|language_?model|lm|llama|bigram|transformer_decoder|mini_?gpt).*|decoder|transformer(_model)?",
    mistakes=(*MODEL_MISTAKES, *PARTS), conventions=CONVENTIONS, readings=decoder_readings, cases=ids_case, expected=text_expected, kinds=("class", "instance"), strict=False, n_cases=2,
)  # fmt: skip
ENCODER = Subject(
    name="encoder model", title="an encoder", pattern=r".*(bert|encoder|classifier|transformer_?(model|encoder)?).*",
    mistakes=(*MODEL_MISTAKES, *POOL_MISTAKES, *PARTS),
    conventions=(*CONVENTIONS, Convention("pool", "mean", "the mean of all tokens"), Convention("pool", "last", "the last token"), Convention("pool", "max", "the maximum")),
    readings=encoder_readings, cases=ids_case, expected=encoder_expected, kinds=("class", "instance"), strict=False, n_cases=2,
)  # fmt: skip


# Encoder and decoder together ------------------------------------------------------------------------------------


def pair_wirings(block: Block) -> Iterator[Weights]:
    assert block.made is not None
    stacks, rest = split_layers(block.parameters)
    if len(stacks) != 2:
        return
    named = sorted(stacks, key=lambda n: (bool(re.search(r"(?i)dec|tgt|trg", n)), len(next(iter(stacks[n])))))
    facts, d = block.made.facts, block.d_model
    for encoder, decoder in zip(
        all_layers(stacks[named[0]], block.n_heads, facts, d),
        all_layers(stacks[named[1]], block.n_heads, facts, d, cross=True),
        strict=False,
    ):
        for w in rest_wirings(rest, facts, d, (VOCAB,)):
            tables = w["all tables"]
            if tables:
                ends = [n for _, n in norms(rest) if n["weight"].shape == (d,)]
                places = position_tables(rest, facts, d)
                yield {
                    **w, "encoder": encoder, "decoder": decoder, "source": {**w, "tokens": tables[0], "final": ends[0] if len(ends) == 2 else None, "positions": places[0] if places else None},
                    "target": {**w, "tokens": tables[-1], "final": ends[-1] if ends else None, "positions": places[-1] if places else None},
                }  # fmt: skip


def pair_readings(candidate: Candidate) -> Iterator[Reading]:
    for block in blocks(candidate, MODEL_SIZES):
        wirings = tuple(pair_wirings(block))[:48]
        if not wirings:
            continue
        for assignment in assignments(
            candidate.parameters, ("ids", "target"), ("memory_mask", "tgt_mask"), {"flag": None, "dropout": None}
        ):
            taken = [r for r in ("memory_mask", "tgt_mask") if r in assignment.roles.values()]
            for meaning in ("keep", "block", "added") if taken else ("",):
                for source, target in (
                    (("b11k", "b1qk"), ("b1k", "bqk"), ("bk", "qk"), ("b11k", "qk"), ("b1qk", "b1qk"))
                    if taken
                    else (("", ""),)
                ):

                    def run(
                        case: Case,
                        block: Block = block,
                        assignment: Assignment = assignment,
                        meaning: str = meaning,
                        source: str = source,
                        target: str = target,
                        taken: list[str] = taken,
                    ) -> dict[str, Tensor]:
                        values: dict[str, Any] = {"ids": case["ids"], "target": case["target"]}
                        if taken:
                            values["memory_mask"] = encode_mask(
                                case["memory_visible"][
                                    :, :, : 1 if source[2] == "1" or source in ("bk", "b1k") else None
                                ],
                                meaning,
                                source,
                                block.n_heads,
                            )
                            values["tgt_mask"] = encode_mask(case["visible"], meaning, target, block.n_heads)
                        for _, t in tensors_of(call(candidate, block.target, assignment, values)):
                            if t.is_floating_point() and t.ndim == 3 and t.shape[:2] == case["target"].shape:
                                return {"output": t.double()}
                        return {}

                    facts = {
                        "seed": candidate.program.first_seed,
                        "n_heads": block.n_heads,
                        "block": block,
                        "d_model": block.d_model,
                        "not": unlikely(candidate, wirings),
                        "masks": bool(taken),
                        "vocab": min(t.shape[0] for t in wirings[0]["all tables"]),
                    }
                    if taken:
                        facts |= {"meaning": meaning, "general": True, "mask roles": tuple(taken)}
                    said = (
                        assignment.said([p["name"] for p in candidate.parameters]),
                        "source and target [batch, token]",
                        f"masks given: {dict(zip(MEANINGS.values(), MEANINGS, strict=True))[meaning]}"
                        if taken
                        else "masks made inside",
                    )
                    reading = Reading(said, run, 0.0, wirings, facts)
                    try:
                        answer = run(pair_case(reading, 0))
                        if "output" in answer:
                            own = of_width(wirings, answer["output"].shape[-1], block.d_model)
                            yield replace(reading, wirings=own)
                    except ProgramError as error:
                        if error.is_final or not taken:
                            raise


def pair_case(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    n, m = N, N - 1
    vocab = reading.facts.get("vocab", VOCAB)
    ids, target = (torch.randint(1, vocab, (2, k), generator=generator) for k in (n, m))
    real = torch.ones(2, n, dtype=torch.bool)
    hides = not reading.facts.get("partial")
    if number == 0 and hides:
        real[0, -1:] = real[1, -3:] = False  # both are padded, each by its own number
        ids[~real] = PAD
    causal = torch.ones(m, m, dtype=torch.bool).tril() if hides else torch.ones(m, m, dtype=torch.bool)
    return {
        "ids": ids,
        "target": target,
        "memory_visible": real[:, None, None].expand(2, 1, m, n),
        "encoder_visible": real[:, None, None].expand(2, 1, n, n),
        "visible": causal.expand(2, 1, m, m).contiguous(),
    }


def pair_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    heads = reading.facts["n_heads"]
    hides = how.get("source_padding") != "not hidden"
    own = {k: v for k, v in how.items() if k not in ("causal", "source", "order", "memory_mask", "final_norm")}
    seen = case["encoder_visible"] if hides and how.get("source_padding") != "not hidden in the encoder" else None
    memory = finish(run_stack(embed(case["ids"], w["source"], how), w["encoder"], seen, own, heads), w["source"], own)
    causal = how.get("causal")
    visible = None if causal else case["visible"]
    inner = dict(how)
    if causal == "missing":
        inner.pop("causal")
    crossed = case["memory_visible"] if hides and how.get("source_padding") != "not hidden in cross-attention" else None
    x = run_stack(embed(case["target"], w["target"], how), w["decoder"], visible, inner, heads, memory, crossed)
    return to_logits(finish(x, w["target"], how), w, how)


ENCODER_DECODER = Subject(
    name="encoder-decoder model", title="an encoder-decoder", pattern=r".*(transformer|seq_?2_?_?seq|encoder_?decoder|translator).*",
    mistakes=(
        *MODEL_MISTAKES,
        Mistake("causal", "missing", "The decoder sees the future: no causal mask is applied to the target.", "Look at the masks.", "What does the first target position see?", ("decoder call", "mask"), "causal-mask-leaks-nothing"),
        Mistake("causal", "one ahead", "One future token of the target gets through: the diagonal is off by one.", "Look at the diagonal.", "What does the first token see?", ("triangle", "causal", "mask"), "causal-mask-leaks-nothing"),
        Mistake("source_padding", "not hidden", "The padding of the source is not hidden.", "Look at the masks.", "Does a longer padding change the result?", ("source mask", "mask"), "which-mask-goes-where"),
        Mistake("source_padding", "not hidden in cross-attention", "The padding of the source is not hidden in cross-attention.", "Look at the masks.", "Which mask belongs to cross-attention?", ("decoder call", "cross", "mask"), "which-mask-goes-where"),
        Mistake("source_padding", "not hidden in the encoder", "The padding of the source is not hidden in the encoder.", "Look at the masks.", "Does a longer padding change the result?", ("source mask", "mask"), "which-mask-goes-where"),
        *(m for m in layers.CROSS_MISTAKES if m.option not in ("target_mask", "memory_mask")), *(m for m in PARTS if m.option != "causal"),
    ),
    conventions=CONVENTIONS, readings=pair_readings, cases=pair_case, expected=pair_expected, kinds=("class", "instance"), strict=False, n_cases=2,
)  # fmt: skip


# Vision Transformer ----------------------------------------------------------------------------------------------


def image_wirings(block: Block) -> Iterator[Weights]:
    assert block.made is not None
    stacks, rest = split_layers(block.parameters)
    if len(stacks) != 1:
        return
    d = block.d_model
    patches = [
        own
        for own in linears(rest).values()
        if next(iter(own.values())).numel() == d * images.CHANNELS * images.PATCH**2
    ]
    if not patches:
        return
    t = patches[0].get("weight", patches[0].get("bare"))
    assert t is not None
    matrices = (
        [("cpq", t.flatten(1))] if t.ndim == 4 else [(p, t if t.shape[0] == d else t.T) for p in images.PIXELS.values()]
    )
    for own in all_layers(next(iter(stacks.values())), block.n_heads, block.made.facts, d):
        for w in rest_wirings(rest, block.made.facts, d, (N_CLASSES,)):
            for pixels, matrix in matrices:
                yield {**w, "layers": own, "patch": matrix, "patch_bias": patches[0].get("bias"), "pixels": pixels}


def image_readings(candidate: Candidate) -> Iterator[Reading]:
    for block in blocks(candidate, {**MODEL_SIZES, "n_tokens": images.N}):
        wirings = tuple(image_wirings(block))[:48]
        if not wirings:
            continue
        for assignment in assignments(candidate.parameters, ("image",), (), {"flag": None, "mask": None}):

            def run(case: Case, block: Block = block, assignment: Assignment = assignment) -> dict[str, Tensor]:
                for _, t in tensors_of(call(candidate, block.target, assignment, {"image": case["image"]})):
                    if t.is_floating_point() and t.ndim == 2 and t.shape[0] == 2:
                        return {"output": t.double()}
                return {}

            facts = {
                "seed": candidate.program.first_seed,
                "n_heads": block.n_heads,
                "block": block,
                "d_model": block.d_model,
                "not": unlikely(candidate, wirings),
            }
            reading = Reading(
                (assignment.said([p["name"] for p in candidate.parameters]), "image [batch, channel, row, column]"),
                run,
                0.0,
                wirings,
                facts,
            )
            answer = run(images.patch_cases(reading, 0))
            if "output" in answer:
                yield replace(reading, wirings=of_width(wirings, answer["output"].shape[-1], block.d_model))


def image_expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    x = F.linear(images.cut(case["image"], w["pixels"], how), w["patch"], w["patch_bias"])
    token, places = w["token"], w["positions"]
    late = token is not None and places is not None and places.shape[0] == x.shape[1]
    if late:
        x = x + places
    if token is not None:
        repeated = token.expand(2, 1, -1)
        x = torch.cat([x, repeated] if how.get("token") == "last" else [repeated, x], 1)
    elif how.get("token"):
        raise ValueError("there is no class token")
    if places is not None and not late and how.get("positions") != "not used":
        x = x + (places[:1] if how.get("positions") == "same" else places[: x.shape[1]])
    elif how.get("positions") not in (None, "none", "not used"):
        raise ValueError("there is no table")
    x = run_stack(x, w["layers"], None, how, reading.facts["n_heads"])
    if how.get("norm_place") == "after pooling":
        return to_logits(finish(pool(x, how), w, how), w, how)
    return to_logits(pool(finish(x, w, how), how), w, how)


VIT = Subject(
    name="vision transformer", title="a Vision Transformer", pattern=r".*(vi_?t|vision_?transformer|image_?transformer)\w*",
    mistakes=(
        *(m for m in images.PATCHES.mistakes if m.option in ("patches",)), *(m for m in MODEL_MISTAKES if m.value not in ("from one", "batch", "scaled late")), *POOL_MISTAKES,
        Mistake("pool", "last", "The classifier reads the last token, and the class token is the first.", "Look at the pooling.", "Where is the class token?", ("pool", "head"), "cls-gap-map"),
        Mistake("token", "last", "The class token comes last, and the classifier reads the first token.", "Look at the concatenation.", "Which token does the classifier read?", ("cat", "class token"), "cls-gap-map"),
        *(m for m in PARTS if m.option not in ("hidden", "causal", "mask_of")),
    ),
    conventions=(*(c for c in layers.CONVENTIONS if c.option != "causal"), Convention("pool", "mean", "the mean of all tokens"), Convention("norm_place", "after pooling", "the last norm after pooling")),
    readings=image_readings, cases=images.patch_cases, expected=image_expected, kinds=("class", "instance"), strict=False, n_cases=2,
)  # fmt: skip
