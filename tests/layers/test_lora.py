"""Low-rank adaptation: the equation, what is trained, and the same answers when it is merged."""

from pathlib import Path

import pytest
import torch
from torch import nn

import headwork as hw
from headwork.generation import Greedy, generate
from headwork.layers import LoRALinear

from ..models.small_models import LLAMA, decoder, encoder, ready, some_ids


def adapted(model: nn.Module, names: str | tuple[str, ...] = "*.attention.*", **settings: object) -> nn.Module:
    """With B no longer 0."""
    made = hw.lora(model, names, **settings)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("lora_b"):
                parameter.copy_(0.1 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("alpha", [1.0, 12.0])
def test_the_equation(bias: bool, alpha: float) -> None:
    linear = nn.Linear(7, 5, bias=bias).double()
    layer = LoRALinear(linear, rank=3, alpha=alpha)
    nn.init.normal_(layer.lora_b)
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    rows = [
        [
            linear.weight @ each + alpha / 3 * (layer.lora_b @ (layer.lora_a @ each)) + (linear.bias if bias else 0)
            for each in row
        ]
        for row in x
    ]
    wanted = torch.stack([torch.stack(row) for row in rows])
    torch.testing.assert_close(layer(x), wanted, atol=1e-12, rtol=0)
    torch.testing.assert_close(layer.merged()(x), wanted, atol=1e-12, rtol=0)
    assert type(layer.merged()) is nn.Linear


@pytest.mark.parametrize("make", [encoder, lambda: decoder(**LLAMA)])
def test_merged_equals_unmerged(make) -> None:
    model, ids = make().eval(), some_ids(2, 5)
    assert torch.equal(hw.lora(model, "*.query")(ids), model(ids))
    changed = adapted(model, rank=2)
    assert not torch.allclose(changed(ids), model(ids), atol=1e-4)
    torch.testing.assert_close(hw.merge_lora(changed)(ids), changed(ids), atol=1e-5, rtol=1e-5)
    assert hw.merge_lora(changed).state_dict().keys() == model.state_dict().keys()


def test_only_the_adaptation_is_trained_and_the_model_itself_is_left_alone() -> None:
    model = ready(encoder()).float()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    changed = hw.lora(model, ["layers.*.attention.query", "*.down"], rank=2, train="layers.embedding_norm.*")
    trained = {name for name, parameter in changed.named_parameters() if parameter.requires_grad}
    assert trained == {
        *(
            f"layers.{i}.{part}.lora_{x}"
            for i in (0, 1)
            for part in ("attention.query", "feed_forward.down")
            for x in "ab"
        ),
        "layers.embedding_norm.weight",
        "layers.embedding_norm.bias",
    }
    optimiser = torch.optim.SGD([p for p in changed.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        changed(some_ids(2, 5)).square().sum().backward()
        optimiser.step()
    for name, tensor in changed.state_dict().items():
        if name not in trained:
            assert torch.equal(tensor, before[name]), name
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.requires_grad for parameter in hw.merge_lora(changed).parameters())


def test_an_adapted_model_is_saved_loaded_and_looked_into(tmp_path: Path) -> None:
    model, ids = adapted(encoder().eval(), rank=2, alpha=3.0), some_ids(2, 5)
    hw.save(model, tmp_path / "ours")
    again = hw.load(tmp_path / "ours")
    assert torch.equal(again(ids), model(ids))
    assert hw.convert.conversions_of(again) == (hw.convert.LoRA(names=("*.attention.*",), rank=2, alpha=3.0),)
    with hw.record(again, "layers.0.attention.weights") as seen:
        again(ids)
    assert seen["layers.0.attention.weights"].shape == (2, 3, 5, 5)
    hw.save(hw.merge_lora(again), tmp_path / "merged")
    torch.testing.assert_close(hw.load(tmp_path / "merged")(ids), model(ids), atol=1e-5, rtol=1e-5)


def test_generation_hears_of_it() -> None:
    """Its fast form for one token would read the frozen weights alone."""
    torch.manual_seed(0)
    model, ids = adapted(ready(decoder()).float(), rank=4, alpha=64.0), some_ids(2, 3)
    said = generate(model, ids, max_new_tokens=6, sampling=Greedy())
    assert torch.equal(said, generate(hw.merge_lora(model), ids, max_new_tokens=6, sampling=Greedy()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"names": "layers.*.attention.qery"}, r"names must match linear maps of the model, got .*did you mean"),
        ({"names": "embedding"}, "names must match linear maps"),
        ({"names": "*.query", "rank": 0}, "rank must be 1 or more, got 0"),
        ({"names": "*.query", "alpha": 0.0}, "alpha must be more than 0"),
        ({"names": "*.query", "train": "hed.*"}, "train must match parameters of the model, got 'hed"),
    ],
)
def test_mistakes(arguments: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        hw.lora(encoder(), **arguments)
