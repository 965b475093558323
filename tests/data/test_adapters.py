"""Other people's data sets: random numbers that resume, and streams that are read in their order."""

import pickle
import random
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from headwork.data import Examples, MaskedText, StreamExamples, TextFile, TorchExamples
from headwork.training import TrainingConfig
from headwork.training.plan import Plan, training_batches

Pair = namedtuple("Pair", "x visible y")


class Noisy(torch.utils.data.Dataset):
    """Augments with all three global generators, as many do."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.rand(1).item() + random.random() + np.random.random()  # noqa: NPY002
        return torch.tensor([float(index), noise]), index


@pytest.mark.usefixtures("as_users_run_it")  # the checks of the test run draw from Python's generator
def test_what_a_data_set_draws_depends_on_seed_epoch_and_index_only() -> None:
    examples = TorchExamples(Noisy())
    assert isinstance(examples, Examples)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = examples.batch([3, 8], epoch=2)
    assert torch.equal(examples.batch([8], epoch=2)[0][0], first[0][1])
    assert not torch.equal(examples.batch([3], epoch=3)[0][0], first[0][0])
    assert not torch.equal(TorchExamples(Noisy(), seed=1).batch([3], epoch=2)[0][0], first[0][0])
    assert torch.equal(examples.batch([3])[0], examples.batch([3])[0])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]  # noqa: NPY002


def test_names_are_kept() -> None:
    batch = TorchExamples([Pair(torch.zeros(3), torch.ones(3).bool(), 1)] * 4).batch([0, 2])
    assert type(batch) is Pair
    assert batch.x.shape == (2, 3)


def stream(epoch: int | None) -> Iterator[tuple[float, int]]:
    OPENED.append(epoch)
    return (((100.0 * (epoch or 0)) + index, index) for index in range(30))


OPENED: list[int | None] = []


def test_a_stream_is_opened_once_for_each_epoch() -> None:
    OPENED.clear()
    examples = StreamExamples(stream, 30)
    assert isinstance(examples, Examples)
    training = TrainingConfig(batch_size=6, epochs=2)
    plan = Plan.of(examples, training)
    seen = [part[1].tolist() for (part,) in training_batches(plan, examples, 0)]
    assert seen == [list(range(first, first + 6)) for first in range(0, 30, 6)] * 2
    assert OPENED == [0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_resumes_by_skipping(workers: int) -> None:
    examples = StreamExamples(stream, 30)
    training = TrainingConfig(batch_size=6, epochs=2, accumulate=2, workers=workers)
    whole = list(training_batches(Plan.of(examples, training), examples, 0))
    rest = list(training_batches(Plan.of(examples, training), StreamExamples(stream, 30), 3))
    assert [[part[0].tolist() for part in parts] for parts in rest] == [
        [part[0].tolist() for part in parts] for parts in whole[3:]
    ]


def test_any_indices_and_going_back() -> None:
    examples = StreamExamples(stream, 30)
    assert examples.batch([9, 4, 9])[1].tolist() == [9, 4, 9]
    assert examples.batch([0])[1].tolist() == [0]
    again = pickle.loads(pickle.dumps(examples))
    assert again.batch([1], epoch=1)[0].tolist() == [101.0]


def test_a_stream_that_ends_early_is_named() -> None:
    with pytest.raises(ValueError, match="the stream must give n_examples=31 examples, got 30 in epoch None"):
        StreamExamples(stream, 31).batch([30])


def test_masks_are_those_of_bert() -> None:
    """15 % of the tokens are chosen; of these 80 % are masked, 10 % any token, 10 % as they were."""
    text = TextFile(path=str(Path(__file__).parents[2] / "LICENSE"), n_context=61)
    data = MaskedText(text=text).load()
    ids, original = (torch.cat(part) for part in zip(*(data.train.batch(range(90), e) for e in range(9)), strict=True))
    chosen = original >= 0
    assert chosen.float().mean().item() == pytest.approx(0.15, abs=0.01)
    masked = (ids[chosen] == data.tokenizer.mask).float().mean().item()
    same = (ids[chosen] == original[chosen]).float().mean().item()
    assert masked == pytest.approx(0.8, abs=0.02)
    assert same == pytest.approx(0.1, abs=0.02)
    assert (chosen.sum(1) > 0).all()
    whole = torch.cat([data.train.windows.batch(range(90), e).ids for e in range(9)])
    assert torch.equal(ids[~chosen], whole[~chosen])
    assert torch.equal(original[chosen], whole[chosen])


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"x": torch.zeros(2), "y": 1}, "got a dict with the keys 'x', 'y': let collate= make a tuple"),
        (torch.zeros(2), "got one tensor: there is no target"),
        ((torch.zeros(2), "cat"), r"got a target that is none \('cat', str\): a label is the number of its class"),
        (("some text", 1), r"got an input \(item 0\) that is none \('some text', str\)"),
    ],
)
def test_examples_that_are_no_tuples_of_tensors(example: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        TorchExamples([example, example]).batch([0, 1])
