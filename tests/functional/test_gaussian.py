"""Gaussian attention along rows and columns against the table of all pairs and a loop written from the equation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from headwork.functional.gaussian import (
    SlowPathWarning,
    axis_weights,
    check_gaussian,
    full_precision,
    gaussian_attention,
    gaussian_attention_by_table,
    gaussian_axis_weights,
    gaussian_weights,
    mix_along_axes,
    mix_along_axes_plainly,
    mix_heads_along_axes,
)

GRIDS = [(5, 7), (7, 5), (1, 7), (5, 1), (1, 1), (3, 3)]
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=str)
every_precision = pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
separable = pytest.mark.parametrize("precision", ["isotropic", "diagonal"])
the_table_is_meant = pytest.mark.filterwarnings("ignore::headwork.functional.gaussian.SlowPathWarning")

PLACES = {
    "every pixel": None,
    "strided": ([0.0, 2.0, 4.0], [0.0, 3.0, 6.0]),
    "between pixels": ([0.5, 1.25], [0.1, 2.75, 5.5]),
    "outside of the grid": ([-3.0, -1.5, 8.0], [-2.0, 11.0]),
    "in any order, twice": ([3.0, 0.0, 3.0], [6.0, 6.0, 1.0, 0.0]),
    "one": ([2.0], [3.0]),
}
TINY = torch.finfo(torch.float32).tiny
every_place = pytest.mark.parametrize("places", PLACES.values(), ids=PLACES.keys())


def random_alpha(precision: str, n_heads: int) -> Tensor:
    match precision:
        case "isotropic":
            return 0.1 + torch.rand(n_heads, dtype=torch.float64)
        case "diagonal":
            return 0.1 + torch.rand(n_heads, 2, dtype=torch.float64)
        case _:
            root = torch.randn(n_heads, 2, 2, dtype=torch.float64)
            return root @ root.mT + 0.1 * torch.eye(2, dtype=torch.float64)


def random_heads(precision: str = "isotropic", n_heads: int = 3) -> tuple[Tensor, Tensor]:
    return 2 * torch.randn(n_heads, 2, dtype=torch.float64), random_alpha(precision, n_heads)


def random_image(grid: tuple[int, int] = (5, 7), batch: int = 2, d: int = 11) -> Tensor:
    return torch.randn(batch, *grid, d, dtype=torch.float64)


def as_places(places: tuple[list[float], list[float]] | None) -> tuple[Tensor, Tensor] | None:
    return None if places is None else tuple(torch.tensor(p, dtype=torch.float64) for p in places)


def by_loops(x: Tensor, centre: Tensor, alpha: Tensor, places: tuple[list[float], list[float]] | None) -> np.ndarray:
    """The equation, one pair of a query and a key at a time."""
    image, looks_at, precision = x.numpy(), centre.numpy(), alpha.numpy()
    batch, n_rows, n_columns, d = image.shape
    query_rows, query_columns = places or (range(n_rows), range(n_columns))
    seen = np.zeros((batch, len(looks_at), len(query_rows), len(query_columns), d))
    for h, i, j in np.ndindex(*seen.shape[1:4]):
        query = np.array([query_rows[i], query_columns[j]], dtype=float)
        scores = np.zeros((n_rows, n_columns))
        for key in np.ndindex(n_rows, n_columns):
            miss = np.array(key) - query - looks_at[h]
            if precision.ndim == 1:
                scores[key] = -precision[h] * (miss[0] ** 2 + miss[1] ** 2)
            elif precision.ndim == 2:
                scores[key] = -(precision[h, 0] * miss[0] ** 2 + precision[h, 1] * miss[1] ** 2)
            else:
                scores[key] = -miss @ precision[h] @ miss
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        for b in range(batch):
            seen[b, h, i, j] = sum(weights[key] * image[b][key] for key in np.ndindex(n_rows, n_columns))
    return seen


# the equation


@the_table_is_meant
@every_precision
@every_place
def test_equals_a_loop_over_the_pairs(precision, places):
    x, (centre, alpha) = random_image(d=2), random_heads(precision)
    expected = by_loops(x, centre, alpha, places)
    for path in (gaussian_attention, gaussian_attention_by_table):
        np.testing.assert_allclose(path(x, centre, alpha, as_places(places)), expected, rtol=0, atol=1e-10)


@the_table_is_meant
@every_precision
@every_grid
def test_equals_a_loop_over_the_pairs_on_every_grid(precision, grid):
    x, (centre, alpha) = random_image(grid, d=2), random_heads(precision)
    np.testing.assert_allclose(
        gaussian_attention(x, centre, alpha), by_loops(x, centre, alpha, None), rtol=0, atol=1e-10
    )


@separable
@every_grid
@pytest.mark.parametrize("n_heads", [1, 3])
def test_equals_the_table_in_value_and_gradient(assert_same, precision, grid, n_heads):
    assert_same(gaussian_attention, gaussian_attention_by_table, random_image(grid), *random_heads(precision, n_heads))


@separable
@every_place
def test_equals_the_table_in_value_and_gradient_from_any_place(assert_same, precision, places):
    queries = as_places(places)
    assert_same(
        lambda *heads: gaussian_attention(*heads, queries),
        lambda *heads: gaussian_attention_by_table(*heads, queries),
        random_image(),
        *random_heads(precision),
    )


@separable
def test_equals_the_table_in_the_gradient_of_the_places(assert_same, precision):
    x, (centre, alpha) = random_image(), random_heads(precision)
    assert_same(
        lambda rows, columns: gaussian_attention(x, centre, alpha, (rows, columns)),
        lambda rows, columns: gaussian_attention_by_table(x, centre, alpha, (rows, columns)),
        *as_places(PLACES["between pixels"]),
    )


@the_table_is_meant
@every_precision
def test_gradients_are_those_of_finite_differences(precision):
    x = random_image((2, 3), batch=2, d=2).requires_grad_()
    centre, alpha = (t.requires_grad_() for t in random_heads(precision, 2))
    if precision == "full":  # differences of an entry alone would leave the symmetric matrices
        torch.autograd.gradcheck(lambda x, centre: gaussian_attention(x, centre, alpha.detach()), (x, centre))
    else:
        torch.autograd.gradcheck(gaussian_attention, (x, centre, alpha))


STRIDED = {
    "every other": lambda: torch.randn(4, 10, 14, 22, dtype=torch.float64)[::2, ::2, ::2, ::2],
    "channels first": lambda: torch.randn(2, 11, 5, 7, dtype=torch.float64).movedim(1, -1),
    "columns first": lambda: torch.randn(2, 7, 5, 11, dtype=torch.float64).transpose(1, 2),
    "one image many times": lambda: torch.randn(1, 5, 7, 11, dtype=torch.float64).expand(2, -1, -1, -1),
    "one token many times": lambda: torch.randn(2, 1, 1, 11, dtype=torch.float64).expand(-1, 5, 7, -1),
}


@separable
@pytest.mark.parametrize("strided", STRIDED.values(), ids=STRIDED.keys())
def test_the_order_in_memory_does_not_matter(precision, strided):
    x, (centre, alpha) = strided(), random_heads(precision)
    assert not x.is_contiguous()
    results = []
    for image in (x.detach().requires_grad_(), x.contiguous().requires_grad_()):
        value = gaussian_attention(image, centre, alpha)
        gradient = torch.autograd.grad(value.square().sum(), image)[0]
        results.append((value, gradient))
    for strided_result, contiguous_result in zip(*results, strict=True):
        torch.testing.assert_close(strided_result, contiguous_result, rtol=1e-12, atol=1e-12)


def test_a_gradient_that_is_not_contiguous_is_the_same():
    x, (centre, alpha) = random_image(), random_heads()
    leaves = [t.requires_grad_() for t in (x, centre, alpha)]
    upstream = torch.randn(11, 7, 5, 3, 2, dtype=torch.float64).permute(4, 3, 2, 1, 0)
    value = gaussian_attention(*leaves)
    strided = torch.autograd.grad(value, leaves, upstream, retain_graph=True)
    for gradient, expected in zip(strided, torch.autograd.grad(value, leaves, upstream.contiguous()), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


@the_table_is_meant
@every_precision
def test_no_image_gives_no_output_and_no_gradient(precision):
    leaves = [t.requires_grad_() for t in (random_image(batch=0), *random_heads(precision))]
    seen = gaussian_attention(*leaves)
    assert seen.shape == (0, 3, 5, 7, 11)
    for gradient in torch.autograd.grad(seen.sum(), leaves):
        assert not gradient.any()


@separable
@pytest.mark.parametrize("empty", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_no_query_gives_no_output_as_by_the_table(precision, empty):
    x, (centre, alpha) = random_image(), random_heads(precision)
    places = torch.zeros(empty[0], dtype=torch.float64), torch.zeros(empty[1], dtype=torch.float64)
    assert gaussian_attention_by_table(x, centre, alpha, places).shape == (2, 3, *empty, 11)
    assert gaussian_attention(x, centre, alpha, places).shape == (2, 3, *empty, 11)


# which path


def test_a_full_precision_says_that_it_builds_the_table():
    x, heads = random_image(), random_heads("full")
    with pytest.warns(SlowPathWarning, match="table of all pairs"):
        seen = gaussian_attention(x, *heads)
    assert torch.equal(seen, gaussian_attention_by_table(x, *heads))


@separable
def test_other_precisions_say_nothing(precision, recwarn):
    gaussian_attention(random_image(), *random_heads(precision))
    assert not recwarn


def peak_bytes(run, *inputs: Tensor) -> int:
    """The most that is allocated at once beyond what was there, forward and backward."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        run(*leaves).sum().backward()
    now = peak = 0
    for event in sorted(
        (e for e in watched.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    ):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


@separable
def test_no_table_of_all_pairs_is_ever_built(precision):
    n_heads = 3
    x, (centre, alpha) = torch.randn(1, 32, 32, 5), (t.float() for t in random_heads(precision, n_heads))
    table = n_heads * 32**4 * x.element_size()
    assert peak_bytes(gaussian_attention_by_table, x, centre, alpha) > table
    assert peak_bytes(gaussian_attention, x, centre, alpha) < table / 10


# weights


@every_precision
@every_place
def test_weights_of_a_query_sum_to_one(precision, places):
    weights = gaussian_weights((5, 7), *random_heads(precision), as_places(places))
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum((-2, -1)), torch.ones(weights.shape[:3], dtype=torch.float64))


