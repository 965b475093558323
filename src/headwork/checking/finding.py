"""Which functions and classes of a file are candidates, and for which subject: by comment, by name."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwork.checking.option import Subject

OTHER_FRAMEWORKS = {
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "jax": "JAX",
    "flax": "Flax",
    "mxnet": "MXNet",
    "paddle": "Paddle",
    "mindspore": "MindSpore",
}
NOT_CANDIDATES = r"test.*|.*(dummy|placeholder|mock|stub|normalize_).*|.*(_test|dataset|tokenizer|trainer|config|args|scheduler|optimizer|loader|configuration|error)|main|train.*|plot.*|show.*|visual.*|run.*|load.*|save.*|get_(data|batch).*|clones?|evaluate.*|generate.*|__.*|.*(_example|_demo|_usage)|estimate_.*|sequential_?(en|de)coder|.*(rnn|lstm|gru|resnet|res_next|bo_?w|cnn|conv_?net)(_.*)?|(transformer|token|input|word|encoder|decoder|bert)_?embeddings?|.*(_block_list|_wrapper_base)"


LARGEST_PROGRAM, LARGEST_NOTEBOOK = 512 * 1024, 32 * 1024**2
"""Bytes; pictures make notebooks large."""


class UnreadableError(ValueError):
    """A file that is no Python program, or none that can be checked; the message says why."""


@dataclass(frozen=True)
class Found:
    """A name of the program with the subjects that it may be, the likeliest first; `sure` if a name or comment says so."""

    name: str
    subjects: tuple[Subject, ...]
    sure: bool = True


def snake(name: str) -> str:
    """CamelCase as words.

    >>> snake("MultiHeadAttention"), snake("RMSNorm"), snake("GPT2Block")
    ('multi_head_attention', 'rms_norm', 'gpt2_block')
    """
    apart = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z\d])([A-Z])", r"\1_\2", apart).lower().strip("_")


def read_source(path: Path) -> str:
    """The program of a .py file or of the code cells of a notebook."""
    largest = LARGEST_NOTEBOOK if path.suffix == ".ipynb" else LARGEST_PROGRAM
    with path.open("rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise UnreadableError(f"{path} must have at most {largest} bytes, got more")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path} must be UTF-8, got the byte 0x{error.object[error.start]:02x}") from None
    if path.suffix == ".ipynb":
        text = read_notebook(path, text)
        if len(text) > LARGEST_PROGRAM:
            raise UnreadableError(f"{path} must have at most {LARGEST_PROGRAM} characters of code, got {len(text)}")
    elif "\0" in text:
        raise UnreadableError(f"{path} must be a Python program, got a file with null bytes")
    try:
        tree = ast.parse(text, str(path))
    except SyntaxError as error:
        raise UnreadableError(f"{path} does not parse: {error.msg} (line {error.lineno})") from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise UnreadableError(f"{path} does not parse: {error}") from None
    check_framework(path, tree)
    return text


def check_framework(path: Path, tree: ast.Module) -> None:
    imported = {
        n.split(".")[0]
        for s in ast.walk(tree)
        for n in (
            [a.name for a in s.names]
            if isinstance(s, ast.Import)
            else [s.module or ""]
            if isinstance(s, ast.ImportFrom)
            else []
        )
    }
    others = [OTHER_FRAMEWORKS[name] for name in OTHER_FRAMEWORKS if name in imported]
    if others and "torch" not in imported:
        raise UnreadableError(f"{path} is written for {others[0]}: check runs PyTorch and NumPy programs")


def read_notebook(path: Path, text: str) -> str:
    """The code cells one after the other; magics and shell lines become comments, and a cell that does not parse too."""
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnreadableError(f"{path} must be a notebook (JSON with cells), got something else") from None
    programs = []
    for number, source in enumerate(sources, start=1):
        lines = [f"pass  # {line}" if re.match(r"\s*[%!?]", line) else line for line in source.splitlines()]
        if lines and lines[0].startswith("pass  # %%"):
            lines = [f"# {line}" for line in lines]
        program = "\n".join(lines)
        try:
            ast.parse(program)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            program = "\n".join(f"# {line}" for line in lines)
        programs.append(f"# cell {number}\n{program}")
    return "\n\n".join(programs) + "\n"


def find(
    names: Mapping[str, Any],
    source: str,
    subjects: Sequence[Subject],
    wanted: str | None = None,
    as_: str | None = None,
) -> list[Found]:
    """The candidates of a program, in the order of the file."""
    said, abstract = comments(source), abstract_classes(source)
    found = []
    for name, facts in names.items():
        if wanted is not None and name != wanted:
            continue
        kind = facts["kind"]
        if kind == "instance" and wanted is None:
            continue
        fitting = [s for s in subjects if kind in s.kinds and fits(s, facts)]
        if as_ is not None or name in said:
            chosen = [s for s in fitting if s.name == (as_ or said.get(name))]
            if chosen and (as_ is None or wanted is not None or named(chosen[0], name) or name in said):
                found.append(Found(name, tuple(chosen)))
            continue
        if (re.fullmatch(NOT_CANDIDATES, snake(name)) or name in abstract) and wanted is None:
            continue
        matching = [
            s for s in fitting if named(s, name) and not (s.name == "patch embedding" and reads_ids(name, facts))
        ]
        if matching:
            found.append(Found(name, tuple(matching)))
        elif wanted is not None:
            found.append(Found(name, tuple(fitting), sure=False))
    return found


def reads_ids(name: str, facts: Mapping[str, Any]) -> bool:
    """An embedding that is made for a vocabulary, and not for images."""
    if re.search(r"patch|vi_?t|image", snake(name)):
        return False
    words = " ".join(
        p["name"] for p in (*(facts.get("init") or ()), *(facts.get("forward") or facts.get("call") or ()))
    )
    return not re.search(r"(?i)patch|im(a)?g|config|cfg|channel|pixel|args", words)


def abstract_classes(source: str) -> set[str]:
    """Classes whose forward does nothing but raise: others are made of them."""
    return {
        node.name
        for node in (ast.parse(source).body if source else [])
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "forward" and isinstance(method.body[-1], ast.Raise)
    }


def named(subject: Subject, name: str) -> bool:
    return re.fullmatch(subject.pattern, snake(name)) is not None


def fits(subject: Subject, facts: Mapping[str, Any]) -> bool:
    """Whether something can be called like this subject at all."""
    if facts["kind"] == "class" and facts.get("forward") is None:
        return False
    parameters = facts.get("call") if facts["kind"] == "function" else facts.get("forward")
    if parameters is None:
        return True
    if facts["kind"] == "function" and not parameters:
        return False
    required = [p for p in parameters if not p["optional"]]
    return len(required) <= 10


def comments(source: str) -> dict[str, str]:
    """`# headwork: attention` on the line of a definition or above it."""
    found = {}
    lines = source.splitlines()
    for i, line in enumerate(lines):
        mark = re.search(r"#\s*headwork:\s*([\w -]+)", line)
        if mark:
            for other in lines[i : i + 3]:
                definition = re.match(r"\s*(?:def|class)\s+(\w+)", other)
                if definition:
                    found[definition[1]] = mark[1].strip()
                    break
    return found


def guess(names: Mapping[str, Any], subjects: Sequence[Subject]) -> list[Found]:
    """Where no name says anything: everything that can be called, as anything."""
    found = []
    for name, facts in names.items():
        if re.fullmatch(NOT_CANDIDATES, snake(name)):
            continue
        fitting = tuple(s for s in subjects if facts["kind"] in s.kinds and fits(s, facts))
        if fitting:
            found.append(Found(name, fitting, sure=False))
    return found[:12]
