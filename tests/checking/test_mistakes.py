"""A mistake is told in the first sentence, whatever the style; a right program is not accused."""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.kill_matrix import outcomes

from tests.checking.programs import BASES, Base, planted_lines, print_program, styles

ONE_OF_EACH = [
    (base, random.Random(i).choice(list(base.mistakes)), random.Random(i).choice(styles()))
    for i, base in enumerate(BASES)
]
FAST = ("softmax", "gelu", "causal mask", "sinusoidal positions")


def name_of(program: str, base: Base) -> str:
    kind = "".join(word.capitalize() for word in base.name.split("_"))
    return kind if f"class {kind}" in program else base.name


def judge(check, base: Base, mistake: str | None, style: tuple[str, str, str]):
    program = print_program(base, mistake, style)
    (report,) = check(program, name_of(program, base))
    return report, program


@pytest.mark.parametrize(
    ("base", "mistake", "style"),
    [pytest.param(*cell, id=f"{cell[0].name}-{cell[1]}") for cell in ONE_OF_EACH if cell[0].subject in FAST],
)
def test_a_mistake_is_named(check, base, mistake, style):
    report, _ = judge(check, base, mistake, style)
    assert [f.name for f in report.findings] == [mistake], report
    assert report.sentence == report.findings[0].sentence
    assert report.read_as


@pytest.mark.parametrize("base", [b for b in BASES if b.subject in FAST], ids=lambda b: b.name)
def test_a_right_program_is_right(check, base):
    report, _ = judge(check, base, None, styles()[5])
    assert report.right, report


@pytest.mark.slow
def test_a_seeded_sample_of_the_kill_matrix(tmp_path):
    """As `make kill-matrix` runs it, in a process whose types are not checked at every call: that takes five times as long."""
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "benchmarks.kill_matrix", "--sample", "200", "--seed", "1", "--log", str(log)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], capture_output=True, timeout=1800)
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    counts = Counter(outcome for record in records for outcome in outcomes(record))
    assert len(records) == 200
    assert not counts["accused"], [r for r in records if "accused" in outcomes(r)]
    assert counts["detected"] == counts["mistakes"], [r for r in records if r["verdict"] != "wrong"]
    assert counts["named"] >= 0.98 * counts["mistakes"], records


def test_there_are_enough_mistakes_and_styles():
    by_subject: dict[str, set[str]] = {}
    for base in BASES:
        by_subject.setdefault(base.subject, set()).update(base.mistakes)
    assert len(styles()) >= 20
    for base in BASES:
        assert len({print_program(base, None, style) for style in styles()}) >= 20, base.name
    assert sum(map(len, by_subject.values())) >= 120
    assert all(len(own) >= 4 for own in by_subject.values())


def test_every_mistake_of_the_programs_is_known():
    from headwork.checking.subjects.attention import NO_CAUSAL
    from headwork.checking.subjects.every import SUBJECTS

    known = {s.name: {m.name for m in s.mistakes} | {NO_CAUSAL.name} for s in SUBJECTS}
    for base in BASES:
        assert set(base.mistakes) <= known[base.subject], base.name


def test_every_subject_has_claims_that_exist_and_features_that_can_be_found():
    from headwork.checking.pointing import FEATURES
    from headwork.checking.subjects.every import SUBJECTS
    from headwork.lab import labels

    claims = {label.name for label in labels()}
    for subject in SUBJECTS:
        assert len(subject.mistakes) >= 4
        assert len({(m.option, m.value) for m in subject.mistakes}) == len(subject.mistakes), subject.name
        for mistake in subject.mistakes:
            assert mistake.claim is None or mistake.claim in claims, mistake.name
            assert set(mistake.point) <= set(FEATURES), mistake.name
            assert mistake.sentence.endswith((".", ")"))


def pointed(base: Base, mistake: str, style: tuple[str, str, str]) -> int | None:
    """The number of the line that would be shown for a mistake."""
    from headwork.checking.pointing import find_line
    from headwork.checking.subjects.attention import NO_CAUSAL
    from headwork.checking.subjects.every import SUBJECTS

    known = {m.name: m for s in SUBJECTS if s.name == base.subject for m in (NO_CAUSAL, *s.mistakes)}
    program = print_program(base, mistake, style)
    line = find_line(program, name_of(program, base), known[mistake].point)
    return None if line is None else line.number


@pytest.mark.parametrize("base", BASES, ids=lambda b: b.name)
def test_the_line_is_the_one_with_the_mistake(base):
    for i, mistake in enumerate(base.mistakes):
        for style in styles()[i % 8 :: 8]:
            assert pointed(base, mistake, style) in planted_lines(base, mistake, style), (mistake, style)


@pytest.mark.slow
def test_a_last_norm_that_is_not_used_is_named(check):
    base = next(b for b in BASES if b.name == "GPT")
    report, _ = judge(check, base, "final_norm: not used", styles()[0])
    assert [f.name for f in report.findings] == ["final_norm: not used"], report
