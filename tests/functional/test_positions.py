"""Absolute positions against the formula in loops, Hugging Face's Marian, and the product they fall out of."""

import math

import numpy as np
import pytest
import torch
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from headwork.functional import absolute_scores, sinusoidal_positions, sinusoidal_positions_2d, sinusoids

WIDTHS = [1, 2, 3, 4, 5, 8, 17]


def by_loops(positions, d_model, base=10_000.0):
    table = np.zeros((len(positions), d_model))
    for row, p in enumerate(positions):
        for i in range(d_model // 2 + 1):
            angle = p / base ** (2 * i / d_model)
            if 2 * i < d_model:
                table[row, 2 * i] = math.sin(angle)
            if 2 * i + 1 < d_model:
                table[row, 2 * i + 1] = math.cos(angle)
    return table


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("d_model", WIDTHS)
@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_equals_the_formula_at_any_width(d_model, base):
    """SamLynnEvans#25, base-llm#67: wrong at odd widths; whisper and vit-pytorch: NaN at the smallest."""
    expected = by_loops(range(13), d_model, base)
    np.testing.assert_allclose(sinusoidal_positions(13, d_model, base=base), expected, atol=1e-10)


@pytest.mark.parametrize("d_model", [*WIDTHS, 30, 300])
def test_float32_is_the_exact_number_rounded_far_out_too(d_model):
    """The angle needs float64 from the start: an exponent rounded to float32 is off by 1e-4 at position 5000."""
    far = torch.tensor([0, 1, 509, 4999])
    table = sinusoids(far, d_model)
    assert table.dtype == torch.float32
    np.testing.assert_allclose(table, by_loops(far.tolist(), d_model), rtol=0, atol=1e-7)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("d_model", WIDTHS)
def test_halves_are_the_sines_and_then_the_cosines(d_model):
    table = by_loops(range(13), d_model)
    expected = np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)
    np.testing.assert_allclose(sinusoidal_positions(13, d_model, layout="halves"), expected, atol=1e-10)


@pytest.mark.parametrize("d_model", [2, 3, 8, 17, 30])
def test_halves_equal_marian(d_model):
    theirs = MarianSinusoidalPositionalEmbedding(1009, d_model).create_weight()
    torch.testing.assert_close(sinusoidal_positions(1009, d_model, layout="halves"), theirs, rtol=0, atol=1e-7)


@pytest.mark.usefixtures("float64")
def test_any_places_in_any_order():
    places = torch.tensor([[3, -2, 0], [-7, 11, 3]])
    expected = by_loops(places.flatten().tolist(), 5).reshape(2, 3, 5)
    np.testing.assert_allclose(sinusoids(places, 5), expected, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_a_shift_is_a_rotation_of_each_pair():
    """What the authors chose them for: the code of p + 3 is linear in the code of p."""
    table = sinusoidal_positions(11, 8)
    for pair in range(4):
        angle = 3 / 10_000 ** (2 * pair / 8)
        turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        here, there = table[:8, 2 * pair : 2 * pair + 2], table[3:, 2 * pair : 2 * pair + 2]
        torch.testing.assert_close(here @ turn.T, there, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("d_model", [2, 3, 5, 8])
def test_two_dimensions_are_the_row_and_then_the_column(d_model):
    table = sinusoidal_positions_2d(5, 7, d_model, base=100.0)
    assert table.shape == (5, 7, d_model)
    d_column = d_model // 2
    rows, columns = by_loops(range(5), d_model - d_column, 100.0), by_loops(range(7), d_column, 100.0)
    for row in range(5):
        for column in range(7):
            expected = np.concatenate([rows[row], columns[column]])
            np.testing.assert_allclose(table[row, column], expected, atol=1e-10)


def random_tokens():
    return tuple(torch.randn(*shape, dtype=torch.float64) for shape in ((2, 5, 7), (5, 7), (7, 3), (7, 3)))


def test_the_four_terms_sum_to_the_product_in_value_and_gradient(assert_same):
    assert_same(
        lambda *inputs: absolute_scores(*inputs).total(),
        lambda z, p, w_q, w_k: (z + p) @ w_q @ w_k.T @ (z + p).mT,
        *random_tokens(),
    )


def test_each_term_equals_loops_over_queries_and_keys():
    z, p, w_q, w_k = random_tokens()
    terms = absolute_scores(z, p, w_q, w_k)
    zs, ps = z.numpy(), p.numpy()
    between = (w_q @ w_k.T).numpy()
    for b in range(2):
        for i in range(5):
            for j in range(5):
                expected = [
                    zs[b, i] @ between @ zs[b, j],
                    zs[b, i] @ between @ ps[j],
                    ps[i] @ between @ zs[b, j],
                    ps[i] @ between @ ps[j],
                ]
                got = [terms[0][b, i, j], terms[1][b, i, j], terms[2][b, i, j], terms.position_position[i, j]]
                np.testing.assert_allclose(got, expected, atol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sinusoidal_positions(0, 8), "n_positions must be 1 or more, got 0"),
        (lambda: sinusoidal_positions(3, 0), "d_model must be 1 or more, got 0"),
        (lambda: sinusoids(torch.arange(3), -2), "d_model must be 1 or more, got -2"),
        (
            lambda: sinusoidal_positions(3, 8, layout="thirds"),
            "layout must be one of interleaved, halves, got 'thirds'",
        ),
        (lambda: sinusoidal_positions_2d(3, 5, 1), "d_model must be 2 or more .*, got 1"),
        (lambda: sinusoidal_positions_2d(3, 0, 8), "must be 1 or more, got 0"),
    ],
)
def test_bad_input_is_refused(as_users_run_it, call, message):
    with pytest.raises(ValueError, match=message):
        call()
