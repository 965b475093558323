"""The prescribed programs against the library, PyTorch and Hugging Face."""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import headwork as hw
from headwork.functional import gaussian_weights
from headwork.lab.digits import small_vit
from headwork.training.optimiser import parameter_groups

SHEETS = hw.sheets


def test_every_program_that_a_sheet_asks_for_is_there():
    asked = {
        *("AbsolutePositionalEmbedding", "RelativePositionalEmbedding", "visualize_abs_positional_embedding"),
        *("visualize_rel_positional_embedding", "verify_limit", "gelu", "gelu_tanh", "visualize_gelus", "LayerNorm"),
        *("BertFFN", "scaled_dot_product_attention", "MHA", "MultiHeadAttention", "MLPHead", "FullyConnected"),
        *("CLS", "GAP", "MAP", "self_attention"),
    }
    assert asked <= set(dir(SHEETS))


def test_the_listing_of_eecs_182_word_for_word():
    """The sheet's own lines, in the places where they agree."""
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 5, 3).double(), torch.randn(2, 5, 3).double(), torch.randn(2, 5, 7).double()
    padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]])
    for mask in (None, padding, padding.bool()):
        for causal in (False, True):
            s = torch.einsum("ntd,nsd->nts", q, k) / 3**0.5
            if mask is not None:
                s = s.masked_fill(mask.unsqueeze(1).to(torch.bool), float("-inf"))
            if causal:
                s = s + torch.triu(torch.full((5, 5), float("-inf"), dtype=torch.float64), 1).unsqueeze(0)
            expected = F.softmax(s, dim=-1) @ v
            seen = SHEETS.scaled_dot_product_attention(q, k, v, key_padding_mask=mask, causal=causal)
            torch.testing.assert_close(seen, expected, rtol=0, atol=1e-12)


def test_a_query_that_sees_nothing_gets_zeros():
    q = torch.randn(1, 2, 3)
    assert SHEETS.scaled_dot_product_attention(q, q, q, key_padding_mask=torch.ones(1, 2, dtype=torch.long)).eq(0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_mha_is_pytorchs(causal):
    torch.manual_seed(0)
    ours, theirs = SHEETS.MHA(6, 2).double(), nn.MultiheadAttention(6, 2, batch_first=True).double()
    state = ours.state_dict()
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([state[f"{name}_proj.weight"] for name in "qkv"]),
            "in_proj_bias": torch.cat([state[f"{name}_proj.bias"] for name in "qkv"]),
            "out_proj.weight": state["o_proj.weight"],
            "out_proj.bias": state["o_proj.bias"],
        }
    )
    q, k, v = torch.randn(3, 2, 5, 6).double()
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    future = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected = theirs(q, k, v, key_padding_mask=padding, attn_mask=future, need_weights=False)[0]
    torch.testing.assert_close(ours(q, k, v, key_padding_mask=padding, causal=causal), expected, rtol=0, atol=1e-12)


