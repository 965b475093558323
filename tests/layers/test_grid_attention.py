"""Learned shifts by position, by query and position, and with content, each against a loop over pairs of pixels."""

import itertools

import pytest
import torch

import headwork as hw
from headwork.layers import ContentShiftAttention, QueryShiftAttention, ShiftAttention

BATCH, GRID, N_HEADS, D_MODEL = 2, (3, 5), 7, 14
D_HEAD = D_MODEL // N_HEADS
PIXELS = list(itertools.product(range(GRID[0]), range(GRID[1])))


def pair_scores(score):
    """Scores of all pairs from a function of (query pixel, key pixel)."""
    return torch.stack([torch.stack([score(q, k) for k in PIXELS], -1) for q in PIXELS], -2)


def row_of(q, k, axis):
    """The row of a table over the shifts query - key = -(n - 1) .. n - 1."""
    return q[axis] - k[axis] + GRID[axis] - 1


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("d_value", [None, 11])
def test_shift_attention_equals_a_loop(d_value):
    layer, x = ShiftAttention(D_MODEL, N_HEADS, GRID, d_value=d_value), torch.randn(BATCH, *GRID, D_MODEL)
    scores = pair_scores(lambda q, k: layer.row_scores[:, row_of(q, k, 0)] + layer.column_scores[:, row_of(q, k, 1)])
    tokens = x.flatten(1, 2)
    values = tokens[:, None].expand(-1, N_HEADS, -1, -1)
    if layer.value is not None:
        values = layer.value(tokens).unflatten(-1, (N_HEADS, -1)).transpose(1, 2)
    heads = (scores.softmax(-1) @ values).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x), layer.out(heads).unflatten(1, GRID), rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", [QueryShiftAttention, ContentShiftAttention])
def test_query_and_content_equal_a_loop_in_value_and_gradient(kind):
    layer, x = kind(D_MODEL, N_HEADS, GRID), torch.randn(BATCH, *GRID, D_MODEL, requires_grad=True)
    tokens = x.flatten(1, 2)

    def heads_of(t):
        return t.unflatten(-1, (N_HEADS, -1)).transpose(1, 2)

    q, v = heads_of(layer.query(tokens)), heads_of(layer.value(tokens))
    place = {pixel: i for i, pixel in enumerate(PIXELS)}
    scores = pair_scores(
        lambda a, b: (
            q[:, :, place[a]] * (layer.row_codes[:, row_of(a, b, 0)] + layer.column_codes[:, row_of(a, b, 1)])
        ).sum(-1)
    )
    if kind is ContentShiftAttention:
        scores = scores + q @ heads_of(layer.key(tokens)).mT
    heads = ((D_HEAD**-0.5 * scores).softmax(-1) @ v).transpose(1, 2).flatten(2)
    expected = layer.out(heads).unflatten(1, GRID)
    seen = layer(x)
    torch.testing.assert_close(seen, expected, rtol=0, atol=1e-10)
    parameters = [x, layer.row_codes, layer.column_codes, layer.query.weight]
    weight = torch.randn_like(seen)
    for ours, theirs in zip(
        torch.autograd.grad(seen, parameters, weight), torch.autograd.grad(expected, parameters, weight), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [ShiftAttention, QueryShiftAttention, ContentShiftAttention])
def test_looking_changes_nothing_and_rows_sum_to_one(kind):
    layer, x = kind(D_MODEL, N_HEADS, GRID), torch.randn(BATCH, *GRID, D_MODEL)
    alone = layer(x)
    with hw.record(layer) as seen:
        watched = layer(x)
    assert torch.equal(alone, watched)
    weights = seen["weights"]
    total = weights.sum((-2, -1)) if kind is ShiftAttention else weights.sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_query_weights_separate_for_each_query_but_not_for_all_at_once():
    """Each query has a row factor and a column factor of its own, so nothing can be mixed once for many queries."""
    layer = QueryShiftAttention(D_MODEL, N_HEADS, GRID)
    with hw.record(layer) as seen:
        layer(torch.randn(BATCH, *GRID, D_MODEL))
    table = seen["weights"].unflatten(3, GRID)
    rows, columns = table.sum(4), table.sum(3)
    torch.testing.assert_close(table, rows[..., :, None] * columns[..., None, :])
    by_query = rows.unflatten(2, GRID)
    assert (by_query[:, :, 0, 0] - by_query[:, :, 0, 1]).abs().max() > 0.1  # two queries of one row


def test_a_smaller_grid_uses_the_shifts_it_has():
    layer = ShiftAttention(D_MODEL, N_HEADS, GRID)
    rows, columns = layer.axis_weights((2, 3))
    assert rows.shape == (N_HEADS, 2, 2)
    middle = GRID[0] - 1
    expected = layer.row_scores[:, [middle, middle - 1]].softmax(-1)
    torch.testing.assert_close(rows[:, 0], expected)
    assert columns.shape == (N_HEADS, 3, 3)


def test_what_one_pixel_sees_is_its_part_of_the_table():
    layer = ShiftAttention(D_MODEL, N_HEADS, GRID)
    torch.testing.assert_close(layer.seen_from(GRID, (2, 1)), layer.table(GRID)[:, 2, 1])


@pytest.mark.usefixtures("as_users_run_it")
def test_wrong_grids_are_refused():
    with pytest.raises(ValueError, match=r"the grid must fit into \(3, 5\)"):
        ShiftAttention(D_MODEL, N_HEADS, GRID)(torch.randn(1, 4, 5, D_MODEL))
    with pytest.raises(ValueError, match=r"x must have the axes .* = \(3, 5, 14\)"):
        QueryShiftAttention(D_MODEL, N_HEADS, GRID)(torch.randn(1, 4, 5, D_MODEL))
    with pytest.raises(ValueError, match="n_heads must divide d_model"):
        QueryShiftAttention(D_MODEL, 5, GRID)
