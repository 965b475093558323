"""From a mistake to the line of code: which lines of the program do the scaling, the softmax, the splitting of heads ..."""

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

ATTENTION, LAYER, FEED = r"(?i)att|mha|head|sdpa", r"(?i)layer|block", r"(?i)feed|ffn?$|mlp|position_?wise"
MOVED = r"transpose|permute|swapaxes|movedim|rearrange|\.mT\b|einsum"


@dataclass(frozen=True)
class Feature:
    """What to look for in a line, and whether the first such line of a function is meant or the last.

    Lines with `without` are passed over; functions and classes whose names have `owner` are searched first; `follow`
    goes on to where the name that the pattern's first group caught got its value.
    """

    pattern: str
    which: Literal["first", "last"] = "first"
    without: str = ""
    owner: str = ""
    follow: bool = False


FEATURES: dict[str, Feature] = {
    "softmax": Feature(r"softmax|Softmax|softargmax|\.exp\(|torch\.exp\(|np\.exp\(", owner=ATTENTION),
    "last softmax": Feature(r"softmax|Softmax", "last"),
    "log": Feature(r"log"),
    "base 2": Feature(r"exp2|2(\.0)?\s*\*\*|pow\(2"),
    "sigmoid": Feature(r"sigmoid", owner=ATTENTION),
    "scale": Feature(r"sqrt|\*\*\s*\(?-?\s*(0?\.5|0?\.25|2|1\s*/\s*[24])|(?i:scale(?!d_dot)|temper)|/\s*(self\.)?(math\.)?d(_k|_model|im|k|_head)?\b|/\s*\w*\.(size|shape)|rsqrt|pow\(", owner=ATTENTION),
    "width": Feature(r"(?:sqrt\(|\(|/|\*)\s*\(?((?:self\.)?(?!\w*(?:d_model|dim_model|hidden|emb|dropout|device|dtype|data))(?:\w+_)?(?:d|dk|d_k|d_head|dim|head_dim|dim_head|scale|depth|scaling|inv_scale|norm_fact)\w*)\b\)*\s*(?:\*\*|,|\)|$)", owner=ATTENTION, follow=True),
    "scores": Feature(r"@|matmul|bmm|einsum|cdist|normalize|dot\(|baddbmm|\bmm\(|F\.cosine_similarity|scaled_dot_product_attention\(", owner=ATTENTION),
    "normalize": Feature(r"normalize|norm\(|cosine", owner=ATTENTION),
    "weights": Feature(r"(?:(?:matmul|bmm|einsum|mm|dot)\((?:[\"'][^\"']*[\"'],)?\s*|\(|return |=\s*)\(?(?!torch\b|np\b|F\b)(\w+)(?:\s*@|,|\.matmul|\.bmm|\.mm\()", "last", owner=ATTENTION, follow=True),
    "mix": Feature(r"@|matmul|bmm|einsum|\bmm\(", "last", without=r"self\.\w*(out|proj|w_?o|fc)\w*\(\s*\w+\s*\)$", owner=ATTENTION),
    "mask": Feature(r"masked_fill|torch\.where|np\.where|(?i:mask)\s*[=)*+\]]|[+*-]\s*\(?\s*(1(\.0)?\s*-\s*)?\w*(?i:mask)|visible|-1e|inf\b", owner=ATTENTION),
    "fill": Feature(r"masked_fill|torch\.where|np\.where|-?1e[-+]?\d|inf\b|[+*]\s*\(?\s*(1(\.0)?\s*-\s*)?\w*(?i:mask)", owner=ATTENTION),
    "mask after": Feature(r"\*=?\s*(self\.)?\w*(?i:mask|tril|visible|causal)|masked_fill", "last", owner=ATTENTION),
    "source mask": Feature(r"(?i:src|source|enc|pad|key)\w*mask|!=\s*\w*(?i:pad)|!=\s*0"),
    "triangle": Feature(r"\btri[lu]_?\(|subsequent_mask\(|is_causal\s*=|(?<![a-zA-Z_])(?i:arange|range)\(.*[<>]|\[:, *None\].*[<>]|\[None.*[<>]"),
    "causal": Feature(r"tril|triu|is_causal|subsequent|causal_mask|[<>]=?\s*\w+\s*[+-]\s*1|for j in range"),
    "bare split": Feature(r"view\(|reshape\(|unflatten\(", without=MOVED, owner=ATTENTION),
    "split": Feature(r"view\(|reshape\(|rearrange\(|unflatten|chunk\(|\.split\(", owner=ATTENTION),
    "axes": Feature(r"rearrange\(|permute\(|view\(|reshape\(|unflatten", owner=ATTENTION),
    "bare join": Feature(r"view\(|reshape\(|flatten\(", "last", without=MOVED, owner=ATTENTION),
    "join": Feature(r"view\(|reshape\(|rearrange\(|flatten\(|\.cat\(|concat", "last", owner=ATTENTION),
    "repeat": Feature(r"\.repeat\(|\.tile\(|torch\.tile|\.expand\(|repeat_interleave"),
    "output": Feature(r"self\.(\w*(out|proj|unify|fc|w_?o|linear_o|o_proj|c_proj|dense|o)\w*)\(|linears\[-1\]|@\s*self\.\w*[oO]\b", "last", owner=ATTENTION),
    "qkv": Feature(r"(self\.\w*(q|query|qkv|k|key|v|value|attn|proj|linear)\w*\(|@\s*(self\.)?[wW]_?[qkv])", owner=ATTENTION),
    "return": Feature(r"\breturn\b", "last"),
    "root": Feature(r"sqrt|rsqrt|\*\*\s*-?\s*0?\.5|std\(|pow\("),
    "denominator": Feature(r"/|rsqrt|\*\*\s*-"),
    "variance": Feature(r"var\(|std\(|pow\(2|\*\*\s*2|square"),
    "mean": Feature(r"mean\(|sum\("),
    "sum": Feature(r"sum\("),
    "absolute": Feature(r"abs\("),
    "multiplied": Feature(r"\*.*(?<!r)sqrt|\*.*\*\*\s*0?\.5"),
    "eps": Feature(r"(?i:eps)|1e-", "last"),
    "affine": Feature(r"(self\.)?(weight|gamma|g|scale|a_2|alpha|gain|bias|beta|b_2|shift)\b", "last"),
    "erf": Feature(r"erf|tanh|sigmoid|cdf|exp"),
    "pi": Feature(r"\bpi\b|0\.79\d+|1\.25\d+|0\.63\d+"),
    "cube": Feature(r"0?\.0*44\d*|\*\*\s*[23]|pow\("),
    "half": Feature(r"return|0?\.5", "last"),
    "activation": Feature(r"(?i:relu|gelu|silu|swish|tanh|sigmoid|softmax|activation|self\.act\w*\(|nonlin)", owner=FEED),
    "last activation": Feature(r"(?i:relu|gelu|silu|swish|tanh|sigmoid|softmax|activation|self\.act\w*\(|nonlin)", "last", owner=FEED),
    "gate": Feature(r"\*|gate|\+", "last", owner=FEED),
    "up": Feature(r"self\.\w+\(|@\s*(self\.)?w|Linear\(|Sequential\(", owner=FEED),
    "second": Feature(r"self\.\w+\(", "last", owner=FEED),
    "sin": Feature(r"sin\(|cos\("),
    "last sin": Feature(r"sin\(", "last"),
    "cos": Feature(r"cos\("),
    "turn": Feature(r"\*\s*(self\.)?\w*(sin|cos)|\bsin\w*\s*\*|rotate_half\(|\*\s*\w*\.(sin|cos)\(|view_as_complex"),
    "minus": Feature(r"-\s*\w+\[|cat\(|stack\("),
    "base": Feature(r"10_?0+\b|1e\d|log\(|theta|base|pow|\*\*|exp\("),
    "positions": Feature(r"arange|range\(|position"),
    "cat": Feature(r"cat\(|stack\(|concat|\[.*::2\]", "last"),
    "slope": Feature(r"\*\*|pow|slope|2\s*\*\*"),
    "distance": Feature(r"arange|abs\(|-\s*\w+", "last"),
    "difference": Feature(r"\[None.*[-+]|None\].*[-+]|unsqueeze.*[-+]|\b[ij]\s*[-+]\s*[ij]\b|view\(.*[-+]"),
    "centre": Feature(r"(?i:cent(er|re)|shift|delta\s*=|mu\b)"),
    "alpha": Feature(r"(?i:alpha|sigma|spread|precision)"),
    "clamp": Feature(r"clamp|clip|minimum|min\(|max\("),
    "comparison": Feature(r"[<>]=?|eq\(|[lg][te]\(|==|!=", "last"),
    "residual": Feature(r"\+", owner=LAYER),
    "residual2": Feature(r"\+", "last", owner=LAYER),
    "norm": Feature(r"(?i:norm|ln)\w*(\[\d\])?\(", owner=LAYER),
    "norm2": Feature(r"(?i:norm|ln)\w*(\[\d\])?\(", "last", owner=LAYER),
    "attend": Feature(r"(?i:att|mha)\w*(\[\d\])?\(", owner=LAYER),
    "cross": Feature(r"(?i:cross|enc|src|memory|attn2|inter)\w*", "last", owner=LAYER),
    "cross unmasked": Feature(r"(?i:cross|enc|src|memory|attn_?2|inter)\w*(\[\d\])?\(", "last", without=r"(?i)mask|^\s*self\.\w+\s*=", owner=LAYER),
    "attend unmasked": Feature(r"(?i:att|mha)\w*(\[\d\])?\(", without=r"(?i)mask|cross|src|memory|^\s*self\.\w+\s*=", owner=LAYER),
    "layer without a mask": Feature(r"\b(\w+_)?(?i:layer|block|blk)(_\w?)?(\[\w+\])?\(", "last", without=r"(?i)mask|ModuleList|range"),
    "layer without the mask of the source": Feature(r"\b(\w+_)?(?i:layer|block|blk)(_\w?)?(\[\w+\])?\(", "last", without=r"(?i)(src|source|enc|memory)\w*mask|ModuleList|range"),
    "layer without the mask of the target": Feature(r"\b(\w+_)?(?i:layer|block|blk)(_\w?)?(\[\w+\])?\(", "last", without=r"(?i)(tgt|trg|target|dec)\w*mask|ModuleList|range"),
    "cross made": Feature(r"self\.\w*(?i:cross|enc|src|attn_?2|inter)\w*\s*=", owner=LAYER),
    "feed": Feature(r"(?i:ff|feed|mlp|fc|linear|pos_ffn)\w*(\[\d\])?\(", "last", owner=LAYER),
    "embed": Feature(r"(?i:emb|wte|token)\w*(\[\d\])?\(", without=r"^\s*class\s|^\s*self\.\w+\s*="),
    "embedded": Feature(r"\breturn\b", "last", owner=r"(?i)patch|emb"),
    "add_positions": Feature(r"(?<![a-z])(?i:pos_|pos\b|pos[A-Z]|position|wpe|pe\b)\w*", without=r"arange|^\s*(self\.)?pos\w*\s*=|^\s*def "),
    "add_positions in a call": Feature(r"[+]\s*(self\.)?(?i:pos|wpe|pe)\w*|[+].*(?<![a-z])(?i:pos)\w*"),
    "repeated layer": Feature(r"\]\s*\*\s*(self\.)?\w+|\w+\s*\*\s*\["),
    "one layer": Feature(r"(?i:layer|block|^h$|encoder|decoder)\w*\[-?\d\]"),
    "in the loop": Feature(r"=\s*(self\.)?(\w+_)?(?i:layer|block|blk|l|mod|module|b)\w*\("),
    "layers": Feature(r"for |layers|blocks|encoder\(|Sequential"),
    "decoder call": Feature(r"(?i:dec|layer|block)\w*\(", "last", without=r"Module|Layer\(|Block\("),
    "head": Feature(r"(?i:head|fc_out|lm_head|proj|out|classif)\w*\(", "last"),
    "pool": Feature(r"mean\(|\[:,\s*-?\d|max\(|sum\(|cls", "last"),
    "class token": Feature(r"(?i:cls|class_token)", "last"),
    "unfold": Feature(r"(?i:conv|unfold|rearrange|reshape|view|proj)\w*\("),
    "flatten": Feature(r"flatten|transpose|permute|rearrange"),
    "slices": Feature(r"\[[^\]]*:[^\]]*\]|roll\("),
    "loss": Feature(r"cross_entropy|CrossEntropy|nll|log_softmax|loss"),
    "made in forward": Feature(r"nn\.(Linear|LayerNorm|Embedding|Conv\d?d?|MultiheadAttention|Parameter)\("),
    "plain": Feature(r"self\.\w+\s*=\s*torch\.(randn?|empty|zeros|ones|tensor)"),
    "dropout": Feature(r"(?i:dropout|bernoulli|rand)"),
    "detach": Feature(r"detach|no_grad|\.data\b|\.item\(|numpy\("),
    "def": Feature(r"^\s*(def|class)\s"),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of somebody's file; of a notebook, of one of its code cells."""

    number: int
    text: str
    cell: int | None = None

    @property
    def place(self) -> str:
        return f"line {self.number}" if self.cell is None else f"cell {self.cell}, line {self.number}"


def in_cell(source: str, line: Line) -> Line:
    """The line of a notebook's program as the line of its cell."""
    lines = source.splitlines()
    for start in range(line.number - 1, -1, -1):
        mark = re.fullmatch(r"# cell (\d+)", lines[start])
        if mark:
            return Line(line.number - start - 1, line.text, int(mark[1]))
    return line


def place_of(source: str, filename: str, number: int) -> str:
    """A line of a file, or of a cell of a notebook, in words."""
    line = Line(number, "")
    return (in_cell(source, line) if filename.endswith(".ipynb") else line).place


def find_line(source: str, name: str, features: Iterable[str]) -> Line | None:
    """The line of the program, or of what it uses of the same file, that does the first feature that is there."""
    parts = _parts(source, name)
    lines = source.splitlines()
    for each in features:
        feature = FEATURES[each]
        for _, numbers in sorted(parts, key=lambda part: not (feature.owner and re.search(feature.owner, part[0]))):
            number = _hit(feature, lines, numbers)
            if number is not None:
                return Line(number, lines[number - 1].strip())
    return None


def _hit(feature: Feature, lines: Sequence[str], numbers: Sequence[int]) -> int | None:
    """The line of a function that has the feature."""
    hits: list[tuple[int, re.Match[str]]] = []
    for n in numbers:
        code = _code(lines[n - 1])
        match = re.search(feature.pattern, code)
        if match and not (feature.without and re.search(feature.without, code)):
            hits.append((n, match))
    for n, match in hits if feature.which == "first" else hits[::-1]:
        if not feature.follow:
            return n
        got = [m for m in numbers if m < n and re.match(rf"\s*{re.escape(match[1])}\s*=[^=]", _code(lines[m - 1]))]
        if got:
            return got[-1]
    return None


@lru_cache(64)
def own_source(source: str, name: str) -> str:
    """The lines of a function or class, and of what it uses of the same file."""
    lines = source.splitlines()
    return "\n".join(_code(lines[n - 1]) for _, numbers in _parts(source, name)[:-1] for n in numbers) or source


@lru_cache(64)
def called_arguments(source: str, name: str) -> frozenset[str]:
    """Arguments of a constructor that the class calls, clones or loops over: they are modules."""
    kind = next((n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if kind is None:
        return frozenset()
    kept: dict[str, str] = {}
    used: set[str] = set()
    for node in ast.walk(kind):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = (
                    zip(target.elts, node.value.elts, strict=False)
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    else [(target, node.value)]
                )
                kept |= {a.attr: b.id for a, b in pairs if isinstance(a, ast.Attribute) and isinstance(b, ast.Name)}
        elif isinstance(node, ast.Call):
            used.add(ast.unparse(node.func))
            if re.search(r"clone|copy", ast.unparse(node.func)):
                used |= {ast.unparse(a) for a in node.args[:1]}
        elif isinstance(node, ast.For | ast.comprehension):
            inside = re.fullmatch(r"(?:enumerate\(|reversed\()?(self\.\w+)\)?", ast.unparse(node.iter))
            used |= {inside[1]} if inside else set()
    return frozenset(b for a, b in kept.items() if f"self.{a}" in used) | frozenset(used)


def names_bound_at(source: str, line: int) -> set[str]:
    """What the statement at a line of the program would have defined."""
    node = next((n for n in ast.parse(source).body if n.lineno == line), None)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} if node else set()


@lru_cache(64)
def is_whole(source: str, name: str) -> bool:
    """Whether a function or class uses no part of another file."""
    known = r"(torch|math|numpy|einops|typing|dataclasses|functools|collections|copy|abc|enum|os|sys|time|random|__future__|itertools|re|json|jaxtyping)\b"
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    foreign = {
        alias.asname or alias.name
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom) and (n.level > 0 or not re.match(known, n.module or ""))
        for alias in n.names
    }
    own = own_source(source, name)
    return not any(each == "*" or re.search(rf"\b{re.escape(each)}\b", own) for each in foreign)


def _code(line: str) -> str:
    """Without a comment, and without a string that is a docstring's."""
    return "" if re.match(r"\s*(\"\"\"|''')", line) else re.sub(r"(^|\s)#.*$", "", line)


@lru_cache(64)
def _parts(source: str, name: str) -> list[tuple[str, list[int]]]:
    """Numbers of lines to search, with whose they are: what runs in a call first, then constructors, then the rest."""
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
    running: list[tuple[str, list[int]]] = []
    making: list[tuple[str, list[int]]] = []
    for each in order:
        node = defined[each]
        methods = (
            [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)] if isinstance(node, ast.ClassDef) else [node]
        )
        methods.sort(key=lambda m: m.name not in ("forward", "__call__"))
        for method in methods:
            (making if getattr(method, "name", "") == "__init__" else running).append((each, _lines(method)))
    top = sorted({n for s in tree.body if not isinstance(s, ast.FunctionDef | ast.ClassDef) for n in _lines(s)})
    return [*running, *making, ("", top)]


def _lines(node: ast.stmt) -> list[int]:
    body: Sequence[ast.stmt] = getattr(node, "body", [])
    skipped: set[int] = set()
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        skipped = set(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    inside = bool(body) and isinstance(node, ast.FunctionDef) and body[0].lineno > node.lineno
    first = body[0].lineno if inside else node.lineno
    return [n for n in range(first, (node.end_lineno or 0) + 1) if n not in skipped]
