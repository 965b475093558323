"""Linear maps, started so that neither signals nor gradients grow, and their form for one token of each row."""

from collections.abc import Callable

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headwork.checks import check_positive
from headwork.functional.processor import check_products, is_amd

OneToken = Callable[..., Tensor]
"""The fast form of a layer for generation, see `headwork.layers.stack.takes_part`."""
FEW_TOKENS = 4
MANY_WEIGHTS = 2**18
"""So many do not wait in the cache from one token to the next (512 x 512)."""
MOST_BLOCKS = 32


def linear(d_in: int, d_out: int, *, bias: bool = True) -> nn.Linear:
    """A linear map that starts with Glorot's uniform weights and a bias of zero."""
    check_positive(d_in=d_in, d_out=d_out)
    layer = nn.Linear(d_in, d_out, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def normal(*shape: int, spread: float) -> nn.Parameter:
    """Weights that start at random around 0.

    A model that is built without numbers, for those of a file, draws none: on the meta device PyTorch would load its
    compiler for it, which takes a second.

    >>> normal(3, 2, spread=0.02).shape
    torch.Size([3, 2])
    """
    empty = torch.empty(shape)
    return nn.Parameter(empty if empty.is_meta else torch.randn(shape) * spread)


class HeadwiseLinear(nn.Module):
    """A linear map for each slice of the features: head i sees X_i = X[:, i d : (i + 1) d] and nothing else.

    >>> HeadwiseLinear(8, n_heads=4)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, d_model: int, n_heads: int, *, bias: bool = True) -> None:
        super().__init__()
        d_head = d_model // n_heads
        self.weight = nn.Parameter(torch.empty(n_heads, d_head, d_head))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None
        for of_head in self.weight:
            nn.init.xavier_uniform_(of_head)

    def forward(self, x: Float[Tensor, "batch token d_model"]) -> Float[Tensor, "batch token d_model"]:
        check_products(x)
        x = x.to(self.weight.dtype)  # float64 in a model in int8
        slices = rearrange(x, "batch token (head d_in) -> batch token head d_in", head=len(self.weight))
        mapped = einsum(slices, self.weight, "batch token head d_in, head d_out d_in -> batch token head d_out")
        joined = rearrange(mapped, "batch token head d_out -> batch token (head d_out)")
        return joined if self.bias is None else joined + self.bias


def affine(linear: nn.Module) -> OneToken:
    """W x + b of an `nn.Linear`, or of a module that has a form of its own for it."""
    if isinstance(linear, nn.Linear):
        return affine_map(linear.weight, linear.bias)
    make = linear.one_token
    assert callable(make)
    return make()


def affine_map(weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, "d_out"] | None) -> OneToken:
    """W x + b for one token in each row, without the detours that `F.linear` takes for more axes."""
    d_out, transposed = weight.shape[0], weight.t()
    whole: OneToken = (lambda x: x.mm(transposed)) if bias is None else (lambda x: torch.addmm(bias, x, transposed))
    if weight.numel() < MANY_WEIGHTS or not is_amd():
        return whole
    n_blocks = max(n for n in range(1, MOST_BLOCKS + 1) if d_out % n == 0)
    if n_blocks == 1:
        return whole
    by_blocks = block_map(weight, bias, n_blocks)
    return lambda x: by_blocks(x) if x.shape[0] <= FEW_TOKENS else whole(x)


def block_map(weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, "d_out"] | None, n_blocks: int) -> OneToken:
    """The same as a batch of products W_i x^T + b_i, one for each block of rows of W.

    MKL has kernels of its own for few rows x, but not for AMD: there it multiplies them by a single thread, at a third
    of what the memory gives. The products of a batch are shared among the threads.

    >>> layer = nn.Linear(6, 8)
    >>> x = torch.randn(2, 6)
    >>> torch.allclose(block_map(layer.weight, layer.bias, 4)(x), layer(x), atol=1e-6)
    True
    """
    d_out = len(weight)
    blocks = rearrange(weight, "(block row) d_in -> block row d_in", block=n_blocks)
    if bias is None:
        return lambda x: torch.bmm(blocks, _columns(x, n_blocks)).view(d_out, len(x)).t().contiguous()
    of_rows = rearrange(bias, "(block row) -> block row 1", block=n_blocks)
    return lambda x: torch.baddbmm(of_rows, blocks, _columns(x, n_blocks)).view(d_out, len(x)).t().contiguous()


def _columns(x: Float[Tensor, "token d_in"], n_blocks: int) -> Float[Tensor, "block d_in token"]:
    """x^T for each block, one token after the other in memory: any other order takes MKL five times as long.

    A single row may have the strides (1, 1), as `t().contiguous()` leaves it; PyTorch calls that contiguous, and MKL
    is told the other order. `view` sets them right.
    """
    return x.contiguous().view(x.shape).t().expand(n_blocks, -1, -1)
