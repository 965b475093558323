"""The centres of Gaussian heads in TensorBoard, step by step."""

from typing import Protocol, runtime_checkable

from matplotlib.figure import Figure
from torch import nn

from headwork.figures.centres import draw_centres
from headwork.inspection.centres import gaussian_layers, half_radius


@runtime_checkable
class Writer(Protocol):
    """What `torch.utils.tensorboard.SummaryWriter` can do, as far as it is used here."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def add_figure(self, tag: str, figure: Figure, global_step: int) -> None: ...


def log_heads(writer: Writer, model: nn.Module, step: int) -> None:
    """Write the centre and the width of every Gaussian head, and a figure of all centres.

    The scalars are called `heads/layers.0/head 3/row`, `.../column` (of the centre, away from the query) and
    `.../width`: the `half_radius` in pixels, which for diagonal and full precisions is that of the circle with the area
    of the ellipse drawn in the figure `heads/centres`. Of a model without Gaussian heads there is nothing to write.
    """
    layers = gaussian_layers(model)
    if not layers:
        return
    for name, layer in layers.items():
        widths = half_radius(layer.alpha.detach()).tolist()
        for head, ((row, column), width) in enumerate(zip(layer.centre.tolist(), widths, strict=True)):
            for what, value in (("row", row), ("column", column), ("width", width)):
                writer.add_scalar(f"heads/{name}/head {head}/{what}", value, step)
    writer.add_figure("heads/centres", draw_centres(model, title=f"step {step}"), step)