@separable
@every_place
def test_weights_are_the_outer_product_of_those_along_the_axes(precision, places):
    centre, alpha = random_heads(precision)
    rows, columns = gaussian_axis_weights((5, 7), centre, alpha, as_places(places))
    for weights in (rows, columns):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2], dtype=torch.float64))
    table = gaussian_weights((5, 7), centre, alpha, as_places(places))
    torch.testing.assert_close(torch.einsum("hri,hcj->hrcij", rows, columns), table, rtol=1e-12, atol=1e-12)


@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 7),
    row=st.floats(-9, 9),
    column=st.floats(-9, 9),
    alpha=st.floats(1e-3, 1e3),
)
@settings(max_examples=50, deadline=None)
def test_weights_stay_a_distribution_however_far_and_sharp(rows, columns, row, column, alpha):
    heads = torch.tensor([[row, column]], dtype=torch.float64), torch.tensor([alpha], dtype=torch.float64)
    table = gaussian_weights((rows, columns), *heads)
    torch.testing.assert_close(table.sum((-2, -1)), torch.ones(1, rows, columns, dtype=torch.float64))
    products = torch.einsum("hri,hcj->hrcij", *gaussian_axis_weights((rows, columns), *heads))
    torch.testing.assert_close(products, table, rtol=1e-9, atol=1e-12)


