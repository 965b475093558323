"""What the user sees: a bar in a terminal, plain lines elsewhere."""

import io

import pytest
from rich.console import Console

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


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Quiet())
    assert capsys.readouterr() == ("", "")


def test_a_bar_that_never_started_stops() -> None:
    Bar(Console(file=io.StringIO())).stop()


def test_metrics_in_words() -> None:
    values = {"exact_match": 0.5, "token_accuracy": 1, "loss": 1 / 3}
    text = "exact match 50.00 %, token accuracy 100.00 %, loss 0.3333"
    assert show(values, Translation(begin=1, end=2)) == text
