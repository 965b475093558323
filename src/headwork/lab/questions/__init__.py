"""The answer key: every question of the five documents in its order, the answer, and where it is measured.

>>> question = find_questions("ETH 1(a.1)")[0]
>>> question.asks
'How many parameters has a multi-head layer with N_h heads?'
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headwork.lab.catalogue import SHEETS, TITLES, Document, Label, labels, place
from headwork.lab.questions import c182, eecs182, eth, nyu, qmul
from headwork.tables import Table

ALL: dict[Document, tuple[tuple[str, ...], ...]] = {
    "NYU": nyu.QUESTIONS,
    "ETH": eth.QUESTIONS,
    "C182": c182.QUESTIONS,
    "QMUL": qmul.QUESTIONS,
    "EECS 182": eecs182.QUESTIONS,
}


@dataclass(frozen=True)
class Question:
    """One question or sub-question of a document."""

    document: Document
    name: str
    asks: str
    answer: str
    where: str
    """Functions, commands and recipes beside the claims, which know themselves which questions they answer."""
    missing: str = ""
    """What a reader would have to add, if anything."""

    @property
    def claims(self) -> list[Label]:
        """Those that name it, or the question that it is a part of."""
        return [label for label in labels() if any(self._is_at(*where) for where in label.places)]

    def _is_at(self, document: Document, question: str) -> bool:
        return document == self.document and (self.name == question or self.name.startswith(f"{question} "))

    @property
    def measured(self) -> list[str]:
        """Where the answer is measured or done: commands, functions, recipes."""
        return [f"`headwork lab {label.name}`" for label in self.claims] + ([self.where] if self.where else [])

    @property
    def done(self) -> str:
        return self.missing or "Y"


def questions(document: Document) -> tuple[Question, ...]:
    """All questions of a document, in its order."""
    return tuple(Question(document, *row) for row in ALL[document])


def find_questions(name: str) -> list[Question]:
    """The question of this name, such as `ETH 2(e)` or `ETH 2e`, or all that are parts of it, such as `ETH 1(b`.

    >>> [question.name for question in find_questions("ETH 1(b)")]
    ['1(b.1)', '1(b.2)']
    >>> [question.name for question in find_questions("ETH 1b1")]
    ['1(b.1)']
    >>> find_questions("QMUL 9")
    Traceback (most recent call last):
    ValueError: QMUL has no question '9'; it has 1, 2.1, 2.2, 2.3, 3(1), 3(2)
    """
    document, wanted = place(name)
    rows = questions(document)
    exact = [question for question in rows if question.name == wanted]
    parts = [question for question in rows if question.name.startswith(wanted.removesuffix(")"))]
    plain = _plain(wanted)
    exact_but_marks = [question for question in rows if _plain(question.name) == plain]
    parts_but_marks = [question for question in rows if plain and _plain(question.name).startswith(plain)]
    found = exact or parts or exact_but_marks or parts_but_marks
    if not wanted or not found:
        known = ", ".join(question.name for question in rows)
        raise ValueError(f"{document} has no question {wanted!r}; it has {known}")
    return found


def _plain(name: str) -> str:
    """A name without what is easily left out: brackets, dots and spaces.

    >>> _plain("1(c) II")
    '1cii'
    """
    return re.sub(r"[().\s]", "", name).lower()


def is_question(name: str) -> bool:
    """Whether a name is meant as a question and not as a claim: a sheet, or several words, which no claim's name has.

    >>> is_question("ETH"), is_question("MIT 1"), is_question("temperature")
    (True, True, False)
    """
    return " " in name or any(name.upper() in (sheet, sheet.split()[0]) for sheet in SHEETS)


def describe_question(question: Question) -> str:
    """For a terminal: what it asks, the answer, where it is measured, and what is missing."""
    lines = [f"{question.document} {question.name}: {question.asks}", question.answer]
    lines += ["Measured or done: " + "; ".join(question.measured)] if question.measured else []
    lines += [f"Missing: {question.missing}"] if question.missing else []
    return "\n".join(lines)


def document_page(document: Document) -> str:
    """The page of a document: a row for each question."""
    rows = [
        (
            question.name,
            question.asks,
            question.answer,
            "; ".join(_links(question)),
            question.done,
        )
        for question in questions(document)
    ]
    parts = [
        f"# {TITLES[document]}",
        f"Every question of the [{document} sheet](../sources.md) in its order, what it asks, the answer, and where "
        f"it is "
        f"measured or done. Y: nothing is missing. `headwork lab --document {document.split()[0]}` prints this page, "
        f'`headwork lab "{document} {questions(document)[3].name}"` one question of it; '
        "slips of the sheet are in the [errata](errata.md).",
        Table(("question", "asks", "answer", "measured or done", ""), tuple(rows)).markdown(),
    ]
    return "\n\n".join(parts) + "\n"


def page_name(document: Document) -> str:
    """The file of its page.

    >>> page_name("EECS 182")
    'eecs-182.md'
    """
    return document.lower().replace(" ", "-") + ".md"


def _links(question: Question) -> Iterator[str]:
    for label in question.claims:
        yield f"[{label.name}]({label.name}.md)"
    if question.where:
        yield re.sub(r"docs/([\w.-]+)(#[\w-]+)?", r"[docs/\1](../\1\2)", question.where)
