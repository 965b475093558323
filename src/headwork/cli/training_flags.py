"""The usual flags of `headwork train`: each is defined here once, and says which field of the run's config it sets."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from tyro.conf import arg

if TYPE_CHECKING:
    from headwork.training import RunConfig

Words = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Sets:
    """The field that a flag sets: the first of the paths that the config has.

    For a choice, `words` are names of classes by the word that people type; the first that the field allows is taken.
    """

    paths: tuple[str, ...]
    words: Words = ()


def sets(*paths: str, **words: tuple[str, ...]) -> Sets:
    return Sets(paths, tuple(words.items()))


POSITIONS = {
    "none": ("NoPositions",),
    "learned": ("LearnedPositions", "LearnedGrid"),
    "sinusoidal": ("SinusoidalPositions", "SinusoidalGrid"),
    "rotary": ("RotaryPositions",),
    "alibi": ("AlibiPositions",),
    "buckets": ("BucketPositions",),
    "relative": ("RelativePositions",),
}
POOLINGS = {"cls": ("ClassToken", "FirstToken"), "gap": ("MeanPooling",), "map": ("AttentionPooling",)}
LONGEST = 512
"""Learned positions, if the recipe had none."""


@dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    """What is changed most often; None leaves it as the recipe has it."""

    epochs: Annotated[int | None, arg(help="How often every example is seen."), sets("training.epochs")] = None
    steps: Annotated[int | None, arg(help="How many steps, instead of epochs."), sets("training.steps")] = None
    batch_size: Annotated[
        int | None, arg(help="Examples in a step, over all processes."), sets("training.batch_size")
    ] = None
    accumulate: Annotated[
        int | None, arg(help="Parts into which a step is split, to save memory."), sets("training.accumulate")
    ] = None
    lr: Annotated[float | None, arg(help="The highest learning rate."), sets("training.optimiser.lr")] = None
    seed: Annotated[
        int | None, arg(help="Of the weights, the order, dropout and augmentation."), sets("training.seed")
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"] | None, arg(help="Where to compute."), sets("training.device")
    ] = None
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"] | None, arg(help="Of the products."), sets("training.precision")
    ] = None
    strategy: Annotated[
        Literal["auto", "ddp", "fsdp"] | None, arg(help="Of several processes (torchrun)."), sets("training.strategy")
    ] = None
    compile: Annotated[bool, arg(help="Compile the model first (torch.compile)."), sets("training.compile")] = False
    workers: Annotated[int | None, arg(help="Processes that prepare batches ahead."), sets("training.workers")] = None
    evaluate_every: Annotated[
        int | None, arg(help="Steps between evaluations; an epoch unless given."), sets("training.evaluate_every")
    ] = None
    patience: Annotated[
        int | None, arg(help="Stop after so many evaluations without a better one."), sets("training.patience")
    ] = None
    text: Annotated[
        Path | None, arg(help="Learn from this UTF-8 file (language models)."), sets("data.text", "data")
    ] = None
    pooling: Annotated[
        Literal["cls", "gap", "map"] | None,
        arg(help="How the tokens become one vector to classify."),
        sets("model.pooling", "model.head.pooling", **POOLINGS),
    ] = None
    position: Annotated[
        Literal["none", "learned", "sinusoidal", "rotary", "alibi", "buckets", "relative"] | None,
        arg(help="The position code."),
        sets("model.position", **POSITIONS),
    ] = None
    norm: Annotated[
        Literal["pre", "post"] | None, arg(help="The norm before or after each sublayer."), sets("model.norm_order")
    ] = None

    @property
    def given(self) -> dict[str, object]:
        """The flags that were given, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(TrainingFlags)}
        return {name: value for name, value in values.items() if value is not None and value is not False}

    def overrides(self, config: "RunConfig") -> dict[str, object]:
        """The new values of the config's fields, by their paths."""
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"give epochs or steps, not both, got {self.epochs} and {self.steps}")
        hints = get_type_hints(TrainingFlags, include_extras=True)
        found: dict[str, object] = {}
        for name, value in self.given.items():
            (where,) = (extra for extra in hints[name].__metadata__ if isinstance(extra, Sets))
            path = first_path(config, name, value, where)
            found[path] = choose(config, name, str(value), path, where.words) if where.words else value
        for one, other in (("epochs", "steps"), ("steps", "epochs")):
            if one in self.given and other not in self.given:  # instead of what the recipe has
                found[f"training.{other}"] = None
        if self.text is not None:
            path = first_path(config, "text", self.text, Sets(("data.text", "data")))
            found[path] = text_file(config, path, self.text)
        return found


def first_path(config: "RunConfig", flag: str, value: object, where: Sets) -> str:
    """The first path that the config has."""
    for path in where.paths:
        inside: object = config
        for name in path.split("."):
            inside = getattr(inside, name, where)
        if inside is not where:
            return path
    kind = type(config.model).__name__.removesuffix("Config")
    raise ValueError(f"{flag} cannot be set for a {kind}, got {value}")


def choose(config: "RunConfig", flag: str, word: str, path: str, words: Words) -> object:
    """The choice that a word stands for, complete."""
    from headwork.recipes.overrides import choices_at

    allowed = choices_at(config, path) or []
    by_word = {each: kind for each, kinds in words for kind in kinds if kind in allowed}
    if word not in by_word:
        kind = type(config.model).__name__.removesuffix("Config")
        raise ValueError(f"{flag} must be one of {', '.join(by_word)} for a {kind}, got {word}")
    model: Any = config.model
    match by_word[word]:
        case "LearnedPositions" as kind:
            return {"kind": kind, "max_tokens": getattr(model.position, "max_tokens", LONGEST)}
        case "AttentionPooling" as kind:
            return {"kind": kind, "n_heads": model.heads.n_heads}
        case kind:
            return {"kind": kind}


def text_file(config: "RunConfig", path: str, file: Path) -> object:
    """The windows and tokens of the recipe, from another text."""
    from headwork.data import BundledText, TextFile
    from headwork.serialise import config_to_dict

    data: Any = config.data if path == "data" else config.data.text  # type: ignore[union-attr]
    if not isinstance(data, BundledText | TextFile):
        raise ValueError(f"text is for a language model, got {file} for {type(data).__name__}")
    before = {name: value for name, value in config_to_dict(data).items() if name in ("tokenizer", "n_context")}
    return {"kind": "TextFile", "path": str(file.resolve()), **before}
