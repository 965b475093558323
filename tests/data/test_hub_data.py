"""Data sets of a hub that is faked: tables, texts and images, their parts and configurations."""

import io
import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from headwork.data import ImageFolder, TextFile, TextPairs, TextTable, parquet_images, read_image
from headwork.data.hub_data import find_data

CONVERTED = "refs/convert/parquet"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the data set "owner/name", of which those that are asked for are fetched."""
    remote, here = tmp_path / "remote", tmp_path / "snapshot"

    def fetch(name: str, *, repo_type: str, allow_patterns: list[str], revision: str | None = None) -> str:
        revision = revision or "main"
        assert (name, repo_type) == ("owner/name", "dataset")
        for file in (remote / revision).rglob("*"):
            inside = file.relative_to(remote / revision)
            if file.is_file() and any(fnmatch(inside.as_posix(), pattern) for pattern in allow_patterns):
                (here / revision / inside).parent.mkdir(parents=True, exist_ok=True)
                (here / revision / inside).write_bytes(file.read_bytes())
        return str(here / revision)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return remote


def put(path: Path, columns: dict[str, list[object]], classes: list[str] | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if classes:
        about = {"info": {"features": {"label": {"names": classes, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
    pq.write_table(table, path)


def put_texts(path: Path, n: int, label: int | None = None) -> None:
    labels = [i % 2 if label is None else label for i in range(n)]
    put(path, {"text": [f"{path.parent.name} {path.name} {i}" for i in range(n)], "label": labels}, ["no", "yes"])


def sizes(data) -> list[int]:
    return [len(part) for part in (data.train, data.valid, data.test)]


def test_parts_as_folders_and_other_files(hub: Path) -> None:
    put_texts(hub / "main/default/train/0000.parquet", 30)
    put_texts(hub / "main/default/test/0000.parquet", 8)
    put_texts(hub / "main/default/unsupervised/0000.parquet", 99, label=-1)
    data = TextTable(path="owner/name", valid_share=0.2).load()
    assert sizes(data) == [24, 6, 8]
    assert any("skipped: files that name no part (1), the first at" in line for line in data.found)


def test_a_part_without_labels_is_said_and_another_split_off(hub: Path) -> None:
    put_texts(hub / "main/data/train-00000-of-00001.parquet", 40)
    put_texts(hub / "main/data/validation-00000-of-00001.parquet", 6)
    put_texts(hub / "main/data/test-00000-of-00001.parquet", 7, label=-1)
    data = TextTable(path="owner/name").load()
    assert sizes(data) == [36, 6, 4]
    assert any("skipped: texts without a label (-1) (7), the first at" in line for line in data.found)


def test_one_configuration_of_several(hub: Path) -> None:
    for name, n in (("cola", 30), ("sst2", 40)):
        put_texts(hub / f"main/{name}/train-00000-of-00001.parquet", n)
        put_texts(hub / f"main/{name}/validation-00000-of-00001.parquet", 6)
        put_texts(hub / f"main/{name}/test-00000-of-00001.parquet", 8)
    assert sizes(TextTable(path="owner/name/sst2").load()) == [40, 6, 8]
    message = "data must name one of the configurations of owner/name, as owner/name/cola does; there are cola, sst2"
    with pytest.raises(ValueError, match=message):
        TextTable(path="owner/name").load()
    with pytest.raises(ValueError, match=r"must be a data set with files such as .parquet, .*, got owner/name/mrpc"):
        TextTable(path="owner/name/mrpc").load()


def test_a_folder_here_is_not_looked_for_on_the_hub(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "work" / "owner").mkdir()
    with pytest.raises(ValueError, match="data must be a file or folder that exists, got owner/name"):
        find_data("owner/name")


def test_the_first_format_that_there_is(hub: Path) -> None:
    (hub / "main").mkdir(parents=True)
    lines = [json.dumps({"text": f"word {i}", "label": i % 2}) for i in range(20)]
    (hub / "main" / "all.json").write_text("[" + ",".join(lines) + "]")
    assert sizes(TextTable(path="owner/name").load()) == [16, 2, 2]
    (hub / "main" / "all.jsonl").write_text("\n".join(lines[:10]))
    assert find_data("owner/name").name == "main"
    assert sum(sizes(TextTable(path="owner/name").load())) == 10


def test_a_revision_of_a_data_set(hub: Path) -> None:
    put_texts(hub / "main/data/all.parquet", 40)
    put_texts(hub / "v1.0/data/all.parquet", 20)
    assert sum(sizes(TextTable(path="owner/name").load())) == 40
    assert sum(sizes(TextTable(path="owner/name@v1.0").load())) == 20
    assert sum(sizes(TextTable(path="owner/name/data@v1.0").load())) == 20


def test_what_the_hub_has_converted(hub: Path) -> None:
    put(hub / CONVERTED / "default/train/0000.parquet", {"text": ["To be, or not to be\nthat is " * 40]})
    put(hub / CONVERTED / "default/test/0000.parquet", {"text": ["that is not to be " * 9, "", "or is it"]})
    (hub / "main").mkdir()
    (hub / "main" / "README.md").write_text("about it")
    data = TextFile(path="owner/name", n_context=8).load()
    assert data.found[-1].endswith("tokens, test as the files say, valid from the end of train")
    start = data.tokenizer.decode(data.test.batch([0]).ids[0].tolist())
    assert start == "that is "
    text = "".join(TextFile(path="owner/name").pieces())
    assert text.endswith("that is \n")
    assert "not to be \n\nor is it\n" in text


def test_text_files_of_the_hub(hub: Path) -> None:
    (hub / "main").mkdir(parents=True)
    (hub / "main" / "README.md").write_text("about it")
    (hub / "main" / "input.txt").write_text("To be, or not to be\n" * 50)
    data = TextFile(path="owner/name", n_context=8).load()
    assert data.found[0] == "1,000 characters in 1 file, 14 different tokens"


def test_pairs_of_the_hub(hub: Path) -> None:
    pairs = [{"en": f"a dog {i}", "de": f"ein Hund {i}"} for i in range(40)]
    put(hub / "main/de-en/train-00000-of-00001.parquet", {"translation": pairs})
    data = TextPairs(path="owner/name").load()
    assert sizes(data) == [36, 2, 2]
    assert "source in 'en', target in 'de'" in data.found


def picture(seed: int, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def put_images(path: Path, seeds: range, form: str = "PNG") -> None:
    images = [{"bytes": picture(seed, form), "path": None} for seed in seeds]
    put(path, {"img": images, "label": [seed % 2 for seed in seeds]}, ["sea/lion", "ant"])


def test_images(hub: Path, tmp_path: Path) -> None:
    put_images(hub / "main/plain_text/train-00000-of-00002.parquet", range(20))
    put_images(hub / "main/plain_text/train-00001-of-00002.parquet", range(20, 30), "JPEG")
    put_images(hub / "main/plain_text/test-00000-of-00001.parquet", range(30, 36))
    put_images(hub / "main/plain_text/extra-00000-of-00001.parquet", range(40, 50))
    config = ImageFolder(path="owner/name", size=(6, 5), valid_share=0.2)
    data = config.load()
    assert sizes(data) == [24, 6, 6]
    assert data.task.labels == ("ant", "sea_lion")
    assert any("skipped: files that name no part (1), the first at" in line for line in data.found)
    (tmp_path / "one.png").write_bytes(picture(30))
    wanted = read_image(tmp_path / "one.png", (6, 5), 3)
    found = [i for i in range(6) if torch.equal(data.test.batch([i]).image, wanted)]
    assert [int(data.test.batch([i]).label) for i in found] == [1]
    assert config.load().digest == data.digest


def test_images_of_files_with_the_same_name(hub: Path) -> None:
    for folder, start in (("a", 0), ("b", 30)):
        put_images(hub / f"main/data/train/{folder}/0000.parquet", range(start, start + 30))
    assert sizes(ImageFolder(path="owner/name", size=(6, 5)).load()) == [48, 6, 6]


def test_images_in_a_parquet_file_here(hub: Path, tmp_path: Path) -> None:
    put_images(tmp_path / "own.parquet", range(30))
    assert sizes(ImageFolder(path=str(tmp_path / "own.parquet"), size=(6, 5)).load()) == [24, 3, 3]


def test_another_process_or_thread_is_sooner(hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_images(tmp_path / "own.parquet", range(30))
    parts, read, others = {"": [tmp_path / "own.parquet"]}, parquet_images.read_images, ["another"]

    def read_while_another_writes(file: Path, folders: dict[str, str]) -> Iterator[tuple[str, bytes, str]]:
        while others:
            others.pop()
            parquet_images.write_images(parts, "digest")
        yield from read(file, folders)

    monkeypatch.setattr(parquet_images, "read_images", read_while_another_writes)
    folder = parquet_images.write_images(parts, "digest")
    assert len(list(folder.rglob("*.png"))) == 30
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": [], "image": []}, "data must have images, got none in .*own.parquet"),
        (
            {"label": [1], "text": ["a"]},
            "a table of images must have a column of images, .* there are 'label', 'text' in",
        ),
        ({"image": [{"bytes": b"x", "path": None}], "id": [1]}, "must have a column called label or class or category"),
        (
            {"image": [{"bytes": b"x", "path": None}], "label": [1]},
            "a picture that can be read, got .* row 1, which is none",
        ),
        (
            {"image": [{"bytes": None, "path": "a.png"}], "label": [1]},
            "image must be the bytes of a picture, got .* row 1",
        ),
    ],
)
def test_wrong_tables_of_images(hub: Path, tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    put(tmp_path / "own.parquet", columns)
    with pytest.raises(ValueError, match=message):
        ImageFolder(path=str(tmp_path / "own.parquet"), size=(6, 5)).load()
    assert not list((tmp_path / "cache").glob("images/*"))
