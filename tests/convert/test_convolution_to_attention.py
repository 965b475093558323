"""Convolutions as attention, against nn.Conv2d at every pixel, and the bound that alpha comes from."""

import copy
import math

import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from headwork.convert import (
    ConvolutionAsAttention,
    attention_from_convolution,
    convolution_from_attention,
    sufficient_alpha,
)

MODES = ("zeros", "reflect", "replicate", "circular")

# torch itself warns that "same" with an even kernel copies the image
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def pixels(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return 2 * torch.rand(*shape, dtype=dtype) - 1


def smallest(kernel: int, dilation: int, padding: int | str, mode: str) -> int:
    """The fewest pixels along an axis on which the convolution is defined."""
    reach = dilation * (kernel - 1)
    before, after = (
        (0, 0) if padding == "valid" else (reach // 2, reach - reach // 2) if padding == "same" else (padding, padding)
    )
    at_least = {"reflect": after + 1, "circular": after}.get(mode, 1)
    return max(1, at_least, reach + 1 - before - after)


@st.composite
def layers_and_images(draw) -> tuple[nn.Conv2d, Tensor]:
    size = st.integers(1, 4)
    kernel, dilation, groups = (
        draw(st.tuples(size, size)),
        draw(st.tuples(size, size)),
        draw(st.sampled_from((1, 2, 3))),
    )
    mode = draw(st.sampled_from(MODES))
    padding = draw(
        st.one_of(
            st.sampled_from(("same", "valid")), st.integers(0, 3), st.tuples(st.integers(0, 3), st.integers(0, 3))
        )
    )
    stride = (1, 1) if padding == "same" else draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    conv = nn.Conv2d(
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 2)),
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=mode,
        dtype=torch.float64,
    )
    pads = padding if isinstance(padding, tuple) else (padding, padding)
    grid = [smallest(kernel[i], dilation[i], pads[i], mode) + draw(st.integers(0, 5)) for i in (0, 1)]
    return conv, pixels(draw(st.integers(1, 2)), conv.in_channels, *grid)


def assert_gives_what_the_convolution_gives(conv: nn.Conv2d, image: Tensor) -> None:
    exact = conv(image)
    by_attention = attention_from_convolution(conv, 1e-12)(image)
    assert by_attention.shape == exact.shape
    assert (by_attention - exact).abs().max() <= 1e-10
    narrow, image = copy.deepcopy(conv).float(), image.float()
    by_attention = attention_from_convolution(narrow, 1e-6)(image)
    assert by_attention.dtype == torch.float32
    assert (by_attention - narrow(image)).abs().max() <= 1e-5


@pytest.mark.slow
@given(layers_and_images())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_layers_agree_at_every_pixel(layer_and_image):
    assert_gives_what_the_convolution_gives(*layer_and_image)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 2, "padding": 1},
        {"kernel_size": 4, "padding": "same"},
        {"kernel_size": (2, 5), "padding": "same", "dilation": (3, 1)},
        {"kernel_size": (5, 3), "padding": (1, 2), "stride": (2, 3)},
        {"kernel_size": 3, "padding": "valid", "dilation": 2, "stride": 2},
        {"kernel_size": 3, "padding": 1, "stride": 2, "groups": 2, "bias": False},
        {"kernel_size": 1, "stride": 2},
        {"kernel_size": (1, 3), "padding": 0, "groups": 4},
        {"kernel_size": 3, "padding": 4},
    ],
    ids=str,
)
def test_every_kind_of_layer_agrees_at_every_pixel(mode, options):
    conv = nn.Conv2d(4, 8, **options, padding_mode=mode, dtype=torch.float64)
    assert_gives_what_the_convolution_gives(conv, pixels(2, 4, 11, 13))


