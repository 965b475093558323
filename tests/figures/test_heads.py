"""Drawings of heads: they are made, and they show the right numbers."""

import pytest
import torch

from headwork.figures import draw_absolute_codes, draw_gaussian_limit, draw_position_heads, heads
from headwork.layers import AbsolutePositionalEmbedding, GaussianAttention


@pytest.fixture
def layer():
    made = GaussianAttention(6, 7, precision="diagonal")
    made.set_centres(torch.randn(7, 2), 0.1 + torch.rand(7, 2))
    return made


def test_each_head_has_its_panel_with_contours(layer, tmp_path):
    figure = draw_position_heads(layer, (9, 11))
    figure.savefig(tmp_path / "heads.png")
    drawn = [ax for ax in figure.axes if ax.get_title().startswith("head")]
    assert len(drawn) == 7
    shown = torch.tensor(drawn[3].images[0].get_array().data)
    torch.testing.assert_close(shown, layer.table((9, 11))[3, 4, 5].detach())
    assert all(len(ax.collections) == 2 for ax in drawn)


def test_contours_hold_half_and_nine_tenths(layer):
    seen = layer.table((9, 11))[0, 4, 5].detach()
    order = seen.flatten().sort(descending=True).values
    for share in heads.CONTOURS:
        n = int((order.cumsum(0) < share).sum())
        assert order[: n + 1].sum() >= share > order[:n].sum()


def test_the_limit_is_drawn_with_the_target_going_to_one(tmp_path):
    figure = draw_gaussian_limit(centre=(1, 0))
    figure.savefig(tmp_path / "limit.png")
    (target,) = [line for line in figure.axes[0].lines if line.get_label() == "the target shift"]
    assert target.get_ydata()[-1] > 0.999
    others = [line.get_ydata()[-1] for line in figure.axes[0].lines if line.get_linewidth() == 0.7]
    assert max(others) < 1e-3


def test_absolute_codes_are_drawn(tmp_path):
    figure = draw_absolute_codes(AbsolutePositionalEmbedding((4, 6), 16).table, n_shown=3)
    figure.savefig(tmp_path / "codes.png")
    assert figure.axes[0].get_title() == "position (0, 0)"
