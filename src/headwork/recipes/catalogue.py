"""Recipes: functions that return a complete RunConfig, ours by name and anybody's by module."""

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import is_dataclass, replace

from torch import nn

from headwork import choices
from headwork.checks import nearest
from headwork.data import BundledText, Dates, Digits, Mnist5k, Reviews
from headwork.models import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    GaussianImageEncoderConfig,
    ResNetConfig,
    VisionTransformerConfig,
)
from headwork.recipes.known_sets import (
    CENTRES,
    cifar10_gaussian,
    cifar10_resnet,
    cifar10_vit,
    fashion_vit,
    multi30k,
    shakespeare_gpt,
    sst2_encoder,
)
from headwork.training.config import AdamW, RunConfig, TrainingConfig
from headwork.training.fit import VOCAB_OF_DATA


def digits_vit() -> RunConfig:
    """A Vision Transformer for handwritten digits of 8 x 8 pixels, in patches of 2 x 2.

    29 seconds on two cores of an AMD EPYC, report and all; seed 0: 99.3 % of 300 test digits (seeds 0 to 2: 98.6 %).
    """
    return RunConfig(
        name="digits-vit",
        data=Digits(),
        model=VisionTransformerConfig(
            n_classes=10,
            image=(8, 8),
            n_channels=1,
            patch=(2, 2),
            d_model=64,
            n_layers=4,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=128),
        ),
        training=TrainingConfig(
            batch_size=64,
            epochs=60,
            evaluate_every=36,
            optimiser=AdamW(lr=3e-3, weight_decay=0.3),
            label_smoothing=0.1,
            ema=0.98,
        ),
    )


def digits_gaussian() -> RunConfig:
    """An image encoder whose heads look by position alone, and learn where.

    72 seconds on two cores of an AMD EPYC; seed 0: 97.3 % of 300 test digits.
    """
    return RunConfig(
        name="digits-gaussian",
        data=Digits(),
        model=GaussianImageEncoderConfig(
            n_classes=10,
            image=(8, 8),
            n_channels=1,
            patch=(1, 1),
            d_model=24,
            n_layers=3,
            heads=choices.GaussianHeads(n_heads=5),
            feed_forward=choices.FeedForward(d_ff=48),
            norm_order="pre",
            dropout=0.0,
        ),
        training=TrainingConfig(
            batch_size=64, epochs=30, optimiser=AdamW(lr=4e-3, lr_factors=CENTRES), label_smoothing=0.1, ema=0.98
        ),
    )


def digits_resnet() -> RunConfig:
    """A small residual network: the convolutions to compare with, and to convert.

    30 seconds on two cores of an AMD EPYC; seed 0: 99.7 % of 300 test digits.
    """
    return RunConfig(
        name="digits-resnet",
        data=Digits(),
        model=ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(16, 32)),
        training=TrainingConfig(batch_size=64, epochs=30, optimiser=AdamW(lr=4e-3)),
    )


def mnist_vit() -> RunConfig:
    """A Vision Transformer for handwritten digits of 28 x 28 pixels, in patches of 4 x 4.

    4 minutes on two cores of an AMD EPYC; seed 0: 94.7 % of 1,000 test images.
    """
    return RunConfig(
        name="mnist-vit",
        data=Mnist5k(),
        model=VisionTransformerConfig(
            n_classes=10,
            image=(28, 28),
            n_channels=1,
            patch=(4, 4),
            d_model=96,
            n_layers=4,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=192),
        ),
        training=TrainingConfig(batch_size=100, epochs=30, optimiser=AdamW(lr=1e-3)),
    )


def dates() -> RunConfig:
    """An encoder-decoder that translates "dimanche 15 novembre 2026" into "2026-11-15", in seven languages.

    2 minutes on two cores of an AMD EPYC; seed 0: 100.0 % of 1,000 unseen dates are translated exactly.
    """
    return RunConfig(
        name="dates",
        data=Dates(),
        model=EncoderDecoderConfig(
            vocab=VOCAB_OF_DATA,
            d_model=64,
            n_encoder_layers=2,
            n_decoder_layers=2,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=128, activation="relu"),
            norm_order="pre",
            dropout=0.0,
        ),
        training=TrainingConfig(batch_size=100, epochs=8, optimiser=AdamW(lr=2e-3)),
    )


