"""The answer key: every question has its line, and what its lines name is there."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headwork as hw
from headwork.lab import labels
from headwork.lab.catalogue import SHEETS
from headwork.lab.questions import describe_question, find_questions, questions

ROOT = Path(__file__).parents[2]
EVERY = [question for document in SHEETS for question in questions(document)]
COUNTS = {"NYU": 24, "ETH": 21, "C182": 16, "QMUL": 6, "EECS 182": 14}


def name(question):
    return f"{question.document} {question.name}"


def test_as_many_questions_as_the_documents_have():
    assert {document: len(questions(document)) for document in SHEETS} == COUNTS
    assert len(set(map(name, EVERY))) == len(EVERY)


@pytest.mark.parametrize("question", EVERY, ids=name)
def test_a_question_has_an_answer_and_a_place(question):
    assert question.asks.endswith((".", "?", ")"))
    assert question.answer.endswith((".", ")"))
    assert question.measured, "neither a claim nor anything else"
    assert question in find_questions(name(question))
    assert question.answer in describe_question(question)


@pytest.mark.parametrize("label", [label for label in labels() if label.document != "beyond" or label.also], ids=str)
def test_the_questions_that_claims_answer_are_there(label):
    for document, asked in label.places:
        if document != "beyond":
            assert any(label in question.claims for question in questions(document)), asked


@pytest.mark.parametrize("path", sorted({path for q in EVERY for path in re.findall(r"`(hw[.][\w.]+)", q.where)}))
def test_what_answers_name_is_there(path):
    thing = hw
    for part in path.split(".")[1:]:
        thing = getattr(thing, part)


@pytest.mark.parametrize("file", sorted({path for q in EVERY for path in re.findall(r"docs/[\w./-]+[a-z]", q.where)}))
def test_pages_that_answers_name_are_there(file):
    assert (ROOT / file).exists()


@pytest.mark.parametrize("claim", sorted({c for q in EVERY for c in re.findall(r"claims? ([a-z0-9-]+)", q.where)}))
def test_claims_that_answers_name_are_there(claim):
    importlib.import_module(f"headwork.lab.claims.{claim.replace('-', '_')}")


def test_questions_are_answered_without_pytorch():
    code = "import sys, headwork.lab.questions as q; q.find_questions('ETH 2(e)'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
