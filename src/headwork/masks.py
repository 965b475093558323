"""Masks say who may look at whom. They are boolean, called `visible`, and True = may attend.

`torch.nn.MultiheadAttention` uses the opposite (its True blocks); PyTorch's own
`scaled_dot_product_attention` agrees with us. Masks combine with `&` and `|`. Their axes are
`query key` or `batch head query key`, each of full size or 1, so that they broadcast. Fewer queries
than keys are the newest ones: every mask here is aligned to the last key.

>>> lengths = torch.tensor([2, 3])
>>> (causal(3) & padding(lengths, 3)).shape
torch.Size([2, 1, 3, 3])
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwork.checks import check_not_negative, check_positive
from headwork.functional.relative import distance, not_ahead
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)


def causal(
    n_query: int, n_key: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "query key"]:
    """A query sees itself and the past, never the future.

    >>> print(draw(causal(2, 4)))
        0 1 2 3
      2 ■ ■ ■ ·
      3 ■ ■ ■ ■
    """
    return not_ahead(n_query, _key_count(n_query, n_key), device=device)


def window(
    n_query: int,
    n_key: int | None = None,
    radius: int = 1,
    *,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "query key"]:
    """A query sees the keys at most `radius` away: the local view of a convolution of size 2 radius + 1.

    >>> print(draw(window(4, radius=1)))
        0 1 2 3
      0 ■ ■ · ·
      1 ■ ■ ■ ·
      2 · ■ ■ ■
      3 · · ■ ■
    """
    check_not_negative(radius=radius)
    return distance(n_query, _key_count(n_query, n_key), device=device).abs() <= radius


def chunked(
    n_query: int,
    n_key: int | None = None,
    chunk: int = 1,
    *,
    n_past_chunks: int | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "query key"]:
    """A query sees its own chunk whole and the chunks before it: what a streaming recogniser has heard.

    `n_past_chunks` limits how many earlier chunks are still remembered (None = all). Chunks are
    counted from the first key.

    >>> print(draw(chunked(4, chunk=2, n_past_chunks=0)))
        0 1 2 3
      0 ■ ■ · ·
      1 ■ ■ · ·
      2 · · ■ ■
      3 · · ■ ■
    """
    check_positive(chunk=chunk)
    check_not_negative(n_past_chunks=n_past_chunks)
    n_key = _key_count(n_query, n_key)
    query_chunk = torch.arange(n_key - n_query, n_key, device=device).div(chunk, rounding_mode="floor")
    key_chunk = torch.arange(n_key, device=device).div(chunk, rounding_mode="floor")
    chunks_ago = query_chunk[:, None] - key_chunk[None, :]
    heard = chunks_ago >= 0
    return heard if n_past_chunks is None else heard & (chunks_ago <= n_past_chunks)


def padding(
    lengths: Int[Tensor, "batch"], n_key: int, side: Literal["right", "left"] = "right"
) -> Bool[Tensor, "batch 1 1 key"]:
    """Every query sees the real tokens; the padding on the given side is hidden.

    >>> padding(torch.tensor([1, 3]), 3).squeeze()
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    return key_padding(_real_tokens(lengths, n_key, side))


def key_padding(real: Bool[Tensor, "batch key"]) -> Bool[Tensor, "batch 1 1 key"]:
    """The padding mask of a batch whose real tokens are already marked, such as `ids != pad`.

    >>> key_padding(torch.tensor([[True, False]])).shape
    torch.Size([1, 1, 1, 2])
    """
    if real.ndim != 2:
        raise ValueError(f"real must have the axes (batch, key), got shape {tuple(real.shape)}")
    check_padding(real, (real.shape[0], real.shape[1]), "real")
    return real[:, None, None, :]


