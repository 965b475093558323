"""All recipes by name, and how one is changed on the way to the stove."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from headwork import choices
from headwork.checks import nearest
from headwork.data import BundledText, DataConfig, TextFile
from headwork.models.decoder import DecoderConfig
from headwork.models.encoder import EncoderConfig
from headwork.models.encoder_decoder import EncoderDecoderConfig
from headwork.models.published import AnyConfig as ModelConfig
from headwork.models.resnet import ResNetConfig
from headwork.models.vision_transformer import VisionTransformerConfig
from headwork.recipes.dates import dates
from headwork.recipes.digits import digits_gaussian, digits_resnet, digits_vit
from headwork.recipes.mnist import mnist_vit
from headwork.recipes.reviews import reviews_encoder
from headwork.recipes.text import text_gpt
from headwork.training.config import Device, Precision, RunConfig, Strategy

Recipe = Callable[[], RunConfig]
RECIPES: dict[str, Recipe] = {
    recipe.__name__.replace("_", "-"): recipe
    for recipe in (digits_vit, digits_gaussian, digits_resnet, mnist_vit, dates, text_gpt, reviews_encoder)
}
Pooling = Literal["cls", "gap", "map"]
Position = Literal["none", "learned", "sinusoidal", "rotary", "alibi", "buckets", "relative"]


def find_recipe(name: str) -> RunConfig:
    """The recipe of that name, complete.

    >>> find_recipe("digits-vit").training.batch_size
    64
    """
    if name not in RECIPES:
        raise ValueError(f"recipe {name!r} is not known{nearest(name, RECIPES)}")
    return RECIPES[name]()


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a cook may change; None leaves it as the recipe has it."""

    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    accumulate: int | None = None
    lr: float | None = None
    seed: int | None = None
    device: Device | None = None
    precision: Precision | None = None
    strategy: Strategy | None = None
    compile: bool | None = None
    workers: int | None = None
    evaluate_every: int | None = None
    patience: int | None = None
    text: Path | None = None
    pooling: Pooling | None = None
    position: Position | None = None
    norm: choices.NormOrder | None = None

    @property
    def given(self) -> dict[str, object]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def change(config: RunConfig, changes: Changes) -> RunConfig:
    """The recipe with the changes made, checked again as a whole."""
    given = changes.given
    training = config.training
    if changes.epochs is not None and changes.steps is not None:
        raise ValueError(f"give epochs or steps, not both, got {changes.epochs} and {changes.steps}")
    if changes.epochs is not None or changes.steps is not None:
        training = replace(training, epochs=changes.epochs, steps=changes.steps)
    if changes.lr is not None:
        training = replace(training, optimiser=replace(training.optimiser, lr=changes.lr))
    plain = {field.name for field in fields(training)} - {"epochs", "steps"}
    training = replace(training, **{name: value for name, value in given.items() if name in plain})  # type: ignore[arg-type]
    data = config.data if changes.text is None else with_text(config.data, changes.text)
    model = config.model
    for name, changed in (("pooling", with_pooling), ("position", with_position), ("norm", with_norm)):
        if name in given:
            model = changed(model, given[name])  # type: ignore[arg-type]  # each takes its own words
    return replace(config, training=training, model=model, data=data)


def with_text(data: DataConfig, path: Path) -> TextFile:
    """The windows and tokens of the recipe, cut from another text."""
    if not isinstance(data, BundledText):
        raise ValueError(f"text is for a language model, got {path} for {type(data).__name__}")
    return TextFile(path=str(path.resolve()), tokenizer=data.tokenizer, n_context=data.n_context)


def with_pooling(model: ModelConfig, pooling: Pooling) -> ModelConfig:
    """CLS: a token of its own is read; GAP: the mean of all; MAP: an attention of its own reads all."""
    match model:
        case VisionTransformerConfig():
            by_word: dict[Pooling, choices.ImagePooling] = {
                "cls": choices.ClassToken(),
                "gap": choices.MeanPooling(),
                "map": choices.AttentionPooling(n_heads=model.heads.n_heads),
            }
            return replace(model, pooling=by_word[pooling])
        case EncoderConfig(head=choices.ClassificationHead() as head):
            of_text: dict[Pooling, choices.TextPooling] = {
                "cls": choices.FirstToken(),
                "gap": choices.MeanPooling(),
                "map": choices.AttentionPooling(n_heads=model.heads.n_heads),
            }
            return replace(model, head=replace(head, pooling=of_text[pooling]))
        case _:
            raise ValueError(
                f"pooling is for a Vision Transformer or a text classifier, got {pooling} for a {_kind(model)}"
            )


def with_position(model: ModelConfig, position: Position) -> ModelConfig:
    """Any position code by its word."""
    match model:
        case VisionTransformerConfig():
            grid: dict[Position, choices.GridPositions] = {
                "none": choices.NoPositions(),
                "learned": choices.LearnedGrid(),
                "sinusoidal": choices.SinusoidalGrid(),
            }
            if position not in grid:
                raise ValueError(f"position must be one of {', '.join(grid)} for images, got {position}")
            return replace(model, position=grid[position])
        case EncoderConfig() | DecoderConfig() | EncoderDecoderConfig():
            text: dict[Position, choices.TextPositions] = {
                "none": choices.NoPositions(),
                "learned": model.position
                if isinstance(model.position, choices.LearnedPositions)
                else choices.LearnedPositions(max_tokens=512),
                "sinusoidal": choices.SinusoidalPositions(),
                "rotary": choices.RotaryPositions(),
                "alibi": choices.AlibiPositions(),
                "buckets": choices.BucketPositions(),
                "relative": choices.RelativePositions(),
            }
            return replace(model, position=text[position])
        case _:
            raise ValueError(f"position cannot be chosen for a {_kind(model)}, got {position}")


def with_norm(model: ModelConfig, order: choices.NormOrder) -> ModelConfig:
    if isinstance(model, ResNetConfig):
        raise ValueError(f"norm cannot be chosen for a {_kind(model)}, got {order}")
    return replace(model, norm_order=order)


def _kind(model: ModelConfig) -> str:
    return type(model).__name__.removesuffix("Config")
