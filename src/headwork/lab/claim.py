"""What a claim is: one file with a setup to vary, a run to repeat, a verdict that can fail, and a figure."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from functools import wraps
from typing import ClassVar, Generic, TypeVar, get_args, get_type_hints

import torch

from headwork.checks import nearest
from headwork.figures import Figure, plot_style
from headwork.lab.catalogue import Document, cite, place, read_docstring
from headwork.lab.verdict import Check, Verdict, show
from headwork.serialise import Checked, config_to_dict
from headwork.tables import Table

LARGEST_SIZE = 10**8
UNSURE_OF_SD = 1.9
"""How far a standard deviation of 20 seeds may be off: the square root of 19 over the 0.1 % point of chi squared."""


@dataclass(frozen=True, kw_only=True)
class Experiment(Checked):
    """What a claim is measured with: sizes (whole numbers of 1 or more), other choices, and a seed."""

    smallest: ClassVar[Mapping[str, int]] = {}

    seed: int = 0

    def __init_subclass__(cls, *, smallest: Mapping[str, int] | None = None) -> None:
        """`smallest` has sizes below which a formula of the claim does not apply, or a spread cannot be measured."""
        super().__init_subclass__()
        cls.smallest = smallest or {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must lie in 0 .. 2^63 - 1, got {self.seed}")
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            if value == ():
                raise ValueError(f"{field.name} must hold at least one value, got none")
            for size in value if isinstance(value, tuple) else (value,):
                if field.name != "seed" and _is_whole(hints[field.name]) and type(size) is int:
                    _check_size(field.name, size, self.smallest.get(field.name, 1))


def _is_whole(hint: object) -> bool:
    """Whether a field holds whole numbers, and not a 0.5 that happens to be 0."""
    return hint is int or any(map(_is_whole, get_args(hint)))


def _check_size(name: str, size: int, smallest: int) -> None:
    if not 1 <= size <= LARGEST_SIZE:
        raise ValueError(f"{name} must lie in 1 .. {LARGEST_SIZE:,}, got {size}")
    if size < smallest:
        raise ValueError(f"{name} must be {smallest} or more for what this claim predicts, got {size}")


S = TypeVar("S", bound=Experiment)
R = TypeVar("R")


def seeded(run: Callable[[S], R]) -> Callable[[S], R]:
    """A run that draws from PyTorch's generator, made pure: seeded from its setup, the generator left as it was."""

    @wraps(run)
    def repeatable(setup: S) -> R:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(setup.seed)
            return run(setup)

    return repeatable


