"""Multi-head attention against PyTorch, loops from the equation, and everything that goes wrong elsewhere."""

import copy
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import headwork as hw
from headwork.layers import AlibiPositions, BucketPositions, MultiHeadAttention, RelativeShifts, RotaryPositions

BATCH, HEAD, D_HEAD, QUERY, KEY, D_MEMORY, D_VALUE = 2, 3, 5, 7, 11, 13, 17
D_MODEL = HEAD * D_HEAD
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
few = settings(max_examples=25, deadline=None)


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def some_loss(output: Tensor) -> Tensor:
    """A sum in which every number counts differently, so that no two gradients can be swapped unseen."""
    counts = torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)
    return (output * counts).sum()


def watch(layer: MultiHeadAttention, *names: str) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}
    for name in names:

        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, name: str = name) -> None:
            seen[name] = output

        layer.get_submodule(name).register_forward_hook(hook)
    return seen


def put(layer: MultiHeadAttention, name: str, replace: Callable[[Tensor], Tensor | None]) -> None:
    layer.get_submodule(name).register_forward_hook(lambda module, inputs, output: replace(output))


def random_biases(layer: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()


# --- golden: torch.nn.MultiheadAttention ---------------------------------------------------------------------------


def names_of_ours(theirs: nn.MultiheadAttention, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    if theirs.in_proj_weight is not None:
        weights = of(theirs.in_proj_weight).chunk(3)
    else:
        weights = tuple(of(w) for w in (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight))
    biases = of(theirs.in_proj_bias).chunk(3)
    parts = ("query", "key", "value")
    return {
        **{f"{part}.weight": weight for part, weight in zip(parts, weights, strict=True)},
        **{f"{part}.bias": bias for part, bias in zip(parts, biases, strict=True)},
        "out.weight": of(theirs.out_proj.weight),
        "out.bias": of(theirs.out_proj.bias),
    }


def same_layer(theirs: nn.MultiheadAttention, d_memory: int) -> MultiHeadAttention:
    random_biases(theirs)
    ours = MultiHeadAttention(D_MODEL, HEAD, d_memory=d_memory)
    ours.load_state_dict({name: value.clone() for name, value in names_of_ours(theirs, lambda p: p.detach()).items()})
    return ours


LENGTHS = torch.tensor([4, 7])


def mask_of(kind: str, n_query: int, n_key: int) -> tuple[dict[str, object], dict[str, object]]:
    """The same mask for us (True = may attend) and for torch (True = blocked)."""
    padding = hw.masks.padding(LENGTHS, n_key)
    causal = hw.masks.causal(n_query, n_key)
    each = torch.rand(BATCH, HEAD, n_query, n_key) < 0.5
    each[..., 1] = True
    cases: dict[str, tuple[dict[str, object], dict[str, object]]] = {
        "no mask": ({}, {}),
        "padding": ({"visible": padding}, {"key_padding_mask": ~padding[:, 0, 0]}),
        "causal": ({"causal": True}, {"attn_mask": ~causal}),
        "causal given as visible": ({"visible": causal}, {"attn_mask": ~causal}),
        "causal and padding": (
            {"visible": padding, "causal": True},
            {"attn_mask": ~causal, "key_padding_mask": ~padding[:, 0, 0]},
        ),
        "one mask for each sentence and head": ({"visible": each}, {"attn_mask": ~each.flatten(0, 1)}),
    }
    return cases[kind]


MASKS = (
    "no mask",
    "padding",
    "causal",
    "causal given as visible",
    "causal and padding",
    "one mask for each sentence and head",
)


def assert_equal_to_torch(
    ours: MultiHeadAttention, theirs: nn.MultiheadAttention, x: Tensor, memory: Tensor, kind: str
) -> None:
    for_us, for_them = mask_of(kind, x.shape[1], memory.shape[1])
    inputs = [x.requires_grad_()] if memory is x else [x.requires_grad_(), memory.requires_grad_()]
    output = ours(x, memory, **for_us)
    wanted, _ = theirs(x, memory, memory, need_weights=False, **for_them)
    assert_same(output, wanted)

    gradients = torch.autograd.grad(some_loss(output), [*inputs, *ours.parameters()])
    some_loss(wanted).backward()
    for gradient, t in zip(gradients, inputs, strict=False):
        assert_same(gradient, t.grad)
    theirs_by_name = names_of_ours(theirs, lambda p: p.grad)
    for gradient, (name, _) in zip(gradients[len(inputs) :], ours.named_parameters(), strict=True):
        assert_same(gradient, theirs_by_name[name])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", MASKS)
def test_self_attention_equals_torch(kind: str) -> None:
    theirs = nn.MultiheadAttention(D_MODEL, HEAD, batch_first=True)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    assert_equal_to_torch(same_layer(theirs, D_MODEL), theirs, x, x, kind)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("d_memory", [D_MODEL, D_MEMORY])
def test_cross_attention_equals_torch(kind: str, d_memory: int) -> None:
    theirs = nn.MultiheadAttention(D_MODEL, HEAD, kdim=d_memory, vdim=d_memory, batch_first=True)
    x, memory = torch.randn(BATCH, QUERY, D_MODEL), torch.randn(BATCH, KEY, d_memory)
    assert_equal_to_torch(same_layer(theirs, d_memory), theirs, x, memory, kind)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("kind", MASKS)
def test_weights_of_each_head_equal_torchs(kind: str) -> None:
    """pytorch#90842: torch averages the heads unless told not to."""
    theirs = nn.MultiheadAttention(D_MODEL, HEAD, batch_first=True)
    ours = same_layer(theirs, D_MODEL)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    for_us, for_them = mask_of(kind, QUERY, QUERY)
    _, wanted = theirs(x, x, x, need_weights=True, average_attn_weights=False, **for_them)
    seen = watch(ours, "weights")
    ours(x, x, **for_us)
    assert_same(seen["weights"], wanted)


# --- golden: the equation ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_queries_equal_torchs_enable_gqa(n_kv_heads: int, causal: bool) -> None:
    n_heads = 6
    layer = MultiHeadAttention(n_heads * D_HEAD, n_heads, n_kv_heads=n_kv_heads)
    random_biases(layer)
    x = torch.randn(BATCH, QUERY, n_heads * D_HEAD, requires_grad=True)

    def heads(t: Tensor, n: int) -> Tensor:
        return t.unflatten(-1, (n, D_HEAD)).transpose(1, 2)

    q, k, v = heads(layer.query(x), n_heads), heads(layer.key(x), n_kv_heads), heads(layer.value(x), n_kv_heads)
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    wanted = layer.out(attended.transpose(1, 2).flatten(2))
    output = layer(x, x, causal=causal)
    assert_same(output, wanted)
    everything = [x, *layer.parameters()]
    wanted_gradients = torch.autograd.grad(some_loss(wanted), everything)
    for gradient, of_them in zip(torch.autograd.grad(some_loss(output), everything), wanted_gradients, strict=True):
        assert_same(gradient, of_them)


@pytest.mark.usefixtures("float64")
def test_own_widths_equal_a_loop_over_heads_and_queries() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, d_head=19, d_value=D_VALUE, d_memory=D_MEMORY)
    random_biases(layer)
    x, memory = torch.randn(BATCH, QUERY, D_MODEL), torch.randn(BATCH, KEY, D_MEMORY)
    visible = torch.rand(BATCH, HEAD, QUERY, KEY) < 0.6
    output = layer(x, memory, visible)

    weight = {name: p.detach().numpy() for name, p in layer.named_parameters()}
    seen, wanted = visible.numpy(), np.zeros((BATCH, QUERY, D_MODEL))
    for b in range(BATCH):
        q, k, v = (
            tokens @ weight[f"{part}.weight"].T + weight[f"{part}.bias"]
            for part, tokens in (("query", x[b].numpy()), ("key", memory[b].numpy()), ("value", memory[b].numpy()))
        )
        for i in range(QUERY):
            heads = []
            for h in range(HEAD):
                own, of_value = slice(h * 19, (h + 1) * 19), slice(h * D_VALUE, (h + 1) * D_VALUE)
                e = np.exp([q[i, own] @ k[j, own] / math.sqrt(19) for j in range(KEY)]) * seen[b, h, i]
                heads.append((e / e.sum()) @ v[:, of_value])
            wanted[b, i] = np.concatenate(heads) @ weight["out.weight"].T + weight["out.bias"]
    assert_same(output, torch.from_numpy(wanted))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("out_bias", [None, True, False])
def test_out_bias_follows_bias_unless_given(bias: bool, out_bias: bool | None) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, bias=bias, out_bias=out_bias)
    assert [part.bias is not None for part in (layer.query, layer.key, layer.value)] == [bias] * 3
    assert (layer.out.bias is not None) == (bias if out_bias is None else out_bias)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_bias_of_buckets_joins_the_scaled_scores(watched: bool, padded: bool) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    buckets = BucketPositions(HEAD, n_buckets=8, max_distance=16, bidirectional=True)
    nn.init.normal_(buckets.table)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    visible = hw.masks.padding(LENGTHS, QUERY) if padded else None
    seen = watch(layer, "weights", "scores") if watched else {}
    output = layer(x, x, visible, bias=buckets.bias(x, QUERY))

    q, k, v = (part(x).unflatten(-1, (HEAD, D_HEAD)).transpose(1, 2) for part in (layer.query, layer.key, layer.value))
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(D_HEAD)
    of_distance = {j - i: buckets.bias(x, QUERY)[0, :, i, j] for i in range(QUERY) for j in range(QUERY)}
    scores = scores + torch.stack(
        [torch.stack([of_distance[j - i] for j in range(QUERY)], -1) for i in range(QUERY)], -2
    )
    weights = (scores if visible is None else scores.masked_fill(~visible, -math.inf)).softmax(-1)
    assert_same(output, layer.out((weights @ v).transpose(1, 2).flatten(2)))
    if watched:
        assert_same(seen["weights"], weights)
        assert_same(seen["scores"], scores if visible is None else scores.masked_fill(~visible, -math.inf))
    some_loss(output).backward()
    assert buckets.table.grad.abs().sum() > 0


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_rotation_equals_a_product_of_complex_numbers(layout: str) -> None:
    d_head = 6
    layer = MultiHeadAttention(HEAD * d_head, HEAD)
    random_biases(layer)
    x = torch.randn(BATCH, QUERY, HEAD * d_head)
    positions = torch.stack([torch.arange(QUERY), torch.arange(3, 3 + QUERY)])
    seen = watch(layer, "weights", "queries", "keys", "rotated_queries", "rotated_keys")
    output = layer(x, x, causal=True, rotation=RotaryPositions(d_head, layout=layout).rotation(positions))

    def rotated(t: np.ndarray) -> np.ndarray:
        a, b = (t[..., :3], t[..., 3:]) if layout == "halves" else (t[..., 0::2], t[..., 1::2])
        angle = positions.numpy()[:, :, None, None] * 10_000.0 ** (-2 * np.arange(3) / d_head)
        return (a + 1j * b) * np.exp(1j * angle)

    q, k, v = (part(x).unflatten(-1, (HEAD, d_head)).detach().numpy() for part in (layer.query, layer.key, layer.value))
    scores = np.einsum("bqhp,bkhp->bhqk", rotated(q), rotated(k).conj()).real / math.sqrt(d_head)
    weights = torch.from_numpy(scores).masked_fill(~hw.masks.causal(QUERY), -math.inf).softmax(-1)
    heads = torch.einsum("bhqk,bkhd->bqhd", weights, torch.from_numpy(v))
    assert_same(seen["weights"], weights)
    assert_same(output, layer.out(heads.flatten(2)))
    assert_same(seen["queries"], torch.from_numpy(q))
    assert_same(seen["keys"], torch.from_numpy(k))
    for name, before in (("rotated_queries", q), ("rotated_keys", k)):
        pairs = rotated(before)
        joined = [pairs.real, pairs.imag]
        after = np.concatenate(joined, -1) if layout == "halves" else np.stack(joined, -1).reshape(before.shape)
        assert_same(seen[name], torch.from_numpy(after))


