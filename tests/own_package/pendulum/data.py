import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from headwork.data import Dataset, StreamExamples
from pendulum.task import Frequency


@dataclass(frozen=True, kw_only=True)
class Oscillations:
    """A stream of them, other noise in each epoch; it could as well be read from files or from a network."""

    n_train: int = 96
    noise: float = 0.1

    def load(self, seed: int = 0) -> Dataset:
        train, valid, test = (
            StreamExamples(partial(self.stream, part, seed), n_examples)
            for part, n_examples in enumerate((self.n_train, 24, 24))
        )
        return Dataset(train, valid, test, task=Frequency())

    def stream(self, part: int, seed: int, epoch: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        chance = torch.Generator().manual_seed(1_000_000 * part + 1000 * seed + (0 if epoch is None else 1 + epoch))
        while True:
            frequency = 0.5 + torch.rand((), generator=chance)
            phase = 2 * math.pi * torch.rand((), generator=chance)
            noise = self.noise * torch.randn(32, generator=chance)
            yield torch.sin(frequency * torch.arange(32) + phase) + noise, frequency
