"""Every mistake in every style, and every right program: detected, named, at the right line; no right one accused.

python -m benchmarks.kill_matrix [--sample N] [--seed S] [--subject NAME] [--log FILE [--resume]] [--part I --of N]

Parts run beside each other, with a log each. The log has a line of JSON for each program; --resume goes on where it ends, and --log with --table prints its table.
"""

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.checking.programs import BASES, Base, planted_lines, print_program, styles

from headwork.checking import check_file
from headwork.checking.report import Report
from headwork.checking.runner import ForkServer, ProgramDiedError

Cell = tuple[Base, str | None, tuple[str, str, str]]


def candidate_of(program: str, base: Base) -> str:
    kind = "".join(word.capitalize() for word in base.name.split("_"))
    return kind if f"class {kind}" in program else base.name


def judge(
    server: ForkServer, folder: Path, base: Base, mistake: str | None, style: tuple[str, str, str]
) -> tuple[Report, str]:
    program = print_program(base, mistake, style)
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    return check_file(path, candidate_of(program, base), server=server)[0], program


def key_of(cell: Cell) -> str:
    base, mistake, style = cell
    return f"{base.subject} | {base.name} | {mistake} | {' '.join(style)}"


def run(server: ForkServer, folder: Path, cell: Cell) -> dict[str, Any]:
    base, mistake, style = cell
    start = time.monotonic()
    try:
        report, _ = judge(server, folder, base, mistake, style)
    except ProgramDiedError as error:
        return {"cell": key_of(cell), "verdict": "failed", "names": [], "sentence": f"it died: {error}", "line": False}
    line = report.findings[0].line if report.findings else None
    at = mistake is not None and line is not None and line.number in planted_lines(base, mistake, style)
    return {
        "cell": key_of(cell),
        "verdict": report.verdict,
        "names": [f.name for f in report.findings],
        "line": at,
        "others": report.certainty.startswith("agrees on"),
        "seconds": round(time.monotonic() - start, 2),
        "sentence": report.sentence,
    }


def outcomes(record: dict[str, Any]) -> list[str]:
    mistake = record["cell"].split(" | ")[2]
    if mistake == "None":
        return [
            "right programs",
            *(["accused"] if record["verdict"] == "wrong" else []),
            *(["not recognised"] if record["verdict"] in ("unknown", "failed") else []),
        ]
    named = record["names"] == [mistake]
    return [
        "mistakes",
        *(["detected"] if record["verdict"] == "wrong" else []),
        *(["named"] if named else []),
        *(["line"] if named and record["line"] else []),
        *(["alone"] if named and not record.get("others") else []),
    ]


def table(records: list[dict[str, Any]]) -> str:
    by_subject: dict[str, Counter[str]] = {}
    for record in records:
        by_subject.setdefault(record["cell"].split(" | ")[0], Counter()).update(outcomes(record))
    total: Counter[str] = Counter()
    for own in by_subject.values():
        total.update(own)
    head = "| subject | wrong programs | detected | named | nothing else agrees | line | right programs | accused | not recognised |"
    rows = [head, "|---" * 9 + "|"]
    for subject, c in [*by_subject.items(), ("all", total)]:
        numbers = ("mistakes", "detected", "named", "alone", "line", "right programs", "accused", "not recognised")
        rows.append("| " + " | ".join([subject, *(str(c[n]) for n in numbers)]) + " |")
    slowest = max(records, key=lambda r: r.get("seconds", 0))
    seconds = sum(r.get("seconds", 0) for r in records)
    return (
        "\n".join(rows)
        + f"\n\n{len(records)} programs, {seconds:.0f} s; the slowest {slowest['seconds']} s ({slowest['cell']})"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subject", default="")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--table", action="store_true", help="print the table of the log, and run nothing")
    options = parser.parse_args()
    every = [(b, m, s) for s in styles() for b in BASES for m in (None, *b.mistakes)]
    random.Random(options.seed).shuffle(every)  # what has been run at any time is a sample of the whole
    cells = [cell for cell in every if options.subject in cell[0].subject][options.part :: options.of]
    if options.sample:
        cells = cells[: options.sample]
    records: dict[str, dict[str, Any]] = {}
    if options.log and options.log.exists() and (options.resume or options.table):
        lines = options.log.read_text(encoding="utf-8").splitlines()
        records = {record["cell"]: record for record in map(json.loads, lines)}
    if not options.table:
        if options.log and not options.resume:
            options.log.unlink(missing_ok=True)
        with ForkServer() as server, tempfile.TemporaryDirectory() as name:
            for cell in cells:
                if key_of(cell) in records:
                    continue
                record = records[key_of(cell)] = run(server, Path(name), cell)
                if options.log:
                    with options.log.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(record) + "\n")
                good = (
                    record["verdict"] == "right"
                    if cell[1] is None
                    else (record["names"] == [cell[1]] and record["line"])
                )
                if not good:
                    print(
                        f"{record['cell']} | {record['verdict']} | {record['names']} | {record['sentence'][:110]}",
                        flush=True,
                    )
    known = {key_of(cell) for cell in cells}
    print("\n" + table([record for key, record in records.items() if key in known]))


if __name__ == "__main__":
    main()
