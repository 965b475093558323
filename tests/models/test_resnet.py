"""The residual network, against the formula written out."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headwork.models import ResNetConfig

from .small_models import ready, resnet


def by_hand(state: dict[str, Tensor], image: Tensor, strides: list[int]) -> Tensor:
    """relu(f(x) + shortcut(x)), block by block, from the names of the weights alone."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance, weight, bias = (
            state[f"{name}.{part}"][None, :, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * weight + bias

    x = norm(F.conv2d(image, state["conv.weight"], padding=1), "norm").relu()
    for i, stride in enumerate(strides):
        block = f"blocks.{i}"
        y = norm(F.conv2d(x, state[f"{block}.conv1.weight"], stride=stride, padding=1), f"{block}.norm1").relu()
        y = norm(F.conv2d(y, state[f"{block}.conv2.weight"], padding=1), f"{block}.norm2")
        if f"{block}.shortcut.0.weight" in state:
            x = norm(F.conv2d(x, state[f"{block}.shortcut.0.weight"], stride=stride), f"{block}.shortcut.1")
        x = (y + x).relu()
    return x.mean((2, 3)) @ state["classifier.weight"].T + state["classifier.bias"]


def test_logits_are_those_of_the_formula() -> None:
    model, image = ready(resnet()), torch.randn(4, 2, 13, 11, dtype=torch.float64)
    expected = by_hand(model.state_dict(), image, [1, 1, 2, 1, 2, 1])
    torch.testing.assert_close(model(image), expected, rtol=1e-10, atol=1e-10)


def test_a_stage_as_wide_as_the_last_still_halves_the_image() -> None:
    model, image = ready(resnet(widths=(5, 5), n_blocks=1)), torch.randn(4, 2, 13, 11, dtype=torch.float64)
    expected = by_hand(model.state_dict(), image, [1, 2])
    torch.testing.assert_close(model(image), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("size", "halves"), [((32, 24), [(32, 24), (16, 12), (8, 6)]), ((13, 11), [(13, 11), (7, 6), (4, 3)])], ids=str
)
def test_each_stage_halves_the_image_and_widens_it(size: tuple[int, int], halves: list[tuple[int, int]]) -> None:
    model, shapes = resnet(), []
    for block in model.blocks:
        block.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    model(torch.randn(4, 2, *size))
    expected = [(4, width, *half) for width, half in zip((3, 5, 11), halves, strict=True)]
    assert shapes == [shape for shape in expected for _ in range(2)]


def test_the_default_is_resnet_20() -> None:
    """6 n + 2 layers with weights, not counting the shortcuts: 1 + 18 convolutions and a linear map."""
    config = ResNetConfig(n_classes=10)
    assert 1 + 2 * config.n_blocks * len(config.widths) + 1 == 20


def test_one_pixel_is_enough() -> None:
    assert resnet().eval()(torch.randn(4, 2, 1, 1)).shape == (4, 7)


def test_no_image_gives_no_logits() -> None:
    assert resnet().eval()(torch.randn(0, 2, 13, 11)).shape == (0, 7)


def test_it_trains() -> None:
    model, image, label = resnet(), torch.randn(11, 2, 13, 7), torch.arange(11) % 7
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = F.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("shape", [(4, 3, 13, 11), (2, 13, 11)], ids=str)
def test_an_image_of_another_shape_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"image must have the axes \(batch, channel.*, row, column\)"):
        resnet()(torch.randn(shape))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("widths", [(), (16, 0)])
def test_widths_that_name_no_channels_are_an_error(widths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="widths"):
        ResNetConfig(n_classes=10, widths=widths)


def test_the_channels_of_a_pixel_lie_together() -> None:
    """Whatever the image has: so convolutions are faster on a CPU."""
    features = resnet().hidden(torch.randn(4, 2, 13, 11))
    assert features.is_contiguous(memory_format=torch.channels_last)
    assert not features.is_contiguous()
