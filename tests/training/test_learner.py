"""Schedules as PyTorch has them, decay where it belongs, and an average that goes and comes back bit for bit."""

import pytest
import torch
from tests.models.small_models import EVERY_MODEL
from tests.training.small_runs import KINDS, small_config
from torch import nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from headwork.layers import GaussianAttention
from headwork.training import SGD, AdamW, Constant, Cosine
from headwork.training.learner import EMA
from headwork.training.optimiser import gradient_norm, learning_rate, make_optimiser, parameter_groups


@pytest.mark.filterwarnings("ignore:The epoch parameter")  # SequentialLR of PyTorch 2.8 warns of itself
@pytest.mark.parametrize(("n_steps", "warmup"), [(100, 0.1), (7, 0.3), (53, 0.0), (2, 0.5), (1, 0.0), (10, 0.99)])
@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
def test_the_schedule_is_pytorchs_at_every_step(n_steps: int, warmup: float, floor: float) -> None:
    n_warm = round(warmup * n_steps)
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    falling = CosineAnnealingLR(optimiser, max(n_steps - n_warm, 1), eta_min=floor)
    schedule = falling
    if n_warm:
        rising = (
            LinearLR(optimiser, 1 / n_warm, total_iters=max(n_warm - 1, 1)) if n_warm > 1 else ConstantLR(optimiser, 1)
        )
        schedule = SequentialLR(optimiser, [rising, falling], milestones=[n_warm])
    for step in range(n_steps):
        ours = learning_rate(Cosine(warmup=warmup, floor=floor), step, n_steps)
        assert ours == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-12), step
        optimiser.step()
        schedule.step()


def test_a_constant_rate_rises_and_stays() -> None:
    assert [learning_rate(Constant(warmup=0.4), step, 5) for step in range(5)] == [0.5, 1.0, 1.0, 1.0, 1.0]
    assert {learning_rate(Constant(), step, 5) for step in range(5)} == {1.0}


def test_the_cosine_never_rises_again() -> None:
    rates = [learning_rate(Cosine(warmup=0.2, floor=0.3), step, 50) for step in range(50)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert min(rates[10:]) >= 0.3


def names(model: nn.Module, parameters: object) -> set[str]:
    chosen = {id(parameter) for parameter in parameters}  # type: ignore[attr-defined]
    return {name for name, parameter in model.named_parameters() if id(parameter) in chosen}


PRODUCTS = {"Linear", "Conv2d", "PatchEmbedding", "NormalisedPatchEmbedding", "HeadwiseLinear", "LMHead"}
"""The modules that multiply by a matrix of their own; its name is `weight`."""


@pytest.mark.parametrize("name", [*EVERY_MODEL, *KINDS])
def test_only_the_matrices_of_products_decay(name: str) -> None:
    model = EVERY_MODEL[name].make() if name in EVERY_MODEL else small_config(name).model.build()
    decaying, others = (names(model, group["params"]) for group in parameter_groups(model, 0.1))
    wanted = {
        f"{where}.{each}".lstrip(".")
        for where, module in model.named_modules()
        for each, _ in module.named_parameters(recurse=False)
        if type(module).__name__ in PRODUCTS and each == "weight"
    }
    assert decaying == wanted
    assert others == {each for each, _ in model.named_parameters()} - wanted


def test_the_centres_of_heads_do_not_decay() -> None:
    layer = GaussianAttention(n_heads=3, d_model=6)
    _, others = (names(layer, group["params"]) for group in parameter_groups(layer, 0.1))
    assert {"centre", "sharpness"} <= others


def test_learning_rate_factors_by_the_names_of_parameters() -> None:
    """The centres and widths of Gaussian heads go five times as fast, the last glob that matches counts."""
    layer = nn.Sequential(GaussianAttention(n_heads=3, d_model=6), nn.Linear(6, 2))
    config = AdamW(lr=0.5, lr_factors=(("*", 2.0), ("*.centre", 5.0), ("*.sharpness", 5.0)))
    optimiser = make_optimiser(config, layer)
    factors = {name: group["lr_factor"] for group in optimiser.param_groups for name in names(layer, group["params"])}
    assert {name for name, factor in factors.items() if factor == 5} == {"0.centre", "0.sharpness"}
    assert set(factors.values()) == {2.0, 5.0}
    assert set(factors) == {name for name, _ in layer.named_parameters()}


def test_a_glob_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lr_factors must match the name of a parameter, got 'weigth'; did you mean"):
        make_optimiser(SGD(lr_factors=(("weigth", 2.0),)), nn.Linear(3, 5))
    with pytest.raises(ValueError, match=r"lr_factors\['bias'\] must be more than 0"):
        AdamW(lr_factors=(("bias", 0.0),))


def test_frozen_weights_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    model[0].requires_grad_(requires_grad=False)
    assert [len(group["params"]) for group in parameter_groups(model, 0.1)] == [1, 1]  # type: ignore[arg-type]


def test_the_optimisers_are_pytorchs() -> None:
    model = nn.Linear(3, 5)
    adam = make_optimiser(AdamW(lr=0.5, betas=(0.7, 0.8), weight_decay=0.3), model)
    assert isinstance(adam, torch.optim.AdamW)
    assert [(g["lr"], g["betas"], g["weight_decay"]) for g in adam.param_groups] == [
        (0.5, (0.7, 0.8), 0.3),
        (0.5, (0.7, 0.8), 0.0),
    ]
    sgd = make_optimiser(SGD(lr=0.5, momentum=0.7, weight_decay=0.3), model)
    assert isinstance(sgd, torch.optim.SGD)
    assert [(g["lr"], g["momentum"], g["nesterov"], g["weight_decay"]) for g in sgd.param_groups] == [
        (0.5, 0.7, True, 0.3),
        (0.5, 0.7, True, 0.0),
    ]


def test_the_average_is_pytorchs_once_it_is_no_longer_young() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)).double()
    ours = EMA(model, 0.9)
    theirs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    theirs.update_parameters(model)
    for _ in range(7):
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.add_(torch.randn_like(tensor) if tensor.is_floating_point() else 1)
        ours.update(step=10**6)
        theirs.update_parameters(model)
    for name, tensor in theirs.module.state_dict().items():
        if tensor.is_floating_point():
            torch.testing.assert_close(ours.state[name], tensor, rtol=0, atol=1e-12)
    assert ours.state["1.num_batches_tracked"] == 7