class ByHand(nn.Module):
    """The listing, as somebody writes it in an hour; the output map has one of two names."""

    def __init__(self, d_model: int, n_heads: int, *, bias: bool, out: str) -> None:
        super().__init__()
        self.n_heads, self.name = n_heads, out
        for name in ("q_proj", "k_proj", "v_proj", out):
            self.add_module(name, nn.Linear(d_model, d_model, bias=bias))

    def forward(self, q, k, v):
        heads = [
            project(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for project, x in ((self.q_proj, q), (self.k_proj, k), (self.v_proj, v))
        ]
        o = nn.functional.scaled_dot_product_attention(*heads)
        return self.get_submodule(self.name)(o.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("bias", [False, True])
def test_state_dicts_of_the_listing(bias):
    theirs, ours = (
        ByHand(6, 2, bias=bias, out="o_proj").double(),
        SHEETS.MHA(6, 2, bias=bias).double(),
    )
    ours.load_state_dict(theirs.state_dict())
    q, k, v = torch.randn(3, 2, 5, 6).double()
    torch.testing.assert_close(ours(q, k, v), theirs(q, k, v), rtol=0, atol=1e-12)
    theirs.load_state_dict(SHEETS.MHA(6, 2, bias=bias).double().state_dict())  # and back


@pytest.mark.parametrize("out", ["o_proj", "out_proj"])
@pytest.mark.parametrize("bias", [False, True])
def test_state_dicts_of_the_listing_for_the_layer(out, bias):
    """Also somewhere in a model, next to names of its own; what is unknown or missing is still refused."""
    theirs = ByHand(6, 2, bias=bias, out=out).double()
    ours = nn.ModuleDict({"attention": hw.layers.MultiHeadAttention(6, 2, bias=bias)}).double()
    state = {f"attention.{name}": tensor for name, tensor in theirs.state_dict().items()}
    ours.load_state_dict(state)
    q, k, v = torch.randn(3, 2, 5, 6).double()
    torch.testing.assert_close(ours["attention"](q, k, values=v), theirs(q, k, v), rtol=0, atol=1e-12)
    assert state.keys() == {f"attention.{name}" for name in theirs.state_dict()}
    ours.load_state_dict(ours.state_dict())
    with pytest.raises(RuntimeError, match=r"Unexpected key.*attention\.r_proj\.weight"):
        ours.load_state_dict(state | {"attention.r_proj.weight": torch.zeros(1)})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*attention\.q_proj\.weight"):
        ours.load_state_dict(ours.state_dict() | {"attention.q_proj.weight": torch.zeros(6, 6)})
    del state["attention.q_proj.weight"]
    with pytest.raises(RuntimeError, match=r"Missing key.*attention\.query\.weight"):
        ours.load_state_dict(state)


@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_multi_head_attention_in_columns(n_heads):
    d, t, n, m = 12, 6, 5, 7
    layer = SHEETS.MultiHeadAttention(d, t, n_heads).double()
    assert sum(p.numel() for p in layer.parameters()) == 2 * d**2 + 2 * t**2
    q, k, v = torch.randn(d, n).double(), torch.randn(d, m).double(), torch.randn(t, m).double()
    w = {name: layer.attention.get_parameter(f"{name}.weight") for name in ("query", "key", "value", "out")}
    heads = []
    for w_q, w_k, w_v in zip(*(w[name].chunk(n_heads) for name in ("query", "key", "value")), strict=True):
        alpha = torch.softmax((w_k @ k).T @ (w_q @ q) / math.sqrt(d // n_heads), dim=0)
        heads.append((w_v @ v) @ alpha)
    torch.testing.assert_close(layer(q, k, v), w["out"] @ torch.cat(heads), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"n_heads must divide t, got n_heads=4 and t=6"):
        SHEETS.MultiHeadAttention(12, 6, 4)


def test_bert_ffn_is_hugging_faces():
    transformers = pytest.importorskip("transformers")
    from transformers.models.bert.modeling_bert import BertIntermediate, BertOutput

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=8, intermediate_size=20, num_attention_heads=2, hidden_dropout_prob=0.0
    )
    wide, narrow = BertIntermediate(config).double().eval(), BertOutput(config).double().eval()
    ours = SHEETS.BertFFN(8, 20).double().eval()
    for mine, other in (
        (ours.feed_forward.up, wide.dense),
        (ours.feed_forward.down, narrow.dense),
        (ours.norm, narrow.LayerNorm),
    ):
        mine.load_state_dict(other.state_dict())
    x = torch.randn(2, 5, 8).double()
    torch.testing.assert_close(ours(x), narrow(wide(x), x), rtol=0, atol=1e-12)


def test_relative_codes_are_drawn_as_gaussian_heads_see():
    delta, alpha = torch.tensor([[0.0, 1.0], [-1.0, 0.0]]), torch.tensor([0.5, 2.0])
    embedding = SHEETS.RelativePositionalEmbedding((4, 5), delta, alpha)
    weights = hw.sheets.eth.weights_of(embedding)
    torch.testing.assert_close(weights, gaussian_weights((4, 5), -delta, alpha), rtol=1e-5, atol=1e-6)
    figure = SHEETS.visualize_rel_positional_embedding(embedding)
    shown = figure.axes[1].images[0].get_array()
    torch.testing.assert_close(torch.tensor(shown.data), weights[1, 2, 2])


def test_relative_codes_are_equation_7_with_the_sheets_delta():
    """v . r by hand, for delta = q - k: Delta = (1, 0) leads from (2, 2) to (1, 2)."""
    delta, alpha = [(1.0, 0.0), (-0.5, 2.0)], [50.0, 0.3]
    scores = SHEETS.RelativePositionalEmbedding((3, 4), delta, alpha)()
    for h, i, j, k, m in itertools.product(range(2), range(3), range(4), range(3), range(4)):
        v = [-alpha[h] * entry for entry in (1, -2 * delta[h][0], -2 * delta[h][1])]
        r = [(i - k) ** 2 + (j - m) ** 2, i - k, j - m]
        assert scores[h, i, j, k, m].item() == pytest.approx(sum(a * b for a, b in zip(v, r, strict=True)), abs=1e-4)
    assert divmod(scores[0, 2, 2].argmax().item(), 4) == (1, 2)


def test_the_sheets_delta_is_minus_the_centre_of_the_layer_in_value_and_gradient():
    delta, alpha = torch.randn(3, 2).double(), torch.rand(3).double() + 0.1
    ours, layer = (
        SHEETS.RelativePositionalEmbedding((4, 5), delta, alpha),
        hw.layers.RelativePositionalEmbedding((4, 5), -delta, alpha),
    )
    assert {name for name, _ in ours.named_parameters()} == {"delta", "alpha"}
    pull = torch.randn(3, 4, 5, 4, 5).double()
    for embedding in (ours, layer):
        (embedding() * pull).sum().backward()
    torch.testing.assert_close(ours(), layer(), rtol=0, atol=0)
    torch.testing.assert_close(ours.delta.grad, -layer.centre.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.alpha.grad, layer.alpha.grad, rtol=0, atol=1e-12)
    (group,) = parameter_groups(ours, weight_decay=0.1)
    assert group["weight_decay"] == 0


@pytest.mark.parametrize(
    ("delta", "alpha", "n_heads"),
    [
        ((1, 0), 50.0, 1),
        ((1, 0), 50, 1),
        ([(1, 0)], [50], 1),
        (torch.tensor([1, 0]), torch.tensor(50), 1),
        (torch.tensor([[1, 0], [0, 1]]), 50.0, 2),
        ((1, 0), torch.tensor([50, 60, 70]), 3),
        (torch.tensor([[1.0, 0.0]]).double(), 50.0, 1),
    ],
)
def test_relative_codes_take_what_verify_limit_takes_and_tensors(delta, alpha, n_heads):
    embedding = SHEETS.RelativePositionalEmbedding((5, 5), delta, alpha)
    scores = embedding()
    assert scores.shape == (n_heads, 5, 5, 5, 5)
    assert divmod(scores[0, 2, 2].argmax().item(), 5) == (1, 2)
    assert embedding.delta.shape == (n_heads, 2)
    assert embedding.alpha.shape == (n_heads,)
    scores.sum().backward()


@pytest.mark.parametrize(
    ("delta", "alpha", "message"),
    [
        ((1, 0, 0), 1.0, r"delta must be \(row, column\), or have the axes \(head, 2\), got shape \(3,\)"),
        ((math.nan, 0), 1.0, r"delta must be finite, got \[nan, 0.0\]"),
        ((1, 0), -1, "alpha must be positive and finite, got -1"),
        ([(1, 0), (0, 1)], [1, 2, 3], r"alpha must be a number, or one for each .* \(2, 2\), got shape \(3,\)"),
    ],
)
def test_what_relative_codes_cannot_be_made_of(delta, alpha, message):
    with pytest.raises(ValueError, match=message):
        SHEETS.RelativePositionalEmbedding((5, 5), delta, alpha)


def test_absolute_codes_are_drawn_from_the_module():
    figure = SHEETS.visualize_abs_positional_embedding(SHEETS.AbsolutePositionalEmbedding((4, 5), 8, kind="learned"))
    assert len(figure.axes) >= 5


def test_the_limit_is_at_the_sheets_delta():
    """delta = q - k: from the query in the middle of 9 x 9, Delta = (1, -2) is the key in row 3, column 6."""
    _, weights = SHEETS.verify_limit((1, -2), (9, 9))
    assert divmod(int(weights[-1].argmax()), 9) == (3, 6)
    scores = SHEETS.RelativePositionalEmbedding((9, 9), (1, -2), 50.0)()
    assert divmod(int(scores[0, 4, 4].argmax()), 9) == (3, 6)
    assert weights[-1].max() > 1 - 1e-6
    assert torch.allclose(weights.sum((1, 2)), torch.ones(len(weights)).double())
    with pytest.raises(ValueError, match=r"delta must lead from the middle of the grid \(3, 3\) to a pixel of it"):
        SHEETS.verify_limit((2, 0), (3, 3))


def test_the_pictures_of_the_codes_say_delta_and_alpha():
    figure = SHEETS.visualize_rel_positional_embedding(
        SHEETS.RelativePositionalEmbedding((5, 5), [(1, -2), (0, 0.5)], [50, 0.25])
    )
    assert [ax.get_title() for ax in figure.axes] == ["Delta = (1, -2)\nalpha = 50", "Delta = (0, 0.5)\nalpha = 0.25"]
    layer = hw.layers.RelativePositionalEmbedding((5, 5), torch.tensor([[-1.0, 2.0]]), torch.tensor([50.0]))
    (ax,) = SHEETS.visualize_rel_positional_embedding(layer).axes
    assert ax.get_title() == "Delta = (1, -2)\nalpha = 50"


def test_the_limit_is_drawn_with_the_pictures_of_the_code():
    figure, weights = SHEETS.verify_limit((1, -2), (9, 9))
    *pictures, curve = figure.axes
    assert len(pictures) == 5
    shown = torch.tensor(pictures[-1].images[0].get_array().data)
    assert divmod(int(shown.argmax()), 9) == (3, 6)
    assert any(torch.allclose(shown.double(), each) for each in weights)
    assert curve.get_xlabel() == "alpha"


def test_the_gelus_and_their_difference():
    figure = SHEETS.visualize_gelus()
    difference = figure.axes[1].lines[0].get_ydata()
    assert abs(abs(difference).max() - 4.73) < 0.01


def test_a_layer_over_all_tokens_fixes_their_number():
    layer = SHEETS.FullyConnected(4, 8)
    with pytest.raises(ValueError, match="tokens must be 4, as many as when it was built, got 9"):
        layer(torch.randn(2, 9, 8))
    for pooling in (SHEETS.CLS(8), SHEETS.GAP(), SHEETS.MAP(8, n_heads=2)):
        assert pooling(pooling.join(torch.randn(2, 9, 8))).shape == (2, 8)


def test_the_mlp_head_goes_on_a_vit():
    model = small_vit(d_model=8, n_layers=1)
    model.classifier = SHEETS.MLPHead(8, 16, n_classes=10)
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize(
    "part",
    [
        {"classifier": SHEETS.MLPHead(8, 16, n_classes=10)},
        {"classifier": SHEETS.MLPHead(8, 16, n_classes=10, activation="relu")},
        {"pooling": SHEETS.FullyConnected(16, 8)},
        {"pooling": SHEETS.MAP(8, n_heads=2), "classifier": SHEETS.MLPHead(8, 3, 10)},
    ],
    ids=str,
)
def test_the_parts_that_a_sheet_asks_for_are_saved_and_loaded(tmp_path, part):
    model = hw.models.VisionTransformer(small_vit(d_model=8, n_layers=1).config, **part).eval()
    hw.save(model, tmp_path / "model")
    image = torch.rand(2, 1, 8, 8)
    assert torch.equal(hw.load(tmp_path / "model")(image), model(image))


def test_a_classifier_of_ones_own_is_saved_and_loaded(tmp_path):
    model = hw.models.VisionTransformer(small_vit(d_model=8, n_layers=1).config, classifier=TwoLayers(8, 10)).eval()
    hw.save(model, tmp_path / "model")
    image = torch.rand(2, 1, 8, 8)
    assert torch.equal(hw.load(tmp_path / "model", classes=[TwoLayers])(image), model(image))
    with pytest.raises(ValueError, match="TwoLayers"):
        hw.load(tmp_path / "model")


class TwoLayers(nn.Module):
    def __init__(self, d_in, n_classes):
        super().__init__()
        self.d_in, self.n_classes = d_in, n_classes
        self.network = nn.Sequential(nn.Linear(d_in, 5), nn.ReLU(), nn.Linear(5, n_classes))

    def forward(self, x):
        return self.network(x)


def test_self_attention_of_columns_is_that_of_rows():
    x, w = torch.randn(12, 5).double(), torch.randn(3, 12, 12).double()
    q, k, v = (w @ x).mT
    expected = F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0].mT
    torch.testing.assert_close(SHEETS.self_attention(x, *w), expected, rtol=0, atol=1e-12)


def test_the_page_names_every_program_and_nothing_else():
    page = (Path(__file__).parents[2] / "docs" / "sheets.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`hw\.sheets\.(\w+)", page))
    assert named == {name for name in dir(SHEETS) if not name.startswith("_")}