@given(layers_and_images())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_gradients_to_the_image_agree(layer_and_image):
    conv, image = layer_and_image
    image.requires_grad_()
    expected = conv(image)
    upstream = pixels(*expected.shape)
    by_attention = attention_from_convolution(conv, 1e-12)(image)
    wanted = torch.autograd.grad(expected, image, upstream)[0]
    assert (torch.autograd.grad(by_attention, image, upstream)[0] - wanted).abs().max() <= 1e-9


def test_even_kernels_read_forward_as_the_convolution_does():
    """The kernel [0, 1] reads the next pixel, not the one before."""
    conv = nn.Conv2d(1, 1, (1, 2), bias=False)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2))
    row = torch.tensor([0.1, 0.3, 0.5, 0.7]).reshape(1, 1, 1, 4)
    torch.testing.assert_close(attention_from_convolution(conv)(row).flatten(), torch.tensor([0.3, 0.5, 0.7]))


def test_one_head_for_each_kernel_position_with_its_block_of_weights():
    conv = nn.Conv2d(3, 7, (2, 5), dilation=(3, 2))
    attention = attention_from_convolution(conv).attention
    assert attention.n_heads == 10
    blocks = attention.out.weight.reshape(7, 10, 3)
    for h, (i, j) in enumerate((i, j) for i in range(2) for j in range(5)):
        assert attention.centre[h].tolist() == [3 * i, 2 * j]
        assert torch.equal(blocks[:, h], conv.weight[:, :, i, j])
    assert torch.equal(attention.out.bias, conv.bias)


def test_groups_become_zeros_between_their_channels():
    conv = nn.Conv2d(6, 4, 3, groups=2)
    dense = attention_from_convolution(conv).attention.out.weight.reshape(4, 3, 3, 6).permute(0, 3, 1, 2)
    assert torch.equal(dense[:2, :3], conv.weight[:2])
    assert torch.equal(dense[2:, 3:], conv.weight[2:])
    assert not dense[:2, 3:].any()
    assert not dense[2:, :3].any()


def test_weights_are_copied_and_the_convolution_left_alone():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    before = copy.deepcopy(conv.state_dict())
    attention = attention_from_convolution(conv)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
    for name, value in conv.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_bias_appears_only_where_there_was_one():
    assert attention_from_convolution(nn.Conv2d(2, 3, 3, bias=False)).attention.out.bias is None
    assert attention_from_convolution(nn.Conv2d(2, 3, 3)).attention.out.bias is not None


def test_no_image_gives_no_output():
    conv = nn.Conv2d(2, 3, 3, padding=1, stride=2)
    assert attention_from_convolution(conv)(torch.zeros(0, 2, 5, 7)).shape == conv(torch.zeros(0, 2, 5, 7)).shape


def test_the_device_and_the_width_of_numbers_are_those_of_the_convolution():
    for parameter in attention_from_convolution(nn.Conv2d(2, 3, 3).double()).parameters():
        assert parameter.dtype == torch.float64


# bare heads


