"""The small classifiers that claims train."""

import pytest
import torch

from headwork import choices
from headwork.batches import ImageBatch
from headwork.lab.digits import N_CLASSES, digits, evaluate, shift_images, small_vit, train_classifier
from headwork.models import ResNet, ResNetConfig


@pytest.fixture
def few():
    return digits("train", first=40)


def build():
    torch.manual_seed(0)
    return small_vit(d_model=8, n_layers=1, patch=4)


def learn(few, **options):
    model = build()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, train_classifier(model, few, optimiser, **{"epochs": 3, "batch_size": 16} | options)


def test_splits_are_joined_in_order_and_share_nothing():
    valid, test, both = digits("valid"), digits("test"), digits("valid", "test")
    assert both.image.equal(torch.cat([valid.image, test.image]))
    assert both.label.equal(torch.cat([valid.label, test.label]))
    assert digits("train", first=5).image.equal(digits("train").image[:5])
    assert len(digits("train").label) + len(both.label) == 1797


def test_a_shift_moves_rows_down_and_columns_right():
    image = torch.zeros(1, 1, 8, 8)
    image[0, 0, 2, 3] = 1
    moved = shift_images(image, torch.tensor([[1.0, 2.0]]))
    assert moved[0, 0, 3, 5] == 1
    assert moved.sum() == 1


def test_the_vit_has_the_parts_it_is_given():
    model = small_vit(d_model=12, n_layers=3, n_heads=2, pooling=choices.ClassToken())
    assert len(model.layers) == 3
    assert model.config.pooling == choices.ClassToken()
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, N_CLASSES)


def test_training_is_the_loop_written_out(few):
    model, curve = learn(few, scored_on=(few,))
    expected = build()
    optimiser = torch.optim.AdamW(expected.parameters(), lr=1e-2)
    scores = [evaluate(expected, few)]
    for _ in range(3):
        order = torch.randperm(40)
        for some in (order[:16], order[16:32], order[32:]):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(expected(few.image[some]), few.label[some]).backward()
            optimiser.step()
        scores.append(evaluate(expected, few))
    assert curve == [(score,) for score in scores]
    assert curve[-1][0].loss < curve[0][0].loss
    assert all(a.equal(b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_one_cycle_ends_with_hardly_any_learning_rate(few):
    model = build()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    seen = []
    optimiser.register_step_pre_hook(lambda *_: seen.append(optimiser.param_groups[0]["lr"]))
    train_classifier(model, few, optimiser, epochs=4, batch_size=16, one_cycle=1e-2)
    assert len(seen) == 4 * 3
    assert max(seen) == pytest.approx(1e-2, rel=0.1)
    assert seen[0] < 1e-3
    assert seen[-1] < 1e-6


def test_an_epoch_may_end_early_and_batches_may_be_changed(few):
    sizes = []

    def change(images):
        sizes.append(len(images))
        return images

    _, curve = learn(few, batches_per_epoch=1, change=change)
    assert sizes == [16, 16, 16]
    assert curve == [()] * 4
    sizes.clear()
    assert len(learn(few, epochs=0, change=change)[1]) == 1
    assert not sizes


def test_scores_are_taken_in_evaluation_mode_which_is_left_again(few):
    model = ResNet(ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(4,)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    score = evaluate(model, few)
    assert model.training
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    one_by_one = [
        evaluate(model, ImageBatch(few.image[i : i + 1], few.label[i : i + 1])).loss for i in range(len(few.label))
    ]
    assert score.loss == pytest.approx(sum(one_by_one) / len(one_by_one), rel=1e-4)
