"""Programs that lie to the judge, keep it waiting or fill its memory: each ends in words, and none ends a class."""

import csv
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch

from headwork.checking import Walls, check_class, check_file
from headwork.checking.report import Report, gradescope, plain
from headwork.checking.runner import Made, ProgramDiedError, ProgramError
from headwork.checking.walls import descendants
from headwork.cli import main
from headwork.cli.check import write_table

HEADER = "import gc, os, socket, sys, time\nimport torch\n\n\n"
RIGHT = HEADER + "def softmax(x):\n    return x.softmax(-1)\n"
CONNECTION = "s = [o for o in gc.get_objects() if isinstance(o, socket.socket) and o.fileno() >= 0][-1]\n\n\n"
FORGED = "M = sys.modules['__main__']\nO = M.send\nM.send = lambda c, h, t=None: O(c, {}, t)\n\n\n"


def softmax(*lines: str) -> str:
    return HEADER + "\n    ".join(["def softmax(x):", *lines]) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        ("s.send(b'\\x01')", "time.sleep(60)"),
        ("while True:", "    s.send(b'\\x00')", "    time.sleep(0.05)"),
        ("s.send(b'\\xff' + bytes(15) + b'{')", "time.sleep(60)"),
    ],
    ids=["one byte", "a byte now and then", "half a message"],
)
def test_a_message_has_a_deadline(check, lines):
    (report,) = check(HEADER + CONNECTION + softmax(*lines), seconds=0.5)
    assert report.verdict == "failed"
    assert re.search(r"did not answer within 0.5 seconds|took more than 7.5 seconds|cannot be read", report.sentence)


@pytest.mark.slow
def test_a_request_has_a_deadline_too(server):
    program = server.start(Walls(seconds=0.2))
    for process in (program.process, *descendants(program.process)):
        os.kill(process, signal.SIGSTOP)
    with pytest.raises(ProgramDiedError, match="did not answer within 0.2 seconds"):
        program.ask("make", {"x": torch.zeros(10**7)}, name="f", args=[], kwargs={}, double=True)


@pytest.mark.slow
def test_a_file_has_a_deadline(check):
    program = HEADER + "for i in range(300):\n    exec(f'def softmax_{i}(x):\\n    time.sleep(0.05)\\n    return x')\n"
    reports = check(program, seconds=0.4, subject="softmax")
    assert reports[-1].verdict == "failed"
    assert "candidates were not judged" in reports[-1].sentence
    assert len(reports) < 300


@pytest.mark.parametrize(
    "answer",
    [
        "{'names': []}",
        "{}",
        "{'names': {'softmax': {}}, 'parts': {}, 'globals': {}, 'skipped': []}",
        "{'names': {'softmax': {'kind': 'function', 'call': 5}}, 'parts': {}, 'globals': {}, 'skipped': []}",
        "{'error': 'x'}",
        "{'error': {'type': 1, 'message': 2, 'line': 'x'}}",
        "{**h, 'skipped': None}",
        "{**h, 'skipped': [{'type': 'X', 'message': 5, 'line': 1}]}",
        "{**h, 'globals': 7}",
        "{**h, 'result': {'tensor': 'none'}}",
    ],
)
def test_forged_facts_are_no_traceback(check, answer):
    try:
        reports = check(HEADER + FORGED.replace("{}", answer) + RIGHT)
    except (ProgramDiedError, ProgramError, ValueError):
        return
    assert {r.verdict for r in reports} & {"failed", "right"}


def test_parameters_are_not_drawn_without_limit(server):
    program = server.start()
    for shape in ([20000, 20000], [2, 2**21], [10**6] * 3):
        with pytest.raises(ProgramError, match="numbers, and at most 45,000,000 are drawn"):
            Made(program, {"parameters": {"weight": shape}}).shapes  # noqa: B018
    program.close()


def test_an_expanded_parameter_is_told(check):
    lines = [
        "class LayerNorm(torch.nn.Module):",
        "    def __init__(self, d_model):",
        "        super().__init__()",
        "        self.weight = torch.nn.Parameter(torch.zeros(1).expand(20000, 20000))",
        "    def forward(self, x):",
        "        return x * self.weight[0, 0]",
    ]
    (report,) = check(HEADER + "\n".join(lines))
    assert report.verdict == "failed"
    assert "400,000,000 numbers" in report.sentence


def test_a_long_answer_in_words_is_not_read(check):
    (report,) = check(softmax("return [['x' * 10**5] * 100]"))
    assert report.verdict == "failed"
    assert "cannot be read" in report.sentence


def test_a_large_file_is_not_read(tmp_path):
    path = tmp_path / "large.py"
    with path.open("wb") as file:
        file.truncate(3 * 2**30)
    with pytest.raises(ValueError, match="large.py must have at most 524288 bytes, got more"):
        check_file(path)


def test_a_deeply_nested_notebook(tmp_path):
    path = tmp_path / "deep.ipynb"
    path.write_text('{"cells":' + "[" * 10**5)
    with pytest.raises(ValueError, match=r"deep.ipynb must be a notebook"):
        check_file(path)


