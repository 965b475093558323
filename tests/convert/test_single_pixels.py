"""Heads of single pixels: what each sees, gathered pixel by pixel."""

import pytest
import torch
from torch import Tensor, nn

from headwork.convert import to_single_pixels
from headwork.layers import GaussianAttention

pytestmark = pytest.mark.filterwarnings("ignore::headwork.functional.gaussian.SlowPathWarning")

CENTRES = [(0.3, -1.4), (-2.2, 0.6), (5.4, 0.1)]
NEAREST = [(0, -1), (-2, 1), (5, 0)]


def between_pixels(precision: str) -> GaussianAttention:
    layer = GaussianAttention(2, len(CENTRES), d_out=3, precision=precision).double()
    layer.set_centres(torch.tensor(CENTRES).double(), layer.alpha.detach())
    return layer


def gathered(layer: GaussianAttention, image: Tensor) -> Tensor:
    """The pixel that each head looks at from each query; past the border, the border."""
    rows, columns = image.shape[1:3]
    seen = torch.empty(*image.shape[:3], len(NEAREST), image.shape[3], dtype=image.dtype)
    for row in range(rows):
        for column in range(columns):
            for head, (down, right) in enumerate(NEAREST):
                there = min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1)
                seen[:, row, column, head] = image[:, there[0], there[1]]
    return layer.out(seen.flatten(3))


@pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
def test_each_head_sees_its_nearest_pixel(precision: str) -> None:
    layer, image = between_pixels(precision), torch.randn(2, 4, 6, 2, dtype=torch.float64)
    torch.testing.assert_close(to_single_pixels(layer)(image), gathered(layer, image))


def test_the_model_itself_stays_as_it_was() -> None:
    layer = between_pixels("isotropic")
    to_single_pixels(nn.Sequential(layer))
    assert layer.centre.tolist() == torch.tensor(CENTRES).double().tolist()
    assert layer.alpha.tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_once_more_changes_nothing() -> None:
    once = to_single_pixels(between_pixels("isotropic"))
    twice = to_single_pixels(once)
    assert all(torch.equal(value, twice.state_dict()[name]) for name, value in once.state_dict().items())


def test_a_model_without_gaussian_heads() -> None:
    with pytest.raises(ValueError, match="must have Gaussian heads, got Linear without any"):
        to_single_pixels(nn.Linear(1, 1))
