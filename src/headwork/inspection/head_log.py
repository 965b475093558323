"""The places of the heads in TensorBoard, step by step."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch import nn

from headwork.inspection.centres import gaussian_layers, half_radius

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class Writer(Protocol):
    """What `torch.utils.tensorboard.SummaryWriter` can do, as far as it is used here."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def add_figure(self, tag: str, figure: "Figure", global_step: int) -> None: ...


def log_heads(writer: Writer, model: nn.Module, step: int) -> None:
    """Write where every Gaussian head looks and how widely, and a figure of all centres.

    The scalars are called `heads/layers.0/head 3/row`, `.../column` (of the centre, away from the query) and
    `.../width`: the `half_radius` in pixels, which for diagonal and full precisions is that of the circle with the area
    of the ellipse drawn in the figure `heads/centres`. Of a model without Gaussian heads there is nothing to write.
    """
    layers = gaussian_layers(model)
    if not layers:
        return
    from headwork.inspection.centre_figures import draw_centres

    for name, layer in layers.items():
        widths = half_radius(layer.alpha.detach()).tolist()
        for head, ((row, column), width) in enumerate(zip(layer.centre.tolist(), widths, strict=True)):
            for what, value in (("row", row), ("column", column), ("width", width)):
                writer.add_scalar(f"heads/{name}/head {head}/{what}", value, step)
    writer.add_figure("heads/centres", draw_centres(model, title=f"step {step}"), step)
