"""Programs written for the tests, right and wrong, printed as source in many styles.

A base is a right program with slots; a mistake replaces a fragment of it, as a person would have written it. A style says
how products, softmax and roots are spelled, what arguments are called, and whether it is a function or a module. None of
this knows how the check computes: the fragments are code, and the numbers are PyTorch's.
"""

import ast
import difflib
import re
from dataclasses import dataclass
from itertools import product

HEADER = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
OPERATIONS = {
    "operators": {"MM": "{0} @ {1}", "SOFTMAX": "torch.softmax({0}, dim={1})", "SQRT": "math.sqrt({0})", "T": "{0}.transpose(-2, -1)", "MEAN": "{0}.mean({1}, keepdim=True)"},
    "functions": {"MM": "torch.matmul({0}, {1})", "SOFTMAX": "F.softmax({0}, dim={1})", "SQRT": "({0}) ** 0.5", "T": "{0}.transpose(-1, -2)", "MEAN": "torch.mean({0}, dim={1}, keepdim=True)"},
    "methods": {"MM": "{0}.matmul({1})", "SOFTMAX": "{0}.softmax({1})", "SQRT": "math.pow({0}, 0.5)", "T": "{0}.swapaxes(-1, -2)", "MEAN": "{0}.mean(dim={1}, keepdim=True)"},
    "modules": {"MM": "torch.matmul({0}, {1})", "SOFTMAX": "nn.Softmax(dim={1})({0})", "SQRT": "math.sqrt({0})", "T": "{0}.mT", "MEAN": "{0}.mean({1}, keepdim=True)"},
}  # fmt: skip
NAMES = {
    "short": {},
    "long": {"q": "query", "k": "key", "v": "value", "x": "hidden_states", "scores": "attention_scores", "weights": "attention_probs", "memory": "encoder_hidden_states", "d_model": "hidden_size", "n_heads": "num_attention_heads", "d_ff": "intermediate_size", "seq_len": "max_len", "size": "seq_len", "radius": "half_width", "lengths": "valid_lens", "max_distance": "max_relative_position", "centers": "attention_centers", "input_ids": "token_ids", "rows": "n_rows", "columns": "n_columns", "img_size": "image_size", "img": "pixel_values", "idx": "input_ids", "dim": "hidden_dim", "max_len": "max_position_embeddings"},
    "capital": {"q": "Q", "k": "K", "v": "V", "x": "inputs", "scores": "energy", "weights": "attn", "memory": "enc_out", "mask": "attn_mask", "d_model": "embed_dim", "n_heads": "num_heads", "d_ff": "ffn_dim", "seq_len": "length", "size": "sz", "lengths": "lens", "max_distance": "clip", "centers": "centre", "input_ids": "tokens", "rows": "height", "columns": "width", "in_channels": "channels", "img": "images", "idx": "tokens", "dim": "d_model", "max_len": "context_length"},
}  # fmt: skip


@dataclass(frozen=True)
class Base:
    """A right program: `text` with tokens such as MM(a, b), and what people write instead, by the mistake's name."""

    subject: str
    name: str
    text: str
    mistakes: dict[str, tuple[tuple[str, str], ...]]


def expand(text: str, operations: dict[str, str]) -> str:
    """Replace MM(a, b) and the like, innermost first."""
    pattern = re.compile(r"\b(MM|SOFTMAX|SQRT|T|MEAN)\(")
    while True:
        starts = list(pattern.finditer(text))
        if not starts:
            return text
        name, start = starts[-1][1], starts[-1].end()  # the last one has none inside
        end, open_ = start, 1
        while open_:
            open_ += (text[end] in "([") - (text[end] in ")]")
            end += 1
        parts, depth, current = [], 0, ""
        for c in text[start : end - 1]:
            depth += (c in "([") - (c in ")]")
            if c == "," and depth == 0:
                parts.append(current.strip())
                current = ""
            else:
                current += c
        parts.append(current.strip())
        simple = [p if re.fullmatch(r"[\w.]+(\(.*\))?", p) else f"({p})" for p in parts]
        text = text[: starts[-1].start()] + f"({operations[name].format(*simple)})" + text[end:]


def print_program(base: Base, mistake: str | None, style: tuple[str, str, str]) -> str:
    operations, names, form = style
    text = base.text
    for old, new in base.mistakes[mistake] if mistake else ():
        assert old in text, (base.name, mistake, old)
        text = text.replace(old, new)
    text = with_locals(expand(text, OPERATIONS[operations]), LOCALS[operations])
    text = renamed(text, {old: new for old, new in NAMES[names].items() if base.name != "softmax" or old != "dim"})
    if form == "typed":
        text = typed(text)
    elif form != "plain":
        text = (
            constructed(text, base.name, form)
            if "class " in text
            else as_class(text, base.name, "nn.Module" if form == "wrapped" else "")
        )
    return HEADER + text


LOCALS = {"operators": "{}", "functions": "{}_t", "methods": "my_{}", "modules": "{}_"}
"""What variables inside of functions are called."""


def renamed(text: str, names: dict[str, str], called: str = "(") -> str:
    """All names at once; not attributes and strings, nor what is called or given by its name."""
    if not names:
        return text
    pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    found = rf"(?<![\w.'\"])({pattern})(?![\w'\"{called}])"
    lines = text.splitlines(keepends=True)
    given = [found if line.lstrip().startswith("def ") else found + r"(?!=[^=])" for line in lines]
    return "".join(re.sub(g, lambda m: names[m[1]], line) for g, line in zip(given, lines, strict=True))


def with_locals(text: str, pattern: str) -> str:
    """The variables of every function that are not its arguments, called otherwise."""
    tree = ast.parse(text)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name != "__init__"]
    arguments = {a.arg for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for a in f.args.args}
    stored = {
        n.id
        for f in functions
        for n in ast.walk(f)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id not in arguments
    }
    return renamed(text, {name: pattern.format(name) for name in stored}, called="")