@pytest.mark.slow
def test_no_submission_ends_a_class_or_spoils_its_table(tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "ada.py").write_text(RIGHT)
    (folder / "bob.py").write_text(softmax("raise RuntimeError('\\ud800\\n\\x1b[2Jbob.py: right')"))
    (folder / "cy.ipynb").write_text('{"cells":' + "[" * 10**5)
    (folder / "dan.py").write_text(HEADER + FORGED + RIGHT)
    (folder / "eve.py").symlink_to(folder / "ada.py")
    (folder / "fay").mkdir()
    (folder / "fay" / "mine.py").symlink_to("/etc/passwd")
    Path(os.fsdecode(os.fsencode(folder) + b"/g\xff.py")).write_text(RIGHT)
    (folder / "=cmd|x.py").write_text(RIGHT)
    (folder / "hal.py").write_text(HEADER + "while True:\n    pass\n\n\n" + "def softmax():\n    pass\n")
    (folder / "zoe.py").write_text(RIGHT)
    rows = dict(check_class(folder, walls=Walls()))
    assert len(rows) == 10
    assert [name for name, (report, *_) in rows.items() if report.right] == ["=cmd|x.py", "ada.py", "g\udcff.py", "zoe.py"]  # fmt: skip
    assert "links are not followed" in rows["eve.py"][0].sentence
    assert "links are not followed" in rows["fay"][0].sentence
    write_table(tmp_path / "grades.csv", list(rows.items()))
    text = (tmp_path / "grades.csv").read_text(encoding="utf-8")
    table = list(csv.DictReader(text.splitlines()))
    assert len(table) == 10
    assert table[0]["submission"] == "'=cmd|x.py"
    assert "\x1b" not in text
    assert "line 5 was left out: it took more than 5 seconds" in next(
        row["feedback"] for row in table if row["submission"] == "hal.py"
    )


def test_words_of_a_program_draw_nothing_on_a_terminal():
    report = Report("a\n.py", "f", "", "failed", "x\x1b[2J\ud800\u202e", notes=("\rRight",))
    text = report.text()
    assert "\x1b" not in text
    assert text.splitlines() == ["a\\n.py, f", "  x\\x1b[2J\\ud800\\u202e", "  also: \\rRight"]
    text.encode()
    assert "\x1b" not in json.loads(gradescope([report], 3))["tests"][0]["output"]
    assert plain("plain — text") == "plain — text"


@pytest.mark.usefixtures("as_users_run_it")
def test_whose_programs_run_behind_walls(tmp_path, monkeypatch, capsys):
    """A class and Gradescope judge the programs of others."""
    from headwork.cli import check as command

    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(RIGHT)
    for given, untrusted in (
        ([], False),
        (["--untrusted"], True),
        (["--trusted"], False),
        (["--gradescope", "r.json"], True),
        (["--gradescope", "r.json", "--trusted"], False),
        (["--class", "."], True),
        (["--class", ".", "--trusted"], False),
        (["--class", ".", "--without-wall", "files"], True),
    ):
        seen = []
        for name in ("_run_class", "_run_file"):
            monkeypatch.setattr(command.Check, name, lambda self, *_, seen=seen: seen.append(self._walls()))
        assert main(["check", *([] if "--class" in given else ["mine.py"]), *given]) == 0
        assert [walls.untrusted for walls in seen] == [untrusted], given
    assert main(["check", "mine.py", "--trusted", "--untrusted"]) == 2
    assert "--trusted or --untrusted" in capsys.readouterr().err


@pytest.mark.slow
def test_a_class_refuses_without_walls(tmp_path, monkeypatch, capsys):
    from headwork.checking import walls

    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "mine.py").write_text(
        HEADER + f"open({str(tmp_path / 'ran')!r}, 'w')\n\n\ndef softmax(x):\n    return x.softmax(-1)\n"
    )
    source = Path(walls.__file__).read_text()
    assert '_library_call("unshare", flags)' in source
    monkeypatch.setattr("headwork.checking.runner.worker.__file__", str(_worker_without_namespaces(tmp_path)))
    assert main(["check", "--class", str(tmp_path / "class")]) == 3
    error = capsys.readouterr().err
    assert "'processes' cannot be built" in error
    assert "--trusted" in error
    assert not (tmp_path / "ran").exists()
    assert main(["check", "--class", str(tmp_path / "class"), "--trusted"]) == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.slow
def test_the_files_of_one_submission_import_each_other(server, tmp_path):
    from tests.checking.test_walls import skip_without

    skip_without(server, "processes")
    skip_without(server, "files")
    for name in ("ada", "bob"):
        (tmp_path / name).mkdir()
    (tmp_path / "ada" / "parts.py").write_text(
        HEADER + "def exp(x):\n    return (x - x.amax(-1, keepdim=True)).exp()\n"
    )
    program = HEADER + "from parts import exp\n\n\ndef softmax(x):\n    return exp(x) / exp(x).sum(-1, keepdim=True)\n"
    (tmp_path / "ada" / "main.py").write_text(program)
    (tmp_path / "bob" / "main.py").write_text(program.replace("from parts", "sys.path.append('../ada')\nfrom parts"))
    rows = dict(check_class(tmp_path, walls=Walls(untrusted=True)))
    assert "right" in {r.verdict for r in rows["ada"] if r.name == "softmax"}
    assert {r.verdict for r in rows["bob"]} == {"failed"}


def _worker_without_namespaces(folder: Path) -> Path:
    """The worker of a machine whose kernel allows no namespaces."""
    from headwork.checking import worker

    copy = folder / "copy"
    copy.mkdir()
    for path in Path(worker.__file__).parent.glob("w*.py"):
        shutil.copy(path, copy)
    walls = copy / "walls.py"
    walls.write_text(walls.read_text().replace('_library_call("unshare", flags)', 'raise OSError(1, "not permitted")'))
    return copy / "worker.py"
