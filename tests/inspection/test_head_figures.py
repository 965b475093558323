"""Drawings of heads: they are made, and they show the right numbers."""

import pytest
import torch
from PIL import Image
from torch import nn

from headwork.inspection import head_figures
from headwork.layers import AbsolutePositionalEmbedding, GaussianAttention


@pytest.fixture
def layer():
    made = GaussianAttention(6, 7, precision="diagonal")
    made.place_heads(torch.randn(7, 2), 0.1 + torch.rand(7, 2))
    return made


def test_each_head_has_its_panel_with_contours(layer, tmp_path):
    figure = head_figures.draw_heads(layer, (9, 11))
    figure.savefig(tmp_path / "heads.png")
    drawn = [ax for ax in figure.axes if ax.get_title().startswith("head")]
    assert len(drawn) == 7
    shown = torch.tensor(drawn[3].images[0].get_array().data)
    torch.testing.assert_close(shown, layer.table((9, 11))[3, 4, 5].detach())
    assert all(len(ax.collections) == 2 for ax in drawn)


def test_contours_hold_half_and_nine_tenths(layer):
    seen = layer.table((9, 11))[0, 4, 5].detach()
    order = seen.flatten().sort(descending=True).values
    for share in head_figures.CONTOURS:
        n = int((order.cumsum(0) < share).sum())
        assert order[: n + 1].sum() >= share > order[:n].sum()


def test_the_limit_is_drawn_with_the_target_going_to_one(tmp_path):
    figure = head_figures.draw_limit(centre=(1, 0))
    figure.savefig(tmp_path / "limit.png")
    (target,) = [line for line in figure.axes[0].lines if line.get_label() == "the target shift"]
    assert target.get_ydata()[-1] > 0.999
    others = [line.get_ydata()[-1] for line in figure.axes[0].lines if line.get_linewidth() == 0.7]
    assert max(others) < 1e-3


def test_centres_stand_where_the_heads_look(layer, tmp_path):
    figure = head_figures.draw_centres(nn.Sequential(layer), title="now")
    figure.savefig(tmp_path / "centres.png")
    points = [line.get_xydata()[0].tolist() for line in figure.axes[0].lines if line.get_marker() == "."]
    torch.testing.assert_close(torch.tensor(points).flip(1).float(), layer.centre.detach())
    circles = [patch.center for patch in figure.axes[0].patches]
    torch.testing.assert_close(torch.tensor(circles).flip(1).float(), layer.centre.detach())


@pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
def test_half_of_the_weight_is_inside_the_circle(precision):
    """For a round head on a fine grid."""
    alpha = {
        "isotropic": torch.tensor([0.01]),
        "diagonal": torch.full((1, 2), 0.01),
        "full": 0.01 * torch.eye(2)[None],
    }[precision]
    radius = head_figures._half_radius(alpha).item()
    place = torch.arange(-80, 81).float()
    square = place[:, None] ** 2 + place**2
    weights = torch.exp(-0.01 * square)
    assert weights[square.sqrt() <= radius].sum() / weights.sum() == pytest.approx(0.5, abs=0.02)


def test_the_animation_has_a_frame_for_each_epoch(layer, tmp_path):
    history = []
    for _ in range(3):
        history.append(head_figures.snapshot_centres(layer))
        with torch.no_grad():
            layer.centre.add_(0.5)
    path = tmp_path / "new" / "centres.gif"
    head_figures.animate_centres(history, path)
    with Image.open(path) as animation:
        assert animation.n_frames == 3
    moved = history[-1][0][1] - history[0][0][1]
    torch.testing.assert_close(moved, torch.ones(7, 2))


def test_absolute_codes_are_drawn(tmp_path):
    figure = head_figures.draw_absolute_codes(AbsolutePositionalEmbedding((4, 6), 16).table, n_shown=3)
    figure.savefig(tmp_path / "codes.png")
    assert figure.axes[0].get_title() == "seen from (0, 0)"


def test_a_model_without_gaussian_heads_is_refused(tmp_path):
    with pytest.raises(ValueError, match="model must have Gaussian heads, got Linear without any"):
        head_figures.draw_centres(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="history must hold at least one epoch"):
        head_figures.animate_centres([], tmp_path / "x.gif")
