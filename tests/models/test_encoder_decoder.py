"""The encoder-decoder: the original Transformer against PyTorch's, and its cache.

The masks are in test_masks_belong_where.py; T5 and Marian are in parity/.
"""

import math
import re
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from headwork import choices
from headwork.models import EncoderDecoder

from .small_models import POSITIONS, T5, encoder_decoder, ready, real_tokens, some_ids

every_position = pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS.keys())

N_TOKENS = 11
chunkings = st.lists(st.integers(1, N_TOKENS - 1), max_size=5, unique=True).map(
    lambda cuts: list(zip([0, *sorted(cuts)], [*sorted(cuts), N_TOKENS], strict=True))
)


# --- the original, as PyTorch has it ---------------------------------------------------------------------------------


def torch_twin(ours: EncoderDecoder) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """`nn.Transformer` puts a norm behind post-norm stacks, which the paper does not: these have none."""
    c = ours.config
    sizes = {"d_model": c.d_model, "nhead": c.heads.n_heads, "dim_feedforward": c.feed_forward.d_ff}
    options = {"activation": "relu", "batch_first": True, "dropout": 0.0, "norm_first": c.norm_order == "pre"}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**sizes, **options),
        c.n_encoder_layers,
        norm=None if ours.encoder_layers.final_norm is None else nn.LayerNorm(c.d_model),
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(**sizes, **options),
        c.n_decoder_layers,
        norm=None if ours.decoder_layers.final_norm is None else nn.LayerNorm(c.d_model),
    )
    state = ours.state_dict()
    encoder.load_state_dict(renamed(state, "encoder", {"attention": "self_attn"}, ("attention", "feed_forward")))
    decoder.load_state_dict(
        renamed(
            state,
            "decoder",
            {"attention": "self_attn", "cross_attention": "multihead_attn"},
            ("attention", "cross_attention", "feed_forward"),
        )
    )
    return encoder.eval(), decoder.eval()


def renamed(
    state: dict[str, Tensor], side: str, attentions: dict[str, str], residuals: tuple[str, ...]
) -> dict[str, Tensor]:
    theirs = {}
    n_layers = 1 + max(int(name.split(".")[1]) for name in state if re.match(rf"{side}_layers\.\d", name))
    for i in range(n_layers):
        layer = f"{side}_layers.{i}"
        for kind in ("weight", "bias"):
            for mine, name in attentions.items():
                parts = [state[f"{layer}.{mine}.{part}.{kind}"] for part in ("query", "key", "value")]
                theirs[f"layers.{i}.{name}.in_proj_{kind}"] = torch.cat(parts)
                theirs[f"layers.{i}.{name}.out_proj.{kind}"] = state[f"{layer}.{mine}.out.{kind}"]
            for number, mine in enumerate(residuals, start=1):
                theirs[f"layers.{i}.norm{number}.{kind}"] = state[f"{layer}.{mine}_norm.{kind}"]
            theirs[f"layers.{i}.linear1.{kind}"] = state[f"{layer}.feed_forward.up.{kind}"]
            theirs[f"layers.{i}.linear2.{kind}"] = state[f"{layer}.feed_forward.down.{kind}"]
    for kind in ("weight", "bias"):
        if f"{side}_layers.final_norm.{kind}" in state:
            theirs[f"norm.{kind}"] = state[f"{side}_layers.final_norm.{kind}"]
    return theirs


