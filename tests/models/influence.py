"""Who depends on whom, read off the gradient."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def influence(call: Callable[[], Tensor], embedding: nn.Module, which: int = 0) -> Tensor:
    """True where the output at a token depends on an embedded token: axes (batch, output token, embedded token).

    `which` picks the call of the embedding, if it is called more than once (source 0, target 1).
    """
    embedded: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = embedding.register_forward_hook(keep)
    try:
        out = call()
    finally:
        handle.remove()
    generator = torch.Generator().manual_seed(0)  # a plain sum is blind behind a norm
    score = out @ torch.randn(out.shape[-1], generator=generator, dtype=out.dtype)
    rows = [
        torch.autograd.grad(score[:, t].sum(), embedded[which], retain_graph=True)[0].ne(0).any(-1)
        for t in range(score.shape[1])
    ]
    return torch.stack(rows, dim=1)