def test_rotated_queries_and_keys_are_shown_only_if_they_are_rotated() -> None:
    layer, x = MultiHeadAttention(D_MODEL, HEAD, d_head=4), torch.randn(BATCH, QUERY, D_MODEL)
    seen = watch(layer, "rotated_queries", "rotated_keys")
    layer(x)
    assert not seen
    layer(x, rotation=RotaryPositions(4).rotation(torch.arange(QUERY)[None]))
    assert {name: t.shape for name, t in seen.items()} == dict.fromkeys(seen, (BATCH, QUERY, HEAD, 4))
    assert len(seen) == 2


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["rotated_queries", "rotated_keys"])
def test_a_replaced_rotation_is_used(name: str) -> None:
    """Put back as they were before the rotation, queries and keys give attention without one."""
    layer, x = MultiHeadAttention(D_MODEL, HEAD, d_head=4), torch.randn(BATCH, QUERY, D_MODEL)
    rotation = RotaryPositions(4).rotation(torch.arange(QUERY)[None])
    plain, rotated = layer(x), layer(x, rotation=rotation)
    before = watch(layer, "queries", "keys")
    put(layer, "rotated_queries", lambda q: before["queries"])
    half = layer(x, rotation=rotation)
    put(layer, "rotated_keys", lambda k: before["keys"])
    assert not torch.allclose(half, rotated)
    assert_same(layer(x, rotation=rotation), plain)


