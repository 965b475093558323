"""Where in the user's own files an error comes from: not in this package, nor in Python or what is installed."""

import sysconfig
import traceback
from pathlib import Path

_PACKAGE = Path(__file__).parent
_LIBRARY = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_own_file(name: str) -> bool:
    """Whether code is the user's: not of this package, nor of Python or what is installed.

    >>> is_own_file("/home/me/my_module.py"), is_own_file(__file__), is_own_file(traceback.__file__)
    (True, False, False)
    """
    path = Path(name)
    return not (name.startswith("<") or path.is_relative_to(_PACKAGE) or _is_library(path))


def _is_library(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or any(map(path.is_relative_to, _LIBRARY))


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The calls in the user's own files that led to an error, the innermost last."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename is not None:  # the file has not run: no call is of it
        frames.append(traceback.FrameSummary(error.filename, error.lineno, "<module>", line=error.text))
    return [frame for frame in frames if is_own_file(frame.filename)]


def is_raised_by_own(error: BaseException) -> bool:
    """Whether the user's own code raised an error, or called Python or PyTorch so that they did; not this package."""
    own = own_frames(error)
    if not own or isinstance(error, SyntaxError):
        return bool(own)
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    last = next(name for name in reversed(names) if is_own_file(name) or Path(name).is_relative_to(_PACKAGE))
    return is_own_file(last)


def own_place(error: BaseException) -> str:
    """`file:line` of the innermost call in the user's own files, or nothing."""
    own, here = own_frames(error), Path.cwd()
    if not own:
        return ""
    path = Path(own[-1].filename)
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{own[-1].lineno}"
