"""Where a user's data is: a path here or, if there is none, the id of a data set on the Hugging Face Hub."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from headwork.data.folders import files_below
from headwork.data.packed import ending_of
from headwork.data.splitting import check_exists, part_of
from headwork.data.table_files import TABLE_ENDINGS
from headwork.extras import MissingExtraError, need
from headwork.hub.download import ID, fetch_snapshot

TABLES = ((".parquet",), (".csv", ".tsv", ".jsonl", ".ndjson"), (".json",))
"""Endings of tables on the Hub, where a data set may have the same rows in two formats: the first that there are."""
OF_A_DATA_SET = re.compile(rf"({ID.pattern})(?:/([\w./-]*))?(?:@([\w./-]+))?")
CONVERTED = "refs/convert/parquet"
"""Where the Hub keeps in Parquet what a data set has in formats of its own."""


def find_data(path: str, endings: Sequence[tuple[str, ...]] = TABLES, what: str = "data") -> Path:
    """The file or folder, or the folder to which a data set such as "owner/name" was fetched.

    "owner/name/configuration" is a folder of that data set, and "owner/name@revision" the data set as it was at a
    commit, a tag or a branch. Where there is a folder "owner" here, nobody asks the Hub.
    The library's settings hold, as HF_HUB_OFFLINE=1: then only what was fetched before is found.
    """
    if not path.strip():
        raise ValueError(f"{what} must name a file or folder, got {path!r}")
    here, named = Path(path), OF_A_DATA_SET.fullmatch(path)
    is_file_name = ending_of(here) in {*TABLE_ENDINGS, ".txt", ".md", *chain(*endings)}
    if here.exists() or named is None or is_file_name or Path(here.parts[0]).is_dir():
        return check_exists(here, what)
    try:
        need("huggingface_hub")
    except MissingExtraError as error:
        raise MissingExtraError(f"{path} is no file or folder here; to look on the Hub for it, {error}") from None
    name, inside, revision = named.groups(default="")
    for root, these in _fetched(name, inside, endings, revision or None):
        if found := find_files(root / inside, these):
            _check_one_configuration(path, root / inside, found)
            return root / inside
    wanted = ", ".join(chain(*endings))
    raise ValueError(f"{what} must be a data set with files such as {wanted}, got {path}, which has none")


def find_files(folder: Path, endings: Iterable[str]) -> list[Path]:
    """The files below a folder with one of the endings, by name; hidden ones are left out."""
    return files_below(folder, tuple(endings)).found if folder.is_dir() else []


def find_tables_in(folder: Path, *, of_hub: bool) -> list[Path]:
    """All tables of a folder; of a data set on the Hub those of the first format, which may be there in others too."""
    kinds = TABLES if of_hub else (TABLE_ENDINGS,)
    return next((found for endings in kinds if (found := find_files(folder, endings))), [])


def _fetched(
    name: str, inside: str, endings: Sequence[tuple[str, ...]], revision: str | None
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Folders to which files with some of the endings were fetched, if there are such, and these endings."""
    below = f"{inside}/" if inside else ""
    for these in endings:
        yield fetch_snapshot(name, tuple(f"{below}*{ending}" for ending in these), "dataset", revision), these
    if revision is not None:  # what the Hub has converted is of the newest
        return
    try:
        yield fetch_snapshot(name, (f"{below}*.parquet",), "dataset", CONVERTED), (".parquet",)
    except (ConnectionError, ValueError):  # not every data set is converted
        return


def _check_one_configuration(path: str, folder: Path, files: Iterable[Path]) -> None:
    """Raise if the tables are in several folders, which are different data sets and not the parts of one."""
    inside = [file.relative_to(folder).parts for file in files if ending_of(file) in TABLE_ENDINGS]
    folders = sorted({parts[0] for parts in inside if len(parts) > 1 and part_of(Path(parts[0])) is None})
    if len(folders) > 1:
        raise ValueError(
            f"data must name one of the configurations of {path}, as {path}/{folders[0]} does; "
            f"there are {', '.join(folders)}"
        )
