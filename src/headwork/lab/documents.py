"""The five documents by their short names, in the order in which they are listed."""

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
DOCUMENTS: tuple[Document, ...] = get_args(Document)


def cite(document: Document, question: str) -> str:
    """Where a claim comes from, in words.

    >>> cite("C182", "1(b)")
    'C182 sheet, question 1(b)'
    """
    return TITLES[document] if document == "beyond" else f"{document} sheet, question {question}"
