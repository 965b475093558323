"""torch.compile reads every layer as one graph, without a break.

In a process of its own: the compiler cannot read functions that the shape checks of the test run wrap.
"""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json
import torch
from headwork import choices, masks
from headwork.layers import DecoderLayer, EncoderLayer, MultiHeadAttention, RotaryPositions

torch.manual_seed(0)
torch.set_num_threads(1)
x, memory, visible = torch.randn(2, 7, 12), torch.randn(2, 11, 12), masks.padding(torch.tensor([4, 7]), 7)
chosen = {"heads": choices.Heads(n_heads=3), "feed_forward": choices.FeedForward(d_ff=11), "norm_order": "pre"}
split = {**chosen, "heads": choices.SplitHeads(n_heads=3), "norm_order": "post"}
rotation = RotaryPositions(4).rotation(torch.arange(7)[None])
cases = {
    "attention": (MultiHeadAttention(12, 3, dropout=0.1).eval(), (x, x, visible), {"rotation": rotation}),
    "encoder layer": (EncoderLayer(12, **chosen, position=choices.RelativePositions()), (x, visible), {"causal": True}),
    "decoder layer": (DecoderLayer(12, **split), (x, memory, visible), {}),
}
widths = {
    f"attention of width {width}": (MultiHeadAttention(width, 3), 2 * [torch.randn(2, 7, width)], {})
    for width in (6, 15)
}
errors = {}
for name, (layer, inputs, options) in {**cases, **widths}.items():
    if name not in widths:
        torch.compiler.reset()
    try:
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(*inputs, **options), layer(*inputs, **options), rtol=0, atol=1e-6)
    except Exception as error:
        errors[name] = str(error)
print(json.dumps(errors))
"""


@pytest.mark.slow
def test_every_layer_compiles_into_one_graph_with_the_same_result() -> None:
    """Several widths in one process: the compiler makes a variable of a float it meets with a second value (beta)."""
    child = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    assert json.loads(child.stdout) == {}
