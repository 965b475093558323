"""Which weights decay, the learning rate of each step, and the length of the gradient: for any model and any loop."""

import math
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwork import layers
from headwork.checks import nearest
from headwork.layers.grid_attention import (
    AbsolutePositionalEmbedding,
    QueryShiftAttention,
    RelativePositionalEmbedding,
)
from headwork.layers.positions import RelativeShifts
from headwork.models import describe
from headwork.training.config import SGD, AdamW, Constant, Cosine, LrFactors, Muon, WarmupStableDecay
from headwork.training.muon import MuonWithAdamW

NOT_OF_PRODUCTS = (
    *(nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm),
    *(layers.TokenEmbedding, layers.Positions, layers.LearnedGrid, RelativeShifts),
    *(AbsolutePositionalEmbedding, RelativePositionalEmbedding),
    *(layers.PositionAttention, QueryShiftAttention),
)
"""Modules whose own parameters are looked up, or scale, or say where: no matrix of a product, whatever their shape."""


def parameter_groups(model: nn.Module, weight_decay: float, lr_factors: LrFactors = ()) -> list[dict[str, Any]]:
    """Parameters that decay and that do not, each with the factor of its learning rate, as an optimiser takes them.

    The matrices of products decay, whatever they are called: all with two axes or more. Biases, norms, embeddings (also
    one that is the output matrix as well), positions and the centres of heads do not.

    >>> model = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))
    >>> groups = parameter_groups(model, 0.1, (("1.*", 10.0),))
    >>> [(len(group["params"]), group["weight_decay"], group["lr_factor"]) for group in groups]
    [(1, 0.1, 1.0), (1, 0.0, 1.0), (2, 0.0, 10.0)]
    """
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    for glob, _ in lr_factors:
        if not any(fnmatchcase(name, glob) for name in names):
            raise ValueError(f"lr_factors must match the name of a parameter, got {glob!r}{nearest(glob, names)}")
    kept = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim < 2 or isinstance(module, NOT_OF_PRODUCTS) or "bias" in name
    }
    groups: dict[tuple[float, float], list[nn.Parameter]] = {(weight_decay, 1.0): [], (0.0, 1.0): []}
    for name in names:
        parameter = model.get_parameter(name)
        factors = [factor for glob, factor in lr_factors if fnmatchcase(name, glob)]
        key = (0.0 if id(parameter) in kept else weight_decay, factors[-1] if factors else 1.0)
        groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "lr_factor": factor}
        for (decay, factor), parameters in groups.items()
        if parameters
    ]


def muon_groups(config: Muon, model: nn.Module) -> list[dict[str, Any]]:
    """The groups of AdamW, from which the matrices of products inside the layers (or kernels) are taken out for Muon.

    Embeddings and heads are outside of the layers, and stay, as do the kernels of a stem that read the image. A model
    that has no description gives all its matrices.
    The learning rate of AdamW is kept as a factor of Muon's.

    >>> model = hw.models.ResNetConfig(n_classes=10, n_blocks=1, widths=(4,)).build()
    >>> [(len(group["params"]), group["momentum"]) for group in muon_groups(Muon(), model)]
    [(2, 0.95), (2, None), (7, None)]
    """
    description = describe(model)
    hidden = {
        id(parameter)
        for name, parameter in model.named_parameters()
        if description is None
        or name.startswith(tuple(f"{layer}." for layer in description.layers))
        or (parameter.ndim == 4 and parameter.shape[1] != description.n_channels)
    }
    slower = config.adamw.lr / config.lr
    groups: list[dict[str, Any]] = []
    for group in parameter_groups(model, 1.0, config.lr_factors):
        decays, factor = group["weight_decay"] > 0, group["lr_factor"]
        matrices = [p for p in group["params"] if decays and id(p) in hidden and p.ndim in (2, 4)]
        chosen = {id(p) for p in matrices}
        rest = [p for p in group["params"] if id(p) not in chosen]
        settings = {"weight_decay": config.weight_decay, "lr_factor": factor, "momentum": config.momentum}
        of_adamw = {
            "weight_decay": config.adamw.weight_decay if decays else 0.0,
            "lr_factor": slower * factor,
            "momentum": None,
        }
        groups += [{"params": matrices, **settings}] if matrices else []
        groups += [{"params": rest, **of_adamw}] if rest else []
    return groups


def make_optimiser(config: AdamW | SGD | Muon, model: nn.Module) -> Optimizer:
    """PyTorch's optimiser over the parameter groups of the model, or Muon.

    >>> [group["weight_decay"] for group in make_optimiser(AdamW(weight_decay=0.1), nn.Linear(3, 5)).param_groups]
    [0.1, 0.0]
    """
    if isinstance(config, Muon):
        adamw = config.adamw
        return MuonWithAdamW(muon_groups(config, model), lr=config.lr, betas=adamw.betas, eps=adamw.eps, fused=True)
    groups = parameter_groups(model, config.weight_decay, config.lr_factors)
    match config:
        case AdamW():
            return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
        case SGD():
            return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0)


def learning_rate(schedule: Cosine | Constant | WarmupStableDecay, step: int, n_steps: int) -> float:
    """The share of the full learning rate at a step: a function of the step alone, so there is nothing to resume.

    After the last step it stays where it is.

    >>> [round(learning_rate(Cosine(warmup=0.2), step, 10), 2) for step in range(10)]
    [0.5, 1.0, 1.0, 0.96, 0.85, 0.69, 0.5, 0.31, 0.15, 0.04]
    """
    n_warm = round(schedule.warmup * n_steps)
    if step < n_warm:
        return (step + 1) / n_warm
    if isinstance(schedule, Constant):
        return 1.0
    if isinstance(schedule, WarmupStableDecay):
        n_decay = round(schedule.decay * n_steps)
        left = min(max(n_steps - step, 0) / n_decay, 1.0) if n_decay else 1.0
        return schedule.floor + (1 - schedule.floor) * left
    done = min((step - n_warm) / max(n_steps - n_warm, 1), 1.0)
    return schedule.floor + (1 - schedule.floor) * (1 + math.cos(math.pi * done)) / 2


def set_learning_rate(optimiser: Optimizer, lr: float) -> None:
    """The learning rate of each parameter group, times the group's own factor if it has one.

    >>> optimiser = make_optimiser(SGD(lr_factors=(("bias", 10.0),)), nn.Linear(3, 5))
    >>> set_learning_rate(optimiser, 0.5)
    >>> [group["lr"] for group in optimiser.param_groups]
    [0.5, 5.0]
    """
    for group in optimiser.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)


def gradient_norm(model: nn.Module) -> Tensor:
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])


def clip_gradient(model: nn.Module, longest: float | None) -> float:
    """Make the gradient of all parameters together no longer than that (None: leave it); how long it was.

    >>> line = nn.Linear(1, 1, bias=False)
    >>> (3 * line(torch.ones(1, 1))).sum().backward()
    >>> clip_gradient(line, 1.0), line.weight.grad.item()
    (3.0, 0.9999996423721313)
    """
    norm = gradient_norm(model)
    if longest is not None:
        nn.utils.clip_grads_with_norm_(model.parameters(), longest, norm)
    return float(norm)
