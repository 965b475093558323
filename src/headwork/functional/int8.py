"""Products with weights in 8 bits, by PyTorch's own kernel for CPUs (FBGEMM).

Whatever PyTorch has for it is called in this file and nowhere else: quantised tensors are announced to go.
"""

import platform
import warnings
from functools import cache

import torch
from jaxtyping import Float, Int8
from torch import Tensor

LARGEST = 127
"""Whole numbers of weights lie in -127 .. 127."""
ENGINE = "fbgemm"
PRODUCT = "linear_with_input_q_dq_qweight_dq_output_fp32"
"""The kernel rounds its input by a scale that is given, and returns float32."""


def round_rows(w: Float[Tensor, "row d"], largest: int = LARGEST) -> tuple[Int8[Tensor, "row d"], Float[Tensor, "row"]]:
    """Whole numbers and a scale for each row: w_ij ~ scale_i n_ij, where the largest of a row is `largest`.

    >>> round_rows(torch.tensor([[0.5, -1.0, 0.1], [0.0, 0.0, 0.0]]))
    (tensor([[  64, -127,   13],
            [   0,    0,    0]], dtype=torch.int8), tensor([0.0079, 0.0000]))
    """
    scale = w.abs().amax(1) / largest
    tiny = torch.finfo(w.dtype).tiny
    return (w / scale.clamp_min(tiny)[:, None]).round().to(torch.int8), scale


def int8_product(
    x: Float[Tensor, "token d_in"], n: Int8[Tensor, "d_out d_in"], scale: Float[Tensor, "d_out"], largest: int
) -> Float[Tensor, "token d_out"]:
    r"""The readable form of `Int8Matrix`: $y_{ti} = s_t s_i \sum_j n_{tj} n_{ij}$, each token with a scale of its own.

    >>> int8_product(torch.tensor([[1.0, 0.5]]), torch.tensor([[127, 0]], dtype=torch.int8), torch.tensor([0.1]), 127)
    tensor([[12.7000]])
    """
    whole, of_token = round_rows(x, largest)
    return (whole.double() @ n.double().T * of_token[:, None] * scale).to(x.dtype)


def scale_tokens(x: Float[Tensor, "token d"]) -> tuple[Float[Tensor, "token d"], Float[Tensor, "token 1"]]:
    """Each token divided by its largest number, and that number, in float32.

    >>> scale_tokens(torch.tensor([[0.5, -2.0], [0.0, 0.0]]))
    (tensor([[ 0.2500, -1.0000],
            [ 0.0000,  0.0000]]), tensor([[2.0000e+00],
            [1.1755e-38]]))
    """
    x = x.float()
    size = x.abs().amax(-1, keepdim=True).clamp_min_(torch.finfo(torch.float32).tiny)
    return x / size, size


class Int8Matrix:
    """A matrix in int8, in the order in which the kernel reads it, which multiplies tokens and returns float32.

    A token is rounded with a scale of its own, so that its product does not depend on the tokens beside it: it is
    divided by its largest number, and the kernel gets the same scale for all. The kernel adds whole numbers.

    >>> w, x = torch.randn(7, 8), torch.randn(3, 8)
    >>> Int8Matrix(w)(x).shape
    torch.Size([3, 7])
    """

    def __init__(self, w: Float[Tensor, "d_out d_in"]) -> None:
        check_int8()
        if w.dtype != torch.float32 or w.device.type != "cpu":
            raise ValueError(f"weights must be in float32 on the CPU to become int8, got {w.dtype} on {w.device}")
        self._pack(*round_rows(w.detach()))

    def __call__(self, x: Float[Tensor, "token d_in"]) -> Float[Tensor, "token d_out"]:
        scaled, size = scale_tokens(x)
        return self._product(scaled, *self._rounding, self._packed).mul_(size)

    def unpack(self) -> tuple[Int8[Tensor, "d_out d_in"], Float[Tensor, "d_out"]]:
        """The whole numbers, and the scale of each row."""
        quantised, _ = torch.ops.quantized.linear_unpack(self._packed)
        return quantised.int_repr(), quantised.q_per_channel_scales().float()

    def dequantised(self) -> Float[Tensor, "d_out d_in"]:
        """What the rounded weights stand for."""
        whole, scale = self.unpack()
        return whole * scale[:, None]

    def __getstate__(self) -> tuple[Tensor, Tensor]:
        """For copies and for other processes: how it is packed depends on the processor."""
        return self.unpack()

    def __setstate__(self, state: tuple[Tensor, Tensor]) -> None:
        self._pack(*state)

    def _pack(self, n: Tensor, scale: Tensor) -> None:
        self.shape, self.nbytes = n.shape, n.nbytes + scale.nbytes
        self._packed = _pack(n, scale)
        self._product = getattr(torch.ops.quantized, PRODUCT).default
        largest = largest_of_token()
        self._rounding = 1 / largest, largest + 1  # the kernel wants 0 .. 255: scale, and what 0 becomes


def _pack(n: Int8[Tensor, "d_out d_in"], scale: Float[Tensor, "d_out"]) -> torch.ScriptObject:
    """The engine is a setting of the whole process, and is set back."""
    before = torch.backends.quantized.engine
    scale = scale.double().clamp_min(torch.finfo(torch.float32).tiny)
    with warnings.catch_warnings(action="ignore"):  # quantised tensors are announced to go
        try:
            torch.backends.quantized.engine = ENGINE
            zeros = torch.zeros(len(n), dtype=torch.long)
            rows = torch.quantize_per_channel(n * scale.float()[:, None], scale, zeros, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(rows, None)
        finally:
            torch.backends.quantized.engine = before


@cache
def largest_of_token() -> int:
    """127, or 63 on processors that add two products in 16 bits, where more would be cut off.

    Which one it is shows in the largest sum there can be.
    """
    packed = _pack(torch.full((64, 64), LARGEST, dtype=torch.int8), torch.ones(64))
    ones = torch.ones(1, 64)
    sums = getattr(torch.ops.quantized, PRODUCT)(ones, 1 / LARGEST, LARGEST + 1, packed)
    return LARGEST if torch.allclose(sums, torch.tensor(64.0 * LARGEST), rtol=1e-5) else LARGEST // 2


def check_int8() -> None:
    """Raise unless this build of PyTorch has what it needs."""
    needed = (torch, "quantize_per_channel"), (torch.ops.quantized, "linear_prepack"), (torch.ops.quantized, PRODUCT)
    missing = [name for where, name in needed if not hasattr(where, name)]
    if ENGINE not in torch.backends.quantized.supported_engines:
        missing.append(f"the engine {ENGINE}")
    if missing:
        raise ValueError(
            f"weights must stay in float32 here: PyTorch {torch.__version__} on {platform.machine()} is without "
            f"{', '.join(missing)}, which int8 needs"
        )
