"""The usual flags of `headwork train`: each is defined here once, with the field of the run's config that it sets."""

from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from tyro.conf import arg

if TYPE_CHECKING:
    from headwork.training import RunConfig

T = TypeVar("T")
Setting = Annotated[
    T | None,
    arg(help_behavior_hint=lambda value: f"(default: {'as in the recipe' if value == 'None' else value})"),
]

PATHS = {
    "lr": ("training.optimiser.lr",),
    "text": ("data.text", "data"),
    "pooling": ("model.pooling", "model.head.pooling"),
    "position": ("model.position",),
    "norm": ("model.norm_order",),
}
"""The field that a flag sets, the first of them that the config has; any other flag sets `training.FLAG`."""
CHOICES = {
    "pooling": {"cls": ("ClassToken", "FirstToken"), "gap": ("MeanPooling",), "map": ("AttentionPooling",)},
    "position": {
        "none": ("NoPositions",),
        "learned": ("LearnedPositions", "LearnedGrid"),
        "sinusoidal": ("SinusoidalPositions", "SinusoidalGrid"),
        "rotary": ("RotaryPositions",),
        "alibi": ("AlibiPositions",),
        "buckets": ("BucketPositions",),
        "relative": ("RelativePositions",),
    },
}
"""The classes that a word stands for; the first that the field allows is taken."""
LONGEST = 512
"""Learned positions, if the recipe had none."""


@dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    """What is changed most often; None leaves it as the recipe has it."""

    epochs: Setting[int] = None
    """How often every example is seen."""
    steps: Setting[int] = None
    """How many steps, instead of epochs."""
    batch_size: Setting[int] = None
    """Examples in a step, over all processes."""
    accumulate: Setting[int] = None
    """Parts into which a step is split, to save memory."""
    lr: Setting[float] = None
    """The highest learning rate."""
    seed: Setting[int] = None
    """Of the weights, the order, dropout and augmentation."""
    device: Setting[Literal["auto", "cpu", "cuda", "mps"]] = None
    """Where to compute."""
    precision: Setting[Literal["float32", "bfloat16", "float16"]] = None
    """Of the products."""
    strategy: Setting[Literal["auto", "ddp", "fsdp"]] = None
    """Of several processes (torchrun)."""
    compile: bool = False
    """Compile the model first (torch.compile)."""
    workers: Setting[int] = None
    """Processes that prepare batches ahead."""
    evaluate_every: Setting[int] = None
    """Steps between evaluations; an epoch unless given."""
    patience: Setting[int] = None
    """Stop after so many evaluations without a better one."""
    text: Setting[Path] = None
    """Learn from this UTF-8 file (language models)."""
    pooling: Setting[Literal["cls", "gap", "map"]] = None
    """How the tokens become one vector to classify."""
    position: Setting[Literal["none", "learned", "sinusoidal", "rotary", "alibi", "buckets", "relative"]] = None
    """The position code."""
    norm: Setting[Literal["pre", "post"]] = None
    """The norm before or after each sublayer."""

    @property
    def given(self) -> dict[str, object]:
        """The flags that were given, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(TrainingFlags)}
        return {name: value for name, value in values.items() if value is not None and value is not False}

    def overrides(self, config: "RunConfig") -> dict[str, object]:
        """The new values of the config's fields, by their paths."""
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"give epochs or steps, not both, got {self.epochs} and {self.steps}")
        found: dict[str, object] = {}
        for name, value in self.given.items():
            path = find_path(config, name)
            if path is None:
                raise ValueError(f"{name} cannot be set for a {_kind(config)}, got {value}")
            found[path] = value
            if name in CHOICES:
                found[path] = choose(config, name, str(value), path)
            if isinstance(value, Path):
                found[path] = text_file(attrgetter(path)(config), value)
        for one, other in (("epochs", "steps"), ("steps", "epochs")):
            if one in self.given:  # instead of what the recipe has
                found[f"training.{other}"] = None
        return found


def values_of(config: "RunConfig") -> dict[str, Any]:
    """The values of the flags in a config, as one would type them: what `headwork train RECIPE --help` shows."""
    values = {}
    for flag in (field.name for field in fields(TrainingFlags)):
        path = find_path(config, flag)
        if path is not None and flag != "text":
            value = values[flag] = attrgetter(path)(config)
            if flag in CHOICES:
                kind = type(value).__name__
                values[flag] = next((word for word, kinds in CHOICES[flag].items() if kind in kinds), None)
    return values


def find_path(config: "RunConfig", flag: str) -> str | None:
    """The field of the config that a flag sets, if there is one."""
    for path in PATHS.get(flag, (f"training.{flag}",)):
        try:
            attrgetter(path)(config)
        except AttributeError:
            continue
        return path
    return None


def choose(config: "RunConfig", flag: str, word: str, path: str) -> object:
    """The choice that a word stands for, complete."""
    from headwork.recipes.overrides import choices_at

    allowed = choices_at(config, path) or []
    by_word = {each: kind for each, kinds in CHOICES[flag].items() for kind in kinds if kind in allowed}
    if word not in by_word:
        raise ValueError(f"{flag} must be one of {', '.join(by_word)} for a {_kind(config)}, got {word}")
    model: Any = config.model
    match by_word[word]:
        case "LearnedPositions" as kind:
            return {"kind": kind, "max_tokens": getattr(model.position, "max_tokens", LONGEST)}
        case "AttentionPooling" as kind:
            return {"kind": kind, "n_heads": model.heads.n_heads}
        case kind:
            return {"kind": kind}


def text_file(data: Any, file: Path) -> object:
    """The windows and tokens of the recipe's text, from another file."""
    from headwork.data import BundledText, TextFile
    from headwork.serialise import config_to_dict

    if not isinstance(data, BundledText | TextFile):
        raise ValueError(f"text is for a language model, got {file} for {type(data).__name__}")
    before = {name: value for name, value in config_to_dict(data).items() if name in ("tokenizer", "n_context")}
    return {"kind": "TextFile", "path": str(file.resolve()), **before}


def _kind(config: "RunConfig") -> str:
    return type(config.model).__name__.removesuffix("Config")
