"""Models whose next word depends on all that came before, so that a mistake anywhere changes the text."""

from typing import TypeVar

import torch
from torch import nn

from ..models.small_models import ready

Model = TypeVar("Model", bound=nn.Module)


def enliven(model: Model, factor: float = 3.0) -> Model:
    """Norms that let everything pass, small biases, large weights; the rest of a random model drowns in its biases."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name.lower() and name.endswith("weight"):
                p.fill_(1.0)
            elif "positions" not in name:
                p.mul_(0.1 if name.endswith("bias") else factor)
    return model


def lively(model: Model, seed: int = 0) -> Model:
    return enliven(ready(model, seed))
