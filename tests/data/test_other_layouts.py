"""Other ways in which people keep data: packed, tab-separated .txt, a folder or file for each class, idx files."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from headwork.data import BytePairs, ImageFolder, TextFile, TextPairs, TextTable
from headwork.data import packed as packed_files
from headwork.data.bundled_text import read_text

LINES = [f"{'good' if i % 2 else 'bad'} film number{i}" for i in range(40)]
LABELS = ["neg", "pos"]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def table(delimiter: str = ",") -> str:
    rows = [f"{line}{delimiter}{LABELS[i % 2]}" for i, line in enumerate(LINES)]
    return "\n".join([f"text{delimiter}label", *rows]) + "\n"


def found_in(path: Path) -> set[tuple[str, str]]:
    """Each text with the name of its label."""
    read = TextTable(path=str(path)).read()
    return {(text, read.names[label]) for text, label in zip(read.texts, read.labels, strict=True)}


EXPECTED = {(line, LABELS[i % 2]) for i, line in enumerate(LINES)}


@pytest.mark.parametrize("name", ["own.csv", "own.csv.gz", "own.tsv.gz"])
def test_packed_tables_are_known_by_their_bytes(tmp_path: Path, name: str) -> None:
    content = table("\t" if "tsv" in name else ",").encode()
    (tmp_path / name).write_bytes(gzip.compress(content))
    assert found_in(tmp_path / name) == EXPECTED
    assert found_in(tmp_path) == EXPECTED
    (tmp_path / name).write_bytes(content)
    assert found_in(tmp_path / name) == EXPECTED


def test_packed_texts_and_pairs(tmp_path: Path) -> None:
    text = "\n".join(LINES)
    (tmp_path / "own.txt").write_bytes(gzip.compress(text.encode()))
    assert read_text(tmp_path / "own.txt") == text
    assert len(TextFile(path=str(tmp_path / "own.txt"), n_context=8).load().train) > 0
    for language in ("en", "de"):
        (tmp_path / f"{language}.gz").write_bytes(gzip.compress(text.encode()))
    pairs = TextPairs(
        path=str(tmp_path / "en.gz"), target_path=str(tmp_path / "de.gz"), tokenizer=BytePairs(n_tokens=260)
    )
    assert sum(map(len, (pairs.load().train, pairs.load().valid, pairs.load().test))) == len(LINES)


def test_a_packed_file_that_is_broken_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.csv"
    content = gzip.compress(table().encode())
    path.write_bytes(content[:-20])
    with pytest.raises(ValueError, match=r"must be a gzip file that can be read, got .*own.csv"):
        found_in(path)
    path.write_bytes(gzip.compress(bytes(2**20)))
    monkeypatch.setattr(packed_files, "LARGEST_UNPACKED", 2**10)
    monkeypatch.setattr(packed_files, "MOST_UNPACKED", 2)
    with pytest.raises(ValueError, match=r"at most 2,\d{3} bytes when it is unpacked, got more in .*own.csv"):
        found_in(path)


def test_a_txt_with_tabs_is_a_table(tmp_path: Path) -> None:
    assert found_in(write(tmp_path / "own.txt", table("\t"))) == EXPECTED
    write(tmp_path / "parts" / "train.txt", table("\t"))
    write(tmp_path / "parts" / "test.txt", table("\t"))
    assert set(TextTable(path=str(tmp_path / "parts")).read().given) == {"train", "test"}
    pairs = write(tmp_path / "pairs.txt", "".join(f"{line}\t{line}\n" for line in LINES))
    assert len(TextPairs(path=str(pairs), tokenizer=BytePairs(n_tokens=260)).load().train) > 20
    with pytest.raises(ValueError, match=r"\.txt with tabs.* got .*plain.txt without a tab in its first line"):
        found_in(write(tmp_path / "plain.txt", "no label here\n"))
    with pytest.raises(ValueError, match=r"'ham', 'come home'.* in .*sms.txt: a first line such as label,text must"):
        found_in(write(tmp_path / "sms.txt", "ham\tcome home\nspam\tfree!\n"))


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    for i, line in enumerate(LINES):
        write(tmp_path / "own" / LABELS[i % 2] / f"{i}.txt", line)
        write(tmp_path / "parts" / ("train" if i < 30 else "test") / LABELS[i % 2] / f"{i}.txt", line)
    write(tmp_path / "own" / "README.txt", "about")
    assert found_in(tmp_path / "own") == found_in(tmp_path / "parts") == EXPECTED
    data = TextTable(path=str(tmp_path / "own")).load()
    assert data.task.labels == ("neg", "pos")
    assert data.found[0] == f"40 texts in {tmp_path / 'own'} (the class is the name of the folder)"
    assert data.found[1].startswith("skipped: texts that are in no folder of a class (1), the first at")
    assert len(TextTable(path=str(tmp_path / "parts")).load().test) == 10
    write(tmp_path / "own" / "neg" / "0.txt", "changed")
    assert TextTable(path=str(tmp_path / "own")).load().digest != data.digest


def test_a_file_for_each_class(tmp_path: Path) -> None:
    for label, name in enumerate(LABELS):
        write(tmp_path / "own" / f"{name}.txt", "\n".join(LINES[label::2]) + "\n")
        for part, lines in (("train", LINES[label:30:2]), ("test", LINES[30 + label :: 2])):
            write(tmp_path / "parts" / part / f"{name}.txt", "\n".join(lines) + "\n")
    assert found_in(tmp_path / "own") == found_in(tmp_path / "parts") == EXPECTED
    assert (
        "(the class is the name of the file, one text a line)" in TextTable(path=str(tmp_path / "own")).load().found[0]
    )
    assert len(TextTable(path=str(tmp_path / "parts")).load().test) == 10


@pytest.mark.parametrize("names", [("train.txt", "test.txt"), ("only.txt",)])
def test_files_that_are_no_classes(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        write(tmp_path / name, "one\ntwo\n")
    with pytest.raises(ValueError, match=r"pos.txt, neg.txt\), got (test.txt, which names a part|only.txt only)"):
        found_in(tmp_path)


@pytest.mark.parametrize("is_packed", [False, True])
def test_idx_files(tmp_path: Path, is_packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    images = {part: generator.integers(0, 256, (n, 5, 6), dtype=np.uint8) for part, n in (("train", 30), ("t10k", 12))}
    folder = tmp_path / "raw"
    folder.mkdir()
    for part, pixels in images.items():
        labels = (np.arange(len(pixels)) % 3).astype(np.uint8)
        for name, array in (("images-idx3-ubyte", pixels), ("labels-idx1-ubyte", labels)):
            content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
            path = folder / f"{part}-{name}{'.gz' if is_packed else ''}"
            path.write_bytes(gzip.compress(content) if is_packed else content)
    data = ImageFolder(path=str(folder), size=(5, 6), n_channels=1, valid_share=0.2).load()
    assert data.task.labels == ("0", "1", "2")
    assert [len(part) for part in (data.train, data.valid, data.test)] == [24, 6, 12]
    batch = data.test.batch(range(12))
    in_order = np.concatenate([images["t10k"][label::3] for label in range(3)])
    assert np.array_equal((255 * batch.image[:, 0]).round().byte().numpy(), in_order)
    assert batch.label.tolist() == sorted(batch.label.tolist())
    next(folder.glob("t10k-labels*")).unlink()
    with pytest.raises(ValueError, match=r"labels beside them, got .*t10k-images.* without t10k-labels"):
        ImageFolder(path=str(folder), size=(5, 6), n_channels=1).load()
