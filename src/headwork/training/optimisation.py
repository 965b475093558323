"""Steps downhill: which weights decay, how large the steps are, and the average over the last of them."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwork.layers.gaussian import GaussianAttention
from headwork.training.config import SGD, AdamW, Constant, Cosine


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The matrices of products decay; biases, norms, embeddings, positions and the places of heads do not.

    Every such matrix is called `weight`, and so is the vector of a norm; what is looked up is a `table`.

    >>> [len(group["params"]) for group in decay_groups(nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5)), 0.1)]
    [1, 3]
    """
    decaying: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_matrix = name.rpartition(".")[2] == "weight" and parameter.ndim > 1
            (decaying if is_matrix else others).append(parameter)
    return [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def make_optimiser(config: AdamW | SGD, model: nn.Module) -> Optimizer:
    groups = [group for group in decay_groups(model, config.weight_decay) if group["params"]]
    match config:
        case AdamW():
            if config.pace_of_places != 1:
                groups = with_pace(groups, places_of_heads(model), config.pace_of_places)
            return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)
        case SGD():
            return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0)


def places_of_heads(model: nn.Module) -> set[nn.Parameter]:
    """The centres and widths of all Gaussian heads."""
    layers = [module for module in model.modules() if isinstance(module, GaussianAttention)]
    return {parameter for layer in layers for parameter in (layer.centre, layer.sharpness)}


def with_pace(groups: list[dict[str, Any]], chosen: set[nn.Parameter], pace: float) -> list[dict[str, Any]]:
    """The chosen parameters in a group of their own, whose learning rate is multiplied by its `pace`."""
    rest = [group | {"params": [p for p in group["params"] if p not in chosen]} for group in groups]
    faster = {
        "params": [p for group in groups for p in group["params"] if p in chosen],
        "weight_decay": 0.0,
        "pace": pace,
    }
    return [group for group in (*rest, faster) if group["params"]]


def learning_rate(schedule: Cosine | Constant, step: int, n_steps: int) -> float:
    """The share of the full learning rate at a step: a function of the step alone, so there is nothing to resume.

    >>> [round(learning_rate(Cosine(warmup=0.2), step, 10), 2) for step in range(10)]
    [0.5, 1.0, 1.0, 0.96, 0.85, 0.69, 0.5, 0.31, 0.15, 0.04]
    """
    n_warm = round(schedule.warmup * n_steps)
    if step < n_warm:
        return (step + 1) / n_warm
    if isinstance(schedule, Constant):
        return 1.0
    done = (step - n_warm) / max(n_steps - n_warm, 1)
    return schedule.floor + (1 - schedule.floor) * (1 + math.cos(math.pi * done)) / 2


class EMA:
    """The exponential moving average of the weights, young at first: it forgets faster in the first steps."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.start_from(model)

    def start_from(self, model: nn.Module) -> None:
        self.state = _copy(model)

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                self.state[name].lerp_(tensor, 1 - decay)
            else:
                self.state[name].copy_(tensor)

    def swap(self, model: nn.Module) -> None:
        """Exchange the average and the model's own weights; the second time, back."""
        own = _copy(model)
        model.load_state_dict(self.state)
        self.state = own


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def gradient_norm(model: nn.Module) -> Tensor:
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