def check_padding(real: Tensor | None, shape: tuple[int, int], name: str = "visible") -> None:
    """Raise unless `real` is None or marks each token of a batch of this shape."""
    if real is None:
        return
    if real.dtype != torch.bool:
        raise TypeError(
            f"{name} must be boolean (True = a real token), got {real.dtype}: write {name}.bool() for a 0/1 mask"
        )
    if tuple(real.shape) != shape:
        raise ValueError(f"{name} must have the axes (batch, token) = {shape}, got {tuple(real.shape)}")


def cross(
    query_lengths: Int[Tensor, "batch"],
    n_query: int,
    key_lengths: Int[Tensor, "batch"],
    n_key: int,
    side: Literal["right", "left"] = "right",
) -> Bool[Tensor, "batch 1 query key"]:
    """Between two padded batches: real queries see real keys; a padded query sees nothing (and returns zeros).

    >>> cross(torch.tensor([1]), 2, torch.tensor([2]), 3).squeeze()
    tensor([[ True,  True, False],
            [False, False, False]])
    """
    if query_lengths.shape != key_lengths.shape:
        raise ValueError(
            f"query_lengths and key_lengths must be of the same batch, got {len(query_lengths)} and {len(key_lengths)}"
        )
    real_queries = _real_tokens(query_lengths, n_query, side)
    return real_queries[:, None, :, None] & padding(key_lengths, n_key, side)


def draw(
    visible: Bool[Tensor, "*#batch #query #key"],
    keys: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
) -> str:
    """The mask as text, a row for each query and a column for each key: ■ may attend, · may not.

    A single list of tokens serves for both sides; the queries are then its last ones. Axes before
    `query key` must have size 1: draw one sentence at a time, as in `draw(visible[0])`.

    >>> print(draw(causal(3), ["I", "am", "here"]))
              I   am here
         I    ■    ·    ·
        am    ■    ■    ·
      here    ■    ■    ■
    """
    if visible.dtype != torch.bool:
        raise TypeError(f"visible must be boolean (True = may attend), got {visible.dtype}")
    if visible.ndim < 2 or visible.shape[:-2].numel() != 1:
        raise ValueError(
            f"visible must show one batch entry and one head, got shape {tuple(visible.shape)}: "
            "pick one, as in draw(visible[0])"
        )
    table = visible.reshape(visible.shape[-2:])
    n_query, n_key = table.shape
    keys = [str(j) for j in range(n_key)] if keys is None else list(keys)
    if queries is None:
        queries = keys[-n_query:] if n_query <= n_key else [str(i) for i in range(n_query)]
    for name, labels, size in (("keys", keys, n_key), ("queries", queries, n_query)):
        if len(labels) != size:
            raise ValueError(f"{name} must have one label for each of the {size}, got {len(labels)} labels")
    width = max(len(label) for label in [*keys, *queries])
    header = " ".join(label.rjust(width) for label in ["", *keys])
    rows = [
        " ".join([label.rjust(width), *(("■" if sees else "·").rjust(width) for sees in row)])
        for label, row in zip(queries, table.tolist(), strict=True)
    ]
    return "\n".join("  " + line for line in [header, *rows])


def _key_count(n_query: int, n_key: int | None) -> int:
    n_key = n_query if n_key is None else n_key
    check_positive(n_query=n_query, n_key=n_key)
    return n_key


def _real_tokens(
    lengths: Int[Tensor, "batch"], n_token: int, side: Literal["right", "left"]
) -> Bool[Tensor, "batch token"]:
    if lengths.ndim != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(
            f"lengths must be one whole number for each batch entry, "
            f"got dtype {lengths.dtype} and shape {tuple(lengths.shape)}"
        )
    if lengths.numel() and (lengths.min() < 0 or lengths.long().max() > n_token):
        raise ValueError(f"lengths must lie in 0 .. {n_token}, got {lengths.tolist()}")
    lengths = lengths.long()
    position = torch.arange(n_token, device=lengths.device)
    if side == "right":
        return position < lengths[:, None]
    if side == "left":
        return position >= n_token - lengths[:, None]
    raise ValueError(f"side must be 'right' or 'left' (where the padding is), got {side!r}")
