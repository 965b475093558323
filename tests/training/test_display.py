"""What the user sees: a bar in a terminal, plain lines elsewhere, and what survives in the log."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from headwork.training import display
from headwork.training.display import Bar, Display, Lines, Quiet, make_display, show
from headwork.training.log import Log

FIGURES = {"train": {"loss": 0.5}, "valid": {"loss": 0.25, "accuracy": 0.975}}


def tell(listener: Display) -> None:
    listener.say("digits in runs/digits [bold]")
    listener.start(n_steps=10, step=4)
    listener.stepped(5, loss=0.123456, examples_per_second=1234.5)
    listener.evaluated(1, FIGURES, best=True)
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
        "step 6/10  loss 0.5000  10 examples/s  2:00 left",
    ]


def test_which_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, kind in ((False, Lines), (True, Bar)):
        monkeypatch.setattr("sys.stderr.isatty", lambda answer=is_terminal: answer)
        assert isinstance(make_display(), kind)


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Quiet())
    assert capsys.readouterr() == ("", "")


def test_a_bar_that_never_started_stops() -> None:
    Bar(Console(file=io.StringIO())).stop()


def test_figures_in_words() -> None:
    assert show("exact_match", 0.5) == "exact match 50.00 %"
    assert show("token_accuracy", 1) == "token accuracy 100.00 %"
    assert show("loss", 1 / 3) == "loss 0.3333"


def test_a_log_that_goes_on_forgets_what_came_after(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    for step in (5, 10, 15):
        log.write("train", step, step / 5, {"loss": 1 / step}, 0.5)
    log.write("test", 5, 1.0, {"loss": 0.1}, 0.5)
    log.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "epo')  # cut off by a kill
    Log(tmp_path, 10).close()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["split"]) for row in rows] == [(5, "train"), (10, "train")]


def test_a_figure_that_is_none_is_not_written(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.write("valid", 5, 1.0, {"loss": float("nan")}, 0.5)
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""