def planted_lines(base: Base, mistake: str, style: tuple[str, str, str]) -> set[int]:
    """The lines in which a mistake differs from the right program.

    Where something was left out, the lines around it, and those that make what is then not used.
    """
    right, wrong = (print_program(base, m, style).splitlines() for m in (None, mistake))
    lines: set[int] = set()
    for tag, i, j, start, end in difflib.SequenceMatcher(None, right, wrong, autojunk=False).get_opcodes():
        if tag == "delete":
            lines |= {start, start + 1}
            for made in re.findall(r"self\.\w+", " ".join(right[i:j])):
                lines |= {n for n, line in enumerate(wrong, start=1) if re.match(rf"\s*{re.escape(made)}\s*=", line)}
        elif tag != "equal":
            lines |= set(range(start + 1, end + 1))
    return lines


def as_class(text: str, name: str, parent: str) -> str:
    """A function as the forward of a module, or as the `__call__` of a class."""
    functions = re.split(r"(?m)^(?=def )", text)
    last = functions[-1]
    head, _, body = last.partition("\n")
    arguments = re.match(r"def \w+\((.*)\):", head)
    assert arguments, head
    kind = "".join(word.capitalize() for word in name.split("_"))
    lines = "\n".join(f"    {line}" if line else line for line in body.splitlines())
    method = "forward" if parent else "__call__"
    base = f"({parent})" if parent else ""
    return "".join(functions[:-1]) + f"class {kind}{base}:\n    def {method}(self, {arguments[1]}):\n{lines}\n"


def constructed(text: str, name: str, form: str) -> str:
    """The constructor of the candidate with a configuration: an object (wrapped), or a dict or dataclass (packed)."""
    start = text.index(f"class {name}(")
    before, own = text[:start], text[start:]
    head = re.search(r"def __init__\(self, (.*)\):\n        super\(\).__init__\(\)\n", own)
    assert head, name
    names = [argument.partition("=")[0].strip() for argument in head[1].split(",")]
    if names == ["config"]:
        if form == "wrapped":
            keys = sorted(set(re.findall(r"config\.(\w+)", text)))
            fields = "".join(f"    {key}: {'bool = True' if key == 'bias' else 'int = 12'}\n" for key in keys)
            text = text.replace("config):", "config: ModelConfig):")
            return f"from dataclasses import dataclass\n\n\n@dataclass\nclass ModelConfig:\n{fields}\n\n{text}"
        return re.sub(r"config\.(\w+)", r'config["\1"]', text)
    values = (f"config.{n}" if form == "wrapped" else f'config["{n}"]' for n in names)
    new = head[0].replace(head[1], "config") + f"        {', '.join(names)} = {', '.join(values)}\n"
    return before + own.replace(head[0], new, 1)


def typed(text: str) -> str:
    """With annotations and docstrings."""

    def annotate(match: re.Match[str]) -> str:
        indent, name, arguments = match[1], match[2], match[3]
        parts = [a.strip() for a in arguments.split(",")]
        tensors = name in ("forward", "scaled_dot_product_attention") or "attention" in name
        new = []
        for part in parts:
            argument, _, default = part.partition("=")
            if argument in ("self", "config"):
                new.append(part)
            elif name == "__init__":
                kind = "float" if argument in ("eps", "dropout") else "int"
                new.append(f"{argument}: {kind} = {default}" if default else f"{argument}: {kind}")
            elif tensors:
                new.append(f"{argument}: torch.Tensor | None = None" if default == "None" else f"{part}: torch.Tensor")
            else:
                new.append(part)
        return f'{indent}def {name}({", ".join(new)}):\n{indent}    """As in the lecture: the mask, the softmax, sqrt(d)."""\n'

    return re.sub(r"(?m)^( *)def (\w+)\((.*)\):\n", annotate, text)


FORMS = ("plain", "wrapped", "typed", "packed")


def styles() -> list[tuple[str, str, str]]:
    """Half of all combinations, in which every two choices meet."""
    chosen = product(enumerate(OPERATIONS), enumerate(NAMES), enumerate(FORMS))
    return [(o, n, f) for (i, o), (j, n), (k, f) in chosen if (i + j + k) % 2 == 0]