def test_the_centre_is_where_the_head_looks():
    """From pixel (2, 3) a head with centre (1, -2) looks at pixel (3, 1): key - query = centre, rows first."""
    weights = gaussian_weights((5, 7), torch.tensor([[1.0, -2.0]]), torch.tensor([50.0]))[0, 2, 3]
    expected = torch.zeros(5, 7)
    expected[3, 1] = 1
    torch.testing.assert_close(weights, expected)
    x = torch.arange(35.0).reshape(1, 5, 7, 1)
    assert gaussian_attention(x, torch.tensor([[1.0, -2.0]]), torch.tensor([50.0]))[0, 0, 2, 3, 0] == x[0, 3, 1, 0]


def test_the_first_alpha_of_two_is_for_the_rows():
    rows, columns = gaussian_axis_weights((5, 7), torch.zeros(1, 2), torch.tensor([[50.0, 1e-6]]))
    torch.testing.assert_close(rows[0], torch.eye(5))
    torch.testing.assert_close(columns[0], torch.full((7, 7), 1 / 7), atol=1e-4, rtol=0)


@pytest.mark.parametrize("shift", [(0, 0), (1, -2), (-4, 3), (9, -9), (0, 7)], ids=str)
def test_a_sharp_head_picks_the_nearest_pixel_and_past_the_border_the_border(shift):
    x, alpha = random_image(), torch.tensor([1e3], dtype=torch.float64)
    seen = gaussian_attention(x, torch.tensor([shift], dtype=torch.float64), alpha)[:, 0]
    for i, j in np.ndindex(5, 7):
        row, column = np.clip(i + shift[0], 0, 4), np.clip(j + shift[1], 0, 6)
        torch.testing.assert_close(seen[:, i, j], x[:, row, column], rtol=1e-12, atol=1e-12)


