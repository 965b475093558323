"""Position modules: what is added, what is rotated, what the scores gain."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.layers import (
    AlibiPositions,
    BucketPositions,
    LearnedGrid,
    LearnedPositions,
    Positions,
    RelativeShifts,
    RotaryPositions,
    SinusoidalGrid,
    SinusoidalPositions,
)
from headwork.layers.positions import count_positions, make_grid, make_positions

YARN = choices.YarnScaling(factor=4.0, original_max_tokens=16)
BATCH, HEAD, D_HEAD, TOKEN, KEY, D_MODEL = 2, 3, 4, 5, 11, 7


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def positions(*numbers: int) -> Tensor:
    return torch.tensor([numbers])


def test_no_positions_answer_nothing() -> None:
    none = Positions()
    assert none.vectors(positions(0, 1), 2) is None
    assert none.rotation(positions(0, 1)) is None
    assert none.bias(torch.zeros(1, 2, D_MODEL), 2) is None


@pytest.mark.parametrize(
    ("module", "answers"),
    [
        (LearnedPositions(KEY, D_MODEL), "vectors"),
        (SinusoidalPositions(D_MODEL), "vectors"),
        (RotaryPositions(D_HEAD), "rotation"),
        (AlibiPositions(HEAD), "bias"),
        (BucketPositions(HEAD, bidirectional=True), "bias"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_answers_one_of_the_three_questions(module: Positions, answers: str) -> None:
    x = torch.zeros(1, TOKEN, D_MODEL)
    given = {
        "vectors": module.vectors(torch.arange(TOKEN)[None], TOKEN),
        "rotation": module.rotation(torch.arange(TOKEN)[None]),
        "bias": module.bias(x, TOKEN),
    }
    assert [name for name, answer in given.items() if answer is not None] == [answers]


# --- learned -------------------------------------------------------------------------------------------------------


def test_learned_positions_are_the_rows_of_the_table() -> None:
    learned = LearnedPositions(KEY, D_MODEL)
    chosen = torch.tensor([[0, 3, 10], [2, 2, 1]])
    vectors = learned.vectors(chosen, KEY)
    for b in range(2):
        for i in range(3):
            assert torch.equal(vectors[b, i], learned.table[chosen[b, i]])
    vectors.sum().backward()
    assert learned.table.grad[2].sum() == 2 * D_MODEL


@pytest.mark.parametrize("n_total", [KEY + 1, 1000])
def test_a_text_longer_than_the_table_is_refused(n_total: int) -> None:
    """PEERS 31: elsewhere "index out of range in self"."""
    with pytest.raises(ValueError, match=f"longer than the {KEY} learned positions, got {n_total} tokens"):
        LearnedPositions(KEY, D_MODEL).vectors(positions(0, n_total - 1), n_total)
    LearnedPositions(KEY, D_MODEL).vectors(positions(0, 1), KEY)


def test_padding_takes_no_place() -> None:
    LearnedPositions(KEY, D_MODEL).vectors(positions(0, 1), 1000)


# --- sinusoids -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("d_model", [1, 2, D_MODEL])
@pytest.mark.parametrize("n_total", [3, 1024, 1025, 1500])
def test_sinusoids_equal_the_formula_within_and_beyond_the_ready_table(layout: str, d_model: int, n_total: int) -> None:
    """SamLynnEvans#25, base-llm#67: wrong or crashing at odd widths, NaN at the smallest."""
    module = SinusoidalPositions(d_model, base=100.0, layout=layout)
    asked = torch.tensor([[0, 1, n_total - 1]])
    wanted = np.zeros((3, d_model))
    for i, p in enumerate(asked[0].tolist()):
        for c in range(d_model):
            angle = p / 100.0 ** (2 * (c // 2) / d_model)
            place = c if layout == "interleaved" else c // 2 + (c % 2) * (d_model - d_model // 2)
            wanted[i, place] = math.sin(angle) if c % 2 == 0 else math.cos(angle)
    assert_same(module.vectors(asked, n_total)[0], torch.from_numpy(wanted))
    function = hw.functional.sinusoidal_positions(n_total, d_model, base=100.0, layout=layout)
    assert_same(module.vectors(asked, n_total)[0], function[asked[0]])


def test_sinusoids_are_not_saved_and_follow_the_precision() -> None:
    module = SinusoidalPositions(D_MODEL)
    assert not module.state_dict()
    for n_total in (5, 2000):
        assert module.to(torch.bfloat16).vectors(positions(0, 4), n_total).dtype == torch.bfloat16


# --- rotary --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
def test_rotation_equals_llamas() -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=HEAD * D_HEAD, num_attention_heads=HEAD, head_dim=D_HEAD)
    q, k = torch.randn(BATCH, HEAD, TOKEN, D_HEAD), torch.randn(BATCH, HEAD, TOKEN, D_HEAD)
    chosen = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]])
    cos, sin = LlamaRotaryEmbedding(config)(q, chosen)
    rotation = RotaryPositions(D_HEAD).rotation(chosen)
    for ours, theirs in zip(
        (rotation.rotate(q), rotation.rotate(k)), apply_rotary_pos_emb(q, k, cos, sin), strict=True
    ):
        assert_same(ours, theirs, 1e-6)  # their angles are float32


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@settings(max_examples=20, deadline=None)
@given(distance=st.integers(-6, 6), start=st.integers(6, 50))
def test_a_rotated_product_knows_the_distance_only(layout: str, distance: int, start: int) -> None:
    module = RotaryPositions(D_HEAD, layout=layout)
    q, k = (torch.randn(1, 1, 1, D_HEAD, dtype=torch.float64) for _ in "qk")

    def product(at_q: int, at_k: int) -> Tensor:
        return (module.rotation(positions(at_q)).rotate(q) * module.rotation(positions(at_k)).rotate(k)).sum()

    assert_same(product(start, start + distance), product(6, 6 + distance), 1e-5)