def relative_layer() -> MultiHeadAttention:
    layer = MultiHeadAttention(D_MODEL, HEAD, relative=RelativeShifts(D_MODEL, HEAD, D_HEAD))
    random_biases(layer)
    nn.init.normal_(layer.relative.u)
    nn.init.normal_(layer.relative.v)
    return layer


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("n_query", [QUERY, 3])
def test_relative_shifts_equal_the_four_terms(watched: bool, n_query: int) -> None:
    layer = relative_layer()
    memory = torch.randn(BATCH, QUERY, D_MODEL)
    x = memory[:, -n_query:]
    seen = watch(layer, "weights", "scores") if watched else {}
    output = layer(x, memory, causal=True)

    q = layer.query(x).unflatten(-1, (HEAD, D_HEAD)).transpose(1, 2)
    k, v = (part(memory).unflatten(-1, (HEAD, D_HEAD)).transpose(1, 2) for part in (layer.key, layer.value))
    shifts = torch.arange(1 - QUERY, QUERY)
    r = layer.relative.key(hw.functional.sinusoids(shifts, D_MODEL)).unflatten(-1, (HEAD, D_HEAD)).transpose(0, 1)
    index = hw.functional.relative_index(n_query, QUERY)
    scores = hw.functional.relative_scores(q, k, r, index, layer.relative.u, layer.relative.v).total()
    weights = hw.functional.softargmax(scores, 1 / math.sqrt(D_HEAD), hw.masks.causal(n_query, QUERY))
    wanted = layer.out((weights @ v).transpose(1, 2).flatten(2))
    assert_same(output, wanted)
    if watched:
        hidden = ~hw.masks.causal(n_query, QUERY)
        assert_same(seen["scores"], (scores / math.sqrt(D_HEAD)).masked_fill(hidden, -math.inf))
        assert_same(seen["weights"], weights)
    ours = torch.autograd.grad(some_loss(output), list(layer.parameters()))
    theirs = torch.autograd.grad(some_loss(wanted), list(layer.parameters()))
    for gradient, of_them in zip(ours, theirs, strict=True):
        assert_same(gradient, of_them)


# --- inputs and widths of their own --------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
def test_without_a_memory_x_attends_to_itself() -> None:
    layer, x = MultiHeadAttention(D_MODEL, HEAD), torch.randn(BATCH, QUERY, D_MODEL)
    assert torch.equal(layer(x, causal=True), layer(x, x, causal=True))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("padded", [False, True])
def test_queries_keys_and_values_of_their_own_equal_torch(padded: bool) -> None:
    """query, key, value with kdim and vdim of nn.MultiheadAttention."""
    theirs = nn.MultiheadAttention(D_MODEL, HEAD, kdim=D_MEMORY, vdim=23, batch_first=True)
    ours = MultiHeadAttention(D_MODEL, HEAD, d_memory=D_MEMORY, d_values=23)
    names = {"query": theirs.q_proj_weight, "key": theirs.k_proj_weight, "value": theirs.v_proj_weight}
    biases = zip(names, theirs.in_proj_bias.chunk(3), strict=True)
    ours.load_state_dict(
        {f"{name}.weight": weight for name, weight in names.items()}
        | {f"{name}.bias": bias for name, bias in biases}
        | {f"out.{kind}": getattr(theirs.out_proj, kind) for kind in ("weight", "bias")}
    )
    x, memory, values = (torch.randn(BATCH, n, d) for n, d in ((QUERY, D_MODEL), (KEY, D_MEMORY), (KEY, 23)))
    visible = hw.masks.padding(torch.tensor([3, KEY]), KEY) if padded else None
    blocked = None if visible is None else ~visible[:, 0, 0]
    wanted, _ = theirs(x, memory, values, key_padding_mask=blocked, need_weights=False)
    assert_same(ours(x, memory, visible, values=values), wanted)


@pytest.mark.usefixtures("float64")
def test_the_output_has_a_width_of_its_own() -> None:
    layer, x = MultiHeadAttention(D_MODEL, HEAD, d_out=23), torch.randn(BATCH, QUERY, D_MODEL)
    assert layer(x).shape == (BATCH, QUERY, 23)
    assert layer.axes == "batch query d_out"
    seen = watch(layer, "heads")
    assert_same(layer(x), layer.out(seen["heads"].flatten(2)))


def test_nan_in_hidden_values_goes_nowhere() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    x, values = torch.randn(BATCH, QUERY, D_MODEL), torch.randn(BATCH, QUERY, D_MODEL)
    visible = hw.masks.padding(torch.full((BATCH,), 3), QUERY)
    broken = values.clone()
    broken[:, 3:] = math.nan
    assert torch.equal(layer(x, None, visible, values=broken), layer(x, None, visible, values=values))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"values": torch.zeros(BATCH, KEY, 3)}, ValueError, r"values must have the axes \(batch, token, 15\)"),
        ({"values": torch.zeros(BATCH, KEY + 1, 15)}, ValueError, "values must have one token for each key"),
        ({"bias": torch.ones(1, 1, QUERY, KEY) > 0}, TypeError, "bias must hold real numbers.* visible="),
        ({"bias": torch.ones(1, 1, QUERY, KEY).long()}, TypeError, "bias must hold real numbers.* got torch.int64"),
        (
            {"visible": torch.ones(BATCH, QUERY, KEY) > 0},
            ValueError,
            r"visible must .* got shape \(2, .*\): write visible\[:, None\]",
        ),
    ],
    ids=["width", "length", "boolean bias", "whole bias", "mask without heads"],
)
@pytest.mark.parametrize("relative", [False, True])
def test_what_does_not_fit_is_refused(
    arguments: dict[str, Tensor], error: type[Exception], message: str, relative: bool
) -> None:
    layer = MultiHeadAttention(15, HEAD, relative=RelativeShifts(15, HEAD, 5) if relative else None)
    with pytest.raises(error, match=message):
        layer(torch.randn(BATCH, QUERY, 15), torch.randn(BATCH, KEY, 15), **arguments)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_mask_instead_of_a_memory_is_refused() -> None:
    layer, x = MultiHeadAttention(D_MODEL, HEAD), torch.randn(BATCH, QUERY, D_MODEL)
    with pytest.raises(TypeError, match="memory must hold real numbers, got a mask: write visible="):
        layer(x, hw.masks.causal(QUERY))


# --- beta ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
def test_beta_is_one_over_the_root_of_d_head_unless_given() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, d_head=19)
    same = MultiHeadAttention(D_MODEL, HEAD, d_head=19, beta=1 / math.sqrt(19))
    same.load_state_dict(layer.state_dict())
    x = torch.randn(BATCH, QUERY, D_MODEL)
    assert layer.beta == 1 / math.sqrt(19)
    assert torch.equal(layer(x, x), same(x, x))


