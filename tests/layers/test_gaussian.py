"""The layer of Gaussian heads: both widths and all precisions against the table; what can be seen and replaced."""

import json
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import headwork as hw
from headwork.functional import gaussian_weights
from headwork.functional.gaussian import SlowPathWarning
from headwork.layers import GaussianAttention

# a full precision says that it builds the table
pytestmark = pytest.mark.filterwarnings("ignore::headwork.functional.gaussian.SlowPathWarning")

PRECISIONS = ("isotropic", "diagonal", "full")
every_precision = pytest.mark.parametrize("precision", PRECISIONS)
every_width = pytest.mark.parametrize("d_value", [None, 5])

BATCH, ROWS, COLUMNS, D_MODEL, N_HEADS, D_OUT = 2, 5, 7, 11, 3, 13


def random_layer(precision: str = "isotropic", d_value: int | None = None, **options: object) -> GaussianAttention:
    layer = GaussianAttention(D_MODEL, N_HEADS, d_value=d_value, d_out=D_OUT, precision=precision, **options).double()
    with torch.no_grad():
        layer.sharpness.add_(0.5 * torch.randn_like(layer.sharpness))
        for linear in (layer.value, layer.out):
            if linear is not None and linear.bias is not None:
                linear.bias.normal_()
    return layer


def random_image(rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    return torch.randn(BATCH, rows, columns, D_MODEL, dtype=torch.float64)


def by_table(layer: GaussianAttention, x: Tensor, table: Tensor | None = None) -> Tensor:
    """Equation (11): the sum over heads of weights x W^(h), with the value projection inside W^(h) if there is one."""
    if table is None:
        table = gaussian_weights((x.shape[1], x.shape[2]), layer.centre, layer.alpha)
    total = torch.zeros((), dtype=x.dtype)
    for h, block in enumerate(layer.out.weight.chunk(N_HEADS, dim=1)):
        of_head = x
        if layer.value is not None:
            rows = slice(h * block.shape[1], (h + 1) * block.shape[1])
            of_head = x @ layer.value.weight[rows].T
            of_head = of_head if layer.value.bias is None else of_head + layer.value.bias[rows]
        total = total + torch.einsum("rcij,bijd,od->brco", table[h], of_head, block)
    return total if layer.out.bias is None else total + layer.out.bias


# what it computes


@every_precision
@every_width
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_sum_over_heads_of_the_table_in_value_and_gradient(precision, d_value, bias):
    layer, x = random_layer(precision, d_value, bias=bias), random_image().requires_grad_()
    value, expected = layer(x), by_table(layer, x)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    leaves, upstream = [x, *layer.parameters()], torch.randn_like(expected)
    gradients = torch.autograd.grad(value, leaves, upstream)
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected, leaves, upstream), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-10)


@every_precision
@every_width
def test_queries_may_stand_elsewhere(precision, d_value):
    layer, x = random_layer(precision, d_value), random_image()
    places = torch.tensor([0.0, 2.0, 4.0]).double(), torch.tensor([-1.0, 0.5, 3.0, 6.0, 9.0]).double()
    table = gaussian_weights((ROWS, COLUMNS), layer.centre, layer.alpha, places)
    torch.testing.assert_close(layer(x, places), by_table(layer, x, table), rtol=1e-10, atol=1e-10)
    every_other = layer(x, (torch.arange(0.0, ROWS, 2).double(), torch.arange(0.0, COLUMNS, 2).double()))
    torch.testing.assert_close(every_other, layer(x)[:, ::2, ::2], rtol=1e-10, atol=1e-10)


@every_precision
@every_width
def test_gradients_reach_every_parameter(precision, d_value):
    layer = random_layer(precision, d_value)
    layer(random_image()).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
        assert parameter.grad.isfinite().all(), name


@every_precision
def test_every_head_starts_with_alpha_one_and_a_place_of_its_own(precision):
    layer = GaussianAttention(D_MODEL, N_HEADS, precision=precision)
    expected = {"isotropic": torch.ones(3), "diagonal": torch.ones(3, 2), "full": torch.eye(2).expand(3, 2, 2)}
    torch.testing.assert_close(layer.alpha, expected[precision], rtol=0, atol=1e-5)
    assert len(layer.centre.unique(dim=0)) == N_HEADS