def test_position_zero_is_not_rotated() -> None:
    q = torch.randn(1, HEAD, 1, D_HEAD)
    assert torch.equal(RotaryPositions(D_HEAD).rotation(positions(0)).rotate(q), q)


@pytest.mark.parametrize("d_head", [1, 3, 7])
def test_rotation_of_an_odd_width_is_refused(d_head: int) -> None:
    with pytest.raises(ValueError, match=f"d_head must be even .* got {d_head}"):
        RotaryPositions(d_head)


def test_layouts_and_bases_differ() -> None:
    q = torch.randn(1, HEAD, 2, D_HEAD)
    halves, interleaved, slow = (
        RotaryPositions(D_HEAD, **how).rotation(positions(3, 4)).rotate(q)
        for how in ({"layout": "halves"}, {"layout": "interleaved"}, {"layout": "halves", "base": 100.0})
    )
    assert not torch.allclose(halves, interleaved)
    assert not torch.allclose(halves, slow)


# --- biases --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_query", [KEY, 3, 1])
@pytest.mark.parametrize("n_heads", [1, 3, 8])
def test_alibi_fades_with_the_distance(n_query: int, n_heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    bias = AlibiPositions(n_heads).bias(torch.zeros(BATCH, n_query, D_MODEL), KEY)
    of_bloom = build_alibi_tensor(torch.ones(1, KEY), n_heads, torch.float64).view(n_heads, KEY)
    slopes = of_bloom[:, 1]
    for i in range(n_query):
        for j in range(KEY):
            assert_same(bias[0, :, i, j], -slopes * abs(j - (KEY - n_query + i)), 1e-6)


def test_alibi_follows_the_precision_of_the_tokens() -> None:
    assert AlibiPositions(HEAD).bias(torch.zeros(1, 2, D_MODEL, dtype=torch.bfloat16), 5).dtype == torch.bfloat16


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("n_query", [40, 3, 1])
def test_buckets_equal_t5(bidirectional: bool, n_query: int) -> None:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=6,
        d_kv=2,
        num_heads=HEAD,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        is_decoder=not bidirectional,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = BucketPositions(HEAD, n_buckets=8, max_distance=20, bidirectional=bidirectional)
    ours.table.data.copy_(theirs.relative_attention_bias.weight.data)
    bias = ours.bias(torch.zeros(BATCH, n_query, D_MODEL), 40)
    wanted = theirs.compute_bias(40, 40)[:, :, -n_query:]  # the last queries, as with a cache
    assert torch.equal(bias, wanted)
    counts = torch.arange(bias.numel()).cos().view_as(bias)
    (bias * counts).sum().backward()
    (wanted * counts).sum().backward()
    assert_same(ours.table.grad, theirs.relative_attention_bias.weight.grad)


@pytest.mark.usefixtures("float64")
def test_relative_shifts_equal_a_loop_over_pairs() -> None:
    """q.k + q.r + u.k + v.r with r = W~_k R(query - key)."""
    shifts = RelativeShifts(D_MODEL, HEAD, D_HEAD)
    nn.init.normal_(shifts.u)
    nn.init.normal_(shifts.v)
    q, k = torch.randn(BATCH, HEAD, TOKEN, D_HEAD), torch.randn(BATCH, HEAD, KEY, D_HEAD)
    with_u, bias = shifts(q, KEY, 0.5)
    scores = 0.5 * with_u @ k.mT + bias
    for i in range(TOKEN):
        for j in range(KEY):
            shift = torch.tensor([KEY - TOKEN + i - j])
            r = shifts.key(hw.functional.sinusoids(shift, D_MODEL)[0]).view(HEAD, D_HEAD)
            for h in range(HEAD):
                terms = q[:, h, i] @ r[h] + (q[:, h, i] * k[:, h, j]).sum(-1) + k[:, h, j] @ shifts.u[h]
                assert_same(scores[:, h, i, j], 0.5 * (terms + shifts.v[h] @ r[h]))


# --- grids ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("grid", [(4, 4), (2, 3), (8, 5), (1, 1), (2, 8)], ids=str)
def test_learned_grid_equals_the_interpolation_of_hugging_face(grid: tuple[int, int]) -> None:
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    theirs = ViTEmbeddings(ViTConfig(hidden_size=D_MODEL, image_size=8, patch_size=2, num_channels=1))
    ours = LearnedGrid(4, 4, D_MODEL)
    ours.table.data.copy_(theirs.position_embeddings.data[0, 1:].view(4, 4, D_MODEL))
    patches = torch.randn(BATCH, grid[0] * grid[1], D_MODEL)
    with_class = torch.zeros(BATCH, grid[0] * grid[1] + 1, D_MODEL)
    wanted = theirs.interpolate_pos_encoding(with_class, 2 * grid[0], 2 * grid[1])[:, 1:]
    assert_same(ours(patches, grid), patches + wanted)


def test_learned_grid_of_its_own_size_adds_the_table_as_it_is() -> None:
    grid = LearnedGrid(2, 3, D_MODEL)
    output = grid(torch.zeros(BATCH, 6, D_MODEL), (2, 3))
    assert torch.equal(output, grid.table.view(1, 6, D_MODEL).expand(BATCH, -1, -1))


def test_a_turned_grid_of_as_many_patches_is_interpolated() -> None:
    grid = LearnedGrid(2, 3, D_MODEL)
    turned = grid(torch.zeros(1, 6, D_MODEL), (3, 2))
    assert not torch.allclose(turned, grid.table.view(1, 6, D_MODEL))
    turned.sum().backward()
    assert grid.table.grad.isfinite().all()


@pytest.mark.usefixtures("float64")
def test_sinusoidal_grid_tells_rows_from_columns() -> None:
    output = SinusoidalGrid()(torch.zeros(1, 6, D_MODEL), (2, 3))[0].view(2, 3, D_MODEL)
    row, column = hw.functional.sinusoidal_positions(2, 4), hw.functional.sinusoidal_positions(3, 3)
    for i in range(2):
        for j in range(3):
            assert_same(output[i, j], torch.cat([row[i], column[j]]))
    assert not list(SinusoidalGrid().parameters())


@pytest.mark.parametrize("module", [LearnedGrid(2, 3, D_MODEL), SinusoidalGrid()], ids=["learned", "sinusoidal"])
def test_grids_of_an_empty_batch(module: nn.Module) -> None:
    assert module(torch.zeros(0, 6, D_MODEL), (2, 3)).shape == (0, 6, D_MODEL)


# --- counting ------------------------------------------------------------------------------------------------------


def test_positions_count_from_the_past_on() -> None:
    x = torch.zeros(BATCH, 3)
    assert torch.equal(count_positions(x), positions(0, 1, 2))
    assert torch.equal(count_positions(x, n_past=4), positions(4, 5, 6))


def test_left_padding_does_not_move_a_sentence() -> None:
    """transformers#18388, #25790."""
    visible = torch.tensor([[False, False, True, True, True], [True, True, True, True, True]])
    counted = count_positions(torch.zeros(2, 5), visible=visible)
    assert torch.equal(counted, torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]))


