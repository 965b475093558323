"""Read in chunks, a sequence gives what it gives as a whole."""

import contextlib
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import headwork as hw
from headwork import choices
from headwork.layers import (
    AlibiPositions,
    DecoderCache,
    DecoderLayer,
    FixedCache,
    GrowingCache,
    MultiHeadAttention,
    RelativeShifts,
    RotaryPositions,
    Stack,
)
from headwork.layers import cache as cache_module
from headwork.layers.positions import count_positions

BATCH, HEAD, D_HEAD, TOKEN, SOURCE = 2, 3, 4, 7, 11
D_MODEL = HEAD * D_HEAD


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@st.composite
def chunks(draw: st.DrawFn) -> list[int]:
    return draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))


def attend(
    layer: MultiHeadAttention,
    x: Tensor,
    n_past: int,
    n_now: int,
    *,
    positions: str,
    real: Tensor | None,
    cache: GrowingCache | None,
) -> Tensor:
    """The tokens n_past .. n_now, with the positions and the mask that belong to them."""
    new = x[:, n_past:n_now]
    visible = None if real is None else real[:, :n_now]
    where = count_positions(new, n_past=n_past, visible=visible)
    return layer(
        new,
        new,
        None if visible is None else hw.masks.key_padding(visible),
        causal=True,
        bias=AlibiPositions(layer.n_heads).bias(new, n_now) if positions == "alibi" else None,
        rotation=RotaryPositions(layer.d_head).rotation(where) if positions == "rotary" else None,
        cache=cache,
    )


@settings(max_examples=30, deadline=None)
@given(
    sizes=chunks(),
    positions=st.sampled_from(["none", "rotary", "alibi", "relative"]),
    padded=st.booleans(),
    n_kv_heads=st.sampled_from([1, HEAD]),
    watched=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_chunk_by_chunk_equals_the_whole(
    sizes: list[int], positions: str, padded: bool, n_kv_heads: int, watched: bool, seed: int
) -> None:
    """pytorch#103082, #108108: a causal mask aligned to the wrong corner; transformers#18388: left padding."""
    torch.manual_seed(seed)
    relative = RelativeShifts(D_MODEL, HEAD, D_HEAD) if positions == "relative" else None
    layer = MultiHeadAttention(D_MODEL, HEAD, n_kv_heads=n_kv_heads, relative=relative).double()
    n_token = sum(sizes)
    x = torch.randn(BATCH, n_token, D_MODEL, dtype=torch.float64)
    real = None
    if padded:
        lengths = torch.randint(1, n_token + 1, (BATCH,))
        real = hw.masks.padding(lengths, n_token, side="left")[:, 0, 0]
    whole = attend(layer, x, 0, n_token, positions=positions, real=real, cache=None)

    shown: list[Tensor] = []
    if watched:
        layer.weights.register_forward_hook(lambda module, inputs, output: shown.append(output))
    cache, parts, n_past = GrowingCache(), [], 0
    for size in sizes:
        part = attend(layer, x, n_past, n_past + size, positions=positions, real=real, cache=cache)
        parts.append(part)
        n_past += size
        assert cache.n_tokens == n_past
    assert_same(torch.cat(parts, dim=1), whole)
    for size, weights in zip(sizes, shown, strict=False):
        assert weights.shape[2] == size


def test_left_padding_does_not_change_a_sentence() -> None:
    """transformers#18388, #25790."""
    layer = MultiHeadAttention(D_MODEL, HEAD).double()
    x = torch.randn(1, TOKEN, D_MODEL, dtype=torch.float64)
    padded = torch.cat([torch.randn(1, 3, D_MODEL, dtype=torch.float64), x], dim=1)
    real = torch.tensor([[False] * 3 + [True] * TOKEN])
    alone = attend(layer, x, 0, TOKEN, positions="rotary", real=None, cache=None)
    among = attend(layer, padded, 0, TOKEN + 3, positions="rotary", real=real, cache=None)
    assert_same(among[:, 3:], alone)


def test_a_token_hidden_now_may_be_seen_later() -> None:
    """With a mask of the strict past no query sees its own key, but the next one does: the cache must keep it."""
    layer = MultiHeadAttention(D_MODEL, HEAD).double()
    x = torch.randn(BATCH, TOKEN, D_MODEL, dtype=torch.float64)
    strict_past = hw.functional.distance(TOKEN, TOKEN) < 0
    cache = GrowingCache()
    parts = [
        layer(x[:, i : i + 1], x[:, i : i + 1], strict_past[i : i + 1, : i + 1], cache=cache) for i in range(TOKEN)
    ]
    assert_same(torch.cat(parts, dim=1), layer(x, x, strict_past))


def test_a_memory_heard_bit_by_bit_is_kept_whole() -> None:
    """Wait-k translation: the first word sees the start of the source only, the last sees all of it."""
    layer = MultiHeadAttention(D_MODEL, HEAD).double()
    x, memory = (torch.randn(BATCH, n, D_MODEL, dtype=torch.float64) for n in (TOKEN, SOURCE))
    heard = torch.arange(SOURCE) < torch.arange(3, 3 + TOKEN)[:, None]
    cache = FixedCache()
    parts = [layer(x[:, i : i + 1], memory, heard[i : i + 1], cache=cache) for i in range(TOKEN)]
    assert_same(torch.cat(parts, dim=1), layer(x, memory, heard))


def test_left_padding_of_nan_stays_in_the_padding() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD).double()
    x = torch.randn(BATCH, TOKEN, D_MODEL, dtype=torch.float64)
    real = hw.masks.padding(torch.tensor([4, 7]), TOKEN, side="left")[:, 0, 0]
    x = x.masked_fill(~real[..., None], torch.nan)
    cache = GrowingCache()
    parts = [
        attend(layer, x, a, b, positions="rotary", real=real, cache=cache) for a, b in ((0, 2), (2, 5), (5, TOKEN))
    ]
    output = torch.cat(parts, dim=1)
    assert output[real].isfinite().all()
    whole = attend(layer, x.nan_to_num(0.0), 0, TOKEN, positions="rotary", real=real, cache=None)
    assert_same(output[real], whole[real])


