"""Programs whose constructors take modules, nested configurations or nothing that a name says; and stacks of layers."""

import re

import pytest

from tests.checking.programs import HEADER, MULTI_HEAD, OPERATIONS, expand

ATTENTION = expand(MULTI_HEAD.text, OPERATIONS["operators"])
LAYERS = (
    ATTENTION
    + """

class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))

    def forward(self, x):
        return self.net(x)


class Sublayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)

    def forward(self, x, f):
        return x + f(self.norm(x))


class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayers = nn.ModuleList([Sublayer(size) for _ in range(2)])

    def forward(self, x, mask):
        x = self.sublayers[0](x, lambda y: self.self_attn(y, y, y, mask))
        return self.sublayers[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward):
        super().__init__()
        self.self_attn, self.src_attn = self_attn, src_attn
        self.feed_forward = feed_forward
        self.sublayers = nn.ModuleList([Sublayer(size) for _ in range(3)])

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.sublayers[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
        x = self.sublayers[1](x, lambda y: self.src_attn(y, memory, memory, src_mask))
        return self.sublayers[2](x, self.feed_forward)
"""
)
STACKS = (
    LAYERS
    + """

class Encoder(nn.Module):
    def __init__(self, features, layers: nn.ModuleList):
        super().__init__()
        self.layers = layers
        self.norm = nn.LayerNorm(features)

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self, layer, N):
        super().__init__()
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(N)])
        self.norm = nn.LayerNorm(layer.sublayers[0].norm.normalized_shape)

    def forward(self, x, memory, src_mask, tgt_mask):
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)


class Transformer(nn.Module):
    def __init__(self, encoder, decoder, src_embed, tgt_embed, last):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed, self.last = src_embed, tgt_embed, last

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, encoder_output, src_mask, tgt, tgt_mask):
        return self.decoder(self.tgt_embed(tgt), encoder_output, src_mask, tgt_mask)

    def project(self, x):
        return self.last(x)


def build_transformer(src_vocab, tgt_vocab, N=6, d_model=512, d_ff=2048, h=8):
    def layer():
        return EncoderLayer(d_model, MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff))

    attentions = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
    encoder = Encoder(d_model, nn.ModuleList([layer() for _ in range(N)]))
    decoder = Decoder(DecoderLayer(d_model, *attentions, FeedForward(d_model, d_ff)), N)
    embeddings = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
    return Transformer(encoder, decoder, *embeddings, nn.Linear(d_model, tgt_vocab))
"""
)
HEAD = "import copy\n" + HEADER


@pytest.mark.parametrize("name", ["EncoderLayer", "DecoderLayer", "Encoder", "Decoder", "Transformer"])
def test_a_constructor_that_takes_modules(check, name):
    (report,) = check(HEAD + STACKS, name)
    assert report.right, report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new", "mistake"),
    [
        ("EncoderLayer", "x + f(self.norm(x))", "f(self.norm(x))", "residual: none"),
        ("DecoderLayer", "memory, memory, src_mask", "memory, memory, None", "memory_mask: not used"),
        ("Encoder", "return self.norm(x)\n\n\nclass Decoder", "return x\n\n\nclass Decoder", "final_norm: not used"),
        ("Decoder", "x = layer(x, memory, src_mask, tgt_mask)", "x = layer(x, memory, src_mask, None)", "target_mask: not used"),
        ("Transformer", "x = layer(x, memory, src_mask, tgt_mask)", "x = layer(x, memory, None, tgt_mask)", "source_padding: not hidden in cross-attention"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_a_constructor_was_given(check, name, old, new, mistake):
    (report,) = check(HEAD + STACKS.replace(old, new), name)
    assert [f.name for f in report.findings] == [mistake], report


def test_modules_that_the_file_does_not_make(check):
    program = """class EncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward):
        super().__init__()
        self.self_attn, self.feed_forward = self_attn, feed_forward
        self.norm = nn.LayerNorm(size)

    def forward(self, x, mask):
        return self.norm(x + self.feed_forward(self.self_attn(x, x, x, mask)))
"""
    (report,) = check(HEAD + program)
    assert report.verdict == "failed"
    assert "its constructor takes modules (self_attn, feed_forward)" in report.sentence


def test_a_configuration_inside_of_another(check):
    program = ATTENTION.replace("def __init__(self, d_model, n_heads):", "def __init__(self, config):").replace(
        "        self.n_heads = n_heads\n",
        '        d_model, n_heads = config.hidden_size, config.transformer["num_heads"]\n        self.n_heads = n_heads\n',
    )
    (report,) = check(HEAD + program)
    assert report.right, report


def test_three_projections_in_a_list_called_qkv(check):
    program = ATTENTION.replace(
        "        self.w_q = nn.Linear(d_model, d_model)\n",
        "        self.qkv_nets = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(3)])\n",
    )
    program = re.sub(r"        self\.w_[kv] = .*\n", "", program)
    for i, part in enumerate("qkv"):
        program = program.replace(f"self.w_{part}(", f"self.qkv_nets[{i}](")
    (report,) = check(HEAD + program)
    assert report.right, report


@pytest.mark.slow
def test_one_input_under_three_names(check):
    program = """

class TransformerBlock(nn.Module):
    def __init__(self, embed_size, heads, forward_expansion):
        super().__init__()
        self.attention = MultiHeadAttention(embed_size, heads)
        self.norm1, self.norm2 = nn.LayerNorm(embed_size), nn.LayerNorm(embed_size)
        width = forward_expansion * embed_size
        self.feed_forward = nn.Sequential(nn.Linear(embed_size, width), nn.ReLU(), nn.Linear(width, embed_size))

    def forward(self, value, key, query, mask):
        x = self.norm1(self.attention(query, key, value, mask) + query)
        return self.norm2(self.feed_forward(x) + x)
"""
    (report,) = check(HEAD + ATTENTION + program, "TransformerBlock")
    assert report.right, report
    (report,) = check(HEAD + ATTENTION + program.replace(" + query)", ")"), "TransformerBlock")
    assert [f.name for f in report.findings] == ["residual: no attention"]


@pytest.mark.usefixtures("as_users_run_it")
def test_one_head_without_projections_is_not_taken_for_multi_head_attention(check):
    """There values are as wide as keys, and a scale by the width of the values would pass."""
    (report,) = check(
        "import torch\n\n\nclass ScaledDotProductAttention(torch.nn.Module):\n    def forward(self, q, k, v):\n"
        "        return (q @ k.mT / v.shape[-1] ** 0.5).softmax(-1) @ v\n"
    )
    assert "width of the values" in report.sentence
