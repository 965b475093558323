"""The stack: what its layers share, in which order, and what it calls them with."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.layers import (
    AlibiPositions,
    DecoderCache,
    DecoderLayer,
    EncoderLayer,
    LayerNorm,
    LearnedPositions,
    RotaryPositions,
    Stack,
)

BATCH, TOKEN, SOURCE, HEAD, D_MODEL = 2, 7, 5, 3, 12
SETTINGS: dict[str, Any] = {
    "heads": choices.Heads(n_heads=HEAD),
    "feed_forward": choices.FeedForward(d_ff=11),
    "norm_order": "pre",
}

pytestmark = pytest.mark.usefixtures("float64")


class Spy(nn.Module):
    """A layer that remembers what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, object] = {}

    def forward(self, x: Tensor, **seen: object) -> Tensor:
        self.seen = seen
        return x + 1


def tokens(n: int = TOKEN) -> Tensor:
    return torch.randn(BATCH, n, D_MODEL)


def test_the_stack_is_its_layers_one_after_the_other() -> None:
    layers, final, x = [EncoderLayer(D_MODEL, **SETTINGS) for _ in range(3)], LayerNorm(D_MODEL), tokens()
    positions = LearnedPositions(TOKEN, D_MODEL)
    stack = Stack(layers, positions=positions, final_norm=final)
    wanted = x + positions.table
    for layer in layers:
        wanted = layer(wanted, causal=True)
    assert torch.equal(stack(x, causal=True), final(wanted))
    assert list(stack) == layers
    assert len(stack) == 3
    assert stack[-1] is layers[2]
    with pytest.raises(IndexError):
        stack[3]


def test_names_read_in_the_order_in_which_things_run() -> None:
    stack = Stack(
        [EncoderLayer(D_MODEL, **SETTINGS) for _ in range(2)],
        positions=LearnedPositions(TOKEN, D_MODEL),
        embedding_norm=LayerNorm(D_MODEL),
        final_norm=LayerNorm(D_MODEL),
    )
    children = [name for name, _ in stack.named_children()]
    assert children == ["positions", "embedding_norm", "dropout", "embedded", "0", "1", "final_norm"]
    assert "0.attention_norm.weight" in stack.state_dict()
    with hw.record(stack) as seen:
        stack(tokens())
    order = [name for name in seen if name in ("embedding_norm", "embedded", "0", "1", "final_norm")]
    assert order == ["embedding_norm", "embedded", "0", "1", "final_norm"]


def test_what_a_layer_is_called_with() -> None:
    spies, real = [Spy(), Spy()], torch.ones(BATCH, TOKEN, dtype=torch.bool)
    stack, cache, memory = Stack(spies, positions=AlibiPositions(HEAD)), DecoderCache(2), tokens(SOURCE)
    stack(tokens(), visible=real)
    assert set(spies[0].seen) == {"visible", "causal", "bias", "rotation", "cache"}
    assert spies[0].seen["visible"].shape == (BATCH, 1, 1, TOKEN)
    assert spies[0].seen["bias"].shape == (1, HEAD, TOKEN, TOKEN)
    assert (spies[0].seen["causal"], spies[0].seen["rotation"], spies[0].seen["cache"]) == (False, None, None)
    stack(tokens(), causal=True, cache=cache, memory=memory, memory_visible=real[:, :SOURCE])
    for spy, own, of_memory in zip(spies, cache.self_attention, cache.cross_attention, strict=True):
        assert spy.seen["cache"] is own
        assert spy.seen["memory_cache"] is of_memory
        assert spy.seen["memory"] is memory
        assert spy.seen["memory_visible"].shape == (BATCH, 1, 1, SOURCE)
    stack(tokens(6), grid=(2, 3))
    assert spies[1].seen == {"grid": (2, 3)}


def test_the_stack_counts_what_was_read() -> None:
    """Also where no layer keeps anything, so that positions go on."""
    stack, cache = Stack([Spy()], positions=LearnedPositions(TOKEN, D_MODEL)), DecoderCache(1)
    x = tokens()
    parts = [stack(x[:, a:b], cache=cache) for a, b in itertools.pairwise((0, 2, 3, TOKEN))]
    assert cache.n_tokens == TOKEN
    assert torch.equal(torch.cat(parts, dim=1), stack(x))


@pytest.mark.parametrize("padded", [False, True])
def test_one_token_is_forward(padded: bool) -> None:
    stack = Stack(
        [DecoderLayer(D_MODEL, **SETTINGS) for _ in range(2)],
        positions=RotaryPositions(4),
        embedding_norm=LayerNorm(D_MODEL),
        final_norm=LayerNorm(D_MODEL),
    ).eval()
    x, memory, real = tokens(), tokens(SOURCE), torch.ones(BATCH, TOKEN, dtype=torch.bool)
    real[0, :3] = False
    seen = {"memory": memory, "memory_visible": real[:, :SOURCE] if padded else None, "causal": True}
    whole = stack(x, visible=real if padded else None, **seen)
    cache, run = DecoderCache(2), stack.one_token()
    with torch.no_grad():
        stack(x[:, :4], visible=real[:, :4] if padded else None, cache=cache, **seen)
        for t in range(4, TOKEN):
            token = run(x[:, t], real[:, : t + 1] if padded else None, cache, seen["memory_visible"])
            torch.testing.assert_close(token, whole[:, t], rtol=1e-12, atol=1e-12)
    assert cache.n_tokens == TOKEN


@pytest.mark.usefixtures("as_users_run_it")
def test_a_mask_of_the_wrong_shape_is_refused() -> None:
    stack = Stack([Spy()])
    with pytest.raises(ValueError, match=r"visible must have the axes \(batch, token\) = \(2, 7\), got \(2, 6\)"):
        stack(tokens(), visible=torch.ones(BATCH, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"memory_visible must have the axes .* = \(2, 5\), got \(2, 6\)"):
        stack(tokens(), memory=tokens(SOURCE), memory_visible=torch.ones(BATCH, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match="the cache must be of this model's 1 layers, got 2"):
        stack(tokens(), cache=DecoderCache(2))
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1.0"):
        Stack([Spy()], dropout=1.0)
