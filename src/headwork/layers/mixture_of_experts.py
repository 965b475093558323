"""A feed-forward network of which each token sees only a few of many parts."""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwork import choices
from headwork.checks import check_positive, check_probability
from headwork.functional.experts import choose_experts
from headwork.functional.processor import has_numbers
from headwork.layers.feed_forward import FeedForward, GatedFeedForward
from headwork.layers.hook_point import HookPoint
from headwork.layers.linear import OneToken, affine, linear


class Expert(GatedFeedForward):
    """A gated feed-forward network for the tokens that are sent to it, from all rows of the batch together."""

    axes = "routed d_model"

    def __init__(self, d_model: int, d_ff: int, *, activation: choices.Activation, bias: bool, dropout: float) -> None:
        super().__init__(d_model, d_ff, activation=activation, bias=bias, dropout=dropout)
        self.hidden = HookPoint("routed d_ff")

    def one_token(self) -> OneToken:
        return super().one_token()


class MixtureOfExperts(nn.Module):
    """The sum of the `n_active` experts that a router chooses for each token, weighted by its softmax.

    With `normalised` the weights of the chosen ones sum to 1 (Mixtral), without they are those of the softmax over all
    (Qwen2-MoE). `d_shared` is the width of one more expert that sees every token, through a gate (Qwen2-MoE).
    Jiang et al., "Mixtral of experts", 2024.

    >>> MixtureOfExperts(8, 32, n_experts=4, n_active=2)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    axes = "batch token d_model"
    operation = "feed-forward"

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        n_experts: int,
        n_active: int,
        activation: choices.Activation = "silu",
        bias: bool = False,
        normalised: bool = True,
        d_shared: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, d_ff=d_ff, n_experts=n_experts, n_active=n_active, d_shared=d_shared)
        check_probability(dropout=dropout)
        self.n_active, self.normalised = n_active, normalised
        self.router = linear(d_model, n_experts, bias=False)
        self.scores = HookPoint("batch token expert")
        self.experts = nn.ModuleList(
            Expert(d_model, d_ff, activation=activation, bias=bias, dropout=dropout) for _ in range(n_experts)
        )
        self.shared = None
        if d_shared is not None:
            self.shared = GatedFeedForward(d_model, d_shared, activation=activation, bias=bias, dropout=dropout)
            self.shared_gate = linear(d_model, 1, bias=False)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        weights, chosen = choose_experts(self.scores(self.router(x)), self.n_active, normalised=self.normalised)
        tokens, weights, chosen = x.flatten(0, -2), weights.flatten(0, -2), chosen.flatten(0, -2)
        mix = self._by_expert if has_numbers(x) else self._by_token
        mixed = mix(tokens, weights, chosen).view(x.shape)
        if self.shared is None:
            return mixed
        return mixed + (torch.sigmoid(self.shared_gate(x)) * self.shared(x)).to(mixed.dtype)

    def _by_expert(
        self,
        tokens: Float[Tensor, "token d_model"],
        weights: Float[Tensor, "token active"],
        chosen: Int[Tensor, "token active"],
    ) -> Float[Tensor, "token d_model"]:
        """Each expert reads the tokens that were sent to it, all at once."""
        mixed = torch.zeros_like(tokens)
        for i in torch.unique(chosen).tolist():
            token, place = torch.where(chosen == i)
            answer = self.experts[i](tokens[token])
            mixed = mixed.index_add(0, token, (weights[token, place, None] * answer).to(mixed.dtype))
        return mixed

    def _by_token(
        self,
        tokens: Float[Tensor, "token d_model"],
        weights: Float[Tensor, "token active"],
        chosen: Int[Tensor, "token active"],
    ) -> Float[Tensor, "token d_model"]:
        """Each token fetches the matrices of its experts: the same products, where no number can be looked at."""
        up, gate = (_apply(tokens[:, None], *self._stacked(name, chosen)) for name in ("up", "gate"))
        answer = _apply(self._activation(gate) * up, *self._stacked("down", chosen))
        return (weights[..., None] * answer).sum(1)

    def _stacked(self, name: str, chosen: Tensor) -> tuple[Tensor, Tensor | None]:
        """The matrix and the bias of this name, of the chosen experts of each token."""
        maps = [getattr(expert, name) for expert in self.experts]
        weight = torch.stack([part.weight for part in maps])[chosen]
        return weight, None if maps[0].bias is None else torch.stack([part.bias for part in maps])[chosen]

    def _activation(self, x: Tensor) -> Tensor:
        expert = self.experts[0]
        assert isinstance(expert, Expert)
        return expert.activation(x)

    def one_token(self) -> OneToken:
        route, n_active, normalised = affine(self.router), self.n_active, self.normalised
        experts = [expert.one_token() for expert in self.experts if isinstance(expert, Expert)]
        shared = None if self.shared is None else self.shared.one_token()
        gate = route if self.shared is None else affine(self.shared_gate)

        def add_shared(mixed: Tensor, x: Tensor) -> Tensor:
            return mixed if shared is None else mixed + (torch.sigmoid(gate(x)) * shared(x)).to(mixed.dtype)

        def mix(x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch d_model"]:
            weights, chosen = choose_experts(route(x), n_active, normalised=normalised)
            if not has_numbers(x):
                return add_shared(self._by_token(x, weights, chosen), x)
            mixed = torch.zeros_like(x)
            for i in torch.unique(chosen).tolist():
                token, place = torch.where(chosen == i)
                mixed.index_add_(0, token, (weights[token, place, None] * experts[i](x[token])).to(mixed.dtype))
            return add_shared(mixed, x)

        return mix

    def extra_repr(self) -> str:
        return f"n_active={self.n_active}, normalised={self.normalised}"


def _apply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Float[Tensor, "token active d_out"]:
    applied = einsum(
        x.expand(-1, weight.shape[1], -1), weight, "token active d, token active out d -> token active out"
    )
    return applied if bias is None else applied + bias


def make_feed_forward(
    choice: choices.AnyFeedForward, d_model: int, *, dropout: float = 0.0
) -> FeedForward | MixtureOfExperts:
    match choice:
        case choices.FeedForward():
            kind: type[FeedForward] = FeedForward
        case choices.GatedFeedForward():
            kind = GatedFeedForward
        case choices.MixtureOfExperts():
            return MixtureOfExperts(
                d_model,
                choice.d_ff,
                n_experts=choice.n_experts,
                n_active=choice.n_active,
                activation=choice.activation,
                bias=choice.bias,
                normalised=choice.normalised,
                d_shared=choice.d_shared,
                dropout=dropout,
            )
    return kind(d_model, choice.d_ff, activation=choice.activation, bias=choice.bias, dropout=dropout)
