"""What a model is fed: a few examples at once, as tensors with names.

>>> batch = ImageBatch(image=torch.zeros(2, 1, 8, 8), label=torch.tensor([3, 5]))
>>> batch.image.shape
torch.Size([2, 1, 8, 8])
"""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

IGNORE = -100
"""Where a token has no next one, no loss is counted; the number is PyTorch's own."""


class ImageBatch(NamedTuple):
    """Images with values from 0 to 1, and the class of each."""

    image: Float[Tensor, "batch channel row column"]
    label: Int[Tensor, "batch"]


class TextBatch(NamedTuple):
    """Texts padded to the longest, and the class of each; `visible` marks the real tokens."""

    ids: Int[Tensor, "batch token"]
    visible: Bool[Tensor, "batch token"]
    label: Int[Tensor, "batch"]


class PairBatch(NamedTuple):
    """A source and its translation: `target` starts with BEGIN, `next` is one token ahead of it and stops with END.

    Behind its last token the target is padded, and `next` says IGNORE.
    """

    source: Int[Tensor, "batch source_token"]
    source_visible: Bool[Tensor, "batch source_token"]
    target: Int[Tensor, "batch token"]
    target_visible: Bool[Tensor, "batch token"]
    next: Int[Tensor, "batch token"]


class TokenBatch(NamedTuple):
    """Windows of a long text; `next` is the same window one token further on."""

    ids: Int[Tensor, "batch token"]
    next: Int[Tensor, "batch token"]


Batch = ImageBatch | TextBatch | PairBatch | TokenBatch
