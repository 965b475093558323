"""From a mistake to the line of code: which lines of the program do the scaling, the softmax, the splitting of heads ..."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FEATURES: dict[str, tuple[str, str]] = {
    "softmax": (r"softmax|Softmax|softargmax|\.exp\(", "first"),
    "sigmoid": (r"sigmoid", "first"),
    "scale": (r"sqrt|\*\*\s*\(?-?\s*(0?\.5|0?\.25|1\s*/\s*[24])|(?i:scale|temper)|/\s*(self\.)?(math\.)?d(_k|_model|im|k)?\b|/\s*\w*\.(size|shape)|rsqrt|pow\(", "first"),
    "scores": (r"@|matmul|bmm|einsum|cdist|normalize|dot\(", "first"),
    "mix": (r"@|matmul|bmm|einsum", "last"),
    "mask": (r"masked_fill|torch\.where|(?i:mask)\s*[=)*+\]]|[+*-]\s*\(?\s*(1(\.0)?\s*-\s*)?\w*(?i:mask)|visible|-1e|inf", "first"),
    "causal": (r"tril|triu|is_causal|subsequent|causal_mask", "first"),
    "split": (r"view\(|reshape\(|rearrange\(|chunk\(|\.split\(|unflatten", "first"),
    "join": (r"view\(|reshape\(|rearrange\(|flatten\(|\.cat\(|concat", "last"),
    "repeat": (r"repeat|expand|tile", "first"),
    "output": (r"self\.(\w*(out|proj|unify|fc|w_?o|linear_o|o_proj|c_proj|dense|o)\w*)\(|linears\[-1\]|@\s*self\.\w*[oO]\b", "last"),
    "qkv": (r"(self\.\w*(q|query|qkv|k|key|v|value|attn|proj|linear)\w*\(|@\s*(self\.)?[wW]_?[qkv])", "first"),
    "return": (r"\breturn\b", "last"),
    "root": (r"sqrt|rsqrt|\*\*\s*-?\s*0?\.5|std\(|pow\(", "first"),
    "variance": (r"var\(|std\(|pow\(2|\*\*\s*2|square", "first"),
    "mean": (r"mean\(|sum\(", "first"),
    "eps": (r"(?i:eps)|1e-", "last"),
    "affine": (r"(self\.)?(weight|gamma|g|scale|a_2|alpha|gain|bias|beta|b_2|shift)\b", "last"),
    "erf": (r"erf|tanh|sigmoid|cdf|exp", "first"),
    "cube": (r"0?\.0*44\d*|\*\*\s*[23]|pow\(", "first"),
    "half": (r"return|0?\.5", "last"),
    "activation": (r"(?i:relu|gelu|silu|swish|tanh|sigmoid|softmax|activation|self\.act\w*\(|nonlin)", "first"),
    "gate": (r"\*|gate", "last"),
    "second": (r"self\.\w+\(", "last"),
    "sin": (r"sin\(|cos\(", "first"),
    "cos": (r"cos\(", "first"),
    "base": (r"10_?000|1e4|log\(|theta|base|pow|\*\*|exp\(", "first"),
    "positions": (r"arange|range\(|position", "first"),
    "cat": (r"cat\(|stack\(|concat|\[.*::2\]", "last"),
    "slope": (r"\*\*|pow|slope|2\s*\*\*", "first"),
    "distance": (r"arange|abs\(|-\s*\w+", "last"),
    "clamp": (r"clamp|clip|minimum|min\(|max\(", "first"),
    "residual": (r"\+", "first"),
    "residual2": (r"\+", "last"),
    "norm": (r"(?i:norm|ln)\w*(\[\d\])?\(", "first"),
    "norm2": (r"(?i:norm|ln)\w*(\[\d\])?\(", "last"),
    "attend": (r"(?i:att)\w*(\[\d\])?\(", "first"),
    "cross": (r"(?i:cross|enc|src|memory|attn2|inter)\w*", "last"),
    "feed": (r"(?i:ff|feed|mlp|fc|linear|pos_ffn)\w*(\[\d\])?\(", "last"),
    "embed": (r"(?i:emb|wte|token)\w*(\[\d\])?\(", "first"),
    "add_positions": (r"(?i:pos|wpe|pe\b)\w*", "first"),
    "layers": (r"for |layers|blocks|encoder\(|Sequential", "first"),
    "head": (r"(?i:head|fc_out|lm_head|proj|out|classif)\w*\(", "last"),
    "pool": (r"mean\(|\[:,\s*-?\d|max\(|sum\(|cls", "last"),
    "class token": (r"(?i:cls|class_token)", "last"),
    "unfold": (r"(?i:conv|unfold|rearrange|reshape|view|proj)\w*\(", "first"),
    "flatten": (r"flatten|transpose|permute|rearrange", "first"),
    "slices": (r"\[[^\]]*:[^\]]*\]", "first"),
    "loss": (r"cross_entropy|CrossEntropy|nll|log_softmax|loss", "first"),
    "made in forward": (r"nn\.(Linear|LayerNorm|Embedding|Conv\d?d?|MultiheadAttention|Parameter)\(", "first"),
    "dropout": (r"(?i:dropout|bernoulli|rand)", "first"),
    "detach": (r"detach|no_grad|\.data\b|\.item\(|numpy\(", "first"),
    "def": (r"^\s*(def|class)\s", "first"),
}  # fmt: skip
"""What to look for in a line, and whether the first such line of a function is meant or the last."""


@dataclass(frozen=True)
class Line:
    """A line of somebody's file."""

    number: int
    text: str


