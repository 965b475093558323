"""What is drawn of each head is what was recorded, and what is left out is said."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from matplotlib import font_manager
from torch import Tensor

import headwork as hw
from headwork import choices
from headwork.figures import (
    draw_attention,
    draw_attention_between_tokens,
    draw_attention_over_image,
    figure_to_svg,
)
from headwork.figures.style import MARKS, make_visible
from headwork.models import GaussianImageEncoder, GaussianImageEncoderConfig, ResNet, ResNetConfig

from ..models.small_models import classifier, decoder, encoder, encoder_decoder, ready, vision_transformer

ROWS, COLUMNS, N_HEADS = 3, 5, 3


def recorded(model, pattern, *inputs, **masks):
    with torch.no_grad(), hw.record(model, pattern) as seen:
        model(*inputs, **masks)
    return {name: seen[name][0].float() for name in seen}


def panels(figure):
    return [ax for ax in figure.axes if ax.get_title(loc="left").startswith("head")]


def drawn(ax):
    return torch.tensor(np.asarray(ax.images[-1].get_array()))


def labels(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def gaussian(**changes):
    config = GaussianImageEncoderConfig(n_classes=5, image=(6, 10), n_channels=2, d_model=12, n_layers=3, **changes)
    return GaussianImageEncoder(config).eval()


# --- images ----------------------------------------------------------------------------------------------------------


def test_the_class_token_is_drawn_as_recorded(tmp_path):
    model, image = ready(vision_transformer()), torch.rand(2, 6, 15, dtype=torch.float64)
    picture = draw_attention_over_image(model, image)
    picture.figure.savefig(tmp_path / "heads.png")
    weights = recorded(model, "layers.*.attention.weights", image[None])
    expected = [head[0, 1:].reshape(ROWS, COLUMNS) for layer in weights.values() for head in layer]
    assert len(panels(picture.figure)) == len(expected) == 2 * N_HEADS
    for ax, weight in zip(panels(picture.figure), expected, strict=True):
        torch.testing.assert_close(drawn(ax), weight)
        assert ax.get_title(loc="right") == f"{weight.max():.2f}"
        assert ax.images[-1].get_extent() == pytest.approx((-0.5, 14.5, 5.5, -0.5))
        assert ax.images[0].get_array().shape == (6, 15)
    assert "Attention weights of the class token" in picture.caption
    assert "are drawn" not in picture.caption


def test_the_image_lies_pale_under_the_maps_and_whole_beside_them():
    image = torch.rand(3, 6, 15)
    figure = draw_attention_over_image(vision_transformer(n_channels=3), image).figure
    (whole,) = [ax for ax in figure.axes if ax.get_title(loc="left") == "the image"]
    torch.testing.assert_close(torch.tensor(whole.images[0].get_array().data), image.permute(1, 2, 0))
    pale = torch.tensor(panels(figure)[0].images[0].get_array().data)
    assert pale.min() >= 0.65 - 1e-6


def test_a_normalised_image_is_shown_as_it_was_before():
    shown = torch.rand(2, 6, 15)
    figure = draw_attention_over_image(vision_transformer(), (shown - 0.5) / 0.2, shown=shown).figure
    (whole,) = [ax for ax in figure.axes if ax.get_title(loc="left") == "the image"]
    torch.testing.assert_close(torch.tensor(whole.images[0].get_array().data), shown.mean(0))


def test_without_a_class_token_the_mean_query_is_drawn():
    model, image = ready(vision_transformer(pooling=choices.MeanPooling())), torch.rand(2, 6, 15, dtype=torch.float64)
    picture = draw_attention_over_image(model, image)
    weights = recorded(model, "layers.0.attention.weights", image[None])["layers.0.attention.weights"]
    torch.testing.assert_close(drawn(panels(picture.figure)[1]), weights[1].mean(0).reshape(ROWS, COLUMNS))
    assert "Attention weights of the mean query" in picture.caption


def test_a_query_that_pools_has_its_own_row():
    model = ready(vision_transformer(pooling=choices.AttentionPooling(n_heads=2)))
    image = torch.rand(2, 6, 15, dtype=torch.float64)
    picture = draw_attention_over_image(model, image)
    weights = recorded(model, "pooling.attention.weights", image[None])["pooling.attention.weights"]
    *_, first, second = panels(picture.figure)
    torch.testing.assert_close(drawn(first), weights[0, 0].reshape(ROWS, COLUMNS))
    torch.testing.assert_close(drawn(second), weights[1, 0].reshape(ROWS, COLUMNS))
    assert first.get_ylabel() == "pooling"
    assert "of the pooling query" in picture.caption


def test_heads_that_see_the_content_of_an_image_are_drawn_too():
    model, image = gaussian(heads=choices.ContentShiftHeads(n_heads=2)), torch.rand(2, 6, 10)
    weights = recorded(model, "layers.1.attention.weights", image[None])["layers.1.attention.weights"]
    picture = draw_attention_over_image(model, image)
    torch.testing.assert_close(drawn(panels(picture.figure)[3]), weights[1, 1 * 5 + 2].reshape(3, 5))
    (mark,) = panels(picture.figure)[3].lines
    assert mark.get_xydata().tolist() == [[4.5, 2.5]]  # the middle of the patch (1, 2), which has 2 x 2 pixels


def test_gaussian_heads_have_centres_and_contours(tmp_path):
    model = gaussian()
    centres, first, last = draw_attention(model, ())
    for i, picture in enumerate((centres, first, last)):
        picture.figure.savefig(tmp_path / f"{i}.png")
    assert len(centres.figure.axes) == 3
    for picture, layer in ((first, 0), (last, 2)):
        assert picture.caption.startswith(f"layers.{layer}.attention, of 3 such layers")
        table = model.layers[layer].attention.table((3, 5)).detach()
        torch.testing.assert_close(torch.tensor(picture.figure.axes[4].images[0].get_array().data), table[4, 1, 2])


def test_learned_shifts_have_no_centre():
    assert len(list(draw_attention(gaussian(heads=choices.ShiftHeads(n_heads=2)), ()))) == 2


@pytest.mark.usefixtures("as_users_run_it")
def test_each_kind_of_head_is_sent_to_its_drawing():
    with pytest.raises(ValueError, match="draw_position_heads draws those"):
        draw_attention_over_image(gaussian(), torch.rand(2, 6, 10))
    (one,) = draw_attention(gaussian(heads=choices.QueryShiftHeads(n_heads=2)), (torch.rand(1, 2, 6, 10),))
    assert "over the patches of an image" in one.alt


# --- text ------------------------------------------------------------------------------------------------------------


def test_source_and_target_are_drawn_as_recorded():
    model = ready(encoder_decoder())
    source, target = torch.randint(37, (7,)), torch.randint(37, (5,))
    picture = draw_attention_between_tokens(
        model, source, target, strings=[list("3 May 7"), ["<s>", "a", "\n", "$5$", "_"]]
    )
    assert ">$5$<" in figure_to_svg(picture.figure, "x")
    weights = recorded(model, "decoder_layers.*.cross_attention.weights", source[None], target[None])
    expected = [head for layer in weights.values() for head in layer]
    assert len(expected) == 3 * N_HEADS
    for ax, weight in zip(panels(picture.figure), expected, strict=True):
        torch.testing.assert_close(drawn(ax), weight)
    assert labels(picture.figure.axes[0].yaxis) == ["<s>", "a", "⏎", "$5$", "_"]
    assert labels(picture.figure.axes[-1].xaxis) == ["3", "␣", "M", "a", "y", "␣", "7"]
    assert [ax.get_ylabel() for ax in picture.figure.axes if ax.get_ylabel()] == ["layer 0", "layer 1", "layer 2"]


def test_a_decoder_is_drawn_as_recorded_below_the_diagonal(tmp_path):
    model, ids = ready(decoder()), torch.randint(37, (7,))
    picture = draw_attention_between_tokens(model, ids, strings=["to be,\t"])
    picture.figure.savefig(tmp_path / "triangle.png")
    weights = recorded(model, "layers.*.attention.weights", ids[None])
    expected = [head for layer in weights.values() for head in layer]
    for ax, weight in zip(panels(picture.figure), expected, strict=True):
        shown = ax.images[0].get_array()
        torch.testing.assert_close(torch.tensor(shown.data), weight)
        np.testing.assert_array_equal(shown.mask, np.arange(7)[:, None] < np.arange(7))
    assert labels(picture.figure.axes[0].yaxis)[-1] == "⇥"


def test_an_encoder_is_drawn_as_recorded_without_its_padding(tmp_path):
    model, ids = ready(classifier(choices.FirstToken())), torch.randint(37, (7,))
    real = torch.tensor([True] * 5 + [False] * 2)
    picture = draw_attention_between_tokens(model, ids, strings=["abcdefg"], visible=real)
    picture.figure.savefig(tmp_path / "between.png")
    weights = recorded(model, "layers.*.attention.weights", ids[None], visible=real[None])
    expected = [head[:5, :5] for layer in weights.values() for head in layer]
    for ax, weight in zip(panels(picture.figure), expected, strict=True):
        torch.testing.assert_close(drawn(ax), weight)
        torch.testing.assert_close(drawn(ax).sum(1), torch.ones(5))
    assert labels(picture.figure.axes[0].yaxis) == list("abcde")


def test_without_a_mask_all_tokens_are_drawn():
    picture = draw_attention_between_tokens(encoder(), torch.randint(37, (7,)), strings=["abcdefg"])
    assert drawn(panels(picture.figure)[0]).shape == (7, 7)


def test_one_token_one_layer_one_head(tmp_path):
    model = decoder(n_layers=1, heads=choices.Heads(n_heads=1))
    picture = draw_attention_between_tokens(model, torch.tensor([3]), strings=[["x"]])
    picture.figure.savefig(tmp_path / "one.png")
    assert drawn(panels(picture.figure)[0]).tolist() == [[1.0]]


def test_what_is_left_out_is_said():
    model = decoder(n_layers=7, heads=choices.Heads(n_heads=9))
    picture = draw_attention_between_tokens(model, torch.randint(37, (29,)), strings=[["x"] * 29])
    assert len(panels(picture.figure)) == 4 * 6
    assert drawn(panels(picture.figure)[0]).shape == (24, 24)
    assert [ax.get_ylabel() for ax in picture.figure.axes if ax.get_ylabel()] == [f"layer {i}" for i in (0, 1, 5, 6)]
    assert "Of 7 attention layers the first and the last 2 are drawn." in picture.caption
    assert "Of 9 heads the first 6 are drawn." in picture.caption
    assert "Of 29 tokens the first 24 are drawn." in picture.caption


def test_layers_and_heads_that_are_asked_for():
    model, ids = ready(decoder(n_layers=7, heads=choices.Heads(n_heads=9))), torch.randint(37, (5,))
    picture = draw_attention_between_tokens(model, ids, strings=["abcde"], layers=[0, 2, 3, 4, 6], heads=[8, 1])
    weights = recorded(model, "layers.*.attention.weights", ids[None])
    expected = [weights[f"layers.{layer}.attention.weights"][head] for layer in (0, 2, 3, 4, 6) for head in (8, 1)]
    for ax, weight in zip(panels(picture.figure), expected, strict=True):
        torch.testing.assert_close(torch.tensor(ax.images[0].get_array().data), weight)
    names = [f"layer {i}" for i in (0, 2, 3, 4, 6)]
    assert [ax.get_ylabel() for ax in picture.figure.axes if ax.get_ylabel()] == names
    assert [ax.get_title(loc="left") for ax in picture.figure.axes[:2]] == ["head 8", "head 1"]
    assert "are drawn" not in picture.caption
    assert picture.alt.endswith("5 layers by 2 heads")
    whole = draw_attention_between_tokens(model, ids, strings=["abcde"], heads=range(9))
    assert len(panels(whole.figure)) == 4 * 9
    assert "Of 7 attention layers" in whole.caption
    assert "Of 9 heads" not in whole.caption


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"layers": [3]}, r"layers must be numbers of 0 \.\. 2, got \[3\]"),
        ({"heads": [-1]}, r"heads must be numbers of 0 \.\. \d, got \[-1\]"),
        ({"heads": []}, r"heads must be numbers of 0 \.\. \d, got \[\]"),
    ],
)
def test_layers_and_heads_that_are_not_there(chosen, message):
    model = decoder(n_layers=3)
    with pytest.raises(ValueError, match=message):
        draw_attention_between_tokens(model, torch.randint(37, (5,)), strings=["abcde"], **chosen)


def test_the_model_is_left_as_it_was():
    model = decoder().train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    draw_attention_between_tokens(model, torch.randint(37, (5,)), strings=["abcde"])
    assert model.training
    assert all(p.grad is None and torch.equal(p, before[name]) for name, p in model.named_parameters())


@pytest.mark.usefixtures("as_users_run_it")
def test_a_string_for_each_token():
    with pytest.raises(ValueError, match="strings must be one for each of 5 tokens, got 4"):
        draw_attention_between_tokens(decoder(), torch.randint(37, (5,)), strings=["abcd"])
    with pytest.raises(ValueError, match="strings must be one for each of 5 tokens, got 6"):
        draw_attention_between_tokens(
            encoder(), torch.randint(37, (5,)), strings=["abcdef"], visible=torch.ones(5, dtype=torch.bool)
        )


# --- any model, any batch --------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    source: Tensor
    source_visible: Tensor
    target: Tensor
    next: Tensor


class Text(NamedTuple):
    ids: Tensor
    visible: Tensor
    label: Tensor


def test_a_batch_is_drawn_by_its_fields():
    images = torch.rand(3, 2, 6, 15, dtype=torch.float64)
    assert len(list(draw_attention(ready(vision_transformer()), (images, torch.arange(3))))) == 2
    real = torch.tensor([[True] * 5 + [False] * 2] * 3)
    text = Text(torch.randint(37, (3, 7)), real, torch.arange(3))
    (picture,) = draw_attention(classifier(choices.FirstToken()), text, lambda ids: [f"t{i}" for i in ids], 1)
    assert labels(picture.figure.axes[0].yaxis) == [f"t{i}" for i in text.ids[0, :5]]
    following = torch.where(real, 1, -100)
    pair = Pair(text.ids, real, text.ids, following)
    (picture,) = draw_attention(encoder_decoder(), pair, n_examples=1)
    assert labels(picture.figure.axes[0].yaxis) == [str(i) for i in text.ids[0, :5].tolist()]
    (picture,) = draw_attention(decoder(), (text.ids, text.ids), n_examples=1)
    assert "later tokens, which the causal mask hides, are grey" in picture.caption


def test_a_model_without_attention_or_description_has_no_pictures():
    resnet = ResNet(ResNetConfig(n_classes=5, n_blocks=1))
    assert list(draw_attention(resnet, (torch.rand(1, 3, 8, 8),))) == []
    assert list(draw_attention(torch.nn.Linear(3, 3), (torch.rand(1, 3),))) == []


def test_an_image_of_another_size_has_another_grid():
    model, image = ready(vision_transformer()), torch.rand(2, 8, 9, dtype=torch.float64)
    assert drawn(panels(draw_attention_over_image(model, image).figure)[0]).shape == (4, 3)


# --- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "label"),
    [
        ("word", "word"),
        (" word", "␣word"),
        ("a\n\nb", "a⏎⏎b"),
        ("\t", "⇥"),
        ("\r", "\\r"),
        ("\x00", "\\x00"),
        ("\u202e", "\\u202e"),
        ("\u00a0", "\\xa0"),
        ("", "∅"),
        ("naïve", "naïve"),
        ("中文", "中文"),
        ("a" * 12, "a" * 12),
        ("a" * 13, "a" * 11 + "…"),
    ],
)
def test_every_letter_of_a_token_can_be_seen(token, label):
    assert make_visible(token) == label


def test_the_font_has_the_marks():
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    for mark in (*MARKS.values(), "∅", "…"):
        assert font.get_char_index(ord(mark)), mark
