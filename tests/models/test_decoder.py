"""The decoder: a cache gives what the whole text gives, and a sentence can be learnt by heart.

The future is hidden in test_masks_belong_where.py; GPT-2 and Llama are in parity/.
"""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from headwork import choices
from headwork.models import Decoder

from .small_models import LLAMA, MAX_TOKENS, POSITIONS, VOCAB, decoder, ready, real_tokens, some_ids

every_position = pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS.keys())

N_TOKENS = 13
chunkings = st.lists(st.integers(1, N_TOKENS - 1), max_size=5, unique=True).map(
    lambda cuts: list(zip([0, *sorted(cuts)], [*sorted(cuts), N_TOKENS], strict=True))
)


def read_in_chunks(model: Decoder, ids: Tensor, chunks: list[tuple[int, int]], real: Tensor | None = None) -> Tensor:
    past, logits = model.new_cache(), []
    for start, end in chunks:
        visible = None if real is None else real[:, :end]
        logits.append(model(ids[:, start:end], visible=visible, cache=past))
    assert past.n_tokens == chunks[-1][1]
    return torch.cat(logits, dim=1)


# --- cache -----------------------------------------------------------------------------------------------------------


@cache
def decoder_with(position: choices.TextPositions) -> Decoder:
    """Made once for all the examples of a test."""
    return ready(decoder(position=position))


@every_position
@settings(max_examples=8, deadline=None)
@given(chunks=chunkings)
def test_cached_is_full(position: choices.TextPositions, chunks: list[tuple[int, int]]) -> None:
    """The causal mask is aligned to the last key: pytorch#103082, #108108, #144858."""
    torch.manual_seed(0)
    model, ids = decoder_with(position), some_ids(2, N_TOKENS)
    torch.testing.assert_close(read_in_chunks(model, ids, chunks), model(ids), rtol=1e-10, atol=1e-10)


@every_position
@settings(max_examples=8, deadline=None)
@given(chunks=chunkings, length=st.integers(1, N_TOKENS), side=st.sampled_from(["left", "right"]))
def test_cached_is_full_with_padding(
    position: choices.TextPositions, chunks: list[tuple[int, int]], length: int, side: str
) -> None:
    torch.manual_seed(0)
    model, ids = decoder_with(position), some_ids(2, N_TOKENS)
    real = real_tokens((N_TOKENS, length), N_TOKENS, side)
    cached = read_in_chunks(model, ids, chunks, real)
    torch.testing.assert_close(cached[real], model(ids, visible=real)[real], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "changes",
    [LLAMA, {"norm_order": "post"}, {"heads": choices.SplitHeads(n_heads=3)}],
    ids=["llama", "post-norm", "split-heads"],
)
def test_cached_is_full_one_token_at_a_time(changes: dict[str, object]) -> None:
    model, ids, real = ready(decoder(**changes)), some_ids(2, 7), real_tokens((7, 4), 7, "left")
    one_by_one = [(t, t + 1) for t in range(7)]
    cached = read_in_chunks(model, ids, one_by_one, real)
    torch.testing.assert_close(cached[real], model(ids, visible=real)[real], rtol=1e-10, atol=1e-10)


def test_a_cache_reads_each_token_once() -> None:
    """pytorch#49791, #107573; nanoGPT PR#76."""
    model, ids, n_read = ready(decoder()), some_ids(2, 7), []
    model.layers[1].attention.key.register_forward_hook(lambda module, inputs, output: n_read.append(output.shape[1]))
    read_in_chunks(model, ids, [(0, 4), (4, 5), (5, 7)])
    assert n_read == [4, 1, 2]


@every_position
def test_a_reordered_cache_goes_on_with_the_chosen_rows(position: choices.TextPositions) -> None:
    model, ids, rows = ready(decoder(position=position)), some_ids(3, 7), torch.tensor([2, 0, 0, 2, 1])
    past = model.new_cache()
    model(ids[:, :5], cache=past)
    past.reorder(rows)
    after = model(ids[rows, 5:], cache=past)
    torch.testing.assert_close(after, model(ids[rows])[:, 5:], rtol=1e-10, atol=1e-10)