ATTENTION = Base(
    "attention",
    "scaled_dot_product_attention",
    """def scaled_dot_product_attention(q, k, v, mask=None):
    d_k = q.size(-1)
    scores = MM(q, T(k)) / SQRT(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = SOFTMAX(scores, -1)
    return MM(weights, v), weights
""",
    {
        "scale: none": ((" / SQRT(d_k)", ""),),
        "scale: d": ((" / SQRT(d_k)", " / d_k"),),
        "scale: multiplied": ((" / SQRT(d_k)", " * SQRT(d_k)"),),
        "scale: n_key": (("q.size(-1)", "k.size(-2)"),),
        "scale: n_query": (("q.size(-1)", "q.size(-2)"),),
        "scale: quarter": ((" / SQRT(d_k)", " / d_k ** 0.25"),),
        "scale: d_value": (("q.size(-1)", "v.size(-1)"),),
        "scale: square": ((" / SQRT(d_k)", " / d_k ** 2"),),
        "scale: after": ((" / SQRT(d_k)", ""), ("SOFTMAX(scores, -1)", "SOFTMAX(scores, -1) / SQRT(d_k)")),
        "softmax: queries": (("SOFTMAX(scores, -1)", "SOFTMAX(scores, -2)"),),
        "softmax: heads": (("SOFTMAX(scores, -1)", "SOFTMAX(scores, 1)"),),
        "softmax: batch": (("SOFTMAX(scores, -1)", "SOFTMAX(scores, 0)"),),
        "softmax: sigmoid": (("SOFTMAX(scores, -1)", "torch.sigmoid(scores)"),),
        "softmax: all": (("SOFTMAX(scores, -1)", "scores.flatten(-2).softmax(-1).view_as(scores)"),),
        "softmax: twice": (("SOFTMAX(scores, -1)", "SOFTMAX(SOFTMAX(scores, -1), -1)"),),
        "mixed: keys": (("MM(weights, v)", "MM(weights, k)"),),
        "hidden: ignored": (("        scores = scores.masked_fill(mask == 0, -1e9)", "        scores.masked_fill(mask == 0, -1e9)"),),
        "hidden: zero": (("-1e9", "1e-9"),),
        "hidden: plus": (("-1e9", "1e9"),),
        "hidden: too small": (("-1e9", "-1"),),
        "hidden: one": (("-1e9", "1"),),
        "hidden: after": (("    if mask is not None:\n        scores = scores.masked_fill(mask == 0, -1e9)\n    weights = SOFTMAX(scores, -1)\n", "    weights = SOFTMAX(scores, -1)\n    if mask is not None:\n        weights = weights * mask\n"),),
        "mask_of: first sentence": (("mask == 0", "mask[:1] == 0"),),
        "mask_of: another sentence": (("mask == 0", "mask.flip(0) == 0"),),
        "scores: cosine": (("MM(q, T(k))", "MM(F.normalize(q, dim=-1), T(F.normalize(k, dim=-1)))"),),
    },
)  # fmt: skip
CAUSAL_ATTENTION = Base(
    "attention",
    "causal_attention",
    """def causal_attention(q, k, v):
    n = q.size(-2)
    scores = MM(q, T(k)) / SQRT(q.size(-1))
    hidden = torch.triu(torch.ones(n, n), diagonal=1).bool()
    scores = scores.masked_fill(hidden, float("-inf"))
    weights = SOFTMAX(scores, -1)
    return MM(weights, v)
""",
    {
        "causal: one ahead": (("diagonal=1", "diagonal=2"),),
        "causal: itself hidden": (("diagonal=1", "diagonal=0"),),
        "causal: future": (("torch.triu(torch.ones(n, n), diagonal=1)", "torch.tril(torch.ones(n, n), diagonal=-1)"),),
        "causal: future only": (("torch.triu(torch.ones(n, n), diagonal=1)", "torch.tril(torch.ones(n, n))"),),
        "hidden: zero": (('float("-inf")', "0"),),
        "mixed_by: transposed": (("MM(weights, v)", "MM(T(weights), v)"),),
        "scores: swapped": (("MM(q, T(k))", "MM(k, T(q))"),),
    },
)  # fmt: skip
SELF_ATTENTION = Base(
    "attention",
    "self_attention",
    """def self_attention(q, k, v):
    scores = MM(q, T(k)) / SQRT(k.size(-1))
    weights = SOFTMAX(scores, -1)
    return MM(weights, v)
""",
    {
        "softmax: none": (("SOFTMAX(scores, -1)", "scores"),),
        "softmax: log": (("SOFTMAX(scores, -1)", "torch.log_softmax(scores, -1)"),),
        "softmax: sum": (("SOFTMAX(scores, -1)", "scores / scores.sum(-1, keepdim=True)"),),
    },
)  # fmt: skip
SOFTMAX = Base(
    "softmax",
    "softmax",
    """def softmax(x, dim=-1):
    top = x.max(dim=dim, keepdim=True).values
    e = torch.exp(x - top)
    return e / e.sum(dim=dim, keepdim=True)
""",
    {
        "axis: ignored": (("dim=dim, keepdim", "dim=-1, keepdim"),),
        "axis: all": (("e.sum(dim=dim, keepdim=True)", "e.sum()"), ("x.max(dim=dim, keepdim=True).values", "x.max()")),
        "form: overflow": (("x - top", "x"),),
        "form: log": (("return e / e.sum(dim=dim, keepdim=True)", "return torch.log(e / e.sum(dim=dim, keepdim=True))"),),
        "form: no exp": (("return e / e.sum(dim=dim, keepdim=True)", "return x / x.sum(dim=dim, keepdim=True)"),),
        "form: exp only": (("return e / e.sum(dim=dim, keepdim=True)", "return e"),),
        "form: minus": (("x - top", "-(x - x.min(dim=dim, keepdim=True).values)"),),
        "form: base 2": (("torch.exp(x - top)", "torch.exp2(x - top)"),),
    },
)  # fmt: skip
MULTI_HEAD = Base(
    "multi-head attention",
    "MultiHeadAttention",
    """class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask=None):
        b = q.size(0)
        d_model = q.size(-1)
        q, k, v = self.w_q(q), self.w_k(k), self.w_v(v)
        q = q.view(b, -1, self.n_heads, self.d_head).transpose(1, 2)
        k = k.view(b, -1, self.n_heads, self.d_head).transpose(1, 2)
        v = v.view(b, -1, self.n_heads, self.d_head).transpose(1, 2)
        scores = MM(q, T(k)) / SQRT(self.d_head)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = SOFTMAX(scores, -1)
        out = MM(weights, v).transpose(1, 2).contiguous().view(b, -1, self.n_heads * self.d_head)
        return self.w_o(out)
""",
    {
        "scale: d_model": (("SQRT(self.d_head)", "SQRT(d_model)"),),
        "scale: none": ((" / SQRT(self.d_head)", ""),),
        "scale: n_heads": (("SQRT(self.d_head)", "SQRT(self.n_heads)"),),
        "softmax: queries": (("SOFTMAX(scores, -1)", "SOFTMAX(scores, -2)"),),
        "softmax: heads": (("SOFTMAX(scores, -1)", "SOFTMAX(scores, 1)"),),
        "split: view": (("view(b, -1, self.n_heads, self.d_head).transpose(1, 2)", "view(b, self.n_heads, -1, self.d_head)"),),
        "join: view": (("MM(weights, v).transpose(1, 2).contiguous()", "MM(weights, v).contiguous()"),),
        "join: interleaved": (("MM(weights, v).transpose(1, 2).contiguous()", "MM(weights, v).permute(0, 2, 3, 1).contiguous()"),),
        "output: not used": (("return self.w_o(out)", "return out"),),
        "output: is v": (("return self.w_o(out)", "return self.w_v(out)"),),
        "output: twice": (("return self.w_o(out)", "return self.w_o(self.w_o(out))"),),
        "weights: k as q": (("self.w_k(k)", "self.w_q(k)"),),
        "weights: v as k": (("self.w_v(v)", "self.w_k(v)"),),
        "weights: no q": (("self.w_q(q), self.w_k(k)", "q, self.w_k(k)"),),
        "weights: no v": (("self.w_v(v)", "v"),),
        "weights: q and k exchanged": (("self.w_q(q), self.w_k(k)", "self.w_k(q), self.w_q(k)"),),
        "hidden: ignored": (("            scores = scores.masked_fill(mask == 0, -1e9)", "            scores.masked_fill(mask == 0, -1e9)"),),
        "hidden: zero": (("-1e9", "0"),),
        "mask_of: folded otherwise": (("mask == 0, -1e9)", "mask.expand(b, 1, *mask.shape[-2:])[:, 0].repeat(self.n_heads, 1, 1).view(b, self.n_heads, *mask.shape[-2:]) == 0, -1e9)"),),
    },
)  # fmt: skip
CAUSAL_SELF = Base(
    "multi-head attention",
    "CausalSelfAttention",
    """class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head = config.n_head
        self.register_buffer("tril", torch.tril(torch.ones(config.block_size, config.block_size)))

    def forward(self, x):
        B, T_, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T_, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        att = MM(q, T(k)) * (1.0 / SQRT(C // self.n_head))
        att = att.masked_fill(self.tril[:T_, :T_] == 0, float("-inf"))
        att = SOFTMAX(att, -1)
        y = MM(att, v).transpose(1, 2).contiguous().view(B, T_, C)
        return self.c_proj(y)
""",
    {
        "scale: d_model": (("SQRT(C // self.n_head)", "SQRT(C)"),),
        "scale: none": ((" * (1.0 / SQRT(C // self.n_head))", ""),),
        "causal: one ahead": (("torch.tril(torch.ones(config.block_size, config.block_size))", "torch.tril(torch.ones(config.block_size, config.block_size), diagonal=1)"),),
        "causal: itself hidden": (("torch.tril(torch.ones(config.block_size, config.block_size))", "torch.tril(torch.ones(config.block_size, config.block_size), diagonal=-1)"),),
        "causal: future": (("torch.tril(", "torch.triu("),),
        "causal: missing": (("        att = att.masked_fill(self.tril[:T_, :T_] == 0, float(\"-inf\"))\n", ""),),
        "softmax: queries": (("SOFTMAX(att, -1)", "SOFTMAX(att, -2)"),),
        "split: view": (("view(B, T_, self.n_head, C // self.n_head).transpose(1, 2)", "reshape(B, self.n_head, T_, C // self.n_head)"),),
        "join: view": (("MM(att, v).transpose(1, 2).contiguous()", "MM(att, v).contiguous()"),),
        "hidden: after": (("        att = att.masked_fill(self.tril[:T_, :T_] == 0, float(\"-inf\"))\n        att = SOFTMAX(att, -1)\n", "        att = SOFTMAX(att, -1)\n        att = att * self.tril[:T_, :T_]\n"),),
    },
)  # fmt: skip
LAYER_NORM = Base(
    "layer norm",
    "LayerNorm",
    """class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        mean = MEAN(x, -1)
        var = MEAN((x - mean) ** 2, -1)
        normal = (x - mean) / torch.sqrt(var + self.eps)
        return self.weight * normal + self.bias
""",
    {
        "form: unbiased": (("MEAN((x - mean) ** 2, -1)", "x.var(-1, keepdim=True)"),),
        "form: eps outside": (("torch.sqrt(var + self.eps)", "(torch.sqrt(var) + self.eps)"),),
        "form: no eps": (("torch.sqrt(var + self.eps)", "torch.sqrt(var)"),),
        "form: no root": (("torch.sqrt(var + self.eps)", "(var + self.eps)"),),
        "form: not centred": (("normal = (x - mean)", "normal = x"),),
        "form: mean square": (("MEAN((x - mean) ** 2, -1)", "MEAN(x ** 2, -1)"),),
        "form: sum": (("MEAN((x - mean) ** 2, -1)", "((x - mean) ** 2).sum(-1, keepdim=True)"),),
        "axis: tokens": ((", -1)", ", -2)"),),
        "axis: batch": ((", -1)", ", 0)"),),
        "gain: not used": (("self.weight * normal", "normal"),),
        "offset: not used": ((" + self.bias", ""),),
        "gain: bias first": (("self.weight * normal + self.bias", "self.weight * (normal + self.bias)"),),
        "offset: subtracted": ((" + self.bias", " - self.bias"),),
    },
)  # fmt: skip
RMS_NORM = Base(
    "rms norm",
    "RMSNorm",
    """class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        ms = MEAN(x.pow(2), -1)
        return x * torch.rsqrt(ms + self.eps) * self.weight
""",
    {
        "form: no root": (("torch.rsqrt(ms + self.eps)", "(1 / (ms + self.eps))"),),
        "form: eps outside": (("torch.rsqrt(ms + self.eps)", "(1 / (torch.sqrt(ms) + self.eps))"),),
        "form: sum": (("MEAN(x.pow(2), -1)", "x.pow(2).sum(-1, keepdim=True)"),),
        "form: variance": (("MEAN(x.pow(2), -1)", "x.var(-1, keepdim=True, unbiased=False)"),),
        "form: multiplied": (("rsqrt", "sqrt"),),
        "form: mean of sizes": (("torch.rsqrt(ms + self.eps)", "(1 / (x.abs().mean(-1, keepdim=True) + self.eps))"),),
        "axis: tokens": ((", -1)", ", 1)"),),
        "gain: not used": ((" * self.weight", ""),),
        "form: centred": (("        ms = MEAN(x.pow(2), -1)\n", "        x = x - x.mean(-1, keepdim=True)\n        ms = MEAN(x.pow(2), -1)\n"),),
    },
)  # fmt: skip
GELU = Base(
    "gelu",
    "gelu",
    """def gelu(x):
    inner = SQRT(2 / math.pi) * (x + 0.044715 * x ** 3)
    return 0.5 * x * (1 + torch.tanh(inner))
""",
    {
        "form: constant": (("0.044715", "0.44715"),),
        "form: no cube": (("x ** 3", "x ** 2"),),
        "form: cube left out": ((" + 0.044715 * x ** 3", ""),),
        "form: cube scaled alone": (("SQRT(2 / math.pi) * (x + 0.044715 * x ** 3)", "SQRT(2 / math.pi) * x + 0.044715 * x ** 3"),),
        "form: root of pi/2": (("2 / math.pi", "math.pi / 2"),),
        "form: no half, tanh": (("0.5 * x", "x"),),
        "form: no root of 2/pi": (("SQRT(2 / math.pi)", "(2 / math.pi)"),),
        "form: sigmoid": (("    inner = SQRT(2 / math.pi) * (x + 0.044715 * x ** 3)\n    return 0.5 * x * (1 + torch.tanh(inner))", "    return x * torch.sigmoid(1.702 * x)"),),
        "form: erf without root": (("    inner = SQRT(2 / math.pi) * (x + 0.044715 * x ** 3)\n    return 0.5 * x * (1 + torch.tanh(inner))", "    return 0.5 * x * (1 + torch.erf(x))"),),
    },
)  # fmt: skip
FEED_FORWARD = Base(
    "feed-forward",
    "FeedForward",
    """class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.1):
        super().__init__()
        self.fc1 = nn.Linear(d_model, d_ff)
        self.fc2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        hidden = F.relu(self.fc1(x))
        return self.fc2(self.dropout(hidden))
""",
    {
        "act: missing": (("F.relu(self.fc1(x))", "self.fc1(x)"),),
        "act: after": (("F.relu(self.fc1(x))", "self.fc1(x)"), ("return self.fc2(self.dropout(hidden))", "return F.relu(self.fc2(self.dropout(hidden)))")),
        "act: twice": (("return self.fc2(self.dropout(hidden))", "return F.relu(self.fc2(self.dropout(hidden)))"),),
        "act: before": (("F.relu(self.fc1(x))", "self.fc1(F.relu(x))"),),
        "activation: softmax": (("F.relu(self.fc1(x))", "SOFTMAX(self.fc1(x), -1)"),),
        "activation: sigmoid": (("F.relu(", "torch.sigmoid("),),
    },
)  # fmt: skip
SINUSOID = Base(
    "sinusoidal positions",
    "positional_encoding",
    """def positional_encoding(seq_len, d_model):
    pos = torch.arange(seq_len).unsqueeze(1)
    i = torch.arange(0, d_model, 2)
    angle = pos / 10000 ** (i / d_model)
    pe = torch.zeros(seq_len, d_model)
    pe[:, 0::2] = torch.sin(angle)
    pe[:, 1::2] = torch.cos(angle)
    return pe
""",
    {
        "exponent: 4i": (("(i / d_model)", "(2 * i / d_model)"),),
        "exponent: i": (("(i / d_model)", "(i / 2 / d_model)"),),
        "exponent: own cosine": (("torch.cos(angle)", "torch.cos(pos / 10000 ** ((i + 1) / d_model))"),),
        "exponent: no minus": (("pos / 10000", "pos * 10000"),),
        "order: cosine first": (("0::2", "9::2"), ("1::2", "0::2"), ("9::2", "1::2")),
        "order: sines only": (("torch.cos", "torch.sin"),),
        "positions: one": (("torch.arange(seq_len)", "torch.arange(1, seq_len + 1)"),),
        "base: 1000": (("10000", "1000"),),
    },
)  # fmt: skip
LEARNED = Base(
    "learned positions",
    "LearnedPositionalEmbedding",
    """class LearnedPositionalEmbedding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.pe = nn.Embedding(max_len, d_model)

    def forward(self, x):
        positions = torch.arange(x.size(1))
        return x + self.pe(positions)
""",
    {
        "rows: from one": (("torch.arange(x.size(1))", "torch.arange(1, x.size(1) + 1)"),),
        "rows: same": (("torch.arange(x.size(1))", "torch.zeros(x.size(1), dtype=torch.long)"),),
        "rows: reversed": (("torch.arange(x.size(1))", "torch.arange(x.size(1)).flip(0)"),),
        "rows: scaled": (("self.pe(positions)", "self.pe(positions) * SQRT(x.size(-1))"),),
    },
)  # fmt: skip
ROTARY = Base(
    "rotary positions",
    "apply_rotary",
    """def apply_rotary(x):
    n, d = x.size(-2), x.size(-1)
    freqs = 10000 ** (-torch.arange(0, d, 2) / d)
    angles = torch.arange(n)[:, None] * freqs
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
""",
    {
        "angle: 4i": (("torch.arange(0, d, 2) / d", "2 * torch.arange(0, d, 2) / d"),),
        "angle: growing": (("(-torch.arange", "(torch.arange"),),
        "angle: i": (("torch.arange(0, d, 2) / d", "torch.arange(d // 2) / d"),),
        "turn: sign": (("a * cos - b * sin", "a * cos + b * sin"),),
        "turn: cosine only": (("a * cos - b * sin, a * sin + b * cos", "a * cos, b * cos"),),
        "turn: exchanged": (("cos, sin = angles.cos(), angles.sin()", "sin, cos = angles.cos(), angles.sin()"),),
        "base: 1000": (("10000", "1000"),),
        "result: not interleaved": (("torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)", "torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)"),),
    },
)  # fmt: skip
ALIBI = Base(
    "alibi",
    "alibi_bias",
    """def alibi_bias(n_heads, seq_len):
    slopes = 2.0 ** (-8.0 * torch.arange(1, n_heads + 1) / n_heads)
    distance = torch.arange(seq_len)[None, :] - torch.arange(seq_len)[:, None]
    return -slopes[:, None, None] * distance.abs()
""",
    {
        "slopes: from zero": (("torch.arange(1, n_heads + 1)", "torch.arange(n_heads)"),),
        "slopes: no heads": (("-8.0 * torch.arange(1, n_heads + 1) / n_heads", "-1.0 * torch.arange(1, n_heads + 1)"),),
        "sides: positive": (("-slopes", "slopes"),),
        "slopes: linear": (("2.0 ** (-8.0 * torch.arange(1, n_heads + 1) / n_heads)", "torch.arange(1, n_heads + 1) / n_heads"),),
        "sides: square": (("distance.abs()", "distance ** 2"),),
    },
)  # fmt: skip
RELATIVE = Base(
    "relative positions",
    "relative_positions",
    """def relative_positions(seq_len, max_distance):
    at = torch.arange(seq_len)
    distance = at[None, :] - at[:, None]
    return distance.clamp(-max_distance, max_distance) + max_distance
""",
    {
        "clip: missing": ((".clamp(-max_distance, max_distance)", ""),),
        "clip: one side": ((".clamp(-max_distance, max_distance)", ".clamp(max=max_distance)"),),
        "clip: off by one": ((".clamp(-max_distance, max_distance)", ".clamp(-max_distance + 1, max_distance - 1)"),),
        "rows: absolute": (("at[None, :] - at[:, None]", "(at[None, :] - at[:, None]).abs()"),),
        "rows: sum": (("at[None, :] - at[:, None]", "at[None, :] + at[:, None]"),),
    },
)  # fmt: skip
GRID = Base(
    "grid positions",
    "sinusoidal_positions_2d",
    """def sinusoid(n, width):
    at = torch.arange(n)[:, None]
    i = torch.arange(0, width, 2)
    angle = at / 10000 ** (i / width)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def sinusoidal_positions_2d(rows, columns, d_model):
    half = d_model // 2
    of_rows = sinusoid(rows, half)[:, None, :].expand(rows, columns, half)
    of_columns = sinusoid(columns, half)[None, :, :].expand(rows, columns, half)
    return torch.cat([of_rows, of_columns], dim=-1)
""",
    {
        "told: rows only": (("[of_rows, of_columns]", "[of_rows, of_rows]"),),
        "told: columns only": (("[of_rows, of_columns]", "[of_columns, of_columns]"),),
        "width: added": (("half = d_model // 2", "half = d_model"), ("torch.cat([of_rows, of_columns], dim=-1)", "of_rows + of_columns")),
        "width: whole": (("10000 ** (i / width)", "10000 ** (i / (2 * width))"),),
        "positions: one": (("torch.arange(n)", "torch.arange(1, n + 1)"),),
    },
)  # fmt: skip
CAUSAL_MASK = Base(
    "causal mask",
    "causal_mask",
    """def causal_mask(size):
    ones = torch.ones(size, size)
    return torch.tril(ones).bool()
""",
    {
        "causal: one ahead": (("torch.tril(ones)", "torch.tril(ones, diagonal=1)"),),
        "causal: itself hidden": (("torch.tril(ones)", "torch.tril(ones, diagonal=-1)"),),
        "causal: everything": (("torch.tril(ones)", "ones"),),
        "causal: diagonal": (("torch.tril(ones)", "torch.eye(size)"),),
    },
)  # fmt: skip
PADDING_MASK = Base(
    "padding mask",
    "padding_mask",
    """def padding_mask(lengths, max_len):
    at = torch.arange(max_len)[None, :]
    return at < lengths[:, None]
""",
    {
        "end: one more": ((" < ", " <= "),),
        "end: one less": (("lengths[:, None]", "lengths[:, None] - 1"),),
        "side: left": (("at < lengths[:, None]", "at >= max_len - lengths[:, None]"),),
        "side: first sentence": (("lengths[:, None]", "lengths[:1, None].expand(len(lengths), 1)"),),
    },
)  # fmt: skip
WINDOW_MASK = Base(
    "window mask",
    "window_mask",
    """def window_mask(seq_len, radius):
    at = torch.arange(seq_len)
    distance = at[None, :] - at[:, None]
    return distance.abs() <= radius
""",
    {
        "wrong: one side": (("distance.abs() <= radius", "distance <= radius"),),
        "wrong: past side": (("distance.abs() <= radius", "distance >= -radius"),),
        "wrong: itself hidden": (("distance.abs() <= radius", "(distance.abs() <= radius) & (distance != 0)"),),
        "wrong: around": (("distance.abs() <= radius", "(distance.abs() <= radius) | (distance.abs() >= seq_len - radius)"),),
    },
)  # fmt: skip
PATCHES = Base(
    "patch embedding",
    "PatchEmbedding",
    """class PatchEmbedding(nn.Module):
    def __init__(self, img_size, patch_size, in_channels, embed_dim):
        super().__init__()
        self.proj = nn.Conv2d(in_channels, embed_dim, kernel_size=patch_size, stride=patch_size)
        n_patches = (img_size // patch_size) ** 2
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, n_patches + 1, embed_dim))

    def forward(self, x):
        x = self.proj(x).flatten(2).transpose(1, 2)
        cls = self.cls_token.expand(x.size(0), -1, -1)
        x = torch.cat([cls, x], dim=1)
        return x + self.pos_embed
""",
    {
        "patches: rows and columns exchanged": (("self.proj(x).flatten(2)", "self.proj(x).transpose(2, 3).flatten(2)"),),
        "token: last": (("[cls, x]", "[x, cls]"),),
        "positions: not used": (("x + self.pos_embed", "x"),),
        "positions: first only": (("x + self.pos_embed", "x + self.pos_embed[:, :1]"),),
        "positions: multiplied": (("x + self.pos_embed", "x * self.pos_embed"),),
    },
)  # fmt: skip
POOLING = Base(
    "pooling",
    "mean_pooling",
    """def mean_pooling(x, mask):
    kept = x * mask.unsqueeze(-1)
    return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True)
""",
    {
        "pool: all tokens": (("return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True)", "return x.mean(dim=1)"),),
        "pool: padded count": (("mask.sum(dim=1, keepdim=True)", "x.size(1)"),),
        "pool: sum": ((" / mask.sum(dim=1, keepdim=True)", ""),),
        "pool: batch count": (("mask.sum(dim=1, keepdim=True)", "x.size(0)"),),
    },
)  # fmt: skip
GAUSSIAN = Base(
    "gaussian attention",
    "gaussian_attention",
    """def gaussian_attention(x, centers, alpha):
    b, rows, columns, d = x.shape
    grid = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(x.dtype)
    delta = grid[None, :, :] - grid[:, None, :] - centers[:, None, None, :]
    scores = -alpha[:, None, None] * (delta ** 2).sum(-1)
    weights = SOFTMAX(scores, -1)
    return torch.einsum("hqk,bkd->bhqd", weights, x.reshape(b, -1, d))
""",
    {
        "shift: plus": (("- centers", "+ centers"),),
        "shift: absent": ((" - centers[:, None, None, :]", " - 0 * centers[:, None, None, :]"),),
        "axes: exchanged": (("centers[:, None, None, :]", "centers.flip(-1)[:, None, None, :]"),),
        "alpha: variance": (("-alpha[:, None, None] * (delta ** 2).sum(-1)", "-(delta ** 2).sum(-1) / (2 * alpha[:, None, None] ** 2)"),),
        "alpha: positive": (("-alpha", "alpha"),),
        "distance: sizes": (("(delta ** 2).sum(-1)", "delta.abs().sum(-1)"),),
        "softmax: queries": (("SOFTMAX(scores, -1)", "SOFTMAX(scores, 1)"),),
    },
)  # fmt: skip
LOSS = Base(
    "language-model loss",
    "lm_loss",
    """def lm_loss(logits, input_ids):
    logits = logits[:, :-1]
    targets = input_ids[:, 1:]
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
""",
    {
        "shift: none": (("    logits = logits[:, :-1]\n    targets = input_ids[:, 1:]\n", ""), ("targets.reshape", "input_ids.reshape")),
        "shift: backwards": (("logits[:, :-1]", "logits[:, 1:]"), ("input_ids[:, 1:]", "input_ids[:, :-1]")),
        "form: softmax first": (("logits[:, :-1]", "SOFTMAX(logits[:, :-1], -1)"),),
        "size: sum": (("targets.reshape(-1))", "targets.reshape(-1), reduction='sum')"),),
        "form: viewed": (("logits.reshape(-1, logits.size(-1))", "logits.transpose(1, 2).reshape(-1, logits.size(-1))"),),
    },
)  # fmt: skip
PARTS = MULTI_HEAD.text + "\n\n" + FEED_FORWARD.text + "\n\n"
ENCODER_LAYER = Base(
    "encoder layer",
    "EncoderLayer",
    PARTS
    + """class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        h = self.norm1(x + self.drop(self.attention(x, x, x, mask)))
        return self.norm2(h + self.drop(self.ffn(h)))
""",
    {
        "residual: no attention": (("self.norm1(x + self.drop(self.attention(x, x, x, mask)))", "self.norm1(self.drop(self.attention(x, x, x, mask)))"),),
        "residual: no feed-forward": (("self.norm2(h + self.drop(self.ffn(h)))", "self.norm2(self.drop(self.ffn(h)))"),),
        "residual: from the input": (("self.norm2(h + ", "self.norm2(x + "),),
        "norms: one shared": (("return self.norm2", "return self.norm1"),),
        "norms: no second": (("return self.norm2(h + self.drop(self.ffn(h)))", "return h + self.drop(self.ffn(h))"),),
        "norms: of the sublayer": (("self.norm1(x + self.drop(self.attention(x, x, x, mask)))", "x + self.norm1(self.drop(self.attention(x, x, x, mask)))"), ("self.norm2(h + self.drop(self.ffn(h)))", "h + self.norm2(self.drop(self.ffn(h)))")),
        "norms: post then pre": (("self.norm2(h + self.drop(self.ffn(h)))", "h + self.drop(self.ffn(self.norm2(h)))"),),
        "feed: reads the input": (("self.ffn(h)", "self.ffn(x)"),),
        "feed: reads attention": (("        h = self.norm1(x + self.drop(self.attention(x, x, x, mask)))\n", "        a = self.drop(self.attention(x, x, x, mask))\n        h = self.norm1(x + a)\n"), ("self.ffn(h)", "self.ffn(a)")),
        "scale: d_model": (("SQRT(self.d_head)", "SQRT(d_model)"),),
        "act: missing": (("F.relu(self.fc1(x))", "self.fc1(x)"),),
    },
)  # fmt: skip
DECODER_LAYER = Base(
    "decoder layer",
    "DecoderLayer",
    PARTS
    + """class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, n_heads)
        self.cross_attn = MultiHeadAttention(d_model, n_heads)
        self.ffn = FeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        h = self.norm1(x)
        x = x + self.self_attn(h, h, h, tgt_mask)
        h = self.norm2(x)
        x = x + self.cross_attn(h, memory, memory, src_mask)
        h = self.norm3(x)
        return x + self.ffn(h)
""",
    {
        "source: memory unused": (("self.cross_attn(h, memory, memory, src_mask)", "self.cross_attn(h, h, h, tgt_mask)"),),
        "memory_mask: not used": (("memory, memory, src_mask", "memory, memory, None"),),
        "target_mask: not used": (("self.self_attn(h, h, h, tgt_mask)", "self.self_attn(h, h, h)"),),
        "order: cross not used": (("        x = x + self.cross_attn(h, memory, memory, src_mask)\n", ""),),
        "residual: no cross": (("x = x + self.cross_attn", "x = self.cross_attn"),),
        "residual: no feed-forward": (("return x + self.ffn(h)", "return self.ffn(h)"),),
        "norms: one shared": (("self.norm2(x)", "self.norm1(x)"), ("self.norm3(x)", "self.norm1(x)")),
    },
)  # fmt: skip
GPT = Base(
    "decoder model",
    "GPT",
    CAUSAL_SELF.text
    + """

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx):
        pos = torch.arange(idx.size(1))
        h = self.wte(idx) + self.wpe(pos)
        for block in self.blocks:
            h = block(h)
        return self.lm_head(self.ln_f(h))
""",
    {
        "positions: not used": (("self.wte(idx) + self.wpe(pos)", "self.wte(idx)"),),
        "positions: from one": (("torch.arange(idx.size(1))", "torch.arange(1, idx.size(1) + 1)"),),
        "stack: first only": (("            h = block(h)", "            h = self.blocks[0](h)"),),
        "final_norm: not used": (("self.lm_head(self.ln_f(h))", "self.lm_head(h)"),),
        "head: softmax": (("return self.lm_head(self.ln_f(h))", "return SOFTMAX(self.lm_head(self.ln_f(h)), -1)"),),
        "causal: one ahead": (("torch.tril(torch.ones(config.block_size, config.block_size))", "torch.tril(torch.ones(config.block_size, config.block_size), diagonal=1)"),),
        "scale: d_model": (("SQRT(C // self.n_head)", "SQRT(C)"),),
        "residual: no attention": (("x = x + self.attn(self.ln_1(x))", "x = self.attn(self.ln_1(x))"),),
    },
)  # fmt: skip
VIT = Base(
    "vision transformer",
    "VisionTransformer",
    MULTI_HEAD.text + "\n\n" + PATCHES.text
    + """

class Block(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = MultiHeadAttention(dim, n_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h)
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, img_size, patch_size, in_channels, embed_dim, depth, n_heads, num_classes):
        super().__init__()
        self.patches = PatchEmbedding(img_size, patch_size, in_channels, embed_dim)
        self.blocks = nn.ModuleList([Block(embed_dim, n_heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def forward(self, img):
        h = self.patches(img)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])
""",
    {
        "patches: rows and columns exchanged": (("self.proj(x).flatten(2)", "self.proj(x).transpose(2, 3).flatten(2)"),),
        "positions: not used": (("return x + self.pos_embed", "return x"),),
        "pool: second": (("[:, 0]", "[:, 1]"),),
        "pool: sum": (("self.norm(h)[:, 0]", "self.norm(h).sum(1)"),),
        "stack: first only": (("            h = block(h)", "            h = self.blocks[0](h)"),),
    },
)  # fmt: skip
SEQ2SEQ = Base(
    "encoder-decoder model",
    "Transformer",
    ENCODER_LAYER.text + "\n\n" + DECODER_LAYER.text[len(PARTS) :].replace("""        h = self.norm1(x)
        x = x + self.self_attn(h, h, h, tgt_mask)
        h = self.norm2(x)
        x = x + self.cross_attn(h, memory, memory, src_mask)
        h = self.norm3(x)
        return x + self.ffn(h)
""", """        x = self.norm1(x + self.self_attn(x, x, x, tgt_mask))
        x = self.norm2(x + self.cross_attn(x, memory, memory, src_mask))
        return self.norm3(x + self.ffn(x))
""")
    + """

class Transformer(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers, max_len):
        super().__init__()
        self.src_emb = nn.Embedding(src_vocab, d_model)
        self.tgt_emb = nn.Embedding(tgt_vocab, d_model)
        self.pos = nn.Embedding(max_len, d_model)
        self.encoder = nn.ModuleList([EncoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.decoder = nn.ModuleList([DecoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.out = nn.Linear(d_model, tgt_vocab)

    def forward(self, src, tgt):
        src_mask = (src != 0)[:, None, None, :]
        n = tgt.size(1)
        tgt_mask = torch.tril(torch.ones(n, n))
        e = self.src_emb(src) + self.pos(torch.arange(src.size(1)))
        for layer in self.encoder:
            e = layer(e, src_mask)
        d = self.tgt_emb(tgt) + self.pos(torch.arange(n))
        for layer in self.decoder:
            d = layer(d, e, src_mask, tgt_mask)
        return self.out(d)
""",
    {
        "causal: missing": (("layer(d, e, src_mask, tgt_mask)", "layer(d, e, src_mask, None)"),),
        "causal: one ahead": (("torch.tril(torch.ones(n, n))", "torch.tril(torch.ones(n, n), diagonal=1)"),),
        "source_padding: not hidden": (("(src != 0)[:, None, None, :]", "None"),),
        "source_padding: not hidden in cross-attention": (("layer(d, e, src_mask, tgt_mask)", "layer(d, e, None, tgt_mask)"),),
        "positions: not used": ((" + self.pos(torch.arange(src.size(1)))", ""), (" + self.pos(torch.arange(n))", "")),
    },
)  # fmt: skip
ENCODER_MODEL = Base(
    "encoder model",
    "TransformerClassifier",
    ENCODER_LAYER.text
    + """

class TransformerClassifier(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, d_ff, n_layers, max_len, num_classes):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList([EncoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.fc = nn.Linear(d_model, num_classes)

    def forward(self, ids):
        h = self.tok_emb(ids) + self.pos_emb(torch.arange(ids.size(1)))
        for layer in self.layers:
            h = layer(h)
        return self.fc(h.mean(dim=1))
""",
    {
        "positions: not used": ((" + self.pos_emb(torch.arange(ids.size(1)))", ""),),
        "stack: first only": (("            h = layer(h)", "            h = self.layers[0](h)"),),
        "pool: sum": (("h.mean(dim=1)", "h.sum(dim=1)"),),
        "residual: from the input": (("self.norm2(h + ", "self.norm2(x + "),),
    },
)  # fmt: skip
ENCODER_STACK = Base(
    "encoder stack",
    "Encoder",
    ENCODER_LAYER.text
    + """

class Encoder(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, n_layers):
        super().__init__()
        self.layers = nn.ModuleList([EncoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        h = x
        for layer in self.layers:
            h = layer(h, mask)
        return self.norm(h)
""",
    {
        "stack: first only": (("            h = layer(h, mask)", "            h = self.layers[0](h, mask)"),),
        "stack: one object": (("[EncoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers)]", "[EncoderLayer(d_model, n_heads, d_ff)] * n_layers"),),
        "stack: last only": (("            h = layer(h, mask)", "            h = layer(x, mask)"),),
        "stack: one missing": (("for layer in self.layers:", "for layer in self.layers[:-1]:"),),
        "final_norm: not used": (("return self.norm(h)", "return h"),),
        "hidden: ignored": (("layer(h, mask)", "layer(h)"),),
    },
)  # fmt: skip
DECODER_STACK = Base(
    "decoder stack",
    "Decoder",
    DECODER_LAYER.text
    + """

class Decoder(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, d_ff, n_layers, max_len):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList([DecoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.fc_out = nn.Linear(d_model, vocab_size)

    def forward(self, tgt, memory, src_mask=None, tgt_mask=None):
        h = self.tok_emb(tgt) + self.pos_emb(torch.arange(tgt.size(1)))
        for layer in self.layers:
            h = layer(h, memory, src_mask, tgt_mask)
        return self.fc_out(h)
""",
    {
        "positions: not used": ((" + self.pos_emb(torch.arange(tgt.size(1)))", ""),),
        "stack: first only": (("            h = layer(h, memory", "            h = self.layers[0](h, memory"),),
        "memory_mask: not used": (("layer(h, memory, src_mask, tgt_mask)", "layer(h, memory, None, tgt_mask)"),),
        "target_mask: not used": (("layer(h, memory, src_mask, tgt_mask)", "layer(h, memory, src_mask)"),),
        "residual: no cross": (("x = x + self.cross_attn", "x = self.cross_attn"),),
    },
)  # fmt: skip
BASES = (
    ATTENTION, CAUSAL_ATTENTION, SELF_ATTENTION, SOFTMAX, MULTI_HEAD, CAUSAL_SELF, LAYER_NORM, RMS_NORM, GELU, FEED_FORWARD, SINUSOID, GRID, LEARNED, ROTARY, ALIBI,
    RELATIVE, CAUSAL_MASK, PADDING_MASK, WINDOW_MASK, PATCHES, POOLING, GAUSSIAN, LOSS, ENCODER_LAYER, DECODER_LAYER, GPT, VIT, SEQ2SEQ, ENCODER_MODEL, ENCODER_STACK, DECODER_STACK,
)  # fmt: skip
