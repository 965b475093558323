"""Gaussian heads that a visitor has moved: for the one question, and in a new folder if asked."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from headwork.convert import convolution_from_attention
from headwork.explorer.questions import Move, RefusedError
from headwork.explorer.subject import Subject
from headwork.functional.gaussian import full_precision
from headwork.layers.gaussian import GaussianAttention
from headwork.storage import save

LARGEST_ALPHA, FARTHEST = 1e4, 1e3


@contextmanager
def heads_moved(subject: Subject, moves: tuple[Move, ...]) -> Iterator[None]:
    """The heads look elsewhere inside the block; the model is as it was afterwards."""
    layers = subject.gaussian
    kept = {i: (layer.centre.detach().clone(), layer.sharpness.detach().clone()) for i, layer in layers.items()}
    try:
        for move in moves:
            _check(move, layers)
            layer = layers[move.attention]
            centre, alpha = layer.centre.detach().clone(), layer.alpha.detach().clone()
            centre[move.head] = torch.tensor(move.centre)
            alpha[move.head] *= move.alpha / float(mean_alpha(alpha)[move.head])
            layer.set_centres(centre, alpha)
        yield
    finally:
        with torch.no_grad():
            for number, (centre, sharpness) in kept.items():
                layers[number].centre.copy_(centre)
                layers[number].sharpness.copy_(sharpness)


def mean_alpha(alpha: Tensor) -> Float[Tensor, "head"]:
    """One number for the sharpness of each head: the precision itself, or the geometric mean of its two."""
    return torch.linalg.det(full_precision(alpha).double()).clamp(min=1e-30).sqrt().float()


def _check(move: Move, layers: dict[int, GaussianAttention]) -> None:
    if move.attention not in layers or not 0 <= move.head < layers[move.attention].n_heads:
        raise RefusedError(f"There is no Gaussian head {move.head} in attention {move.attention} to move.")
    if not 0 < move.alpha <= LARGEST_ALPHA:
        raise RefusedError(f"alpha must lie in (0, {LARGEST_ALPHA:g}], got {move.alpha:g}")
    if max(map(abs, move.centre)) > FARTHEST:
        raise RefusedError(f"a centre must lie within {FARTHEST:g} patches, got {move.centre}")


@dataclass(frozen=True)
class NearestConvolution:
    """What the heads of a layer come to as a convolution."""

    error_bound: float
    kernel: Float[Tensor, "head row column"]
    single_pixel: Float[Tensor, "head"]


def nearest_convolution(subject: Subject, attention: int, kernel_size: int) -> NearestConvolution:
    layer = subject.gaussian.get(attention)
    if layer is None:
        raise RefusedError(f"Attention {attention} has no Gaussian heads.")
    grid = subject.grid
    if not 1 <= kernel_size <= min(grid):
        raise RefusedError(f"The kernel must have 1 .. {min(grid)} patches along each side, got {kernel_size}.")
    found = convolution_from_attention(layer, kernel_size, grid)
    centre = grid[0] // 2, grid[1] // 2
    seen = layer.seen_from(grid, centre)
    top, left = (centre[i] - (kernel_size - 1) // 2 for i in (0, 1))
    kernel = seen[:, max(top, 0) : top + kernel_size, max(left, 0) : left + kernel_size]
    return NearestConvolution(found.error_bound, kernel, found.single_pixel)


def save_moved(subject: Subject, moves: tuple[Move, ...]) -> Path:
    """A new folder beside the one that was opened, with the heads where they are now."""
    if subject.folder is None:
        raise RefusedError("The model is not from a folder: save it from Python, with hw.save.")
    if not moves:
        raise RefusedError("No head has been moved: there is nothing new to save.")
    parent, name = subject.folder.resolve().parent, subject.folder.resolve().name
    for number in range(1, 1000):
        folder = parent / f"{name}-moved-{number}"
        if not folder.exists():
            break
    with heads_moved(subject, moves):
        try:
            save(subject.model, folder)
        except (OSError, ValueError) as error:
            raise RefusedError(f"The model cannot be saved in {parent}: {error}.") from None
    return folder


def half_radius(alpha: float) -> float:
    """The radius of the circle that holds half of a head's weight, in patches."""
    return math.sqrt(math.log(2) / alpha)
