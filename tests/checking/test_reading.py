"""Code that was not written for the check: orders, meanings, layouts, results, constructors, weights."""

import pytest
import torch
from torch import nn

import headwork as hw

HEADER = "import math\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\n"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("def attention(values, keys, query, mask):\n    s = query @ keys.mT / keys.shape[-1] ** 0.5\n    return s.masked_fill(mask == 0, -1e20).softmax(-1) @ values", "(v, k, q, mask)"),
        ("def attention(a, b, c):\n    return (b @ c.mT / b.shape[-1] ** 0.5).softmax(-1) @ a", "(v, q, k)"),
        ("def attention(q, k, v, mask):\n    s = q @ k.mT / q.shape[-1] ** 0.5\n    return s.masked_fill(mask, -1e9).softmax(-1) @ v", "True = hidden"),
        ("def attention(q, k, v, mask):\n    return (q @ k.mT / q.shape[-1] ** 0.5 + mask).softmax(-1) @ v", "added to the scores"),
        ("def attention(q, k, v, mask):\n    return (q @ k.mT / q.shape[-1] ** 0.5 + mask * -1e9).softmax(-1) @ v", "= hidden"),
        ("def attention(Q, K, V):\n    return torch.softmax(Q @ K.T / math.sqrt(Q.shape[1]), 1) @ V", "token, width"),
        ("def attention(q, k, v, valid_lens):\n    s = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5\n    hidden = torch.arange(s.shape[-1])[None, None] >= valid_lens[:, None, None]\n    return s.masked_fill(hidden, -1e6).softmax(-1) @ v", "lengths"),
        ("def attention(q, k, v):\n    w = torch.einsum('bqhd,bkhd->bhqk', q, k) / q.shape[-1] ** 0.5\n    return torch.einsum('bhqk,bkhd->bqhd', w.softmax(-1), v)", "batch, token, head, width"),
        ("def attention(q, k, v):\n    d = q.shape[-1] ** -0.25\n    return ((q * d) @ (k * d).mT).softmax(-1) @ v", "(q, k, v)"),
    ],
)  # fmt: skip
def test_a_right_attention_is_read_as_it_is_meant(check, program, said):
    (report,) = check(HEADER + program + "\n")
    assert report.right, report
    assert said in "; ".join(report.read_as)


CONSTRUCTORS = {
    "heads first": ("def __init__(self, h, d_model):", "self.h, self.d = h, d_model"),
    "config": ("def __init__(self, config):", "self.h, self.d = config.num_attention_heads, config.hidden_size"),
    "dict": ("def __init__(self, cfg):", "self.h, self.d = cfg['n_heads'], cfg['emb_dim']"),
    "globals": ("def __init__(self):", "self.h, self.d = n_heads, d_model"),
    "head width": ("def __init__(self, dim, heads, dim_head=4):", "self.h, self.d = heads, dim"),
}


@pytest.mark.slow
@pytest.mark.parametrize("style", CONSTRUCTORS)
@pytest.mark.parametrize("weights", ["nameless", "fused"])
def test_constructors_and_weights_of_any_name(check, style, weights):
    head, sizes = CONSTRUCTORS[style]
    made = {"nameless": "self.a, self.b, self.c, self.e = (nn.Linear(self.d, self.d) for _ in range(4))", "fused": "self.stuff = nn.Linear(self.d, 3 * self.d)\n        self.last = nn.Linear(self.d, self.d)"}[weights]  # fmt: skip
    used = {"nameless": "v, q, k = self.c(x), self.e(x), self.a(x)", "fused": "q, k, v = self.stuff(x).chunk(3, -1)"}[
        weights
    ]
    last = {"nameless": "self.b", "fused": "self.last"}[weights]
    program = f"""n_heads, d_model = 3, 12


class SelfAttention(nn.Module):
    {head}
        super().__init__()
        {sizes}
        {made}

    def forward(self, x):
        {used}
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        return {last}(y.transpose(1, 2).flatten(2))
"""
    (report,) = check(HEADER + program)
    assert report.right, report


