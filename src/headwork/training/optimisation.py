"""Which weights decay, the learning rate of each step, and the EMA of the weights."""

import math
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwork.checks import nearest
from headwork.training.config import SGD, AdamW, Constant, Cosine, LrFactors


def parameter_groups(model: nn.Module, weight_decay: float, lr_factors: LrFactors = ()) -> list[dict[str, Any]]:
    """Parameters that decay and that do not, each with the factor of its learning rate.

    The matrices of products decay; biases, norms, embeddings, positions and the centres of heads do not. Every such
    matrix is called `weight`, and so is the vector of a norm; what is looked up is a `table`.

    >>> model = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))
    >>> groups = parameter_groups(model, 0.1, (("1.*", 10.0),))
    >>> [(len(group["params"]), group["weight_decay"], group["lr_factor"]) for group in groups]
    [(1, 0.1, 1.0), (1, 0.0, 1.0), (2, 0.0, 10.0)]
    """
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    for glob, _ in lr_factors:
        if not any(fnmatchcase(name, glob) for name in names):
            raise ValueError(f"lr_factors must match the name of a parameter, got {glob!r}{nearest(glob, names)}")
    groups: dict[tuple[float, float], list[nn.Parameter]] = {(weight_decay, 1.0): [], (0.0, 1.0): []}
    for name in names:
        parameter = model.get_parameter(name)
        is_matrix = name.rpartition(".")[2] == "weight" and parameter.ndim > 1
        factors = [factor for glob, factor in lr_factors if fnmatchcase(name, glob)]
        key = (weight_decay if is_matrix else 0.0, factors[-1] if factors else 1.0)
        groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "lr_factor": factor}
        for (decay, factor), parameters in groups.items()
        if parameters
    ]


def make_optimiser(config: AdamW | SGD, model: nn.Module) -> Optimizer:
    groups = parameter_groups(model, config.weight_decay, config.lr_factors)
    match config:
        case AdamW():
            return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)
        case SGD():
            return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0)


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
