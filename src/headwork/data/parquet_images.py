"""Images and labels in Parquet or idx files, as the Hub and MNIST have them, written to a folder for each class."""

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from headwork.data.found import say_skipped
from headwork.data.hub_data import find_data, find_files
from headwork.data.idx_images import find_idx, is_idx, labels_of_idx, read_labelled
from headwork.data.images import IMAGE_ENDINGS
from headwork.data.mapped_tokens import cache_folder
from headwork.data.splitting import digest_of, files_by_part, part_of
from headwork.data.table_files import Row, class_names, read_rows, usual_column
from headwork.data.text_table import LABEL_COLUMNS, read_label
from headwork.storage.folders import explain_disk_errors, staging_path

LABELS = (*LABEL_COLUMNS, "fine_label")
HUB_ENDINGS = ((".parquet",), IMAGE_ENDINGS)


def find_image_folder(path: str) -> tuple[Path, list[str]]:
    """The folder of images, and what was skipped to make it: `path`, or where those of its Parquet or idx files are.

    The path may be the id of a data set on the Hub.
    """
    found = find_data(path, HUB_ENDINGS)
    tables = find_files(found, (".parquet",)) if found.is_dir() else [found] * (found.suffix.lower() == ".parquet")
    if found.is_dir() and (idx := find_idx(found)):
        parts = {part: [file for file in idx if _part_of_idx(file) == part] for part in sorted(map(_part_of_idx, idx))}
        return write_images(parts, digest_of([*idx, *map(labels_of_idx, idx)], found)), []
    if not tables or (found.is_dir() and find_files(found, IMAGE_ENDINGS)):
        return found, []
    parts, others = files_by_part(tables, found, leave_out=found != Path(path))
    digest = digest_of([file for files in parts.values() for file in files], found)
    skipped = say_skipped(len(others), "files that name no part", str(next(iter(others), "")))
    return write_images(parts, digest), [skipped] if skipped else []


def write_images(parts: dict[str, list[Path]], digest: str) -> Path:
    """A folder of the cache with the images of each class of each part, written if it is not there."""
    folder = cache_folder() / "images" / digest[:32]
    if folder.exists():
        return folder
    staging = staging_path(folder)
    folders: dict[str, str] = {}
    with explain_disk_errors(folder.parent):
        try:
            for part, files in parts.items():
                images = (image for file in files for image in read_images(file, folders))
                number = 0
                for number, (of_class, content, place) in enumerate(images, start=1):
                    path = staging / part / of_class / f"{number:07}{ending_of(content, place)}"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                if not number:
                    raise ValueError(f"data must have images, got none in {', '.join(map(str, files))}")
            _put_in_place(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return folder


def _put_in_place(staging: Path, folder: Path) -> None:
    """Give the folder its name, unless another process was sooner: both have the same images."""
    try:
        staging.replace(folder)
    except OSError:
        if not folder.exists():
            raise


def read_images(file: Path, folders: dict[str, str]) -> Iterator[tuple[str, bytes, str]]:
    """Of each row of a Parquet file the class, as the name of a folder, the bytes of the image, and its place.

    The class of each folder is kept in `folders`; two classes of one folder are an error. An idx file has rows too.
    """
    if is_idx(file):
        yield from _read_idx_images(file)
        return
    image = label = ""
    names: tuple[str, ...] | None = None
    for row in read_rows(file):
        if not image:
            image, label = find_columns(row, file)
            names = class_names(file, label)
        about = row.values[image]
        content = about.get("bytes") if isinstance(about, dict) else None
        if not isinstance(content, bytes):
            raise ValueError(f"image must be the bytes of a picture, got {str(about)[:40]} in {row.place}")
        of_class = read_label(row.values[label], names, label, row.place)
        name = re.sub(r"[/\\:]|^\.", "_", of_class)
        if folders.setdefault(name, of_class) != of_class:
            raise ValueError(f"classes must differ in more than / and :, got {folders[name]!r} and {of_class!r}")
        yield name, content, row.place


def _part_of_idx(file: Path) -> str:
    return "test" if file.name.startswith("t10k") else part_of(file) or ""


def _read_idx_images(file: Path) -> Iterator[tuple[str, bytes, str]]:
    images, labels = read_labelled(file, labels_of_idx(file))
    for number, (image, label) in enumerate(zip(images[:, 0], labels.tolist(), strict=True)):
        content = io.BytesIO()
        Image.fromarray(image).save(content, "png", compress_level=1)
        yield str(label), content.getvalue(), f"image {number} of {file}"


def find_columns(row: Row, file: Path) -> tuple[str, str]:
    """The column whose values have bytes, and that of the labels."""
    images = [name for name, value in row.values.items() if isinstance(value, dict) and "bytes" in value]
    label = usual_column(list(row.values), LABELS)
    if not images or label is None:
        usual = " or ".join(LABELS[:3])
        what = f"a column called {usual}" if images else 'a column of images, {"bytes": ..., "path": ...}'
        there = ", ".join(map(repr, row.values))
        raise ValueError(f"a table of images must have {what}; there are {there} in {file}")
    return images[0], label


def ending_of(content: bytes, place: str) -> str:
    """How the name of a file with these bytes ends."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            ending = f".{image.format}".lower()
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        reason = "which is none" if isinstance(error, UnidentifiedImageError) else str(error)
        raise ValueError(f"image must be a picture that can be read, got {place}, {reason}") from None
    ending = ".jpg" if ending == ".mpo" else ending  # several pictures of one camera, the first like any JPEG
    if ending not in IMAGE_ENDINGS:
        raise ValueError(f"image must be one of {', '.join(IMAGE_ENDINGS)}, got {ending} in {place}")
    return ending
