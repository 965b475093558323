"""Choices that teaching repositories make, against PyTorch and loops from their equations."""

from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

import headwork as hw
from headwork import choices

from .small_models import (
    classifier,
    decoder,
    encoder,
    encoder_decoder,
    ready,
    real_tokens,
    some_ids,
    vision_transformer,
)

pytestmark = pytest.mark.usefixtures("float64")


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_the_norm_of_the_annotated_transformer() -> None:
    norm, x = ready(hw.layers.UnbiasedLayerNorm(7, eps=0.1)), torch.randn(3, 5, 7)
    expected = norm.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 0.1) + norm.bias
    close(norm(x), expected)
    close(norm.one_token()(x[:, 0]), expected[:, 0])
    constant = torch.ones(2, 7, requires_grad=True)
    norm(constant).sum().backward()
    assert constant.grad is not None
    assert constant.grad.isfinite().all()
    with pytest.raises(ValueError, match="d_model must be 2 or more"):
        hw.layers.UnbiasedLayerNorm(1)


def test_norms_around_the_layers_are_on_and_off() -> None:
    for make in (encoder, decoder, encoder_decoder, vision_transformer):
        for embedding, final in ((True, False), (False, True)):
            names = [n for n, _ in make(embedding_norm=embedding, final_norm=final).named_parameters()]
            assert any("embedding_norm" in name for name in names) == embedding
            assert any("final_norm" in name for name in names) == final
    assert encoder().layers.embedding_norm is not None
    assert encoder(norm_order="pre").layers.embedding_norm is None
    assert decoder(norm_order="post").layers.final_norm is None


def test_an_embedding_norm_is_a_norm_of_the_embedding() -> None:
    model, ids = ready(encoder(embedding_norm=False)), some_ids(2, 5)
    with hw.record(model, "layers.embedded") as seen:
        model(ids)
    first = model.embedding.table[ids] + model.layers.positions.table[:5] + model.segments.table[0]
    close(seen["layers.embedded"], first)


def test_the_largest_of_the_visible_tokens() -> None:
    tokens, real = torch.randn(3, 5, 7), real_tokens((5, 2, 1), 5)
    pooled = hw.layers.MaxPooling()(tokens, real)
    close(pooled, torch.stack([tokens[i, :n].amax(0) for i, n in enumerate((5, 2, 1))]))
    close(hw.layers.MaxPooling()(tokens), tokens.amax(1))
    assert not hw.layers.MaxPooling()(tokens, torch.zeros(3, 5, dtype=torch.bool)).any()


def test_a_plain_linear_head() -> None:
    head = choices.ClassificationHead(n_classes=5, pooling=choices.MeanPooling(), activation=None)
    model, ids = ready(encoder(head=head)), some_ids(2, 7)
    hidden = model.hidden(ids).mean(1)
    close(model(ids), F.linear(hidden, model.head.classifier.weight, model.head.classifier.bias))
    assert len(list(model.head.parameters())) == 2
    assert len(list(classifier(choices.MeanPooling()).head.parameters())) == 4


