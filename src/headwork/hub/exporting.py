"""A model as one file for other programs: ONNX (`model.onnx`) or a program of torch.export (`model.pt2`).

The file takes any batch size and, for texts, any length up to the model's own. There is no key-value cache in it: each
call reads the whole text and gives the scores of every token.
"""

import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwork.checks import with_article
from headwork.extras import need
from headwork.models import Description, describe
from headwork.models.model import evaluation_mode

AXES: dict[str, dict[str, tuple[str, ...]]] = {
    "text": {"ids": ("batch", "token"), "visible": ("batch", "token")},
    "text pair": {
        "source": ("batch", "source_token"),
        "target": ("batch", "token"),
        "source_visible": ("batch", "source_token"),
    },
    "image": {"image": ("batch",)},
}
"""The inputs of a file with the axes that may have any size; `visible` is True for the real tokens."""
LENGTHS, BATCHES = (1, 4, 7), (1, 3)
"""What every file is tried with before it is handed over."""
LARGEST_FILE = 1_500_000_000
"""Of weights in bytes: more than about 2 GB do not fit into one ONNX file, and are put beside it."""
TOLERANCE = 1e-3
"""How far scores may be from the model's, as a share of the largest: kernels of others round otherwise."""

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Exported:
    """What was written, and how far its answers are from the model's."""

    file: Path
    inputs: dict[str, tuple[str | int, ...]]
    """Each input with its axes: a word for one of any size."""
    largest_difference: float
    """Over batches of 1 and 3, and for texts three lengths with padding on either side."""
    largest_output: float
    cache: bool = False

    def __str__(self) -> str:
        inputs = ", ".join(f"{name} ({', '.join(map(str, axes))})" for name, axes in self.inputs.items())
        off = f"off by at most {self.largest_difference:.2g}, of up to {self.largest_output:.3g}"
        return f"{self.file}: {inputs}; {off}; without a cache"


def export(model: nn.Module, file: Path | str) -> Exported:
    """Write a model to a new `.onnx` or `.pt2` file, run the file, and compare its answers with the model's.

    The inputs are `ids` and `visible` (text), `source`, `target` and `source_visible` (a pair), or `image` (of the
    model's own size). Whatever has no description is refused; `torch.export` and `torch.onnx.export` are for that.
    """
    path = Path(file)
    writers = {".onnx": write_onnx, ".pt2": write_program}
    if path.suffix not in writers:
        raise ValueError(f"file must end in {' or '.join(writers)}, got {path}")
    if path.exists():
        raise ValueError(f"file must be a new one, got {path}, which exists")
    description = describe(model)
    if description is None:
        got = with_article(type(model).__name__)
        raise ValueError(
            f"model must be a whole one, that reads ids or images (it has a description of them), got {got}: "
            "for other modules there are torch.export and torch.onnx.export"
        )
    if path.suffix == ".onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            need(package)
    path.parent.mkdir(parents=True, exist_ok=True)
    with evaluation_mode(model), torch.no_grad(), tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        staging = Path(folder) / path.name
        example = make_inputs(model, description, 2, 5)
        with _quiet():
            run = writers[path.suffix](model, example, AXES[description.input], staging)
            off, largest = compare(model, description, run)
        if not off <= TOLERANCE * max(largest, 1.0):
            raise RuntimeError(
                f"{path} would answer otherwise than the model: off by {off:.2g}, of up to {largest:.3g}"
            )
        for written in sorted(staging.parent.iterdir(), reverse=True):  # the weights beside the file come first
            shutil.move(written, path.parent / written.name)
    axes: dict[str, tuple[str | int, ...]] = {
        name: (*AXES[description.input][name], *example[name].shape[len(AXES[description.input][name]) :])
        for name in example
    }
    return Exported(path, axes, off, largest)


Run = Callable[[Inputs], Tensor]
"""The file in use."""


def write_onnx(model: nn.Module, example: Inputs, axes: dict[str, tuple[str, ...]], path: Path) -> Run:
    """Beside the file there may be one with its weights, `model.onnx.data`."""
    import onnxruntime

    n_bytes = sum(tensor.nbytes for tensor in model.state_dict().values())
    torch.onnx.export(
        model,
        (),
        str(path),
        kwargs=example,
        dynamic_shapes={name: dict(enumerate(words)) for name, words in axes.items()},
        output_names=["output"],
        dynamo=True,
        external_data=n_bytes > LARGEST_FILE,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(inputs: Inputs) -> Tensor:
        (output,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        return torch.from_numpy(output)

    return run


def write_program(model: nn.Module, example: Inputs, axes: dict[str, tuple[str, ...]], path: Path) -> Run:
    dynamic = {name: dict.fromkeys(range(len(words)), torch.export.Dim.DYNAMIC) for name, words in axes.items()}
    torch.export.save(torch.export.export(model, (), example, dynamic_shapes=dynamic), path)
    program = torch.export.load(path).module()
    return lambda inputs: program(**inputs)


def make_inputs(
    model: nn.Module, description: Description, batch: int, n_tokens: int, *, pad_left: bool = False
) -> Inputs:
    """Inputs of one size; the last row of a text has padding on one side, if it has two tokens or more."""
    parameter = next(model.parameters())
    generator = torch.Generator().manual_seed(batch + n_tokens)
    if description.input == "image":
        assert description.n_channels is not None
        size = (batch, description.n_channels, *(description.image or (32, 32)))
        return {"image": torch.rand(size, generator=generator).to(parameter)}
    ids = torch.randint(description.vocab or 1, (batch, n_tokens), generator=generator, device="cpu")
    visible = torch.ones(batch, n_tokens, dtype=torch.bool)
    visible[-1, slice(0, n_tokens // 2) if pad_left else slice((n_tokens + 1) // 2, None)] = False
    device = parameter.device
    if description.input == "text":
        return {"ids": ids.to(device), "visible": visible.to(device)}
    target = torch.randint(description.n_outputs, (batch, n_tokens + 1), generator=generator, device="cpu")
    return {"source": ids.to(device), "target": target.to(device), "source_visible": visible.to(device)}


def compare(model: nn.Module, description: Description, run: Run) -> tuple[float, float]:
    """The largest difference of the file's answers from the model's, and the largest answer."""
    off = largest = 0.0
    lengths = [n for n in LENGTHS if n <= (description.max_tokens or n)]
    for n_tokens in (1,) if description.input == "image" else lengths:
        for batch in BATCHES:
            for pad_left in (False, True):
                inputs = make_inputs(model, description, batch, n_tokens, pad_left=pad_left)
                wanted, found = model(**inputs), run(inputs)
                if wanted.shape != found.shape or not found.isfinite().all():
                    return float("inf"), largest
                off, largest = max(off, _most(found - wanted)), max(largest, _most(wanted))
    return off, largest


def _most(values: Tensor) -> float:
    return values.abs().max().item()


@contextmanager
def _quiet() -> Iterator[None]:
    """The libraries speak of packages that are not needed, and of their own plans."""
    logger: Any = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