@pytest.mark.parametrize("kernel", [(3, 3), (2, 5), (4, 1)], ids=str)
def test_bare_gaussian_heads_compute_the_replicate_convolution(kernel):
    """Not one padded token: the heads of the layer, moved to the middle of the window, look past the border."""
    conv = nn.Conv2d(2, 3, kernel, padding="same", padding_mode="replicate", dtype=torch.float64)
    heads = attention_from_convolution(conv, 1e-12).attention
    middle = torch.tensor([(kernel[0] - 1) // 2, (kernel[1] - 1) // 2], dtype=torch.float64)
    heads.set_centres(heads.centre - middle, heads.alpha)
    image = pixels(2, 2, 5, 7)
    seen = heads(image.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    torch.testing.assert_close(seen, conv(image), rtol=0, atol=1e-10)


def test_the_replicate_convolution_pads_no_token():
    conv = nn.Conv2d(2, 3, 3, padding=1, padding_mode="replicate")
    tokens, attention = [], attention_from_convolution(conv)
    attention.attention.register_forward_pre_hook(lambda module, inputs: tokens.append(inputs[0].shape))
    attention(pixels(1, 2, 5, 7, dtype=torch.float32))
    assert tokens == [(1, 5, 7, 2)]


@pytest.mark.parametrize("mode", ["zeros", "reflect", "circular"])
def test_other_paddings_are_tokens(mode):
    conv = nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode=mode)
    tokens, attention = [], attention_from_convolution(conv)
    attention.attention.register_forward_pre_hook(lambda module, inputs: tokens.append(inputs[0].shape))
    attention(pixels(1, 2, 5, 7, dtype=torch.float32))
    assert tokens == [(1, 7, 11, 2)]


# the bound


def largest_error(conv: nn.Conv2d, attention: nn.Module, grid: tuple[int, int], channel: int = 0) -> float:
    """The most that one output can differ for any image in [-1, 1]: the difference is linear, so its L1 norm."""
    image = torch.zeros(1, conv.in_channels, *grid, dtype=torch.float64, requires_grad=True)
    difference = (attention(image) - conv(image))[0, channel]
    errors = []
    for output in (difference[0, 0], difference[difference.shape[0] // 2, difference.shape[1] // 2]):
        worst = torch.autograd.grad(output, image, retain_graph=True)[0].sign()
        errors.append((attention(worst) - conv(worst)).abs().max().item())
    return max(errors)


TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
BOUNDED = {
    "3 x 3": {"kernel_size": 3, "padding": 1},
    "1 x 1": {"kernel_size": 1},
    "even, replicate": {"kernel_size": (2, 4), "padding": "same", "padding_mode": "replicate"},
    "dilated, circular": {"kernel_size": 3, "padding": 2, "dilation": 2, "padding_mode": "circular"},
    "groups, strided, reflect": {"kernel_size": 3, "padding": 1, "groups": 3, "stride": 2, "padding_mode": "reflect"},
}


@pytest.mark.parametrize("tolerance", TOLERANCES)
@pytest.mark.parametrize("options", BOUNDED.values(), ids=BOUNDED.keys())
def test_no_image_is_off_by_more_than_the_tolerance_and_some_come_near(options, tolerance):
    conv = nn.Conv2d(3, 3, **options, dtype=torch.float64)
    channel = int(conv.weight.abs().sum((1, 2, 3)).argmax())
    error = largest_error(conv, attention_from_convolution(conv, tolerance), (7, 11), channel)
    assert tolerance / 50 < error <= tolerance


@pytest.mark.parametrize("tolerance", TOLERANCES[2:])
def test_the_bound_is_tight_for_a_single_tap(tolerance):
    """A checkerboard is the worst image: a little less sharp, and it would be off by more than the tolerance."""
    conv = nn.Conv2d(1, 1, 1, bias=False, dtype=torch.float64)
    error = largest_error(conv, attention_from_convolution(conv, tolerance), (7, 11))
    assert 0.98 * tolerance < error <= tolerance
    duller = ConvolutionAsAttention(conv, sufficient_alpha(conv.weight, tolerance) - 0.1)
    assert largest_error(conv, duller, (7, 11)) > tolerance


@pytest.mark.parametrize("options", BOUNDED.values(), ids=BOUNDED.keys())
def test_duller_heads_exceed_the_tolerance(options):
    conv = nn.Conv2d(3, 3, **options, dtype=torch.float64)
    duller = ConvolutionAsAttention(conv, sufficient_alpha(conv.weight, 1e-6) - 4)
    channel = int(conv.weight.abs().sum((1, 2, 3)).argmax())
    assert largest_error(conv, duller, (7, 11), channel) > 1e-6


@given(layers_and_images(), st.sampled_from(TOLERANCES), st.booleans())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_layers_keep_every_tolerance(layer_and_image, tolerance, extreme):
    conv, image = layer_and_image
    image = image.sign() if extreme else image
    error = (attention_from_convolution(conv, tolerance)(image) - conv(image)).abs().max()
    assert error <= tolerance + 1e-14


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e3])
def test_the_tolerance_is_kept_whatever_the_size_of_the_weights(scale):
    conv = nn.Conv2d(2, 3, 3, padding=1, dtype=torch.float64)
    with torch.no_grad():
        conv.weight.mul_(scale)
    assert largest_error(conv, attention_from_convolution(conv, 1e-4), (5, 7)) <= 1e-4


def test_a_kernel_of_zeros_becomes_heads_that_pass_nothing_on():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    nn.init.zeros_(conv.weight)
    image = pixels(1, 2, 5, 7, dtype=torch.float32)
    torch.testing.assert_close(attention_from_convolution(conv)(image), conv(image))


@given(st.floats(1e-12, 0.99), st.integers(0, 1000))
@example(1e-6, 0)
@settings(max_examples=50, deadline=None)
def test_alpha_is_the_formula_of_the_largest_output(tolerance, seed):
    weight = torch.randn(3, 2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    largest = max(sum(abs(w) for w in out.flatten().tolist()) for out in weight)
    assert sufficient_alpha(weight, tolerance) == pytest.approx(math.log(1 + 8 * largest / tolerance), rel=1e-10)


def test_heads_are_as_sharp_as_the_formula_says():
    conv = nn.Conv2d(2, 3, 3, dtype=torch.float64)
    alpha = attention_from_convolution(conv, 1e-5).attention.alpha
    torch.testing.assert_close(alpha, torch.full_like(alpha, sufficient_alpha(conv.weight, 1e-5)))


def test_alpha_grows_as_the_tolerance_shrinks():
    weight = torch.randn(3, 2, 5, 7)
    alphas = [sufficient_alpha(weight, tolerance) for tolerance in TOLERANCES]
    assert alphas == sorted(alphas)
    assert alphas[0] < alphas[-1]


# bad input


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "module",
    [nn.Conv1d(2, 3, 3), nn.Conv3d(2, 3, 3), nn.ConvTranspose2d(2, 3, 3), nn.Linear(2, 3)],
    ids=lambda module: type(module).__name__,
)
def test_what_is_no_convolution_over_two_dimensions_is_refused(module):
    with pytest.raises(TypeError, match=f"conv must be an nn.Conv2d.*got {type(module).__name__}"):
        attention_from_convolution(module)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1.0, 2.0, float("nan"), float("inf")])
