r"""From 10 to 30 to 50 epochs the training loss keeps falling, and the loss on unseen images hardly follows.

Every step goes down an estimate of the gradient of the training loss, so over many steps that loss falls, with enough
width towards 0, and the training accuracy goes towards 1; from one epoch to the next it may rise.

The images that were held out put no force on the weights. Their loss follows as long as what is learned is shared, and
then stays behind: it has a minimum on the way, so whether it is lower after 50 epochs than after 10 is a matter of the
seed. "The model's ability to make accurate predictions on unseen data" is seen in the held-out curve alone: with
shuffled labels the training loss still falls, slowly, label by label, and the held-out accuracy stays at 1/10.

The learning rate is constant, so a run of 10 epochs is the beginning of a run of 50, and one run shows all three.
(scikit-learn's 8 x 8 digits, 2 x 2 patches, a small vision Transformer, Adam.)
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from headwork import choices
from headwork.lab.digits import N_CLASSES, digits, small_vit, train_classifier
from headwork.lab.plots import MARKERS, MEASURED, PREDICTED, Figure, panels, series
from headwork.lab.toolkit import Claim, Experiment, Verdict, about, at_least, at_most, seeded

FACTOR = 1.5
"""The training loss has to fall by this factor from mark to mark: a tiny learning rate lets it fall too."""
NOISE = 0.05
"""More than the standard deviation over seeds of that fall while labels are shuffled, and little is learned."""
N_UNSEEN = 300


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A small vision Transformer and its training."""

    epochs: tuple[int, ...] = (10, 30, 50)
    n_train: int = 1_197
    d_model: int = 32
    n_layers: int = 2
    batch_size: int = 64
    learning_rate: float = 2e-3
    labels: Literal["true", "shuffled"] = "true"

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.epochs) != sorted(set(self.epochs)):
            raise ValueError(f"epochs must grow, got {self.epochs}")


@dataclass(frozen=True)
class Result:
    """After each epoch, the start included: loss and accuracy on the training images and on those held out."""

    setup: Setup
    train_loss: Float[Tensor, "epoch"]
    train_accuracy: Float[Tensor, "epoch"]
    unseen_loss: Float[Tensor, "epoch"]
    unseen_accuracy: Float[Tensor, "epoch"]


@seeded
def run(setup: Setup) -> Result:
    train, unseen = digits("train", first=setup.n_train), digits("test")
    if setup.labels == "shuffled":
        train = train._replace(label=train.label[torch.randperm(len(train.label))])
    model = small_vit(d_model=setup.d_model, n_layers=setup.n_layers, pooling=choices.ClassToken())
    optimiser = torch.optim.Adam(model.parameters(), lr=setup.learning_rate)
    curve = train_classifier(
        model, train, optimiser, epochs=setup.epochs[-1], batch_size=setup.batch_size, scored_on=(train, unseen)
    )
    rows = [(*on_train, *on_unseen) for on_train, on_unseen in curve]
    return Result(setup, *(torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)))


def _smooth(curve: Float[Tensor, "epoch"], epoch: int) -> float:
    """The mean of the last few epochs up to this one: single epochs jump."""
    return curve[max(1, epoch - max(1, epoch // 5) + 1) : epoch + 1].mean().item()


def _lowest(curve: Float[Tensor, "epoch"], epoch: int) -> float:
    """The lowest of these epochs: with a constant rate the training loss may jump up by ten, and comes back."""
    return curve[max(1, epoch - max(1, epoch // 5) + 1) : epoch + 1].min().item()


def verdict(result: Result) -> Verdict:
    setup, chance = result.setup, 1 / N_CLASSES
    first, *_, last = setup.epochs
    loss = [_lowest(result.train_loss, epoch) for epoch in setup.epochs]
    falls = [math.log(before / after) for before, after in itertools.pairwise(loss)]
    unseen = [_smooth(result.unseen_loss, epoch) for epoch in (first, last)]
    fall, unseen_fall = sum(falls), math.log(unseen[0] / unseen[1])
    accuracy = _smooth(result.unseen_accuracy, last)
    marks = zip(itertools.pairwise(setup.epochs), falls, strict=True)
    return Verdict(
        checks=(
            *(
                at_least(
                    f"ln of the training loss at {early} epochs over that at {late}",
                    math.log(FACTOR),
                    fallen,
                    near={"no fall": about("", 0, fallen, sd=NOISE)},
                )
                for (early, late), fallen in marks
            ),
            at_most(
                f"what ln of the unseen loss falls from {first} to {last} epochs, as a share of the training loss",
                0.5,
                unseen_fall / fall,
                near={"as much": about("", 1, unseen_fall / fall, sd=NOISE / fall)},
            ),
            at_least(
                "unseen accuracy at the end",
                0.5,
                accuracy,
                near={"by chance": about("", chance, accuracy, sd=math.sqrt(chance * (1 - chance) / N_UNSEEN))},
            ),
        ),
        why="Training goes down the training loss; unseen images follow only as far as they have things in common.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    title = "More epochs: the training loss falls on, unseen images hardly follow"
    drawing, (left, right) = panels(2, title=title)
    epochs = range(setup.epochs[-1] + 1)
    curves = (
        (left, result.train_loss, result.unseen_loss, "loss (nats)"),
        (right, result.train_accuracy, result.unseen_accuracy, "accuracy"),
    )
    for ax, train, unseen, name in curves:
        for curve, marker, line, words in ((train, MARKERS[0], "-", "training"), (unseen, MARKERS[1], ":", "unseen")):
            ax.plot(epochs, curve.numpy(), color="0.4", linewidth=0.9, linestyle=line)
            marks = [curve[epoch].item() for epoch in setup.epochs]
            ax.plot(setup.epochs, marks, **MEASURED | series(marker) | {"label": f"measured, {words}"})
        ax.set(xlabel="epochs", ylabel=name, xticks=(0, *setup.epochs))
    below = [_lowest(result.train_loss, epoch) / FACTOR for epoch in setup.epochs[:-1]]
    left.step(
        setup.epochs, [*below, below[-1]], where="post", **PREDICTED | {"label": "predicted: training ends below"}
    )
    left.set_yscale("log")
    right.axhline(0.5, **PREDICTED | {"label": "predicted in the end: above"})
    right.axhline(1 / N_CLASSES, color="0.6", linewidth=0.8)
    right.text(setup.epochs[-1], 0.11, "by chance", ha="right", va="bottom", fontsize=7)
    right.set_ylim(0, 1.04)
    for epoch, accuracy in ((epoch, result.unseen_accuracy[epoch].item()) for epoch in setup.epochs):
        right.annotate(f"{accuracy:.1%}", (epoch, accuracy), xytext=(0, -12), textcoords="offset points", ha="center")
    left.set_ylim(left.get_ylim()[0] / 30, None)
    left.legend(frameon=False, loc="lower left")
    right.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.16))
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="QMUL",
    question="3(2)",
    setup=Setup(),
    small=Setup(epochs=(5, 10, 15), n_train=300, d_model=16, n_layers=1, batch_size=25, learning_rate=5e-3),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={
        "shuffled labels, which can only be learned by heart": {"labels": "shuffled"},
        "hardly any learning rate": {"learning_rate": 1e-7},
    },
    confidence="One split of one data set; each mark is the mean of the last fifth of the epochs up to it (of the "
    "training loss, the lowest), and near theories are rejected by 5 standard deviations (SD).",
)