def test_growing_cache_keeps_keys_and_values_in_order() -> None:
    cache = GrowingCache()
    assert cache.n_tokens == 0
    k, v = torch.randn(2, HEAD, TOKEN, 5), torch.randn(2, HEAD, TOKEN, 3)
    for a, b in ((0, 1), (1, 5), (5, TOKEN)):
        all_k, all_v = cache(lambda a=a, b=b: (k[:, :, a:b], v[:, :, a:b]))
        assert torch.equal(all_k, k[:, :, :b])
        assert torch.equal(all_v, v[:, :, :b])
        assert cache.n_tokens == b


# --- buffers with space to spare -------------------------------------------------------------------------------------


@pytest.fixture
def no_past_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "SHORT_PAST", 0)


def with_gradients() -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@pytest.mark.usefixtures("no_past_is_short")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([with_gradients, torch.no_grad, torch.inference_mode])),
        min_size=1,
        max_size=9,
    )
)
def test_a_cache_keeps_everything_in_order_in_every_mode(
    steps: list[tuple[int, Callable[[], contextlib.AbstractContextManager[None]]]],
) -> None:
    """And what it gave out before stays as it was."""
    cache, all_k, all_v, given_out = GrowingCache(), torch.randn(2, 3, 36, 5), torch.randn(2, 3, 36, 7), []
    n_now = 0
    for size, mode in steps:
        n_past, n_now = n_now, n_now + size
        with mode():
            given_out.append(cache(lambda a=n_past, b=n_now: (all_k[:, :, a:b].clone(), all_v[:, :, a:b].clone())))
    assert cache.n_tokens == n_now
    for k, v in given_out:
        assert k.equal(all_k[:, :, : k.shape[2]])
        assert v.equal(all_v[:, :, : v.shape[2]])


@pytest.mark.usefixtures("no_past_is_short")
def test_a_buffer_is_used_until_it_is_full() -> None:
    cache, new = GrowingCache(), torch.randn(1, 2, 1, 5)
    with torch.no_grad():
        addresses = [cache(lambda: (new, new))[0].data_ptr() for _ in range(30)]
    assert len(set(addresses)) == 5  # 1, then buffers of 4, 10, 22 and 46 tokens


