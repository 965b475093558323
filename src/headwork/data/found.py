"""What was found in a user's data, in a few lines that are shown before training."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from headwork.data.examples import Split

N_CLASSES_SHOWN = 12


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
    other = f", {n_other:,} with another label" if n_other else ""
    where = (
        f"{n_across:,} of valid and test are in train too, as the files have it"
        if n_across
        else "all on one side of the split"
    )
    return (
        f"duplicates: {n_again:,} of {len(keys):,} {what} {'is' if n_again == 1 else 'are'} there again{other}; {where}"
    )


def say_split(split: Split, *, given: bool, seed: int, by_class: bool = True) -> str:
    """The sizes of the parts.

    >>> say_split(Split([0, 1], [2], [3]), given=False, seed=0)
    'split: 2 train, 1 valid, 1 test (at random, seed 0, each class in the same share)'
    """
    sizes = ", ".join(f"{len(part):,} {name}" for name, part in zip(Split._fields, split, strict=True))
    shares = ", each class in the same share" if by_class else ""
    how = "as the files say" if given else f"at random, seed {seed}{shares}"
    return f"split: {sizes} ({how})"


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
