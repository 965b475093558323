"""Decay by the kind of module, Adam's eps, the schedule after its end, the length of the gradient."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import get_wsd_schedule

import headwork as hw
from headwork.training import SGD, AdamW, Constant, Cosine, Muon, TrainingConfig, WarmupStableDecay
from headwork.training.muon import _by_gram, _by_products, orthogonalise
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


def hidden_and_head() -> nn.Module:
    torch.manual_seed(0)
    config = hw.models.VisionTransformerConfig(
        n_classes=3,
        image=(8, 8),
        n_channels=1,
        patch=(4, 4),
        d_model=8,
        n_layers=2,
        heads=hw.choices.Heads(n_heads=2),
        feed_forward=hw.choices.FeedForward(d_ff=24),
    )
    return config.build()


def names_of(optimiser: torch.optim.Optimizer, model: nn.Module, *, matrices: bool) -> set[str]:
    names = {id(p): name for name, p in model.named_parameters()}
    groups = [group for group in optimiser.param_groups if (group["momentum"] is not None) == matrices]
    return {names[id(p)] for group in groups for p in group["params"]}


def test_muon_is_for_the_matrices_of_the_layers() -> None:
    model = hidden_and_head()
    optimiser = make_optimiser(Muon(), model)
    found, rest = (names_of(optimiser, model, matrices=which) for which in (True, False))
    assert found | rest == {name for name, _ in model.named_parameters()}
    assert not found & rest
    assert found == {
        n for n, p in model.named_parameters() if n.startswith("layers.") and n[7].isdigit() and p.ndim == 2
    }
    assert {"classifier.weight", "layers.final_norm.weight"} <= rest
    stem = hw.models.VisionTransformerConfig(
        n_classes=3, image=(8, 8), patch=(4, 4), n_layers=1, embedding=hw.choices.ConvolutionalStem(widths=(5, 7))
    ).build()
    of_stem = {name for name in names_of(make_optimiser(Muon(), stem), stem, matrices=True) if "layers.0" not in name}
    assert of_stem == {"patches.convolutions.1.weight", "patches.convolutions.2.weight"}
    own = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 6), nn.LayerNorm(6), nn.Conv2d(2, 3, 3))
    assert names_of(make_optimiser(Muon(), own), own, matrices=True) == {"1.weight", "3.weight"}


def newton_schulz(matrix: np.ndarray) -> np.ndarray:
    """From the equation, in float64."""
    x = matrix / max(np.linalg.norm(matrix), 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
    return x


@pytest.mark.parametrize("shape", [(5, 5), (3, 11), (11, 3), (1, 7), (7, 1)])
def test_orthogonalise_is_its_equation(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape)
    wide = matrix if shape[0] <= shape[1] else matrix.T
    wanted = torch.from_numpy(newton_schulz(wide.double().numpy())).float()
    found = orthogonalise(matrix)
    torch.testing.assert_close(found if shape[0] <= shape[1] else found.T, wanted, rtol=1e-4, atol=1e-5)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    assert ((u.T @ found @ v.T).diagonal() > 0.3).all()  # the directions are those of the matrix
    assert not orthogonalise(torch.zeros(shape)).any()


@pytest.mark.parametrize("smallest", [1.0, 1e-6, 1e-12, 0.0])
@pytest.mark.parametrize(("rows", "columns"), [(1, 7), (5, 5), (3, 11), (17, 53)])
def test_the_two_ways_to_orthogonalise_agree(rows: int, columns: int, smallest: float) -> None:
    """Singular values down to the smallest, which the Gram matrix squares: float32 keeps what float64 says."""
    u, v = (torch.linalg.qr(torch.randn(n, rows, dtype=torch.float64))[0] for n in (rows, columns))
    values = torch.linspace(1, smallest, rows, dtype=torch.float64) if rows > 1 else torch.ones(1, dtype=torch.float64)
    x = (u * values) @ v.T / values.norm()
    wanted = _by_products(x)
    torch.testing.assert_close(_by_gram(x), wanted, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(_by_gram(x.float()), wanted.float(), rtol=0, atol=2e-4)


def trained(optimiser_of, n_steps: int, shape: tuple[int, int]) -> torch.Tensor:
    torch.manual_seed(1)
    line = nn.Linear(shape[1], shape[0], bias=False)
    x, y = torch.randn(32, shape[1]), torch.randn(32, shape[0])
    optimiser = optimiser_of(line)
    for _ in range(n_steps):
        optimiser.zero_grad()
        (line(x) - y).square().mean().backward()
        optimiser.step()
    return line.weight.detach()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has Muon from 2.9 on")
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_muon_is_pytorchs_in_float32(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own code, whose only step into bfloat16 is taken out."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.2}
    theirs = trained(lambda line: torch.optim.Muon(line.parameters(), **settings), 12, shape)
    ours = trained(lambda line: make_optimiser(Muon(**settings), line), 12, shape)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has Muon from 2.9 on")
@pytest.mark.computes_in(torch.bfloat16)
def test_muon_is_about_pytorchs_in_bfloat16() -> None:
    theirs = trained(lambda line: torch.optim.Muon(line.parameters(), lr=0.02, weight_decay=0.0), 3, (6, 9))
    ours = trained(lambda line: make_optimiser(Muon(lr=0.02), line), 3, (6, 9))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.01)


def test_beside_muon_is_pytorchs_adamw() -> None:
    """The same parameters, with the same gradients, by AdamW alone."""
    ours, theirs = hidden_and_head(), hidden_and_head()
    config = Muon(
        lr=0.02, adamw=AdamW(lr=3e-3, betas=(0.8, 0.95), weight_decay=0.1), lr_factors=(("classifier.*", 2.0),)
    )
    one = make_optimiser(config, ours)
    other = make_optimiser(replace(config.adamw, lr_factors=config.lr_factors), theirs)
    rest = names_of(one, ours, matrices=False)
    for step in range(4):
        set_learning_rate(one, config.lr / (step + 1))
        set_learning_rate(other, config.adamw.lr / (step + 1))
        for name, parameter in ours.named_parameters():
            parameter.grad = torch.randn(parameter.shape)
            theirs.get_parameter(name).grad = parameter.grad.clone()
        one.step()
        other.step()
    for name in rest:
        torch.testing.assert_close(ours.get_parameter(name), theirs.get_parameter(name))
    assert len(rest) > 10


@pytest.mark.parametrize("n_steps", [1, 7, 100])
@pytest.mark.parametrize("schedule", [WarmupStableDecay(), WarmupStableDecay(warmup=0.1, decay=0.5, floor=0.1)])
def test_warm_up_stable_decay_is_that_of_transformers(schedule: WarmupStableDecay, n_steps: int) -> None:
    n_warm, n_decay = round(schedule.warmup * n_steps), round(schedule.decay * n_steps)
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_wsd_schedule(optimiser, n_warm, n_decay, n_steps, decay_type="linear", min_lr_ratio=schedule.floor)
    rates = [learning_rate(schedule, step, n_steps) for step in range(n_steps)]
    for step in range(n_warm, n_steps):  # ours warms up from 1 / n_warm to 1, and not from 0
        assert rates[step] == pytest.approx(theirs.lr_lambdas[0](step)), step
    assert rates[:n_warm] == pytest.approx([(step + 1) / n_warm for step in range(n_warm)])
    assert learning_rate(schedule, 10 * n_steps, n_steps) == pytest.approx(schedule.floor if n_decay else 1.0)


def test_wrong_choices() -> None:
    with pytest.raises(ValueError, match=r"decay must lie in \[0, 1 - warmup\], got decay=0.9 and warmup=0.2"):
        WarmupStableDecay(warmup=0.2, decay=0.9)
    with pytest.raises(ValueError, match="lr_factors must be given to Muon itself"):
        Muon(adamw=AdamW(lr_factors=(("x", 2.0),)))
    with pytest.raises(ValueError, match="optimiser must be AdamW or SGD with strategy='fsdp'"):
        TrainingConfig(batch_size=1, steps=1, strategy="fsdp", optimiser=Muon())