def test_a_tolerance_outside_of_0_to_1_is_refused(tolerance):
    with pytest.raises(ValueError, match=r"tolerance must lie in \(0, 1\), got"):
        attention_from_convolution(nn.Conv2d(2, 3, 3), tolerance)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(number):
    conv = nn.Conv2d(2, 3, 3)
    with torch.no_grad():
        conv.weight[1, 0, 2, 1] = number
    with pytest.raises(ValueError, match="weights of conv must be finite"):
        attention_from_convolution(conv)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("grid", "axis"), [((5, 11), "rows"), ((11, 4), "columns")])
def test_an_image_smaller_than_the_kernel_is_refused(mode, grid, axis):
    attention = attention_from_convolution(nn.Conv2d(2, 3, 3, dilation=(4, 3), padding=1, padding_mode=mode))
    with pytest.raises(ValueError, match=rf"as large as the kernel, \d+ {axis}, got {min(grid) + 2}"):
        attention(torch.zeros(1, 2, *grid))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("shape", [(2, 5, 7), (1, 1, 2, 5, 7)], ids=str)
def test_an_image_without_its_four_axes_is_refused(shape):
    with pytest.raises(ValueError, match=r"image must have the axes \(batch, channel, row, column\), got shape"):
        attention_from_convolution(nn.Conv2d(2, 3, 3))(torch.zeros(shape))


@pytest.mark.usefixtures("as_users_run_it")
def test_an_image_with_other_channels_is_refused():
    with pytest.raises(ValueError, match="must have the axes"):
        attention_from_convolution(nn.Conv2d(2, 3, 3))(torch.zeros(1, 5, 7, 11))


