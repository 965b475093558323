"""What was found in a user's data, in a few lines that are shown before training."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headwork.data.examples import Split

N_CLASSES_SHOWN = 12
MANY_UNKNOWN = 0.25
ROUNDING = 1.5
"""Examples of a class that a part may have more or less than its share: one for each of two roundings, at most."""


def say_classes(labels: Sequence[int], names: Sequence[str]) -> str:
    """How many examples each class has, the most frequent first.

    >>> say_classes([0, 1, 1], ["bad", "good"])
    '2 classes: good (2), bad (1)'
    """
    counts = Counter(labels).most_common()
    shown = ", ".join(f"{names[label]} ({count:,})" for label, count in counts[:N_CLASSES_SHOWN])
    rest = counts[N_CLASSES_SHOWN:]
    more = f", and {len(rest)} more with {rest[0][1]:,} to {rest[-1][1]:,}" if rest else ""
    return f"{len(counts)} classes: {shown}{more}"


def say_lengths(what: str, lengths: Sequence[int], longest: int | None = None) -> str:
    """Typical lengths, and how many are cut.

    >>> say_lengths("texts", [3, 5, 9], longest=8)
    'texts have 5 tokens (median), 9 at most; 1 longer than 8 is cut'
    """
    about = f"{what} have {int(np.median(lengths)):,} tokens (median), {max(lengths):,} at most"
    n_cut = 0 if longest is None else sum(length > longest for length in lengths)
    return f"{about}; {n_cut:,} longer than {longest:,} {'is' if n_cut == 1 else 'are'} cut" if n_cut else about


def say_unknown(texts: Iterable[Sequence[int]], unknown: int, what: str) -> str | None:
    """How many tokens of texts the vocabulary does not have, if they are many.

    >>> say_unknown([[0, 0, 7]], unknown=0, what="words of valid and test")
    '67 % of the words of valid and test are not known'
    """
    n_words = n_unknown = 0
    for ids in texts:
        n_words, n_unknown = n_words + len(ids), n_unknown + sum(each == unknown for each in ids)
    if n_unknown <= MANY_UNKNOWN * n_words:
        return None
    return f"{100 * n_unknown / n_words:.0f} % of the {what} are not known"


def say_published(what: str, published: int, found: int, where: str) -> str | None:
    """That a data set which everyone knows is not whole, or another.

    >>> say_published("bytes", 1_115_394, 300_000, "input.txt")
    'not as published: input.txt has 300,000 bytes instead of 1,115,394'
    """
    return None if found == published else f"not as published: {where} has {found:,} {what} instead of {published:,}"


def say_duplicates(what: str, keys: Sequence[Hashable], labels: Sequence[int], split: Split) -> str | None:
    """How many examples are there again, with another label, or in two parts that the data gives; None if none are.

    >>> say_duplicates("texts", ["a", "a", "b"], [0, 1, 0], Split([0, 1], [2], []))
    'duplicates: 1 of 3 texts is there again, 1 with another label; all on one side of the split'
    """
    n_again = len(keys) - len(set(keys))
    if not n_again:
        return None
    of_key: dict[Hashable, set[int]] = {}
    for key, label in zip(keys, labels, strict=True):
        of_key.setdefault(key, set()).add(label)
    n_other = sum(len(found) > 1 for found in of_key.values())
    trained = {keys[i] for i in split.train}
    n_across = sum(keys[i] in trained for i in (*split.valid, *split.test))
    n_held_out = len({keys[i] for i in split.valid} & {keys[i] for i in split.test})
    other = f", {n_other:,} with another label" if n_other else ""
    across = (
        f"{n_across:,} of valid and test are in train too" if n_across else "",
        f"{n_held_out:,} of valid {'is' if n_held_out == 1 else 'are'} in test too" if n_held_out else "",
    )
    said = " and ".join(filter(None, across))
    where = f"{said}, as the files have it" if said else "all on one side of the split"
    return (
        f"duplicates: {n_again:,} of {len(keys):,} {what} {'is' if n_again == 1 else 'are'} there again{other}; {where}"
    )


def say_split(
    split: Split,
    *,
    given: Sequence[str | None],
    seed: int,
    labels: Sequence[int] | None = None,
    names: Sequence[str] = (),
) -> str:
    """The sizes of the parts, which of them the files say, and for the others whether the classes have the same shares.

    >>> say_split(Split([0, 1], [2], [3]), given=[None] * 4, seed=0)
    'split: 2 train, 1 valid, 1 test (at random, seed 0)'
    """
    sizes = ", ".join(f"{len(part):,} {name}" for name, part in zip(Split._fields, split, strict=True))
    parts = {part: part in given for part in ("valid", "test")}
    drawn = [part for part, is_given in parts.items() if not is_given]
    if not drawn:
        return f"split: {sizes} (as the files say)"
    how = f"at random, seed {seed}"
    if len(drawn) < len(parts):
        how = f"{next(part for part in parts if part not in drawn)} as the files say, {drawn[0]} {how}"
    counts = {name: Counter(labels[i] for i in getattr(split, name)) for name in ("train", *drawn)} if labels else {}
    differs, absent = _say_shares(counts, names), _say_absent(counts, names)
    same = ", each class in the same share" if counts and not differs and not absent else ""
    return "; ".join([f"split: {sizes} ({how}{same})", *absent, *differs])


def _say_shares(counts: Mapping[str, Counter[int]], names: Sequence[str]) -> list[str]:
    """The class whose shares differ most between the parts, if they do by more than rounding."""
    whole = sum(counts.values(), Counter[int]())
    off = {
        label: max(abs(found[label] - n * found.total() / whole.total()) for found in counts.values())
        for label, n in sorted(whole.items())
    }
    worst = max(off, key=lambda label: off[label], default=-1)
    if worst < 0 or off[worst] < ROUNDING:
        return []
    shares = ", ".join(f"{100 * found[worst] / found.total():.0f} % of {part}" for part, found in counts.items())
    return [f"{names[worst]} is {shares}"]


def _say_absent(counts: Mapping[str, Counter[int]], names: Sequence[str]) -> list[str]:
    """The classes that a part has no example of."""
    every = sorted(set().union(*counts.values()))
    where: dict[tuple[str, ...], list[str]] = {}
    for part, found in counts.items():
        where.setdefault(tuple(names[label] for label in every if not found[label]), []).append(part)
    return [f"no example of {_listed(absent)} in {' and '.join(parts)}" for absent, parts in where.items() if absent]


def _listed(names: Sequence[str]) -> str:
    n_more = len(names) - N_CLASSES_SHOWN
    return ", ".join(names[:N_CLASSES_SHOWN]) + (f" and {n_more} more" if n_more > 0 else "")


def say_skipped(n: int, what: str, place: str) -> str | None:
    """What is left out is said.

    >>> say_skipped(2, "empty texts", "a.csv, line 3")
    'skipped: empty texts (2), the first at a.csv, line 3'
    """
    return f"skipped: {what} ({n:,}), the first at {place}" if n else None


@dataclass
class Skipped:
    """Counts what is left out, and remembers where the first of it is."""

    n: int = 0
    first: str = ""

    def add(self, place: str) -> None:
        self.n, self.first = self.n + 1, self.first or place

    def say(self, what: str) -> str | None:
        return say_skipped(self.n, what, self.first)