def test_left_padding_and_a_past_count_on() -> None:
    visible = torch.tensor([[False, False, True, True, True], [True, True, True, True, True]])
    counted = count_positions(torch.zeros(2, 2), n_past=3, visible=visible)
    assert torch.equal(counted, torch.tensor([[1, 2], [3, 4]]))


def test_right_padding_leaves_the_real_tokens_where_they_are() -> None:
    visible = torch.tensor([[True, True, True, False, False]])
    assert torch.equal(count_positions(torch.zeros(1, 5), visible=visible)[:, :3], positions(0, 1, 2))


def test_a_sentence_of_padding_alone_has_legal_positions() -> None:
    counted = count_positions(torch.zeros(1, 3), visible=torch.zeros(1, 3, dtype=torch.bool))
    assert torch.equal(counted, positions(0, 0, 0))


# --- choices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "kind", "given"),
    [
        (choices.NoPositions(), Positions, {}),
        (choices.RelativePositions(), Positions, {}),
        (choices.LearnedPositions(max_tokens=KEY), LearnedPositions, {}),
        (
            choices.SinusoidalPositions(base=50.0, layout="halves"),
            SinusoidalPositions,
            {"base": 50.0, "layout": "halves"},
        ),
        (
            choices.RotaryPositions(base=50.0, layout="interleaved"),
            RotaryPositions,
            {"base": 50.0, "layout": "interleaved", "d_head": D_HEAD},
        ),
        (choices.AlibiPositions(), AlibiPositions, {"n_heads": HEAD}),
        (
            choices.BucketPositions(n_buckets=8, max_distance=20),
            BucketPositions,
            {"max_distance": 20, "bidirectional": True},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_made_by_choice(choice: choices.TextPositions, kind: type[Positions], given: dict[str, object]) -> None:
    module = make_positions(choice, d_model=D_MODEL, n_heads=HEAD, d_head=D_HEAD, bidirectional=True)
    assert type(module) is kind
    assert {name: getattr(module, name) for name in given} == given
    tables = {LearnedPositions: (KEY, D_MODEL), SinusoidalPositions: (1024, D_MODEL), BucketPositions: (8, HEAD)}
    if kind in tables:
        assert module.table.shape == tables[kind]


def test_grids_are_made_by_choice() -> None:
    assert make_grid(choices.NoPositions(), (2, 3), D_MODEL) is None
    assert make_grid(choices.LearnedGrid(), (2, 3), D_MODEL).table.shape == (2, 3, D_MODEL)
    assert isinstance(make_grid(choices.SinusoidalGrid(), (2, 3), D_MODEL), SinusoidalGrid)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_are_the_same(copied: object) -> None:
    x = torch.zeros(1, TOKEN, D_MODEL)
    buckets, learned = BucketPositions(HEAD, bidirectional=False), LearnedPositions(KEY, D_MODEL)
    assert torch.equal(copied(buckets).bias(x, KEY), buckets.bias(x, KEY))
    assert torch.equal(copied(learned).vectors(positions(1, 2), 3), learned.vectors(positions(1, 2), 3))
    rotary, q = RotaryPositions(D_HEAD), torch.randn(1, HEAD, 2, D_HEAD)
    assert torch.equal(copied(rotary).rotation(positions(1, 2)).rotate(q), rotary.rotation(positions(1, 2)).rotate(q))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"layout": "interleaved"},
        {"fraction": 0.5},
        {"scaling": choices.YarnScaling(factor=4.0, original_max_tokens=16)},
    ],
)
def test_a_computed_rotation_is_the_same(how: dict[str, object]) -> None:
    rotation = RotaryPositions(8, **how).rotation(torch.arange(TOKEN)[None])
    x = torch.randn(2, 3, TOKEN, 8, dtype=torch.float64)
    torch.testing.assert_close(rotation.computed(x.dtype).rotate(x), rotation.rotate(x), rtol=0, atol=1e-12)
