"""`headwork compare` as a user types it."""

import json

import pytest

from headwork.cli import main
from headwork.metric import MetricRow
from headwork.storage.metrics_log import MetricsLog


def write_metrics(folder, n_epochs, metric="accuracy"):
    log = MetricsLog(folder)
    for e in range(1, n_epochs + 1):
        log.write(MetricRow(7 * e, e, "valid", {"loss": 1 / e, metric: 0.2 * e}, 2.0 * e))


@pytest.fixture
def runs(tmp_path):
    folders = []
    for name, n_epochs in (("short", 2), ("long", 3)):
        folder = tmp_path / name
        folder.mkdir()
        write_metrics(folder, n_epochs)
        folders.append(str(folder))
    return folders


def run(capsys, *arguments):
    code = main(["compare", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_table_is_printed(capsys, runs):
    code, out, _ = run(capsys, *runs)
    assert code == 0
    header, *lines = out.splitlines()
    assert header.split()[:3] == ["run", "epochs", "steps"]
    assert lines[0].split() == ["short", "2", "14", "0.4", "2", "–", "0.5", "–", "4"]
    assert lines[1].split()[0] == "long"


def test_json_for_a_program(capsys, runs):
    code, out, _ = run(capsys, *runs, "--json", "--metric", "loss")
    assert code == 0
    assert [(entry["name"], entry["best_valid"]) for entry in json.loads(out)["runs"]] == [
        ("short", 0.5),
        ("long", 1 / 3),
    ]


def test_a_figure_and_a_page_are_written(capsys, runs, tmp_path):
    figure, page = tmp_path / "new" / "x.png", tmp_path / "newer" / "x.html"
    code, _, err = run(capsys, *runs, "--figure", str(figure), "--page", str(page))
    assert code == 0
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert f"drawn to {figure}\nwritten to {page}\n" in err


def test_different_metrics_are_said(capsys, runs, tmp_path):
    (tmp_path / "long" / "metrics.jsonl").unlink()
    write_metrics(tmp_path / "long", 3, "bleu")
    code, out, _ = run(capsys, *runs)
    assert code == 0
    assert "Only the loss is compared: no metric was measured in all runs (short: accuracy; long: bleu)." in out


def test_folders_of_the_same_name_are_told_apart(capsys, runs, tmp_path):
    other = tmp_path / "other" / "short"
    other.mkdir(parents=True)
    (other / "metrics.jsonl").write_bytes((tmp_path / "short" / "metrics.jsonl").read_bytes())
    _, out, _ = run(capsys, runs[0], str(other))
    assert runs[0] in out
    assert str(other) in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "runs must be one or more different folders, got none"),
        (["{0}", "{0}"], "runs must be one or more different folders, got "),
        (["nowhere"], "run must be the folder of a run (written by `headwork train`), got nowhere"),
        (["{0}", "--metric", "acuracy"], "metric 'acuracy' is not known; did you mean 'accuracy'?"),
        (["{0}", "--figure", "x.xyz"], "figure must end in one of"),
        (["{0}", "--page", "x.pdf"], "page must end in .html, got x.pdf"),
    ],
)
def test_asking_wrongly_is_exit_code_2_and_says_why(capsys, runs, arguments, message):
    code, out, err = run(capsys, *(argument.format(*runs) for argument in arguments))
    assert code == 2
    assert out == ""
    assert message in err
