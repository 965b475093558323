"""Options of a program are switched, or named as not looked at."""

import pytest

HEADER = "import math\nimport torch\nfrom torch import nn\n\n\n"
FUNCTION = """def attention(q, k, v, mask=None, causal=False, window=None):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if causal:
        n, m = s.shape[-2:]
        s = s.masked_fill(torch.triu(torch.ones(n, m), diagonal=1).bool(), float("-inf"))
    if mask is not None:
        s = s.masked_fill(mask == 0, float("-inf"))
    return s.softmax(-1) @ v
"""
MODULE = """class SelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, causal=False, bias=True):
        super().__init__()
        self.h, self.causal = num_heads, causal
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x, need_weights=False):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) * (d // self.h) ** -0.5
        if self.causal:
            s = s + torch.triu(torch.full((n, n), float("-inf")), 1)
        w = s.softmax(-1)
        y = self.proj((w @ v).transpose(1, 2).reshape(b, n, d))
        return (y, w) if need_weights else y
"""


def test_a_flag_of_a_right_function_is_switched_and_what_is_not_is_named(check):
    (report,) = check(HEADER + FUNCTION)
    assert report.right
    assert "right as well with causal=True" in report.certainty
    assert report.not_looked_at == ("window",)
    assert "not looked at: window, half precision" in report.certainty


@pytest.mark.parametrize(
    ("old", "new", "name", "words"),
    [
        ("diagonal=1", "diagonal=2", "causal: one ahead", "With causal=True: one future token gets through"),
        pytest.param("diagonal=1", "diagonal=0", "causal: itself hidden", "With causal=True: a token cannot see itself", marks=pytest.mark.slow),
        ("    if causal:", "    if causal is None:", "causal: missing", "With causal=True: the future is not hidden"),
    ],
)  # fmt: skip
def test_a_branch_that_is_off_by_default_is_looked_at(check, old, new, name, words):
    (report,) = check(HEADER + FUNCTION.replace(old, new))
    assert report.verdict == "wrong", report
    assert [f.name for f in report.findings] == [name]
    assert report.sentence.startswith(words)


@pytest.mark.slow
def test_flags_of_constructor_and_call(check):
    (report,) = check(HEADER + MODULE)
    assert report.right, report
    assert "need_weights=True, causal=True, bias=False" in report.certainty
    (report,) = check(HEADER + MODULE.replace("torch.triu(", "torch.tril(").replace(", 1)\n", ", -1)\n"))
    assert report.verdict == "wrong", report
    assert report.sentence.startswith("With causal=True: the causal mask is inverted")


@pytest.mark.slow
def test_a_mask_that_is_not_understood_is_no_success(check):
    (report,) = check(HEADER + FUNCTION.replace("mask == 0, float", "mask.cumsum(-1) < 2, float"))
    assert report.verdict == "unknown", report
    assert "with a mask it agrees with nothing" in report.sentence


@pytest.mark.slow
def test_other_options_are_not_accused(check):
    program = FUNCTION.replace("window=None", "scaled=True").replace("/ math.sqrt(q.size(-1))", "* (q.size(-1) ** -0.5 if scaled else 1)")  # fmt: skip
    (report,) = check(HEADER + program)
    assert report.right, report
    assert report.not_looked_at == ("scaled",)
