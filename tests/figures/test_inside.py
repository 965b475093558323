"""The drawing of the inside of a model: its panels show the weights that the model has."""

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.figures import Figure, draw_inside
from headwork.models import GaussianImageEncoder, GaussianImageEncoderConfig

from ..models.small_models import encoder_decoder, ready

HEADS = {
    "gaussian": choices.GaussianHeads(n_heads=11, precision="diagonal"),
    "shift": choices.ShiftHeads(n_heads=3, d_value=5),
    "query": choices.QueryShiftHeads(n_heads=2),
    "content": choices.ContentShiftHeads(n_heads=3),
}


def image_encoder(heads: choices.ImageHeads, n_layers: int = 2) -> GaussianImageEncoder:
    config = GaussianImageEncoderConfig(
        n_classes=5, image=(6, 10), n_channels=1, d_model=12, n_layers=n_layers, heads=heads
    )
    return GaussianImageEncoder(config)


def pictures(figure: Figure) -> list[Tensor]:
    """What the panels of heads show, layer by layer."""
    panels = [ax for ax in figure.axes if ax.get_title(loc="left").endswith(tuple(f"head {i}" for i in range(12)))]
    return [torch.tensor(ax.images[-1].get_array().data) for ax in panels if ax.images]


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS.keys())
def test_heads_on_a_grid_look_from_the_patch_in_the_middle(heads, tmp_path):
    model, image = image_encoder(heads), torch.rand(1, 1, 6, 10)
    figure = draw_inside(model, image)
    figure.savefig(tmp_path / "inside.png")
    shown = pictures(figure)
    assert len(shown) == 2 * min(heads.n_heads, 9)
    model.eval()
    with torch.no_grad(), hw.record(model) as seen:
        model(image)
    expected = []
    for i in (0, 1):
        weights = seen[f"layers.{i}.attention.weights"]
        by_position = weights.ndim == 5
        middle = weights[:, 1, 2] if by_position else weights[0].unflatten(1, (3, 5))[:, 1, 2].unflatten(1, (3, 5))
        expected.extend(middle[:9])
    for ours, theirs in zip(shown, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert "the image in 3 x 5 patches" in [ax.get_title(loc="left") for ax in figure.axes]


def test_only_some_layers_are_drawn_and_the_caption_says_so():
    figure = draw_inside(image_encoder(HEADS["shift"], n_layers=6), torch.rand(1, 1, 6, 10), title="six")
    assert len(pictures(figure)) == 4 * 3
    assert figure.get_suptitle() == "six"
    assert "Of 6 attention layers the first and the last 2 are drawn." in figure.subfigs[1].get_supxlabel()
    assert [ax.get_ylabel() for ax in figure.subfigs[1].axes if ax.get_ylabel()] == [f"layer {i}" for i in (0, 1, 4, 5)]


@pytest.mark.parametrize("pooling", [choices.ClassToken(), choices.MeanPooling()], ids=["token", "mean"])
def test_a_vision_transformer_shows_its_class_token_or_its_mean_query(pooling):
    config = hw.models.VisionTransformerConfig(
        n_classes=5,
        image=(6, 10),
        n_channels=1,
        patch=(2, 2),
        d_model=12,
        n_layers=1,
        heads=choices.Heads(n_heads=3),
        feed_forward=choices.FeedForward(d_ff=11),
        pooling=pooling,
    )
    model, image = hw.models.VisionTransformer(config).eval(), torch.rand(1, 1, 6, 10)
    with torch.no_grad(), hw.record(model) as seen:
        model(image)
    weights = seen["layers.0.attention.weights"][0]
    expected = weights[:, 0, 1:] if isinstance(pooling, choices.ClassToken) else weights.mean(1)
    for ours, theirs in zip(pictures(draw_inside(model, image)), expected, strict=True):
        torch.testing.assert_close(ours.flatten(), theirs)


def test_a_text_model_shows_every_query_and_key():
    config = hw.models.DecoderConfig(
        vocab=17, d_model=12, n_layers=1, heads=choices.Heads(n_heads=3), feed_forward=choices.FeedForward(d_ff=11)
    )
    model, ids = hw.models.Decoder(config).eval(), torch.randint(17, (1, 7))
    with torch.no_grad(), hw.record(model) as seen:
        model(ids)
    for ours, theirs in zip(pictures(draw_inside(model, ids)), seen["layers.0.attention.weights"][0], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_model_without_attention_is_drawn_without_heads():
    figure = draw_inside(hw.models.ResNet(hw.models.ResNetConfig(n_classes=5, n_blocks=1)), torch.rand(1, 3, 8, 8))
    assert pictures(figure) == []


def test_a_pair_of_texts_shows_self_attention_and_cross_attention():
    model = ready(encoder_decoder())
    source, target = torch.randint(37, (1, 7)), torch.randint(37, (1, 5))
    figure = draw_inside(model, source, target)
    with torch.no_grad(), hw.record(model) as seen:
        model(source, target)
    shown = pictures(figure)
    torch.testing.assert_close(shown[0], seen["encoder_layers.0.attention.weights"][0, 0].float())
    torch.testing.assert_close(shown[-1], seen["decoder_layers.2.cross_attention.weights"][0, -1].float())


class Unknown(nn.Module):
    """A user's own model, without a description."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def test_a_model_without_description_is_drawn_without_heads(tmp_path):
    figure = draw_inside(Unknown(), torch.rand(1, 5), title="mine")
    figure.savefig(tmp_path / "inside.png")
    assert pictures(figure) == []


def test_a_decoder_with_layers_of_another_kind_is_drawn_without_them():
    """The description of its config names attention that is not there."""
    config = hw.models.DecoderConfig(
        vocab=17, d_model=12, n_layers=1, heads=choices.Heads(n_heads=3), feed_forward=choices.FeedForward(d_ff=11)
    )
    model = hw.models.Decoder(config, layers=[Ignoring()])
    assert pictures(draw_inside(model, torch.randint(17, (1, 7)))) == []


class Ignoring(nn.Module):
    def forward(self, x: Tensor, *args: object, **kwargs: object) -> Tensor:
        return x


def test_the_words_of_a_text_are_beside_its_weights(tmp_path):
    config = hw.models.DecoderConfig(
        vocab=17, d_model=12, n_layers=2, heads=choices.Heads(n_heads=3), feed_forward=choices.FeedForward(d_ff=11)
    )
    words = ["a", " cat", "$x$", "\n", "sat"]
    figure = draw_inside(hw.models.Decoder(config), torch.randint(17, (1, 5)), strings=[words])
    figure.savefig(tmp_path / "inside.png")
    shown = ["a", "␣cat", "$x$", "⏎", "sat"]
    panels = [ax for ax in figure.axes if ax.images]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == shown
    assert [label.get_text() for label in panels[-1].get_xticklabels()] == shown
    written = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert "5 tokens:\na ␣cat $x$ ⏎ sat" in written
    with pytest.raises(ValueError, match=r"strings must have a word for each token, \[5\] for the inputs, got \[4\]"):
        draw_inside(hw.models.Decoder(config), torch.randint(17, (1, 5)), strings=[words[:4]])


def test_ids_without_words_are_called_ids_and_long_texts_are_cut():
    config = hw.models.DecoderConfig(
        vocab=17, d_model=12, n_layers=1, heads=choices.Heads(n_heads=3), feed_forward=choices.FeedForward(d_ff=11)
    )
    figure = draw_inside(hw.models.Decoder(config), torch.tensor([[3, 1, 4]]))
    assert "3 token ids:\n3 1 4" in [text.get_text() for ax in figure.axes for text in ax.texts]
    figure = draw_inside(hw.models.Decoder(config), torch.randint(17, (1, 30)), strings=[[str(i) for i in range(30)]])
    assert all(panel.shape == (24, 24) for panel in pictures(figure))
    assert "of 30 tokens the first 24" in figure.subfigs[1].get_supxlabel()


def test_cross_attention_has_the_target_beside_and_the_source_below():
    model = ready(encoder_decoder())
    source, target = torch.randint(37, (1, 7)), torch.randint(37, (1, 5))
    figure = draw_inside(model, source, target, strings=["abcdefg", "vwxyz"])
    rows = {}
    for ax in figure.subfigs[1].axes:
        if ax.get_ylabel():
            rows[ax.get_ylabel()] = ax
    for label, ax in rows.items():
        expected = list("vwxyz") if "cross" in label or "decoder" in label else list("abcdefg")
        assert [text.get_text() for text in ax.get_yticklabels()] == expected, label
    last = [ax for label, ax in rows.items() if "cross" in label][-1]
    assert [text.get_text() for text in last.get_xticklabels()] == list("abcdefg")
