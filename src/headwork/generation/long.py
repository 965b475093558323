"""Texts longer than the model's positions: what is read is the last half of what fits."""

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from headwork.checks import check_positive
from headwork.generation.decoding import stream
from headwork.generation.limits import check_prompt_length, max_tokens
from headwork.generation.sampling import Greedy, Sampling
from headwork.models.decoder import Decoder


def stream_long(
    model: Decoder,
    ids: Int[Tensor, "batch token"],
    *,
    max_new_tokens: int,
    sampling: Sampling = Greedy(),
    generator: torch.Generator | None = None,
) -> Iterator[Int[Tensor, "batch"]]:
    """As `stream`, however many tokens are asked for.

    A model with learned positions has only so many. When they are used up, the last half of them is read again as a
    prompt, and the text goes on from there.

    >>> config = hw.models.DecoderConfig(vocab=11, d_model=8, n_layers=1, heads=choices.Heads(n_heads=2),
    ...     feed_forward=choices.FeedForward(d_ff=16), position=choices.LearnedPositions(max_tokens=5))
    >>> len(list(stream_long(hw.models.Decoder(config), torch.tensor([[3, 1]]), max_new_tokens=20)))
    20
    """
    check_positive(max_new_tokens=max_new_tokens)
    check_prompt_length(model, ids.shape[1])
    limit = max_tokens(model) or ids.shape[1] + max_new_tokens
    while max_new_tokens > 0:
        if ids.shape[1] >= limit:
            ids = ids[:, -max(limit // 2, 1) :]
        n_now = min(max_new_tokens, max(limit - ids.shape[1], 1))
        new = []
        for token in stream(model, ids, max_new_tokens=n_now, sampling=sampling, generator=generator):
            new.append(token)
            yield token
        ids = torch.cat([ids, torch.stack(new, dim=1)], dim=1)
        max_new_tokens -= n_now
