"""Tokens of a text that is larger than memory, in a file that is mapped: only the windows that are read are loaded."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int32
from torch import Tensor

from headwork.storage.folders import explain_disk_errors, staging_path

CACHE = "HEADWORK_CACHE"


def cache_folder() -> Path:
    """Where files are kept that can be made again: what HEADWORK_CACHE says, or headwork in the user's cache."""
    if folder := os.environ.get(CACHE):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwork"


def mapped_tokens(about: str, pieces: Iterable[Int32[Tensor, "piece_token"]]) -> Int32[Tensor, "token"]:
    """The tokens in a file of the cache, which is written once for all that `about` says, and then only mapped."""
    folder = cache_folder() / "tokens"
    path = folder / f"{hashlib.sha256(about.encode()).hexdigest()[:32]}.int32"
    if not path.exists():
        staging = staging_path(path)
        with explain_disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with staging.open("wb") as file:
                    for piece in pieces:
                        file.write(piece.numpy().astype("<i4", copy=False).tobytes())
                staging.replace(path)
            finally:
                staging.unlink(missing_ok=True)
    n_tokens = path.stat().st_size // np.dtype(np.int32).itemsize
    if not n_tokens:
        return torch.empty(0, dtype=torch.int32)
    return torch.from_file(str(path), shared=True, size=n_tokens, dtype=torch.int32)
