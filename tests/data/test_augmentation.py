"""Images that vary: each operation is that of Pillow or of its paper's equation, and a function of the example."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from torch.nn import functional as F

from headwork.data import Augmentation
from headwork.data.augmentation import (
    OPERATIONS,
    Affine,
    auto_contrast,
    brightness,
    colour,
    contrast,
    cut_boxes,
    distort,
    erase,
    posterize,
    shift_images,
    solarize,
)
from headwork.data.image_examples import ImageExamples, move_images
from headwork.tasks import Classification

EVERYTHING = Augmentation(crop=2, flip=True, rand_augment=2, erase=0.5, mixup=0.8, cutmix=1.0)


def pictures(n: int, shape=(3, 7, 11), seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8))


def examples(augment: Augmentation, n: int = 30, seed: int = 0) -> ImageExamples:
    return ImageExamples(pictures(n), torch.arange(n) % 5, augment, seed, n_classes=5)


def by_pillow(images: torch.Tensor, change) -> torch.Tensor:
    changed = [np.asarray(change(Image.fromarray(image.permute(1, 2, 0).numpy()))) for image in images]
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (brightness, ImageEnhance.Brightness),
        (colour, ImageEnhance.Color),
        (contrast, ImageEnhance.Contrast),
    ],
)
@pytest.mark.parametrize("amount", [-0.9, -0.3, 0.0, 0.4])
def test_enhancements_are_pillows(ours, theirs, amount: float) -> None:
    images = pictures(3)
    wanted = by_pillow(images, lambda image: theirs(image).enhance(1 + amount)).float()
    found = ours(images.float() / 255, torch.full((3,), amount)) * 255
    assert (found - wanted).abs().max() <= 2  # Pillow rounds its greys to whole numbers


def test_levels_are_pillows() -> None:
    images = pictures(3)
    for bits in (4, 6, 8):
        wanted = by_pillow(images, lambda image, bits=bits: ImageOps.posterize(image, bits)).float()
        found = posterize(images.float() / 255, torch.full((3,), (8 - bits) / 4)) * 255
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3)
    wanted = by_pillow(images, lambda image: ImageOps.solarize(image, 153)).float()
    torch.testing.assert_close(solarize(images.float() / 255, torch.full((3,), -0.4)) * 255, wanted, rtol=0, atol=1e-3)
    wanted = by_pillow(images, ImageOps.autocontrast).float()
    found = auto_contrast(images.float() / 255, torch.zeros(3)) * 255
    assert (found - wanted).abs().max() <= 1


def test_rotations_and_shifts_are_moves() -> None:
    images = pictures(2).float() / 255
    amount, no = torch.tensor([0.3, -0.2]), torch.zeros(2)
    turned = Affine(rotation=math.radians(90))(images, amount)
    torch.testing.assert_close(turned, move_images(images, torch.zeros(2, 2), math.radians(90) * amount, no + 1))
    down = Affine(row=0.5)(images, amount)
    torch.testing.assert_close(
        down, move_images(images, torch.stack([3.5 * amount, no], 1), no, no + 1), atol=1e-5, rtol=0
    )


def test_a_shear_moves_rows_by_their_distance_from_the_middle() -> None:
    images = torch.zeros(1, 1, 5, 9)
    images[..., 4] = 1
    sheared = Affine(column_shear=1.0)(images, torch.tensor([1.0]))[0, 0]
    assert sheared.argmax(1).tolist() == [2, 3, 4, 5, 6]


@settings(max_examples=30, deadline=None)
@given(row=st.integers(-3, 3), column=st.integers(-3, 3))
def test_a_crop_is_a_window_of_the_padded_image(row: int, column: int) -> None:
    image = pictures(1).float()
    padded = F.pad(image, (3, 3, 3, 3))
    wanted = padded[:, :, 3 - row : 10 - row, 3 - column : 14 - column]
    assert torch.equal(shift_images(image, torch.tensor([[row, column]])), wanted)


def test_crops_and_flips_are_as_frequent_as_said() -> None:
    marked = torch.zeros(2000, 1, 9, 9)
    marked[..., 4, 4] = 1
    vary = Augmentation(crop=2).vary(marked, torch.rand(2000, 12, dtype=torch.float64))
    counts = vary.sum((0, 1))[2:7, 2:7]
    assert counts.sum() == 2000
    assert 40 < counts.min() <= counts.max() < 130  # 80 in each of 25 places
    flipped = Augmentation(flip=True).vary(pictures(1).expand(1000, 3, 7, 11).float(), torch.rand(1000, 12))
    assert 400 < (flipped == pictures(1).float()).all((1, 2, 3)).sum() < 600


def test_an_erased_rectangle_is_the_mean() -> None:
    images = pictures(500, (3, 32, 32)).float() / 255
    numbers = torch.rand(500, 5)
    changed = (erase(images, numbers, 0.5) != images).any(1)
    is_changed = changed.any(2).any(1)
    assert torch.equal(is_changed, numbers[:, 0] < 0.5)
    for mask, image, found in zip(
        changed[is_changed], images[is_changed], erase(images, numbers, 0.5)[is_changed], strict=True
    ):
        rows, columns = mask.any(1), mask.any(0)
        assert 0.01 < rows.sum() * columns.sum() / 1024 < 0.4
        inside = rows[:, None] & columns
        torch.testing.assert_close(found[:, inside], image.mean().expand_as(found[:, inside]))


def reference_cutmix(image, other, share, row, column):
    """Algorithm 1 of Yun et al. with the rectangle of their code, in loops."""
    n_rows, n_columns = image.shape[1:]
    height, width = (int(n * np.sqrt(1 - share)) for n in (n_rows, n_columns))
    middle, centre = int(row * n_rows), int(column * n_columns)
    mixed, n_cut = image.clone(), 0
    for r in range(max(middle - height // 2, 0), min(middle + height // 2, n_rows)):
        for c in range(max(centre - width // 2, 0), min(centre + width // 2, n_columns)):
            mixed[:, r, c], n_cut = other[:, r, c], n_cut + 1
    return mixed, 1 - n_cut / (n_rows * n_columns)


def test_mixup_and_cutmix_are_their_equations() -> None:
    images, others = pictures(40).double() / 255, pictures(40, seed=1).double() / 255
    labels, other_labels = (F.one_hot(torch.arange(40) % n, 5).double() for n in (5, 3))
    numbers, shares = torch.rand(40, 12, dtype=torch.float64), torch.rand(40, 2, dtype=torch.float64)
    mixed, mixed_labels = Augmentation(mixup=1.0).mix(images, others, labels, other_labels, numbers, shares)
    share = shares[:, 0].numpy()
    for i in range(40):
        assert np.allclose(mixed[i], share[i] * images[i].numpy() + (1 - share[i]) * others[i].numpy())
        assert np.allclose(mixed_labels[i], share[i] * labels[i].numpy() + (1 - share[i]) * other_labels[i].numpy())
    mixed, mixed_labels = Augmentation(cutmix=1.0).mix(images, others, labels, other_labels, numbers, shares)
    for i in range(40):
        row, column = numbers[i, -3:-1].tolist()
        wanted, left = reference_cutmix(images[i], others[i], shares[i, 1].item(), row, column)
        torch.testing.assert_close(mixed[i], wanted, rtol=0, atol=1e-12)
        torch.testing.assert_close(mixed_labels[i], left * labels[i] + (1 - left) * other_labels[i])


def test_both_have_half() -> None:
    augment = Augmentation(mixup=0.2, cutmix=1.0)
    images = torch.zeros(1000, 1, 8, 8)
    numbers, shares = torch.rand(1000, 12), torch.full((1000, 2), 0.5)
    labels = torch.zeros(1000, 2)
    mixed, _ = augment.mix(images, torch.ones_like(images), labels, labels, numbers, shares)
    is_mixup = (mixed == 0.5).all(3).all(2)[:, 0]
    assert torch.equal(is_mixup, numbers[:, -4] >= 0.5)


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0, 1), row=st.floats(0, 0.999), column=st.floats(0, 0.999))
def test_the_share_of_a_box_is_its_area(share: float, row: float, column: float) -> None:
    numbers = (torch.tensor([number], dtype=torch.float64) for number in (share, row, column))
    boxes, left = cut_boxes((7, 11), *numbers)
    assert left.item() == pytest.approx(1 - boxes.sum().item() / 77)
    assert 0 <= left <= 1


def test_an_example_is_the_same_in_any_batch() -> None:
    """So a run that is resumed, or spread over processes, sees the same."""
    one = examples(EVERYTHING)
    together = one.batch(range(30), epoch=3)
    for i in (0, 7, 29):
        alone = examples(EVERYTHING).batch([i], epoch=3)
        assert torch.equal(alone.image[0], together.image[i])
        assert torch.equal(alone.label[0], together.label[i])
    assert not torch.equal(together.image, one.batch(range(30), epoch=4).image)
    assert not torch.equal(together.image, examples(EVERYTHING, seed=1).batch(range(30), epoch=3).image)
    assert torch.equal(one.batch(range(30)).image, pictures(30).float() / 255)
    torch.testing.assert_close(together.label.sum(1), torch.ones(30))


def test_values_stay_between_0_and_1() -> None:
    found = examples(Augmentation(rand_augment=3, magnitude=0.9), n=300).batch(range(300), epoch=0).image
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6
    assert found.isfinite().all()


def test_every_operation_is_chosen() -> None:
    images = pictures(len(OPERATIONS)).float() / 255
    changed = distort(images, torch.arange(len(OPERATIONS)), torch.full((len(OPERATIONS),), 0.6))
    assert (changed != images).any(3).any(2).any(1).tolist() == [False] + [True] * (len(OPERATIONS) - 1)
    for number, operation in enumerate(OPERATIONS):
        assert torch.equal(changed[number : number + 1], operation(images[number : number + 1], torch.tensor([0.6])))


def test_mixed_labels_are_learned_by_cross_entropy_of_probabilities() -> None:
    task = Classification(("a", "b", "c"), label_smoothing=0.1, class_weights=(1.0, 2.0, 0.5))
    logits, target = torch.randn(6, 3), torch.rand(6, 3).softmax(-1)
    loss = task.score_logits(logits, target)["loss"].total
    weights = torch.tensor(task.class_weights)
    smooth = 0.9 * target + 0.1 / 3
    torch.testing.assert_close(loss, -(weights * smooth * logits.log_softmax(-1)).sum())
    hard = task.score_logits(logits, torch.tensor([0, 1, 2, 0, 1, 2]))["loss"].total
    soft = task.score_logits(logits, F.one_hot(torch.tensor([0, 1, 2, 0, 1, 2]), 3).float())["loss"].total
    torch.testing.assert_close(hard, soft)


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="crop must be 0 or more, got -1"):
        Augmentation(crop=-1)
    with pytest.raises(ValueError, match=r"mixup must be 0 or more and finite, got -0.5"):
        Augmentation(mixup=-0.5)
    with pytest.raises(ValueError, match=r"erase must lie in \[0, 1\), got 1.5"):
        Augmentation(erase=1.5)
