r"""Runs of 10, 30 and 50 epochs are one run seen three times if the learning rate is constant, and three if it is not.

A step depends on the weights, the batch and the rate. With a constant rate and the same start, nothing in a run of 10
epochs knows that it will be short: its curves are the first 10 epochs of the run of 50, number by number, and three
plots show one. A schedule that falls to 0 at the end makes them three: the short run comes to rest within its 10
epochs, while the long one is still at its highest rate. Their curves part from the first epoch on, and a comparison
between 10, 30 and 50 is fair only at their ends.

What can be read from the curves? The training loss falls further with more epochs. That alone does not suggest
"accurate predictions on unseen data", as the sheet says: with shuffled labels the training loss falls as well, and on
unseen images the accuracy stays at that of a guess, 1/10.

It stops being true when the order of the batches or dropout is drawn anew, which makes the three runs differ by
chance.
"""

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.batches import ImageBatch
from headwork.lab.digits import N_CLASSES, digits, small_vit, train_classifier
from headwork.lab.plots import COLOURS, Figure, panels
from headwork.lab.toolkit import Claim, Erratum, Experiment, Verdict, about, at_least, at_most, exact, seeded

Curve = Float[Tensor, "_ 4"]
"""Training loss and accuracy, unseen loss and accuracy; the start is epoch 0."""

