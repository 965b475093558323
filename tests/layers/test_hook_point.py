"""Points: nothing changes by being looked at, everything can be replaced."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from headwork.layers import HookPoint, LazyHookPoint

AXES = "batch head query key"


class Costly:
    """Counts how often it is computed."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Tensor:
        self.calls += 1
        return torch.full((2, 3), float(self.calls))


def test_a_point_passes_the_very_same_tensor() -> None:
    value = torch.randn(2, 3)
    assert HookPoint(AXES)(value) is value


def test_what_a_hook_returns_replaces_the_tensor() -> None:
    point = HookPoint(AXES)
    point.register_forward_hook(lambda module, inputs, output: output + 1)
    assert torch.equal(point(torch.zeros(2)), torch.ones(2))


@pytest.mark.parametrize("kind", [HookPoint, LazyHookPoint])
def test_prints_its_axes(kind: type[HookPoint]) -> None:
    assert str(kind(AXES)) == f"{kind.__name__}({AXES})"


@pytest.mark.parametrize("kind", [HookPoint, LazyHookPoint])
def test_owns_no_parameter(kind: type[HookPoint]) -> None:
    assert not list(kind(AXES).parameters())
    assert not kind(AXES).state_dict()


@pytest.mark.parametrize("kind", [HookPoint, LazyHookPoint])
def test_copies_keep_the_axes(kind: type[HookPoint]) -> None:
    for twin in (copy.deepcopy(kind(AXES)), pickle.loads(pickle.dumps(kind(AXES)))):
        assert isinstance(twin, kind)
        assert twin.axes == AXES


def test_nothing_is_computed_that_nobody_asked_for() -> None:
    point, compute = LazyHookPoint(AXES), Costly()
    assert point.publish(compute) is None
    assert compute.calls == 0


@pytest.mark.parametrize("training", [True, False])
def test_a_hook_sees_what_is_computed_once(training: bool) -> None:
    point, compute, seen = LazyHookPoint(AXES).train(training), Costly(), []
    point.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    with torch.no_grad():
        assert point.publish(compute) is None
    assert compute.calls == 1
    assert torch.equal(seen[0][0], torch.ones(2, 3))
    assert seen[0][0] is seen[0][1]


def test_a_removed_hook_costs_nothing_again() -> None:
    point, compute = LazyHookPoint(AXES), Costly()
    point.register_forward_hook(lambda module, inputs, output: None).remove()
    assert point.publish(compute) is None
    assert compute.calls == 0


def test_a_hook_replaces_the_offered_tensor() -> None:
    point = LazyHookPoint(AXES)
    point.register_forward_hook(lambda module, inputs, output: output * 7)
    assert torch.equal(point.publish(Costly()), torch.full((2, 3), 7.0))


def test_a_pre_hook_replaces_the_offered_tensor() -> None:
    point = LazyHookPoint(AXES)
    point.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 7,))
    assert torch.equal(point.publish(Costly()), torch.full((2, 3), 7.0))


def test_the_last_of_several_hooks_decides() -> None:
    point = LazyHookPoint(AXES)
    point.register_forward_hook(lambda module, inputs, output: output + 1)
    point.register_forward_hook(lambda module, inputs, output: output * 10)
    assert torch.equal(point.publish(Costly()), torch.full((2, 3), 20.0))


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
def test_an_edit_in_place_is_a_replacement(quiet: type) -> None:
    """A hook that writes into the tensor has changed it, whether it returns it or not."""
    for returned in (True, False):
        point = LazyHookPoint(AXES)

        def edit(module: nn.Module, inputs: tuple[Tensor], output: Tensor, returned: bool = returned) -> Tensor | None:
            output[0] = 0.0
            return output if returned else None

        point.register_forward_hook(edit)
        with quiet():
            offered = point.publish(Costly())
        assert offered is not None
        assert torch.equal(offered, torch.tensor([[0.0] * 3, [1.0] * 3]))


def test_a_backward_hook_alone_fires_too() -> None:
    """pytorch#128413, vit-explain#23: gradients of the weights are asked for this way."""
    point, seen = LazyHookPoint(AXES), []
    point.register_full_backward_hook(lambda module, to_inputs, of_outputs: seen.append(of_outputs[0]))
    start = torch.ones(2, 3, requires_grad=True)
    offered = point.publish(lambda: start * 2)
    assert offered is not None
    (offered * 5).sum().backward()
    assert torch.equal(seen[0], torch.full((2, 3), 5.0))


def test_a_keeper_may_compute_later() -> None:
    point, compute, kept = LazyHookPoint(AXES), Costly(), []
    handle = point.register_lazy_hook(kept.append)
    assert point.publish(compute) is None
    assert compute.calls == 0
    assert torch.equal(kept[0](), torch.ones(2, 3))
    handle.remove()
    point.publish(compute)
    assert len(kept) == 1
