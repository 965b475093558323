"""Files where people have them: in two folders, behind links, beside others, in other scripts, damaged."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import headwork as hw
from headwork.data import Examples, ImageFolder, Multi30k, TextFile, TextPairs, TextTable
from headwork.data.download import _alone
from headwork.data.examples import Split
from headwork.data.folders import files_below
from headwork.data.found import say_duplicates
from headwork.data.idx_images import FILES, read_idx
from headwork.data.parquet_images import write_images
from headwork.data.table_files import read_rows
from headwork.data.text_table import words_of
from tests.small_sets import write_small_sets


def table(n: int, classes: int = 2) -> str:
    return "\n".join(["text,label", *(f"words of text {i},kind {i % classes}" for i in range(n))]) + "\n"


def n_examples(data: object) -> int:
    parts: list[Examples] = [getattr(data, part) for part in ("train", "valid", "test")]
    return sum(map(len, parts))


def test_two_aligned_files_in_two_folders(tmp_path: Path) -> None:
    paths = []
    for language in ("en", "de"):
        (tmp_path / language).mkdir()
        paths.append(tmp_path / language / "train.txt")
        paths[-1].write_text("".join(f"{language} word {i}\n" for i in range(60)))
    config = TextPairs(path=str(paths[0]), target_path=str(paths[1]))
    digest = config.load().digest
    assert config.load().digest == digest
    paths[1].write_text(paths[1].read_text().replace("word 7", "word 70"))
    assert config.load().digest != digest


def test_other_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(table(60))
    (tmp_path / "more.xlsx").write_text("no table")
    data = TextTable(path=str(tmp_path)).load()
    assert f"skipped: files that are no tables (1), the first at {tmp_path / 'more.xlsx'}" in data.found
    folder = tmp_path / "pairs"
    folder.mkdir()
    for ending in ("en", "de", "fr"):
        (folder / f"train.{ending}").write_text("".join(f"{ending} word {i}\n" for i in range(60)))
    data = TextPairs(path=str(folder), source="en", target="de").load()
    assert f"skipped: other files (1), the first at {folder / 'train.fr'}" in data.found
    (folder / "stats.csv").write_text(table(60))
    with pytest.raises(ValueError, match=r"must be tables or aligned files, not both, got .*stats.csv beside"):
        TextPairs(path=str(folder), source="en", target="de").load()


def test_hidden_folders_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(table(60))
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "own-checkpoint.csv").write_text(table(60))
    assert n_examples(TextTable(path=str(tmp_path)).load()) == 60


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(np.full((4, 4), 20 * i + len(name), np.uint8)).save(
                tmp_path / "elsewhere" / name / f"{name}{i}.png"
            )
    (tmp_path / "photos").mkdir()
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).symlink_to(tmp_path / "elsewhere" / name)
    assert n_examples(ImageFolder(path=str(tmp_path / "photos"), size=(4, 4)).load()) == 20
    (tmp_path / "elsewhere" / "cats" / "round").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "nowhere.png").symlink_to(tmp_path / "gone.png")
    below = files_below(tmp_path / "elsewhere", (".png",))
    assert len(below.found) == 20
    assert below.others == [tmp_path / "elsewhere" / "nowhere.png"]
    (tmp_path / "photos" / "cats" / "nowhere.png").symlink_to(tmp_path / "gone.png")
    (tmp_path / "elsewhere" / "cats" / "round").unlink()
    (tmp_path / "photos" / "copies").symlink_to(tmp_path / "photos" / "dogs")
    data = ImageFolder(path=str(tmp_path / "photos"), size=(4, 4)).load()
    skipped = tmp_path / "photos" / "cats" / "nowhere.png"
    assert f"skipped: files that are no images (1), the first at {skipped}" in data.found
    assert "3 classes: cats (10), copies (10), dogs (10)" in data.found


def test_a_table_is_no_plain_text(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(table(60))
    with pytest.raises(ValueError, match=r"text must be plain text, got the table .*own.csv"):
        TextFile(path=str(tmp_path / "own.csv"), n_context=8).load()


def test_many_classes_of_several_examples(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(table(5005, classes=1001))
    assert len(TextTable(path=str(tmp_path / "own.csv")).load().task.labels) == 1001


def test_packed_files_are_there_only_if_they_can_be_read(tmp_path: Path) -> None:
    write_small_sets(tmp_path)
    for file in (tmp_path / "multi30k").iterdir():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    with pytest.raises(ValueError, match=r"data-dir must be a folder with Multi30k, .* which has no train.en"):
        Multi30k(directory=str(tmp_path)).load()


@pytest.mark.parametrize("damage", ["middle", "three bytes"])
def test_damaged_idx_files(tmp_path: Path, damage: str) -> None:
    content = bytearray(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9, *range(9)])))
    content[14] ^= 255
    if damage == "middle":
        (tmp_path / f"{FILES[1]}.gz").write_bytes(content)
    else:
        (tmp_path / FILES[1]).write_bytes(bytes([0, 0, 8]))
    with pytest.raises(
        ValueError, match=r"must be a gzip file that can be read, got|must be an idx file of bytes, got"
    ):
        read_idx(tmp_path / FILES[1])


def test_damaged_pages_of_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    pq.write_table(pa.table({"text": [f"some words {i}" * 9 for i in range(2000)]}), path)
    content = bytearray(path.read_bytes())
    content[8:400] = bytes(392)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a Parquet file that can be read, got .*own.parquet"):
        list(read_rows(path))


def test_two_classes_that_would_be_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path / "cache"))
    Image.new("L", (4, 4)).save(tmp_path / "one.png")
    image = {"bytes": (tmp_path / "one.png").read_bytes(), "path": None}
    pq.write_table(pa.table({"image": [image, image], "label": ["a/b", "a_b"]}), tmp_path / "own.parquet")
    with pytest.raises(ValueError, match=r"classes must differ in more than / and :, got 'a/b' and 'a_b'"):
        write_images({"": [tmp_path / "own.parquet"]}, "digest")


@pytest.mark.parametrize(("one", "other"), [("की", "को"), ("ok 😀", "ok 😡"), ("Straße", "Strasse")])
def test_texts_that_are_no_duplicates(one: str, other: str) -> None:
    assert words_of(one) != words_of(other)


@pytest.mark.parametrize(("one", "other"), [("Schön, wirklich!", "schön wirklich"), ("«Да»", "да"), ("“So”", "so")])
def test_texts_that_are_duplicates(one: str, other: str) -> None:
    assert words_of(one) == words_of(other)


def test_a_text_in_valid_and_in_test_is_said() -> None:
    said = say_duplicates("texts", ["a", "b", "b"], [0, 0, 0], Split([0], [1], [2]))
    assert said == "duplicates: 1 of 3 texts is there again; 1 of valid is in test too, as the files have it"


def test_who_fetches_second_waits(tmp_path: Path) -> None:
    """The lock is one of processes: a child that has it lets this one wait."""
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom headwork.data.download import _alone\n"
        "with _alone(Path(sys.argv[1])):\n    print('mine', flush=True)\n    time.sleep(1.0)\n"
        "    Path(sys.argv[1], 'done').touch()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "mine\n"
        with _alone(tmp_path):
            assert (tmp_path / "done").exists()
        assert child.wait() == 0


def test_heads_are_watched_from_python_too(tmp_path: Path) -> None:
    heads = hw.choices.GaussianHeads(n_heads=2)
    config = hw.models.GaussianImageEncoderConfig(
        n_classes=10, image=(8, 8), n_channels=1, patch=(2, 2), d_model=4, n_layers=1, heads=heads
    )
    training = hw.training.TrainingConfig(steps=1, batch_size=8)
    hw.train(config, hw.data.Digits(), training, out=tmp_path / "run", display=False)
    assert len(hw.training.recorder.read_centres(tmp_path / "run")) == 2
