"""What claims measure with."""

import pytest
import torch
from torch import nn

from headwork import masks
from headwork.figures import outline, panels
from headwork.functional import scaled_dot_product_attention
from headwork.lab.measuring import best_times, influence, largest_difference, on_one_core


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


def test_time_is_that_of_the_work():
    small, large = torch.randn(64, 64), torch.randn(512, 512)
    seconds = best_times([lambda: small @ small, lambda: large @ large], rounds=3)
    assert 0 < seconds[0] < seconds[1]


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