@pytest.mark.parametrize("watched", [False, True])
def test_infinite_beta_is_hard_attention(watched: bool) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, beta=math.inf)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    seen = watch(layer, "weights", "scores", "heads", "values") if watched else watch(layer, "heads", "values")
    layer(x, x, causal=True)
    q, k = (part(x).unflatten(-1, (HEAD, D_HEAD)).transpose(1, 2) for part in (layer.query, layer.key))
    scores = (q @ k.mT).masked_fill(~hw.masks.causal(QUERY), -math.inf)
    for b in range(BATCH):
        for h in range(HEAD):
            for i in range(QUERY):
                chosen = int(scores[b, h, i].argmax())
                assert torch.equal(seen["heads"][b, i, h], seen["values"][b, chosen, h])
    if watched:
        assert set(seen["weights"].unique().tolist()) == {0.0, 1.0}
        assert_same(seen["scores"], scores, 1e-5)


def test_beta_zero_is_the_mean_of_what_is_visible() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, beta=0.0)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    visible = hw.masks.padding(LENGTHS, QUERY)
    seen = watch(layer, "heads", "values")
    layer(x, x, visible)
    heads, values = seen["heads"], seen["values"]
    for b, length in enumerate(LENGTHS.tolist()):
        assert_same(heads[b, 0], values[b, :length].mean(0), 1e-6)


@pytest.mark.parametrize("beta", [1e30, 1e38, 1e39, 1e300])
def test_a_large_finite_beta_is_hard_attention_as_well(beta: float) -> None:
    """The fused kernel scales before it subtracts the best score: it must not meet a score that overflows."""
    hard = MultiHeadAttention(D_MODEL, HEAD, beta=math.inf)
    large = MultiHeadAttention(D_MODEL, HEAD, beta=beta)
    large.load_state_dict(hard.state_dict())
    x = 10 * torch.randn(BATCH, QUERY, D_MODEL)
    assert_same(large(x, x), hard(x, x), 1e-5)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("beta", [math.nan, -1.0, -math.inf])
def test_beta_outside_its_range_is_refused(beta: float) -> None:
    with pytest.raises(ValueError, match=f"beta must lie in 0 .. inf, got {beta}"):
        MultiHeadAttention(D_MODEL, HEAD, beta=beta)


# --- what is shown -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("name", ["queries", "keys", "values", "scores", "weights", "heads"])
def test_a_forward_hook_fires_in_eval_mode_without_gradients(quiet: Callable[[], object], name: str) -> None:
    """pytorch#128413, #132700: the fused path of nn.TransformerEncoderLayer skips the hooks."""
    layer = MultiHeadAttention(D_MODEL, HEAD, d_memory=D_MEMORY, d_value=D_VALUE).eval()
    seen = watch(layer, name)
    with quiet():
        layer(torch.randn(BATCH, QUERY, D_MODEL), torch.randn(BATCH, KEY, D_MEMORY))
    assert (
        seen[name].shape
        == {
            "queries": (BATCH, QUERY, HEAD, D_HEAD),
            "keys": (BATCH, KEY, HEAD, D_HEAD),
            "values": (BATCH, KEY, HEAD, D_VALUE),
            "scores": (BATCH, HEAD, QUERY, KEY),
            "weights": (BATCH, HEAD, QUERY, KEY),
            "heads": (BATCH, QUERY, HEAD, D_VALUE),
        }[name]
    )


def test_names_of_the_axes_match_the_shapes() -> None:
    sizes = {"batch": BATCH, "head": 4, "kv_head": 2, "query": QUERY, "key": KEY, "d_head": 19, "d_value": D_VALUE}
    layer = MultiHeadAttention(D_MODEL, 4, n_kv_heads=2, d_head=19, d_value=D_VALUE, d_memory=D_MEMORY)
    names = ("queries", "keys", "values", "scores", "weights", "heads")
    seen = watch(layer, *names)
    layer(torch.randn(BATCH, QUERY, D_MODEL), torch.randn(BATCH, KEY, D_MEMORY))
    for name in names:
        assert seen[name].shape == tuple(sizes[axis] for axis in layer.get_submodule(name).axes.split()), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("training", [True, False])
def test_shown_weights_sum_to_one_whatever_dropout_does(dtype: torch.dtype, training: bool) -> None:
    """pytorch#42929, #33360: elsewhere dropout has already been at the weights that are returned."""
    layer = MultiHeadAttention(D_MODEL, HEAD, dropout=0.5).to(dtype).train(training)
    x = torch.randn(BATCH, QUERY, D_MODEL, dtype=dtype)
    seen = watch(layer, "weights")
    layer(x, x, hw.masks.padding(LENGTHS, QUERY), causal=True)
    rows = seen["weights"].float().sum(-1)
    assert_same(rows, torch.ones_like(rows), 2e-2 if dtype == torch.bfloat16 else 1e-6)


def one_row_sees_nothing() -> Tensor:
    visible = torch.ones(QUERY, QUERY, dtype=torch.bool)
    visible[2] = False
    return visible


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"causal": True},
        {"visible": one_row_sees_nothing()},
        {"visible": hw.masks.padding(LENGTHS, QUERY, side="left"), "causal": True},
    ],
    ids=["plain", "causal", "one row sees nothing", "left padding"],
)
def test_looking_changes_no_bit(
    dropout: float, training: bool, dtype: torch.dtype, how: dict[str, Tensor | bool]
) -> None:
    """pytorch#152028: there a fully masked row is NaN only if somebody asks for the weights."""
    unseen = MultiHeadAttention(D_MODEL, HEAD, dropout=dropout).to(dtype).train(training)
    watched = copy.deepcopy(unseen)
    watch(watched, "queries", "keys", "values", "scores", "weights", "heads")
    x = torch.randn(BATCH, QUERY, D_MODEL, dtype=dtype)
    torch.manual_seed(7)
    plain = unseen(x, x, **how)
    torch.manual_seed(7)
    looked_at = watched(x, x, **how)
    assert torch.equal(plain, looked_at)
    some_loss(plain).backward()
    some_loss(looked_at).backward()
    for (name, ours), theirs in zip(unseen.named_parameters(), watched.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad), name


def test_shown_scores_give_the_shown_weights() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    seen = watch(layer, "scores", "weights")
    bias = AlibiPositions(HEAD).bias(x, QUERY)
    layer(x, x, causal=True, bias=bias)
    assert (seen["scores"][..., ~hw.masks.causal(QUERY)] == -math.inf).all()
    assert_same(seen["weights"], seen["scores"].softmax(-1), 1e-6)


@pytest.mark.computes_in(torch.float16)
def test_shown_scores_of_half_precision_do_not_overflow() -> None:
    """The products of wide float16 queries and keys overflow before they are scaled."""
    layer = MultiHeadAttention(64, 1, beta=1e-4).half()
    with torch.no_grad():
        layer.query.weight.copy_(40 * torch.eye(64))
        layer.key.weight.copy_(40 * torch.eye(64))
    x = torch.ones(1, 3, 64, dtype=torch.float16)
    seen = watch(layer, "scores")
    layer(x, x)
    assert_same(seen["scores"].float(), torch.full((1, 1, 3, 3), 64 * 1600 * 1e-4), 1e-2)


