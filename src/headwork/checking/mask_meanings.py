"""What a mask may mean: our "batch 1 query key" in every meaning and rank that people use."""

import torch
from torch import Tensor

MEANINGS: dict[str, str] = {
    "True = may attend": "keep",
    "1 = may attend": "keep ones",
    "True = hidden": "block",
    "1 = hidden": "block ones",
    "added to the scores, -inf = hidden": "added",
    "added to the scores, -1e9 = hidden": "added finite",
    "lengths": "lengths",
}
RANKS = ("b1qk", "bqk", "qk", "b11k", "b1k", "bk", "bhqk", "nqk", "11qk", "1qk", "k")


def encode_mask(visible: Tensor, meaning: str, rank: str, heads: int) -> Tensor | None:
    """Our mask "batch 1 query key" as somebody wants it; None where it cannot be said in that rank."""
    batch, _, n_query, n_key = visible.shape
    same_rows = bool((visible == visible[:, :, :1]).all())
    same_batch = bool((visible == visible[:1]).all())
    if meaning == "lengths":
        counts = visible.sum(-1)
        if not bool((visible == (torch.arange(n_key) < counts[..., None])).all()):
            return None
        return counts[:, 0, 0] if same_rows and rank == "bk" else counts[:, 0] if rank == "bqk" else None
    if rank in ("qk", "11qk", "1qk") and not same_batch:
        return None
    if rank in ("b11k", "b1k", "bk") and not same_rows:
        return None
    if rank == "k" and not (same_rows and same_batch):
        return None
    shaped = {
        "b1qk": lambda: visible,
        "bqk": lambda: visible[:, 0],
        "qk": lambda: visible[0, 0],
        "11qk": lambda: visible[:1],
        "1qk": lambda: visible[0],
        "b11k": lambda: visible[:, :, :1],
        "b1k": lambda: visible[:, 0, :1],
        "bk": lambda: visible[:, 0, 0],
        "k": lambda: visible[0, 0, 0],
        "bhqk": lambda: visible.expand(batch, heads, n_query, n_key),
        "nqk": lambda: visible.expand(batch, heads, n_query, n_key).flatten(0, 1),
    }[rank]()
    dtype = torch.float64
    zero = torch.zeros(shaped.shape, dtype=dtype)
    return {
        "keep": lambda: shaped.contiguous(),
        "keep ones": lambda: shaped.to(dtype),
        "block": lambda: ~shaped,
        "block ones": lambda: (~shaped).to(dtype),
        "added": lambda: zero.masked_fill(~shaped, float("-inf")),
        "added finite": lambda: zero.masked_fill(~shaped, -1e9),
    }[meaning]()


def random_visible(kind: str, batch: int, n_query: int, n_key: int, generator: torch.Generator) -> Tensor | None:
    """A mask "batch 1 query key" under which every query sees something.

    Kinds: `none`, `all` (nothing is hidden), `each` (another for every query and sentence), `pairs` (for every query), `padding` (lengths).
    """
    if kind == "none":
        return None
    if kind == "all":
        return torch.ones(batch, 1, n_query, n_key, dtype=torch.bool)
    if kind == "padding":
        lengths = torch.full((batch,), max(1, n_key // 2))
        if batch > 1:
            lengths[0] = max(1, n_key - 2)
        return (torch.arange(n_key) < lengths[:, None, None, None]).expand(batch, 1, n_query, n_key).contiguous()
    n = 1 if kind == "pairs" else batch
    visible = torch.rand(n, 1, n_query, n_key, generator=generator) < 0.6
    if kind == "rows":
        visible = visible[:, :, :1].expand(n, 1, n_query, n_key).clone()
    visible[..., 0] |= ~visible.any(-1)
    visible[:, :, 0, -1] = False
    visible[:, :, -1, -1] = True
    visible[:, :, 0, 0] = True
    return visible.expand(batch, 1, n_query, n_key).contiguous()


KIND_OF_RANK = {
    "b1qk": "each", "bqk": "each", "bhqk": "each", "nqk": "each", "qk": "pairs", "11qk": "pairs", "1qk": "pairs",
    "b11k": "padding", "b1k": "padding", "bk": "padding", "k": "one padding",
}  # fmt: skip
