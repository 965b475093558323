"""How many files and functions of headwork take part in four everyday commands: `python benchmarks/walks.py`.

A walk is what a reader has to follow: the files in which at least one function ran after the command was parsed; what
merely is imported does not count. Digits are trained for two steps, a prompt is continued, a network is converted, a
claim is turned into its page.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

SOURCE = Path(__file__).parents[1] / "src" / "headwork"


class Walk:
    """Collects which functions run in which files, in all threads of this process."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str, int]] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(str(SOURCE)):
            name = str(Path(code.co_filename).relative_to(SOURCE))
            self.functions.add((name, code.co_qualname, code.co_firstlineno))

    @property
    def files(self) -> list[str]:
        return sorted({file for file, *_ in self.functions})


def follow(run: Callable[[], object]) -> Walk:
    walk = Walk()
    sys.setprofile(walk)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run()
    finally:
        sys.setprofile(None)
    return walk


def main() -> None:
    import headwork.hub  # some commands import it late
    from headwork.cli import main as headwork

    def command(*words: str) -> Callable[[], object]:
        def run() -> None:
            assert headwork(list(words)) == 0, words

        return run

    with tempfile.TemporaryDirectory() as folder:
        digits, text, resnet = (str(Path(folder) / name) for name in ("digits", "text", "resnet"))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            command("train", "text-gpt", "--steps", "2", "--out", text)()
            command("train", "digits-resnet", "--steps", "2", "--out", resnet)()
        walks = {
            "a digit from `train` to its report": command("train", "digits-vit", "--steps", "2", "--out", digits),
            "a prompt to the printed text": command("generate", text, "--prompt", "The "),
            "a network through `convert`": command("convert", resnet, "--out", str(Path(folder) / "converted")),
            "a claim to its page": command("lab", "temperature", "--out", str(Path(folder) / "lab")),
        }
        for name, run in walks.items():
            walk = follow(run)
            print(f"{name}: {len(walk.files)} files, {len(walk.functions)} functions")
            if "--files" in sys.argv:
                print("   ", "\n    ".join(walk.files))


if __name__ == "__main__":
    main()