def test_functions_classes_and_modules_of_this_process():
    def softmax(x):
        return x.exp() / x.exp().sum(0)

    report = hw.check(softmax)
    assert report.verdict == "wrong"
    assert "first axis" in report.sentence
    layer = nn.LayerNorm(12)
    before = {n: p.clone() for n, p in layer.named_parameters()}
    assert hw.check(layer).right
    assert all(torch.equal(p, before[n]) for n, p in layer.named_parameters())  # it ran in a copy


@pytest.mark.usefixtures("as_users_run_it")
def test_what_cannot_be_called_is_an_error():
    with pytest.raises(TypeError, match="thing must be a function, a class or an nn.Module, got int"):
        hw.check(3)
    with pytest.raises(ValueError, match="as must be one of the subjects, got 'atention'; did you mean 'attention'"):
        hw.check(torch.softmax, subject="atention")


def test_a_comment_says_what_it_is(check):
    program = HEADER + "# headwork: softmax\ndef f(z):\n    return z.softmax(-1)\n"
    (report,) = check(program)
    assert report.right
    assert report.subject == "softmax"


def test_a_notebook_is_read_too(check):
    import json

    cells = [{"cell_type": "markdown", "source": ["# title"]}, {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch"]}, {"cell_type": "code", "source": "def softmax(x):\n    return x.softmax(-1)"}]  # fmt: skip
    (report,) = check(json.dumps({"cells": cells}), file="program.ipynb")
    assert report.right
    cells[2]["source"] = "def softmax(x):\n    return x.softmax(0)"
    (report,) = check(json.dumps({"cells": cells}), file="program.ipynb")
    assert "cell 2, line 2:  return x.softmax(0)" in report.text()
    assert report.text().startswith("program.ipynb, softmax, cell 2, line 1: softmax")
    cells[2]["source"] += "\n\nopen('nowhere')"
    (report,) = check(json.dumps({"cells": cells}), file="program.ipynb")
    assert any("cell 2, line 4 was left out: FileNotFoundError" in note for note in report.notes)


def test_hints_go_from_nothing_to_everything(check):
    (report,) = check(HEADER + "def attention(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n")
    assert [("not scaled" in report.text(n)) for n in range(4)] == [False, False, False, True]
    assert "Look at the scores" not in report.text(0)
    assert "Look at the scores" in report.text(1)
    assert "variance" not in report.text(1)
    assert "variance" in report.text(2)
    assert "smallest case" in report.text(3)
    assert "smallest case" not in report.text(3, hidden=True)


ATTENTION = """def attention(q, k, v, mask):
    s = q @ k.mT / q.shape[-1] ** 0.5
    return s.masked_fill(~mask, FILL).softmax(-1) @ v
"""


@pytest.mark.parametrize(("fill", "remarks"), [("float('-inf')", ["blind: NaN"]), ("-1e9", [])])
@pytest.mark.parametrize("mask", ["~mask", "~mask[:, None]", "~mask[:, None, None]"])
def test_a_query_that_sees_nothing_is_told(check, fill, remarks, mask):
    """It is a remark and no mistake: most programs do so, and PyTorch's did."""
    (report,) = check(HEADER + ATTENTION.replace("~mask", mask).replace("FILL", fill))
    assert report.right, report
    assert [f.name for f in report.remarks] == remarks
    assert report.points == 1.0
    assert report.text().count("but: A query that sees no key gets NaN") == len(remarks)


EECS = """import einops

future_mask = torch.triu(torch.full((64, 64), float("-inf")), 1)


def scaled_dot_product_attention(q, k, v, key_padding_mask=None, causal=False):
    d_head = q.size(-1)
    s = einops.einsum(q, k, "n tl dh, n sl dh -> n tl sl") / d_head**0.5
    if key_padding_mask is not None:
        s = s.masked_fill(
            key_padding_mask.unsqueeze(1).to(torch.bool),
            float("-inf"),
        )
    if causal:
        attn_mask = future_mask[: s.size(1), : s.size(2)].to(s)
        s += attn_mask.unsqueeze(0)
    a = F.softmax(s, dim=-1, dtype=torch.float32).type_as(s)
    return einops.einsum(a, v, "n tl sl, n sl dh -> n tl dh")
"""


@pytest.mark.slow
def test_both_slips_of_the_listing_of_a_sheet(check):
    """The lab proves them: a-row-of-minus-infinity."""
    (report,) = check(HEADER + EECS)
    assert report.right
    assert [f.name for f in report.remarks] == ["blind: NaN", "aligned: first key"]
    assert {f.claim for f in report.remarks} == {"a-row-of-minus-infinity"}
    assert report.sentence.startswith("Right, with 2 remarks")
    assert "with causal=true: " in report.remarks[1].sentence.lower()
    mended = EECS.replace("key_padding_mask.unsqueeze(1).to(torch.bool),\n            float(\"-inf\")", "key_padding_mask.unsqueeze(1).to(torch.bool),\n            -1e30").replace("[: s.size(1), : s.size(2)]", "[s.size(2) - s.size(1) : s.size(2), : s.size(2)]")  # fmt: skip
    (report,) = check(HEADER + mended)
    assert report.right
    assert report.remarks == ()


@pytest.mark.parametrize("mask", ["mask", "mask == 0"])
@pytest.mark.parametrize(
    ("before", "arguments", "scale", "width"),
    [
        ("d_k = 16", "mask", "/ math.sqrt(d_k)", 16),
        ("SCALE = 64 ** -0.5", "mask", "* SCALE", 64),
        ("d_model, n_heads = 64, 4", "mask", "/ math.sqrt(d_model // n_heads)", 16),
        ("", "mask=None, d_k=64", "/ math.sqrt(d_k)", 64),
        ("", "mask=None, scale=0.125", "* scale", 64),
    ],
)
def test_a_width_from_around_belongs_to_the_reading(check, before, arguments, scale, width, mask):
    program = f"{before}\n\n\ndef attention(q, k, v, {arguments}):\n    s = q @ k.mT {scale}\n    return (s if mask is None else s.masked_fill({mask}, -1e9)).softmax(-1) @ v\n"
    (report,) = check(HEADER + program)
    assert report.right, report
    assert f"width of {width}" in "; ".join(report.read_as)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "names"), [("d_k", []), ("d", ["scale: d_model"])])
