r"""A small ViT classifies digits about equally well by a class token, by the mean, and by attention over its tokens.

An encoder returns as many vectors as it got tokens, and a classifier wants one. A linear layer on all of them at once
would fix their number, and with it the size of the image. Three ways do not:

| pooling | what is read | parameters | the encoder's tokens |
|---|---|---|---|
| CLS | the output of a learned token that joined the patches | $d$ | $n + 1$ |
| GAP | the mean of all outputs | none | $n$ |
| MAP | what a learned query finds by attention, then a feed-forward network | $12d^2 + 12d$ | $n$ |

All three gather by weights that sum to 1: CLS lets the attention of the layers find them, GAP fixes them at $1/n$, MAP
learns one more attention that finds them. If the layers can gather the image into one token, there is little
left for the pooling to do. If there are no layers, a class token has seen nothing and is right by chance only, one
time in ten.

The sheet calls CLS obsolete beside GAP and MAP. On 1,197 small digits no such difference is seen: the three end within
a few points of each other, as two seeds of one do. (On large data others have measured an advantage; this claim says
nothing about that, nor about differences smaller than its margin.)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from headwork import choices
from headwork.data import Digits, ImageBatch
from headwork.data.examples import Examples
from headwork.lab.claim import Claim, Experiment, seeded
from headwork.lab.drawing import MARKERS, MEASURED, PREDICTED, panels
from headwork.lab.verdict import Verdict, about, at_least, at_most, same
from headwork.models import VisionTransformer, VisionTransformerConfig

N_CLASSES = 10
Pooling = Literal["CLS", "GAP", "MAP"]
POOLINGS: tuple[Pooling, ...] = ("CLS", "GAP", "MAP")


@dataclass(frozen=True, kw_only=True)
class Setup(Experiment):
    """A small ViT for each pooling and seed, how long it learns, and what counts as well and as equally well."""

    d_model: int = 32
    n_heads: int = 2
    n_layers: int = 2
    patch: int = 2
    n_train: int = 1_197
    epochs: int = 8
    n_runs: int = 2
    lr: float = 5e-3
    enough: float = 0.85
    """The accuracy that every pooling has to reach."""
    margin: float = 0.05
    """How far the worst may be behind the best."""
    layers: Literal["learned", "left out"] = "learned"


@dataclass(frozen=True)
class Result:
    """Accuracy on digits that were not learned from, after each epoch, the mean over the runs; and the poolings."""

    setup: Setup
    accuracy: dict[Pooling, Float[Tensor, "epoch"]]
    parameters: dict[Pooling, int]
    classes_elsewhere: dict[Pooling, int]
    """Scores for an image that is one and a half times as large."""
    without_layers: float
    """The accuracy of a class token that no layer has changed."""


@seeded
def run(setup: Setup) -> Result:
    data = Digits(augment=False).load()
    train = _take(data.train, setup.n_train)
    test = ImageBatch(*map(torch.cat, zip(_take(data.valid), _take(data.test), strict=True)))
    accuracy, parameters, elsewhere = {}, {}, {}
    for pooling in POOLINGS:
        runs = []
        for _ in range(setup.n_runs):
            model = _model(setup, pooling)
            if setup.layers == "left out":
                model.layers = nn.ModuleList()
            runs.append(_learn(setup, model, train, test))
        accuracy[pooling] = torch.tensor(runs, dtype=torch.float64).mean(0)
        parameters[pooling] = sum(p.numel() for p in model.pooling.parameters())
        with torch.no_grad():
            elsewhere[pooling] = model(torch.rand(1, 1, 12, 12)).shape[1]
    bare = _model(setup, "CLS")
    bare.layers = nn.ModuleList()
    return Result(setup, accuracy, parameters, elsewhere, _accuracy(bare, test))


def _take(examples: Examples, n: int | None = None) -> ImageBatch:
    batch = examples.batch(range(len(examples) if n is None else n))
    assert isinstance(batch, ImageBatch)
    return batch


def _model(setup: Setup, pooling: Pooling) -> VisionTransformer:
    choice: dict[Pooling, choices.ImagePooling] = {
        "CLS": choices.ClassToken(),
        "GAP": choices.MeanPooling(),
        "MAP": choices.AttentionPooling(n_heads=setup.n_heads),
    }
    return VisionTransformer(
        VisionTransformerConfig(
            n_classes=N_CLASSES,
            image=(8, 8),
            n_channels=1,
            patch=(setup.patch, setup.patch),
            d_model=setup.d_model,
            n_layers=setup.n_layers,
            heads=choices.Heads(n_heads=setup.n_heads),
            feed_forward=choices.FeedForward(d_ff=2 * setup.d_model),
            pooling=choice[pooling],
        )
    )


def _learn(setup: Setup, model: VisionTransformer, train: ImageBatch, test: ImageBatch) -> list[float]:
    """The accuracy after each epoch."""
    batch = 64
    n_steps = setup.epochs * -(-len(train.label) // batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=setup.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, setup.lr, total_steps=n_steps)
    accuracy = []
    for _ in range(setup.epochs):
        for some in torch.split(torch.randperm(len(train.label)), batch):
            optimiser.zero_grad()
            F.cross_entropy(model(train.image[some]), train.label[some]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
        accuracy.append(_accuracy(model, test))
    return accuracy


@torch.no_grad()
def _accuracy(model: VisionTransformer, test: ImageBatch) -> float:
    return (model(test.image).argmax(1) == test.label).double().mean().item()


def _parameters(setup: Setup, pooling: Pooling) -> int:
    d = setup.d_model
    return {"CLS": d, "GAP": 0, "MAP": 12 * d**2 + 12 * d}[pooling]


def verdict(result: Result) -> Verdict:
    setup = result.setup
    last = {pooling: accuracy[-1].item() for pooling, accuracy in result.accuracy.items()}
    spread = max(last.values()) - min(last.values())
    return Verdict(
        checks=(
            at_most("accuracy of the best pooling over that of the worst", setup.margin, spread),
            *(at_least(f"accuracy, {pooling}", setup.enough, seen) for pooling, seen in last.items()),
            *(
                same(f"parameters of {pooling}", _parameters(setup, pooling), count)
                for pooling, count in result.parameters.items()
            ),
            *(
                same(f"scores for an image of 12 x 12 pixels, {pooling}", N_CLASSES, count)
                for pooling, count in result.classes_elsewhere.items()
            ),
            about("accuracy of a class token without layers", 1 / N_CLASSES, result.without_layers, 0.01),
        ),
        why="The layers gather the image into every token, so it matters little which of them are read.",
    )


def figure(result: Result) -> Figure:
    setup = result.setup
    drawing, (left, right) = panels(2, title="Class token, mean and attention read a small ViT about equally well")
    epochs = range(1, setup.epochs + 1)
    for (pooling, accuracy), marker in zip(result.accuracy.items(), MARKERS, strict=False):
        style = MEASURED | {"marker": marker, "label": f"measured, {pooling}", "linestyle": "-", "linewidth": 0.6}
        left.plot(epochs, accuracy.numpy(), **style)
    left.axhline(1 / N_CLASSES, color="0.6", linewidth=0.8)
    left.text(setup.epochs, 0.11, "by chance", ha="right", va="bottom", fontsize=7)
    left.axhline(setup.enough, **PREDICTED | {"label": "predicted in the end: above"})
    left.set(xlabel="epoch", xticks=epochs, ylabel="accuracy on new digits", ylim=(0, 1.02))
    places = range(len(POOLINGS))
    right.plot(
        places,
        [_parameters(setup, pooling) for pooling in POOLINGS],
        **PREDICTED | {"marker": "_", "linestyle": "none", "markersize": 18},
    )
    right.plot(places, list(result.parameters.values()), **MEASURED)
    right.set_yscale("symlog", linthresh=1)
    right.set_xticks(places, [f"{pooling}\n{result.accuracy[pooling][-1]:.1%} right" for pooling in POOLINGS])
    right.set(xlabel="pooling", ylabel="parameters of the pooling", xlim=(-0.6, 2.6), ylim=(-0.4, 1e6))
    left.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.15))
    right.legend(frameon=False, loc="upper left")
    return drawing


CLAIM = Claim(
    __name__,
    __doc__,
    document="C182",
    question="3(a)",
    setup=Setup(),
    small=Setup(n_layers=1, patch=4, n_train=320, epochs=5, n_runs=1, lr=1e-2, enough=0.5, margin=0.25),
    run=run,
    verdict=verdict,
    figure=figure,
    broken={"no layers between patches and pooling": {"layers": "left out"}},
    confidence="Two runs of 600 digits each: about 1 point from seed to seed, a fifth of the margin.",
)
