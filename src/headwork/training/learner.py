"""A model in training: its weights, its optimiser and its EMA, in one process or sharded over many."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
"""From any number of processes, as if there were one; the first of them gets it."""
FROM_WHOLE = StateDictOptions(full_state_dict=True)


class EMA:
    """The exponential moving average of the weights, young at first: it forgets faster in the first steps."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.start_from(model)

    def start_from(self, model: nn.Module) -> None:
        self.model, own = model, model.state_dict()
        self.state = _copy(own)
        # To ask for them at every step takes longer than to average them; only parameters are the same ones for ever.
        may_change = isinstance(model, FSDPModule) or any(name in own for name, _ in model.named_buffers())
        self.parameters = None if may_change else own

    @property
    def own(self) -> dict[str, Tensor]:
        """The model's own weights, not a copy of them."""
        return self.model.state_dict() if self.parameters is None else self.parameters

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, tensor in self.own.items():
            if tensor.is_floating_point():
                self.state[name].lerp_(tensor, 1 - decay)
            else:
                self.state[name].copy_(tensor)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the average and the model's own weights; the second time, back."""
        own = self.own
        kept = _copy(own)  # all of them first: two names may share one tensor
        for name, tensor in own.items():
            tensor.copy_(self.state[name])
        self.state = kept


def _copy(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}


@dataclass
class Learner:
    """The model itself, the one that Fabric and the compiler have wrapped, and all that changes with it."""

    model: nn.Module
    wrapped: nn.Module
    optimiser: Optimizer
    ema: EMA | None = None
    scaler: GradScaler | None = None
    """Of the loss, in float16."""

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model with the averaged weights, if there are such."""
        if self.ema is not None:
            self.ema.swap()
        try:
            yield
        finally:
            if self.ema is not None:
                self.ema.swap()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The model in eval mode, with the averaged weights.

        What FSDP has sharded over processes is put together: a translation does not go through the model's `forward`.
        """
        self.wrapped.eval()
        with self.averaged():
            if isinstance(self.model, FSDPModule):
                self.model.unshard()
            try:
                yield
            finally:
                if isinstance(self.model, FSDPModule):
                    self.model.reshard()
                self.wrapped.train()

    def weights(self) -> dict[str, Tensor]:
        """A copy of the model's own weights."""
        if not isinstance(self.model, FSDPModule):
            return _copy({name: tensor.cpu() for name, tensor in self.model.state_dict().items()})
        return _copy(cast(dict[str, Tensor], get_model_state_dict(self.model, options=WHOLE)))

    def averaged_weights(self) -> dict[str, Tensor] | None:
        if self.ema is None:
            return None
        if not isinstance(self.model, FSDPModule):
            return _copy({name: tensor.cpu() for name, tensor in self.ema.state.items()})
        with self.averaged():
            return self.weights()

    def optimiser_state(self) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
        """Its settings for JSON, and its tensors by name; only the first process has them."""
        state = cast(dict[str, Any], get_optimizer_state_dict(self.model, self.optimiser, options=WHOLE))
        tensors = {
            f"{key}.{name}": torch.as_tensor(value)
            for name, values in state.get("state", {}).items()
            for key, value in values.items()
            if value is not None
        }
        return state.get("param_groups", []), tensors

    def scaler_state(self) -> dict[str, Any] | None:
        return None if self.scaler is None else self.scaler.state_dict()

    def load(self, weights: dict[str, Any]) -> None:
        set_model_state_dict(self.model, weights, options=FROM_WHOLE)

    def load_average(self, weights: dict[str, Any]) -> None:
        """Through the model, which knows what each process has to keep of it."""
        assert self.ema is not None
        self.load(weights)
        self.ema.start_from(self.model)

    def load_optimiser(self, groups: list[dict[str, Any]], tensors: Mapping[str, Tensor]) -> None:
        """Its state as it was saved; its settings, but for the learning rate of the step, are those of the config."""
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        own = [{**group, "params": [names[each] for each in group["params"]]} for group in self.optimiser.param_groups]
        for group, saved in zip(own, groups, strict=True):
            if group.keys() != saved.keys() or group["params"] != saved["params"] or not math.isfinite(saved["lr"]):
                raise ValueError(f"a group of the optimiser must have the settings {group}, got {saved}")
        if not tensors:  # before its first step an optimiser has no state, and must not be given one
            return
        state: dict[str, Any] = {}
        for name, tensor in tensors.items():
            key, parameter = name.split(".", 1)
            shape = () if key == "step" else self.model.get_parameter(parameter).shape
            if not tensor.is_floating_point() or tensor.shape != shape:
                raise ValueError(
                    f"{name} must be {tuple(shape)} real numbers, got {tuple(tensor.shape)} {tensor.dtype}"
                )
            state.setdefault(parameter, {})[key] = tensor
        for group in groups:
            if len({frozenset(state[name]) for name in group["params"] if name in state}) > 1:
                raise ValueError("the parameters of a group must have the same kinds of state, got different ones")
        set_optimizer_state_dict(
            self.model, self.optimiser, {"state": state, "param_groups": groups}, options=FROM_WHOLE
        )
        for group, settings in zip(self.optimiser.param_groups, own, strict=True):
            group.update({key: value for key, value in settings.items() if key not in ("params", "lr")})

    def load_scaler(self, state: dict[str, Any] | None) -> None:
        if self.scaler is not None and state is not None:
            self.scaler.load_state_dict(state)
