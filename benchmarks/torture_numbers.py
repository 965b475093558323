"""Attention at the ends of its numbers: scores, betas and masks of every kind through both paths, none may give a NaN.

`python -m benchmarks.torture_numbers` prints its rows of the table of `make torture`.
"""

import itertools
import math
from collections import Counter

import torch
from torch import Tensor

from headwork import functional as hf

BETAS = (0.0, 1e-320, 1e-40, 1e-10, 0.3, 1.0, 50.0, 1e6, 1e30, math.inf)
SIZES = (0.0, 1e-40, 1e-20, 1.0, 30.0, 1e4)
LEGAL_FOR_FUSED = 1e6


def masks(n_query: int, n_key: int) -> dict[str, dict[str, object]]:
    visible = torch.rand(n_query, n_key) > 0.5
    visible[0] = False  # sees nothing
    bias = torch.randn(n_query, n_key).masked_fill(~visible, -math.inf)
    return {"none": {}, "causal": {"causal": True}, "visible": {"visible": visible}, "bias": {"bias": bias}}


def attend_all() -> dict[str, int]:
    """Every beta, size of the numbers, mask and shape: finite in value and gradient, and both paths alike."""
    count: Counter[str] = Counter(tried=0, held=0, failed=0)
    torch.manual_seed(0)
    shapes = ((1, 7), (3, 7), (7, 7))
    for beta, size, (n_query, n_key), d_value in itertools.product(BETAS, SIZES, shapes, (8, 3)):
        for name, how in masks(n_query, n_key).items():
            if name == "bias" and beta > LEGAL_FOR_FUSED:
                continue  # refused, with a sentence
            inputs = [size * torch.randn(2, 3, n, d) for n, d in ((n_query, 8), (n_key, 8), (n_key, d_value))]
            answers = [finite(inputs, hf.scaled_dot_product_attention, beta, how)]
            if beta <= LEGAL_FOR_FUSED:
                answers.append(finite(inputs, hf.fused_attention, beta, how))
            alike = all(torch.allclose(answers[0][1], other, rtol=1e-3, atol=1e-3 * size) for _, other in answers)
            held = all(is_finite for is_finite, _ in answers) and (alike or beta * size**2 > 1e3)  # rounding decides
            count["tried"] += 1
            count["held" if held else "failed"] += 1
            if not held:
                print(f"failed: beta={beta} size={size} {n_query} x {n_key} d_value={d_value} {name}")
    return dict(count)


def finite(inputs: list[Tensor], attend: object, beta: float, how: dict[str, object]) -> tuple[bool, Tensor]:
    given = [t.clone().requires_grad_() for t in inputs]
    output = attend(*given, beta=beta, **how)  # type: ignore[operator]
    gradients = torch.autograd.grad(output.sum(), given, allow_unused=True)
    numbers = [output.detach(), *(g for g in gradients if g is not None)]
    return all(bool(t.isfinite().all()) for t in numbers), output.detach()


def weigh_all(n: int = 1000) -> dict[str, int]:
    """Rows of scores from the whole range of float32, -inf included: weights that sum to 1 or are 0, none denormal."""
    count: Counter[str] = Counter(tried=0, held=0, failed=0)
    tiny = torch.finfo(torch.float32).tiny
    for seed in range(n):
        generator = torch.Generator().manual_seed(seed)
        sign, power = (torch.rand(4, 9, generator=generator) for _ in range(2))
        scores = (sign - 0.5).sign() * 10 ** (76 * power - 38).double()
        scores = scores.float().clamp(-3.4e38, 3.4e38)
        scores[torch.rand(4, 9, generator=generator) < 0.2] = -math.inf
        scores.requires_grad_()
        weights = hf.softargmax(scores, BETAS[seed % len(BETAS)])
        total, sees = weights.sum(-1), (scores > -math.inf).any(-1)
        held = torch.allclose(total, sees.float(), atol=1e-5) and not ((weights > 0) & (weights < tiny)).any()
        if weights.requires_grad:
            held = held and bool(torch.autograd.grad(weights.square().sum(), scores)[0].isfinite().all())
        count["tried"] += 1
        count["held" if held else "failed"] += 1
        if not held:
            print(f"failed: seed {seed}")
    return dict(count)


def main() -> None:
    print("| what | tried | held | failed |\n|---|---|---|---|")
    for what, found in (("attention", attend_all()), ("softargmax", weigh_all())):
        print(f"| numbers: {what} | {found['tried']} | {found['held']} | {found['failed']} |")


if __name__ == "__main__":
    main()