SD_OF_GUESSES = 0.03
"""Of the accuracy on unseen images after shuffled labels, over 40 shuffles: whole classes get one wrong label."""
NOISE = 0.1
"""Of ln of the training loss at the end of a run, over seeds: measured for the shortest."""


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A small vision Transformer, three lengths of training, and whether the batches are the same in all of them."""

    epochs: tuple[int, ...] = (10, 30, 50)
    n_train: int = 400
    d_model: int = 16
    learning_rate: float = 4e-3
    n_shuffles: int = 5
    """Of the labels, each with a start of its own, whose mean is judged."""
    same_batches: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.epochs) < 2 or list(self.epochs) != sorted(set(self.epochs)):
            raise ValueError(f"epochs must be two or more, and grow, got {self.epochs}")


@dataclass(frozen=True)
class Result:
    """The curves of each run, with a constant rate and with a schedule of its own; and some with shuffled labels."""

    setup: Setup
    constant: dict[int, Curve]
    scheduled: dict[int, Curve]
    shuffled: Float[Tensor, "shuffle epoch 4"]


@seeded
def run(setup: Setup) -> Result:
    train, unseen = digits("train", first=setup.n_train), digits("valid", "test")
    shuffles = [
        (int(torch.randint(2**31, ())), train.label[torch.randperm(len(train.label))]) for _ in range(setup.n_shuffles)
    ]
    starts = torch.randint(2**31, (len(setup.epochs),)).tolist()
    starts = starts if not setup.same_batches else starts[:1] * len(starts)
    constant, scheduled = (
        {
            epochs: _train(setup, epochs, start, train, unseen, schedule=schedule)
            for epochs, start in zip(setup.epochs, starts, strict=True)
        }
        for schedule in (False, True)
    )
    shuffled = [
        _train(setup, setup.epochs[1], start, train._replace(label=label), unseen, schedule=False)
        for start, label in shuffles
    ]
    return Result(setup, constant, scheduled, torch.stack(shuffled))


def _train(setup: Setup, epochs: int, start: int, train: ImageBatch, unseen: ImageBatch, *, schedule: bool) -> Curve:
    torch.manual_seed(start)
    model = small_vit(d_model=setup.d_model, n_layers=1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=setup.learning_rate, fused=True)
    peak = 2 * setup.learning_rate if schedule else None
    curve = train_classifier(
        model, train, optimiser, epochs=epochs, batch_size=50, one_cycle=peak, scored_on=(train, unseen)
    )
    return torch.tensor([[*of_train, *of_unseen] for of_train, of_unseen in curve], dtype=torch.float64)


def verdict(result: Result) -> Verdict:
    setup = result.setup
    first, *_, last = setup.epochs
    loss = {epochs: curve[:, 0] for epochs, curve in result.constant.items()}
    off = max((loss[epochs] - loss[last][: epochs + 1]).abs().max().item() for epochs in setup.epochs)
    late = (loss[first][1:] - loss[last][:first]).abs().max().item()
    apart = (result.scheduled[first][:, 0] - result.scheduled[last][: first + 1, 0]).abs().max().item()
    scheduled = (result.scheduled[first][:, 0] - loss[first]).abs().max().item()
    ends = [curve[-1, 0].item() for curve in result.scheduled.values()]
    falls = min(math.log(before / after) for before, after in itertools.pairwise(ends))
    shuffled = result.shuffled.mean(0)
    learned, guessed = shuffled[-1, 0] / shuffled[0, 0], shuffled[-1, 3].item()
    unseen = result.constant[last][-1, 3].item()
    return Verdict(
        checks=(
            exact(
                f"curves of {first} epochs against the beginning of {last}, constant rate",
                off,
                near={"an epoch later": late, "a schedule of its own": scheduled},
            ),
            at_least(
                f"curves of {first} epochs against the beginning of {last}, each with its schedule",
                0.01,
                apart,
                near={"the same run": about("", 0, apart, eps=2**20)},
            ),
            at_least(
                "ln by which the training loss at the end falls from one run to the next",
                0.1,
                falls,
                near={"no gain": about("", 0, falls, sd=NOISE)},
            ),
            at_most(
                f"training loss with shuffled labels, end over start, mean of {setup.n_shuffles}",
                0.98,
                learned.item(),
                near={"nothing learned": about("", 1, learned.item(), eps=2**20)},
            ),
            about(
                f"accuracy on unseen images with shuffled labels, mean of {setup.n_shuffles}",
                1 / N_CLASSES,
                guessed,
                sd=SD_OF_GUESSES / math.sqrt(setup.n_shuffles),
                near={"as with true labels": unseen},
            ),
        ),
        why="A step knows the weights, the batch and the rate, and nothing of how long the run will be.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, axes = panels(
        2, height=3.1, title="Three runs: one seen three times, or three, by the schedule of the learning rate"
    )
    for ax, runs, name in zip(
        axes, (result.constant, result.scheduled), ("constant rate", "own schedule"), strict=True
    ):
        for (epochs, curve), colour, width in zip(runs.items(), COLOURS, (5.0, 3.0, 1.2), strict=False):
            ax.semilogy(
                range(epochs + 1),
                curve[:, 0].numpy(),
                color=colour,
                linewidth=width,
                label=f"measured, {epochs} epochs",
            )
            ax.semilogy(range(epochs + 1), curve[:, 2].numpy(), color=colour, linewidth=width / 2, linestyle=":")
            ax.plot(epochs, curve[-1, 0].item(), color=colour, marker="o", markerfacecolor="white", zorder=5)
        ax.axhline(
            math.log(N_CLASSES), color="black", linestyle="--", linewidth=1.0, label="predicted start: about ln 10"
        )
        ax.set(
            title=name,
            xlabel="epoch",
            xticks=(0, *setup.epochs),
            ylabel="loss (nats), dotted: unseen images",
        )
    axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7)
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="QMUL",
    question="3(2)",
    setup=Setup(),
    small=Setup(epochs=(3, 12), n_train=150, learning_rate=1e-2),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"other batches in each run": {"same_batches": False}, "hardly any learning rate": {"learning_rate": 1e-9}},
    confidence="Curves are compared number by number; the accuracy after shuffled labels is within 5 standard "
    "deviations (SD) of a mean over shuffles.",
    errata=(
        Erratum(
            where="3(2), the answer",
            printed="the accuracy on the training set improves, and it also suggests that the ability to "
            "predict unseen data gets stronger",
            right="only the curve of unseen data shows that; training accuracy rises with shuffled labels as well",
            measured=lambda result: (
                f"With shuffled labels the training accuracy rises from {result.shuffled[:, 0, 1].mean():.0%} to "
                f"{result.shuffled[:, -1, 1].mean():.0%}, and that on unseen images is "
                f"{result.shuffled[:, -1, 3].mean():.0%} (means of {result.setup.n_shuffles} shuffles)."
            ),
        ),
    ),
)
