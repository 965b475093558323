"""Weights in pickles: read once without making anything, and only then by PyTorch's reader of weights.

That reader runs no code of a file's, but a file can still ask it for ten gigabytes of nothing (`bytearray(10**10)`), or
for tensors of other kinds. So nothing but a dictionary of plain tensors is let through to it, and each must have all
its numbers in the file.
"""

import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from headwork.storage import DamagedError

LARGEST_PICKLE = 2**27
"""Bytes of names and shapes, without the numbers."""
N_LEGACY = 4
"""Pickles at the start of a file before 2020: two numbers, the machine, and the tensors."""
NAMES = {
    *("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter", "torch.storage.UntypedStorage"),
    *(f"torch.{kind}Storage" for kind in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char")),
    *(f"torch.{kind}Storage" for kind in ("Byte", "Bool")),
}
"""What a state dict of plain tensors is made of, beside dictionaries."""


def read_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors in a file by their names; whatever else it is, is refused."""
    try:
        is_zip = check_pickle(path)
        with warnings.catch_warnings(action="ignore"):
            tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except pickle.UnpicklingError as error:
        found = re.search(r"(?:WeightsUnpickler error: )?(.*?)( was not an allowed|\n|$)", str(error))
        reason = f": {found[1]}" if found and found[1] else ""
        raise DamagedError(f"{path} is refused, since it is damaged or holds more than tensors{reason}") from None
    except Exception as error:  # damage makes both readers raise anything
        reason = str(error).partition("\n")[0]
        raise DamagedError(f"{path} is damaged: {type(error).__name__}, {reason}") from None
    if not isinstance(tensors, Mapping) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise DamagedError(f"{path} must hold tensors by their names, got something else")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise DamagedError(f"{path} must hold plain tensors, got {tensor.layout} on {tensor.device} for {name}")
        n_needed, n_stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
        if n_needed > n_stored:  # few numbers that are repeated, by a stride of 0
            rule = f"every number of its tensors, got {n_stored:,} bytes for the {n_needed:,} of {name}"
            raise DamagedError(f"{path} must hold {rule}, of shape {tuple(tensor.shape)}")
    return {str(name): tensor.detach() for name, tensor in tensors.items()}


def check_pickle(path: Path) -> bool:
    """Raise if the file would make anything but plain tensors; whether it is a zip, as PyTorch writes since 2020."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            for _ in range(N_LEGACY):
                _DryRun(file).load()
                if not file.peek(1):
                    break
        return False
    with zipfile.ZipFile(path) as zipped:
        for info in zipped.infolist():
            if info.compress_type != zipfile.ZIP_STORED:
                raise pickle.UnpicklingError(f"{info.filename} is compressed, as PyTorch writes no weights")
            if info.filename.endswith(".pkl"):
                if info.file_size > LARGEST_PICKLE:
                    raise pickle.UnpicklingError(f"{info.filename} must have at most {LARGEST_PICKLE:,} bytes")
                with zipped.open(info) as file:
                    _DryRun(file).load()
    return True


class _DryRun(pickle.Unpickler):
    """Goes through a pickle as the real reader will, with nothing in the place of each tensor."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if f"{module}.{name}" in NAMES:
            return _nothing
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, about: object) -> None:
        """A storage: its numbers are not read."""


def _nothing(*_: object) -> None:
    """In the place of a tensor."""