@pytest.mark.usefixtures("no_past_is_short")
def test_gradients_reach_the_past_through_a_cache() -> None:
    layer, cache = MultiHeadAttention(D_MODEL, HEAD).double(), GrowingCache()
    x = torch.randn(BATCH, TOKEN, D_MODEL, dtype=torch.float64, requires_grad=True)
    parts = [layer(x[:, i : i + 1], x[:, i : i + 1], causal=True, cache=cache) for i in range(TOKEN)]
    (by_parts,) = torch.autograd.grad(torch.cat(parts, dim=1).square().sum(), x)
    (at_once,) = torch.autograd.grad(layer(x, x, causal=True).square().sum(), x)
    assert_same(by_parts, at_once)


def test_nan_that_only_mask_and_future_together_hide_goes_nowhere_with_a_cache() -> None:
    """Hard attention, which no kernel has: the mask hides the second value from one query, the future from another."""
    layer, visible = MultiHeadAttention(D_MODEL, HEAD, beta=math.inf), torch.tensor([[True, True], [True, False]])
    x, values = torch.randn(1, 2, D_MODEL), torch.randn(1, 2, D_MODEL)
    values[:, 1] = math.nan
    assert layer(x, visible=visible, values=values, causal=True, cache=GrowingCache()).isfinite().all()


@pytest.mark.usefixtures("no_past_is_short")
def test_numbers_of_another_precision_do_not_lose_theirs() -> None:
    cache = GrowingCache()
    k = torch.randn(1, 2, 3, 5, dtype=torch.float64)
    with torch.no_grad():
        cache(lambda: (k.float(), k.float()))
        cache(lambda: (k.float(), k.float()))
        everything, _ = cache(lambda: (k, k))
    assert everything.dtype == torch.float64
    assert everything[:, :, 6:].equal(k)


@pytest.mark.usefixtures("no_past_is_short")
def test_a_reordered_cache_leaves_its_buffer() -> None:
    cache, rows = DecoderCache(n_layers=1), torch.tensor([1, 1, 0])
    new = torch.randn(2, 3, 1, 5)
    with torch.no_grad():
        for _ in range(3):
            k, _ = cache.self_attention[0](lambda: (new, new))
        cache.reorder(rows)
        longer, _ = cache.self_attention[0](lambda: (new[rows], new[rows]))
    assert longer.equal(new[rows].expand(3, 3, 4, 5))
    assert k.equal(new.expand(2, 3, 3, 5))


@pytest.mark.parametrize("max_new_tokens", [1, 3])
def test_growing_cache_refuses_another_batch(max_new_tokens: int) -> None:
    layer, cache = MultiHeadAttention(D_MODEL, HEAD), GrowingCache()
    x = torch.randn(2, TOKEN, D_MODEL)
    layer(x, x, causal=True, cache=cache)
    other = torch.randn(max_new_tokens, 1, D_MODEL)
    with pytest.raises(ValueError, match=f"batch must stay .* 2, got {max_new_tokens}"):
        layer(other, other, causal=True, cache=cache)
    assert cache.n_tokens == TOKEN


def test_fixed_cache_projects_once() -> None:
    layer, cache = MultiHeadAttention(D_MODEL, HEAD), FixedCache()
    calls = []
    for part in (layer.key, layer.value):
        part.register_forward_hook(lambda module, inputs, output: calls.append(module))
    x, memory = torch.randn(BATCH, TOKEN, D_MODEL), torch.randn(BATCH, SOURCE, D_MODEL)
    parts = [layer(x[:, i : i + 1], memory, cache=cache) for i in range(TOKEN)]
    assert len(calls) == 2
    assert_same(torch.cat(parts, dim=1), layer(x, memory), 1e-6)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("n_kept", "n_now"), [(1, 2), (2, 1), (2, 3)])
