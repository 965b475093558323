"""`headwork lab` as a user types it."""

import json

import pytest

from headwork.cli import main
from headwork.lab import catalogue, find

SMALL = ["--set", "widths=(4, 32)", "n_samples=4000"]
NAME = "variance-of-dot-product"


@pytest.fixture
def small_lab(monkeypatch):
    """Only two claims, at their small sizes."""
    two = tuple(label for label in catalogue.labels() if label.name in (NAME, "temperature"))
    monkeypatch.setattr("headwork.lab.labels", lambda: two)
    for label in two:
        claim = find(label.name)
        monkeypatch.setitem(claim.__dict__, "setup", claim.small)


def run(capsys, *arguments):
    code = main(["lab", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_list(capsys):
    code, out, _ = run(capsys)
    assert code == 0
    lines = out.splitlines()
    start = lines.index("C182: UC Berkeley, Data C182, Discussion 06")
    assert any(line.split()[:2] == ["1(b)", NAME] for line in lines[start:])
    _, out, _ = run(capsys, "--json")
    assert {"name", "document", "question", "says", "also"} == json.loads(out)[0].keys()


def test_one_claim_prints_numbers_and_writes_page_and_figure(capsys, tmp_path):
    code, out, err = run(capsys, NAME, *SMALL, "--out", tmp_path / "new" / "folder")
    assert code == 0
    assert f"{NAME} holds." in out
    assert "variance of q.k / sqrt(d) at d = 32  4.659" in out
    for what in find(NAME).broken:
        assert any(line.startswith(what) and line.endswith("fails") for line in out.splitlines())
    written = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert written == {f"{NAME}.md", f"{NAME}.png"}
    assert f"{NAME}.md" in err


def test_the_default_folder_is_out_lab(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(capsys, NAME, *SMALL)
    assert (tmp_path / "out" / "lab" / f"{NAME}.md").exists()


def test_json_writes_no_files_unless_asked(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, NAME, *SMALL, "--json", "--seed", 3)
    answer = json.loads(out)
    assert code == 0
    assert answer["holds"] is True
    assert answer["setup"]["seed"] == 3
    assert {broken["wrong"] for broken in answer["broken"]} == set(find(NAME).broken)
    assert not any(broken["holds"] for broken in answer["broken"])
    assert not list(tmp_path.iterdir())
    run(capsys, NAME, *SMALL, "--json", "--out", tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".md", ".png"}
    run(capsys, NAME, *SMALL, "--json", "--svg", "--out", tmp_path)
    assert (tmp_path / f"{NAME}.svg").exists()


def test_a_claim_that_fails_is_exit_code_1(capsys, tmp_path):
    code, out, err = run(capsys, NAME, *SMALL, "formula=printed", "--out", tmp_path)
    assert code == 1
    assert f"{NAME} fails." in out
    assert f"1 of 1 claims fail: {NAME}" in err
    assert "Verdict: **fails**" in (tmp_path / f"{NAME}.md").read_text()


def test_many_seeds(capsys, tmp_path):
    code, out, _ = run(capsys, NAME, *SMALL, "--seeds", 3, "--out", tmp_path)
    assert code == 0
    assert f"{NAME} holds: 3 of 3 seeds." in out


def test_all_ends_with_the_table_of_verdicts(capsys, tmp_path, small_lab):
    code, out, err = run(capsys, "--all", "--out", tmp_path)
    assert code == 0
    assert err.splitlines()[0].strip().startswith("1/2 temperature: holds (")
    assert out.splitlines()[0].split()[0] == "claim"
    assert out.splitlines()[-1] == "2 of 2 hold."
    assert {path.name for path in tmp_path.glob("*.md")} == {
        "temperature.md",
        f"{NAME}.md",
        "index.md",
        "errata.md",
        *("nyu.md", "eth.md", "c182.md", "qmul.md", "eecs-182.md"),
    }


def test_all_as_json_is_a_list(capsys, small_lab):
    code, out, _ = run(capsys, "--all", "--json")
    answers = json.loads(out)
    assert code == 0
    assert [answer["name"] for answer in answers] == ["temperature", NAME]
    assert all(
        {"name", "document", "question", "predicted", "measured", "tolerance", "holds"} <= answer.keys()
        for answer in answers
    )


def test_stopping_keeps_the_pages_already_written(capsys, tmp_path, small_lab, monkeypatch):
    def interrupted(setup):
        raise KeyboardInterrupt

    monkeypatch.setitem(find(NAME).__dict__, "run", interrupted)
    code, _, err = run(capsys, "--all", "--out", tmp_path)
    assert code == 130
    assert "headwork: stopped" in err
    assert {path.name for path in tmp_path.iterdir()} == {"temperature.md", "temperature.png"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["varience-of-dot-product"], "claim 'varience-of-dot-product' is not known; the nearest is variance-of"),
        ([NAME, "--all"], "all runs every claim: leave out the name"),
        (["--all", "--set", "seed=1"], "set is for one claim: give its name, got seed=1"),
        (["--out", "x"], "out is for claims that run: give a name or --all, got x"),
        (["--svg"], "svg is for claims that run: give a name or --all, got neither"),
        ([NAME, "--json", "--svg"], "svg needs a folder: give --out beside --json, got none"),
        ([NAME, "--seeds", "0"], "seeds must be 1 or more, got 0"),
        ([NAME, "--seed", "-1"], "seed must lie in 0 .. 2^63 - 1, got -1"),
        ([NAME, "--set", "n_samples=0"], "n_samples must lie in 1 .. 100,000,000, got 0"),
        ([NAME, "--set", "n_samples"], "set must be FIELD=VALUE, got 'n_samples'"),
        ([NAME, "--set", "n_sample=3"], "has no field 'n_sample'; did you mean 'n_samples'?"),
        ([NAME, "--set", "keys=no"], "Setup.keys must be one of independent, equal to the query, got 'no'"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_asking_wrongly_is_exit_code_2_before_anything_runs(capsys, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_named_before_the_run(capsys, tmp_path, monkeypatch):
    def must_not_run(setup):
        raise AssertionError

    monkeypatch.setitem(find(NAME).__dict__, "run", must_not_run)
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, NAME, "--out", tmp_path / "file" / "folder")
    assert code == 1
    assert "headwork: failed:" in err
    assert "file" in err


def test_a_question_is_answered(capsys):
    code, out, _ = run(capsys, "ETH 1(b.1)")
    assert code == 0
    assert out.startswith("ETH 1(b.1): Put (7) into (6).\nA = v' r_delta = -alpha (|delta|^2 - 2 Delta . delta)")
    assert "`headwork lab relative-scores-know-the-shift`" in out


@pytest.mark.parametrize("name", ["EECS 2(d)", "eecs 2d", "EECS 182 2(d)"])
def test_eecs_is_short_for_eecs_182(capsys, name):
    code, out, _ = run(capsys, name)
    assert code == 0
    assert out.startswith("EECS 182 2(d): ")


@pytest.mark.parametrize(
    ("name", "first"), [("ETH", "ETH (1)-(3)"), ("eecs", "EECS 182 Figure 1"), ("EECS 182", "EECS 182 Figure 1")]
)
def test_a_document_is_answered(capsys, name, first):
    code, out, _ = run(capsys, "--document", name)
    assert code == 0
    assert first in out.split("\n\n")[1]
    _, as_json, _ = run(capsys, "--document", name, "--json")
    assert {"document", "name", "asks", "answer", "measured", "missing"} <= json.loads(as_json)[0].keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ETH 9"], "ETH has no question '9'; it has (1)-(3), 1(a.1)"),
        (["EECS 9"], "EECS 182 has no question '9'; it has Figure 1, 1 listing"),
        (["MIT 1"], "a question must start with one of NYU, ETH, C182, QMUL, EECS 182, got 'MIT 1'"),
        (["--document", "MIT"], "a question must start with one of NYU, ETH, C182, QMUL, EECS 182, got 'MIT'"),
        (["--document", "ETH", "temperature"], "document is for a whole sheet: leave out name and --all, got 'ETH'"),
    ],
)
def test_a_question_that_is_not_there(capsys, arguments, message):
    code, _, err = run(capsys, *arguments)
    assert code != 0
    assert message in err
