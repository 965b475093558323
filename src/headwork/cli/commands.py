"""All commands, and what their exit codes mean.

Exit code 0: done; 1: it failed; 2: you asked wrongly; 130: you stopped it.
"""

import os
import sys
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, subcommand

from headwork.cli.cost import Cost
from headwork.cli.lab import Lab
from headwork.cli.sizes import Sizes
from headwork.cli.trace import Trace

Command = (
    Annotated[Trace, subcommand("trace")]
    | Annotated[Cost, subcommand("cost")]
    | Annotated[Sizes, subcommand("sizes")]
    | Annotated[Lab, subcommand("lab")]
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    command: Trace | Cost | Sizes | Lab = tyro.cli(
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
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, RuntimeError) as error:
        print(f"headwork: failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("headwork: stopped", file=sys.stderr)
        return 130
    return 0
