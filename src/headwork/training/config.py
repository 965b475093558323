"""What a run is, complete: data, model and training. It is written to `config.json` and rebuilds everything."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from headwork.checks import check_above_zero, check_positive, check_probability
from headwork.data import DataConfig
from headwork.models import ModelConfig
from headwork.serialise import Checked

Precision = Literal["float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Strategy = Literal["auto", "ddp", "fsdp"]
LARGEST_COUNT = 10**9
"""Of steps, epochs and examples: one more is a key that was held down."""
MOST_WORKERS = 256
"""Each is a process."""
LrFactors = tuple[tuple[str, float], ...]


def _check_optimiser(config: "AdamW | SGD | Muon") -> None:
    check_above_zero(lr=config.lr, **{f"lr_factors[{glob!r}]": factor for glob, factor in config.lr_factors})
    if not 0 <= config.weight_decay < float("inf"):
        raise ValueError(f"weight_decay must be 0 or more and finite, got {config.weight_decay}")


@dataclass(frozen=True, kw_only=True)
class AdamW(Checked):
    """Adam with decay of the weight matrices, not of biases, norms, positions and embeddings."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8
    weight_decay: float = 0.05
    lr_factors: LrFactors = ()
    """(glob, factor): the learning rate of the parameters whose name matches is multiplied by the factor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_optimiser(self)
        check_probability(beta_1=self.betas[0], beta_2=self.betas[1])
        check_above_zero(eps=self.eps)


@dataclass(frozen=True, kw_only=True)
class SGD(Checked):
    """Gradient descent with Nesterov's momentum."""

    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    lr_factors: LrFactors = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_optimiser(self)
        check_probability(momentum=self.momentum)


@dataclass(frozen=True, kw_only=True)
class Muon(Checked):
    """Momentum made orthogonal for the matrices inside the layers, beside AdamW for all other parameters.

    `lr` and `weight_decay` are those of the matrices; what decays and which factors there are is as in `adamw`.
    """

    lr: float = 0.02
    momentum: float = 0.95
    weight_decay: float = 0.0
    lr_factors: LrFactors = ()
    adamw: AdamW = AdamW()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_optimiser(self)
        check_probability(momentum=self.momentum)
        if self.adamw.lr_factors:
            raise ValueError(f"lr_factors must be given to Muon itself, got {self.adamw.lr_factors} for its adamw")


@dataclass(frozen=True, kw_only=True)
class Cosine(Checked):
    """The learning rate rises for a share of all steps, then falls along a cosine to a share of its peak."""

    warmup: float = 0.1
    floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(warmup=self.warmup)
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor must lie in [0, 1], got {self.floor}")


@dataclass(frozen=True, kw_only=True)
class Constant(Checked):
    """The learning rate rises for a share of all steps, then stays."""

    warmup: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(warmup=self.warmup)


@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay(Checked):
    """The learning rate rises for a share of all steps, stays, and for the last share of them falls to `floor`.

    Hu et al., "MiniCPM", 2024.
    """

    warmup: float = 0.02
    decay: float = 0.2
    floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(warmup=self.warmup)
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor must lie in [0, 1], got {self.floor}")
        if not 0 <= self.decay <= 1 - self.warmup:
            raise ValueError(f"decay must lie in [0, 1 - warmup], got decay={self.decay} and warmup={self.warmup}")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Checked):
    """How a model is trained. `batch_size` is what one step sees, over all processes and accumulated parts together."""

    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    evaluate_every: int | None = None
    """Steps between evaluations on the validation data; one epoch unless given."""
    save_every: int | None = None
    """Steps between checkpoints, besides those at every evaluation."""
    accumulate: int = 1
    optimiser: AdamW | SGD | Muon = AdamW()
    schedule: Cosine | Constant | WarmupStableDecay = Cosine()
    clip: float | None = 1.0
    label_smoothing: float = 0.0
    """For tasks that have it; 0 leaves the task as it comes with the data."""
    class_weights: Literal["balanced"] | tuple[float, ...] | None = None
    """Of each class in the loss; "balanced" is n_examples / (n_classes x n_examples_of_the_class)."""
    ema: float | None = None
    """The decay of the moving average of the weights, which is then what is evaluated and kept."""
    patience: int | None = None
    """Stop after so many evaluations without a better one."""
    seed: int = 0
    device: Device = "auto"
    precision: Precision = "float32"
    strategy: Strategy = "auto"
    compile: bool = False
    zero_init_outputs: bool = False
    """Start with layers that add nothing: the last matrix of each attention and feed-forward network is zero.

    A model that is given, instead of its config, keeps the weights it has.
    """
    gradient_checkpointing: bool = False
    """Keep what goes into each layer, and compute the rest of it again in the backward pass: slower, and smaller."""
    batch_by_length: bool = False
    """Texts of about the same length share a batch, so that there is little padding."""
    workers: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(f"give epochs or steps, one of the two, got epochs={self.epochs} and steps={self.steps}")
        names = ("batch_size", "epochs", "steps", "evaluate_every", "save_every", "accumulate", "patience")
        counts: dict[str, int | None] = {name: getattr(self, name) for name in names}
        check_positive(**counts)
        for name, number in counts.items():
            if number is not None and number > LARGEST_COUNT:
                raise ValueError(f"{name} must be at most {LARGEST_COUNT:,}, got {number:,}")
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"accumulate must divide batch_size, got accumulate={self.accumulate} and batch_size={self.batch_size}"
            )
        if self.clip is not None:
            check_above_zero(clip=self.clip)
        if self.ema is not None:
            check_probability(ema=self.ema)
        check_probability(label_smoothing=self.label_smoothing)
        if self.strategy == "fsdp" and isinstance(self.optimiser, Muon):
            raise ValueError("optimiser must be AdamW or SGD with strategy='fsdp', which shards the matrices, got Muon")
        if not 0 <= self.workers <= MOST_WORKERS:
            raise ValueError(f"workers must lie in 0 .. {MOST_WORKERS}, got {self.workers}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in 0 .. 2**32 - 1, got {self.seed}")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Checked):
    """A run: its data, its model, and how it is trained."""

    name: str = ""
    """That of the recipe, or of the folder, unless given."""
    data: DataConfig | None
    """None: a `Dataset` was passed to `hw.train`, and has to be passed again to resume the run."""
    model: ModelConfig | nn.Module
    training: TrainingConfig
