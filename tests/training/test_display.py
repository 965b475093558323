"""What the user sees: a bar in a terminal, plain lines elsewhere."""

import io
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

import headwork as hw
from headwork.data import Digits
from headwork.tasks import Classification, Translation
from headwork.training import display
from headwork.training.display import Bar, Display, Lines, Quiet, make_display, show

TASK = Classification(("cat", "dog"))
VALUES = {"train": {"loss": 0.5}, "valid": {"loss": 0.25, "accuracy": 0.975}}


def tell(listener: Display) -> None:
    listener.say("digits in runs/digits [bold]")
    listener.start(n_steps=10, step=4)
    listener.stepped(5, loss=0.123456, examples_per_second=1234.5)
    listener.evaluated(1, VALUES, TASK, best=True)
    listener.stop()


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # one that is dumb is 80 columns wide
    file = io.StringIO()
    tell(Bar(Console(file=file, force_terminal=True, width=120)))
    text = file.getvalue()
    assert "digits in runs/digits [bold]" in text
    for words in ("5/10", "loss 0.1235", "1,234 examples/s", "valid: loss 0.2500, accuracy 97.50 %    best so far"):
        assert words in text


def test_a_label_draws_no_line_of_its_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    bar = io.StringIO()
    for listener in (Lines(), Bar(Console(file=bar, force_terminal=True, width=120))):
        listener.say("2 classes: cat\nheadwork: done (3)")
    for said in (capsys.readouterr().err, bar.getvalue()):
        assert "cat\\nheadwork: done (3)" in said


def test_plain_lines_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    lines = Lines()
    tell(lines)
    now[0] += 60
    lines.stepped(6, loss=0.5, examples_per_second=10)
    lines.stepped(7, loss=0.4, examples_per_second=10)
    assert capsys.readouterr().err.splitlines() == [
        "digits in runs/digits [bold]",
        "epoch 1    train: loss 0.5000    valid: loss 0.2500, accuracy 97.50 %    best so far",
        "step 6/10  loss 0.5000  10 examples/s  0:02:00 left",
    ]


def test_hours_are_not_taken_for_minutes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    lines = Lines()
    lines.start(n_steps=1080, step=0)
    for n_steps, left in ((2, "5:59:20"), (540, "0:20:00")):
        now[0] += 40 if n_steps == 2 else 1160
        lines.stepped(n_steps, loss=0.5, examples_per_second=10)
        assert capsys.readouterr().err.rstrip().endswith(f"{left} left")


def test_which_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, kind in ((False, Lines), (True, Bar)):
        monkeypatch.setattr("sys.stderr.isatty", lambda answer=is_terminal: answer)
        assert isinstance(make_display(), kind)


def test_of_many_processes_the_first_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, kind in (("0", Lines), ("1", Quiet)):
        monkeypatch.setenv("RANK", rank)
        assert type(make_display()) is kind


def train_one_step(folder: Path, **options: object) -> None:
    data = Digits()
    model = hw.models.ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(4,))
    training = hw.training.TrainingConfig(steps=1, batch_size=8)
    hw.train(model, replace(data.load(), found=("1,797 digits",)), training, out=folder, **options)


def test_train_says_what_was_found_and_what_it_will_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_one_step(tmp_path / "run")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[:2] == [f"run in {tmp_path / 'run'}", "1,797 digits"]
    assert lines[2].endswith("of memory with PyTorch and the data")
    assert "valid: loss" in lines[3]


def test_train_can_be_silent_or_shown_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Own(Quiet):
        said: ClassVar[list[str]] = []

        def say(self, text: str) -> None:
            self.said.append(text)

    train_one_step(tmp_path / "silent", display=False)
    train_one_step(tmp_path / "shown", display=Own())
    assert capsys.readouterr() == ("", "")
    assert "1,797 digits" in Own.said


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Quiet())
    assert capsys.readouterr() == ("", "")


def test_a_bar_that_never_started_stops() -> None:
    Bar(Console(file=io.StringIO())).stop()


def test_metrics_in_words() -> None:
    values = {"exact_match": 0.5, "token_accuracy": 1, "loss": 1 / 3}
    text = "exact match 50.00 %, token accuracy 100.00 %, loss 0.3333"
    assert show(values, Translation(begin=1, end=2)) == text