def test_a_width_from_around_belongs_to_a_layer_too(check, width, names):
    program = f"""d_k = 16


class SelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.n_heads, d_k).transpose(1, 2) for f in (self.q, self.k, self.v))
        w = (q @ k.mT / math.sqrt({width})).masked_fill(mask == 0, -1e9).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, n, d))
"""
    (report,) = check(HEADER + program)
    assert [f.name for f in report.findings] == names, report


@pytest.mark.slow
def test_a_width_from_around_hides_no_mistake(check):
    program = "d_k = 16\n\n\ndef attention(q, k, v, mask):\n    s = q @ k.mT / d_k\n    return s.masked_fill(mask, -1e9).softmax(-1) @ v\n"
    (report,) = check(HEADER + program)
    assert [f.name for f in report.findings] == ["scale: d"], report


@pytest.mark.slow
def test_no_mask_is_inverted_because_the_scale_is_unknown(check):
    program = "def attention(q, k, v, mask):\n    s = q @ k.mT / 3.7\n    return s.masked_fill(mask == 0, -1e9).softmax(-1) @ v\n"
    (report,) = check(HEADER + program)
    assert [f.name for f in report.findings] == ["unexplained"], report


def test_the_other_meaning_is_tried_before_a_mask_is_inverted(server):
    from headwork.checking.calling import Candidate
    from headwork.checking.judging import Explanation, gather, under_another_meaning
    from headwork.checking.subjects.attention import MASK_MISTAKES, SUBJECT

    program = server.start()
    source = "def attention(q, k, v, mask):\n    s = q @ k.mT / q.shape[-1] ** 0.5\n    return s.masked_fill(mask, -1e9).softmax(-1) @ v\n"
    facts = program.load(source, "f.py", [])
    evidence = gather(Candidate("attention", facts["names"]["attention"], program, source, "f.py", facts), SUBJECT)
    kept = next(r for r, _, _ in evidence.readings if r.facts["meaning"] == "keep")
    inverted = next(m for m in MASK_MISTAKES if m.value == "inverted")
    found = Explanation(SUBJECT, kept, {}, {"hidden": "inverted"}, (inverted,), 5, True)
    other = under_another_meaning(evidence, found)
    program.close()
    assert other is not None
    assert other.mistakes == ()
    assert other.reading.facts["meaning"] == "block"


