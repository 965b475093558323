"""The feed-forward network against the formula, torch.nn and Hugging Face."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwork import choices
from headwork.layers import FeedForward, GatedFeedForward
from headwork.layers.mixture_of_experts import make_feed_forward

BATCH, TOKEN, D_MODEL, D_FF = 2, 3, 7, 11

FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def some_loss(output: Tensor) -> Tensor:
    return (output * torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)).sum()


def filled(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def numbers(layer: nn.Module) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("activation", FORMULAS)
def test_plain_equals_the_formula(activation: str) -> None:
    layer = filled(FeedForward(D_MODEL, D_FF, activation=activation))
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    w = numbers(layer)
    hidden = FORMULAS[activation](x.numpy() @ w["up.weight"].T + w["up.bias"])
    assert_same(layer(x), torch.from_numpy(hidden @ w["down.weight"].T + w["down.bias"]))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("activation", FORMULAS)
def test_gated_equals_the_formula(activation: str) -> None:
    layer = filled(GatedFeedForward(D_MODEL, D_FF, activation=activation, bias=True))
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    w = numbers(layer)
    gate = FORMULAS[activation](x.numpy() @ w["gate.weight"].T + w["gate.bias"])
    hidden = gate * (x.numpy() @ w["up.weight"].T + w["up.bias"])
    assert_same(layer(x), torch.from_numpy(hidden @ w["down.weight"].T + w["down.bias"]))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("activation", "theirs"),
    [("relu", nn.ReLU()), ("gelu", nn.GELU()), ("gelu_tanh", nn.GELU(approximate="tanh")), ("silu", nn.SiLU())],
)
def test_plain_equals_torch_in_value_and_gradient(activation: str, theirs: nn.Module) -> None:
    layer = filled(FeedForward(D_MODEL, D_FF, activation=activation))
    sequential = nn.Sequential(nn.Linear(D_MODEL, D_FF), theirs, nn.Linear(D_FF, D_MODEL))
    sequential.load_state_dict(dict(zip(sequential.state_dict(), layer.state_dict().values(), strict=True)))
    x = torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    assert_same(layer(x), sequential(x))
    ours = torch.autograd.grad(some_loss(layer(x)), [x, *layer.parameters()])
    wanted = torch.autograd.grad(some_loss(sequential(x)), [x, *sequential.parameters()])
    for gradient, of_torch in zip(ours, wanted, strict=True):
        assert_same(gradient, of_torch)


@pytest.mark.usefixtures("float64")
def test_gated_equals_the_mlp_of_llama() -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    config = LlamaConfig(hidden_size=D_MODEL, intermediate_size=D_FF, num_attention_heads=1, head_dim=2)
    theirs = LlamaMLP(config)
    ours = GatedFeedForward(D_MODEL, D_FF)
    names = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    ours.load_state_dict({f"{name}.weight": theirs.get_submodule(of).weight for name, of in names.items()})
    x = torch.randn(BATCH, TOKEN, D_MODEL, requires_grad=True)
    assert_same(ours(x), theirs(x))
    gradients = torch.autograd.grad(some_loss(ours(x)), [x, *(ours.get_submodule(n).weight for n in names)])
    wanted = torch.autograd.grad(some_loss(theirs(x)), [x, *(theirs.get_submodule(n).weight for n in names.values())])
    for gradient, of_llama in zip(gradients, wanted, strict=True):
        assert_same(gradient, of_llama)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_each_token_is_for_itself(kind: type[nn.Module]) -> None:
    layer = kind(D_MODEL, D_FF)
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    assert_same(layer(x)[1, 2], layer(x[1, 2]), 1e-6)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_the_hidden_features_can_be_seen_and_replaced(kind: type[nn.Module]) -> None:
    layer = kind(D_MODEL, D_FF, bias=True)
    nn.init.normal_(layer.down.bias)
    seen = []
    layer.hidden.register_forward_hook(lambda module, inputs, output: seen.append(output))
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    assert_same(layer(x), layer.down(seen[0]), 1e-6)
    assert seen[0].shape == (BATCH, TOKEN, D_FF)
    layer.hidden.register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
    assert_same(layer(x), layer.down.bias.expand(BATCH, TOKEN, -1), 1e-6)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_dropout_acts_on_the_hidden_features_after_they_were_shown(kind: type[nn.Module]) -> None:
    layer = kind(D_MODEL, D_FF, dropout=0.5)
    seen = []
    layer.hidden.register_forward_hook(lambda module, inputs, output: seen.append(output))
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    torch.manual_seed(3)
    output = layer(x)
    torch.manual_seed(3)
    assert_same(output, layer.down(nn.functional.dropout(seen[0], 0.5)), 1e-6)
    layer.eval()
    assert_same(layer(x), layer.down(seen[0]), 1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_starts_with_glorots_weights_and_bias_zero(kind: type[nn.Module], bias: bool) -> None:
    layer = kind(50, 80, bias=bias)
    bound = math.sqrt(6 / (50 + 80))
    for name, parameter in layer.named_parameters():
        if name.endswith("weight"):
            assert 0.95 * bound < parameter.abs().max() <= bound
            assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        else:
            assert bias
            assert (parameter == 0).all()


def test_made_by_choice() -> None:
    plain = make_feed_forward(choices.FeedForward(d_ff=D_FF, activation="relu", bias=False), D_MODEL, dropout=0.25)
    assert isinstance(plain, FeedForward)
    assert (plain.up.out_features, plain.up.bias, plain.dropout.p) == (D_FF, None, 0.25)
    assert plain.activation is torch.relu
    gated = make_feed_forward(choices.GatedFeedForward(d_ff=D_FF, bias=True), D_MODEL)
    assert isinstance(gated, GatedFeedForward)
    assert gated.gate.bias is not None
    assert_same(gated.activation(torch.ones(1)), torch.sigmoid(torch.ones(1)), 1e-6)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_an_unknown_activation_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match="activation must be one of relu, relu2, gelu, gelu_tanh, silu, got 'swish'"):
        kind(D_MODEL, D_FF, activation="swish")


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_ff": 0}, "d_ff must be 1 or more, got 0"),
        ({"d_model": 0}, "d_model must be 1 or more, got 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"dropout": -0.5}, r"dropout must lie in \[0, 1\), got -0.5"),
    ],
)
def test_widths_and_rates_that_cannot_be_are_refused_by_name(
    kind: type[nn.Module], arguments: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**{"d_model": D_MODEL, "d_ff": D_FF, **arguments})


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_an_empty_batch_gives_an_empty_result(kind: type[nn.Module]) -> None:
    assert kind(D_MODEL, D_FF)(torch.randn(0, TOKEN, D_MODEL)).shape == (0, TOKEN, D_MODEL)


@pytest.mark.parametrize("activation", FORMULAS)
def test_copies_are_the_same(activation: str) -> None:
    layer = FeedForward(D_MODEL, D_FF, activation=activation)
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), layer(x))


def test_prints_the_hidden_point() -> None:
    assert "(hidden): HookPoint(batch token d_ff)" in str(FeedForward(D_MODEL, D_FF))
