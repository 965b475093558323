"""All claims, by name and by document: every file in `claims/` is one, and its name is the claim's. No list is kept.

>>> [label.document for label in labels() if label.name == "temperature"]
['NYU']
"""

import ast
import difflib
import importlib
import inspect
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from headwork.lab.claim import Claim

FOLDER = Path(__file__).parent / "claims"
N_NEAREST = 3

Document = Literal["NYU", "ETH", "C182", "QMUL", "EECS 182", "beyond"]

TITLES: dict[Document, str] = {
    "NYU": "New York University, Deep Learning, Homework 4: Transformer",
    "ETH": "ETH Zürich, Assignment 6: Attention and Transformers",
    "C182": "UC Berkeley, Data C182, Discussion 06",
    "QMUL": "Queen Mary University of London, ECS795P, Coursework 1",
    "EECS 182": "UC Berkeley, EECS 182, Final Review: Transformers",
    "beyond": "Beyond the five documents",
}
"""The five documents by their short names, in the order in which they are listed."""
DOCUMENTS: tuple[Document, ...] = get_args(Document)
SHEETS = DOCUMENTS[:-1]
"""Those that somebody else wrote."""


@dataclass(frozen=True)
class Label:
    """What a file of a claim says about itself: it is read as text, so nobody waits for PyTorch."""

    name: str
    document: Document
    question: str
    says: str
    also: tuple[str, ...] = ()
    """Other questions that it answers, such as `ETH 2(d)`."""

    @property
    def places(self) -> list[tuple[Document, str]]:
        """Every document and question that it answers, its own first."""
        return [(self.document, self.question), *map(place, self.also)]


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


def place(name: str) -> tuple[Document, str]:
    """A document and a question from their short names; EECS is enough for EECS 182.

    >>> place("EECS 182 2(d)"), place("eecs 2(d)"), place("eth 1b1")
    (('EECS 182', '2(d)'), ('EECS 182', '2(d)'), ('ETH', '1b1'))
    >>> place("MIT 1")
    Traceback (most recent call last):
    ValueError: a question must start with one of NYU, ETH, C182, QMUL, EECS 182, got 'MIT 1'
    """
    for document in SHEETS:
        for short in (document, document.split()[0]):
            if f"{name.upper()} ".startswith(f"{short} "):
                return document, name[len(short) :].strip()
    raise ValueError(f"a question must start with one of {', '.join(SHEETS)}, got {name!r}")


def cite(document: Document, question: str) -> str:
    """Where a claim comes from, in words.

    >>> cite("C182", "1(b)")
    'C182 sheet, question 1(b)'
    """
    return TITLES[document] if document == "beyond" else f"{document} sheet, question {question}"


def read_docstring(text: str | None) -> tuple[str, str]:
    """What a claim says, its first paragraph on one line, and the explanation, the rest as it stands.

    >>> read_docstring("Attention\\nmixes.\\n\\nBecause.")
    ('Attention mixes.', 'Because.')
    """
    says, _, explanation = inspect.cleandoc(text or "").partition("\n\n")
    return " ".join(says.split()), explanation


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
                also = ast.literal_eval(given["also"]) if "also" in given else ()
                return Label(_name(path), document, question, read_docstring(ast.get_docstring(tree))[0], also)
            case _:
                pass
    raise ValueError(f"a file of claims must end in CLAIM = Claim(...), got {path} without")
