"""All commands, and what their exit codes mean.

Exit code 0: done; 1: it failed; 2: you asked wrongly; 3: a number was not finite; 130, 143: you stopped it.
"""

import atexit
import gc
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any, Protocol, runtime_checkable

import tyro
from tyro.conf import FlagCreatePairsOff
from tyro.extras import subcommand_cli_from_dict

import headwork
from headwork.checks import nearest
from headwork.cli.accept import Accept
from headwork.cli.arguments import Terminal, complain
from headwork.cli.check import Check
from headwork.cli.compare import Compare
from headwork.cli.convert import Convert
from headwork.cli.evaluate import Evaluate
from headwork.cli.explore import Explore
from headwork.cli.export import Export
from headwork.cli.generate import Generate
from headwork.cli.inspection import Cost, Models, Trace
from headwork.cli.lab import Lab
from headwork.cli.predict import Predict
from headwork.cli.threads import share_processors
from headwork.cli.train import Train, with_recipe
from headwork.cli.translate import Translate
from headwork.extras import MissingExtraError
from headwork.own_code import is_raised_by_own, own_frames, own_place


@runtime_checkable
class Command(Protocol):
    """Any command."""

    def run(self) -> None: ...


_NO_TYPE = re.compile(r"Error parsing (\S+): no type matching (.+) could be instantiated from \[(.*?)\]\.")
_NO_NUMBER = re.compile(r"Error parsing (\S+): (?:invalid literal|could not convert).*: ('.*?')")
_KINDS = {"INT": "a whole number", "FLOAT": "a number", "INT INT": "two whole numbers"}

COMMANDS: dict[str, Callable[..., Command]] = {
    command.__name__.lower(): command
    for command in (
        Train,
        Accept,
        Evaluate,
        Predict,
        Generate,
        Translate,
        Compare,
        Convert,
        Export,
        Trace,
        Cost,
        Models,
        Explore,
        Lab,
        Check,
    )
}


def parse(arguments: list[str]) -> Command:
    """The command that was typed; asked for help, or wrongly, this prints it and leaves."""
    name = arguments[0] if arguments else ""
    options: dict[str, Any] = {"prog": "headwork", "args": arguments, "config": (FlagCreatePairsOff,)}
    if name in COMMANDS:
        options |= {"prog": f"headwork {name}", "args": arguments[1:]}
        if {"-h", "--help"} & set(arguments):
            options["args"] = ["--help"]
            if name == "train" and not arguments[1].startswith("-"):
                options["default"] = with_recipe(arguments[1])
        return read_arguments(COMMANDS[name], **options)
    if name and not name.startswith("-"):
        raise ValueError(f"command {name!r} is not known{nearest(name, COMMANDS)}")
    about = f"Headwork {headwork.__version__}: Transformers you can read, run, prove and see."
    return subcommand_cli_from_dict(COMMANDS, description=about, **options)


def read_arguments(command: Callable[..., Command], **options: Any) -> Command:
    """The command; what cannot be read of it is said in a line, as every other error is."""
    with redirect_stderr(io.StringIO()) as said:
        try:
            return tyro.cli(command, **options)
        except SystemExit as left:
            if left.code != 2:
                raise
    raise ValueError(f"{in_words(said.getvalue())}; see {options['prog']} --help")


def in_words(box: str) -> str:
    """What stands in a box of tyro's under its title, up to the next rule, and what it suggests."""
    groups: list[list[str]] = [[]]
    for line in (line.strip("│ ") for line in box.splitlines()):
        if line.startswith(("╭", "╰", "───", "---")):
            groups.append([])
        elif line:
            groups[-1].append(line)
    parts = [group for group in groups[1:] if group]  # the title stands before, or in, the first rule
    what = " ".join(parts[0]) if parts else "the arguments cannot be read"
    if found := _NO_TYPE.search(what):
        kind = found[2].removeprefix("{None}|").strip("{}")
        return f"{found[1]} must be {_KINDS.get(kind, kind)}, got {found[3]}"
    if found := _NO_NUMBER.search(what):
        return f"{found[1]} must be {'a whole number' if 'int()' in what else 'a number'}, got {found[2]}"
    meant = [line.split()[0] for group in parts[1:] for line in group if line.startswith("--")]
    return what.rstrip(".") + (f"; perhaps you meant {' or '.join(meant)}" if meant and "Perhaps" in box else "")


class OwnCodeError(RuntimeError):
    """The user's own code raised an error: what it was, and where."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Say of an error in the user's own code where it is: it is no wrong question, and no failure of ours."""
    try:
        yield
    except (BrokenPipeError, MemoryError):
        raise
    except Exception as error:
        found: BaseException | None = error
        while found is not None and not is_raised_by_own(found):
            found = found.__cause__
        if found is None:
            raise
        what = f"{own_place(error)}: {type(error).__name__}: {error}" if found is error else str(error)
        calls = "".join(traceback.format_list(own_frames(found))).rstrip()
        raise OwnCodeError(f"{what}\n{calls}") from error


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    atexit.register(gc.freeze)  # Python would look through every object once more, a second after the last line
    if arguments == ["--version"]:
        print(f"headwork {headwork.__version__}")
        return 0
    share_processors()
    try:
        with own_errors():
            command = parse(arguments)
        with own_errors(), redirect_stdout(Terminal(sys.stdout)) if sys.stdout.isatty() else nullcontext():
            try:
                command.run()
            except SystemExit as left:
                raise RuntimeError(f"your own code ended the program, with exit code {left.code}") from None
            sys.stdout.flush()
    except ValueError as error:
        place = own_place(error)
        complain(f"error: {error}{f' (called in {place})' if place else ''}")
        return 2
    except MissingExtraError as error:
        complain(f"error: {error}")
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        complain("failed: there is not enough memory for this")
        return 1
    except (OSError, RuntimeError) as error:
        stopped = getattr(error, "signal_number", None) is not None
        complain(f"{error}" if stopped else f"failed: {error}")
        return getattr(error, "exit_code", 1)
    except KeyboardInterrupt as error:
        complain(f"stopped{error}")
        return 130
    return 0
