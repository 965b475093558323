"""Every model under torch.vmap, torch.func.grad, torch.jit.trace and torch.compile says what it says without."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from headwork.functional.gaussian import SlowPathWarning

from .small_models import EVERY_MODEL, GAUSSIAN_MODELS, Case, ready

CASES = EVERY_MODEL | GAUSSIAN_MODELS
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
pytestmark = [
    pytest.mark.usefixtures("float64", "as_users_run_it"),  # what is traced has no sizes that could be checked
    pytest.mark.filterwarnings(f"ignore::{SlowPathWarning.__module__}.SlowPathWarning"),
]


def loss(model: nn.Module, case: Case) -> object:
    """Of one example, as a function of the parameters."""

    def of_parameters(parameters, inputs, masks):
        masks = {name: mask[None] for name, mask in masks.items()}
        return torch.func.functional_call(model, parameters, tuple(t[None] for t in inputs), masks).square().sum()

    return of_parameters


@every_case
def test_one_example_at_a_time_under_vmap_is_the_batch(case: Case) -> None:
    model, inputs, masks = ready(case.make()), case.inputs(), case.masks()
    wanted = model(*inputs, **masks)

    def of_one(inputs, masks):
        return model(*(t[None] for t in inputs), **{name: mask[None] for name, mask in masks.items()})[0]

    torch.testing.assert_close(torch.vmap(of_one)(inputs, masks), wanted, rtol=1e-10, atol=1e-10)


@every_case
def test_models_in_parallel_under_vmap_are_each_by_itself(case: Case) -> None:
    models = [ready(case.make(), seed) for seed in (0, 1)]
    inputs, masks = case.inputs(), case.masks()
    wanted = torch.stack([model(*inputs, **masks) for model in models])
    state = torch.func.stack_module_state(models)
    found = torch.vmap(lambda state: torch.func.functional_call(models[0], state, inputs, masks))(state)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@every_case
def test_gradients_of_single_examples_add_up_to_that_of_the_batch(case: Case) -> None:
    model, inputs, masks = ready(case.make()), case.inputs(), case.masks()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    each = torch.vmap(torch.func.grad(loss(model, case)), in_dims=(None, 0, 0))(parameters, inputs, masks)
    model(*inputs, **masks).square().sum().backward()
    for name, parameter in model.named_parameters():
        wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(each[name].sum(0), wanted, rtol=1e-8, atol=1e-8, msg=name)


@every_case
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
def test_a_traced_model_is_the_model(case: Case) -> None:
    model, inputs = ready(case.make()), case.inputs()
    traced = torch.jit.trace(model, inputs, check_trace=False)
    others = tuple(t.flip(0) for t in inputs)
    torch.testing.assert_close(traced(*others), model(*others), rtol=1e-10, atol=1e-10)


COMPILE = """
import json, sys, torch, warnings
warnings.simplefilter("ignore")
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from small_models import GAUSSIAN_MODELS, ready

same = {}
for name, case in GAUSSIAN_MODELS.items():
    torch._dynamo.reset()
    model, inputs = ready(case.make()).float(), case.inputs()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    same[name] = torch.allclose(compiled(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)
print(json.dumps(same))
"""


@pytest.mark.slow
def test_models_with_heads_that_look_by_position_compile_into_one_graph() -> None:
    """In a process of its own, as those of test_every_model.py: the shape checks of the test run cannot be compiled."""
    command = [sys.executable, "-c", COMPILE, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(GAUSSIAN_MODELS, True)
