"""The programs that the five documents prescribe are subjects: ours are right, and what goes wrong with them is named."""

import pytest

import headwork as hw
from headwork import sheets

HEADER = "import math\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\n"
FAST = ["self_attention", "FullyConnected", "AbsolutePositionalEmbedding", "GAP"]
PRESCRIBED = {
    "CLS": "pooling", "GAP": "pooling", "MAP": "pooling", "FullyConnected": "pooling", "MHA": "multi-head attention",
    "scaled_dot_product_attention": "scaled dot-product attention", "AbsolutePositionalEmbedding": "positions of a grid",
    "RelativePositionalEmbedding": "Gaussian attention", "BertFFN": "feed-forward network", "LayerNorm": "LayerNorm", "gelu": "GELU", "gelu_tanh": "GELU",
    "MLPHead": "feed-forward network", "MultiHeadAttention": "multi-head attention", "self_attention": "multi-head attention",
}  # fmt: skip


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in PRESCRIBED])
def test_ours_are_right(name):
    report = hw.check(getattr(sheets, name), seed=1)
    assert report.right, report
    assert report.subject == PRESCRIBED[name]


def test_all_that_compute_are_there():
    drawn = {n for n in dir(sheets) if n.startswith(("visualize", "verify"))}
    assert {n for n in dir(sheets) if not n.startswith("_") and n not in ("c182", "eecs182", "eth", "nyu", "qmul")} - drawn == set(PRESCRIBED)  # fmt: skip


COLUMNS = "def self_attention(x, w_q, w_k, w_v):\n    q, k, v = w_q @ x, w_k @ x, w_v @ x\n    return v @ torch.softmax(q.T @ k / math.sqrt(len(q)), dim=1).T\n"
FULL = "class FullyConnected(nn.Module):\n    def __init__(self, n_tokens, d_model):\n        super().__init__()\n        self.fc = nn.Linear(n_tokens * d_model, d_model)\n\n    def forward(self, tokens):\n        return self.fc(tokens.flatten(1))\n"
CODE = """class RelativePositionalEmbedding(nn.Module):
    def __init__(self, grid, centre, alpha):
        super().__init__()
        self.centre, self.alpha = nn.Parameter(centre.clone()), nn.Parameter(alpha.clone())
        at = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1])).to(centre.dtype)
        self.register_buffer("shift", at[None] - at[:, None])

    def forward(self):
        moved = self.shift - self.centre[:, None, None]
        return -self.alpha[:, None, None] * moved.square().sum(-1)
"""
OF_THE_SHEET = CODE.replace("centre", "delta").replace("at[None] - at[:, None]", "at[:, None] - at[None]")


@pytest.mark.parametrize(
    ("program", "old", "new", "name"),
    [
        (COLUMNS, "math.sqrt(len(q))", "1", "scale: none"),
        pytest.param(COLUMNS, "dim=1", "dim=0", "softmax: queries", marks=pytest.mark.slow),
        (FULL, "tokens.flatten(1)", "tokens.transpose(1, 2).flatten(1)", "layer: exchanged"),
        (CODE, "- self.centre", "+ self.centre", "shift: plus"),
        (OF_THE_SHEET, "- self.delta", "+ self.delta", "shift: plus"),
        pytest.param(CODE, "moved.square()", "moved.abs()", "distance: sizes", marks=pytest.mark.slow),
    ],
)
def test_what_goes_wrong_is_named(check, program, old, new, name):
    (report,) = check(HEADER + program)
    assert report.right, report
    (report,) = check(HEADER + program.replace(old, new))
    assert [f.name for f in report.findings] == [name], report
