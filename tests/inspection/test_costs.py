"""hw.cost: counted, and equal to the formula and to torch's own counter where that one is right."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import headwork as hw
from headwork.choices import FeedForward, Heads, RelativePositions
from headwork.layers import EncoderLayer, MultiHeadAttention
from headwork.models import PUBLISHED, Encoder, EncoderConfig
from tests.inspection.small_models import cells_of

from .test_tracing import inputs_of


def test_attention_costs_what_the_formula_says():
    batch, query, key, d_model, n_heads, d_head, d_value, d_memory = 2, 3, 5, 14, 7, 11, 13, 17
    layer = MultiHeadAttention(d_model, n_heads, d_head=d_head, d_value=d_value, d_memory=d_memory)
    x, memory = torch.randn(batch, query, d_model), torch.randn(batch, key, d_memory)
    by_operation = hw.cost(layer, x, memory).by_operation()
    assert by_operation["scores"] == 2 * batch * n_heads * query * key * d_head
    assert by_operation["mixing"] == 2 * batch * n_heads * query * key * d_value
    assert by_operation["projections"] == 2 * batch * n_heads * (
        query * d_model * d_head + key * d_memory * (d_head + d_value) + query * d_value * d_model
    )


BIG = pytest.param("llama-3-8b", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["digits-vit", "resnet20", "bert-base", "gpt2", "t5-small", BIG])
def test_agrees_with_torch_where_torch_counts_every_product(name):
    """With the unfused kernel torch's counter sees both attention products; with the fused one it counts 0 for them."""
    with FakeTensorMode():
        model = PUBLISHED[name].build().eval()
        inputs = inputs_of(PUBLISHED[name], n_tokens=7)
        ours = hw.cost(model, *inputs).flops
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            model(*inputs)
    assert ours == counter.get_total_flops()


def test_torch_alone_would_miss_fused_attention():
    """pytorch#195460; if this fails, torch has been mended and our own count can go."""
    q = torch.randn(1, 2, 5, 8)
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert counter.get_total_flops() == 0


def test_counting_is_the_same_with_and_without_numbers():
    real = hw.cost(PUBLISHED["digits-vit"].build(), torch.zeros(3, 1, 8, 8))
    with FakeTensorMode():
        fake = hw.cost(PUBLISHED["digits-vit"].build(), torch.zeros(3, 1, 8, 8))
    assert fake == real


@pytest.mark.slow
def test_parameters_of_published_models():
    published = {
        "bert-base": 109_514_298,
        "gpt2": 124_439_808,
        "llama-2-7b": 6_738_415_616,
        "llama-3-8b": 8_030_261_248,
        "t5-small": 60_506_624,
        "vit-b16": 86_567_656 - 768,  # the position of the class token is part of the class token here
    }
    for name, count in published.items():
        with FakeTensorMode():
            price = hw.cost(PUBLISHED[name].build(), *inputs_of(PUBLISHED[name]))
        assert price.n_parameters == count, name
        assert price.parameter_bytes == 4 * count


def test_projections_dominate_until_twice_the_width():
    """Question 2d of the EECS 182 sheet: 8 n d^2 for the projections, 4 n^2 d for the products, equal at n = 2 d."""
    layer = MultiHeadAttention(d_model=6, n_heads=2)
    for n in (3, 11, 12, 13, 50):
        x = torch.randn(1, n, 6)
        price = hw.cost(layer, x, x)
        assert price.crossover == 12
        assert price.n_tokens == n
        assert ("the attention products cost" in price.verdict()) == (n >= 12)


def test_whole_layer_crosses_over_at_six_times_the_width():
    layer = EncoderLayer(6, heads=Heads(n_heads=2), feed_forward=FeedForward(d_ff=24), norm_order="pre")
    price = hw.cost(layer, torch.randn(1, 5, 6))
    assert price.crossover == 12
    assert price.whole_crossover == 36