def test_says_what_it_is():
    shown = repr(attention_from_convolution(nn.Conv2d(2, 3, 3, stride=2, padding=1, padding_mode="circular")))
    assert "stride=(2, 2), padding=(1, 1, 1, 1), padding_mode=circular" in shown


# there and back


def dense(conv: nn.Conv2d) -> Tensor:
    """The kernel without groups: each block on its own channels, zeros elsewhere."""
    blocks = conv.weight.detach().split(conv.out_channels // conv.groups)
    channels = torch.eye(conv.groups).to(conv.weight)
    return torch.cat([torch.kron(channels[g].reshape(1, -1, 1, 1), block) for g, block in enumerate(blocks)])


@given(layers_and_images())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_convolution_comes_back(layer_and_image):
    conv, image = layer_and_image
    grid = max(image.shape[2], 13), max(image.shape[3], 13)
    back, error_bound, single_pixel = convolution_from_attention(attention_from_convolution(conv, 1e-12), grid=grid)
    assert (back.kernel_size, back.stride, back.dilation) == (conv.kernel_size, conv.stride, conv.dilation)
    torch.testing.assert_close(back.weight, dense(conv), rtol=0, atol=1e-12)
    assert (back.bias is None) is (conv.bias is None)
    torch.testing.assert_close(back(image), conv(image), rtol=0, atol=1e-10)
    assert error_bound < 1e-10
    assert (single_pixel > 1 - 1e-10).all()


@given(layers_and_images(), st.floats(0.3, 3.0))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_heads_that_moved_are_within_the_bound_of_their_convolution(layer_and_image, alpha):
    """As after some training: between pixels and not sharp, with every stride, dilation and padding."""
    conv, image = layer_and_image
    attention = ConvolutionAsAttention(conv, alpha)
    with torch.no_grad():
        attention.attention.centre.add_(torch.randn_like(attention.attention.centre) / 3)
    grid = image.shape[2], image.shape[3]
    try:
        back, error_bound, _ = convolution_from_attention(attention, grid=grid)
    except ValueError as error:
        assume("the grid must be as large as the kernel" not in str(error))
        raise
    assert (attention(image.sign()) - back(image.sign())).abs().max() <= error_bound + 1e-12


@pytest.mark.parametrize("kernel", [3, (2, 3)], ids=str)
def test_the_kernel_of_a_convolution_is_its_own(kernel):
    attention = attention_from_convolution(nn.Conv2d(2, 3, kernel, padding=1))
    for same in (None, kernel):
        assert convolution_from_attention(attention, same, (5, 7)).conv.kernel_size == attention.kernel_size
    for other in (2, 5, (3, 2)):
        with pytest.raises(
            ValueError, match=r"kernel_size must be that of the convolution the layer was made from, \("
        ):
            convolution_from_attention(attention, other, (5, 7))


def test_a_grid_smaller_than_a_kernel_that_pads_no_token_is_refused():
    attention = attention_from_convolution(nn.Conv2d(2, 3, 5, padding=2, padding_mode="replicate"))
    with pytest.raises(
        ValueError, match=r"the grid must be as large as the kernel, got grid=\(4, 7\) and kernel=\(5, 5\)"
    ):
        convolution_from_attention(attention, grid=(4, 7))


@pytest.mark.parametrize("mode", ["zeros", "reflect", "circular"])
def test_padding_is_counted_as_the_tokens_it_is(mode):
    padded, bare = (nn.Conv2d(2, 3, 3, padding=p, padding_mode=mode, dtype=torch.float64) for p in ((2, 1), 0))
    bare.load_state_dict(padded.state_dict())
    bounds = [
        convolution_from_attention(ConvolutionAsAttention(conv, 1.0), grid=grid).error_bound
        for conv, grid in ((padded, (5, 7)), (bare, (9, 9)))
    ]
    assert bounds[0] == bounds[1] > 0.1