class Counting(nn.Module):
    """Keeps a buffer that is another tensor after each call, as many modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 5), nn.BatchNorm1d(5)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + 1
        return self.norm(self.linear(x))


def test_the_average_follows_a_buffer_that_is_another_tensor() -> None:
    model = Counting()
    average = EMA(model, 0.5)
    for _ in range(3):
        model(torch.randn(7, 3))
        average.update(step=10**6)
    assert average.state["seen"] == 0.5**3 * 0 + 0.5**3 * 1 + 0.5**2 * 2 + 0.5 * 3
    average.swap()
    assert model.seen == average.decay**3 + 0.5 + 1.5


def test_tied_weights_are_averaged_and_come_back() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    average, before = EMA(model, 0.5), model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight += 1
    average.update(step=10**6)
    average.swap()
    torch.testing.assert_close(model[1].weight, before + 0.5)
    average.swap()
    torch.testing.assert_close(model[1].weight, before + 1)


def test_swapping_twice_changes_no_bit() -> None:
    """Also of what is not finite or negative zero, and of the counts of a batch norm."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    average = EMA(model, 0.5)
    with torch.no_grad():
        model[0].weight[0] = torch.tensor([float("nan"), float("inf"), -0.0])
        model[1].num_batches_tracked += 3
    own, averaged = (
        {name: tensor.clone().flatten().view(torch.uint8) for name, tensor in state.items()}
        for state in (model.state_dict(), average.state)
    )
    average.swap()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor.flatten().view(torch.uint8), averaged[name])
    average.swap()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor.flatten().view(torch.uint8), own[name])
        assert torch.equal(average.state[name].flatten().view(torch.uint8), averaged[name])


def test_the_norm_of_the_gradient() -> None:
    model = nn.Linear(3, 5)
    model(torch.randn(2, 3)).sum().backward()
    wanted = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()  # type: ignore[union-attr]
    torch.testing.assert_close(gradient_norm(model), wanted)
