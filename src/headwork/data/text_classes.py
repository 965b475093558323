"""Texts whose class is the name of their folder (one text in each file) or of their file (one text in each line)."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headwork.data.class_folders import find_classes
from headwork.data.folders import files_below
from headwork.data.found import Skipped, say_skipped
from headwork.data.splitting import files_by_part, part_of
from headwork.data.table_files import Row, has_tabs, read_lines, read_rows

ENDINGS = (".txt",)


class TextSource(NamedTuple):
    """A file with texts: a table or, if their class is the name of a folder or file, one text or one a line."""

    file: Path
    part: str | None
    of_class: str | None = None
    by_line: bool = False

    def rows(self, empty_lines: Skipped) -> Iterator[Row]:
        if self.of_class is None:
            yield from read_rows(self.file, empty_lines=empty_lines)
        elif self.by_line:
            for number, line in enumerate(read_lines(self.file), start=1):
                yield Row(f"{self.file}, line {number}", {"text": line, "label": self.of_class})
        else:
            yield Row(str(self.file), {"text": "\n".join(read_lines(self.file)), "label": self.of_class})


def find_text_classes(folder: Path) -> tuple[list[TextSource], list[str]]:
    """The texts of a folder without tables, and what is skipped; raise if their classes cannot be told."""
    texts, others = files_below(folder, ENDINGS)
    note = say_skipped(len(others), "files that are no texts", str(next(iter(others), "")))
    skipped = [note] if note else []
    if all(map(has_tabs, texts)):
        parts, _ = files_by_part(texts, folder)
        return [TextSource(file, part or None) for part, files in parts.items() for file in files], skipped
    parents = {file.parent for file in texts}
    if all(parent == folder or (parent.parent == folder and part_of(parent)) for parent in parents):
        found = [TextSource(file, part_of(file.parent), file.name.partition(".")[0], by_line=True) for file in texts]
        _check_files(folder, found)
        return found, skipped
    by_class = find_classes(folder, ENDINGS, "texts")
    given = zip(by_class.files, by_class.given, by_class.names, strict=True)
    return [TextSource(*each) for each in given], by_class.skipped()


def _check_files(folder: Path, found: list[TextSource]) -> None:
    """Raise unless the files of each part are two or more, and none is called as a part."""
    names = [source.file.relative_to(folder).as_posix() for source in found]
    of_parts = [name for name, source in zip(names, found, strict=True) if part_of(Path(source.file.name))]
    if of_parts or len({source.of_class for source in found}) < 2:
        why = ", which names a part: a table of labels, tabs and texts does so too" if of_parts else " only"
        raise ValueError(
            "a folder of texts must have a folder for each class (pos/1.txt, neg/1.txt) or a file for each class with "
            f"a text in each line (pos.txt, neg.txt), got {(of_parts or names)[0]}{why} in {folder}"
        )
