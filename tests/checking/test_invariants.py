"""What holds for every right program is told when it does not hold."""

import pytest

HEADER = "import math\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\n"
ATTENTION = """class SelfAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.p = dropout
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.n_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        w = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        y = self.o((w @ v).transpose(1, 2).reshape(b, n, d))
        return y
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return y", "return F.dropout(y, self.p)", "Two calls with the same input differ"),
        ("return y", "return nn.Linear(d, d)(y)", "made inside of forward"),
        (
            "return y",
            "return y - 0.1 * y.mean(0, keepdim=True)",
            "Example 1 of the batch changes the result of example 0",
        ),
    ],
)
def test_a_broken_invariant_is_told(check, old, new, words):
    (report,) = check(HEADER + ATTENTION.replace(old, new))
    assert report.verdict == "wrong", report
    assert words in report.sentence


FUTURE = ATTENTION.replace("SelfAttention", "CausalSelfAttention").replace(
    "return y", "return y * (1 + x.abs().mean((1, 2), keepdim=True))"
)
NEEDED = {
    "made_in_forward": ATTENTION.replace("return y", "return y + 0 * nn.Linear(d, d)(y)"),
    "registered": ATTENTION.replace("(nn.Linear(d_model, d_model) for _ in range(4))", "(torch.randn(d_model, d_model) for _ in range(4))").replace("f(x).view", "(x @ f).view").replace("self.o((w @ v).transpose(1, 2).reshape(b, n, d))", "(w @ v).transpose(1, 2).reshape(b, n, d) @ self.o"),
    "repeatable": ATTENTION.replace("return y", "return F.dropout(y, self.p)"),
    "batch": ATTENTION.replace("return y", "return y - 0.1 * y.mean(0, keepdim=True)"),
    "finite": ATTENTION.replace("return y", "return y * torch.where(x > 1, float('nan'), 1.0)"),
    "future": FUTURE,
    "gradients": ATTENTION.replace("return y", "return y.detach()"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDED)
def test_every_invariant_catches_what_nothing_else_does(check, monkeypatch, name):
    from headwork.checking import invariants

    program = HEADER + NEEDED[name]
    (report,) = check(program)
    assert report.verdict == "wrong", report
    monkeypatch.setattr(invariants, "CHECKS", tuple(c for c in invariants.CHECKS if c.__name__ != name))
    (report,) = check(program)
    assert report.verdict != "wrong", report


def test_there_is_a_program_for_every_invariant():
    from headwork.checking.invariants import CHECKS

    assert {c.__name__ for c in CHECKS} == set(NEEDED)


@pytest.mark.slow
def test_another_architecture_is_not_accused(check):
    (report,) = check(HEADER + ATTENTION.replace("return y", "return y * torch.sigmoid(x)"))
    assert report.verdict == "unknown"


def test_no_parameter_gets_a_gradient(check):
    (report,) = check(HEADER + ATTENTION.replace("return y", "return y.detach()"))
    assert report.verdict == "wrong", report
    assert "No parameter gets a gradient" in report.sentence
