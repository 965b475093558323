"""What can be said of a claim without running it: its name, what it says, and the document it comes from."""

import inspect
from dataclasses import dataclass
from typing import Literal, get_args

Document = Literal["NYU", "ETH", "C182", "QMUL", "EECS 182", "beyond"]

TITLES: dict[Document, str] = {
    "NYU": "New York University, Deep Learning, Homework 4: Transformer",
    "ETH": "ETH Zürich, Assignment 6: Attention and Transformers",
    "C182": "UC Berkeley, Data C182, Discussion 06",
    "QMUL": "Queen Mary University of London, ECS795P, Coursework 1",
    "EECS 182": "UC Berkeley, EECS 182, Final Review: Transformers",
    "beyond": "Beyond the sheets",
}
"""The five documents by their short names, in the order in which they are listed."""
DOCUMENTS: tuple[Document, ...] = get_args(Document)


@dataclass(frozen=True)
class Label:
    """What a file of a claim says about itself: it is read as text, so nobody waits for PyTorch."""

    name: str
    document: Document
    question: str
    says: str


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
