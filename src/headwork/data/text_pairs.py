"""Sources and their translations of a user's own: two files line by line, or a table with two columns."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headwork import serialise
from headwork.checks import Probability, check_positive
from headwork.data.examples import Dataset, Split
from headwork.data.folders import files_below
from headwork.data.found import Skipped, say_duplicates, say_lengths, say_skipped, say_split
from headwork.data.hub_data import find_data, find_tables_in
from headwork.data.packed import ending_of
from headwork.data.pair_files import Pair, PairTable, aligned
from headwork.data.splitting import HeldOut, by_part, check_exists, digest_of, share_out
from headwork.data.table_files import TABLE_ENDINGS, has_tabs, is_table
from headwork.data.text_examples import PairExamples, Rows
from headwork.data.text_table import words_of
from headwork.data.tokenizer import BytePairs, Characters, Tokenizer, Words, make_tokenizer
from headwork.tasks import Translation


@dataclass(frozen=True, kw_only=True)
class TextPairs(serialise.Checked):
    """Texts and their translations.

    `path` is a file of sources, with `target_path` a file of as many lines; or a table (CSV, TSV, JSONL, Parquet) whose
    columns are called `source` and `target` or by two languages, or have the names or numbers (from 1) that are given
    as `source` and `target` (a CSV or TSV of two columns without such names has the sources in the first); or a folder
    of files such as train.en and train.de, whose endings are then `source` and `target`. Parts that no file names are
    split off.
    """

    path: str
    target_path: str | None = None
    source: str | int | None = None
    target: str | int | None = None
    tokenizer: BytePairs | Characters | Words = BytePairs(n_tokens=8000)
    max_tokens: int = 128
    """Of source and target; longer pairs are left out, and an error in parts that files name."""
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
        split, tokenizer, sources, targets, long = self._split(pairs, given, keys)
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
            digest=self._digest(files, path),
        )

    def _split(self, pairs: list[Pair], given: list[str | None], keys: list[str]) -> "_SplitPairs":
        """The parts without the pairs that are too long, which only the tokenizer of a training part can tell.

        If some of them fall into a part that is drawn at random, the others are split again.
        """
        shares, long = HeldOut(self.valid_share, self.test_share), set[int]()
        while True:
            short = ["too long" if i in long else part for i, part in enumerate(given)]
            split = share_out([0] * len(pairs), keys, short, shares, self.split_seed)
            tokenizer = make_tokenizer(self.tokenizer, (text for i in split.train for text in pairs[i][:2]))
            sources = tokenizer.encode_all([pair.source for pair in pairs])
            targets = tokenizer.encode_all([pair.target for pair in pairs])
            lengths = [max(len(source), len(target) + 1) for source, target in zip(sources, targets, strict=True)]
            long |= {i for i, length in enumerate(lengths) if length > self.max_tokens}
            for i in sorted(long):
                if given[i] in ("valid", "test"):
                    raise ValueError(
                        f"max_tokens must be at least the tokens of every text of valid and test, "
                        f"got {self.max_tokens} and {lengths[i]} in {pairs[i].place}"
                    )
            if all(i in long for i, part in enumerate(given) if part in (None, "train")):
                wrong = f"{self.max_tokens}, less than any pair has"
                raise ValueError(f"max_tokens must leave pairs to train on, got {wrong}")
            if long.isdisjoint((*split.valid, *split.test)):
                split = split._replace(train=[i for i in split.train if i not in long])
                return _SplitPairs(split, tokenizer, sources, targets, sorted(long))

    def _digest(self, files: Sequence[Path], path: Path) -> str:
        if self.target_path is None:
            return digest_of(files, path)
        both = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100  # links are not followed
        return digest_of(both, Path(os.path.commonpath([file.parent for file in both])))

    def read(self, path: Path) -> tuple[list[Pair], list[str | None], list[Path], list[str]]:
        """All pairs, the part that the file of each names, the files, the columns, and what was skipped."""
        pairs, given, files, columns = list[Pair](), list[str | None](), list[Path](), dict[str, None]()
        empty_lines, empty = Skipped(), Skipped()
        for part, these in self.files_of_parts(path):
            files += these
            table = PairTable(these[0], self.source, self.target)
            for pair in aligned(*these) if len(these) == 2 else table.read(columns, empty_lines):
                if not pair.source.strip() and not pair.target.strip():
                    empty.add(pair.place)
                    continue
                if not pair.source.strip() or not pair.target.strip():
                    which = "source" if not pair.source.strip() else "target"
                    raise ValueError(f"both texts of a pair must have words, got an empty {which} in {pair.place}")
                pairs.append(pair)
                given.append(part)
        if not pairs:
            raise ValueError(f"data must have pairs of texts, got none in {path}")
        others = sorted({*files_below(path, ()).others} - {*files}) if path.is_dir() else []
        notes = (
            *columns,
            empty_lines.say("empty lines"),
            empty.say("pairs that are empty on both sides"),
            say_skipped(len(others), "other files", str(next(iter(others), ""))),
        )
        return pairs, given, files, [note for note in notes if note]

    def files_of_parts(self, path: Path) -> Iterator[tuple[str | None, list[Path]]]:
        """For each part one table, or a source file and its target file."""
        if self.target_path is not None:
            translations = check_exists(Path(self.target_path), "target_path")
            if translations.samefile(path):
                raise ValueError(f"path and target_path must be two files, got {path} twice")
            yield None, [path, translations]
            return
        if path.is_file():
            if not is_table(path) and not (ending_of(path) == ".txt" and has_tabs(path)):
                raise ValueError(
                    f"data must be a table ({', '.join(TABLE_ENDINGS)}), two files or a folder, for a translator, "
                    f"got {path}"
                )
            yield None, [path]
            return
        found = [file for file in files_below(path, ()).others if file.is_file()]
        tables = find_tables_in(path, of_hub=path != Path(self.path))
        if tables:
            endings = {file.suffix for file in found}
            if {f".{str(ending).removeprefix('.')}" for ending in (self.source, self.target)} <= endings:
                raise ValueError(f"data must be tables or aligned files, not both, got {tables[0]} beside such files")
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
                f"source={self.source} and target={self.target}; there are {', '.join(endings) or 'none'} "
                "(on the command line --set data.source=en --set data.target=de)"
            )
        both = f".{str(self.source).removeprefix('.')}", f".{str(self.target).removeprefix('.')}"
        for ending in both:
            if ending not in endings:
                raise ValueError(
                    f"{path} must have files that end in {ending}; there are {', '.join(endings) or 'none'}"
                )
        return both


class _SplitPairs(NamedTuple):
    """The parts, the tokenizer of the training part, all pairs as its tokens, and those that are too long."""

    split: Split
    tokenizer: Tokenizer
    sources: list[list[int]]
    targets: list[list[int]]
    long: list[int]
