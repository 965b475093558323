"""The answer key: every question has its line, and what its lines name is there."""

import importlib
import itertools
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks.heads_on_digits import layers

import headwork as hw
from headwork.cli import main
from headwork.lab import labels
from headwork.lab.catalogue import SHEETS
from headwork.lab.claims.cost_of_heads import Setup, run
from headwork.lab.questions import describe_question, document_page, find_questions, questions
from headwork.training.recorder import read_centres

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


@pytest.mark.parametrize(
    "page", sorted({path for q in EVERY for path in re.findall(r"docs/[\w./-]+[a-z](?:#[\w-]+)?", q.where)})
)
def test_pages_that_answers_name_are_there(page):
    file, _, section = page.partition("#")
    assert (ROOT / file).exists()
    if section:
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        headings = [line.lstrip("# ").lower() for line in lines if line.startswith("#")]
        assert section in [re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings]


def test_pages_that_answers_name_are_links():
    page = document_page("NYU")
    assert "[docs/results.md](../results.md#pooling-and-positions); `headwork train" in page
    assert "[docs/guide.md](../guide.md), `headwork trace`" in page


@pytest.mark.parametrize("claim", sorted({c for q in EVERY for c in re.findall(r"claims? ([a-z0-9-]+)", q.where)}))
def test_claims_that_answers_name_are_there(claim):
    importlib.import_module(f"headwork.lab.claims.{claim.replace('-', '_')}")


def test_questions_are_answered_without_pytorch():
    code = "import sys, headwork.lab.questions as q; q.find_questions('ETH 2(e)'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("question", EVERY, ids=name)
def test_a_question_is_found_without_its_brackets_and_dots(question):
    plain = re.sub(r"[().]", "", question.name)
    assert question in find_questions(f"{question.document.lower()} {plain}")


def test_an_unknown_question_is_answered_with_all_names():
    with pytest.raises(ValueError, match="ETH has no question '7z'") as caught:
        find_questions("ETH 7z")
    assert all(question.name in str(caught.value) for question in questions("ETH"))


def test_where_the_square_of_the_length_takes_over():
    """C182 1(c) ii, FLOPs as PyTorch counts them: n = 2d with the output, whatever d_q and d_v are; 1.5 d without."""
    for n, d_q, d_v, output in ((16, 3, 5, 0), (16, 7, 2, 0), (12, 5, 5, 2 * 12 * 5 * 8)):
        flops = run(Setup(n_heads=(1,), n_tokens=n, d=8, d_q=d_q, d_v=d_v)).flops
        assert flops["projections"][0] - output == flops["scores"][0] + flops["mixing"][0]


def test_two_heads_are_a_filter_of_rank_two():
    """NYU 1.2(b): the best filters of that rank, by Eckart and Young; one channel has rank one."""
    taps, channels = 5, 3
    squares = (
        torch.linalg.svdvals(torch.randn(5_000, taps, channels**2, generator=torch.Generator().manual_seed(0))) ** 2
    )
    missed = squares[:, 2:].sum(1) / squares.sum(1)
    assert missed.mean().item() == pytest.approx(0.28, abs=0.005)
    a_filter = torch.randn(taps, dtype=torch.float64)
    heads = [a_filter.clamp(min=0), (-a_filter).clamp(min=0)]
    weights = [head / head.sum() for head in heads]  # what a softmax can give
    assert torch.allclose(weights[0] * heads[0].sum() - weights[1] * heads[1].sum(), a_filter)


@pytest.mark.parametrize(
    ("distances", "n_layers", "seen"), [((1,), 3, 4), ((1, 2), 3, 7), ((1, 10), 2, 6), ((1, 10, 100), 3, 20)]
)
def test_what_layers_that_look_alike_see(distances, n_layers, seen):
    """EECS 182 2(a) (iii): sums of distances; kn + 1 for distances 1 to k, and never more than C(n + k, k)."""
    k = len(distances)
    sums = {sum(steps) for steps in itertools.product((0, *distances), repeat=n_layers)}
    assert len(sums) == seen <= math.comb(n_layers + k, k)
    assert (len(sums) == k * n_layers + 1) == (distances == tuple(range(1, k + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_where_the_heads_of_digits_gaussian_go(seed, tmp_path):
    """ETH 2(e), the sentences about every seed."""
    assert main(["train", "digits-gaussian", "--seed", str(seed), "--out", str(tmp_path / "run")]) == 0
    first, second, last = layers(read_centres(tmp_path / "run")).values()
    assert first["moved by"] < second["moved by"] < last["moved by"]
    assert abs(first["distance at the end"] - first["distance at the start"]) < 0.6
    assert all(layer["distance at the end"] > layer["distance at the start"] for layer in (second, last))
    assert last["alpha, median (1 at the start)"] < 1
    assert last["sharper heads"] <= 2


def test_how_far_the_two_gelus_are_apart():
    """ETH 2(b)."""
    x = torch.linspace(-6, 6, 120_001, dtype=torch.float64)
    apart = (hw.functional.gelu(x) - hw.functional.gelu_tanh(x)).abs()
    assert 0.0004732 < apart.max().item() < 0.0004733
    assert abs(x[apart.argmax()].item()) == pytest.approx(2.70, abs=0.005)


def test_a_softmax_saturates_by_differences():
    """C182 1(b) i, in the errata."""

    def jacobian(*scores):
        function = torch.nn.Softmax(0)
        return torch.autograd.functional.jacobian(function, torch.tensor(scores, dtype=torch.float64))

    assert torch.equal(jacobian(1000.0, 1000.0), jacobian(0.0, 0.0))
    assert jacobian(0.0, 0.0).norm().item() == pytest.approx(1 / 2)
    assert jacobian(20.0, 0.0).norm().item() == pytest.approx(4e-9, rel=0.05)
