"""Sources and their translations of a user's own: two files line by line, or a table with two columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from headwork import serialise
from headwork.checks import Probability, check_positive
from headwork.data.examples import Dataset
from headwork.data.found import say_duplicates, say_lengths, say_skipped, say_split
from headwork.data.hub_data import find_data
from headwork.data.splitting import HeldOut, by_part, check_exists, digest_of, share_out
from headwork.data.table_files import TABLE_ENDINGS, Row, find_column, first_cells, is_missing, read_lines, read_rows
from headwork.data.text_examples import PairExamples, Rows
from headwork.data.text_table import words_of
from headwork.data.tokenizer import BytePairs, Characters, Words, make_tokenizer
from headwork.tasks import Translation

SOURCE_COLUMNS, TARGET_COLUMNS = ("source", "src", "input"), ("target", "tgt", "output", "translation")


class Pair(NamedTuple):
    """A source, its translation, and where they stand."""

    source: str
    target: str
    place: str


@dataclass(frozen=True, kw_only=True)
class TextPairs(serialise.Checked):
    """Texts and their translations.

    `path` is a file of sources, with `target_path` a file of as many lines; or a table (CSV, TSV, JSONL, Parquet) whose
    columns are called `source` and `target`, or what is given as `source` and `target` (a CSV or TSV without such names
    has the sources in its first column, and the translations in the second); or a folder of files such as
    train.en and train.de, whose endings are then `source` and `target`. Parts that no file names are split off.
    """

    path: str
    target_path: str | None = None
    source: str | None = None
    target: str | None = None
    tokenizer: BytePairs | Characters | Words = BytePairs(n_tokens=8000)
    max_tokens: int = 128
    """Of source and target; longer pairs are left out of training, and an error elsewhere."""
    valid_share: Probability = 0.05
    test_share: Probability = 0.05
    split_seed: int = 0
    exact: bool = False
    """Whether evaluations translate the texts and count those without a single wrong token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(max_tokens=self.max_tokens)

    def load(self, seed: int = 0) -> Dataset:
        """One vocabulary for both languages, learned from the training part; nothing varies from epoch to epoch."""
        path = find_data(self.path)
        pairs, given, files, skipped = self.read(path)
        keys = [words_of(pair.source) for pair in pairs]
        shares = HeldOut(self.valid_share, self.test_share)
        split = share_out([0] * len(pairs), keys, given, shares, self.split_seed)
        tokenizer = make_tokenizer(self.tokenizer, (text for i in split.train for text in pairs[i][:2]))
        sources = tokenizer.encode_all([pair.source for pair in pairs])
        targets = tokenizer.encode_all([pair.target for pair in pairs])
        longest = [max(len(source), len(target) + 1) for source, target in zip(sources, targets, strict=True)]
        long = [i for i in split.train if longest[i] > self.max_tokens]
        for i in (*split.valid, *split.test):
            if longest[i] > self.max_tokens:
                raise ValueError(
                    f"max_tokens must be at least the tokens of every text of valid and test, got {self.max_tokens} "
                    f"and {longest[i]} in {pairs[i].place}"
                )
        split = split._replace(train=sorted(set(split.train) - set(long)))
        if not split.train:
            raise ValueError(f"max_tokens must leave pairs to train on, got {self.max_tokens}, less than any pair has")
        train, valid, test = (
            PairExamples(
                Rows.of(sources[i] for i in part),
                Rows.of([tokenizer.begin, *targets[i], tokenizer.end] for i in part),
            )
            for part in split
        )
        found = (
            f"{len(pairs):,} pairs in {path}",
            *skipped,
            say_lengths("sources", list(map(len, sources))),
            say_lengths("targets", list(map(len, targets))),
            say_skipped(
                len(long), f"pairs of more than {self.max_tokens} tokens", pairs[long[0]].place if long else ""
            ),
            say_duplicates("sources", keys, [0] * len(keys), split),
            say_split(split, given=given, seed=self.split_seed),
        )
        return Dataset(
            train,
            valid,
            test,
            Translation(begin=tokenizer.begin, end=tokenizer.end, exact=self.exact),
            tokenizer,
            found=tuple(line for line in found if line),
            digest=digest_of(files, path if path.is_dir() or self.target_path is None else path.parent),
        )

    def read(self, path: Path) -> tuple[list[Pair], list[str | None], list[Path], list[str]]:
        """All pairs, the part that the file of each names, the files, and what was skipped."""
        pairs, given, files = list[Pair](), list[str | None](), list[Path]()
        n_empty, first = 0, ""
        for part, these in self.files_of_parts(path):
            files += these
            for pair in self._pairs(these):
                if not pair.source.strip() and not pair.target.strip():
                    n_empty, first = n_empty + 1, first or pair.place
                    continue
                if not pair.source.strip() or not pair.target.strip():
                    which = "source" if not pair.source.strip() else "target"
                    raise ValueError(f"both texts of a pair must have words, got an empty {which} in {pair.place}")
                pairs.append(pair)
                given.append(part)
        if not pairs:
            raise ValueError(f"data must have pairs of texts, got none in {path}")
        note = say_skipped(n_empty, "pairs that are empty on both sides", first)
        return pairs, given, files, [note] if note else []

    def files_of_parts(self, path: Path) -> Iterator[tuple[str | None, list[Path]]]:
        """For each part one table, or a source file and its target file."""
        if self.target_path is not None:
            yield None, [path, check_exists(Path(self.target_path), "target_path")]
            return
        if path.is_file():
            if path.suffix.lower() not in TABLE_ENDINGS:
                raise ValueError(
                    f"data must be a table ({', '.join(TABLE_ENDINGS)}), two files or a folder, for a translator, "
                    f"got {path}"
                )
            yield None, [path]
            return
        found = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")]
        tables = [file for file in found if file.suffix.lower() in TABLE_ENDINGS]
        if tables:
            for part, files in (by_part(tables, path) or {"": sorted(tables)}).items():
                for file in files:
                    yield part or None, [file]
            return
        source, target = self._endings(found, path)
        sources = [file for file in found if file.suffix == source]
        for part, files in (by_part(sources, path) or {"": sorted(sources)}).items():
            for file in files:
                other = file.with_suffix(target)
                if not other.is_file():
                    raise ValueError(f"{file} must have its translation beside it, got no {other.name}")
                yield part or None, [file, other]

    def _endings(self, found: list[Path], path: Path) -> tuple[str, str]:
        endings = sorted({file.suffix for file in found if file.suffix})
        if self.source is None or self.target is None:
            raise ValueError(
                f"source and target must say the endings of the files in {path}, such as en and de, got "
                f"source={self.source} and target={self.target}; there are {', '.join(endings) or 'none'}"
            )
        both = f".{self.source.removeprefix('.')}", f".{self.target.removeprefix('.')}"
        for ending in both:
            if ending not in endings:
                raise ValueError(
                    f"{path} must have files that end in {ending}; there are {', '.join(endings) or 'none'}"
                )
        return both

    def _pairs(self, files: list[Path]) -> Iterator[Pair]:
        if len(files) == 2:
            yield from aligned(*files)
            return
        file = files[0]
        names: list[str] | None = None
        if self.source is None and self.target is None and file.suffix.lower() in (".csv", ".tsv"):
            first = first_cells(file)
            if not any(cell.strip().lower() in (*SOURCE_COLUMNS, *TARGET_COLUMNS) for cell in first):
                names = list(map(str, range(1, len(first) + 1)))  # the first line is a pair like any other
        columns: tuple[str, str] | None = None
        for place, values in map(flat, read_rows(file, names)):
            if columns is None:
                found = list(values)
                if self.source is None and self.target is None and (names or len(found) == 2):
                    if len(found) < 2:
                        raise ValueError(f"a table of translations must have two columns, got one in {file}")
                    columns = found[0], found[1]
                else:
                    columns = (
                        find_column(found, self.source, SOURCE_COLUMNS, "source", file),
                        find_column(found, self.target, TARGET_COLUMNS, "target", file),
                    )
            source, target = ("" if is_missing(values.get(name)) else str(values[name]) for name in columns)
            yield Pair(source, target, place)


def flat(row: Row) -> Row:
    """Hugging Face's column `translation` of {"en": ..., "de": ...} as two columns.

    >>> flat(Row("row 1", {"translation": {"en": "a dog", "de": "ein Hund"}})).values
    {'en': 'a dog', 'de': 'ein Hund'}
    """
    texts = row.values.get("translation")
    return Row(row.place, {**texts}) if isinstance(texts, dict) else row


def aligned(source: Path, target: Path) -> Iterator[Pair]:
    """Line by line; raise if one file ends before the other."""
    number = 0
    for number, (one, other) in enumerate(zip_longest(read_lines(source), read_lines(target)), start=1):
        if one is None or other is None:
            short, long = (source, target) if one is None else (target, source)
            raise ValueError(
                f"the files must have as many lines as each other, got {number - 1:,} in {short}, and more in {long}: "
                f"its line {number:,} is {(other if one is None else one)[:40]!r}"
            )
        yield Pair(one, other, f"{source}, line {number}")
