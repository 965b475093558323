"""How far key j stands from query i, when the last query stands on the last key."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def distance(n_query: int, n_key: int, *, device: torch.device | str | None = None) -> Int[Tensor, "query key"]:
    r"""Signed distance $j - i$ from query to key, in tokens: negative is the past, positive the future.

    Fewer queries than keys are the newest ones, as when a cache holds the keys of the past.

    >>> distance(2, 4)
    tensor([[-2, -1,  0,  1],
            [-3, -2, -1,  0]])
    """
    query = torch.arange(n_key - n_query, n_key, device=device)
    key = torch.arange(n_key, device=device)
    return key[None, :] - query[:, None]


def not_ahead(n_query: int, n_key: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "query key"]:
    """Which keys are not in the future of which query: `distance <= 0`, without a table of whole numbers.

    >>> not_ahead(2, 3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    query = torch.arange(n_key - n_query, n_key, device=device)
    return torch.arange(n_key, device=device) <= query[:, None]
