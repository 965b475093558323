"""One forward pass, recorded: the answer, and the weights of every head, which are computed when they are looked at."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.explorer.encoding import Encoded, encode_input, translate
from headwork.explorer.moving import heads_moved
from headwork.explorer.questions import About, Input, Progress, RefusedError
from headwork.explorer.subject import Attention, Subject
from headwork.inspection import ablate
from headwork.layers import FirstTokenPooling
from headwork.layers.hook_point import LazyHookPoint
from headwork.storage import load

THUMBNAIL = 64
LARGEST_MAP = 1024
"""Rows and columns of a map that are sent; of longer ones blocks."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a forward pass left behind."""

    encoded: Encoded
    output: Tensor
    """Of the one example: [class], [token vocab] or what the model gives."""
    weights: dict[int, Callable[[], Tensor]]
    """By the number of the attention: computes [head query key]."""
    seconds: float
    continuation: list[int] | None = None
    """What the model adds to a translation that was given; None if there is none, or the model wrote all of it."""


@contextmanager
def changed(subject: Subject, about: About) -> Iterator[None]:
    """The model with some heads switched off and some moved, as long as the block lasts."""
    off: dict[str, set[int]] = {}
    for attention, head in about.off:
        if not (0 <= attention < len(subject.attention) and 0 <= head < subject.attention[attention].n_heads):
            raise RefusedError(f"There is no head {head} in attention {attention} to switch off.")
        off.setdefault(subject.attention[attention].name, set()).add(head)
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        if about.moved:
            stack.enter_context(heads_moved(subject, about.moved))
        if off:
            stack.enter_context(ablate(subject.model, heads=off))
        yield


@contextmanager
def interruptible(subject: Subject, progress: Progress) -> Iterator[None]:
    """Between layers, stop if the answer is not wanted any more."""
    with ExitStack() as hooks:
        for name in subject.description.layers:
            layer = subject.model.get_submodule(name)
            hooks.callback(layer.register_forward_pre_hook(lambda *_: progress()).remove)
        yield


@contextmanager
def watching_weights(subject: Subject) -> Iterator[dict[int, Callable[[], Tensor]]]:
    """What computes the weights of each attention, as `hw.record` has them, but kept by nobody."""
    found: dict[int, Callable[[], Tensor]] = {}
    with ExitStack() as hooks:
        for number, attention in enumerate(subject.attention):
            point = subject.model.get_submodule(f"{attention.name}.weights")
            if isinstance(point, LazyHookPoint):
                hooks.callback(point.register_lazy_hook(partial(found.__setitem__, number)).remove)
            else:
                hooks.callback(point.register_forward_hook(partial(_keep, found, number)).remove)
        yield found


def _keep(
    found: dict[int, Callable[[], Tensor]], number: int, module: nn.Module, inputs: object, output: Tensor
) -> None:
    found[number] = lambda: output


def read(subject: Subject, about: About, progress: Progress) -> Reading:
    """Run the model once on what `about` says."""
    encoded = encode_changed(subject, about)
    with changed(subject, about), interruptible(subject, progress):
        with watching_weights(subject) as weights:
            start = time.perf_counter()
            output = subject.model(*encoded.inputs)[0]
            seconds = time.perf_counter() - start
        continuation = None
        if subject.is_pair and not writes_itself(about.input):
            source, target = encoded.sequences
            continuation = translate(subject, source.ids, target.ids[1:])
    per_head: dict[int, Callable[[], Tensor]] = {i: partial(_per_head, each) for i, each in weights.items()}
    return Reading(encoded, output.float(), per_head, seconds, continuation)


def encode_changed(subject: Subject, about: About) -> Encoded:
    """The input; a translation that is not given is written by the model with what is changed in it."""
    given = about.input
    if subject.is_pair and writes_itself(given):
        with changed(subject, about):
            given = replace(given, target_ids=tuple(encode_input(subject, given).sequences[1].ids))
    return encode_input(subject, given)


def writes_itself(given: Input) -> bool:
    """Whether a translator is given no target: then it writes one."""
    return given.target is None and given.target_ids is None and given.example is None


