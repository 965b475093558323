"""`hw.check` in a notebook and in a program: what has no source, and which lines are told."""

import linecache
import re

import pytest
import torch

import headwork as hw

WRONG_CLASS = """import torch
from torch import nn


class LayerNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5) * self.weight + self.bias
"""


def cell(source: str, name: str, monkeypatch) -> dict[str, object]:
    """Run as Jupyter runs a cell: its lines are kept, and the names live in a module without a file."""
    filename = f"/tmp/ipykernel_1/{name}.py"
    monkeypatch.setitem(linecache.cache, filename, (len(source), None, source.splitlines(keepends=True), filename))
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(compile(source, filename, "exec"), namespace)
    return namespace


def test_a_class_of_a_notebook(monkeypatch):
    """Python knows no source of it: its module has no file."""
    import sys
    import types

    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    report = hw.check(cell(WRONG_CLASS, "391", monkeypatch)["LayerNorm"])
    assert report.verdict == "wrong", report
    assert [f.name for f in report.findings] == ["form: unbiased"]
    assert report.line == 5
    assert report.findings[0].line is not None
    assert report.findings[0].line.number == 12
    assert report.file == "your code"


def test_lines_are_those_of_the_file():
    def softmax(x):
        # a comment
        return x.exp() / x.exp().sum(0)

    report = hw.check(softmax)
    line = report.findings[0].line
    assert line is not None
    assert report.line is not None
    assert line.number == softmax.__code__.co_firstlineno + 2 == report.line + 2
    assert line.text == "return x.exp() / x.exp().sum(0)"


@pytest.mark.slow
def test_a_parameter_without_numbers(check):
    program = "import torch\nfrom torch import nn\n\n\nclass MultiHeadAttention(nn.Module):\n    def __init__(self, d_model, n_heads):\n        super().__init__()\n        self.q = nn.Linear(d_model, d_model)\n        self.none = nn.Parameter(torch.zeros(3, 0))\n\n    def forward(self, x):\n        return self.q(x)\n"
    (report,) = check(program)
    assert report.verdict == "unknown", report


def test_a_scripted_module_beside_it(check):
    """Its class answers no question about `forward`."""
    program = "import torch\n\n\nclass Attention(torch.jit.ScriptModule):\n    @torch.jit.script_method\n    def forward(self, x):\n        return x\n\n\ndef softmax(x):\n    return x.softmax(-1)\n"
    (report,) = check(program)
    assert report.right
    assert any("line 4 was left out: AttributeError" in note for note in report.notes)


def test_single_precision_is_said_only_where_it_is(check):
    """BERT's own eps is 1e-12."""
    program = """import torch
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm = nn.LayerNorm(d_model, eps=1e-12)

    def forward(self, x):
        return self.norm(x + self.down(torch.nn.functional.gelu(self.up(x))))
"""
    (report,) = check(program)
    assert report.right, report
    assert "to 1e-7" in report.sentence
    (report,) = check(program.replace("self.norm(x +", "torch.nn.functional.layer_norm(x +").replace("(self.up(x))))", "(self.up(x))), (x.shape[-1],), self.norm.weight, self.norm.bias, 1e-12)"))  # fmt: skip
    assert report.right, report
    assert not re.search("single precision", report.sentence)
    assert torch.get_default_dtype() == torch.float32