def test_a_head_without_sharpness_sees_the_mean():
    x = random_image()
    seen = gaussian_attention(x, torch.ones(1, 2, dtype=torch.float64), torch.tensor([1e-14], dtype=torch.float64))
    torch.testing.assert_close(seen, x.mean((1, 2))[:, None, None, None].expand_as(seen), rtol=0, atol=1e-11)


@pytest.mark.parametrize("sheet", [False, True], ids=["key - query", "query - key, as on the sheet"])
def test_scores_of_equation_7_give_the_same_softmax(sheet):
    """v . r = -alpha (|delta|^2 - 2 delta . Delta): equation (12) with c = -|Delta|^2, which softmax does not see."""
    centre, alpha = random_heads()
    sign = -1 if sheet else 1
    v = -alpha[:, None] * torch.cat([torch.ones(3, 1), -2 * sign * centre], dim=1)
    pixels = torch.cartesian_prod(torch.arange(5.0), torch.arange(7.0)).double()
    delta = sign * (pixels[None, :] - pixels[:, None])
    r = torch.cat([delta.square().sum(-1, keepdim=True), delta], dim=-1)
    scores = torch.einsum("hp,qkp->hqk", v, r)
    table = gaussian_weights((5, 7), centre, alpha).reshape(3, 35, 35)
    torch.testing.assert_close(scores.softmax(-1), table, rtol=1e-10, atol=1e-10)
    with_c = -alpha[:, None, None] * (
        (delta[None] - sign * centre[:, None, None]).square().sum(-1) - centre.square().sum(-1)[:, None, None]
    )
    torch.testing.assert_close(scores, with_c, rtol=1e-10, atol=1e-10)


def test_axis_weights_are_a_softmax_of_squared_misses():
    query, key, centre, alpha = (torch.randn(n, dtype=torch.float64) for n in (3, 5, 2, 2))
    weights = axis_weights(query, key, centre, alpha.exp())
    for h, i in np.ndindex(2, 3):
        expected = (-alpha[h].exp() * (key - query[i] - centre[h]) ** 2).softmax(0)
        torch.testing.assert_close(weights[h, i], expected, rtol=1e-12, atol=1e-12)


@every_precision
def test_any_precision_is_a_matrix(precision):
    alpha = random_alpha(precision, 3)
    for h, matrix in enumerate(full_precision(alpha)):
        expected = {1: lambda a: a * torch.eye(2), 2: torch.diag, 3: lambda a: a}[alpha.ndim](alpha[h])
        torch.testing.assert_close(matrix, expected.to(matrix))


# mixing along the axes, whatever the weights


def random_mix() -> tuple[Tensor, Tensor, Tensor]:
    """2 images of 3 x 5 pixels, 7 heads, 11 x 13 queries: no two axes have the same length."""
    shapes = ((2, 3, 5, 17), (7, 11, 3), (7, 13, 5))
    return tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


def mix_by_table(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return torch.einsum("hirjc,brcd->bhijd", torch.einsum("hir,hjc->hirjc", rows, columns), x)


@pytest.mark.parametrize("mix", [mix_along_axes, mix_along_axes_plainly])
def test_mixing_equals_the_table_in_value_and_gradient(assert_same, mix):
    assert_same(mix, mix_by_table, *random_mix())


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1, 1), (2, 1, 3, 1, 5, 1, 1), (3, 2, 1, 1, 1, 1, 2)], ids=str)
def test_mixing_equals_the_table_at_the_smallest_sizes(assert_same, sizes):
    batch, row, column, d, head, i, j = sizes
    shapes = ((batch, row, column, d), (head, i, row), (head, j, column))
    assert_same(mix_along_axes, mix_by_table, *(torch.randn(*shape, dtype=torch.float64) for shape in shapes))


