"""hw.trace: every intermediate with its name, axes and shape."""

import dataclasses
import re

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import headwork as hw
from headwork.functional import attention_weights
from headwork.models import (
    PUBLISHED,
    EncoderDecoderConfig,
    GaussianImageEncoderConfig,
    ResNetConfig,
    VisionTransformerConfig,
)
from tests.inspection.small_models import cells_of


def inputs_of(config, n_tokens=5):
    match config:
        case VisionTransformerConfig() | GaussianImageEncoderConfig():
            return [torch.zeros(1, config.n_channels, *config.image)]
        case ResNetConfig():
            return [torch.zeros(1, 3, 32, 32)]
        case EncoderDecoderConfig():
            return [torch.zeros(1, n_tokens, dtype=torch.long), torch.zeros(1, n_tokens, dtype=torch.long)]
        case _:
            return [torch.zeros(1, n_tokens, dtype=torch.long)]


def test_the_table_of_the_qmul_sheet_comes_out():
    """Question 3.1 of the QMUL sheet: five tokens, width 768, 12 heads."""
    with FakeTensorMode():
        table = hw.trace(PUBLISHED["bert-base"].build(), torch.zeros(1, 5, dtype=torch.long))
    sheet = {
        "layers.embedded": [1, 5, 768],
        "layers.0.attention.queries": [1, 5, 12, 64],
        "layers.0.attention.keys": [1, 5, 12, 64],
        "layers.0.attention.values": [1, 5, 12, 64],
        "layers.0.attention.weights": [1, 12, 5, 5],
        "layers.0.attention.heads": [1, 5, 12, 64],
        "layers.0.attention": [1, 5, 768],
    }
    assert {name: list(table[name].shape) for name in sheet} == sheet
    assert table["layers.0.attention.weights"].axes == ("batch", "head", "query", "key")


@pytest.mark.parametrize("name", ["digits-vit", "resnet20", "bert-base", "llama-3-8b", "t5-small"])
def test_axes_and_shapes_agree_in_every_model(name):
    with FakeTensorMode():
        table = hw.trace(PUBLISHED[name].build(), *inputs_of(PUBLISHED[name]))
    sizes = {"batch": {1}}
    for row in table:
        assert len(row.axes) == len(row.shape), row
        for axis, size in zip(row.axes, row.shape, strict=True):
            sizes.setdefault(axis, set()).add(size)
    for axis in sizes.keys() & {"batch", "head", "kv_head", "d_head", "d_value", "d_model", "d_ff", "vocab", "class"}:
        assert len(sizes[axis]) == 1, f"{axis} has the sizes {sizes[axis]}"


def test_the_model_is_left_as_it_was():
    model = PUBLISHED["resnet20"].build().train()
    model.blocks[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hw.trace(model, torch.randn(2, 3, 32, 32))
    assert model.training
    assert not model.blocks[0].training
    assert model.blocks[1].training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not any(module._forward_hooks for module in model.modules())


def test_weights_are_listed_without_being_computed(monkeypatch):
    attention = hw.layers.MultiHeadAttention(d_model=6, n_heads=2)
    computed = []

    def watched(q, k, **keywords):
        computed.append(attention_weights(q, k, **keywords))
        return computed[-1]

    monkeypatch.setattr("headwork.layers.attention.attention_weights", watched)
    x = torch.randn(1, 3, 6)
    assert hw.trace(attention, x, x)["weights"].shape == (1, 2, 3, 3)
    assert all(isinstance(weights, FakeTensor) for weights in computed)


def test_alike_layers_are_folded_in_print_and_listed_in_full():
    table = hw.trace(PUBLISHED["digits-vit"].build(), torch.zeros(1, 1, 8, 8))
    assert "layers.1 ... layers.3" in str(table)
    assert "layers.2.attention.weights" not in str(table)
    assert "layers.2.attention.weights" in table.text(fold=False)
    assert len(table.text(fold=False).splitlines()) == len(table)


def test_two_layers_fold_into_one_line():
    rows = (hw.inspection.Row("layers.0", ("a",), (2,)), hw.inspection.Row("layers.1", ("a",), (2,)))
    assert str(hw.inspection.Trace(rows)).splitlines()[1].split() == ["layers.1", "like", "layers.0"]


def test_layers_that_differ_are_not_folded():
    text = str(hw.trace(PUBLISHED["resnet20"].build(), torch.zeros(1, 3, 32, 32)))
    assert "blocks.3" in text
    assert "like" not in text


def test_an_unknown_name_names_the_nearest():
    table = hw.trace(PUBLISHED["digits-vit"].build(), torch.zeros(1, 1, 8, 8))
    with pytest.raises(KeyError, match="did you mean 'pooling'"):
        table["poling"]


def test_a_module_without_named_axes_is_listed_by_names_and_shapes():
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
    assert str(hw.trace(network, torch.zeros(2, 3))).splitlines() == [
        "0       [2, 5]",
        "1       [2, 5]",
        "output  [2, 5]",
    ]
    assert repr(hw.trace(network, torch.zeros(2, 3))) == str(hw.trace(network, torch.zeros(2, 3)))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("look", [hw.trace, hw.cost])
def test_without_inputs_the_error_says_to_pass_them(look):
    message = f"{look.__name__} runs the model: pass its inputs, as in hw.{look.__name__}(model, x)."
    for model in (nn.Linear(3, 5), PUBLISHED["digits-vit"].build()):
        with pytest.raises(TypeError, match=re.escape(f"{message} {type(model).__name__} is missing")):
            look(model)
    with pytest.raises(TypeError, match="model must be a module, got 'digits-vit'"):
        look("digits-vit")


def test_source_and_target_have_rows_of_their_own():
    with FakeTensorMode():
        source, target = torch.zeros(1, 7, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long)
        table = hw.trace(PUBLISHED["t5-small"].build(), source, target)
    assert table["encoder_layers.embedded"].shape == (1, 7, 512)
    assert table["decoder_layers.embedded"].shape == (1, 3, 512)
    assert next(iter(table)).name == "encoder_layers.embedded"


def test_the_axes_can_be_left_out():
    table = hw.trace(PUBLISHED["digits-vit"].build(), torch.zeros(1, 1, 8, 8))
    assert "batch" in table.text()
    assert "batch" not in table.text(axes=False)
    assert "[1, 4, 17, 17]" in table.text(axes=False)


def test_a_notebook_shows_the_folded_table():
    config = published_with_three_layers()
    rows = cells_of(hw.trace(config.build(), torch.zeros(1, 5, dtype=torch.long))._repr_html_())
    assert ["layers.0.attention.weights", "[1, 12, 5, 5]", "batch head query key"] in rows
    assert ["layers.1 ... layers.2", "", "like layers.0"] in rows


def published_with_three_layers():
    return dataclasses.replace(hw.models.published("gpt2"), n_layers=3, vocab=31)
