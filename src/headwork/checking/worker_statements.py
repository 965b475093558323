"""Which statements of somebody's file run, and what stands in for those that cannot. Without headwork, like worker.py."""

import ast
import importlib.metadata
import re
from typing import TypeGuard

USUAL_VOCABULARY = 23
installed_version = importlib.metadata.version


def version_of(distribution_name: str) -> str:
    """A package asks for its own version as it is imported, and is a folder here that was never installed."""
    try:
        return installed_version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        return "0"


def imported(tree: ast.Module) -> set[str]:
    """Packages that a program imports anywhere."""
    found: set[str] = set()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            found |= {name.name.split(".")[0] for name in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            found.add((statement.module or "").split(".")[0])
    return found


def usual_numbers(statement: ast.Assign) -> dict[str, int]:
    """A number for what an assignment would have counted in a text that is not there: `vocab_size = len(chars)`."""
    names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return {n: USUAL_VOCABULARY for n in names if re.fullmatch(r"(?i)\w*vocab(ulary)?_?(size|len)|n_?vocab", n)}


def is_main(statement: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def is_plain(statement: ast.stmt) -> bool:
    """An assignment that calls nothing but len and its like."""
    calls = [ast.unparse(n.func) for n in ast.walk(statement) if isinstance(n, ast.Call)]
    return isinstance(statement, ast.Assign) and set(calls) <= {
        "len",
        "int",
        "float",
        "max",
        "min",
        "sum",
        "range",
        "dict",
        "list",
        "enumerate",
        "torch.device",
    }
