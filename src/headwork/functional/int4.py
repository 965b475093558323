"""Products with weights in 4 bits, by PyTorch's own kernel for CPUs, which reads tokens in bfloat16.

Whatever PyTorch has for it is called in this file and nowhere else.
"""

import platform

import torch
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

GROUP = 32
"""So many neighbours of a row share a scale and a middle."""
LARGEST, MIDDLE = 15, 8
BLOCK = 16
"""The kernel takes rows by so many."""
PACK, PRODUCT = "_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu"


def round_groups(
    w: Float[Tensor, "row d"],
) -> tuple[UInt8[Tensor, "row d"], Float[Tensor, "row group"], Float[Tensor, "row group"]]:
    r"""Whole numbers 0 .. 15, and a scale and a middle for each group: $w_{ij} \approx s_g (n_{ij} - 8) + m_g$.

    Scale and middle are numbers of bfloat16.

    >>> n, scale, middle = round_groups(torch.linspace(-1.0, 2.0, 32)[None])
    >>> n[0, [0, -1]], scale, middle
    (tensor([ 0, 15], dtype=torch.uint8), tensor([[0.2002]]), tensor([[0.6016]]))
    """
    groups = rearrange(w, "row (group d) -> row group d", d=GROUP)
    low, high = groups.amin(-1), groups.amax(-1)
    scale = ((high - low) / LARGEST).bfloat16().float()
    middle = (low + MIDDLE * scale).bfloat16().float()
    steps = (groups - middle[..., None]) / scale.clamp_min(torch.finfo(torch.float32).tiny)[..., None]
    return (steps.round() + MIDDLE).clamp(0, LARGEST).to(torch.uint8).flatten(1), scale, middle


class Int4Matrix:
    """A matrix in 4 bits, in the order in which the kernel reads it, which multiplies tokens and returns float32.

    Tokens are rounded to bfloat16. The kernel adds each token for itself, so it does not depend on those beside it.

    >>> w, x = torch.randn(7, 40), torch.randn(3, 40)
    >>> Int4Matrix(w)(x).shape
    torch.Size([3, 7])
    """

    def __init__(self, w: Float[Tensor, "d_out d_in"]) -> None:
        check_int4()
        if w.dtype != torch.float32 or w.device.type != "cpu":
            raise ValueError(f"weights must be in float32 on the CPU to become 4 bits, got {w.dtype} on {w.device}")
        d_out, d_in = self.shape = w.shape
        self._more = (0, -d_in % GROUP)
        whole, scale, middle = round_groups(F.pad(w.detach(), (*self._more, 0, -d_out % BLOCK)))
        self._packed = getattr(torch.ops.aten, PACK)(whole.int(), 1)
        self._of_group = rearrange([scale, middle], "two row group -> group row two").bfloat16().contiguous()
        self.nbytes = self._packed.nbytes + self._of_group.nbytes

    def __call__(self, x: Float[Tensor, "token d_in"]) -> Float[Tensor, "token d_out"]:
        x = F.pad(x, self._more) if self._more[1] else x
        return self._product(x, self._of_group)[:, : self.shape[0]].float()

    def dequantised(self) -> Float[Tensor, "d_out d_in"]:
        """What the rounded weights stand for, from products with unit vectors: only the kernel knows their order."""
        units = torch.eye(len(self._of_group) * GROUP)
        plain = torch.zeros_like(self._of_group)
        plain[..., 0] = 1.0
        whole = rearrange(self._product(units, plain).float(), "(group d) row -> d group row", d=GROUP)
        scale, middle = self._of_group.float().unbind(-1)
        w = rearrange(whole * scale + middle, "d group row -> row (group d)")
        return w[: self.shape[0], : self.shape[1]].contiguous()

    def _product(self, x: Float[Tensor, "token d"], of_group: Float[Tensor, "group row 2"]) -> Tensor:
        product = getattr(torch.ops.aten, PRODUCT)
        return product(x.bfloat16(), self._packed, GROUP, of_group)


def check_int4() -> None:
    """Raise unless this build of PyTorch has what it needs."""
    missing = [name for name in (PACK, PRODUCT) if not hasattr(torch.ops.aten, name)]
    if missing:
        raise ValueError(
            f"weights must stay in float32 or int8 here: PyTorch {torch.__version__} on {platform.machine()} is "
            f"without {', '.join(missing)}, which 4 bits need"
        )