@contextmanager
def on_one_core() -> Iterator[None]:
    """Small tensors run no slower on one core, and sums come out the same whatever the machine."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


@dataclass(frozen=True, kw_only=True)
class Erratum(Generic[R]):
    """A slip in a document: where it is, what is printed, what is right, and the measurement that shows it."""

    where: str
    printed: str
    right: str
    measured: Callable[[R], str]


@dataclass(frozen=True)
class Claim(Generic[S, R]):
    """A sentence of a document as a program: `CLAIM = Claim(__name__, __doc__, document=..., ...)` ends its file.

    The docstring of the file is the claim: its first paragraph says it in one sentence, the rest explains it.
    """

    module: str
    text: str | None
    _: KW_ONLY
    document: Document
    question: str
    also: tuple[str, ...] = ()
    """Other questions that make the same claim, such as `ETH 2(d)`."""
    paper: str = ""
    """Where the claim comes from, if not from a document."""
    setup: S
    small: S
    """The same in a fraction of a second, for the tests."""
    run: Callable[[S], R]
    verdict: Callable[[R], Verdict]
    figure: Callable[[R], Figure]
    broken: Mapping[str, Mapping[str, object]]
    """What to break, and the fields of the small setup that break it: for each of them the verdict has to fail."""
    confidence: str
    """How sure the verdict is: exact up to rounding, or what a tolerance is in standard errors."""
    errata: tuple[Erratum[R], ...] = ()

    @property
    def name(self) -> str:
        return self.module.rpartition(".")[2].replace("_", "-")

    @property
    def says(self) -> str:
        return read_docstring(self.text)[0]

    @property
    def explanation(self) -> str:
        return read_docstring(self.text)[1]

    @property
    def source(self) -> str:
        """The document and question, and the others that ask the same."""
        also = [cite(*place(name)) for name in self.also]
        return "; also ".join([self.paper or cite(self.document, self.question), *also])

    def change(self, setup: S, changes: Mapping[str, object]) -> S:
        """The setup with other values for some of its fields."""
        known = [field.name for field in fields(setup)]
        for name in changes:
            if name not in known:
                raise ValueError(f"setup of {self.name} has no field {name!r}{nearest(name, known)}")
        return replace(setup, **changes)  # type: ignore[arg-type]  # the setup checks its own fields

    def examine(self, setup: S, n_seeds: int = 1, *, broken: bool = False) -> "Finding[S, R]":
        """Run it and judge; with several seeds, what the first one gave, or the first one that fails or cannot tell.

        With `broken`, each broken variant runs too, once and at the small size.
        """
        start = time.perf_counter()
        with on_one_core():
            runs = [self._judge(replace(setup, seed=setup.seed + i)) for i in range(n_seeds)]
            seconds = time.perf_counter() - start
            failed = [run for run in runs if not run[2].holds]
            blunt = [run for run in runs if not run[2].sharp]
            return Finding(
                self,
                *(failed or blunt or runs)[0],
                broken={what: self._judge_broken(what) for what in self.broken} if broken else None,
                seconds=seconds,
                first_seed=setup.seed,
                n_seeds=n_seeds,
                n_held=n_seeds - len(failed),
                n_sharp=n_seeds - len(blunt),
                spread=_spread([verdict for _, _, verdict in runs]),
            )

    def _judge_broken(self, what: str) -> Verdict:
        return self._judge(self.change(self.small, self.broken[what]))[2]

    def _judge(self, setup: S) -> tuple[S, R, Verdict]:
        try:
            result = self.run(setup)
            return setup, result, self.verdict(result)
        except (RuntimeError, ArithmeticError, IndexError) as error:
            why = (str(error) or type(error).__name__).splitlines()[0]
            raise ValueError(f"{self.name} cannot be measured with {setup}: {why}") from error


@dataclass(frozen=True)
class Finding(Generic[S, R]):
    """A claim after its run."""

    claim: Claim[S, R]
    setup: S
    result: R
    verdict: Verdict
    broken: Mapping[str, Verdict] | None
    """The verdict on each broken variant, or None if they did not run."""
    seconds: float
    first_seed: int = 0
    n_seeds: int = 1
    n_held: int = 1
    n_sharp: int = 1
    """For how many seeds each check rejects every near wrong theory."""
    spread: tuple[float | None, ...] = ()
    """For each check, the standard deviation over seeds of measured less predicted; None for words and for one seed."""

    @property
    def holds(self) -> bool:
        """Whether it holds for every seed that was tried, and no theory that is near and wrong does for any."""
        return self.n_held == self.n_sharp == self.n_seeds

    @property
    def outcome(self) -> str:
        """The verdict in words; with several seeds, for how many it holds."""
        seeds = "" if self.n_seeds == 1 else f": {self.n_held} of {self.n_seeds} seeds"
        blunt = "" if self.n_sharp == self.n_seeds else ", and so does a theory that is near and wrong"
        return self.verdict.word + seeds + blunt

    def table(self) -> Table:
        """Every prediction beside its measurement; with several seeds, how much this varies with them."""
        table = self.verdict.table()
        if self.n_seeds == 1:
            return table
        columns = (*table.columns[:-1], f"SD over {self.n_seeds} seeds", "")
        rows = zip(table.rows, self.spread, strict=True)
        return Table(columns, tuple((*row[:-1], "" if sd is None else show(sd), row[-1]) for row, sd in rows))

    def too_wide(self) -> list[str]:
        """The checks whose tolerance is more than `N_SD` standard deviations over the seeds, as far as these can tell.

        With 20 of them the deviation is known up to a factor of 1.9 (one in a thousand is farther off).
        """
        return [
            check.what
            for check, sd in zip(self.verdict.checks, self.spread, strict=True)
            if check.sd is not None and sd is not None and check.sd > UNSURE_OF_SD * sd
        ]

    def table_of_broken(self) -> Table:
        """What is wrong in each broken variant, and the check that fails."""
        columns = ("what is wrong", "the check that fails", "predicted", "measured", "tolerance", "")
        broken = (self.broken or {}).items()
        return Table(columns, tuple((what, *bad.headline.cells, bad.word) for what, bad in broken))

    def draw(self) -> Figure:
        with plot_style():
            return self.claim.figure(self.result)

    def as_dict(self) -> dict[str, object]:
        """For JSON; predicted, measured and tolerance are those of the headline, and `checks` has them all.

        `broken` has the headline of each broken variant, or is None if they did not run.
        """
        claim, headline = self.claim, self.verdict.headline
        return {
            "name": claim.name,
            "document": claim.document,
            "question": claim.question,
            "says": claim.says,
            "holds": self.holds,
            **_check_as_dict(headline),
            "checks": [
                _check_as_dict(check) | {"holds": check.holds, "sd_over_seeds": sd, "near": _near_as_dict(check)}
                for check, sd in zip(self.verdict.checks, self.spread, strict=True)
            ],
            "why": self.verdict.why,
            "confidence": claim.confidence,
            "broken": None if self.broken is None else [_broken_as_dict(*item) for item in self.broken.items()],
            "setup": config_to_dict(self.setup),
            "seeds": self.n_seeds,
            "seeds_held": self.n_held,
            "seeds_sharp": self.n_sharp,
            "seconds": round(self.seconds, 3),
        }


def _spread(verdicts: Sequence[Verdict]) -> tuple[float | None, ...]:
    """For each check, the standard deviation of measured less predicted."""
    return tuple(_deviation(checks) for checks in zip(*(verdict.checks for verdict in verdicts), strict=True))


def _deviation(checks: Sequence[Check]) -> float | None:
    off = [
        check.measured - check.predicted
        for check in checks
        if not isinstance(check.measured, str) and not isinstance(check.predicted, str)
    ]
    return statistics.stdev(off) if len(off) > 1 and all(map(math.isfinite, off)) else None


def _near_as_dict(check: Check) -> list[dict[str, object]]:
    return [_check_as_dict(theory) | {"rejected": not theory.holds} for theory in check.near]


def _broken_as_dict(wrong: str, verdict: Verdict) -> dict[str, object]:
    return {"wrong": wrong, "holds": verdict.holds, **_check_as_dict(verdict.headline)}


def _check_as_dict(check: Check) -> dict[str, object]:
    """JSON knows no NaN and no infinity: they become words."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(check).items()
        if name != "near"
    }
