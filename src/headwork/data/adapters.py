"""Data sets of others as examples: a list of PyTorch's kind, and a stream that is opened for each epoch."""

import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import default_collate

from headwork.batches import Batch
from headwork.data.examples import choose
from headwork.seeds import unchanged_rng_states

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True, eq=False)
class TorchExamples:
    """A map-style PyTorch data set of tuples whose last item is the target.

    What it draws at random (PyTorch's, Python's or NumPy's global numbers) becomes a function of seed, epoch and index.

    >>> examples = TorchExamples([(torch.zeros(3), 0), (torch.ones(3), 1)])
    >>> examples.batch([1, 0])
    (tensor([[1., 1., 1.],
            [0., 0., 0.]]), tensor([1, 0]))
    """

    dataset: TorchDataset[Any] | Sequence[Any]
    seed: int = 0
    collate: Collate = default_collate

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # a map-style data set has a length

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> Batch:
        chosen = choose(indices, len(self)).tolist()
        with unchanged_rng_states():
            items = []
            for index in chosen:
                _reseed(self.seed, 0 if epoch is None else 1 + epoch, index)
                items.append(self.dataset[index])
        return _as_batch(self.collate(items))


@dataclass(eq=False)
class StreamExamples:
    """A stream of examples (tuples whose last item is the target), opened anew for each epoch and read in its order.

    `open` gets the epoch, or None for the examples as they are. Nothing is shuffled, and a run that is resumed skips
    what it has read, so the stream must give the same examples in the same order each time.

    >>> examples = StreamExamples(lambda epoch: ((float(i), i) for i in range(10)), n_examples=10)
    >>> examples.batch([2, 3])
    (tensor([2., 3.], dtype=torch.float64), tensor([2, 3]))
    """

    open: Callable[[int | None], Iterable[Any]]
    n_examples: int
    collate: Collate = default_collate
    sequential: bool = field(default=True, init=False)
    """The order of training is that of the examples."""
    _opened: tuple[int, int | None, int, Iterator[Any]] | None = field(default=None, init=False, repr=False)
    """The process that reads, the epoch, the index of the next example, and the stream."""

    def __len__(self) -> int:
        return self.n_examples

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_opened": None}

    def batch(self, indices: Sequence[int], epoch: int | None = None) -> Batch:
        items: dict[int, Any] = {}
        for index in sorted(set(choose(indices, len(self)).tolist())):
            items[index] = self._read(index, epoch)
        return _as_batch(self.collate([items[index] for index in indices]))

    def _read(self, index: int, epoch: int | None) -> Any:
        # A process that was forked shares the files of its parent, and must open its own.
        if self._opened is None or self._opened[:2] != (os.getpid(), epoch) or self._opened[2] > index:
            self._opened = (os.getpid(), epoch, 0, iter(self.open(epoch)))
        process, _, position, stream = self._opened
        for at in range(position, index + 1):
            try:
                item = next(stream)
            except StopIteration:
                self._opened = None
                raise ValueError(
                    f"the stream must give n_examples={self.n_examples} examples, got {at} in epoch {epoch}"
                ) from None
        self._opened = (process, epoch, index + 1, stream)
        return item


def _as_batch(collated: Any) -> Batch:
    """The tensors of a batch; raise where an example is not a tuple of them."""
    shape = "an example must be a tuple (input, ..., target) of tensors and numbers"
    if isinstance(collated, Mapping):
        keys = ", ".join(map(repr, collated))
        raise TypeError(f"{shape}, got a dict with the keys {keys}: let collate= make a tuple of them, the target last")
    if isinstance(collated, Tensor):
        raise TypeError(f"{shape}, got one tensor: there is no target")
    batch = tuple(collated) if isinstance(collated, list) else collated
    for index, part in enumerate(batch):
        if not isinstance(part, Tensor):
            name = "a target" if index == len(batch) - 1 else f"an input (item {index})"
            what = f"{part[0]!r}, {type(part[0]).__name__}" if isinstance(part, list | tuple) and part else repr(part)
            labels = ": a label is the number of its class, 0 for the first" if name == "a target" else ""
            raise TypeError(f"{shape}, got {name} that is none ({what}){labels}")
    return batch


def _reseed(*words: int) -> None:
    """Seed the global generators for one example."""
    seed = np.random.SeedSequence([*words, *b"items"]).generate_state(1)[0].item()
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
