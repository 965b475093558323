"""Drawings of centres: every head stands where it looks, and half of its weight is inside its outline."""

import json
import math

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image, ImageChops
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from headwork import choices
from headwork.figures import animate_centres, centres, draw_centres, log_heads
from headwork.functional.gaussian import full_precision
from headwork.inspection import half_radius, snapshot_centres
from headwork.layers import GaussianAttention
from headwork.models import GaussianImageEncoder, GaussianImageEncoderConfig


def heads(precision: str = "diagonal") -> GaussianAttention:
    layer = GaussianAttention(6, 7, precision=precision)
    with torch.no_grad():
        layer.sharpness.add_(0.5 * torch.randn_like(layer.sharpness))
    return layer


def moved(layer: GaussianAttention, n_epochs: int) -> list:
    history = []
    for _ in range(n_epochs):
        history.append(snapshot_centres(layer))
        with torch.no_grad():
            layer.centre.add_(0.5)
    return history


def test_centres_stand_where_the_heads_look(tmp_path):
    layer = heads()
    figure = draw_centres(nn.Sequential(layer), title="now")
    figure.savefig(tmp_path / "centres.png")
    (ax,) = figure.axes
    points = [line.get_xydata()[0].tolist() for line in ax.lines if line.get_marker() == "."]
    torch.testing.assert_close(torch.tensor(points).flip(1).float(), layer.centre.detach())
    numbers = {text.get_text(): text.xy for text in ax.texts}
    for head, centre in enumerate(layer.centre.tolist()):
        assert numbers[str(head)] == (centre[1], centre[0])
    assert ax.get_ylim()[0] > 0 > ax.get_ylim()[1]  # rows grow downwards, as in an image


@pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
def test_outlines_run_where_the_exponent_is_ln_2(precision):
    layer = heads(precision)
    (ax,) = draw_centres(layer).axes
    precisions = full_precision(layer.alpha.detach())
    for head, patch in enumerate(ax.patches):
        line = patch.get_patch_transform().transform_path(patch.get_path()).interpolated(1).vertices
        on_line = torch.tensor(line[::3]).flip(1).float()  # every third is on the curve, the others steer it
        delta = on_line - layer.centre[head].detach()
        exponent = torch.einsum("pa,ab,pb->p", delta, precisions[head], delta)
        torch.testing.assert_close(exponent, torch.full_like(exponent, math.log(2)), rtol=1e-3, atol=1e-3)
    assert len(ax.patches) == 7


def test_a_snapshot_is_drawn_as_the_model_is():
    layer = heads()
    snapshot = json.loads(json.dumps(snapshot_centres(layer)))
    of_model, of_snapshot = (draw_centres(where).axes[0] for where in (layer, snapshot))
    assert [p.center for p in of_model.patches] == [p.center for p in of_snapshot.patches]


def test_a_line_leads_through_the_earlier_centres():
    layer = heads()
    with torch.no_grad():
        layer.centre.sub_(5)
    history = moved(layer, 3)
    ax = draw_centres(history[-1], earlier=history[:-1]).axes[0]
    ways = [line.get_xydata() for line in ax.lines if len(line.get_xydata()) == 3]
    assert len(ways) == 7
    for head, way in enumerate(ways):
        expected = torch.tensor([snapshot["heads"]["centre"][head] for snapshot in history])
        torch.testing.assert_close(torch.tensor(way).flip(1).float(), expected)
    furthest = max(abs(at) for snapshot in history for pair in snapshot["heads"]["centre"] for at in pair)
    assert max(abs(at) for pair in history[0]["heads"]["centre"] for at in pair) == furthest > 4  # it was long ago
    assert ax.get_xlim()[1] == -ax.get_xlim()[0] > furthest
    assert draw_centres(history[0], reach=3.5).axes[0].get_xlim() == (-3.5, 3.5)


@pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
def test_outlines_lie_inside_the_panel_and_labels_inside_the_figure(precision):
    layer = heads(precision)
    with torch.no_grad():
        layer.centre.mul_(3)
    figure = draw_centres(nn.Sequential(layer, heads(precision)), title="a title")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for ax in figure.axes:
        panel = ax.get_window_extent()
        for patch in (patch for patch in ax.patches if max(patch.width, patch.height) < 2 * centres.WIDEST_OUTLINE):
            outline = patch.get_window_extent()
            assert panel.x0 < outline.x0 < outline.x1 < panel.x1
            assert panel.y0 < outline.y0 < outline.y1 < panel.y1
        labelled = ax.get_tightbbox(canvas.get_renderer())
        assert 0 <= labelled.x0 < labelled.x1 <= figure.bbox.width
        assert 0 <= labelled.y0 < labelled.y1 <= figure.bbox.height


def test_many_layers_stand_in_rows(tmp_path):
    figure = draw_centres(nn.ModuleList(GaussianAttention(2, 1) for _ in range(centres.MOST_ACROSS + 1)))
    figure.savefig(tmp_path / "many.png")
    titles = [ax.get_title() for ax in figure.axes if ax.axison]
    assert titles == [str(i) for i in range(centres.MOST_ACROSS + 1)]


def test_the_animation_has_a_frame_for_each_epoch_and_its_panels_stand_still(tmp_path):
    path = tmp_path / "new" / "centres.gif"
    animate_centres(moved(heads(), 3), path)
    with Image.open(path) as animation:
        assert animation.n_frames == 3
        frames = []
        for frame in range(3):
            animation.seek(frame)
            frames.append(animation.convert("L"))
    for a, b in ((0, 1), (1, 2)):
        changed = ImageChops.difference(frames[a], frames[b]).point(lambda v: 255 * (v > 32))
        assert changed.getbbox() is not None
        left_of_panel = changed.crop((0, 40, 40, changed.height))  # where the names of the rows stand
        assert left_of_panel.getbbox() is None


def test_every_frame_shows_the_way_so_far(tmp_path, monkeypatch):
    lengths, draw = [], centres._draw_layer
    monkeypatch.setattr(centres, "_draw_layer", lambda ax, way: (lengths.append(len(way)), draw(ax, way)))
    animate_centres(moved(heads(), 4), tmp_path / "centres.gif")
    assert lengths[-4:] == [1, 2, 3, 4]


def test_nothing_to_draw_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there must be Gaussian heads to draw, got Linear without any"):
        draw_centres(nn.Linear(2, 2))
    for nothing in ([], [{}]):
        with pytest.raises(ValueError, match="history must hold at least one epoch"):
            animate_centres(nothing, tmp_path / "x.gif")


def read(folder) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


@pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
def test_every_head_of_every_layer_is_written_at_every_step(precision, tmp_path):
    config = GaussianImageEncoderConfig(
        n_classes=3,
        image=(4, 6),
        d_model=8,
        n_layers=2,
        heads=choices.GaussianHeads(n_heads=3, precision=precision),
    )
    model = GaussianImageEncoder(config)
    written: dict[tuple[str, int], float] = {}
    with SummaryWriter(tmp_path) as writer:
        for step in (0, 5):
            log_heads(writer, model, step)
            for i, layer in enumerate(model.layers):
                heads = layer.attention
                columns = (*heads.centre.T.tolist(), half_radius(heads.alpha).tolist())
                for what, values in zip(("row", "column", "width"), columns, strict=True):
                    written |= {(f"heads/layers.{i}/head {h}/{what}", step): v for h, v in enumerate(values)}
            with torch.no_grad():
                for layer in model.layers:
                    layer.attention.centre.add_(torch.randn(3, 2))
                    layer.attention.sharpness.add_(0.2 * torch.randn_like(layer.attention.sharpness))
    events = read(tmp_path)
    found = {(tag, event.step): event.value for tag in events.Tags()["scalars"] for event in events.Scalars(tag)}
    assert len(found) == 2 * 2 * 3 * 3
    assert found == pytest.approx(written, rel=1e-6)
    assert events.Tags()["images"] == ["heads/centres"]
    assert [image.step for image in events.Images("heads/centres")] == [0, 5]
    assert events.Images("heads/centres")[0].width > 300


def test_of_a_model_without_gaussian_heads_nothing_is_written(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        log_heads(writer, nn.Linear(2, 2), 0)
    tags = read(tmp_path).Tags()
    assert not tags["scalars"]
    assert not tags["images"]
