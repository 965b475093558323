"""Every mistake in every style, and every right program: detected, named, at the right line; no right one accused.

python -m benchmarks.kill_matrix [--sample N] [--seed S] [--subject NAME]
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.checking.programs import BASES, Base, print_program, styles

from headwork.checking import check_file
from headwork.checking.report import Report
from headwork.checking.runner import ForkServer, ProgramDiedError


def candidate_of(program: str, base: Base) -> str:
    kind = "".join(word.capitalize() for word in base.name.split("_"))
    return kind if f"class {kind}(" in program else base.name


def judge(
    server: ForkServer, folder: Path, base: Base, mistake: str | None, style: tuple[str, str, str]
) -> tuple[Report, str]:
    program = print_program(base, mistake, style)
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    return check_file(path, candidate_of(program, base), server=server)[0], program


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subject", default="")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    cells = [(b, m, s) for b in BASES for m in (None, *b.mistakes) for s in styles() if options.subject in b.subject]
    if options.sample:
        cells = random.Random(options.seed).sample(cells, min(options.sample, len(cells)))
    counts: Counter[str] = Counter()
    by_subject: dict[str, Counter[str]] = {}
    start = time.monotonic()
    with ForkServer() as server, tempfile.TemporaryDirectory() as name:
        for base, mistake, style in cells:
            try:
                report, _ = judge(server, Path(name), base, mistake, style)
            except ProgramDiedError as error:
                print(f"DIED {base.name} {mistake} {style}: {error}", flush=True)
                continue
            own = by_subject.setdefault(base.subject, Counter())
            names = [f.name for f in report.findings]
            if mistake is None:
                outcome = [
                    "right programs",
                    *(["accused"] if report.verdict == "wrong" else []),
                    *(["not recognised"] if report.verdict in ("unknown", "failed") else []),
                ]
            else:
                outcome = ["mistakes"]
                outcome += ["detected"] if not report.right else []
                outcome += ["named"] if names == [mistake] else []
                if mistake in base.line and names == [mistake]:
                    line = report.findings[0].line
                    outcome += ["lines", *(["line right"] if line and base.line[mistake] in line.text else [])]
            counts.update(outcome)
            own.update(outcome)
            if (mistake is None and not report.right) or (mistake is not None and names != [mistake]):
                print(
                    f"{base.name} | {mistake} | {' '.join(style)} | {report.verdict} | {names} | {report.sentence[:110]}",
                    flush=True,
                )
    print(f"\n{'subject':26} mistakes x styles  detected  named  right x styles  accused  not recognised  lines right")
    for subject, c in [*by_subject.items(), ("all", counts)]:
        print(
            f"{subject:26} {c['mistakes']:17} {c['detected']:9} {c['named']:6} {c['right programs']:15} {c['accused']:8} {c['not recognised']:15} {c['line right']:6}/{c['lines']}"
        )
    print(f"{len(cells)} programs, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
