"""What holds for every right program, whatever its architecture: these speak when nothing known agrees."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwork.checking.calling import Candidate, role_of
from headwork.checking.judging import Evidence, Explanation
from headwork.checking.option import Case, Reading, Subject
from headwork.checking.runner import ProgramError


@dataclass(frozen=True)
class Broken:
    """An invariant that does not hold, in words; `mild` ones are told and do not make a program wrong."""

    name: str
    sentence: str
    point: tuple[str, ...]
    claim: str | None = None
    mild: bool = False


def broken(candidate: Candidate, evidence: Evidence, explanation: Explanation | None) -> list[Broken]:
    """All invariants that a program breaks, under the reading that explains it or under the likeliest."""
    if explanation is not None:
        reading = explanation.reading
    elif evidence.readings:
        reading = evidence.readings[0][0]
    else:
        return []
    found: list[Broken] = []
    for check in CHECKS:
        if check is future and explanation is not None:
            continue
        try:
            found += check(candidate, evidence.subject, reading)
        except ProgramError:
            continue
    return found


def _output(reading: Reading, case: Case) -> Tensor:
    output = reading.run(case).get("output")
    if output is None:
        raise ProgramError("NoOutput", "", None)
    return output


def repeatable(candidate: Candidate, subject: Subject, reading: Reading) -> Iterator[Broken]:
    """Two calls in eval mode are equal, with dropout in the constructor too."""
    case = subject.cases(reading, 0)
    readings = [reading]
    if candidate.kind == "class":
        shaky = replace(candidate, dropout=0.5)
        readings += list(_like(subject, shaky, reading))
    for one in readings:
        first = _output(one, case)
        candidate.program.seed = 1
        try:
            second = _output(one, case)
        finally:
            candidate.program.seed = 0
        if not torch.equal(first.nan_to_num(), second.nan_to_num()):
            yield Broken(
                "two calls differ", "Two calls with the same input differ in eval mode: dropout is active (F.dropout needs training=self.training), or something random is made at every call.", ("dropout", "made in forward", "def")
            )  # fmt: skip
            return


def _like(subject: Subject, candidate: Candidate, reading: Reading) -> Iterator[Reading]:
    for i, other in enumerate(subject.readings(candidate)):
        if other.said == reading.said:
            yield other
            return
        if i > 40:
            return


def batch(candidate: Candidate, subject: Subject, reading: Reading) -> Iterator[Broken]:
    """One example does not change another."""
    case = subject.cases(reading, 0)
    size = next((v.shape[0] for k, v in case.items() if k in BATCHED and isinstance(v, Tensor)), 1)
    before = _output(reading, case)
    if size < 2 or before.shape[:1] != (size,):
        return
    other = {k: v.clone() if isinstance(v, Tensor) else v for k, v in case.items()}
    for k in BATCHED:
        if isinstance(other.get(k), Tensor):
            t = other[k]
            t[1] = t[1] * 0.5 - 1 if t.is_floating_point() else t[1].flip(-1)
    after = _output(reading, other)
    if not torch.allclose(before[0].nan_to_num(), after[0].nan_to_num(), atol=1e-5, rtol=1e-5):
        yield Broken(
            "example 0 changes with example 1",
            "Example 1 of the batch changes the result of example 0: something runs over the batch.",
            ("softmax", "mean", "split"),
        )


BATCHED = ("x", "q", "k", "v", "memory", "values", "image", "ids", "target")


def finite(candidate: Candidate, subject: Subject, reading: Reading) -> Iterator[Broken]:
    if not bool(_output(reading, subject.cases(reading, 0)).isfinite().all()):
        yield Broken(
            "not finite",
            "The result has NaN or infinite numbers, although every query sees something.",
            ("mask", "softmax", "root"),
        )


def future(candidate: Candidate, subject: Subject, reading: Reading) -> Iterator[Broken]:
    """Where the name says causal, a later token does not change an earlier result."""
    if not re.search(r"(?i)causal|masked|decoder|gpt", candidate.name):
        return
    if any(role_of(p["name"], ("mask", "tgt_mask")) for p in candidate.parameters):  # whoever calls it hides the future
        return
    case = subject.cases(reading, 1)
    key = "ids" if "ids" in case else "x"
    if key not in case or case[key].ndim < 2:
        return
    before = _output(reading, case)
    n = case[key].shape[1]
    for j in range(n - 1, 0, -1):
        other = dict(case)
        other[key] = case[key].clone()
        other[key][:, j] = (other[key][:, j] + 1) % 7 if key == "ids" else other[key][:, j] + 1
        after = _output(reading, other)
        changed = [
            i for i in range(min(j, before.shape[1])) if not torch.allclose(before[:, i], after[:, i], atol=1e-6)
        ]
        if changed:
            yield Broken(
                "the future is seen",
                f"Position {changed[-1]} sees position {j}: the future is not hidden.",
                ("causal", "mask", "softmax"),
                "causal-mask-leaks-nothing",
            )
            return


def gradients(candidate: Candidate, subject: Subject, reading: Reading) -> Iterator[Broken]:
    """Every parameter that is used gets a gradient."""
    block = reading.facts.get("block")
    run = reading.facts.get("grads")
    if block is None or run is None or not block.parameters:
        return
    grads = run(subject.cases(reading, 0))
    dead = [n for n, g in grads.items() if g is None or g == 0]
    if dead and len(dead) == len(grads):
        yield Broken(
            "no gradient", "No parameter gets a gradient: the result is detached from the graph.", ("detach", "return")
        )
        return
    # The bias of the keys shifts all scores of a query alike: its gradient is zero in a right program.
    dead = [n for n in dead if not re.search(r"(?i)(k|key|keys|qkv|in_proj|c_attn)\w*[._]?b(ias)?$", n)]
    if dead:
        yield Broken(
            "no gradient",
            f"{', '.join(dead[:3])} {'gets' if len(dead) == 1 else 'get'} no gradient: never trained.",
            ("detach", "qkv", "return"),
            mild=True,
        )


def registered(candidate: Candidate, subject: Subject, reading: Reading) -> Iterator[Broken]:
    """The weights of a module are parameters."""
    block = reading.facts.get("block")
    if block is None or block.made is None or not candidate.facts.get("module"):
        return
    plain = [n for n in block.made.facts.get("plain", []) if n in block.parameters]
    if plain:
        yield Broken(
            "not parameters",
            f"{', '.join(plain[:3])} {'is a plain tensor' if len(plain) == 1 else 'are plain tensors'} and not nn.Parameter: no optimizer sees {'it' if len(plain) == 1 else 'them'}, and .to(device) leaves {'it' if len(plain) == 1 else 'them'} behind.",
            ("plain",),
        )


def made_in_forward(candidate: Candidate, subject: Subject, reading: Reading) -> Iterator[Broken]:
    """Layers that are made inside of forward have new weights at every call."""
    if not candidate.source:
        return
    tree = ast.parse(candidate.source)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == candidate.name:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name in ("forward", "__call__"):
                    for call in ast.walk(method):
                        if (
                            isinstance(call, ast.Call)
                            and re.fullmatch(
                                r"(torch\.)?nn\.(Linear|Embedding|Conv[12]d|Parameter|MultiheadAttention)|Linear|Conv[12]d",
                                ast.unparse(call.func),
                            )
                            and not re.search(r"requires_grad=False|Parameter\(self\.", ast.unparse(call))
                        ):
                            yield Broken(
                                "made in forward",
                                f"Layers are made inside of forward (line {call.lineno}): new weights at every call, which are never trained.",
                                ("made in forward",),
                            )
                            return


CHECKS: tuple[Callable[[Candidate, Subject, Reading], Iterator[Broken]], ...] = (
    made_in_forward,
    registered,
    repeatable,
    batch,
    finite,
    future,
    gradients,
)
