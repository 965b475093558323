"""All commands, and what their exit codes mean.

Exit code 0: done; 1: it failed; 2: you asked wrongly; 3: a number was not finite; 130, 143: you stopped it.
"""

import os
import sys
from typing import Annotated, Protocol

import tyro
from tyro.conf import FlagCreatePairsOff, subcommand

from headwork.cli.compare import Compare
from headwork.cli.convert import Convert
from headwork.cli.cost import Cost
from headwork.cli.evaluate import Evaluate
from headwork.cli.generate import Generate
from headwork.cli.lab import Lab
from headwork.cli.models import Models
from headwork.cli.predict import Predict
from headwork.cli.trace import Trace
from headwork.cli.train import Train
from headwork.cli.translate import Translate
from headwork.extras import MissingExtraError

Command = (
    Annotated[Train, subcommand("train")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Predict, subcommand("predict")]
    | Annotated[Generate, subcommand("generate")]
    | Annotated[Translate, subcommand("translate")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Convert, subcommand("convert")]
    | Annotated[Trace, subcommand("trace")]
    | Annotated[Cost, subcommand("cost")]
    | Annotated[Models, subcommand("models")]
    | Annotated[Lab, subcommand("lab")]
)


class Runs(Protocol):
    """Any command."""

    def run(self) -> None: ...


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    command: Runs = tyro.cli(
        Command,
        prog="headwork",
        description="Transformers you can read, run, prove and see.",
        args=arguments,
        config=(FlagCreatePairsOff,),
    )
    try:
        command.run()
        sys.stdout.flush()
    except ValueError as error:
        print(f"headwork: error: {error}", file=sys.stderr)
        return 2
    except MissingExtraError as error:
        print(f"headwork: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        print("headwork: failed: there is not enough memory for this", file=sys.stderr)
        return 1
    except (OSError, RuntimeError) as error:
        stopped = getattr(error, "signal_number", None) is not None
        print(f"headwork: {error}" if stopped else f"headwork: failed: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    except KeyboardInterrupt:
        print("headwork: stopped", file=sys.stderr)
        return 130
    return 0
