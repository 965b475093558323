"""The residual connection and its norm: `pre` is x + f(norm(x)), `post` is norm(x + f(x))."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_probability
from headwork.layers.norm import make_norm

TokenMap = Callable[[Float[Tensor, "batch token d_model"]], Float[Tensor, "batch token d_model"]]


class Residual(nn.Module):
    """x plus what f makes of it, with a norm before or after."""

    axes = "batch token d_model"

    def __init__(self, d_model: int, *, norm: choices.AnyNorm = choices.LayerNorm(), dropout: float = 0.0) -> None:
        super().__init__()
        check_probability(dropout=dropout)
        self.norm = make_norm(norm, d_model)
        self.dropout = nn.Dropout(dropout)


class PreNorm(Residual):
    """x + f(norm(x)): the residual path stays clean, so deep stacks train without warm-up. Xiong et al., 2020."""

    def forward(self, x: Float[Tensor, "batch token d_model"], f: TokenMap) -> Float[Tensor, "batch token d_model"]:
        return x + self.dropout(f(self.norm(x)))


class PostNorm(Residual):
    """norm(x + f(x)): the original Transformer and BERT."""

    def forward(self, x: Float[Tensor, "batch token d_model"], f: TokenMap) -> Float[Tensor, "batch token d_model"]:
        return self.norm(x + self.dropout(f(x)))


def make_residual(
    order: choices.NormOrder, d_model: int, *, norm: choices.AnyNorm, dropout: float
) -> PreNorm | PostNorm:
    match order:
        case "pre":
            return PreNorm(d_model, norm=norm, dropout=dropout)
        case "post":
            return PostNorm(d_model, norm=norm, dropout=dropout)
    raise ValueError(f"norm_order must be 'pre' or 'post', got {order!r}")
