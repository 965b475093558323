"""Programs as students write them who have never seen this project, each with the words that they are told: right, or what is wrong.

Sizes from globals or single letters, einsum, loops, NumPy, weights in dicts, tokens in columns, answers in dicts, ...
"""

PROGRAMS: dict[str, tuple[str, str]] = {}
"""By name: a pattern of the sentence (or `right`), and the program."""


def program(name: str, words: str, text: str) -> None:
    PROGRAMS[name] = (words, text.lstrip())


program(
    "numpy_loops",
    "right",
    '''
import numpy as np

def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)

def attention(Q, K, V):
    """Q: (n, d), K: (m, d), V: (m, dv)"""
    n, d = Q.shape
    m = K.shape[0]
    out = np.zeros((n, V.shape[1]))
    for i in range(n):
        s = np.zeros(m)
        for j in range(m):
            s[j] = np.dot(Q[i], K[j]) / np.sqrt(d)
        w = softmax(s)
        for j in range(m):
            out[i] += w[j] * V[j]
    return out
''',
)
program(
    "numpy_loops_bad_axis",
    "axis|columns|queries",
    """
import numpy as np

def softmax(z, axis=0):
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)

def self_attention(Q, K, V):
    S = Q @ K.T / np.sqrt(Q.shape[1])
    A = softmax(S)
    return A @ V
""",
)
program(
    "einsum_cfg",
    "right",
    """
from dataclasses import dataclass
import torch
import torch.nn as nn
import torch.nn.functional as F

@dataclass
class Config:
    width: int = 32
    heads: int = 4
    max_len: int = 64

class MHA(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        dh = cfg.width // cfg.heads
        self.Wq = nn.Parameter(torch.randn(cfg.heads, cfg.width, dh) * 0.02)
        self.Wk = nn.Parameter(torch.randn(cfg.heads, cfg.width, dh) * 0.02)
        self.Wv = nn.Parameter(torch.randn(cfg.heads, cfg.width, dh) * 0.02)
        self.Wo = nn.Parameter(torch.randn(cfg.heads, dh, cfg.width) * 0.02)

    def forward(self, x):
        q = torch.einsum("btw,hwd->bhtd", x, self.Wq)
        k = torch.einsum("bsw,hwd->bhsd", x, self.Wk)
        v = torch.einsum("bsw,hwd->bhsd", x, self.Wv)
        a = torch.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5
        a = F.softmax(a, dim=-1)
        z = torch.einsum("bhts,bhsd->bhtd", a, v)
        return torch.einsum("bhtd,hdw->btw", z, self.Wo)
""",
)
program(
    "einsum_cfg_scale",
    "width of the model",
    PROGRAMS["einsum_cfg"][1].replace("q.shape[-1] ** 0.5", "self.cfg.width ** 0.5"),
)
program(
    "einsum_cfg_causal_off",
    "future",
    PROGRAMS["einsum_cfg"][1]
    .replace("class MHA", "class CausalMHA")
    .replace(
        "        a = F.softmax",
        "        T = x.shape[1]\n        m = torch.ones(T, T).triu(2).bool()\n        a = a.masked_fill(m, float('-inf'))\n        a = F.softmax",
    ),
)
program(
    "params_dict",
    "right",
    """
import math
import torch

def init_params(d, h, key=0):
    g = torch.Generator().manual_seed(key)
    mk = lambda *s: torch.randn(*s, generator=g) / math.sqrt(s[0])
    return {"wq": mk(d, d), "wk": mk(d, d), "wv": mk(d, d), "wo": mk(d, d)}

def multi_head_attention(params, x, n_heads, causal=False):
    B, T, D = x.shape
    dh = D // n_heads
    def heads(w):
        return (x @ w).reshape(B, T, n_heads, dh).permute(0, 2, 1, 3)
    q, k, v = heads(params["wq"]), heads(params["wk"]), heads(params["wv"])
    s = q @ k.transpose(-1, -2) / math.sqrt(dh)
    if causal:
        s = s + torch.full((T, T), float("-inf")).triu(1)
    y = s.softmax(-1) @ v
    y = y.permute(0, 2, 1, 3).reshape(B, T, D)
    return y @ params["wo"]
""",
)
program(
    "params_dict_joined",
    "heads are joined|transpose",
    PROGRAMS["params_dict"][1].replace("y = y.permute(0, 2, 1, 3).reshape(B, T, D)", "y = y.reshape(B, T, D)"),
)
program(
    "list_of_heads",
    "right",
    """
import torch
from torch import nn

class Head(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
        self.d = d_out
    def forward(self, x, mask=None):
        w = self.q(x) @ self.k(x).mT * self.d ** -0.5
        if mask is not None:
            w = w.masked_fill(~mask, -torch.inf)
        return torch.softmax(w, -1) @ self.v(x)

class MultiHead(nn.Module):
    def __init__(self, d, n_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(d, d // n_heads) for _ in range(n_heads))
        self.mix = nn.Linear(d, d)
    def forward(self, x, mask=None):
        return self.mix(torch.cat([h(x, mask) for h in self.heads], -1))
""",
)
program("list_of_heads_bad", "keys", PROGRAMS["list_of_heads"][1].replace("@ self.v(x)", "@ self.k(x)"))
program(
    "transposed",
    "right",
    '''
import torch

def attention(Q, K, V):
    """Columns are tokens, as in the lecture: Q is [d, n], K [d, m], V [dv, m]."""
    d = Q.shape[0]
    scores = K.T @ Q / d ** 0.5          # [m, n]
    weights = torch.softmax(scores, dim=0)
    return V @ weights
''',
)
program("transposed_bad", "queries|column", PROGRAMS["transposed"][1].replace("dim=0", "dim=1"))
program(
    "returns_dict",
    "right",
    """
import torch, torch.nn as nn, math

class Attention(nn.Module):
    def __init__(self, hidden_size=64, num_attention_heads=4):
        super().__init__()
        self.nh = num_attention_heads
        self.hd = hidden_size // num_attention_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
    def shape(self, t):
        return t.view(t.size(0), t.size(1), self.nh, self.hd).transpose(1, 2)
    def forward(self, hidden_states, attention_mask=None):
        q, k, v = self.shape(self.query(hidden_states)), self.shape(self.key(hidden_states)), self.shape(self.value(hidden_states))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.hd)
        if attention_mask is not None:
            scores = scores + (1.0 - attention_mask[:, None, None, :]) * -10000.0
        probs = scores.softmax(dim=-1)
        ctx = torch.matmul(probs, v).transpose(1, 2).flatten(2)
        return {"hidden": self.dense(ctx), "attn": probs}
""",
)
program(
    "returns_dict_bad", "after the softmax|not scaled", PROGRAMS["returns_dict"][1].replace(" / math.sqrt(self.hd)", "")
)
program(
    "globals_gpt",
    "right",
    """
import torch
import torch.nn as nn
import torch.nn.functional as F

V, T, C, H, L = 65, 32, 48, 6, 2

class Att(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(C, 3 * C, bias=False)
        self.o = nn.Linear(C, C, bias=False)
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.w(x).split(C, dim=2)
        q, k, v = [z.view(b, t, H, C // H).transpose(1, 2) for z in (q, k, v)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, C))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.a = Att()
        self.f = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))
    def forward(self, x):
        x = x + self.a(self.n1(x))
        return x + self.f(self.n2(x))

class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, C)
        self.pos = nn.Embedding(T, C)
        self.blocks = nn.Sequential(*[Block() for _ in range(L)])
        self.nf = nn.LayerNorm(C)
        self.head = nn.Linear(C, V)
    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        logits = self.head(self.nf(self.blocks(x)))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, V), targets.view(-1))
""",
)
program(
    "globals_gpt_nopos",
    "position",
    PROGRAMS["globals_gpt"][1].replace("self.tok(idx) + self.pos(torch.arange(idx.shape[1]))", "self.tok(idx)"),
)
program(
    "globals_gpt_nores",
    "residual",
    PROGRAMS["globals_gpt"][1].replace("x = x + self.a(self.n1(x))", "x = self.a(self.n1(x))"),
)
program(
    "globals_gpt_last",
    "right",
    PROGRAMS["globals_gpt"][1].replace("return logits, None", "return logits[:, [-1], :], None"),
)
program(
    "rms_numpy",
    "right",
    """
import numpy as np
def rmsnorm(x, g, eps=1e-6):
    return g * x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps)
""",
)
program(
    "rms_numpy_bad",
    "root|square",
    """
import numpy as np
def rmsnorm(x, g, eps=1e-6):
    return g * x / ((x ** 2).mean(-1, keepdims=True) + eps)
""",
)
program(
    "rope_complex",
    "right",
    '''
import torch
def precompute(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim))
    t = torch.arange(end)
    return torch.polar(torch.ones(end, dim // 2), torch.outer(t, freqs))

def apply_rotary_emb(x, freqs_cis):
    """x: [batch, seq, heads, dim]"""
    x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    f = freqs_cis[:x.shape[1]].view(1, x.shape[1], 1, -1)
    return torch.view_as_real(x_ * f).flatten(3).type_as(x)
''',
)
program(
    "rope_module_bad",
    "rotation",
    """
import torch
from torch import nn
class RotaryEmbedding(nn.Module):
    def __init__(self, dim, max_len=128, base=10000):
        super().__init__()
        inv = 1.0 / base ** (torch.arange(0, dim, 2) / dim)
        ang = torch.outer(torch.arange(max_len), inv)
        self.register_buffer("c", ang.cos()); self.register_buffer("s", ang.sin())
    def forward(self, x):
        t = x.shape[-2]
        c, s = self.c[:t], self.s[:t]
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * c + b * s, a * s + b * c], -1).flatten(-2)
""",
)
program(
    "seq_first_encoder",
    "right",
    '''
import torch
import torch.nn as nn

class EncoderLayer(nn.Module):
    """time first: (T, B, D)"""
    def __init__(self, D, H, F):
        super().__init__()
        self.att = nn.MultiheadAttention(D, H)
        self.l1 = nn.Linear(D, F); self.l2 = nn.Linear(F, D)
        self.ln1 = nn.LayerNorm(D); self.ln2 = nn.LayerNorm(D)
    def forward(self, x, pad=None):
        y, _ = self.att(x, x, x, key_padding_mask=pad)
        x = self.ln1(x + y)
        return self.ln2(x + self.l2(torch.relu(self.l1(x))))
''',
)
program(
    "seq_first_encoder_bad",
    "residual|norm",
    PROGRAMS["seq_first_encoder"][1].replace("return self.ln2(x + self.l2(", "return self.ln1(x + self.l2("),
)
program(
    "vit_plain",
    "right",
    """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(s, d, h, m):
        super().__init__()
        s.n1 = nn.LayerNorm(d); s.n2 = nn.LayerNorm(d)
        s.at = nn.MultiheadAttention(d, h, batch_first=True)
        s.ml = nn.Sequential(nn.Linear(d, m), nn.GELU(), nn.Linear(m, d))
    def forward(s, x):
        n = s.n1(x)
        x = x + s.at(n, n, n, need_weights=False)[0]
        return x + s.ml(s.n2(x))

class ViT(nn.Module):
    def __init__(s, img=32, patch=8, ch=3, dim=48, depth=2, heads=4, mlp=96, classes=10):
        super().__init__()
        s.p = patch
        n = (img // patch) ** 2
        s.emb = nn.Linear(ch * patch * patch, dim)
        s.cls = nn.Parameter(torch.zeros(1, 1, dim))
        s.pos = nn.Parameter(torch.randn(1, n + 1, dim) * .02)
        s.blocks = nn.ModuleList([Block(dim, heads, mlp) for _ in range(depth)])
        s.norm = nn.LayerNorm(dim)
        s.head = nn.Linear(dim, classes)
    def forward(s, im):
        b, c, hh, ww = im.shape
        x = im.unfold(2, s.p, s.p).unfold(3, s.p, s.p)         # b c gh gw p p
        x = x.permute(0, 2, 3, 1, 4, 5).reshape(b, -1, c * s.p * s.p)
        x = torch.cat([s.cls.expand(b, -1, -1), s.emb(x)], 1) + s.pos
        for bl in s.blocks: x = bl(x)
        return s.head(s.norm(x)[:, 0])
""",
)
program("vit_plain_bad", "class token|last", PROGRAMS["vit_plain"][1].replace("s.norm(x)[:, 0]", "s.norm(x)[:, -1]"))
program(
    "vit_plain_mixed",
    "patch|channel|permute",
    PROGRAMS["vit_plain"][1].replace("x.permute(0, 2, 3, 1, 4, 5).reshape", "x.reshape"),
)
program(
    "pe_class",
    "right",
    """
import numpy as np
import torch
from torch import nn

class PE(nn.Module):
    def __init__(self, d, length=100):
        super().__init__()
        table = np.array([[p / np.power(10000, 2 * (j // 2) / d) for j in range(d)] for p in range(length)])
        table[:, 0::2] = np.sin(table[:, 0::2])
        table[:, 1::2] = np.cos(table[:, 1::2])
        self.table = torch.FloatTensor(table)
    def forward(self, x):
        return x + self.table[: x.size(1)]
""",
)
program(
    "pe_class_bad",
    "sine|cosine|exponent|pair",
    PROGRAMS["pe_class"][1].replace("2 * (j // 2) / d", "j / d").replace("class PE", "class PositionalEncoding"),
)
program(
    "seq2seq",
    "right",
    """
import math, torch
import torch.nn as nn
import torch.nn.functional as F

def attend(q, k, v, m):
    s = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    return s.masked_fill(m, -1e9).softmax(-1) @ v

class MH(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = [nn.Linear(d, d) for _ in range(4)]
    def forward(self, a, b, m):
        f = lambda t: t.unflatten(-1, (self.h, -1)).transpose(1, 2)
        return self.o(attend(f(self.q(a)), f(self.k(b)), f(self.v(b)), m).transpose(1, 2).flatten(2))

class Enc(nn.Module):
    def __init__(self, d, h, f):
        super().__init__()
        self.a = MH(d, h); self.f = nn.Sequential(nn.Linear(d, f), nn.ReLU(), nn.Linear(f, d))
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
    def forward(self, x, m):
        x = self.n1(x + self.a(x, x, m))
        return self.n2(x + self.f(x))

class Dec(nn.Module):
    def __init__(self, d, h, f):
        super().__init__()
        self.a = MH(d, h); self.c = MH(d, h); self.f = nn.Sequential(nn.Linear(d, f), nn.ReLU(), nn.Linear(f, d))
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
    def forward(self, x, mem, m, mm):
        x = self.n1(x + self.a(x, x, m))
        x = self.n2(x + self.c(x, mem, mm))
        return self.n3(x + self.f(x))

class Seq2SeqTransformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d=32, h=4, n=2, f=64, max_len=50, pad=0):
        super().__init__()
        self.pad = pad
        self.se, self.te = nn.Embedding(src_vocab, d), nn.Embedding(tgt_vocab, d)
        self.pos = nn.Embedding(max_len, d)
        self.enc = nn.ModuleList([Enc(d, h, f) for _ in range(n)])
        self.dec = nn.ModuleList([Dec(d, h, f) for _ in range(n)])
        self.out = nn.Linear(d, tgt_vocab)
    def forward(self, src, tgt):
        sp = (src == self.pad)[:, None, None]
        T = tgt.shape[1]
        fut = torch.triu(torch.ones(T, T, dtype=torch.bool, device=tgt.device), 1)
        tm = (tgt == self.pad)[:, None, None] | fut
        x = self.se(src) + self.pos(torch.arange(src.shape[1]))
        for l in self.enc: x = l(x, sp)
        y = self.te(tgt) + self.pos(torch.arange(T))
        for l in self.dec: y = l(y, x, tm, sp)
        return self.out(y)
""",
)
program(
    "seq2seq_bad",
    "future|causal",
    PROGRAMS["seq2seq"][1].replace("(tgt == self.pad)[:, None, None] | fut", "(tgt == self.pad)[:, None, None]"),
)
program(
    "layernorm_fn_bad",
    "eps|root",
    """
import torch
def layer_norm(x, gamma, beta, eps=1e-2):
    mu = x.mean(-1, keepdim=True)
    sd = x.std(-1, keepdim=True, unbiased=False)
    return gamma * (x - mu) / (sd + eps) + beta
""",
)
program(
    "loss_numpy",
    "right",
    """
import torch
def lm_loss(logits, tokens):
    logp = logits[:, :-1].log_softmax(-1)
    return -logp.gather(-1, tokens[:, 1:, None]).mean()
""",
)
program(
    "loss_bad",
    "shift",
    """
import torch
def lm_loss(logits, tokens):
    logp = logits.log_softmax(-1)
    return -logp.gather(-1, tokens[:, :, None]).mean()
""",
)
program(
    "mask_fn_bad",
    "self|itself|diagonal",
    """
import torch
def make_causal_mask(n):
    m = torch.zeros(n, n)
    for i in range(n):
        for j in range(n):
            if j < i:
                m[i, j] = 1
    return m
""",
)
program(
    "gqa",
    "right",
    """
import torch
from torch import nn
class GroupedQueryAttention(nn.Module):
    def __init__(self, dim, n_q, n_kv):
        super().__init__()
        self.n_q, self.n_kv, self.hd = n_q, n_kv, dim // n_q
        self.wq = nn.Linear(dim, n_q * self.hd, bias=False)
        self.wk = nn.Linear(dim, n_kv * self.hd, bias=False)
        self.wv = nn.Linear(dim, n_kv * self.hd, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
    def forward(self, x):
        B, T, _ = x.shape
        q = self.wq(x).view(B, T, self.n_kv, self.n_q // self.n_kv, self.hd)
        k = self.wk(x).view(B, T, self.n_kv, self.hd)
        v = self.wv(x).view(B, T, self.n_kv, self.hd)
        s = torch.einsum("btgrd,bsgd->bgrts", q, k) * self.hd ** -0.5
        s = s + torch.full((T, T), float("-inf"), device=x.device).triu(1)
        o = torch.einsum("bgrts,bsgd->btgrd", s.softmax(-1), v)
        return self.wo(o.reshape(B, T, -1))
""",
)
program(
    "decoder_layer_dict",
    "right",
    """
import torch
from torch import nn
class DecoderLayer(nn.Module):
    def __init__(self, opts):
        super().__init__()
        d, h = opts["d_model"], opts["n_heads"]
        self.sa = nn.MultiheadAttention(d, h, batch_first=True)
        self.ca = nn.MultiheadAttention(d, h, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d, opts["d_ff"]), nn.ReLU(), nn.Linear(opts["d_ff"], d))
        self.n = nn.ModuleList([nn.LayerNorm(d) for _ in range(3)])
    def forward(self, y, enc):
        t = y.size(1)
        m = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = self.n[0](y + self.sa(y, y, y, attn_mask=m)[0])
        y = self.n[1](y + self.ca(y, enc, enc)[0])
        return self.n[2](y + self.ff(y))
""",
)
program(
    "decoder_layer_dict_bad",
    "memory|queries",
    PROGRAMS["decoder_layer_dict"][1].replace("self.ca(y, enc, enc)", "self.ca(y, y, y)"),
)
program(
    "gelu_bad",
    "0.044715|constant",
    """
import math, torch
def my_gelu(t):
    return 0.5 * t * (1 + torch.tanh(math.sqrt(2 / math.pi) * (t + 0.44715 * t ** 3)))
""",
)
program(
    "plain_class_numpy",
    "right",
    """
import numpy as np
class SelfAttention:
    def __init__(self, d_model, seed=0):
        rng = np.random.default_rng(seed)
        self.W_Q = rng.normal(size=(d_model, d_model))
        self.W_K = rng.normal(size=(d_model, d_model))
        self.W_V = rng.normal(size=(d_model, d_model))
    def __call__(self, X):
        Q, K, V = X @ self.W_Q, X @ self.W_K, X @ self.W_V
        S = Q @ K.swapaxes(-1, -2) / np.sqrt(K.shape[-1])
        S = np.exp(S - S.max(-1, keepdims=True))
        A = S / S.sum(-1, keepdims=True)
        return A @ V
""",
)
program(
    "weights_as_args",
    "right",
    """
import torch
def self_attention(X, W_q, W_k, W_v):
    Q, K, V = X @ W_q, X @ W_k, X @ W_v
    A = torch.softmax(Q @ K.T / K.shape[1] ** 0.5, dim=1)
    return A @ V, A
""",
)
program("weights_as_args_bad", "not scaled", PROGRAMS["weights_as_args"][1].replace(" / K.shape[1] ** 0.5", ""))
program(
    "first_attempt",
    "mask|hidden|softmax",
    """
import torch
import torch.nn as nn
import torch.nn.functional as F

class SelfAttentionHead(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        self.to_q = nn.Linear(embed_dim, head_dim)
        self.to_k = nn.Linear(embed_dim, head_dim)
        self.to_v = nn.Linear(embed_dim, head_dim)

    def forward(self, x, mask=None):
        q = self.to_q(x); k = self.to_k(x); v = self.to_v(x)
        att = torch.bmm(q, k.transpose(1, 2)) / (k.size(-1) ** 0.5)
        att = F.softmax(att, dim=-1)
        if mask is not None:
            att = att.masked_fill(mask == 0, 0)
        return torch.bmm(att, v)
""",
)