def test_mixing_passes_gradcheck():
    shapes = ((2, 2, 3, 2), (3, 2, 2), (3, 4, 3))
    inputs = tuple(torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    torch.autograd.gradcheck(mix_along_axes, inputs)


@pytest.mark.parametrize("wanted", range(3))
def test_one_gradient_may_be_wanted_alone(wanted):
    inputs = random_mix()
    inputs[wanted].requires_grad_()
    upstream = torch.randn(2, 7, 11, 13, 17, dtype=torch.float64)
    gradient, expected = (
        torch.autograd.grad(mix(*inputs), inputs[wanted], upstream)[0] for mix in (mix_along_axes, mix_by_table)
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mix", [mix_along_axes, mix_along_axes_plainly])
def test_transforms_give_the_same(mix):
    x, rows, columns = torch.randn(3, 2, 4, 5, 7), torch.rand(11, 4, 4), torch.rand(11, 5, 5)
    each = torch.vmap(lambda image: mix(image, rows, columns))(x)
    torch.testing.assert_close(each, torch.stack([mix_along_axes(image, rows, columns) for image in x]))
    for_rows = torch.func.grad(lambda rows: mix(x[0], rows, columns).square().sum())(rows)
    rows.requires_grad_()
    mix_along_axes(x[0], rows, columns).square().sum().backward()
    torch.testing.assert_close(for_rows, rows.grad)


# weights too small to count


def hundreds_away():
    """On 37 x 1 pixels a head of sharpness 1 has weights from 1 down to 1e-500."""
    return (37, 1), torch.tensor([[0.0, 0.0], [0.7, 0.0]]), torch.tensor([1.0, 0.06])


@pytest.mark.parametrize("path", ["rows", "table"])
def test_weights_below_the_smallest_normal_number_are_exactly_zero(path):
    grid, centre, alpha = hundreds_away()
    weights = gaussian_axis_weights(grid, centre, alpha)[0] if path == "rows" else gaussian_weights(grid, centre, alpha)
    exact = gaussian_axis_weights(grid, centre.double(), alpha.double())[0]
    assert ((exact > 0) & (exact < TINY)).any()
    assert not ((weights > 0) & (weights < TINY)).any()
    torch.testing.assert_close(weights.reshape(exact.shape).double(), exact, rtol=1e-5, atol=1e-37)


def test_both_paths_agree_where_weights_fade(assert_same):
    grid, centre, alpha = hundreds_away()
    x = torch.randn(2, *grid, 3, dtype=torch.float64)
    assert_same(gaussian_attention, gaussian_attention_by_table, x, centre.double(), alpha.double())


def test_mixing_heads_equals_the_table_in_value_and_gradient(assert_same):
    _, rows, columns = random_mix()
    v = torch.randn(2, 7, 3, 5, 17, dtype=torch.float64)
    assert_same(
        mix_heads_along_axes,
        lambda v, rows, columns: torch.einsum("hirjc,bhrcd->bhijd", torch.einsum("hir,hjc->hirjc", rows, columns), v),
        v,
        rows,
        columns,
    )


def test_mixing_heads_passes_gradcheck():
    shapes = ((2, 3, 2, 3, 2), (3, 2, 2), (3, 4, 3))
    inputs = tuple(torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    torch.autograd.gradcheck(mix_heads_along_axes, inputs)


def test_mixing_heads_that_share_an_image_is_mixing_the_image():
    x, rows, columns = random_mix()
    of_each = x[:, None].expand(-1, 7, -1, -1, -1)
    torch.testing.assert_close(mix_heads_along_axes(of_each, rows, columns), mix_along_axes(x, rows, columns))


def test_all_heads_of_a_pixel_lie_together():
    """So the linear map behind the heads needs no copy of them."""
    mixed = mix_along_axes(*random_mix())
    assert mixed.permute(0, 2, 3, 1, 4).is_contiguous()


# numbers of other widths


@pytest.mark.computes_in(torch.bfloat16)
def test_an_autocast_mixes_in_float32_and_rounds_once():
    inputs = [t.float().requires_grad_() for t in random_mix()]
    exact = mix_along_axes(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = mix_along_axes(*inputs)
    assert rounded.equal(exact.bfloat16())
    like = torch.randn_like(exact).bfloat16()
    of_exact, of_rounded = (torch.autograd.grad(mixed, inputs, like.to(mixed.dtype)) for mixed in (exact, rounded))
    torch.testing.assert_close(of_rounded, of_exact)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
@separable
def test_narrower_numbers_come_close(precision, dtype, atol):
    x, (centre, alpha) = random_image(), random_heads(precision)
    narrow = [t.to(dtype).requires_grad_() for t in (x, centre, alpha)]
    seen = gaussian_attention(*narrow)
    assert seen.dtype == dtype
    torch.testing.assert_close(seen.double(), gaussian_attention(x, centre, alpha), rtol=0, atol=atol)
    for gradient, leaf in zip(torch.autograd.grad(seen.sum(), narrow), narrow, strict=True):
        assert gradient.dtype == dtype
        assert gradient.shape == leaf.shape
        assert gradient.isfinite().all()


@the_table_is_meant
@pytest.mark.computes_in(torch.bfloat16)
def test_a_full_precision_may_be_of_bfloat16():
    x, (centre, alpha) = random_image(), random_heads("full")
    seen = gaussian_attention(x.bfloat16(), centre.bfloat16(), alpha.bfloat16())
    torch.testing.assert_close(seen.double(), gaussian_attention(x, centre, alpha), rtol=0, atol=0.15)


@pytest.mark.computes_in(torch.bfloat16)
def test_pixels_past_the_256th_have_places_of_their_own_in_bfloat16():
    """bfloat16 has no odd numbers beyond 256: places have to be finer than what is seen there."""
    x = torch.arange(300.0).remainder(7).reshape(1, 1, 300, 1).bfloat16()
    seen = gaussian_attention(x, torch.zeros(1, 2).bfloat16(), torch.tensor([50.0]).bfloat16())
    torch.testing.assert_close(seen[:, 0], x)


# bad input


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("call", [gaussian_attention, gaussian_attention_by_table])
def test_a_centre_that_is_nowhere_is_refused(call, number):
    centre, alpha = random_heads()
    centre[1, 0] = number
    with pytest.raises(ValueError, match=r"centre must be finite, got .*(nan|inf)"):
        call(random_image(), centre, alpha)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
@every_precision
@pytest.mark.parametrize("call", [gaussian_attention, gaussian_attention_by_table])
def test_a_precision_that_is_not_positive_is_refused(call, number, precision):
    centre, alpha = random_heads(precision)
    alpha[1] = number * torch.eye(2) if precision == "full" and number in (0, -1) else number
    with pytest.raises(ValueError, match=r"alpha must be positive( definite)? and finite"):
        call(random_image(), centre, alpha)


INDEFINITE = {
    "a saddle": [[1.0, 2.0], [2.0, 1.0]],
    "a valley without end": [[1.0, 1.0], [1.0, 1.0]],
    "a saddle above the diagonal": [[1.0, 100.0], [0.0, 1.0]],
    "a saddle below the diagonal": [[1.0, 0.0], [100.0, 1.0]],
    "a hill": [[-1.0, 0.0], [0.0, -1.0]],
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("matrix", INDEFINITE.values(), ids=INDEFINITE.keys())
def test_a_full_precision_that_is_not_positive_definite_is_refused(matrix):
    with pytest.raises(ValueError, match="alpha must be positive definite"):
        check_gaussian(torch.zeros(1, 2), torch.tensor([matrix]))


WRONG_SHAPES = {
    "no centre": (torch.zeros(0, 2), torch.ones(0)),
    "a scalar centre": (torch.tensor(1.0), torch.ones(1)),
    "one centre without its axis": (torch.zeros(2), torch.ones(2)),
    "three coordinates": (torch.zeros(3, 3), torch.ones(3)),
    "fewer alphas": (torch.zeros(3, 2), torch.ones(2)),
    "three alphas for each": (torch.zeros(3, 2), torch.ones(3, 3)),
    "one alpha for all": (torch.zeros(3, 2), torch.tensor(1.0)),
    "a matrix of three": (torch.zeros(3, 2), torch.eye(3).expand(3, 3, 3)),
    "a matrix of each kind": (torch.zeros(3, 2), torch.ones(3, 2, 2, 1)),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("centre", "alpha"), WRONG_SHAPES.values(), ids=WRONG_SHAPES.keys())
def test_heads_that_do_not_fit_together_are_refused(centre, alpha):
    with pytest.raises(ValueError, match=r"(centre|alpha) must have the axes .*got shape"):
        gaussian_attention(torch.randn(1, 5, 7, 3), centre, alpha)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("mix", [mix_along_axes, mix_along_axes_plainly])
def test_rows_given_as_columns_are_refused(mix):
    """3 x 5 pixels are as many as 5 x 3: nothing but the axes tells them apart."""
    x, rows, columns = random_mix()
    with pytest.raises((ValueError, RuntimeError)):
        mix(x, columns, rows)
