"""Low-rank adaptation: a frozen linear map, and a narrow trained one beside it."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwork.checks import check_above_zero, check_positive


class LoRALinear(nn.Linear):
    r"""$y = W x + b + \frac{\alpha}{r} B A x$ with W and b frozen, A [rank, d_in] and B [d_out, rank] trained.

    B starts at 0, so the map starts as it was. Hu et al., "LoRA: Low-rank adaptation of large language models", 2021.

    >>> linear = nn.Linear(8, 5)
    >>> x = torch.randn(2, 8)
    >>> torch.equal(LoRALinear(linear, rank=2, alpha=4.0)(x), linear(x))
    True
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        check_positive(rank=rank)
        check_above_zero(alpha=alpha)
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        self.rank, self.alpha = rank, alpha
        self.weight, self.bias = linear.weight, linear.bias
        self.lora_a = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.lora_b = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, input: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:  # noqa: A002  # as nn.Linear
        low = F.linear(F.linear(input, self.lora_a), self.lora_b)
        return super().forward(input) + (self.alpha / self.rank) * low

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        r"""One linear map with the weight $W + \frac{\alpha}{r} B A$."""
        bias: nn.Parameter | None = self.bias
        made = nn.Linear(self.in_features, self.out_features, bias=bias is not None, device="meta")
        product = self.lora_b.double() @ self.lora_a.double()
        weight = self.weight.double() + (self.alpha / self.rank) * product
        made.weight = nn.Parameter(weight.to(self.weight.dtype))
        if bias is not None:
            made.bias = nn.Parameter(bias.detach().clone())
        return made.train(self.training)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}, alpha={self.alpha}"
