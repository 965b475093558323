"""What a model is fed: a few examples at once, as a tuple of tensors whose last is the target.

>>> batch = ImageBatch(image=torch.zeros(2, 1, 8, 8), label=torch.tensor([3, 5]))
>>> batch.image.shape
torch.Size([2, 1, 8, 8])
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwork.public import PublicNames

__dir__ = PublicNames(__name__)

IGNORE = -100
"""A target that is not asked for: no loss is counted there. The number is PyTorch's own."""

Batch = tuple[Tensor, ...]
"""Any of the batches below, or a tuple of a user's own: inputs, then the target."""
B = TypeVar("B", bound=Batch)


class ImageBatch(NamedTuple):
    """Images with values from 0 to 1, and the class of each; of mixed images, the probability of each class."""

    image: Float[Tensor, "batch channel row column"]
    label: Int[Tensor, "batch"] | Float[Tensor, "batch class"]


class TextBatch(NamedTuple):
    """Texts padded to the longest, and the class of each; `visible` marks the real tokens."""

    ids: Int[Tensor, "batch token"]
    visible: Bool[Tensor, "batch token"]
    label: Int[Tensor, "batch"]


class PairBatch(NamedTuple):
    """A source and its translation: `target` starts with BEGIN, `next` is one token ahead of it and ends with END.

    After its last token the target is padded, and `next` says IGNORE.
    """

    source: Int[Tensor, "batch source_token"]
    source_visible: Bool[Tensor, "batch source_token"]
    target: Int[Tensor, "batch token"]
    next: Int[Tensor, "batch token"]


class TokenBatch(NamedTuple):
    """Windows of a long text; `next` is the same window one token further on."""

    ids: Int[Tensor, "batch token"]
    next: Int[Tensor, "batch token"]


class MaskedBatch(NamedTuple):
    """Windows of a text with some tokens replaced; `original` says what these were, and IGNORE everywhere else."""

    ids: Int[Tensor, "batch token"]
    original: Int[Tensor, "batch token"]


def call_model(model: Callable[..., Any], batch: Batch) -> Tensor:
    """The output for a batch: all tensors but the target, those whose name ends in `visible` by keyword.

    A tuple without names may have one boolean tensor, which is passed as `visible`.

    >>> call_model(lambda ids, visible: ids[visible], TextBatch(torch.tensor([[7, 0]]), torch.tensor([[True, False]]),
    ...     torch.tensor([1])))
    tensor([7])
    """
    # In a plain tuple a mask is known by its type.
    unnamed = tuple("visible" if tensor.dtype == torch.bool else "" for tensor in batch)
    names = getattr(batch, "_fields", unnamed)[:-1]
    inputs = list(zip(names, batch, strict=False))
    masks = {name: tensor for name, tensor in inputs if name.endswith("visible")}
    output: Tensor = model(*(tensor for name, tensor in inputs if name not in masks), **masks)
    if not isinstance(output, Tensor):
        raise TypeError(f"the model must return one tensor, got {type(output).__name__}: return the logits alone")
    return output


def n_tokens(batch: Batch) -> int:
    """How many tokens the model reads, padding too; 0 of what is not text.

    >>> n_tokens(TokenBatch(ids=torch.zeros(2, 5, dtype=torch.long), next=torch.zeros(2, 5, dtype=torch.long)))
    10
    """
    return sum(tensor.numel() for tensor in batch[:-1] if not tensor.is_floating_point() and tensor.dtype != torch.bool)


def to_device(batch: B, device: torch.device | str) -> B:
    moved = [tensor.to(device) for tensor in batch]
    return cast(B, type(batch)(*moved) if hasattr(batch, "_fields") else tuple(moved))