NUMPY = """import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


class SelfAttention:
    def __init__(self, d_model):
        self.Wq, self.Wk, self.Wv = (np.random.randn(d_model, d_model) for _ in range(3))

    def forward(self, x):
        q, k, v = x @ self.Wq, x @ self.Wk, x @ self.Wv
        return softmax(q @ k.transpose(0, 2, 1) / np.sqrt(k.shape[-1])) @ v
"""


def test_numpy_and_classes_that_are_no_modules(check):
    assert [r.verdict for r in check(NUMPY)] == ["right", "right"]
    wrong = check(NUMPY.replace(" / np.sqrt(k.shape[-1])", ""), "SelfAttention")[0]
    assert [f.name for f in wrong.findings] == ["scale: none"]


def test_a_function_with_its_weights_as_arguments(check):
    program = """def multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads):
    b, n, d = x.shape
    q, k, v = ((x @ w).view(b, n, num_heads, -1).transpose(1, 2) for w in (W_q, W_k, W_v))
    w = (q @ k.mT / (d // num_heads) ** 0.5).softmax(-1)
    return (w @ v).transpose(1, 2).reshape(b, n, d) @ W_o
"""
    (report,) = check(HEADER + program)
    assert report.right, report
    (report,) = check(HEADER + program.replace("(d // num_heads)", "d"))
    assert [f.name for f in report.findings] == ["scale: d_model"], report


def test_layers_that_learn_their_width_from_the_first_input(check):
    program = "class FeedForward(nn.Module):\n    def __init__(self, d_ff, d_model):\n        super().__init__()\n        self.a, self.b = nn.LazyLinear(d_ff), nn.LazyLinear(d_model)\n\n    def forward(self, x):\n        return self.b(torch.relu(self.a(x)))\n"
    (report,) = check(HEADER + program)
    assert report.right, report


def test_optional_arguments_are_not_taken_for_inputs(check):
    """(x, flag=False, window=None) is no cross-attention that ignores its memory."""
    program = "class SelfAttention(nn.Module):\n    def __init__(self, d_model):\n        super().__init__()\n        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))\n\n    def forward(self, x, verbose=False, window=None):\n        w = self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5\n        return w.softmax(-1) @ self.v(x)\n"
    (report,) = check(HEADER + program)
    assert report.right, report


def test_the_smallest_case_shows_numbers_that_differ(check):
    program = "def layer_norm(x, eps=1e-5):\n    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt()\n"
    (report,) = check(HEADER + program)
    assert report.case is not None
    assert report.case[1] != report.case[2]


@pytest.mark.slow
def test_an_output_called_projection_beside_a_fused_one(check):
    program = "class MultiHeadAttention(nn.Module):\n    def __init__(self, emb_size, num_heads):\n        super().__init__()\n        self.h = num_heads\n        self.qkv = nn.Linear(emb_size, emb_size * 3)\n        self.projection = nn.Linear(emb_size, emb_size)\n\n    def forward(self, x):\n        b, n, d = x.shape\n        q, k, v = self.qkv(x).view(b, n, self.h, d // self.h, 3).permute(4, 0, 2, 1, 3)\n        w = (q @ k.mT).softmax(-1) / d ** 0.5\n        return self.projection((w @ v).transpose(1, 2).reshape(b, n, d))\n"
    (report,) = check(HEADER + program)
    assert [f.name for f in report.findings] == ["scale: after, d_model"], report
