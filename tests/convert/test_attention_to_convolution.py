"""The nearest convolution of Gaussian heads: it comes back where it came from, and its bound holds at every pixel."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from headwork.convert import attention_from_convolution, convolution_from_attention
from headwork.convert.attention_to_convolution import weights_of_heads
from headwork.layers import GaussianAttention

# a full precision says that it builds the table
pytestmark = pytest.mark.filterwarnings("ignore::headwork.functional.gaussian.SlowPathWarning")

every_precision = pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
every_width = pytest.mark.parametrize("d_value", [None, 5])

PUBLISHED = [(3, (7, 5)), ((2, 4), (5, 11)), ((5, 3), (5, 3)), (4, (4, 4)), ((1, 3), (1, 7)), (1, (3, 2)), (1, (1, 1))]
every_size = pytest.mark.parametrize(("kernel", "grid"), PUBLISHED, ids=str)


def random_layer(precision: str = "isotropic", d_value: int | None = None, **options: object) -> GaussianAttention:
    layer = GaussianAttention(2, 3, d_value=d_value, d_out=7, precision=precision, **options).double()
    with torch.no_grad():
        layer.sharpness.add_(0.5 * torch.randn_like(layer.sharpness))
        for linear in (layer.value, layer.out):
            if linear is not None and linear.bias is not None:
                linear.bias.normal_()
    return layer


def sharp_layer(alpha: float, centres: list[tuple[float, float]]) -> GaussianAttention:
    layer = GaussianAttention(2, len(centres), d_out=5).double()
    layer.set_centres(torch.tensor(centres).double(), torch.full((len(centres),), alpha).double())
    return layer


def on_channels_first(layer: GaussianAttention, image: Tensor) -> Tensor:
    return layer(image.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def image_of(kind: str, grid: tuple[int, int]) -> Tensor:
    uniform = 2 * torch.rand(11, 2, *grid, dtype=torch.float64) - 1
    return {"uniform": uniform, "signs": uniform.sign(), "white": torch.ones_like(uniform)}[kind]


def worst_error(layer: GaussianAttention, conv: nn.Conv2d, grid: tuple[int, int]) -> float:
    """The largest difference at any pixel for any image in [-1, 1]: the difference is affine in the image."""
    image = torch.zeros(1, 2, *grid, dtype=torch.float64, requires_grad=True)
    difference = on_channels_first(layer, image) - conv(image)
    slopes = torch.stack([torch.autograd.grad(out, image, retain_graph=True)[0] for out in difference.flatten()])
    return (slopes.abs().flatten(1).sum(1) + difference.flatten().abs()).max().item()


# there and back


@pytest.mark.parametrize("kernel", [(3, 3), (1, 1), (5, 3), (2, 2), (4, 3), (2, 5)], ids=str)
@pytest.mark.parametrize("tolerance", [1e-4, 1e-10])
def test_a_convolution_comes_back(kernel, tolerance):
    conv = nn.Conv2d(2, 3, kernel, padding="same", padding_mode="replicate", dtype=torch.float64)
    heads = attention_from_convolution(conv, tolerance).attention
    middle = torch.tensor([(size - 1) // 2 for size in kernel], dtype=torch.float64)
    heads.set_centres(heads.centre - middle, heads.alpha)
    back, error_bound, single_pixel = convolution_from_attention(heads, kernel, grid=(7, 11))
    torch.testing.assert_close(back.weight, conv.weight, rtol=0, atol=tolerance)
    torch.testing.assert_close(back.bias, conv.bias)
    assert error_bound <= 2 * tolerance * 3  # the layer is off by the tolerance, and so is the kernel read from it
    assert (single_pixel > 1 - tolerance).all()
    image = image_of("uniform", (7, 11))
    torch.testing.assert_close(back(image), conv(image), rtol=0, atol=7 * tolerance)


def test_the_kernel_of_sharp_heads_is_their_blocks_where_they_look():
    centres = [(-1.0, 0.0), (0.0, 2.0), (1.0, -2.0)]
    layer = sharp_layer(60.0, centres)
    kernel = convolution_from_attention(layer, (3, 5), grid=(7, 11)).conv.weight
    expected = torch.zeros_like(kernel)
    for block, (row, column) in zip(layer.out.weight.split(2, dim=1), centres, strict=True):
        expected[:, :, int(row) + 1, int(column) + 2] = block
    torch.testing.assert_close(kernel, expected, rtol=0, atol=1e-10)


def test_heads_with_the_same_centre_add_up():
    layer = sharp_layer(60.0, [(0.0, 1.0), (0.0, 1.0)])
    kernel = convolution_from_attention(layer, 3, grid=(5, 7)).conv.weight
    first, second = layer.out.weight.split(2, dim=1)
    torch.testing.assert_close(kernel[:, :, 1, 2], first + second)


@pytest.mark.parametrize(("size", "shape"), [(3, (3, 3)), ((2, 5), (2, 5))], ids=str)
def test_the_convolution_has_replicate_padding_and_keeps_the_size(size, shape):
    conv = convolution_from_attention(random_layer(), size, grid=(7, 11)).conv
    assert conv.kernel_size == shape
    assert conv.padding_mode == "replicate"
    assert conv.weight.dtype == torch.float64
    assert conv(torch.zeros(1, 2, 7, 11, dtype=torch.float64)).shape == (1, 7, 7, 11)


def test_the_default_grid_does():
    conv, error_bound, single_pixel = convolution_from_attention(GaussianAttention(2, 3), 3)
    assert conv.weight.shape == (2, 2, 3, 3)
    assert error_bound > 0
    assert single_pixel.shape == (3,)


# the bound


@every_precision
@every_width
@every_size
@pytest.mark.parametrize("kind", ["uniform", "signs", "white"])
def test_no_output_differs_by_more_than_the_bound(precision, d_value, kernel, grid, kind):
    layer, image = random_layer(precision, d_value), image_of(kind, grid)
    conv, error_bound, _ = convolution_from_attention(layer, kernel, grid)
    error = (on_channels_first(layer, image) - conv(image)).abs().max()
    assert error <= error_bound + 1e-12


@every_precision
@every_width
@pytest.mark.parametrize(("kernel", "grid"), [(3, (5, 3)), ((2, 3), (3, 5)), (4, (4, 4))], ids=str)
def test_no_image_at_all_exceeds_the_bound_and_some_come_near(precision, d_value, kernel, grid):
    layer = random_layer(precision, d_value)
    conv, error_bound, _ = convolution_from_attention(layer, kernel, grid)
    assert error_bound / 20 < worst_error(layer, conv, grid) <= error_bound + 1e-12


def test_the_bound_is_reached_by_a_single_head():
    """With one head nothing cancels between heads."""
    layer = GaussianAttention(2, 1, d_out=3).double()
    conv, error_bound, _ = convolution_from_attention(layer, 3, (5, 7))
    assert worst_error(layer, conv, (5, 7)) == pytest.approx(error_bound, rel=1e-10)


@every_width
@pytest.mark.parametrize("bias", [True, False])
def test_a_black_image_gives_the_bias(d_value, bias):
    layer = random_layer(d_value=d_value, bias=bias)
    conv = convolution_from_attention(layer, 3, (5, 7)).conv
    black = torch.zeros(1, 2, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(on_channels_first(layer, black), conv(black), rtol=0, atol=1e-12)
    assert (conv.bias is not None) is bias


def test_sharper_heads_have_a_smaller_bound():
    centres = [(-1.0, 0.0), (0.0, 2.0), (1.0, -2.0), (0.0, 0.0)]
    layer = sharp_layer(1.0, centres)
    bounds = []
    for alpha in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        layer.set_centres(layer.centre, torch.full((4,), alpha).double())
        bounds.append(convolution_from_attention(layer, (3, 5), (7, 11)).error_bound)
    for duller, sharper in pairwise(bounds):
        assert sharper <= duller + 1e-14
    assert bounds[0] > 0.1
    assert bounds[-1] < 1e-12


def test_a_head_that_looks_out_of_the_window_is_counted_whole():
    """The convolution puts nothing where this head looks, so all its weight is misplaced."""
    layer = sharp_layer(60.0, [(0.0, 3.0)])
    conv, error_bound, _ = convolution_from_attention(layer, 3, (5, 11))
    torch.testing.assert_close(conv.weight, torch.zeros_like(conv.weight))
    assert error_bound == pytest.approx(layer.out.weight.abs().sum(1).max().item(), rel=1e-8)


def test_a_larger_kernel_sees_more_of_a_wide_head():
    layer = sharp_layer(0.3, [(0.0, 0.0)])
    inner = [convolution_from_attention(layer, size, (11, 13)).conv.weight.abs().sum().item() for size in (1, 3, 5, 7)]
    assert inner == sorted(inner)


def test_single_pixel_tells_sharp_heads_from_wide_ones():
    layer = GaussianAttention(2, 4)
    layer.set_centres(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.5, 0.0]]), torch.tensor([40.0, 1, 1e-3, 40]))
    single_pixel = convolution_from_attention(layer, 3, (11, 13)).single_pixel
    assert single_pixel[0] > 0.999
    assert 0.2 < single_pixel[1] < 0.5
    assert single_pixel[2] < 0.02
    assert single_pixel[3] == pytest.approx(0.5, abs=1e-4)  # halfway between two pixels


@every_width
def test_weights_of_heads_are_value_and_output_in_one(d_value):
    layer = random_layer(d_value=d_value)
    w, bias = weights_of_heads(layer)
    assert w.shape == (3, 7, 2)
    token = torch.randn(2, dtype=torch.float64)
    one_pixel = layer(token.reshape(1, 1, 1, 2)).flatten()  # every head sees the only pixel there is
    torch.testing.assert_close(w.sum(0) @ token + bias, one_pixel)


@pytest.mark.parametrize("precision", ["isotropic", "full"])
def test_the_layer_is_left_as_it_was_and_nothing_needs_its_gradient(precision):
    layer = random_layer(precision)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    result = convolution_from_attention(layer, 3, (5, 7))
    assert not result.single_pixel.requires_grad
    assert result.conv.weight.is_leaf
    with torch.no_grad():
        result.conv.weight.zero_()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


# bad input


@pytest.mark.parametrize("kernel", [0, -1, (0, 3), (3, 0)], ids=str)
def test_a_kernel_without_pixels_is_refused(kernel):
    with pytest.raises(ValueError, match=r"kernel_(rows|columns) must be 1 or more, got"):
        convolution_from_attention(random_layer(), kernel, (5, 7))


def test_bare_heads_have_no_kernel_size_of_their_own():
    with pytest.raises(ValueError, match="kernel_size must be given for bare Gaussian heads, got None"):
        convolution_from_attention(random_layer())


@pytest.mark.parametrize(("kernel", "grid"), [(6, (5, 7)), ((3, 8), (5, 7)), (3, (2, 7)), (33, (32, 32))], ids=str)
def test_a_kernel_larger_than_the_grid_is_refused(kernel, grid):
    with pytest.raises(ValueError, match=r"the grid must be as large as the kernel, got grid=.* and kernel="):
        convolution_from_attention(random_layer(), kernel, grid)


@pytest.mark.parametrize("grid", [(0, 7), (5, 0), (-1, 7)], ids=str)
def test_a_grid_without_pixels_is_refused(grid):
    with pytest.raises(ValueError, match=r"grid_(rows|columns) must be 1 or more, got"):
        convolution_from_attention(random_layer(), 1, grid)


def test_heads_that_are_nowhere_are_refused():
    layer = random_layer()
    with torch.no_grad():
        layer.centre[0, 0] = float("nan")
    with pytest.raises(ValueError, match="centre must be finite"):
        convolution_from_attention(layer, 3, (5, 7))