@pytest.mark.parametrize("hidden", [False, True])
def test_a_score_for_each_token(hidden: bool) -> None:
    model, ids = ready(encoder(head=choices.TokenClassificationHead(n_classes=5, hidden=hidden))), some_ids(2, 7)
    x, head = model.hidden(ids), model.head
    if hidden:
        dense, norm, _ = head.hidden
        x = torch.relu(F.layer_norm(dense(x), (18,), norm.weight, norm.bias, norm.eps))
    close(model(ids), F.linear(x, head.classifier.weight, head.classifier.bias))
    assert model(ids).shape == (2, 7, 5)
    described = hw.models.describe(model)
    assert described is not None
    assert (described.output, described.n_outputs) == ("token class", 5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_hidden_layer_in_the_head_of_an_image_model(activation: Any) -> None:
    model, image = (
        ready(vision_transformer(head=choices.MLPHead(d_hidden=11, activation=activation))),
        torch.randn(2, 2, 6, 15),
    )
    pooled = model.hidden(image)[:, 0]
    inside = getattr(torch, activation)(model.classifier.dense(pooled))
    close(model(image), model.classifier.classifier(inside))


def test_norms_around_the_map_of_patches() -> None:
    """As vit-pytorch writes it: Rearrange, LayerNorm, Linear, LayerNorm."""
    patches, image = ready(hw.layers.NormalisedPatchEmbedding(2, (2, 3), 7)), torch.randn(4, 2, 6, 15)
    flat = rearrange(image, "b c (row p) (column q) -> b (row column) (c p q)", p=2, q=3)
    norm, out = patches.pixel_norm, patches.norm
    x = F.layer_norm(flat, (12,), norm.weight, norm.bias, norm.eps)
    x = F.linear(x, patches.weight.reshape(7, 12), patches.bias)
    close(patches(image), F.layer_norm(x, (7,), out.weight, out.bias, out.eps))


def test_two_tokens_and_the_mean_of_two_heads() -> None:
    model, image = ready(vision_transformer(pooling=choices.DistillationToken())), torch.randn(2, 2, 6, 15)
    hidden = model.hidden(image)
    assert hidden.shape[1] == 2 + 15
    one, other = model.classifier.weight.chunk(2, dim=1)
    close(model(image), hidden[:, 0] @ one.T + hidden[:, 1] @ other.T + model.classifier.bias)


@pytest.mark.parametrize("biases", [False, True])
def test_learned_relative_codes_equal_a_loop(biases: bool) -> None:
    shifts = ready(hw.layers.LearnedShifts(2, 4, max_distance=2, biases=biases))
    attention = ready(hw.layers.MultiHeadAttention(8, 2, relative=shifts), seed=1)
    x = torch.randn(1, 6, 8)
    q, k = (rearrange(p(x)[0], "token (head d) -> head token d", head=2) for p in (attention.query, attention.key))
    expected = torch.empty(1, 2, 6, 6)
    for h in range(2):
        for i in range(6):
            for j in range(6):
                shift = max(-2, min(2, j - i)) + 2
                expected[0, h, i, j] = q[h, i] @ k[h, j] + q[h, i] @ shifts.table[h, shift]
                if biases:
                    expected[0, h, i, j] += shifts.query_bias[h] @ k[h, j] + shifts.shift_bias[h, shift]
    with hw.record(attention, "scores") as seen:
        attention(x)
    close(seen["scores"], expected / 2)


def test_learned_relative_codes_know_the_shift_only() -> None:
    model = ready(decoder(position=choices.LearnedRelativePositions(max_distance=3)))
    ids = some_ids(1, 9)
    visible = torch.tensor([[False] * 2 + [True] * 9])
    shifted = torch.cat([torch.zeros(1, 2, dtype=torch.long), ids], dim=1)
    close(model(shifted, visible=visible)[:, 2:], model(ids))


def test_additive_attention_equals_a_loop() -> None:
    attention = ready(hw.layers.AdditiveAttention(3, 5, 7))
    q, k, v, visible = torch.randn(2, 4, 3), torch.randn(2, 6, 5), torch.randn(2, 6, 2), torch.rand(2, 4, 6) > 0.3
    visible[..., 0] = True
    expected = torch.empty(2, 4, 2)
    for b in range(2):
        for i in range(4):
            scores = [attention.score @ torch.tanh(attention.query(q[b, i]) + attention.key(k[b, j])) for j in range(6)]
            hidden = torch.stack(scores).masked_fill(~visible[b, i], -torch.inf)
            expected[b, i] = hidden.softmax(0) @ v[b]
    close(attention(q, k, v, visible), expected)
    with hw.record(attention, "weights") as seen:
        attention(q, k, v, visible)
    close(seen["weights"].sum(-1), torch.ones(2, 4))
    blind = attention(q, k, v, torch.zeros(2, 4, 6, dtype=torch.bool))
    assert not blind.any()
    assert isinstance(attention, nn.Module)