def test_two_caches_do_not_know_each_other() -> None:
    model, ids = ready(decoder()), some_ids(2, 7)
    model(ids, cache=model.new_cache())
    assert model(ids, cache=model.new_cache()).allclose(model(ids), rtol=1e-10)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_cache_of_another_batch_is_an_error_and_stays_as_it_was() -> None:
    model, ids = ready(decoder()), some_ids(2, 7)
    past = model.new_cache()
    model(ids[:, :5], cache=past)
    with pytest.raises(ValueError, match="batch"):
        model(some_ids(3, 2), cache=past)
    torch.testing.assert_close(model(ids[:, 5:], cache=past), model(ids)[:, 5:], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_cache_does_not_stretch_learned_positions() -> None:
    """ "index out of range in self", elsewhere; the cache survives the error."""
    model, ids = ready(decoder()), some_ids(1, MAX_TOKENS + 1)
    with pytest.raises(ValueError, match=f"{MAX_TOKENS} learned positions, got {MAX_TOKENS + 1}"):
        model(ids)
    past = model.new_cache()
    model(ids[:, : MAX_TOKENS - 1], cache=past)
    with pytest.raises(ValueError, match=f"{MAX_TOKENS} learned positions, got {MAX_TOKENS + 1}"):
        model(ids[:, -2:], cache=past)
    full = model(ids[:, :MAX_TOKENS])[:, -1:]
    torch.testing.assert_close(model(ids[:, MAX_TOKENS - 1 : MAX_TOKENS], cache=past), full, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("as_users_run_it")
def test_visible_must_cover_the_cache_as_well() -> None:
    model, ids = ready(decoder()), some_ids(2, 7)
    past = model.new_cache()
    model(ids[:, :5], cache=past)
    with pytest.raises(ValueError, match=r"visible must have the axes \(batch, token\) = \(2, 7\), got \(2, 2\)"):
        model(ids[:, 5:], visible=real_tokens((2, 2), 2), cache=past)


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "alibi", "buckets", "relative", "none"])
def test_other_positions_have_no_longest_sequence(name: str) -> None:
    model, ids = ready(decoder(position=POSITIONS[name], n_layers=1)), some_ids(1, 1100)
    past = model.new_cache()
    model(ids[:, :1090], cache=past)
    torch.testing.assert_close(model(ids[:, 1090:], cache=past), model(ids)[:, 1090:], rtol=1e-10, atol=1e-10)


def test_every_bucket_is_for_the_past() -> None:
    """Buckets that look both ways would leave half of the table unused."""
    model = ready(decoder(position=POSITIONS["buckets"]))
    model(some_ids(2, 23)).square().sum().backward()
    assert model.layers.positions.table.grad.all()


# --- words -----------------------------------------------------------------------------------------------------------


def test_tied_words_are_scored_by_the_embedding_table() -> None:
    model, ids = ready(decoder()), some_ids(2, 7)
    by_hand = model.hidden(ids) @ model.embedding.table.T
    torch.testing.assert_close(model(ids), by_hand, rtol=1e-10, atol=1e-10)


def test_untied_words_have_a_map_and_a_bias_of_their_own() -> None:
    model, ids = ready(decoder(lm_head=choices.UntiedLMHead(bias=True))), some_ids(2, 7)
    by_hand = model.hidden(ids) @ model.lm_head.weight.T + model.lm_head.bias
    torch.testing.assert_close(model(ids), by_hand, rtol=1e-10, atol=1e-10)


def test_scaled_words_are_divided_by_the_root_of_the_width() -> None:
    model, ids = ready(decoder(lm_head=choices.TiedLMHead(scaled=True))), some_ids(2, 7)
    by_hand = model.hidden(ids) @ model.embedding.table.T / 18**0.5
    torch.testing.assert_close(model(ids), by_hand, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_sentence_is_learnt_by_heart() -> None:
    config = {"d_model": 32, "heads": choices.Heads(n_heads=2), "dropout": 0.0, "attention_dropout": 0.0}
    model, ids = decoder(**config), some_ids(1, 14)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
    assert model(ids[:, :-1]).argmax(-1).equal(ids[:, 1:])


def test_a_fresh_model_knows_nothing_of_the_next_word() -> None:
    """The loss starts at that of a guess among all words."""
    model, ids = decoder().eval(), some_ids(5, 13)
    loss = F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:])
    torch.testing.assert_close(loss, torch.tensor(float(VOCAB)).log(), rtol=0.05, atol=0.0)


@pytest.mark.usefixtures("as_users_run_it")
def test_padding_hidden_once_cannot_come_into_sight_by_being_forgotten():
    model = decoder().eval()
    cache = model.new_cache()
    ids = torch.zeros(2, 5, dtype=torch.long)
    real = torch.tensor([[False, True, True, True, True]] * 2)
    model(ids, visible=real, cache=cache)
    with pytest.raises(ValueError, match="visible must be given at every step"):
        model(ids[:, :1], cache=cache)


def test_padding_takes_no_learned_positions():
    model = decoder(position=choices.LearnedPositions(max_tokens=5)).eval()
    ids = torch.ones(1, 5, dtype=torch.long)
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), ids], dim=1)
    real = torch.arange(8)[None] >= 3
    torch.testing.assert_close(model(padded, visible=real)[:, 3:], model(ids))