# --- what a hook returns replaces the tensor -----------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_weights_that_point_at_one_key_return_exactly_its_value(training: bool) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, d_memory=D_MEMORY).train(training)
    chosen = torch.randint(KEY, (BATCH, HEAD, QUERY))
    seen = watch(layer, "values", "heads")
    put(layer, "weights", lambda weights: F.one_hot(chosen, KEY).to(weights))
    output = layer(torch.randn(BATCH, QUERY, D_MODEL), torch.randn(BATCH, KEY, D_MEMORY))
    of_head = seen["values"].transpose(1, 2)
    wanted = of_head.gather(2, chosen[..., None].expand(-1, -1, -1, D_HEAD)).transpose(1, 2)
    assert torch.equal(seen["heads"], wanted)
    assert_same(output, layer.out(wanted.flatten(2)), 1e-6)


@pytest.mark.parametrize("beta", [None, math.inf])
@pytest.mark.parametrize("how", ["visible", "causal"])
def test_replaced_scores_respect_the_mask(beta: float | None, how: str) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, beta=beta)
    hidden = ~hw.masks.causal(QUERY)
    new_scores = torch.randn(BATCH, HEAD, QUERY, QUERY)
    new_scores[..., hidden] = 1000.0
    put(layer, "scores", lambda scores: new_scores)
    seen = watch(layer, "weights", "heads", "values")
    x = torch.randn(BATCH, QUERY, D_MODEL)
    layer(x, x, **({"causal": True} if how == "causal" else {"visible": ~hidden}))
    wanted = hw.functional.softargmax(new_scores, 1.0 if beta is None else beta, ~hidden)
    assert_same(seen["weights"], wanted, 1e-6)
    assert (seen["weights"][..., hidden] == 0).all()
    assert_same(seen["heads"], torch.einsum("bhqk,bkhd->bqhd", wanted, seen["values"]), 1e-6)


def test_a_score_of_minus_infinity_hides_a_key() -> None:
    layer, x = MultiHeadAttention(D_MODEL, HEAD), torch.randn(BATCH, QUERY, D_MODEL)
    without = layer(x, visible=torch.arange(QUERY).expand(QUERY, QUERY) != 2)
    put(layer, "scores", lambda scores: scores.index_fill(-1, torch.tensor([2]), -math.inf))
    assert_same(layer(x), without, 1e-6)
    put(layer, "scores", lambda scores: torch.full_like(scores, -math.inf))
    assert_same(layer(x), layer.out.bias.expand(BATCH, QUERY, D_MODEL), 1e-6)


def test_replaced_scores_are_not_scaled_again() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    put(layer, "scores", lambda scores: scores.clone())
    seen = watch(layer, "heads")
    x = torch.randn(BATCH, QUERY, D_MODEL)
    bias = AlibiPositions(HEAD).bias(x, QUERY)
    replaced = layer(x, x, causal=True, bias=bias)
    plain = MultiHeadAttention(D_MODEL, HEAD)
    plain.load_state_dict(layer.state_dict())
    assert_same(replaced, plain(x, x, causal=True, bias=bias), 1e-6)
    assert seen["heads"].shape == (BATCH, QUERY, HEAD, D_HEAD)


@pytest.mark.parametrize("name", ["queries", "keys"])
def test_queries_or_keys_replaced_by_zeros_give_the_mean(name: str) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    put(layer, name, torch.zeros_like)
    seen = watch(layer, "weights", "heads", "values")
    x = torch.randn(BATCH, QUERY, D_MODEL)
    layer(x, x)
    assert_same(seen["weights"], torch.full((BATCH, HEAD, QUERY, QUERY), 1 / QUERY), 1e-6)
    assert_same(seen["heads"], seen["values"].mean(1, keepdim=True).expand(-1, QUERY, -1, -1), 1e-6)


def test_replaced_values_flow_on_head_by_head() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    number_of_head = torch.arange(HEAD, dtype=torch.float32)[:, None]
    put(layer, "values", lambda values: number_of_head.expand_as(values).clone())
    seen = watch(layer, "heads")
    x = torch.randn(BATCH, QUERY, D_MODEL)
    layer(x, x)
    assert_same(seen["heads"], number_of_head.expand(BATCH, QUERY, HEAD, D_HEAD), 1e-6)


def test_a_head_can_be_switched_off() -> None:
    """Head masking, which Hugging Face removed in v5 (PR#41076)."""
    layer = MultiHeadAttention(D_MODEL, HEAD)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    seen = watch(layer, "heads")
    layer(x, x)
    without_head_1 = seen["heads"].clone()
    without_head_1[:, :, 1] = 0
    put(layer, "heads", lambda heads: heads * torch.tensor([1.0, 0.0, 1.0])[:, None])
    assert_same(layer(x, x), layer.out(without_head_1.flatten(2)), 1e-6)


def test_weights_edited_in_place_count_as_well() -> None:
    """A hook that edits the tensor and returns it has returned it: nothing is dropped in silence."""
    layer = MultiHeadAttention(D_MODEL, HEAD)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    put(layer, "weights", lambda weights: weights.zero_())
    with torch.no_grad():
        assert torch.equal(layer(x, x), torch.zeros(BATCH, QUERY, D_MODEL))


@pytest.mark.usefixtures("float64")
def test_gradients_flow_through_replaced_weights() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    same = copy.deepcopy(layer)
    put(layer, "weights", lambda weights: weights * 1)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    some_loss(layer(x, x, causal=True)).backward()
    some_loss(same(x, x, causal=True)).backward()
    for ours, theirs in zip(layer.parameters(), same.parameters(), strict=True):
        assert_same(ours.grad, theirs.grad)


# --- dropout -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [None, math.inf])
def test_dropout_acts_in_training_only(beta: float | None) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, dropout=0.5, beta=beta)
    without = MultiHeadAttention(D_MODEL, HEAD, beta=beta)
    without.load_state_dict(layer.state_dict())
    x = torch.randn(BATCH, QUERY, D_MODEL)
    assert not torch.allclose(layer(x, x), without(x, x))
    assert not torch.equal(layer(x, x), layer(x, x))
    layer.eval()
    assert torch.equal(layer(x, x), without(x, x))


def test_dropout_keeps_the_mean() -> None:
    layer = MultiHeadAttention(6, 2, dropout=0.3)
    x = torch.randn(1, 3, 6)
    many = x.expand(20_000, -1, -1)
    with torch.no_grad():
        mean = layer(many, many).mean(0, keepdim=True)
        assert_same(mean, layer.eval()(x, x), 0.03)


