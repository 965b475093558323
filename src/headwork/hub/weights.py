"""The tensors in a folder from elsewhere: safetensors, or pickles of which nothing but tensors is read.

Files are mapped into memory, and each tensor is read when it is asked for or used.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headwork.hub.pickles import read_pickle
from headwork.storage import DamagedError
from headwork.storage.sealed_json import parse_json, read_text

SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"
OTHERS = (".h5", ".msgpack", ".ckpt.index", ".onnx", ".safetensors", ".bin", ".pt", ".pth")
"""How files end that weights are in as well, of TensorFlow, Flax and ONNX, or under another name."""
LFS = b"version https://git-lfs"
DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
"""Of real numbers; the rest (integers, booleans, 8 bits) are weights that were quantised, or no weights."""


@runtime_checkable
class Stored(Protocol):
    """A tensor in a file, whose numbers are not read yet."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> torch.dtype | None:
        """None if it is not one of `DTYPES`."""

    def read(self, *, keep: bool = False) -> Tensor:
        """Its numbers, which may be another's too unless a model is to keep them."""


class _InSafetensors:
    """What a model keeps is the mapped file, privately: what the model writes there does not come into the file.

    For the rest the file is mapped anew for each tensor, so that those before it do not stay in memory.
    """

    def __init__(self, file: Any, name: str, path: Path) -> None:
        about = file.get_slice(name)
        self.shape, self.dtype = tuple(about.get_shape()), DTYPES.get(about.get_dtype())
        self._file, self._name, self._path = file, name, path

    def read(self, *, keep: bool = False) -> Tensor:
        with _explain(self._path):
            if keep:
                return self._file.get_tensor(self._name)
            with safe_open(self._path, framework="pt") as file:
                return file.get_tensor(self._name)


class _InPickle:
    def __init__(self, tensor: Tensor) -> None:
        self.shape, self._tensor = tuple(tensor.shape), tensor
        self.dtype = tensor.dtype if tensor.dtype in DTYPES.values() else None

    def read(self, *, keep: bool = False) -> Tensor:
        return self._tensor.clone(memory_format=torch.contiguous_format) if keep else self._tensor


@contextmanager
def open_weights(folder: Path) -> Iterator[dict[str, Stored]]:
    """The tensors of all files of a folder by their names, as long as the block lasts."""
    with ExitStack() as stack:
        for kind, read in ((SAFETENSORS, _open_safetensors), (PICKLE, _open_pickle)):
            if (folder / kind).is_file():
                yield read(folder / kind, stack)
                return
            if (folder / (kind + INDEX)).is_file():
                yield _open_shards(folder / (kind + INDEX), read, stack)
                return
        others = sorted(path.name for end in OTHERS for path in folder.glob(f"*{end}"))
        got = f"{folder}, whose weights are in {', '.join(others)}" if others else folder
        raise ValueError(f"folder must hold {SAFETENSORS}, {PICKLE} or the index of one in parts, got {got}")


def has_weights(folder: Path) -> bool:
    """Whether there is anything that `open_weights` reads."""
    return any((folder / (kind + end)).is_file() for kind in (SAFETENSORS, PICKLE) for end in ("", INDEX))


def _open_shards(index: Path, read: Any, stack: ExitStack) -> dict[str, Stored]:
    """The tensors of all files that an index names, each of which must be where the index says."""
    where = read_json(index).get("weight_map")
    if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values()):
        raise DamagedError(f"{index} is damaged: weight_map must name the file of each tensor")
    tensors: dict[str, Stored] = {}
    for file in sorted(set(where.values())):
        if file != Path(file).name or not (index.parent / file).is_file():
            raise DamagedError(f"{index} names the file {file!r}, which is not in the folder")
        in_file = read(index.parent / file, stack)
        stated = {name for name, name_of_file in where.items() if name_of_file == file}
        if stated != in_file.keys():
            wrong = ", ".join(sorted(stated ^ in_file.keys()))
            raise DamagedError(f"{index} and {file} must name the same tensors, and differ in {wrong}")
        tensors |= in_file
    return tensors


def _open_safetensors(path: Path, stack: ExitStack) -> dict[str, Stored]:
    with _explain(path):
        file = stack.enter_context(safe_open(path, framework="pt"))
        return {name: _InSafetensors(file, name, path) for name in file.keys()}  # noqa: SIM118  # it is no dict


def _open_pickle(path: Path, stack: ExitStack) -> dict[str, Stored]:
    check_is_there(path)
    return {name: _InPickle(tensor) for name, tensor in read_pickle(path).items()}


@contextmanager
def _explain(path: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:
        check_is_there(path)
        with path.open("rb") as file:
            start = file.read(4)
        if start.startswith((b"PK", b"\x80")):
            raise DamagedError(f"{path} is a pickle, and was promised to be safetensors") from None
        raise DamagedError(f"{path} is damaged: {error}") from None


def check_is_there(path: Path) -> None:
    """Raise for what Git leaves in the place of a large file that was not fetched."""
    with path.open("rb") as file:
        if file.read(len(LFS)) == LFS:
            raise DamagedError(f"{path} is a pointer of Git LFS, not the file itself: `git lfs pull` fetches it")


def read_json(path: Path) -> dict[str, object]:
    """The object in a file of somebody else's folder, which may lack it."""
    if not path.exists():
        others = sorted(other.name for other in path.parent.glob(f"*{path.name}"))
        got = f"{path.parent} with {', '.join(others)}: rename it" if len(others) == 1 else path.parent
        raise ValueError(f"folder must hold a {path.name}, got {got}")
    return parse_json(read_text(path), path)
