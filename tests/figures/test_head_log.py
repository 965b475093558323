"""What log_heads wrote, read back from TensorBoard's own files."""

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from headwork import choices
from headwork.figures import log_heads
from headwork.inspection import half_radius
from headwork.models import GaussianImageEncoder, GaussianImageEncoderConfig


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