def test_fixed_cache_refuses_another_batch(n_kept: int, n_now: int) -> None:
    """One kept sentence would be spread over the batch in silence."""
    layer, cache = MultiHeadAttention(D_MODEL, HEAD), FixedCache()
    layer(torch.randn(n_kept, 1, D_MODEL), torch.randn(n_kept, SOURCE, D_MODEL), cache=cache)
    with pytest.raises(ValueError, match=f"batch.*{n_kept}|batch.*{n_now}"):
        layer(torch.randn(n_now, 1, D_MODEL), torch.randn(n_now, SOURCE, D_MODEL), cache=cache)


# --- the caches of a whole decoder ---------------------------------------------------------------------------------


def two_layers() -> Stack:
    layers = [
        DecoderLayer(
            D_MODEL,
            heads=choices.Heads(n_heads=HEAD),
            feed_forward=choices.FeedForward(d_ff=13),
            norm_order="pre",
        )
        for _ in range(2)
    ]
    return Stack(layers).double()


def run(layers: Stack, x: Tensor, memory: Tensor, cache: DecoderCache | None) -> Tensor:
    return layers(x, causal=True, cache=cache, memory=memory)


def test_decoder_cache_counts_what_was_read() -> None:
    layers, cache = two_layers(), DecoderCache(n_layers=2)
    x, memory = (torch.randn(BATCH, n, D_MODEL, dtype=torch.float64) for n in (TOKEN, SOURCE))
    whole = run(layers, x, memory, None)
    assert cache.n_tokens == 0
    assert_same(run(layers, x[:, :3], memory, cache), whole[:, :3])
    assert cache.n_tokens == 3
    assert_same(run(layers, x[:, 3:], memory, cache), whole[:, 3:])
    assert cache.n_tokens == TOKEN
    assert [c.n_tokens for c in cache.self_attention] == [TOKEN, TOKEN]


@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 0], [2], [0, 0, 1, 2, 2]], ids=str)
def test_reorder_continues_as_if_the_chosen_rows_had_been_read(rows: list[int]) -> None:
    layers, cache = two_layers(), DecoderCache(n_layers=2)
    x, memory = (torch.randn(3, n, D_MODEL, dtype=torch.float64) for n in (TOKEN, SOURCE))
    run(layers, x[:, :4], memory, cache)
    cache.reorder(torch.tensor(rows))
    chosen = torch.cat([x[rows, :4], torch.randn(len(rows), TOKEN - 4, D_MODEL, dtype=torch.float64)], dim=1)
    continued = run(layers, chosen[:, 4:], memory[rows], cache)
    assert_same(continued, run(layers, chosen, memory[rows], None)[:, 4:])
    assert cache.n_tokens == TOKEN


def test_an_empty_cache_can_be_reordered() -> None:
    cache = DecoderCache(n_layers=2)
    cache.reorder(torch.tensor([1, 0]))
    assert cache.n_tokens == 0


@pytest.mark.usefixtures("as_users_run_it")
def test_another_models_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="the cache must be of this model's 2 layers, got 5"):
        DecoderCache(5).check(2, None)


def test_nan_in_cached_padding_stays_there_in_hard_attention_too() -> None:
    layer = MultiHeadAttention(d_model=8, n_heads=2, beta=math.inf)
    x = torch.randn(1, 3, 8)
    x[:, 0] = math.nan
    cache = GrowingCache()
    layer(x, x, torch.tensor([[False, True, True]] * 3), cache=cache)
    new = torch.randn(1, 1, 8)
    assert layer(new, new, torch.tensor([[False, True, True, True]]), cache=cache).isfinite().all()


def test_a_cache_that_a_failed_call_left_is_refused() -> None:
    config = hw.models.DecoderConfig(
        vocab=11, d_model=8, n_layers=2, heads=hw.choices.Heads(n_heads=2), feed_forward=hw.choices.FeedForward(d_ff=8)
    )
    model, ids = config.build().eval(), torch.randint(11, (1, 5))
    cache = model.new_cache()
    model(ids, cache=cache)
    with pytest.raises(ValueError, match="must have the shape"), hw.patch(model, {"layers.1": torch.zeros(1)}):
        model(ids[:, :1], cache=cache)
    with pytest.raises(ValueError, match="a call failed halfway; begin with a new cache"):
        model(ids[:, :1], cache=cache)
