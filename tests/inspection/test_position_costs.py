"""Question (b.2) of the ETH sheet: what the formulas say is what real layers cost, by our count and by torch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from headwork.inspection.position_costs import KINDS, GaussianOfAllPairs, Size, count, formula, make_layer
from headwork.layers import GaussianAttention

every_kind = pytest.mark.parametrize("kind", KINDS)


@st.composite
def sizes(draw) -> Size:
    """Of 2 or more, since a sum over a single number is not done by a matrix product and so not counted."""
    number = st.integers(2, 7)
    n_heads = draw(st.integers(1, 5))
    return Size(
        grid=(draw(number), draw(number)),
        d_model=n_heads * draw(number),
        n_heads=n_heads,
        batch=draw(st.integers(1, 3)),
    )


@every_kind
@given(size=sizes())
@settings(max_examples=10, deadline=None)
def test_the_formula_is_what_is_counted(kind, size):
    assert count(kind, size) == formula(kind, size)


@every_kind
@pytest.mark.parametrize("size", [Size(grid=(3, 5), d_model=14, n_heads=7, batch=2), Size(grid=(7, 2), d_model=11)])
def test_torch_counts_the_same(kind, size):
    """With the unfused kernel, since torch counts 0 for the fused one."""
    layer, inputs = make_layer(kind, size)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(*inputs)
    assert counter.get_total_flops() == formula(kind, size).flops


def test_the_layer_of_the_sheet_is_gaussian_attention():
    size = Size(grid=(3, 5), d_model=14, n_heads=7, batch=2)
    (slow, (image,)), (fast, _) = make_layer("gaussian, all pairs", size), make_layer("gaussian", size)
    assert isinstance(slow, GaussianOfAllPairs)
    assert isinstance(fast, GaussianAttention)
    with torch.no_grad():
        slow.codes.alpha.copy_(torch.rand(7) + 0.5)
    fast.set_centres(slow.codes.centre.detach(), slow.codes.alpha.detach())
    for name in ("value", "out"):
        getattr(fast, name).load_state_dict(getattr(slow, name).state_dict())
    torch.testing.assert_close(slow(image), fast(image), rtol=1e-4, atol=1e-5)


def times(kind: str, *, width: int = 1, side: int = 1) -> float:
    """How many times the FLOPs of 64 x 64 tokens of width 64 cost those that are wider, on a grid of longer sides."""
    first, then = (Size(grid=(64 * s, 64 * s), d_model=64 * w) for w, s in ((1, 1), (width, side)))
    return formula(kind, then).attention / formula(kind, first).attention


def test_the_answer_to_b2():
    """Twice the side is four times N: N^2 costs 16 times as much, N sqrt(N) 8 times."""
    assert times("absolute", side=2) == 16
    assert times("relative", side=2) == pytest.approx(16, rel=1e-3)
    assert times("gaussian, all pairs", side=2) == 16
    assert times("gaussian", side=2) == 8
    for kind in KINDS:
        assert times(kind, width=2) == pytest.approx(2, rel=0.05)
    size = Size(grid=(64, 64), d_model=64)
    absolute, gaussian = formula("absolute", size), formula("gaussian, all pairs", size)
    assert gaussian.projections == absolute.projections / 2  # no queries, no keys
    mixing = absolute.attention / 2
    assert (absolute.attention - mixing) / (gaussian.attention - mixing) == pytest.approx(64 / 3)  # D_x / D_p


@every_kind
def test_large_layers_are_counted_without_their_numbers(kind):
    size = Size(grid=(32, 32), d_model=512, n_heads=8, batch=16)
    with FakeTensorMode():
        assert count(kind, size) == formula(kind, size)


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="n_heads must divide d_model, got n_heads=4 and d_model=10"):
        Size(grid=(3, 5), d_model=10, n_heads=4)
    with pytest.raises(ValueError, match="columns must be 1 or more, got 0"):
        Size(grid=(3, 0), d_model=10)