def sines_and_cosines(n_token: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos(the same)."""
    table = torch.empty(n_token, d_model)
    for place in range(n_token):
        for channel in range(d_model):
            angle = place / 10_000 ** (2 * (channel // 2) / d_model)
            table[place, channel] = math.cos(angle) if channel % 2 else math.sin(angle)
    return table


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_the_original_transformer_is_pytorchs(norm_order: str) -> None:
    relu = choices.FeedForward(d_ff=23, activation="relu")
    ours = ready(encoder_decoder(norm_order=norm_order, feed_forward=relu, target_vocab=29))
    encoder, decoder = torch_twin(ours)
    source, target = some_ids(2, 11), some_ids(2, 7, 29)
    real_source, real_target = real_tokens((11, 5), 11), real_tokens((7, 4), 7)

    def embed(ids: Tensor, table: Tensor) -> Tensor:
        return table[ids] * math.sqrt(18) + sines_and_cosines(ids.shape[1], 18)

    memory = encoder(embed(source, ours.embedding.table), src_key_padding_mask=~real_source)
    vectors = decoder(
        embed(target, ours.target_embedding.table),
        memory,
        tgt_mask=torch.ones(7, 7).triu(1).bool(),
        tgt_key_padding_mask=~real_target,
        memory_key_padding_mask=~real_source,
    )
    theirs = vectors @ ours.target_embedding.table.T
    mine = ours(source, target, source_visible=real_source, target_visible=real_target)
    torch.testing.assert_close(mine[real_target], theirs[real_target], rtol=1e-10, atol=1e-10)

    weights = torch.randn_like(mine[real_target])
    for table in (ours.embedding.table, ours.target_embedding.table):
        (of_mine,) = torch.autograd.grad((mine[real_target] * weights).sum(), table, retain_graph=True)
        (of_theirs,) = torch.autograd.grad((theirs[real_target] * weights).sum(), table, retain_graph=True)
        torch.testing.assert_close(of_mine, of_theirs, rtol=1e-10, atol=1e-10)


# --- cache -----------------------------------------------------------------------------------------------------------


@cache
def translator_with(position: choices.TextPositions) -> EncoderDecoder:
    """Made once for all the examples of a test."""
    return ready(encoder_decoder(position=position, n_encoder_layers=1, n_decoder_layers=2))


@every_position
@settings(max_examples=6, deadline=None)
@given(chunks=chunkings, length=st.integers(1, N_TOKENS), side=st.sampled_from(["left", "right"]))
def test_cached_is_full(position: choices.TextPositions, chunks: list[tuple[int, int]], length: int, side: str) -> None:
    torch.manual_seed(0)
    model, source, target = translator_with(position), some_ids(2, 13), some_ids(2, N_TOKENS)
    real_source, real_target = real_tokens((5, 13), 13, side), real_tokens((N_TOKENS, length), N_TOKENS, side)
    memory = model.encode(source, visible=real_source)
    past, logits = model.new_cache(), []
    for start, end in chunks:
        visible = real_target[:, :end]
        chunk = target[:, start:end]
        hidden = model.decode(chunk, memory, memory_visible=real_source, visible=visible, cache=past)
        logits.append(model.unembed(hidden))
    full = model(source, target, source_visible=real_source, target_visible=real_target)
    torch.testing.assert_close(torch.cat(logits, dim=1)[real_target], full[real_target], rtol=1e-10, atol=1e-10)


def test_the_memory_is_projected_once() -> None:
    model, target, calls = ready(encoder_decoder()), some_ids(2, 7), []
    for layer in model.decoder_layers:
        layer.cross_attention.key.register_forward_hook(lambda module, inputs, output: calls.append(output.shape[1]))
    memory, past = model.encode(some_ids(2, 11)), model.new_cache()
    for t in range(7):
        model.decode(target[:, t : t + 1], memory, cache=past)
    assert calls == [11] * len(model.decoder_layers)


def test_a_reordered_cache_goes_on_with_the_chosen_rows() -> None:
    """A beam search keeps, drops and doubles sentences between steps."""
    model, source, target, rows = ready(encoder_decoder()), some_ids(3, 11), some_ids(3, 7), torch.tensor([2, 0, 0])
    real = real_tokens((11, 5, 7), 11)
    memory, past = model.encode(source, visible=real), model.new_cache()
    model.decode(target[:, :5], memory, memory_visible=real, cache=past)
    past.reorder(rows)
    after = model.unembed(model.decode(target[rows, 5:], memory[rows], memory_visible=real[rows], cache=past))
    full = model(source[rows], target[rows], source_visible=real[rows])[:, 5:]
    torch.testing.assert_close(after, full, rtol=1e-10, atol=1e-10)


# --- vocabularies ----------------------------------------------------------------------------------------------------


def test_one_vocabulary_shares_one_table() -> None:
    model = encoder_decoder()
    assert model.target_embedding is None
    assert [name for name, _ in model.named_parameters() if name.endswith("embedding.table")] == ["embedding.table"]


def test_two_vocabularies_have_their_own_tables_and_sizes() -> None:
    model = encoder_decoder(target_vocab=29)
    assert model(some_ids(2, 11), some_ids(2, 7, 29)).shape == (2, 7, 29)
    assert model.target_embedding.table.shape == (29, 18)


def test_forward_is_encode_then_decode() -> None:
    model, source, target = ready(encoder_decoder(**T5)), some_ids(2, 11), some_ids(2, 7)
    hidden = model.decode(target, model.encode(source))
    assert model.hidden(source, target).equal(hidden)
    assert model(source, target).equal(model.unembed(hidden))


def test_the_memory_has_a_vector_for_each_source_token() -> None:
    assert encoder_decoder().encode(some_ids(2, 11)).shape == (2, 11, 18)


def test_one_token_on_either_side_is_enough() -> None:
    assert encoder_decoder()(some_ids(2, 1), some_ids(2, 1)).shape == (2, 1, 37)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_translation_is_learnt_by_heart() -> None:
    model = encoder_decoder(d_model=32, heads=choices.Heads(n_heads=2), norm_order="pre", dropout=0.0)
    source, target = some_ids(3, 5), some_ids(3, 8)
    target[:, 0] = 0  # they begin alike, so that only the source can tell what comes
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        loss = F.cross_entropy(model(source, target[:, :-1]).mT, target[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model(source, target[:, :-1]).argmax(-1).equal(target[:, 1:])
