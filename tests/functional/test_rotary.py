"""Rotary positions against loops, Llama (halves) and GPT-J (interleaved), and the law they exist for."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from headwork import choices
from headwork.functional import rotary_angles, rotate
from headwork.layers import RotaryPositions

from ..models.parity.comparing import NothingBelowFloat64

BATCH, HEAD, TOKEN, D_HEAD = 2, 3, 5, 14

both_layouts = pytest.mark.parametrize("layout", ["interleaved", "halves"])


def random_heads():
    return torch.randn(BATCH, HEAD, TOKEN, D_HEAD, dtype=torch.float64)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("d_head", [2, 4, 14])
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_angles_equal_the_formula(d_head, base):
    places = [0, 1, 11, -3]
    expected = [[p / base ** (2 * i / d_head) for i in range(d_head // 2)] for p in places]
    np.testing.assert_allclose(rotary_angles(torch.tensor(places), d_head, base=base), expected, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_halves_equal_llama_in_value_and_gradient(assert_same):
    angles = rotary_angles(torch.arange(TOKEN), D_HEAD)
    both = torch.cat([angles, angles], -1)[None]

    def theirs(q, k):
        return torch.stack(modeling_llama.apply_rotary_pos_emb(q, k, both.cos(), both.sin()))

    assert_same(
        lambda q, k: torch.stack([rotate(q, angles, "halves"), rotate(k, angles, "halves")]),
        theirs,
        random_heads(),
        random_heads(),
    )


@pytest.mark.usefixtures("float64")
def test_interleaved_equals_gpt_j_in_value_and_gradient(assert_same):
    angles = rotary_angles(torch.arange(TOKEN), D_HEAD)

    def theirs(x):
        token_first = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), angles.sin()[None], angles.cos()[None])
        return token_first.transpose(1, 2)

    assert_same(lambda x: rotate(x, angles), theirs, random_heads())


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_angles_equal_those_of_llama(theta):
    config = LlamaConfig(
        hidden_size=HEAD * D_HEAD,
        num_attention_heads=HEAD,
        head_dim=D_HEAD,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    places = torch.tensor([[0, 1, 2, 509, 4001]])
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(torch.zeros(1), places)
    angles = rotary_angles(places, D_HEAD, base=theta).float()
    torch.testing.assert_close(torch.cat([angles, angles], -1).cos(), cos, rtol=0, atol=1e-3)
    torch.testing.assert_close(torch.cat([angles, angles], -1).sin(), sin, rtol=0, atol=1e-3)


def test_angles_equal_those_of_gpt_j():
    sin, cos = modeling_gptj.create_sinusoidal_positions(101, D_HEAD).chunk(2, dim=-1)
    angles = rotary_angles(torch.arange(101), D_HEAD).float()
    torch.testing.assert_close(angles.sin(), sin, rtol=0, atol=1e-4)
    torch.testing.assert_close(angles.cos(), cos, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("float64")
@both_layouts
def test_rotation_equals_loops_over_the_pairs(layout):
    x, angles = torch.randn(TOKEN, D_HEAD), torch.randn(TOKEN, D_HEAD // 2)
    turned = rotate(x, angles, layout)
    for token, pair in np.ndindex(TOKEN, D_HEAD // 2):
        first, second = (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, pair + D_HEAD // 2)
        a, b, angle = x[token, first].item(), x[token, second].item(), angles[token, pair].item()
        assert turned[token, first].item() == pytest.approx(a * math.cos(angle) - b * math.sin(angle), abs=1e-10)
        assert turned[token, second].item() == pytest.approx(a * math.sin(angle) + b * math.cos(angle), abs=1e-10)


@both_layouts
@settings(max_examples=50, deadline=None)
@given(place=st.integers(-100, 100), apart=st.integers(-50, 50), shift=st.integers(-100, 100), seed=st.integers(0, 999))
def test_the_product_depends_on_the_distance_only(layout, place, apart, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(1, D_HEAD, dtype=torch.float64, generator=generator) for _ in range(2))

    def product(query_place, key_place):
        angles = rotary_angles(torch.tensor([[query_place], [key_place]]), D_HEAD).double()
        return rotate(q, angles[0], layout) @ rotate(k, angles[1], layout).T

    torch.testing.assert_close(
        product(place, place + apart), product(place + shift, place + shift + apart), rtol=0, atol=1e-3
    )


@pytest.mark.usefixtures("float64")
@both_layouts
def test_the_product_of_shifted_tokens_stays_to_1e_10(layout):
    q, k = random_heads(), random_heads()
    here, there = (rotary_angles(torch.arange(start, start + TOKEN), D_HEAD) for start in (0, 37))
    products = [rotate(q, angles, layout) @ rotate(k, angles, layout).mT for angles in (here, there)]
    torch.testing.assert_close(*products, rtol=0, atol=1e-10)
    assert not torch.allclose(products[0], q @ k.mT)


@pytest.mark.usefixtures("float64")
@both_layouts
def test_lengths_are_kept_and_place_0_does_not_turn(layout):
    x = random_heads()
    turned = rotate(x, rotary_angles(torch.arange(TOKEN), D_HEAD), layout)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=0, atol=1e-10)
    assert torch.equal(turned[..., 0, :], x[..., 0, :])


@both_layouts
def test_each_batch_entry_may_stand_elsewhere(layout):
    """Left padding moves the places of a sentence."""
    x = random_heads().float()
    places = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    turned = rotate(x, rotary_angles(places, D_HEAD)[:, None], layout)
    for entry in range(BATCH):
        assert torch.equal(turned[entry], rotate(x[entry], rotary_angles(places[entry], D_HEAD), layout))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_keeps_its_places_apart(dtype):
    """bfloat16 has no 4001; the angles must not be rounded to the precision of the features."""
    x = random_heads().to(dtype)
    angles = rotary_angles(torch.arange(3998, 3998 + TOKEN), D_HEAD)
    turned = rotate(x, angles)
    assert turned.dtype == dtype
    torch.testing.assert_close(turned.double(), rotate(x.double(), angles.double()), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("d_head", [7, 1, 0, -2])
def test_a_width_that_has_no_pairs_is_refused(as_users_run_it, d_head):
    with pytest.raises(ValueError, match=rf"d_head must be even \(.*pairs.*\), got {d_head}"):
        rotary_angles(torch.arange(3), d_head)


def test_an_odd_number_of_features_is_refused(as_users_run_it):
    with pytest.raises(ValueError, match="x must have twice as many features as there are angles, got 13 and 7"):
        rotate(torch.zeros(TOKEN, 13), torch.zeros(TOKEN, 7))


def test_an_unknown_layout_is_refused(as_users_run_it):
    with pytest.raises(ValueError, match="layout must be one of interleaved, halves, got 'thirds'"):
        rotate(torch.zeros(TOKEN, 14), torch.zeros(TOKEN, 7), "thirds")


def test_places_survive_a_coarse_default_dtype():
    precise = rotary_angles(torch.arange(2000), D_HEAD)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(rotary_angles(torch.arange(2000), D_HEAD), precise)
    finally:
        torch.set_default_dtype(torch.float32)


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
SCALINGS: dict[str, tuple[choices.RotaryScaling, dict[str, Any]]] = {
    "linear": (choices.LinearScaling(factor=3.0), {"rope_type": "linear", "factor": 3.0}),
    "llama3": (choices.Llama3Scaling(factor=8.0, original_max_tokens=64), {"rope_type": "llama3", **LLAMA3}),
    "yarn": (choices.YarnScaling(factor=4.0, original_max_tokens=64), {"rope_type": "yarn", **YARN}),
    "yarn-fine": (
        choices.YarnScaling(
            factor=4.0, original_max_tokens=64, fast=16.0, slow=2.0, attention_factor=1.5, whole_pairs=False
        ),
        {"rope_type": "yarn", **YARN, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.5, "truncate": False},
    ),
}


def by_transformers(rope: dict[str, Any], x: torch.Tensor, places: torch.Tensor, fraction: float) -> torch.Tensor:
    """Queries rotated as Llama does it, whose tables are float32 of themselves."""
    rope = {"rope_theta": 50.0, "partial_rotary_factor": fraction, **rope}
    config = LlamaConfig(head_dim=x.shape[-1], rope_parameters=rope, max_position_embeddings=16)
    with NothingBelowFloat64():
        cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(x, places)
    turned = cos.shape[-1]
    rotated, _ = modeling_llama.apply_rotary_pos_emb(x[..., :turned], x[..., :turned], cos, sin)
    return torch.cat([rotated, x[..., turned:]], dim=-1)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("fraction", [1.0, 0.6])
def test_scaled_frequencies_equal_those_of_transformers(name: str, fraction: float) -> None:
    choice, theirs = SCALINGS[name]
    x, places = random_heads(), torch.tensor([[0, 1, 7, 100, 1000]])
    rotation = RotaryPositions(D_HEAD, base=50.0, scaling=choice, fraction=fraction).rotation(places)
    torch.testing.assert_close(rotation.rotate(x), by_transformers(theirs, x, places, fraction), rtol=0, atol=1e-9)


@pytest.mark.usefixtures("float64")
def test_ntk_is_the_dynamic_scaling_of_transformers_at_one_length() -> None:
    """There the factor is that of the length: s n / n_max - (s - 1)."""
    x, places = random_heads(), torch.tensor([[0, 1, 7, 20, 39]])
    expected = by_transformers({"rope_type": "dynamic", "factor": 3.0}, x, places, 1.0)
    scaling = choices.NTKScaling(factor=3.0 * 40 / 16 - 2)
    rotation = RotaryPositions(D_HEAD, base=50.0, scaling=scaling).rotation(places)
    torch.testing.assert_close(rotation.rotate(x), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("scaling", [choice for choice, _ in SCALINGS.values()], ids=list(SCALINGS))
def test_a_scaled_product_knows_the_distance_only(scaling: choices.RotaryScaling) -> None:
    q, k = torch.randn(2, 1, 1, 1, D_HEAD, dtype=torch.float64)
    positions = RotaryPositions(D_HEAD, scaling=scaling, fraction=0.6)

    def product(at_q: int, at_k: int) -> float:
        turned = [positions.rotation(torch.tensor([[at]])).rotate(t) for at, t in ((at_q, q), (at_k, k))]
        return (turned[0] * turned[1]).sum().item()

    assert product(3, 11) == pytest.approx(product(903, 911), abs=1e-9)
    assert product(3, 11) != pytest.approx(product(3, 12), abs=1e-3)


def test_a_factor_of_one_scales_nothing() -> None:
    x, places = random_heads(), torch.arange(TOKEN)[None]
    plain = RotaryPositions(D_HEAD).rotation(places).rotate(x)
    for scaling in (
        choices.LinearScaling(factor=1.0),
        choices.NTKScaling(factor=1.0),
        choices.Llama3Scaling(factor=1.0, original_max_tokens=8),
        choices.YarnScaling(factor=1.0, original_max_tokens=8),
    ):
        torch.testing.assert_close(RotaryPositions(D_HEAD, scaling=scaling).rotation(places).rotate(x), plain)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RotaryPositions(D_HEAD, fraction=0.5), "fraction must leave an even number .* got fraction=0.5 of"),
        (lambda: RotaryPositions(D_HEAD, fraction=0.1), "fraction must leave an even number"),
        (lambda: choices.RotaryPositions(fraction=1.5), r"fraction must lie in \(0, 1\], got 1.5"),
        (lambda: choices.LinearScaling(factor=0.0), "factor must be more than 0"),
        (lambda: choices.Llama3Scaling(factor=8.0, original_max_tokens=64, low=4.0), "low must be less than high"),
        (lambda: RotaryPositions(D_HEAD, max_tokens=0), "max_tokens must be 1 or more, got 0"),
        (lambda: RotaryPositions(2, scaling=choices.NTKScaling(factor=2.0)).rotation(torch.ones(1, 1).long()), "4 or"),
    ],
)
def test_rotations_that_cannot_be(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_positions_come_to_an_end() -> None:
    positions = RotaryPositions(D_HEAD, max_tokens=5)
    assert positions.vectors(torch.arange(5)[None], 5) is None
    with pytest.raises(ValueError, match="must not be longer than the 5 positions that the model was made for, got 6"):
        positions.vectors(torch.arange(6)[None], 6)
    assert positions.vectors(torch.tensor([[0, 0, 0, 1, 2, 3]]), 6) is None  # padding has no position