def test_dropout_acts_on_replaced_weights_too() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, dropout=0.5)
    seen = watch(layer, "weights", "values", "heads")
    put(layer, "weights", lambda weights: weights.clone())
    x = torch.randn(BATCH, QUERY, D_MODEL)
    torch.manual_seed(5)
    layer(x, x)
    torch.manual_seed(5)
    dropped = F.dropout(seen["weights"], 0.5)
    assert (dropped == 0).any()
    assert_same(seen["heads"], torch.einsum("bhqk,bkhd->bqhd", dropped, seen["values"]), 1e-6)


# --- nothing visible -----------------------------------------------------------------------------------------------


def left_padding() -> Tensor:
    return hw.masks.padding(LENGTHS, QUERY, side="left")


NOTHING_VISIBLE: dict[str, Callable[[], tuple[Tensor, bool]]] = {
    "one row": lambda: (one_row_sees_nothing(), False),
    "one row of one head": lambda: (
        one_row_sees_nothing() | torch.tensor([False, True, True]).view(1, HEAD, 1, 1),
        False,
    ),
    "all rows": lambda: (torch.zeros(1, QUERY, dtype=torch.bool), False),
    "an empty sentence": lambda: (hw.masks.padding(torch.tensor([0, 5]), QUERY), False),
    "causal and left padding": lambda: (left_padding(), True),
    "padded queries": lambda: (hw.masks.cross(LENGTHS, QUERY, LENGTHS, QUERY), False),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("watched", [(), ("weights",), ("scores", "weights")], ids=["unseen", "weights", "both"])
@pytest.mark.parametrize("biased", [False, True], ids=["", "alibi"])
@pytest.mark.parametrize("case", NOTHING_VISIBLE)
def test_a_query_that_sees_nothing_returns_zeros(
    dtype: torch.dtype, watched: tuple[str, ...], biased: bool, case: str
) -> None:
    """pytorch#41508, #152028 and `nan_to_num` (PEERS 29): zeros, and finite gradients for the whole batch."""
    visible, causal = NOTHING_VISIBLE[case]()
    layer = MultiHeadAttention(D_MODEL, HEAD).to(dtype)
    x = torch.randn(BATCH, QUERY, D_MODEL, dtype=dtype, requires_grad=True)
    bias = AlibiPositions(HEAD).bias(x, QUERY) if biased else None
    seen = watch(layer, "heads", *watched)
    output = layer(x, x, visible, causal=causal, bias=bias)

    allowed = visible & hw.masks.causal(QUERY) if causal else visible
    sees = allowed.expand(BATCH, HEAD, QUERY, QUERY).any(-1)
    assert (~sees).any()
    assert (seen["heads"].transpose(1, 2)[~sees] == 0).all()
    assert (output[~sees.any(1)] == 0).all()
    assert output.isfinite().all()
    if "weights" in watched:
        assert (seen["weights"][~sees] == 0).all()
        rows = seen["weights"].float().sum(-1)[sees]
        assert_same(rows, torch.ones_like(rows), 2e-2)
    for gradient in torch.autograd.grad(some_loss(output), [x, *layer.parameters()]):
        assert gradient.isfinite().all()


def test_a_row_that_sees_nothing_leaves_the_others_alone() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    x = torch.randn(BATCH, QUERY, D_MODEL)
    masked, free = layer(x, x, one_row_sees_nothing()), layer(x, x)
    others = torch.arange(QUERY) != 2
    assert_same(masked[:, others], free[:, others], 1e-6)


# --- NaN in what nobody may see ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("watched", [(), ("weights",), ("scores", "weights")], ids=["unseen", "weights", "both"])
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_nobody_may_see_reaches_no_output_and_no_gradient(
    dtype: torch.dtype, watched: tuple[str, ...], poison: float
) -> None:
    """pytorch#101967: 0 * NaN is NaN, in the output, and in the gradients of the projections."""
    layer = MultiHeadAttention(D_MODEL, HEAD, d_memory=D_MEMORY).to(dtype)
    watch(layer, *watched)
    visible = hw.masks.padding(LENGTHS, KEY)
    x = torch.randn(BATCH, QUERY, D_MODEL, dtype=dtype, requires_grad=True)
    memory = torch.randn(BATCH, KEY, D_MEMORY, dtype=dtype)
    results = []
    for content in (0.0, poison):
        filled = memory.masked_fill(~visible[:, 0, 0, :, None], content).requires_grad_()
        output = layer(x, filled, visible)
        results.append([output, *torch.autograd.grad(some_loss(output), [x, filled, *layer.parameters()])])
    for clean, poisoned in zip(*results, strict=True):
        assert torch.equal(clean, poisoned)
        assert poisoned.isfinite().all()


def test_what_mask_and_future_hide_together_reaches_no_gradient_either() -> None:
    """Key 4 is visible to query 0 alone, and for query 0 it is the future: nobody sees it."""
    layer = MultiHeadAttention(D_MODEL, HEAD, d_memory=D_MEMORY)
    visible = torch.ones(QUERY, QUERY, dtype=torch.bool)
    visible[1:, 4] = False
    memory = torch.randn(BATCH, QUERY, D_MEMORY)
    memory[:, 4] = math.nan
    x = torch.randn(BATCH, QUERY, D_MODEL, requires_grad=True)
    output = layer(x, memory, visible, causal=True)
    assert output.isfinite().all()
    for gradient in torch.autograd.grad(some_loss(output), [x, *layer.parameters()]):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("watched", [(), ("weights",)], ids=["unseen", "weights"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_nan_in_the_padding_reaches_no_real_query(watched: tuple[str, ...], side: str) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    watch(layer, *watched)
    visible = hw.masks.padding(LENGTHS, QUERY, side=side)
    real = visible[:, 0, 0]
    x = torch.randn(BATCH, QUERY, D_MODEL)
    poisoned = x.masked_fill(~real[..., None], math.nan)
    output = layer(poisoned, poisoned, visible)[real]
    assert output.isfinite().all()
    assert torch.equal(output, layer(x, x, visible)[real])


# --- invariants ----------------------------------------------------------------------------------------------------

seeds = st.integers(0, 2**32 - 1)


@st.composite
def small_layers(draw: st.DrawFn) -> tuple[MultiHeadAttention, int, int]:
    """A layer of any small shape, how many tokens it reads, and a seed."""
    n_kv_heads = draw(st.integers(1, 3))
    n_heads = n_kv_heads * draw(st.integers(1, 3))
    d_head = draw(st.sampled_from([1, 2, 3, 7]))
    seed = draw(seeds)
    torch.manual_seed(seed)
    layer = MultiHeadAttention(
        n_heads * draw(st.sampled_from([1, 3, 4])),
        n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_value=draw(st.sampled_from([1, 5])),
        bias=draw(st.booleans()),
    ).double()
    random_biases(layer)
    return layer, draw(st.integers(1, 8)), seed


@few
@given(small_layers())
def test_permuting_the_tokens_permutes_the_output(drawn: tuple[MultiHeadAttention, int, int]) -> None:
    layer, n_token, _ = drawn
    x = torch.randn(2, n_token, layer.d_model, dtype=torch.float64)
    order = torch.randperm(n_token)
    assert_same(layer(x[:, order], x[:, order]), layer(x, x)[:, order], 1e-12)


@few
@given(small_layers())
def test_permuting_the_memory_changes_nothing(drawn: tuple[MultiHeadAttention, int, int]) -> None:
    layer, n_key, _ = drawn
    x, memory = (torch.randn(2, n, layer.d_model, dtype=torch.float64) for n in (3, n_key))
    visible = torch.rand(2, 1, 3, n_key) < 0.7
    order = torch.randperm(n_key)
    assert_same(layer(x, memory[:, order], visible[..., order]), layer(x, memory, visible), 1e-12)


@few
@given(small_layers(), st.data())
def test_the_future_cannot_change_the_past(drawn: tuple[MultiHeadAttention, int, int], data: st.DataObject) -> None:
    """jadore801120#19, darts#672: a leaky mask looks like success."""
    layer, n_token, _ = drawn
    now = data.draw(st.integers(1, n_token))
    x = torch.randn(2, n_token, layer.d_model, dtype=torch.float64)
    other = torch.cat([x[:, :now], 100 * torch.randn_like(x[:, now:])], dim=1)
    assert_same(layer(other, other, causal=True)[:, :now], layer(x, x, causal=True)[:, :now], 1e-12)
    assert_same(layer(x[:, :now], x[:, :now], causal=True), layer(x, x, causal=True)[:, :now], 1e-12)


@few
@given(small_layers(), st.data())
def test_content_of_the_padding_changes_nothing(
    drawn: tuple[MultiHeadAttention, int, int], data: st.DataObject
) -> None:
    layer, n_token, _ = drawn
    lengths = torch.tensor(data.draw(st.lists(st.integers(0, n_token), min_size=2, max_size=2)))
    side = data.draw(st.sampled_from(["left", "right"]))
    visible = hw.masks.padding(lengths, n_token, side=side)
    real = visible[:, 0, 0]
    x = torch.randn(2, n_token, layer.d_model, dtype=torch.float64)
    other = torch.where(real[..., None], x, 100 * torch.randn_like(x))
    assert_same(layer(other, other, visible)[real], layer(x, x, visible)[real], 1e-12)
    alone = int(lengths[0])
    if alone:
        sentence = x[:1, real[0]]
        assert_same(layer(sentence, sentence), layer(x, x, visible)[:1, real[0]], 1e-12)


@few
@given(small_layers())
def test_watched_weights_give_the_output(drawn: tuple[MultiHeadAttention, int, int]) -> None:
    layer, n_token, _ = drawn
    seen = watch(layer, "weights", "values", "heads")
    x = torch.randn(2, n_token, layer.d_model, dtype=torch.float64)
    layer(x, x, causal=True)
    values = seen["values"].repeat_interleave(layer.n_heads // layer.n_kv_heads, dim=2)
    assert_same(torch.einsum("bhqk,bkhd->bqhd", seen["weights"], values), seen["heads"], 1e-12)


def test_one_token_attends_to_itself_alone() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    x = torch.randn(BATCH, 1, D_MODEL)
    assert_same(layer(x, x), layer.out(layer.value(x)), 1e-6)
    assert_same(layer(x, x, causal=True), layer.out(layer.value(x)), 1e-6)


def test_the_smallest_layer_works() -> None:
    layer = MultiHeadAttention(1, 1)
    x = torch.randn(1, 1, 1, requires_grad=True)
    some_loss(layer(x, x)).backward()
    assert x.grad.isfinite().all()


def test_the_newest_query_sees_every_key() -> None:
    """pytorch#103082, #144858: one query, many keys, causal: elsewhere it attends to key 0 only."""
    layer = MultiHeadAttention(D_MODEL, HEAD)
    x = torch.randn(BATCH, KEY, D_MODEL)
    seen = watch(layer, "weights")
    newest = layer(x[:, -1:], x, causal=True)
    assert (seen["weights"] > 0).all()
    assert_same(newest, layer(x, x, causal=True)[:, -1:], 1e-6)


# --- how it starts -------------------------------------------------------------------------------------------------


def test_each_projection_starts_in_its_own_glorot_range_with_bias_zero() -> None:
    layer = MultiHeadAttention(60, 6, n_kv_heads=2, d_memory=90)
    for part in (layer.query, layer.key, layer.value, layer.out):
        bound = math.sqrt(6 / sum(part.weight.shape))
        assert 0.95 * bound < part.weight.abs().max() <= bound
        assert part.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert (part.bias == 0).all()


def test_relative_shifts_start_without_u_and_v() -> None:
    shifts = RelativeShifts(D_MODEL, HEAD, D_HEAD)
    assert (shifts.u == 0).all()
    assert (shifts.v == 0).all()
    assert shifts.key.weight.abs().max() <= math.sqrt(6 / (2 * D_MODEL))


# --- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_model": 10, "n_heads": 4}, "n_heads must divide d_model, got n_heads=4 and d_model=10"),
        ({"d_model": 10, "n_heads": 4, "d_head": 3}, "n_heads must divide d_model, got n_heads=4 and d_model=10"),
        (
            {"d_model": 12, "n_heads": 4, "n_kv_heads": 3},
            "n_kv_heads must divide n_heads, got n_kv_heads=3 and n_heads=4",
        ),
        (
            {"d_model": 12, "n_heads": 4, "n_kv_heads": 8},
            "n_kv_heads must divide n_heads, got n_kv_heads=8 and n_heads=4",
        ),
        ({"d_model": 12, "n_heads": 0}, "n_heads must be 1 or more, got 0"),
        ({"d_model": 12, "n_heads": -3}, "n_heads must be 1 or more, got -3"),
        ({"d_model": 0, "n_heads": 1}, "d_model must be 1 or more, got 0"),
        ({"d_model": 12, "n_heads": 4, "n_kv_heads": 0}, "n_kv_heads must be 1 or more, got 0"),
        ({"d_model": 12, "n_heads": 4, "d_head": 0}, "d_head must be 1 or more, got 0"),
        ({"d_model": 12, "n_heads": 4, "d_value": 0}, "d_value must be 1 or more, got 0"),
        ({"d_model": 12, "n_heads": 4, "d_memory": 0}, "d_memory must be 1 or more, got 0"),
        ({"d_model": 12, "n_heads": 4, "dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"d_model": 12, "n_heads": 4, "dropout": 1.5}, r"dropout must lie in \[0, 1\), got 1.5"),
        ({"d_model": 12, "n_heads": 4, "dropout": -0.1}, r"dropout must lie in \[0, 1\), got -0.1"),
        ({"d_model": 12, "n_heads": 4, "dropout": math.nan}, r"dropout must lie in \[0, 1\), got nan"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**arguments)


def test_heads_that_do_not_divide_d_model_are_fine_with_widths_of_their_own() -> None:
    x = torch.randn(BATCH, QUERY, 10)
    assert MultiHeadAttention(10, 4, d_head=3, d_value=5)(x, x).shape == x.shape


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "shape",
    [
        (QUERY,),
        (BATCH, QUERY, KEY),
        (BATCH, 1, QUERY, KEY, 1),
        (QUERY, KEY - 1),
        (QUERY, KEY + 1),
        (QUERY - 1, KEY),
        (KEY, QUERY),
        (BATCH, KEY),
        (BATCH + 1, 1, QUERY, KEY),
        (BATCH, HEAD + 1, QUERY, KEY),
        (BATCH, HEAD, QUERY - 1, KEY),
        (BATCH, HEAD, QUERY, KEY - 1),
        (BATCH, 1, 1, KEY + 1),
    ],
    ids=str,
)
def test_a_mask_of_the_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    """pytorch#131254 drops it without a word; Hugging Face accepts 24 of 30 (PEERS 28)."""
    layer = MultiHeadAttention(D_MODEL, HEAD, d_memory=D_MEMORY)
    x, memory = torch.randn(BATCH, QUERY, D_MODEL), torch.randn(BATCH, KEY, D_MEMORY)
    with pytest.raises(ValueError, match=r"visible must .* got (shape )?\(" + str(shape)[1:-1].replace(")", "")):
        layer(x, memory, torch.ones(shape, dtype=torch.bool))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("watched", [False, True])
def test_a_mask_that_is_not_boolean_is_refused(dtype: torch.dtype, watched: bool) -> None:
    """A float 0/1 mask given to SDPA is added to the scores (PEERS 28)."""
    layer = MultiHeadAttention(D_MODEL, HEAD)
    if watched:
        watch(layer, "weights")
    x = torch.randn(BATCH, QUERY, D_MODEL)
    with pytest.raises(TypeError, match=f"visible must be boolean .True = may attend., got {dtype}"):
        layer(x, x, torch.ones(QUERY, QUERY, dtype=dtype))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("x", "memory", "message"),
    [
        ((BATCH, QUERY, 14), (BATCH, KEY, D_MEMORY), rf"x must have the axes \(batch, token, {D_MODEL}\).*14\)"),
        ((BATCH, QUERY, D_MODEL), (BATCH, KEY, 14), rf"memory must have the axes \(batch, token, {D_MEMORY}\).*14\)"),
        ((QUERY, D_MODEL), (BATCH, KEY, D_MEMORY), rf"x must have the axes.*got shape \({QUERY}, {D_MODEL}\)"),
        ((BATCH, 0, D_MODEL), (BATCH, KEY, D_MEMORY), rf"x must have.*at least one token, got shape \({BATCH}, 0"),
        ((BATCH, QUERY, D_MODEL), (BATCH, 0, D_MEMORY), rf"memory must have.*at least one token.*\({BATCH}, 0"),
    ],
)
def test_tokens_of_the_wrong_shape_are_refused(x: tuple[int, ...], memory: tuple[int, ...], message: str) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD, d_memory=D_MEMORY)
    with pytest.raises(ValueError, match=message):
        layer(torch.randn(x), torch.randn(memory))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("n_memories", [1, 3])
def test_x_and_memory_of_different_batches_are_refused(n_memories: int) -> None:
    """A memory of one sentence would be spread over the batch in silence."""
    layer = MultiHeadAttention(D_MODEL, HEAD)
    with pytest.raises(ValueError, match=f"batch.*{BATCH}.*{n_memories}"):
        layer(torch.randn(BATCH, QUERY, D_MODEL), torch.randn(n_memories, KEY, D_MODEL))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("watched", [False, True])
def test_a_bias_of_the_wrong_shape_is_refused(watched: bool) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    if watched:
        watch(layer, "weights")
    x = torch.randn(BATCH, QUERY, D_MODEL)
    with pytest.raises(ValueError, match=rf"bias must broadcast to the scores .*got \(1, {HEAD}, {QUERY}, {KEY}\)"):
        layer(x, x, bias=torch.zeros(1, HEAD, QUERY, KEY))


@pytest.mark.parametrize("watched", [(), ("scores", "weights")], ids=["unseen", "watched"])
@pytest.mark.parametrize("visible", [None, torch.ones(QUERY, QUERY, dtype=torch.bool)], ids=["", "mask"])
def test_an_empty_batch_gives_an_empty_result(watched: tuple[str, ...], visible: Tensor | None) -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    watch(layer, *watched)
    x = torch.randn(0, QUERY, D_MODEL, requires_grad=True)
    output = layer(x, x, visible)
    assert output.shape == (0, QUERY, D_MODEL)
    output.sum().backward()
    assert all((p.grad == 0).all() for p in layer.parameters())


# --- as a module ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_is_the_same_and_shares_nothing(copied: Callable[[nn.Module], nn.Module]) -> None:
    layer = relative_layer()
    x = torch.randn(BATCH, QUERY, D_MODEL)
    twin = copied(layer)
    wanted = layer(x, x)
    assert torch.equal(twin(x, x), wanted)
    nn.init.zeros_(twin.value.weight)
    assert torch.equal(layer(x, x), wanted)


def test_a_copy_of_a_watched_layer_is_watched_by_itself() -> None:
    layer = MultiHeadAttention(D_MODEL, HEAD)
    twin = copy.deepcopy(layer)
    seen = watch(twin, "weights")
    x = torch.randn(BATCH, QUERY, D_MODEL)
    layer(x, x)
    assert not seen
    twin(x, x)
    assert seen


def test_weights_travel_by_name() -> None:
    layer, other = relative_layer(), relative_layer()
    x = torch.randn(BATCH, QUERY, D_MODEL)
    assert not torch.allclose(layer(x, x), other(x, x))
    assert other.load_state_dict(layer.state_dict()) == ([], [])
    assert torch.equal(layer(x, x), other(x, x))
    assert set(layer.state_dict()) == {
        *(f"{part}.{kind}" for part in ("query", "key", "value", "out") for kind in ("weight", "bias")),
        *(f"relative.{name}" for name in ("key.weight", "u", "v")),
    }


def test_printing_the_layer_shows_its_points_with_their_axes() -> None:
    shown = str(MultiHeadAttention(12, 4, n_kv_heads=2))
    for line in (
        "(queries): HookPoint(batch query head d_head)",
        "(keys): HookPoint(batch key kv_head d_head)",
        "(values): HookPoint(batch key kv_head d_value)",
        "(scores): LazyHookPoint(batch head query key)",
        "(weights): LazyHookPoint(batch head query key)",
        "(heads): HookPoint(batch query head d_value)",
    ):
        assert line in shown
