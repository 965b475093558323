"""All claims: every file in `claims/` is one, and its name is the claim's. There is no list to keep.

>>> [label.document for label in labels() if label.name == "temperature"]
['NYU']
"""

import ast
import difflib
import importlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwork.lab.label import DOCUMENTS, Label, read_docstring

if TYPE_CHECKING:
    from headwork.lab.claim import Claim

FOLDER = Path(__file__).parent / "claims"
N_NEAREST = 3


def find(name: str) -> "Claim[Any, Any]":
    """The claim of this name; no other file is read.

    >>> find("temprature")
    Traceback (most recent call last):
    ValueError: claim 'temprature' is not known; the nearest is temperature
    """
    name, names = name.replace("_", "-"), sorted(map(_name, _files()))
    if name not in names:
        close = difflib.get_close_matches(name, names, N_NEAREST) or [known for known in names if name in known]
        hint = f"the nearest {'is' if len(close) == 1 else 'are'} {', '.join(close)}" if close else "see `headwork lab`"
        raise ValueError(f"claim {name!r} is not known; {hint}")
    return importlib.import_module(f"headwork.lab.claims.{name.replace('-', '_')}").CLAIM


@cache
def labels() -> tuple[Label, ...]:
    """Every claim, by document and question; this alone reads all files, as text."""
    found = [_read_label(path) for path in _files()]
    return tuple(sorted(found, key=lambda label: (DOCUMENTS.index(label.document), label.question, label.name)))


def _files() -> list[Path]:
    return list(FOLDER.glob("[!_]*.py"))


def _name(path: Path) -> str:
    return path.stem.replace("_", "-")


def _read_label(path: Path) -> Label:
    """Read `CLAIM = Claim(..., document=..., question=...)` and the docstring as text."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name("CLAIM")], value=ast.Call(keywords=keywords)):
                given = {keyword.arg: keyword.value for keyword in keywords}
                document, question = (ast.literal_eval(given[word]) for word in ("document", "question"))
                return Label(_name(path), document, question, read_docstring(ast.get_docstring(tree))[0])
            case _:
                pass
    raise ValueError(f"a file of claims must end in CLAIM = Claim(...), got {path} without")
