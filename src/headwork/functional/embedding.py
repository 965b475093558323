"""From ids to vectors: one row of a table for each id."""

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor
from torch.nn import functional as F


def look_up(
    ids: Int[Tensor, "*batch"],
    table: Float[Tensor, "vocab d_model"] | Int8[Tensor, "vocab d_model"],
    name: str = "token ids",
) -> Float[Tensor, "*batch d_model"] | Int8[Tensor, "*batch d_model"]:
    """The row of the table for each id; an id outside the table is an error, never another row.

    >>> look_up(torch.tensor([1, 0]), torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    tensor([[2., 3.],
            [0., 1.]])
    """
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(f"{name} must be whole numbers, got dtype {ids.dtype}")
    ids = ids if ids.dtype in (torch.int32, torch.int64) else ids.long()
    if ids.device.type in _KERNELS_THAT_CHECK:
        try:
            return F.embedding(ids, table)
        except IndexError:
            raise _out_of_range(ids, table, name) from None
    if ids.numel() and (ids.min() < 0 or ids.max() >= len(table)):
        raise _out_of_range(ids, table, name)
    return F.embedding(ids, table)


# These kernels look at every id themselves (CUDA stops with a device-side assert; meta tensors hold no ids), so the
# check costs nothing; others, such as MPS, would return garbage.
_KERNELS_THAT_CHECK = ("cpu", "cuda", "meta")


def _out_of_range(ids: Tensor, table: Tensor, name: str) -> ValueError:
    return ValueError(f"{name} must lie in 0 .. {len(table) - 1}, got {ids.min().item()} .. {ids.max().item()}")