def test_quadratic_and_linear_terms_grow_as_they_should():
    layer = MultiHeadAttention(d_model=6, n_heads=2)
    short, long = (hw.cost(layer, torch.randn(1, n, 6), torch.randn(1, n, 6)) for n in (4, 12))
    assert long.projections == 3 * short.projections
    assert long.attention == 9 * short.attention


def test_activation_memory_is_what_autograd_keeps():
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 7), nn.Tanh())
    kept_floats = 2 * 5 + 2 * 7  # the two outputs of tanh; the first linear keeps the input, which is there anyway
    assert hw.cost(network, torch.randn(2, 3)).activation_bytes == 4 * kept_floats


def test_a_model_that_cannot_learn_keeps_nothing():
    network = nn.Linear(3, 5).requires_grad_(False)
    assert hw.cost(network, torch.randn(2, 3)).activation_bytes == 0


def test_fused_attention_keeps_no_query_times_key_table():
    layer = MultiHeadAttention(d_model=8, n_heads=1)
    short, long = (hw.cost(layer, x, x).activation_bytes for x in (torch.randn(1, n, 8) for n in (64, 256)))
    assert long == 4 * short


def test_counts_a_cnn_and_says_there_is_no_attention():
    price = hw.cost(PUBLISHED["resnet20"].build(), torch.zeros(1, 3, 32, 32))
    assert price.by_operation()["convolution"] > 0.99 * price.flops
    assert price.crossover is None
    assert price.verdict() == "No attention was seen in this model."


def test_relative_positions_count_as_scores():
    config = EncoderConfig(
        vocab=5,
        head=hw.choices.NoHead(),
        d_model=6,
        n_layers=1,
        heads=Heads(n_heads=2),
        feed_forward=FeedForward(d_ff=7),
        position=RelativePositions(),
    )
    price = hw.cost(Encoder(config), torch.zeros(1, 3, dtype=torch.long))
    products = 2 * 3 * 3 * 6
    by_shift = 2 * 3 * 5 * 6
    assert price.by_operation()["scores"] == products + by_shift


def test_the_model_is_left_as_it_was():
    model = PUBLISHED["digits-vit"].build().train()
    hw.cost(model, torch.zeros(1, 1, 8, 8))
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_printed_form_has_the_numbers():
    text = str(hw.cost(PUBLISHED["digits-vit"].build(), torch.zeros(1, 1, 8, 8)))
    for part in ("136,074", "projections", "feed-forward", "scores", "mixing", "from 128 tokens on"):
        assert part in text


def test_counts_in_inference_mode_and_with_keywords():
    layer = MultiHeadAttention(d_model=6, n_heads=2)
    x, memory = torch.randn(1, 3, 6), torch.randn(1, 50, 6)
    expected = hw.cost(layer, x, memory)
    assert expected.activation_bytes > 0
    assert hw.cost(layer, x, memory=memory) == expected
    assert hw.cost(layer, x=x, memory=memory) == expected
    assert expected.n_tokens == 50
    with torch.inference_mode():
        assert hw.cost(layer, x, memory).flops == expected.flops


def test_a_notebook_shows_a_table_of_operations():
    attention, x = MultiHeadAttention(d_model=64, n_heads=4), torch.randn(1, 5, 64)
    found = hw.cost(attention, x, x)
    html = found._repr_html_()
    assert ["projections", f"{found.projections:,}", "96.2%"] in cells_of(html)
    for line in (*str(found).splitlines()[:3], *found.verdict().splitlines()):
        assert line in html


def test_attention_of_pytorch_is_counted_and_said_to_have_no_parts():
    layers = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3, enable_nested_tensor=False
    )
    price = hw.cost(layers, torch.zeros(1, 5, 8))
    assert price.verdict().startswith("The products of 3 nn.MultiheadAttention are counted, and not told apart")
    ours = hw.cost(hw.from_torch(layers), torch.zeros(1, 5, 8))
    assert (ours.flops, ours.n_torch_attention) == (price.flops, 0)
    assert ours.attention > 0