def text_gpt() -> RunConfig:
    """A GPT of 0.8 million parameters that learns to write like Python's reference manual.

    About 4 minutes on two cores of an AMD EPYC; seed 0: a test loss of 1.085, 70.2 % of the next characters.
    """
    return RunConfig(
        name="text-gpt",
        data=BundledText(n_context=128),
        model=DecoderConfig(
            vocab=VOCAB_OF_DATA,
            d_model=128,
            n_layers=4,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=512),
            position=choices.LearnedPositions(max_tokens=128),
            dropout=0.0,
            attention_dropout=0.0,
        ),
        training=TrainingConfig(
            batch_size=16, steps=2000, evaluate_every=200, optimiser=AdamW(lr=2e-3, weight_decay=0.1)
        ),
    )


def reviews_encoder() -> RunConfig:
    """A small text encoder that reads the first 255 words; counting words is the baseline beside it.

    161 seconds on two cores of an AMD EPYC; seed 0: 84.3 % of 2,000 test reviews, where counting words reaches 88.9 %.
    """
    return RunConfig(
        name="reviews-encoder",
        data=Reviews(max_tokens=256),
        model=EncoderConfig(
            vocab=VOCAB_OF_DATA,
            head=choices.ClassificationHead(n_classes=2, pooling=choices.MeanPooling()),
            d_model=64,
            n_layers=1,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=128),
            norm_order="pre",
            position=choices.LearnedPositions(max_tokens=256),
            n_segments=0,
            dropout=0.5,
            attention_dropout=0.0,
        ),
        training=TrainingConfig(batch_size=64, epochs=2, optimiser=AdamW(lr=5e-4, weight_decay=0.1), ema=0.99),
    )


Recipe = Callable[[], RunConfig]
RECIPES: dict[str, Recipe] = {
    recipe.__name__.replace("_", "-"): recipe
    for recipe in (
        *(digits_vit, digits_gaussian, digits_resnet, mnist_vit, dates, text_gpt, reviews_encoder),
        *(cifar10_vit, cifar10_gaussian, cifar10_resnet, fashion_vit, sst2_encoder, multi30k, shakespeare_gpt),
    )
}


def find_recipe(name: str) -> RunConfig:
    """The recipe of that name, complete; `my_module:my_recipe` is one of your own.

    >>> find_recipe("digits-vit").training.batch_size
    64
    """
    module, colon, function = name.partition(":")
    if not colon and name not in RECIPES:
        raise ValueError(f"recipe {name!r} is not known{nearest(name, RECIPES)} (your own: my_module:my_recipe)")
    recipe = own_recipe(module, function) if colon else RECIPES[name]
    if required := required_arguments(recipe):
        raise ValueError(f"recipe must need no argument, got {name}, which needs {', '.join(required)}")
    config = recipe()
    if not isinstance(config, RunConfig):
        raise ValueError(f"recipe must return a RunConfig, got {type(config).__name__} from {name}")
    return replace(config, name=config.name or (function or name).replace("_", "-"))


def required_arguments(function: Callable[..., object]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    starred = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in starred]


def own_recipe(module: str, function: str) -> Recipe:
    names = vars(import_own(module))
    if function not in names or not callable(names[function]):
        functions = [name for name, value in names.items() if callable(value) and not name.startswith("_")]
        raise ValueError(f"recipe must be a function of {module}, got {function!r}{nearest(function, functions)}")
    return names[function]


def import_own(name: str) -> object:
    """A module of the user's own, from the current directory or wherever Python finds it."""
    if "/" in name or not all(name.split(".")):
        raise ValueError(f"module must be a name such as my_module or my_package.my_module, got {name!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        looked = ", ".join(place or "this folder" for place in sys.path[:3])
        hint = f": leave out .py, {name.removesuffix('.py')!r}" if name.endswith(".py") else ""
        raise ValueError(f"module must be importable, got {name!r}{hint} (looked in {looked} ...)") from None


def own_classes(names: tuple[str, ...]) -> list[type]:
    """The configs and modules that are defined in modules of the user's own: what their files may name."""
    found = [value for name in names for value in vars(import_own(name)).values() if isinstance(value, type)]
    # Not what the modules import from elsewhere: a file must not build anything else.
    return [
        kind
        for kind in found
        if any(kind.__module__ == name or kind.__module__.startswith(f"{name}.") for name in names)
        and (is_dataclass(kind) or issubclass(kind, nn.Module))
    ]
