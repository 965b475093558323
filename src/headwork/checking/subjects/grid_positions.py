"""Absolute position codes of a grid of pixels or patches: one part of the width tells the row, the other the column."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headwork.checking import equations
from headwork.checking.calling import Assignment, Candidate, assignments, call, tensors_of
from headwork.checking.constructing import make
from headwork.checking.option import Case, Convention, How, Mistake, Reading, Subject, Weights
from headwork.checking.runner import ProgramError
from headwork.checking.subjects.simple import works

ROWS, COLUMNS, D = 4, 5, 12
ARGUMENTS = {"grid": (ROWS, COLUMNS), "rows": ROWS, "columns": COLUMNS, "d_model": D, "n_tokens": ROWS * COLUMNS}


def cases(reading: Reading, number: int) -> Case:
    generator = torch.Generator().manual_seed(reading.facts["seed"] + number)
    x = torch.randn(2, ROWS, COLUMNS, D, generator=generator, dtype=torch.float64)
    return {"x": x, "rows": ROWS, "columns": COLUMNS, "d": D, "grid": (ROWS, COLUMNS)}


def readings(candidate: Candidate) -> Iterator[Reading]:
    targets: list[tuple[str | int, dict[str, Tensor]]] = [(candidate.name, {})]
    if candidate.kind != "function":
        targets = [(made.id, made.parameters() if made.shapes else {}) for made, _ in make(candidate, ARGUMENTS)]
    role_sets: tuple[tuple[str, ...], ...] = (("x",), ("rows", "columns", "d"), ("grid", "d"), ())
    for target, parameters in targets:
        tables = [t.reshape(ROWS, COLUMNS, D) for t in parameters.values() if t.numel() == ROWS * COLUMNS * D]
        for roles in role_sets:
            for assignment in assignments(candidate.parameters, roles, (), {"flag": None, "base": None}):
                for flat in (False, True) if "x" in roles else (False,):
                    run = _run(candidate, target, assignment, flat, "x" in roles)
                    facts = {"seed": candidate.program.first_seed}
                    said = (
                        assignment.said([p["name"] for p in candidate.parameters]),
                        "added to x" if "x" in roles else "returned",
                        "pixels in one row" if flat else "row, column",
                    )
                    reading = Reading(said, run, 0.1 * flat, ({"table": tables[0] if tables else None},), facts)
                    if works(run, cases(reading, 0)):
                        yield reading


def _run(candidate: Candidate, target: str | int, assignment: Assignment, flat: bool, added: bool) -> Any:
    def run(case: Case) -> dict[str, Tensor]:
        x = case["x"].flatten(1, 2) if flat else case["x"]
        for _, t in tensors_of(call(candidate, target, assignment, {**case, "x": x})):
            if added and t.shape == x.shape:
                return {"output": (t.double() - x)[0].reshape(ROWS, COLUMNS, D)}
            if t.numel() == ROWS * COLUMNS * D and t.shape[-1] == D:
                return {"output": t.double().reshape(ROWS, COLUMNS, D)}
        raise ProgramError("NoOutput", "", None)

    return run


def expected(case: Case, reading: Reading, w: Weights, how: How) -> Tensor:
    kind = how.get("kind")
    if kind == "learned":
        if w["table"] is None or len(how) > 1:
            raise ValueError("there is no table")
        return w["table"].double()
    if kind == "one row":
        return equations.sinusoid(ROWS * COLUMNS, D, {}).reshape(ROWS, COLUMNS, D)
    start = 1 if how.get("positions") == "one" else 0
    width = D if how.get("width") in ("whole", "added") else D // 2
    order = {"order": how["order"]} if "order" in how else {}
    rows = equations.sinusoid(ROWS + start, width, order)[start:, None].expand(ROWS, COLUMNS, width)
    columns = equations.sinusoid(COLUMNS + start, width, order)[None, start:].expand(ROWS, COLUMNS, width)
    told = how.get("told")
    if how.get("width") == "added":
        return rows + columns
    if how.get("width") == "whole":
        rows, columns = rows[..., : D // 2], columns[..., : D // 2]
    if told == "rows only":
        columns = rows
    elif told == "columns only":
        rows = columns
    return torch.cat([columns, rows] if how.get("first") == "columns" else [rows, columns], dim=-1)


HALVES = ("cat", "sin", "return")
SUBJECT = Subject(
    name="grid positions",
    title="positions of a grid",
    pattern=r".*(absolute_?pos|(sin\w*|pos\w*|emb\w*)_?2_?d|2_?d_?(sin|pos)|grid_?(pos|emb)).*",
    mistakes=(
        Mistake("told", "rows only", "Both halves of the code tell the row: pixels of a row have the same code.", "Look at the two halves.", "What differs between two pixels of a row?", HALVES, "vit-positions-learn-a-layout"),
        Mistake("told", "columns only", "Both halves of the code tell the column: pixels of a column have the same code.", "Look at the two halves.", "What differs between two pixels of a column?", HALVES, "vit-positions-learn-a-layout"),
        Mistake("width", "added", "The codes of row and column are added with the same frequencies: (1, 2) and (2, 1) have the same code.", "Look at how row and column are joined.", "Do two pixels have the same code?", ("difference", "return"), "order-needs-positions"),
        Mistake("width", "whole", "Each half is the first half of a code of the whole width: its frequencies fall half as fast as they should.", "Look at the exponent.", "How wide is the code of a row?", ("base", "sin"), None),
        Mistake("positions", "one", "Rows and columns are counted from 1, and should be from 0.", "Look at the positions.", "What is the code of the first pixel?", ("positions",), None),
    ),
    conventions=(Convention("kind", "learned", "a table that is learned"), Convention("kind", "one row", "counted along the flattened grid"), Convention("first", "columns", "the first half tells the column"), Convention("order", "halves", "sines and cosines in halves")),
    readings=readings, cases=cases, expected=expected, kinds=("function", "class", "instance"), strict=False, n_cases=2,
)  # fmt: skip