def find_line(source: str, name: str, features: Iterable[str]) -> Line | None:
    """The line of the program, or of what it uses of the same file, that does the first feature that is there."""
    parts = _parts(source, name)
    lines = source.splitlines()
    for feature in features:
        pattern, which = FEATURES[feature]
        for numbers in parts:
            hits = [n for n in numbers if re.search(pattern, _code(lines[n - 1]))]
            if hits:
                number = hits[0] if which == "first" else hits[-1]
                return Line(number, lines[number - 1].strip())
    return None


def own_source(source: str, name: str) -> str:
    """The lines of a function or class, and of what it uses of the same file."""
    lines = source.splitlines()
    return "\n".join(_code(lines[n - 1]) for numbers in _parts(source, name)[:-1] for n in numbers) or source


def _code(line: str) -> str:
    """Without a comment, and without a string that is a docstring's."""
    return "" if re.match(r"\s*(\"\"\"|''')", line) else re.sub(r"(^|\s)#.*$", "", line)


def _parts(source: str, name: str) -> list[list[int]]:
    """Numbers of lines to search: what runs in a call first, then constructors; the candidate before what it uses."""
    tree = ast.parse(source)
    defined = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)}
    order: list[str] = []
    front = [name] if name in defined else []
    while front:
        current = front.pop(0)
        if current in order:
            continue
        order.append(current)
        names = {n.id for n in ast.walk(defined[current]) if isinstance(n, ast.Name)}
        front += [n for n in defined if n in names]
    running: list[list[int]] = []
    making: list[list[int]] = []
    for each in order:
        node = defined[each]
        methods = (
            [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else [node]
        )
        methods.sort(key=lambda m: m.name not in ("forward", "__call__"))
        for method in methods:
            (making if getattr(method, "name", "") == "__init__" else running).append(_lines(method))
    top = sorted({n for s in tree.body if not isinstance(s, ast.FunctionDef | ast.ClassDef) for n in _lines(s)})
    return [*running, *making, top]


def _lines(node: ast.stmt) -> list[int]:
    body: Sequence[ast.stmt] = getattr(node, "body", [])
    skipped: set[int] = set()
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        skipped = set(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    inside = bool(body) and isinstance(node, ast.FunctionDef) and body[0].lineno > node.lineno
    first = body[0].lineno if inside else node.lineno
    return [n for n in range(first, (node.end_lineno or 0) + 1) if n not in skipped]