@torch.inference_mode()
def _per_head(compute: Callable[[], Tensor]) -> Float[Tensor, "head query key"]:
    """The first example's weights; those over a grid row by row."""
    weights = compute().float()
    if weights.ndim == 5:
        return rearrange(weights, "head row column i j -> head (row column) (i j)")
    return weights[0]


def thumbnails(weights: Float[Tensor, "head query key"]) -> UInt8[Tensor, "head row column"]:
    """The largest weight of each block as a byte, a share of the head's largest.

    >>> thumbnails(torch.rand(2, 130, 10)).shape
    torch.Size([2, 44, 10])
    """
    peaks = weights.amax((1, 2))
    pooled = in_blocks(weights, [-(-n // THUMBNAIL) for n in weights.shape[1:]])
    share = (pooled / peaks[:, None, None].clamp(min=1e-30)).nan_to_num(0)
    return (255 * share).round().to(torch.uint8)


def in_blocks(weights: Float[Tensor, "head query key"], block: list[int]) -> Float[Tensor, "head row column"]:
    """The largest weight of each block."""
    return weights if block == [1, 1] else F.max_pool2d(weights[None], block, ceil_mode=True)[0]


def looks(subject: Subject, weights: Float[Tensor, "head query key"]) -> Float[Tensor, "head key"]:
    """Where each head looks in an image: from the class token, or from the patch in the middle."""
    (rows, columns), n_queries = subject.grid, weights.shape[1]
    middle = rows // 2 * columns + columns // 2
    return weights[:, 0 if subject.n_extra else min(middle, n_queries - 1)]


def shares(weights: Float[Tensor, "head query key"], attention: Attention) -> dict[str, list[float]]:
    """What share of its weight a row gives to itself, its neighbours and so on, in each head: the mean over the rows.

    The first two rows are left out where there are more, since the token before them is the first or none.

    >>> found = shares(torch.eye(5)[None], Attention("", "", "self", "", 0, n_heads=1, query=0, key=0))
    >>> {name: share for name, [share] in found.items()}
    {'itself': 1.0, 'before': 0.0, 'after': 0.0, 'first': 0.0, 'strongest': 1.0}
    """
    start = min(2, weights.shape[1] - 1)
    rows = weights[:, start:]
    found = {"first": rows[..., 0], "strongest": rows.amax(-1)}
    if attention.kind == "cross":
        found = {"first": rows[..., 0], "last": rows[..., -1], "strongest": rows.amax(-1)}
    else:
        itself, before, after = (rows.diagonal(start + offset, 1, 2) for offset in (0, -1, 1))
        found = {"itself": itself, "before": before, "after": after, **found}
    return {name: (each.sum(-1) / max(each.shape[-1], 1)).tolist() for name, each in found.items()}


def row_of_answer(subject: Subject, position: int | None) -> int | None:
    """The token of a text that the answer is read from; None: no single one, or a translation, which has many."""
    if subject.is_pair or subject.description.output == "hidden state":
        return None
    pooling = getattr(getattr(subject.model, "head", None), "pooling", None)
    return 0 if position is None and isinstance(pooling, FirstTokenPooling) else position


def position_of(subject: Subject, reading: Reading, wanted: int | None) -> int | None:
    """After which token the answer is: the wanted one, the last, or the first that is masked; None: of the whole."""
    if reading.output.ndim == 1:
        return None
    ids = reading.encoded.sequences[-1].ids
    if wanted is not None:
        if not 0 <= wanted < len(reading.output):
            raise RefusedError(f"position must lie in 0 .. {len(reading.output) - 1}, got {wanted}")
        return wanted
    mask = getattr(subject.tokenizer, "mask", None)
    return ids.index(mask) if subject.description.output == "masked token" and mask in ids else len(ids) - 1


def at_checkpoint(subject: Subject, name: str | None) -> Subject:
    """The subject with the weights of one of its checkpoints."""
    if name is None:
        return subject
    found = subject.checkpoints()
    if name not in found:
        raise RefusedError(f"This run has no checkpoint {name!r} any more: there are {', '.join(found) or 'none'}.")
    try:
        return replace(subject, model=load(found[name], classes=subject.classes))
    except (ValueError, OSError, RuntimeError) as error:
        raise RefusedError(f"The checkpoint cannot be read: {error}.") from None
