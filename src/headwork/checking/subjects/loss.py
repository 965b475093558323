"""The loss of a language model: each position predicts the next token."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headwork.checking.calling import Candidate, tensors_of
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.runner import Result
from headwork.checking.subjects.simple import Target, ways, works

B, T, V = 3, 6, 11
PAD = 0


def cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    ids = torch.randint(1, V, (B, T), generator=generator)
    if reading.facts["pad"]:
        ids[0, -2:] = PAD
    return {"logits": torch.randn(B, T, V, generator=generator, dtype=torch.float64) * 2, "targets": ids, "pad": PAD}


def flattened(case: Case) -> Case:
    """Logits "(batch token) vocab" with as many targets: whoever calls it has shifted them."""
    return {**case, "logits": case["logits"].flatten(0, 1), "targets": case["targets"].flatten()}


def readings(candidate: Candidate) -> Iterator[Reading]:
    for target, _, assignment in ways(candidate, (("logits", "targets"),), ("pad",), {"positions": None}):
        pad = "pad" in assignment.roles.values()
        for flat in (False, True):

            def run(
                case: Case, target: Target = target, assignment: Any = assignment, flat: bool = flat
            ) -> dict[str, Tensor]:
                result = target.call(assignment, flattened(case) if flat else case)
                for _, t in tensors_of(result):
                    if t.numel() == 1:
                        return {"output": t.double().reshape(1) / count_of(result)}
                return {}

            facts = {"seed": candidate.program.first_seed, "pad": pad, "may": may(candidate), "flat": flat}
            axes = "logits [token, vocabulary]" if flat else "logits [batch, token, vocabulary]"
            said = (assignment.said([p["name"] for p in candidate.parameters]), axes)
            reading = Reading(said, run, facts={**facts, "may": {"shift"}} if flat else facts)
            if works(run, cases(reading, 0)):
                yield reading
                break


def count_of(result: Result) -> int:
    """The number of tokens where it comes back beside the sum of their losses."""
    values = result.value if isinstance(result.value, list) else []
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), 1)


def may(candidate: Candidate) -> set[str]:
    """Targets may have been shifted before, unless a name says that they are the ids that were read."""
    names = {p["name"].lower() for p in candidate.parameters}
    read = bool(names & {"ids", "input_ids", "token_ids", "tokens", "x", "idx"}) or "shift" in candidate.name.lower()
    return set() if read else {"shift"}


def expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    logits, ids = case["logits"], case["targets"]
    shift = how.get("shift")
    if reading.facts["flat"] and shift != "already":
        raise ValueError("there is nothing to shift")
    if shift == "backwards":
        logits, ids = logits[:, 1:], ids[:, :-1]
    elif shift == "two":
        logits, ids = logits[:, :-2], ids[:, 2:]
    elif shift == "rolled":
        ids = ids.roll(-1, 1)
    elif shift == "batch":
        logits, ids = logits[:-1], ids[1:]
    elif shift not in ("none", "already"):
        logits, ids = logits[:, :-1], ids[:, 1:]
    form = how.get("form")
    if form == "softmax first":
        logits = logits.softmax(-1)
    elif form == "log softmax twice":
        logits = logits.log_softmax(-1).softmax(-1)
    if form == "viewed":
        logits = logits.transpose(1, 2).reshape(-1, V)
    else:
        logits = logits.reshape(-1, V)
    ids = ids.reshape(-1)
    each = -logits.log_softmax(-1)[torch.arange(len(ids)), ids]
    if form == "no log":
        each = -logits.softmax(-1)[torch.arange(len(ids)), ids]
    if form == "sign":
        each = -each
    keep = ids != PAD if reading.facts["pad"] else torch.ones_like(ids, dtype=torch.bool)
    pad = how.get("padding")
    if pad and not reading.facts["pad"]:
        raise ValueError("there is no padding")
    if pad == "counted":
        return each.mean().reshape(1)
    total = each[keep].sum()
    if pad == "padded count":
        return (total / len(ids)).reshape(1)
    size = {"sum": 1, "by batch": B}.get(str(how.get("size")), int(keep.sum()))
    return (total / size).reshape(1)


ENTROPY = ("loss", "return")
SUBJECT = Subject(
    name="language-model loss",
    title="the language-model loss",
    pattern=r".*(lm_?loss|language_?model(l?ing)?_?loss|next_?token_?loss|causal_?loss|shift(ed)?_?loss|cross_?entropy|autoregressive_loss|sequence_loss|compute_loss|loss_fn|loss).*",
    mistakes=(
        Mistake("shift", "none", "The targets are not shifted: each position is asked for the token that it has just read.", "Look at the targets.", "Which token should position 0 predict?", ("slices", "loss"), "causal-mask-leaks-nothing"),
        Mistake("shift", "backwards", "The shift goes the wrong way: each position is asked for the token before it.", "Look at the two slices.", "Which token should position 0 predict?", ("slices", "loss"), None),
        Mistake("shift", "two", "The targets are shifted by two.", "Look at the two slices.", "Which token should position 0 predict?", ("slices", "loss"), None),
        Mistake("shift", "rolled", "The targets are rolled: the last position is asked for the first token.", "Look at the last position.", "What comes after the last token?", ("slices", "loss"), None),
        Mistake("form", "softmax first", "The softmax is taken before cross_entropy, which takes it again.", "Look at what cross_entropy is given.", "Does it want logits or probabilities?", ("softmax", "loss"), "softmax-saturates"),
        Mistake("form", "viewed", "The axes of the logits are exchanged by a view: tokens and vocabulary are mixed.", "Look at the reshape.", "Which axis is the vocabulary?", ("split", "loss"), None),
        Mistake("form", "no log", "The logarithm is missing.", "Look at the loss.", "What is the loss of a certain and right answer?", ENTROPY, None),
        Mistake("form", "sign", "The sign is turned: the loss falls when the answer is worse.", "Look at the sign.", "Can the loss be negative?", ENTROPY, None),
        Mistake("padding", "counted", "The padding is counted: ignore_index is missing.", "Look at the padding.", "Does a longer padding change the loss?", ENTROPY, None),
        Mistake("padding", "padded count", "The padding is left out of the sum, but counted in the mean.", "Look at the mean.", "How many tokens were added?", ENTROPY, None),
        Mistake("size", "by batch", "The sum is divided by the size of the batch, not by the number of tokens.", "Look at the mean.", "Does a longer text have a larger loss?", ENTROPY, None),
        Mistake("size", "sum", "The losses are added, and not averaged.", "Look at the mean.", "Does a longer text have a larger loss?", ENTROPY, None),
    ),
    conventions=(Convention("shift", "already", "the targets are taken to be shifted already"),), readings=readings, cases=cases, expected=expected, kinds=("function", "class", "instance"), strict=False, n_cases=3,
)  # fmt: skip
