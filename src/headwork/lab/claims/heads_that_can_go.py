r"""Half of the heads of a small trained ViT can go, if it is the right half; most of the cost is in the first layer.

What a head costs is what the loss gains if the head is switched off. Measured head by head, the costs are very
unequal: a few heads, most of them in the first layer, where patches meet for the first time, carry nearly all. The
cheaper half together can be switched off, and most of the accuracy is kept; with as many heads from the other end of
the list, nothing is left. Heads are ranked on the training images and judged on others.

Nothing in the training makes it so: the loss rewards the sum of the heads, and once some of them do the work the
gradient of the others fades. A head that writes a constant is not even noticed, since the output bias can do the
same.

It stops being true when the model is small for its task: heads that are all needed have no cheap half.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.batches import ImageBatch
from headwork.inspection import ablate
from headwork.lab.digits import digits, evaluate, small_vit, train_classifier
from headwork.lab.plots import COLOURS, MEASURED, PREDICTED, Figure, panels
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, at_least, seeded
from headwork.models import VisionTransformer

SD = {"lead": 0.036, "kept": 0.027, "share": 0.042}
"""Over seeds: measured."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A small Vision Transformer for the digits, and its training."""

    d_model: int = 24
    n_layers: int = 4
    n_heads: int = 4
    epochs: int = 12
    n_train: int = 1_197
    learning_rate: float = 6e-3


@dataclass(frozen=True)
class Result:
    """What the loss gains by switching off each head, and the accuracy without many of them."""

    setup: Setup
    cost: Float[Tensor, "layer head"]
    """On the training images."""
    accuracy: float
    """On unseen images, with all heads, and without the cheaper or the costlier half."""
    without_cheap: float
    without_costly: float
    curve: Float[Tensor, "switched_off"]
    """The accuracy after the cheapest heads have gone, one after the other."""


@seeded
def run(setup: Setup) -> Result:
    train, test = digits("train", first=setup.n_train), digits("valid", "test")
    model = small_vit(d_model=setup.d_model, n_layers=setup.n_layers, n_heads=setup.n_heads)
    optimiser = torch.optim.AdamW(model.parameters(), lr=setup.learning_rate, fused=True)
    train_classifier(model, train, optimiser, epochs=setup.epochs, batch_size=64, one_cycle=setup.learning_rate)
    model.eval()
    base = evaluate(model, train).loss
    heads = [(layer, head) for layer in range(setup.n_layers) for head in range(setup.n_heads)]
    cost = {where: _evaluate_without(model, [where], train)[0] - base for where in heads}
    order = sorted(heads, key=lambda where: cost[where])
    curve = [_evaluate_without(model, order[:gone], test)[1] for gone in range(len(order))]
    return Result(
        setup,
        torch.tensor([[cost[layer, head] for head in range(setup.n_heads)] for layer in range(setup.n_layers)]),
        curve[0],
        curve[len(order) // 2],
        _evaluate_without(model, order[len(order) // 2 :], test)[1],
        torch.tensor(curve),
    )


def _evaluate_without(model: VisionTransformer, gone: list[tuple[int, int]], images: ImageBatch) -> tuple[float, float]:
    """Loss and accuracy with these heads switched off."""
    if not gone:
        return evaluate(model, images)
    by_layer: dict[str, list[int]] = {}
    for layer, head in gone:
        by_layer.setdefault(f"layers.{layer}.attention", []).append(head)
    with ablate(model, heads=by_layer):
        return evaluate(model, images)


def verdict(result: Result) -> Verdict:
    setup = result.setup
    lead = result.without_cheap - result.without_costly
    kept = result.without_cheap / result.accuracy
    share = (result.cost[0].sum() / result.cost.clamp(min=0).sum()).item()
    return Verdict(
        checks=(
            at_least(
                "accuracy without the cheaper half of the heads, over that without the costlier half; the lead",
                0.25,
                lead,
                near={"no lead": about("", 0, lead, sd=SD["lead"])},
            ),
            at_least(
                "accuracy without the cheaper half, in parts of that with all heads",
                0.75,
                kept,
                near={"half, as many as are left": about("", 0.5, kept, sd=SD["kept"])},
            ),
            at_least(
                "share of all costs in the first layer",
                0.5,
                share,
                near={"an even share": about("", 1 / setup.n_layers, share, sd=SD["share"])},
            ),
        ),
        why="Training rewards the sum of the heads, not each of them.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Half of the heads can go, if the right half goes")
    bound = result.cost.abs().max().item()
    image = left.imshow(result.cost.numpy(), cmap="PuOr_r", vmin=-bound, vmax=bound)
    left.set(xlabel="head", ylabel="layer", xticks=range(setup.n_heads), yticks=range(setup.n_layers))
    left.set_title("measured: loss added without the head")
    drawing.colorbar(image, ax=left, shrink=0.8)
    right.plot(
        range(len(result.curve)),
        result.curve.numpy(),
        **MEASURED | {"color": COLOURS[0], "label": "measured, cheapest first"},
    )
    half = len(result.curve) // 2
    style = MEASURED | {"color": COLOURS[1], "marker": "s", "label": "measured, costlier half"}
    right.plot(half, result.without_costly, **style)
    right.axhline(0.75 * result.accuracy, **PREDICTED | {"label": "predicted for half: above"})
    right.set(xlabel="heads switched off", ylabel="accuracy on unseen digits", ylim=(0, 1.02))
    right.locator_params(axis="x", integer=True)
    right.legend(frameon=False, loc="center left", fontsize=7)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="beyond",
    question="",
    also=("C182 1(c)",),
    paper="Michel, Levy and Neubig 2019, Are sixteen heads really better than one? (arXiv:1905.10650); Voita "
    "et al. 2019, "
    "Analyzing multi-head self-attention (arXiv:1905.09418)",
    setup=Setup(),
    small=Setup(d_model=16, n_layers=3, epochs=8, n_train=400, learning_rate=1e-2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"a model that has not been trained": {"learning_rate": 1e-9}},
    confidence="Near theories are rejected by 5 standard deviations (SD) over seeds, for one data set and one kind of "
    "model.",
)
