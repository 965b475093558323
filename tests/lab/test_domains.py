"""What `--set` may change: a size for which a formula does not apply is refused, by the rule that it breaks."""

import dataclasses

import pytest

from headwork.lab import find


@pytest.mark.parametrize(
    ("name", "changes", "rule"),
    [
        ("temperature", {"n_keys": 5}, r"n_keys must be 100 or more .* got 5"),
        ("temperature", {"widths": (4,)}, r"widths must hold one of 64 .* got \(4,\)"),
        ("gradients-through-depth", {"d_model": 5}, r"d_model must be 32 or more .* got 5"),
        ("complexity", {"lengths": (256, 512)}, r"lengths must hold two of 4 d_model = 1024 .* got \(256, 512\)"),
        ("window-mask-mixes-locally", {"n_tokens": 17}, r"n_tokens must be 2 r L \+ 1 = 31 .* got 17"),
        ("theorem-2", {"n_columns": 5}, r"n_columns must be 2 \|Delta\| \+ 3 .* got 5"),
        ("convolution-is-equivariant", {"kernel": 2}, r"kernel must be odd.* got 2"),
        ("cost-of-heads", {"d_q": 5}, r"n_heads must divide d_q=5 .* got 2"),
        ("tokens-in-columns", {"n_draws": 2}, r"n_draws must be 20 or more .* got 2"),
    ],
)
def test_a_size_outside_the_domain_is_refused(name, changes, rule):
    claim = find(name)
    with pytest.raises(ValueError, match=rule):
        claim.change(claim.setup, changes)


def test_the_smallest_size_is_allowed():
    claim = find("temperature")
    assert dataclasses.replace(claim.small, n_keys=100).n_keys == 100
