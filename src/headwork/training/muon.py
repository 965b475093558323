"""Muon: momentum whose singular values are all made about 1. Jordan et al., "Muon", 2024.

`torch.optim.Muon` has the same equation in bfloat16, which many processors lack or have wrongly, and is missing before
PyTorch 2.9; this one is in float32, and has AdamW beside it for what is no matrix.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

A, B, C = 3.4445, -4.7750, 2.0315
"""x -> A x + B x^3 + C x^5 brings what lies in (0, 1] close to 1 within a few steps."""
N_STEPS = 5


def orthogonalise(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """U S V' -> U f(S) V' with f(S) about 1: five steps of Newton and Schulz, which need products only.

    X <- A X + (B X X' + C (X X')^2) X, from X = matrix / |matrix|, so that no singular value is above 1.

    >>> values = torch.linalg.svdvals(orthogonalise(torch.randn(20, 30)))
    >>> bool(values.min() > 0.3), bool(values.max() < 1.3)
    (True, True)
    """
    x = matrix.float()
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / x.norm().clamp(min=1e-7)
    x = _by_gram(x) if x.shape[1] >= 2 * x.shape[0] else _by_products(x)
    return (x.T if is_tall else x).to(matrix.dtype)


def _by_products(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    for _ in range(N_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x


def _by_gram(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """The same for a wide matrix, whose long side is multiplied twice only instead of ten times.

    A step is X <- Q X with Q = A + B G + C G^2 and G = X X'; Q and G are symmetric and commute, so G <- Q G Q, and the
    product of all Q meets X at the end. Rounding may leave G eigenvalues a little below 0, about -1e-7, which the steps
    multiply by A^2 each: too few to matter.
    """
    gram, product = x @ x.T, None
    for step in range(N_STEPS):
        q = torch.addmm(gram, gram, gram, beta=B, alpha=C)
        q.diagonal().add_(A)
        product = q if product is None else q @ product
        if step < N_STEPS - 1:
            gram = q @ gram @ q
    assert product is not None
    return product @ x


class MuonWithAdamW(torch.optim.AdamW):
    """AdamW, but for the groups that have a `momentum`: their parameters are matrices (or kernels, as out x the rest).

    M <- momentum M + (1 - momentum) G;  W <- (1 - lr decay) W - lr sqrt(max(1, rows / columns)) orthogonalise(
    momentum M + (1 - momentum) G), which is Nesterov's momentum.
    """

    def __init__(self, params: list[dict[str, Any]], **settings: Any) -> None:
        super().__init__(params, **settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        groups = self.param_groups
        try:
            self.param_groups = [group for group in groups if group["momentum"] is None]
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if group["momentum"] is not None:
                for weight in group["params"]:
                    if weight.grad is not None:
                        self._update(weight, **{name: group[name] for name in ("lr", "momentum", "weight_decay")})
        return loss

    def _update(self, weight: Tensor, lr: float, momentum: float, weight_decay: float) -> None:
        assert weight.grad is not None
        state = self.state[weight]
        if not state:  # PyTorch's AdamW looks for a step in the state of every parameter
            state |= {"step": torch.tensor(0.0), "momentum_buffer": torch.zeros_like(weight)}
        state["step"] += 1
        mean = state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
        update = orthogonalise(weight.grad.lerp(mean, momentum).flatten(1))
        rows, columns = update.shape
        weight.mul_(1 - lr * weight_decay).add_(update.view_as(weight), alpha=-lr * max(1, rows / columns) ** 0.5)
