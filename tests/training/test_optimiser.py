"""Decay by the kind of module, Adam's eps, the schedule after its end, the length of the gradient."""

import pytest
import torch
from torch import nn

import headwork as hw
from headwork.training import SGD, AdamW, Constant, Cosine
from headwork.training.optimiser import (
    clip_gradient,
    learning_rate,
    make_optimiser,
    parameter_groups,
    set_learning_rate,
)


class Mixed(nn.Module):
    """What people have in models of their own, under the names that PyTorch or they give."""

    def __init__(self) -> None:
        super().__init__()
        self.look_up = nn.Embedding(11, 6)
        self.bag = nn.EmbeddingBag(7, 6)
        self.attention = nn.MultiheadAttention(6, 2, add_bias_kv=True)
        self.narrow = nn.MultiheadAttention(6, 2, kdim=3, vdim=5)
        self.memory = nn.LSTM(6, 5)
        self.norm = nn.LayerNorm((3, 6))
        self.conv = nn.Conv1d(6, 2, 3)
        self.both = nn.Bilinear(6, 3, 2)
        self.kernel = nn.Parameter(torch.randn(6, 4))
        self.gain = nn.Parameter(torch.ones(6))


def decaying(model: nn.Module) -> set[str]:
    chosen = {id(p) for group in parameter_groups(model, 0.1) if group["weight_decay"] for p in group["params"]}
    return {name for name, p in model.named_parameters() if id(p) in chosen}


def test_what_decays_is_decided_by_its_module_and_its_axes_not_its_name() -> None:
    assert decaying(Mixed()) == {
        "attention.in_proj_weight",
        "attention.out_proj.weight",
        *(f"narrow.{letter}_proj_weight" for letter in "qkv"),
        "narrow.out_proj.weight",
        *("memory.weight_ih_l0", "memory.weight_hh_l0"),
        *("conv.weight", "both.weight", "kernel"),
    }


def test_an_embedding_that_is_the_output_matrix_as_well_does_not_decay() -> None:
    for first in ("embedding", "head"):
        model = nn.ModuleDict()
        for name in sorted(("embedding", "head"), key=lambda name: name != first):
            model[name] = nn.Embedding(11, 6) if name == "embedding" else nn.Linear(6, 11, bias=False)
        model["head"].weight = model["embedding"].weight
        assert decaying(model) == set()


def test_a_position_code_of_ones_own_does_not_decay() -> None:
    class Own(hw.layers.Positions):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 6))

    assert decaying(nn.Sequential(Own(), nn.Linear(6, 2))) == {"1.weight"}


def test_eps_can_be_chosen() -> None:
    assert {group["eps"] for group in make_optimiser(AdamW(eps=1e-3), nn.Linear(3, 5)).param_groups} == {1e-3}
    with pytest.raises(ValueError, match=r"eps must be more than 0 and finite, got 0.0"):
        AdamW(eps=0.0)


@pytest.mark.parametrize("schedule", [Cosine(), Cosine(warmup=0.0, floor=0.1), Cosine(warmup=0.9)])
def test_the_cosine_does_not_rise_again(schedule: Cosine) -> None:
    rates = [learning_rate(schedule, step, 20) for step in range(18, 100)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(schedule.floor)
    assert learning_rate(Constant(), 1000, 20) == 1.0


@pytest.mark.parametrize("longest", [None, 0.1, 100.0])
def test_clipping_is_pytorchs(longest: float | None) -> None:
    ours, theirs = (nn.Linear(3, 5) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    for model in (ours, theirs):
        model(torch.ones(2, 3)).square().sum().backward()
    norm = nn.utils.clip_grad_norm_(theirs.parameters(), float("inf") if longest is None else longest)
    assert clip_gradient(ours, longest) == pytest.approx(norm.item())
    for mine, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, wanted.grad)


def test_the_learning_rate_is_set_with_the_factor_of_each_group() -> None:
    optimiser = make_optimiser(SGD(lr_factors=(("bias", 10.0),)), nn.Linear(3, 5))
    set_learning_rate(optimiser, 0.25)
    assert [group["lr"] for group in optimiser.param_groups] == [0.25, 2.5]
    plain = torch.optim.SGD(nn.Linear(3, 5).parameters(), lr=1.0)
    set_learning_rate(plain, 0.25)
    assert plain.param_groups[0]["lr"] == 0.25
