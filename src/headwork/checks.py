"""Errors that name the argument, the rule and the value; at the end, the rules that fields of a config may carry."""

import difflib
import reprlib
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from types import UnionType
from typing import Annotated


def check_positive(**counts: int | None) -> None:
    """Counts and widths are 1 or more (None: not given), and True is no number.

    >>> check_positive(n_heads=0)
    Traceback (most recent call last):
    ValueError: n_heads must be 1 or more, got 0
    """
    for name, count in counts.items():
        if count is not None and (count is True or count < 1):
            raise ValueError(f"{name} must be 1 or more, got {count}")


def check_not_negative(**counts: int | None) -> None:
    """Some counts may be 0 (None: not given).

    >>> check_not_negative(radius=-1)
    Traceback (most recent call last):
    ValueError: radius must be 0 or more, got -1
    """
    for name, count in counts.items():
        if count is not None and count < 0:
            raise ValueError(f"{name} must be 0 or more, got {count}")


def check_type(kind: type | UnionType, what: str, **values: object) -> None:
    """An argument is of the kind it has to be.

    >>> check_type(str, "a name", points=3)
    Traceback (most recent call last):
    TypeError: points must be a name, got 3
    """
    for name, value in values.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {what}, got {reprlib.repr(value)}")


def check_above_zero(**numbers: float) -> None:
    """Some numbers make sense only above zero.

    >>> check_above_zero(eps=-1.0)
    Traceback (most recent call last):
    ValueError: eps must be more than 0 and finite, got -1.0
    """
    for name, number in numbers.items():
        if not 0 < number < float("inf"):
            raise ValueError(f"{name} must be more than 0 and finite, got {number}")


def check_probability(**probabilities: float) -> None:
    """Dropout rates lie in 0 .. 1, and 1 itself would drop everything.

    >>> check_probability(dropout=1.5)
    Traceback (most recent call last):
    ValueError: dropout must lie in [0, 1), got 1.5
    """
    for name, probability in probabilities.items():
        if not 0 <= probability < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {probability}")


def check_divides(**part_and_whole: int) -> None:
    """The first of two counts divides the second.

    >>> check_divides(n_heads=4, d_model=10)
    Traceback (most recent call last):
    ValueError: n_heads must divide d_model, got n_heads=4 and d_model=10
    """
    (part, n), (whole, of) = part_and_whole.items()
    if of % n:
        raise ValueError(f"{part} must divide {whole}, got {part}={n} and {whole}={of}")


def check_size(**sizes: tuple[int, int]) -> None:
    """Sizes of an image are (rows, columns).

    >>> check_size(patch=(4, 0))
    Traceback (most recent call last):
    ValueError: patch must be (rows, columns), each 1 or more, got (4, 0)
    """
    for name, size in sizes.items():
        if min(size) < 1:
            raise ValueError(f"{name} must be (rows, columns), each 1 or more, got {size}")


def check_one_of(options: Collection[str], **values: str) -> None:
    """A name is one of those that mean something.

    >>> check_one_of(("pre", "post"), norm_order="mid")
    Traceback (most recent call last):
    ValueError: norm_order must be one of pre, post, got 'mid'
    """
    for name, value in values.items():
        if value not in options:
            raise ValueError(f"{name} must be one of {', '.join(options)}, got {value!r}")


def check_file(path: Path, name: str, most_bytes: float, what: str = "a file") -> None:
    """Raise unless it is a file on a disk, of a size that can be read at once: a pipe or a device may never end.

    >>> check_file(Path("/dev/zero"), "text", 100)
    Traceback (most recent call last):
    ValueError: text must be a file on a disk, got /dev/zero, which is a pipe or a device
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise ValueError(f"{name} must be {what} that exists, got {path}") from None
    except OSError as error:
        raise ValueError(f"{name} must be {what} that can be read, got {path} ({error.strerror})") from None
    except ValueError as error:  # a name that no file can have
        raise ValueError(f"{name} must be {what} that exists, got {str(path)!r} ({error})") from None
    if stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{name} must be {what}, got the folder {path}")
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{name} must be {what} on a disk, got {path}, which is a pipe or a device")
    if found.st_size > most_bytes:
        raise ValueError(f"{name} must have at most {most_bytes:,} bytes, got {path} with {found.st_size:,}")


def with_article(noun: str) -> str:
    """For errors about what was given.

    >>> with_article("Encoder"), with_article("text pair")
    ('an Encoder', 'a text pair')
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known one, or what there is.

    >>> nearest("bert-bas", ["bert-base", "gpt2"])
    "; did you mean 'bert-base'?"
    >>> nearest("x", ["bert-base", "gpt2"])
    '; there are bert-base, gpt2'
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"


# What `serialise.Checked` sees to, for every field with such an annotation.
Count = Annotated[int, check_positive]
CountOrZero = Annotated[int, check_not_negative]
PositiveNumber = Annotated[float, check_above_zero]
Probability = Annotated[float, check_probability]
Size = Annotated[tuple[int, int], check_size]
