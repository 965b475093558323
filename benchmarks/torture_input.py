"""Wrong commands and wrong calls: tried, refused in a sentence, and not. `make torture` prints the table."""

import os
import tempfile
from pathlib import Path

from tests.wrong_use import prepare, try_call, try_command, wrong_calls, wrong_commands


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        os.chdir(folder)
        commands = {" ".join(words): try_command(words) for words in wrong_commands()}
        calls = {name: try_call(call) for name, call in wrong_calls().items()}
        os.chdir("/")
    print("| what | tried | held | failed |\n|---|---|---|---|")
    for what, results in (("wrong commands", commands), ("wrong calls", calls)):
        failed = {name: problem for name, problem in results.items() if problem}
        print(f"| {what} | {len(results)} | {len(results) - len(failed)} | {len(failed)} |")
        for name, problem in failed.items():
            print(f"| | {name} | | {problem} |")


if __name__ == "__main__":
    main()
