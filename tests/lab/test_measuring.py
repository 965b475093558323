"""What claims measure with."""

import pytest
import torch
from torch import nn

from headwork import masks
from headwork.functional import scaled_dot_product_attention
from headwork.lab.claim import on_one_core
from headwork.lab.measuring import (
    best_times,
    density_of_ties,
    density_of_triple_ties,
    exists,
    influence,
    mean_over_ties,
    product_as_printed,
    shape_of,
)
from headwork.lab.plots import FLOOR, draw_rounding, on_log_axis, outline, panels
from headwork.lab.toolkit import ROUNDING, largest_difference


def test_influence_is_the_norm_of_each_block_of_the_jacobian():
    weight, x = torch.randn(3, 5, 7, 5), torch.randn(7, 5)  # out_token, d, token, d
    found = influence(lambda x: torch.einsum("odti,ti->od", weight, x), x)
    expected = torch.tensor([[weight[o, :, t].norm() for t in range(7)] for o in range(3)])
    torch.testing.assert_close(found, expected)


def test_influence_of_masked_attention_is_the_mask():
    x, visible = torch.randn(7, 5, dtype=torch.float64), masks.window(7, radius=1)
    found = influence(lambda x: scaled_dot_product_attention(x, x, x, visible=visible), x)
    assert (found > 0).equal(visible)


def test_influence_through_the_fused_kernel():
    layer, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(5, 6)
    assert influence(lambda x: layer(x[None], x[None], x[None], need_weights=False)[0][0], x).shape == (5, 5)


def test_shapes_that_would_broadcast_are_not_compared():
    with pytest.raises(ValueError, match=r"same shape, got \(2, 3\) and \(3,\)"):
        largest_difference(torch.zeros(2, 3), torch.zeros(3))
    assert largest_difference(torch.tensor([1.0]), torch.tensor([float("nan")])) != 0


def test_a_formula_exists_if_its_shapes_fit():
    a, b = torch.zeros(2, 3), torch.zeros(3, 5)
    assert exists(lambda: a @ b)
    assert not exists(lambda: b @ a)
    assert not exists(lambda: scaled_dot_product_attention(a, b, b))
    assert product_as_printed(a, b) == "2 x 3 times 3 x 5 exists"
    assert product_as_printed(b, a) == "3 x 5 times 2 x 3 does not exist"
    assert shape_of(a.numpy()) == "2 x 3"


def test_an_error_that_is_not_of_shapes_is_not_hidden():
    with pytest.raises(KeyError):
        exists(lambda: {}["missing"])


@pytest.mark.parametrize("values", [[0.0, 1e-20, 0.5], torch.tensor([0.0, 1e-20, 0.5], dtype=torch.float64)])
def test_zeros_are_drawn_at_the_floor_of_a_log_axis(values):
    assert on_log_axis(values).tolist() == [FLOOR, FLOOR, 0.5]
    assert on_log_axis(values, 0.1).tolist() == [0.1, 0.1, 0.5]


def test_the_line_of_rounding():
    _, (ax,) = panels()
    draw_rounding(ax)
    (line,) = ax.lines
    assert set(line.get_ydata()) == {ROUNDING}
    assert line.get_label() == "predicted: below"


def test_time_is_that_of_the_best_round(monkeypatch):
    now, work = [0], {"small": iter((5, 2, 3)), "large": iter((40, 50, 60))}
    monkeypatch.setattr("headwork.lab.measuring.time.thread_time", lambda: now[0])

    def do(what):
        now[0] += next(work[what])

    assert best_times([lambda: do("small"), lambda: do("large")], rounds=3) == [2, 40]


def test_the_number_of_threads_is_given_back():
    def fail() -> None:
        assert torch.get_num_threads() == 1
        raise KeyError

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.raises(KeyError), on_one_core():
        fail()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_an_outline_is_the_border_of_a_pattern():
    _, (ax,) = panels()
    outline(ax, masks.causal(3))
    segments = {tuple(map(tuple, segment.tolist())) for lines in ax.collections for segment in lines.get_segments()}
    assert segments == {
        ((0.5, -0.5), (0.5, 0.5)),
        ((0.5, 0.5), (1.5, 0.5)),
        ((1.5, 0.5), (1.5, 1.5)),
        ((1.5, 1.5), (2.5, 1.5)),
    }


@pytest.mark.parametrize("n", [2, 3, 20])
def test_a_mean_over_ties_has_the_term_of_a_third_score(n):
    """Against random scores; the first term alone is off by 10 standard errors or more if a third score can come."""

    def entropy(scores):
        return torch.special.entr(scores.softmax(-1)).sum(-1)

    torch.manual_seed(0)
    spread, n_draws = 25.0, 1_000_000 // n
    seen = entropy(spread * torch.randn(n_draws, n))
    error = (seen.std() / n_draws**0.5).item()
    assert seen.mean().item() == pytest.approx(mean_over_ties(entropy, n, spread), abs=5 * error)
    assert (density_of_triple_ties(n) == 0) == (n == 2)
    first = density_of_ties(n) * torch.pi**2 / 6 / spread
    assert (n == 2) == (abs(first - mean_over_ties(entropy, n, spread)) < 1e-6)
