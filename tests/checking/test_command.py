"""`headwork check`: exit codes, JSON, Gradescope, a class; bad input is a sentence."""

import csv
import json

import pytest

from headwork.checking import Walls, check_class, check_file
from headwork.checking.report import count_mistakes, exit_code, gradescope
from headwork.cli import main

HEADER = "import torch\n\n\n"
RIGHT = HEADER + "def softmax(x):\n    return x.softmax(-1)\n"
WRONG = HEADER + "def softmax(x):\n    return x.softmax(0)\n"


def test_the_command_tells_and_exits(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(WRONG)
    assert main(["check", str(path), "--json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "wrong"
    assert report["findings"][0]["line"]["number"] == 5
    assert report["points"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "give a FILE to check, or --class FOLDER, got neither"),
        (["check", "x.py", "--hints", "7"], "hints must lie in 0 .. 3, got 7"),
        (["check", "x.py", "--csv", "a.csv"], "csv is for a class"),
        (["check", "nowhere.py"], "file must be a Python file or a notebook that exists, got nowhere.py"),
        (["check", "x.py", "--as", "poetry"], "as must be one of the subjects, got 'poetry'"),
        (["check", "x.py", "--without-wall", "files"], "without-wall is for --untrusted"),
        (["check", "x.py", "--seconds", "0"], "seconds must be more than 0"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_asked_wrongly(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text(RIGHT)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("def f(:\n", "does not parse: invalid syntax (line 1)"),
        ("import tensorflow as tf\n", "is written for TensorFlow"),
        ("import jax.numpy as jnp\n", "is written for JAX"),
        ("x = 3\n", "nothing to check was found"),
        ("\0", "null bytes"),
    ],
)
def test_a_file_with_nothing_to_check(check, program, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")):
        check(program)


def test_a_package_that_is_not_there(check):
    (report,) = check("import nowhere_to_be_found as nw\n\n\ndef softmax(x):\n    return nw.softmax(x)\n")
    assert report.verdict == "failed"
    assert "'nowhere_to_be_found' is not installed" in report.sentence


def test_what_fails_beside_it_is_left_out_and_said(check):
    (report,) = check(RIGHT + "\nopen('data.csv')\n")
    assert report.right
    assert any("line 7 was left out: FileNotFoundError" in note for note in report.notes)


def test_a_window_is_left_out_and_said(check):
    (report,) = check(RIGHT + "\nraise RuntimeError('no display name and no $DISPLAY environment variable')\n")
    assert report.right
    assert "line 7 was left out: it opens a window" in report.notes


def test_a_vocabulary_that_was_to_be_counted_in_a_missing_file(check):
    lines = [
        "text = open('input.txt').read()",
        "vocab_size = len(set(text))",
        "class TokenModel(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.table = torch.nn.Embedding(vocab_size, 8)",
        "    def forward(self, x):",
        "        return x.softmax(-1)",
        "softmax = TokenModel()",
    ]
    reports = check(HEADER + "\n".join(lines), "softmax", subject="softmax")
    assert [r.verdict for r in reports] == ["right"]


def test_what_returns_its_input_is_not_accused(server, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Dropout:\n    def forward(self, x):\n        return x\n")
    with pytest.raises(ValueError, match="nothing to check was found"):
        check_file(path, server=server)


def test_what_is_under_main_does_not_run(check):
    (report,) = check(RIGHT + "\nif __name__ == '__main__':\n    size = 3\n    while True:\n        pass\n")
    assert report.right


@pytest.mark.parametrize(("body", "words"), [("x.cuda().softmax(-1)", "GPU"), ("undefined(x)", "NameError")])
def test_it_cannot_run(check, body, words):
    (report,) = check(HEADER + f"def softmax(x):\n    return {body}\n")
    assert report.verdict == "failed"
    assert words in report.sentence


def test_single_precision_is_enough(check):
    table = "torch.zeros(4, 5, dtype=torch.float32)"
    program = (
        HEADER
        + f"def attention(q, k, v):\n    w = (q.float() @ k.float().mT / q.shape[-1] ** 0.5).softmax(-1)\n    return w @ v.float()\n\n\nx = {table}\n"
    )
    (report,) = check(program)
    assert report.right
    assert "single precision" in report.sentence


def test_half_precision_is_not_accused(check):
    program = "def attention(q, k, v):\n    w = (q.half() @ k.half().mT / q.shape[-1] ** 0.5).softmax(-1)\n    return w @ v.half()\n"
    (report,) = check(HEADER + program)
    assert report.verdict == "unknown"
    assert "half precision" in report.sentence


def test_a_constructor_whose_arguments_say_nothing(check):
    program = "class MultiHeadAttention(torch.nn.Module):\n    def __init__(self, zorp, blarg):\n        super().__init__()\n        self.q = torch.nn.Linear(zorp['a'], blarg.b)\n\n    def forward(self, x):\n        return self.q(x)\n"
    (report,) = check(HEADER + program)
    assert report.verdict == "failed"
    assert "wants as zorp, blarg was not understood" in report.sentence


@pytest.mark.slow
def test_a_class(server, tmp_path, capsys):
    for name, program in {"ada": RIGHT, "bob": WRONG, "cy": WRONG, "dan": "def f(:"}.items():
        (tmp_path / f"{name}.py").write_text(program)
    rows = list(check_class(tmp_path, walls=Walls()))
    assert [(name, [r.verdict for r in reports]) for name, reports in rows] == [("ada.py", ["right"]), ("bob.py", ["wrong"]), ("cy.py", ["wrong"]), ("dan.py", ["failed"])]  # fmt: skip
    assert count_mistakes(rows)[0].startswith("2 of 4: The softmax runs over the first axis")
    from headwork.cli.check import Check, CheckedError, write_table

    write_table(tmp_path / "grades.csv", rows)
    table = list(csv.DictReader((tmp_path / "grades.csv").read_text().splitlines()))
    assert [row["points"] for row in table] == ["1.0", "0.5", "0.5", "0.0"]
    assert table[1]["mistakes"] == "axis: first"
    assert table[0]["read as"].startswith("(x)")
    with pytest.raises(CheckedError) as told:
        Check(class_=tmp_path, trusted=True).run()
    assert told.value.exit_code == 1
    assert "1 of 4: could not be judged" in capsys.readouterr().out


def test_gradescope_gets_what_it_reads(server, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(WRONG)
    reports = check_file(path, server=server)
    results = json.loads(gradescope(reports, hints=1))
    (test,) = results["tests"]
    assert (test["score"], test["max_score"], test["status"]) == (0.5, 1.0, "failed")
    assert "yours" not in test["output"]
    assert test["tags"] == ["axis: first"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("programs", "code"),
    [
        ({"ada": RIGHT}, 0),
        ({"ada": RIGHT, "bob": WRONG, "cy": "def f(:"}, 1),
        ({"ada": RIGHT, "cy": "def f(:"}, 3),
        ({"ada": RIGHT + "\n\ndef gelu(x):\n    return undefined(x)\n"}, 0),
    ],
)
def test_the_exit_code_of_a_class_is_that_of_its_submissions(tmp_path, programs, code, capsys):
    for name, program in programs.items():
        (tmp_path / f"{name}.py").write_text(program)
    assert main(["check", "--class", str(tmp_path), "--trusted", "--csv", str(tmp_path / "grades.csv")]) == code
    assert (tmp_path / "grades.csv").exists()
    capsys.readouterr()


def test_a_name_that_could_not_be_judged_is_no_success(tmp_path, capsys):
    path = tmp_path / "two.py"
    path.write_text(RIGHT + "\n\ndef gelu(x):\n    return undefined(x)\n")
    assert main(["check", str(path), "gelu"]) == 3
    assert main(["check", str(path)]) == 0
    capsys.readouterr()


def test_remarks_reach_table_json_and_gradescope(tmp_path):
    from headwork.checking.report import Finding, Report
    from headwork.cli.check import write_table

    remark = Finding("blind: NaN", "A query gets NaN.", (), None)
    report = Report("a.py", "f", "attention", "right", "Right.", remarks=(remark,), read_as=("(q)", "True = hidden"))
    write_table(tmp_path / "grades.csv", [("a.py", [report])])
    (row,) = csv.DictReader((tmp_path / "grades.csv").read_text().splitlines())
    assert row == {"submission": "a.py", "verdict": "right", "points": "1.0", "of": "1", "mistakes": "", "remarks": "blind: NaN", "feedback": "right but: A query gets NaN.", "read as": "(q); True = hidden"}  # fmt: skip
    assert report.to_dict()["remarks"][0]["name"] == "blind: NaN"
    assert "but: A query gets NaN." in json.loads(gradescope([report], 3))["tests"][0]["output"]


def test_exit_codes(server, tmp_path):
    path = tmp_path / "two.py"
    path.write_text(RIGHT + "\n\n" + "def gelu(x):\n    return x.relu()\n")
    assert exit_code(check_file(path, server=server)) == 1
    assert exit_code(check_file(path, "softmax", server=server)) == 0
    assert exit_code([]) == 2