def test_the_width_of_the_output_is_that_of_the_input_unless_said():
    x = torch.randn(1, 2, 3, 5)
    assert GaussianAttention(5, 3)(x).shape == (1, 2, 3, 5)
    assert GaussianAttention(5, 3, d_value=2)(x).shape == (1, 2, 3, 5)
    assert GaussianAttention(5, 3, d_out=7)(x).shape == (1, 2, 3, 7)
    assert GaussianAttention(5, 3).out.weight.shape == (5, 15)
    assert GaussianAttention(5, 3, d_value=2).value.weight.shape == (6, 5)


@every_width
@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (5, 1)], ids=str)
def test_the_smallest_grids(d_value, grid):
    layer, x = random_layer(d_value=d_value), random_image(*grid)
    torch.testing.assert_close(layer(x), by_table(layer, x), rtol=1e-10, atol=1e-10)


@every_precision
@every_width
def test_no_image_gives_no_output(precision, d_value):
    assert random_layer(precision, d_value)(random_image()[:0]).shape == (0, ROWS, COLUMNS, D_OUT)


@every_precision
@every_width
@pytest.mark.parametrize("axis", [1, 2])
def test_a_shifted_image_gives_a_shifted_output_away_from_the_border(precision, d_value, axis):
    layer = GaussianAttention(D_MODEL, N_HEADS, d_value=d_value, precision=precision).double()
    sharp = {"isotropic": torch.full((3,), 9.0), "diagonal": torch.full((3, 2), 9.0), "full": 9 * torch.eye(2)}
    layer.set_centres(
        torch.tensor([[1.0, -1.0], [0.0, 1.0], [-1.0, 0.5]]).double(),
        sharp[precision].double().expand(layer.alpha.shape).contiguous(),
    )
    x = random_image(11, 13)
    before, after = layer(x)[:, 3:-4, 3:-4], layer(x.roll(1, axis))
    after = after[:, 4:-3, 3:-4] if axis == 1 else after[:, 3:-4, 4:-3]
    torch.testing.assert_close(after, before, rtol=0, atol=1e-9)
    assert not torch.allclose(layer(x.roll(1, axis))[:, 3:-4, 3:-4], before, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@every_precision
@every_width
def test_narrower_numbers_come_close(dtype, precision, d_value):
    layer, x = random_layer(precision, d_value), random_image()
    expected = layer(x)
    seen = layer.to(dtype)(x.to(dtype))
    assert seen.dtype == dtype
    torch.testing.assert_close(seen.double(), expected, rtol=0, atol=1e-4 if dtype == torch.float32 else 0.2)


@every_precision
@every_width
@pytest.mark.computes_in(torch.bfloat16)
def test_layers_in_a_row_run_under_autocast(precision, d_value):
    """The second layer is given bfloat16 by the first."""
    first, second = (GaussianAttention(5, 3, d_value=d_value, precision=precision) for _ in range(2))
    x = torch.randn(2, 5, 7, 5)
    with torch.autocast("cpu", torch.bfloat16):
        seen = second(first(x))
    torch.testing.assert_close(seen.float(), second(first(x)), rtol=0, atol=0.1)
    seen.float().sum().backward()


def test_a_full_precision_warns_and_the_others_do_not(recwarn):
    random_layer("isotropic")(random_image())
    random_layer("diagonal")(random_image())
    assert not recwarn
    with pytest.warns(SlowPathWarning):
        random_layer("full")(random_image())


# where the heads look, and how sharply


@every_precision
@pytest.mark.parametrize("sharpness", [-50.0, -1.0, 0.0, 1.0, 50.0])
def test_alpha_is_positive_whatever_the_parameter_is(precision, sharpness):
    layer = GaussianAttention(D_MODEL, N_HEADS, precision=precision)
    with torch.no_grad():
        layer.sharpness.fill_(sharpness)
    if precision == "full":
        assert (torch.linalg.eigvalsh(layer.alpha.double()) > 0).all()
    else:
        assert (layer.alpha > 0).all()
    assert layer(random_image().float()).isfinite().all()


@pytest.mark.parametrize("sharpness", [-200.0, 200.0])
@pytest.mark.parametrize("precision", ["isotropic", "diagonal"])
def test_alpha_stays_positive_and_finite_where_float32_ends(precision, sharpness):
    layer = GaussianAttention(D_MODEL, N_HEADS, precision=precision)
    with torch.no_grad():
        layer.sharpness.fill_(sharpness)
    assert (layer.alpha > 0).all()
    assert layer.alpha.isfinite().all()


def random_alpha(precision: str) -> Tensor:
    root = torch.randn(N_HEADS, 2, 2, dtype=torch.float64)
    full = root @ root.mT + torch.eye(2, dtype=torch.float64)
    return {"isotropic": full[:, 0, 0], "diagonal": full.diagonal(dim1=1, dim2=2).contiguous(), "full": full}[precision]


@every_precision
def test_heads_are_placed_as_said(precision):
    layer, centre, alpha = random_layer(precision), torch.randn(N_HEADS, 2).double(), random_alpha(precision)
    layer.set_centres(centre, alpha)
    assert torch.equal(layer.centre, centre)
    torch.testing.assert_close(layer.alpha, alpha, rtol=1e-12, atol=1e-12)
    assert layer.centre.requires_grad
    assert layer.sharpness.requires_grad
    table = gaussian_weights((ROWS, COLUMNS), centre, alpha)
    x = random_image()
    torch.testing.assert_close(layer(x), by_table(layer, x, table), rtol=1e-10, atol=1e-10)


def test_full_heads_in_float32_are_as_sharp_as_said():
    """0.5 was 0.5000014 while what keeps alpha positive definite was added a second time."""
    layer, alpha = GaussianAttention(D_MODEL, N_HEADS, precision="full"), 0.5 * torch.eye(2).repeat(N_HEADS, 1, 1)
    layer.set_centres(torch.zeros(N_HEADS, 2), alpha)
    torch.testing.assert_close(layer.alpha, alpha, rtol=0, atol=2e-7)


NOT_SO_SHARP = {
    "isotropic": torch.full((3,), 1e36),
    "diagonal": torch.tensor([[1.0, 1e-36]]).repeat(3, 1),
    "full": torch.diag_embed(torch.tensor([[1e6, 1e-3]])).repeat(3, 1, 1),
}


@pytest.mark.parametrize(("precision", "alpha"), NOT_SO_SHARP.items())
def test_a_sharpness_that_the_heads_cannot_have_is_refused(precision, alpha):
    layer = GaussianAttention(D_MODEL, N_HEADS, precision=precision)
    before = layer.sharpness.detach().clone()
    with pytest.raises(ValueError, match=f"alpha must be what {precision} heads in torch.float32 can have, got"):
        layer.set_centres(torch.zeros(N_HEADS, 2), alpha)
    assert torch.equal(layer.sharpness, before)


def test_a_placed_head_looks_there():
    """With the identity for `out`, a head with centre (1, -2) answers (2, 3) with what is at (3, 1)."""
    layer = GaussianAttention(D_MODEL, 1, bias=False).double()
    with torch.no_grad():
        layer.out.weight.copy_(torch.eye(D_MODEL))
    layer.set_centres(torch.tensor([[1.0, -2.0]]).double(), torch.tensor([60.0]).double())
    x = random_image()
    torch.testing.assert_close(layer(x)[:, 2, 3], x[:, 3, 1])


BAD_PLACES = {
    "alpha of another precision": (torch.zeros(3, 2), torch.ones(3, 2), r"alpha must have the shapes? .*\(3,\)"),
    "alpha zero": (torch.zeros(3, 2), torch.zeros(3), "alpha must be positive"),
    "alpha negative": (torch.zeros(3, 2), -torch.ones(3), "alpha must be positive"),
    "alpha infinite": (torch.zeros(3, 2), torch.full((3,), float("inf")), "alpha must be positive and finite"),
    "alpha NaN": (torch.zeros(3, 2), torch.full((3,), float("nan")), "alpha must be positive and finite"),
    "centre nowhere": (torch.full((3, 2), float("nan")), torch.ones(3), "centre must be finite"),
    "fewer alphas than centres": (torch.zeros(3, 2), torch.ones(2), "alpha must have the axes"),
    "fewer heads": (torch.zeros(2, 2), torch.ones(2), r"alpha must have the shapes? .*\(3,\)"),
    "one head for all": (torch.zeros(1, 2), torch.ones(1), r"alpha must have the shapes? .*\(3,\)"),
    "three coordinates": (torch.zeros(3, 3), torch.ones(3), "centre must have the axes"),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("centre", "alpha", "message"), BAD_PLACES.values(), ids=BAD_PLACES.keys())
def test_places_that_cannot_be_are_refused_and_change_nothing(centre, alpha, message):
    layer = GaussianAttention(D_MODEL, N_HEADS)
    before = layer.centre.detach().clone(), layer.sharpness.detach().clone()
    with pytest.raises(ValueError, match=message):
        layer.set_centres(centre, alpha)
    assert torch.equal(layer.centre, before[0])
    assert torch.equal(layer.sharpness, before[1])


# what can be seen and replaced


@every_precision
@every_width
def test_looking_at_the_weights_does_not_change_the_output(precision, d_value):
    layer, x, shown = random_layer(precision, d_value), random_image(), []
    expected = layer(x)
    handle = layer.weights.register_forward_hook(lambda module, inputs, output: shown.append(output))
    assert torch.equal(layer(x), expected)
    handle.remove()
    assert torch.equal(shown[0], gaussian_weights((ROWS, COLUMNS), layer.centre, layer.alpha))
    torch.testing.assert_close(shown[0].sum((-2, -1)), torch.ones(N_HEADS, ROWS, COLUMNS, dtype=torch.float64))
    with hw.record(layer) as seen:
        assert torch.equal(layer(x), expected)
    assert torch.equal(seen["weights"], shown[0])
    assert torch.equal(seen["output"], expected)


@every_width
def test_heads_are_recorded_before_the_output_projection(d_value):
    layer, x = random_layer(d_value=d_value), random_image()
    with hw.record(layer) as seen:
        out = layer(x)
    assert seen["heads"].shape == (BATCH, ROWS, COLUMNS, N_HEADS, d_value or D_MODEL)
    torch.testing.assert_close(layer.out(seen["heads"].flatten(3)), out)


@every_precision
def test_what_one_pixel_sees_is_its_part_of_the_table(precision):
    layer = random_layer(precision)
    torch.testing.assert_close(layer.seen_from((ROWS, COLUMNS), (3, 1)), layer.table((ROWS, COLUMNS))[:, 3, 1])


@every_precision
def test_recorded_weights_are_those_of_the_call_whatever_is_learnt_before_somebody_looks(precision):
    layer = random_layer(precision)
    expected = layer.table((ROWS, COLUMNS)).detach()
    with hw.record(layer) as seen:
        layer(random_image())
    with torch.no_grad():
        layer.centre.add_(1)
        layer.sharpness.add_(1)
    assert torch.equal(seen["weights"], expected)


def test_recorded_weights_are_those_of_the_queries():
    layer = random_layer()
    places = torch.tensor([0.0, 2.0]).double(), torch.tensor([1.0, 4.0, 9.0]).double()
    with hw.record(layer) as seen:
        layer(random_image(), places)
    assert torch.equal(seen["weights"], gaussian_weights((ROWS, COLUMNS), layer.centre, layer.alpha, places))


@every_precision
@every_width
@pytest.mark.parametrize("in_place", [False, True])
def test_a_replaced_table_of_weights_is_used(precision, d_value, in_place):
    layer, x = random_layer(precision, d_value), random_image()
    other = torch.rand(N_HEADS, ROWS, COLUMNS, ROWS, COLUMNS, dtype=torch.float64)

    def replace(module: object, inputs: object, output: Tensor) -> Tensor | None:
        if not in_place:
            return other
        with torch.no_grad():
            output.copy_(other)
        return None

    layer.weights.register_forward_hook(replace)
    torch.testing.assert_close(layer(x), by_table(layer, x, other), rtol=1e-10, atol=1e-10)


def test_weights_nobody_looks_at_are_not_computed(monkeypatch):
    def never(*args: object) -> Tensor:
        raise AssertionError("the table was built")

    monkeypatch.setattr("headwork.layers.gaussian.gaussian_weights", never)
    for d_value in (None, 5):
        layer = random_layer(d_value=d_value)
        layer(random_image())
        layer.weights.register_forward_hook(lambda module, inputs, output: None)
        with pytest.raises(AssertionError, match="the table was built"):
            layer(random_image())


def test_says_by_which_path_it_computes():
    assert "rows, then columns" in repr(random_layer("diagonal"))
    assert "the table of all pairs" in repr(random_layer("full"))


# without numbers


@every_precision
@every_width
def test_a_fake_image_gives_a_fake_output(precision, d_value):
    with FakeTensorMode():
        layer = GaussianAttention(D_MODEL, N_HEADS, d_value=d_value, d_out=D_OUT, precision=precision)
        seen = layer(torch.randn(BATCH, ROWS, COLUMNS, D_MODEL))
    assert seen.shape == (BATCH, ROWS, COLUMNS, D_OUT)


def test_the_cost_is_that_of_two_small_products_and_the_output():
    layer = GaussianAttention(D_MODEL, N_HEADS, d_out=D_OUT)
    n = BATCH * N_HEADS * ROWS * COLUMNS * D_MODEL
    assert hw.cost(layer, random_image().float()).flops == 2 * n * (ROWS + COLUMNS + D_OUT)
    wide = GaussianAttention(D_MODEL, N_HEADS, d_out=D_OUT, d_value=5)
    n = BATCH * N_HEADS * ROWS * COLUMNS * 5
    assert hw.cost(wide, random_image().float()).flops == 2 * n * (D_MODEL + ROWS + COLUMNS + D_OUT)


SCRIPT = """
import json
import torch
from headwork.layers import GaussianAttention

torch.manual_seed(0)
torch.set_num_threads(1)
errors = {}
for d_value, precision in ((None, "isotropic"), (3, "diagonal")):
    layer, x = GaussianAttention(5, 2, d_value=d_value, precision=precision), torch.randn(2, 3, 7, 5)
    try:
        seen = torch.compile(layer, backend="eager", fullgraph=True)(x)
        torch.testing.assert_close(seen, layer(x), rtol=0, atol=1e-6)
        seen.sum().backward()
    except Exception as error:
        errors[f"{precision}, d_value={d_value}"] = str(error)[:200]
print(json.dumps(errors))
"""


@pytest.mark.slow
def test_compiles_into_one_graph_with_the_same_result():
    """In a process of its own: the compiler cannot read functions that the shape checks of the test run wrap."""
    child = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    assert json.loads(child.stdout) == {}


# bad input


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "shape", [(5, 7, 11), (2, 5, 7, 5), (2, 35, 11), (2, 0, 7, 11), (2, 5, 0, 11), (1, 2, 5, 7, 11)], ids=str
)
def test_an_image_that_does_not_fit_is_refused(shape):
    with pytest.raises(ValueError, match=r"x must have the axes \(batch, row, column, 11\), got shape"):
        GaussianAttention(D_MODEL, N_HEADS)(torch.zeros(shape))


@every_precision
@every_width
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_heads_that_are_nowhere_are_refused(precision, d_value, number):
    layer = random_layer(precision, d_value)
    with torch.no_grad():
        layer.centre[1, 1] = number
    with pytest.raises(ValueError, match="centre must be finite"):
        layer(random_image())


@pytest.mark.parametrize("name", ["d_model", "n_heads", "d_value", "d_out"])
def test_widths_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
        GaussianAttention(**{"d_model": 5, "n_heads": 3, name: 0})


@pytest.mark.usefixtures("as_users_run_it")
def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision must be one of isotropic, diagonal, full, got 'round'"):
        GaussianAttention(5, 3, precision="round")
