from torch import Tensor, arange, nn

from headwork.layers import Pooling, Positions


class HalfLife(Positions):
    """A position code: each head forgets at a rate of its own, which is learned."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.rate = nn.Parameter(0.1 * (1 + arange(n_heads)).float())

    def bias(self, x: Tensor, n_key: int) -> Tensor:
        n_query = x.shape[1]
        query = arange(n_key - n_query, n_key, device=x.device)[:, None]
        distance = (query - arange(n_key, device=x.device)).clamp(min=0)
        return -(self.rate[:, None, None] * distance)[None].to(x.dtype)


class LargestToken(Pooling):
    """A pooling: the largest of each feature over the visible tokens."""

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        if visible is not None:
            x = x.masked_fill(~visible[..., None], float("-inf"))
        return x.amax(1)
