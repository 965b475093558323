"""Texts with labels of a user's own: a table, a folder of tables that name their part, or a data set on the Hub."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unicodedata import category

import torch

from headwork import serialise
from headwork.checks import Probability, check_positive
from headwork.data.examples import Dataset, Split
from headwork.data.folders import files_below
from headwork.data.found import (
    Skipped,
    say_classes,
    say_duplicates,
    say_lengths,
    say_skipped,
    say_split,
    say_unknown,
)
from headwork.data.hub_data import find_data, find_tables_in
from headwork.data.packed import ending_of
from headwork.data.reviews import LabelledTexts, ReviewTexts, bag_of_words_accuracy
from headwork.data.splitting import HeldOut, digest_of, files_by_part, share_out
from headwork.data.table_files import TABLE_ENDINGS, class_names, find_column, has_tabs, is_missing
from headwork.data.text_classes import ENDINGS, TextSource, find_text_classes
from headwork.data.text_examples import Rows, TextExamples
from headwork.data.tokenizer import BytePairs, Pretrained, Words, make_tokenizer
from headwork.tasks import Classification

TEXT_COLUMNS = ("text", "sentence", "content", "review", "document", "message", "comment", "body", "tweet", "title")
LABEL_COLUMNS = ("label", "class", "category", "sentiment", "target", "labels", "stars", "rating", "verdict", "y")
NO_LABEL = -1
"""What stands for none where classes have numbers and names, as in the test parts of some data sets on the Hub."""

NO_LIMIT = 10**9


class TableTexts(NamedTuple):
    """What a table holds, before texts become numbers."""

    texts: list[str]
    labels: list[int]
    places: list[str]
    names: tuple[str, ...]
    given: list[str | None]
    """The part that the file of each text names."""
    notes: list[str]
    digest: str
    where: str
    """The column of the labels."""


@dataclass(frozen=True, kw_only=True)
class TextTable(serialise.Checked):
    """A CSV, TSV, JSONL or Parquet file with a column of texts and one of labels, or a folder of such files.

    Or a folder with a folder of .txt files for each class, or with a .txt file for each class and a text in each line.

    The columns are found by their usual names (`text`, `sentence`, ...; `label`, `class`, ...) unless they are given.
    Files called train, valid (or dev) and test are those parts; what is missing is split off the rest.
    """

    path: str
    text: str | None = None
    label: str | None = None
    tokenizer: Words | BytePairs | Pretrained = Words()
    max_tokens: int = 256
    """Of each text, BEGIN among them; what is longer is cut."""
    valid_share: Probability = 0.1
    test_share: Probability = 0.1
    split_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(max_tokens=self.max_tokens)

    def load(self, seed: int = 0) -> Dataset:
        """The texts as ids, each led by BEGIN; nothing varies from epoch to epoch."""
        table = self.read()
        split, keys = self._split(table)
        texts = table.texts
        tokenizer = make_tokenizer(self.tokenizer, (texts[i] for i in split.train))
        lengths = [len(each) for each in tokenizer.encode_starts(texts, NO_LIMIT)]
        ids = tokenizer.encode_starts(texts, self.max_tokens)
        labels = torch.tensor(table.labels)
        train, valid, test = (TextExamples(Rows.of(ids[i] for i in part), labels[torch.tensor(part)]) for part in split)
        found = (
            *table.notes,
            say_classes(table.labels, table.names),
            say_lengths("texts", lengths, self.max_tokens),
            self._say_unknown((ids[i][1:] for part in split[1:] for i in part), tokenizer.unknown),
            say_duplicates("texts", keys, table.labels, split),
            say_split(split, given=table.given, seed=self.split_seed, labels=table.labels, names=table.names),
        )
        return Dataset(
            train,
            valid,
            test,
            Classification(table.names),
            tokenizer,
            found=tuple(line for line in found if line),
            digest=table.digest,
        )

    @staticmethod
    def _say_unknown(texts: Iterable[Sequence[int]], unknown: int) -> str | None:
        note = say_unknown(texts, unknown, "words of valid and test")
        return f"{note}: --set data.tokenizer=BytePairs reads words in pieces" if note else None

    def read(self) -> TableTexts:
        """The texts and labels of all files."""
        path = find_data(self.path)
        sources, skipped = find_texts(path, of_hub=path != Path(self.path))
        of_class = sources[0].of_class is not None
        texts, labels, places, given = list[str](), list[str](), list[str](), list[str | None]()
        columns = dict[str, str]()
        empty_lines, empty, unlabelled = Skipped(), Skipped(), Skipped()
        for source in sources:
            file, part = source.file, source.part
            of_text = of_label = None
            names: tuple[str, ...] | None = None
            for place, values in source.rows(empty_lines):
                if of_text is None or of_label is None:
                    of_text = find_column(list(values), self.text, TEXT_COLUMNS, "text", file)
                    of_label = find_column(list(values), self.label, LABEL_COLUMNS, "label", file)
                    if of_text == of_label:
                        raise ValueError(f"text and label must be two columns, got {of_text!r} for both in {file}")
                    names = self.class_names(file, of_label)
                    columns[of_text] = of_label
                text = values.get(of_text)
                if is_missing(text):
                    empty.add(place)
                    continue
                if names is not None and values.get(of_label) == NO_LABEL:
                    unlabelled.add(place)
                    continue
                if not isinstance(text, str):
                    raise ValueError(f"text must be a column of texts, got {text!r} in {place}")
                texts.append(text)
                places.append(place)
                labels.append(read_label(values.get(of_label), names, of_label, place))
                given.append(part)
        if not texts:
            raise ValueError(f"data must have rows with a text and a label, got none in {path}")
        label_names = sort_labels(set(labels))
        index = {name: i for i, name in enumerate(label_names)}
        which = ", ".join(f"text in {text!r}, label in {label!r}" for text, label in columns.items())
        if of_class:
            which = f"the class is the name of the {'file, one text a line' if sources[0].by_line else 'folder'}"
        notes = [
            f"{len(texts):,} texts in {path} ({which})",
            empty_lines.say("empty lines"),
            empty.say("empty texts"),
            unlabelled.say(f"texts without a label ({NO_LABEL})"),
            *skipped,
        ]
        return TableTexts(
            texts,
            [index[label] for label in labels],
            places,
            label_names,
            given,
            [note for note in notes if note],
            digest_of([source.file for source in sources], path),
            str(path) if of_class else f"the column {' or '.join(columns.values())} of {path}",
        )

    def class_names(self, file: Path, column: str) -> tuple[str, ...] | None:
        """The names of the classes whose numbers are in the column, if they are known."""
        return class_names(file, column)

    def _split(self, table: TableTexts) -> tuple[Split, list[str]]:
        check_classes(table.names, len(table.labels), table.where)
        keys = [words_of(text) for text in table.texts]
        shares = HeldOut(self.valid_share, self.test_share)
        split = share_out(table.labels, keys, table.given, shares, self.split_seed)
        check_trained(table.labels, split.train, table.names, self.path)
        return split, keys

    def bag_of_words_accuracy(self) -> float:
        """What counting words reaches on the test data: what a model should beat."""
        table = self.read()
        split, _ = self._split(table)
        parts = ReviewTexts(
            *(LabelledTexts([table.texts[i] for i in part], [table.labels[i] for i in part]) for part in split)
        )
        return bag_of_words_accuracy(parts.train, parts.test)


def find_texts(path: Path, *, of_hub: bool = False) -> tuple[list[TextSource], list[str]]:
    """The tables of each part, or the files of each class, and what is skipped.

    A data set on the Hub may have files of other parts, such as texts without labels.
    """
    tables = find_tables_in(path, of_hub=of_hub)
    if path.is_dir() and not tables:
        if not of_hub and files_below(path, ENDINGS).found:
            return find_text_classes(path)
        raise ValueError(
            f"data must be a folder with files such as {', '.join(TABLE_ENDINGS)}, or with .txt files in a folder for "
            f"each class, got {path}"
        )
    if ending_of(path) in ENDINGS and path.is_file() and not has_tabs(path):
        raise ValueError(
            f"data must be a table ({', '.join(TABLE_ENDINGS)}; .txt with tabs), or a folder with a .txt file for each "
            f"class, got {path} without a tab in its first line"
        )
    parts, others = files_by_part(tables, path, leave_out=of_hub)
    no_tables = files_below(path, TABLE_ENDINGS).others if path.is_dir() and not of_hub else []
    kinds = (others, "files that name no part"), (no_tables, "files that are no tables")
    skipped = [note for files, what in kinds if (note := say_skipped(len(files), what, str(next(iter(files), ""))))]
    return [TextSource(file, part or None) for part, files in parts.items() for file in files], skipped


def words_of(text: str) -> str:
    """Two texts are duplicates if they have the same words, whatever the marks and capitals between them.

    >>> words_of("Good, very GOOD!")
    'good very good'
    """
    lower = text.lower()
    words = re.findall(r"\w+", lower) if lower.isascii() else "".join(map(_word_or_space, lower)).split()
    return " ".join(words) or text


def _word_or_space(letter: str) -> str:
    r"""A letter, or a space for a mark between words; the signs of a letter, which \w leaves out, and pictures stay.

    >>> words_of("की") == words_of("को"), words_of("Straße?")
    (False, 'straße')
    """
    kind = category(letter)
    return letter if letter.isalnum() or letter == "_" or kind[0] == "M" or kind == "So" else " "


def read_label(value: object, names: Sequence[str] | None, column: str, place: str) -> str:
    """A label as text; numbers must be whole, and stand for a name if there are such."""
    if is_missing(value):
        raise ValueError(f"label must not be missing, got {value!r} in the column {column!r} of {place}")
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(
                f"label must be a name or a whole number, got {value!r} in the column {column!r} of {place}"
            )
        value = int(value)
    if isinstance(value, dict | list):
        raise ValueError(f"label must be a name or a whole number, got {value!r} in the column {column!r} of {place}")
    if names is not None and (isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal())):
        value = int(value)
        if not 0 <= value < len(names):
            raise ValueError(
                f"label must lie in 0 .. {len(names) - 1}, got {value} in the column {column!r} of {place}"
            )
        return names[value]
    return str(value).strip()


def sort_labels(labels: set[str]) -> tuple[str, ...]:
    """Numbers by their size, names by the alphabet.

    >>> sort_labels({"10", "9", "1"}), sort_labels({"b", "a", "1"})
    (('1', '9', '10'), ('1', 'a', 'b'))
    """
    if all(re.fullmatch(r"-?\d+", label) for label in labels):
        return tuple(sorted(labels, key=int))
    return tuple(sorted(labels))


def check_classes(names: Sequence[str], n_examples: int, where: str) -> None:
    """Raise unless there are classes to learn: two or more, and not one for each example."""
    if len(names) < 2:
        raise ValueError(f"there must be two classes or more, got only {names[0]!r} in {where}")
    if len(names) > 20 and len(names) > n_examples / 2:
        raise ValueError(
            f"classes must have several examples each, got {len(names):,} classes for {n_examples:,} in {where}"
        )


def check_trained(labels: Sequence[int], train: Sequence[int], names: Sequence[str], where: str) -> None:
    """Raise if a class has no example to learn from."""
    without = set(range(len(names))) - {labels[i] for i in train}
    if without:
        raise ValueError(f"every class must have examples to train on, got none of {names[min(without)]!r} in {where}")
