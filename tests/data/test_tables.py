"""Tables of a user's own: the same rows in every format, the columns by name, the split, and what is wrong said."""

import csv
import json
from pathlib import Path

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.data import BytePairs, TextTable
from headwork.data.splitting import HeldOut, share_out
from headwork.data.table_files import read_rows

ROWS = [{"text": f'text {i}, "word{i % 7}" and\tmore', "label": ["no", "yes"][i % 2]} for i in range(40)]


def write(path: Path, rows: list[dict[str, object]] = ROWS) -> Path:
    columns = list(rows[0])
    match path.suffix:
        case ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows(rows)
        case ".tsv":
            lines = ["\t".join(str(row[name]).replace("\t", " ") for name in columns) for row in rows]
            path.write_text("\n".join(["\t".join(columns), *lines]) + "\n", encoding="utf-8")
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_the_same_rows_in_every_format(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"own.{ending}")
    wanted = [{**row, "text": row["text"].replace("\t", " ")} for row in ROWS] if ending == "tsv" else ROWS
    assert [row.values for row in read_rows(path)] == wanted
    data = TextTable(path=str(path), valid_share=0.2, test_share=0.1).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [28, 8, 4]
    assert data.task.labels == ("no", "yes")
    assert data.found[0] == f"40 texts in {path} (text in 'text', label in 'label')"
    assert "2 classes: no (20), yes (20)" in data.found
    assert "split: 28 train, 8 valid, 4 test (at random, seed 0, each class in the same share)" in data.found


def test_csv_is_read_as_the_standard_library_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "quoted.csv"
    path.write_text('text,label\n"two\nlines, ""quoted""",1\n\nplain,0\n', encoding="utf-8")
    with path.open(newline="", encoding="utf-8") as file:
        wanted = list(csv.DictReader(file))
    assert [row.values for row in read_rows(path)] == wanted
    assert [row.place for row in read_rows(path)] == [f"{path}, line 3", f"{path}, line 5"]


def test_columns_are_found_by_name_or_said(tmp_path: Path) -> None:
    rows = [{"id": i, "Review": f"words {i}", "note": f"n{i}", "stars": i % 3} for i in range(60)]
    path = str(write(tmp_path / "own.csv", rows))
    found, said = TextTable(path=path).read(), TextTable(path=path, text="note", label="stars").read()
    assert found.texts[5] == "words 5"
    assert said.texts[5] == "n5"
    assert found.names == ("0", "1", "2")
    assert found.labels == [i % 3 for i in range(60)]


def test_parts_that_files_name_are_kept_and_missing_ones_split_off(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", ROWS[:30])
    write(tmp_path / "test.csv", ROWS[30:])
    data = TextTable(path=str(tmp_path), valid_share=0.2, tokenizer=BytePairs(n_tokens=300)).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [24, 6, 10]
    texts = {data.tokenizer.decode(data.test.batch([i]).ids[0].tolist()) for i in range(10)}
    assert all(any(f"text {i}," in text for text in texts) for i in range(30, 40))


@settings(max_examples=50, deadline=None)
@given(
    labels=st.lists(st.integers(0, 2), min_size=40, max_size=90),
    copies=st.lists(st.integers(0, 39), max_size=30),
    seed=st.integers(0, 99),
)
def test_a_split_has_everything_once_and_duplicates_on_one_side(labels, copies, seed) -> None:
    labels = [0, 1, 2] * 4 + labels
    keys = [*range(len(labels)), *copies]
    labels += [labels[i] for i in copies]
    split = share_out(labels, keys, [None] * len(keys), HeldOut(0.1, 0.2), seed)
    assert sorted(i for part in split for i in part) == list(range(len(keys)))
    sides = [{keys[i] for i in part} for part in split]
    assert not sides[0] & sides[1]
    assert not sides[0] & sides[2]
    assert not sides[1] & sides[2]
    assert split == share_out(labels, keys, [None] * len(keys), HeldOut(0.1, 0.2), seed)


def test_duplicates_empty_texts_and_lengths_are_said(tmp_path: Path) -> None:
    rows = [*ROWS, {"text": ROWS[0]["text"].upper(), "label": "yes"}, {"text": "", "label": "no"}]
    rows += [{"text": "long " * 50, "label": "no"}]
    path = write(tmp_path / "own.csv", rows)
    data = TextTable(path=str(path), max_tokens=20).load()
    assert f"skipped: empty texts (1), the first at {path}, line 43" in data.found
    words = "duplicates: 1 of 42 texts is there again, 1 with another label; all on one side of the split"
    assert words in data.found
    assert "texts have 9 tokens (median), 51 at most; 1 longer than 20 is cut" in data.found


def test_folders_called_train_and_test_are_those_parts(tmp_path: Path) -> None:
    for part, rows in (("train", ROWS[:30]), ("test", ROWS[30:])):
        (tmp_path / part).mkdir()
        write(tmp_path / part / "own.csv", rows)
    data = TextTable(path=str(tmp_path), valid_share=0.2).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [24, 6, 10]
    how = "test as the files say, valid at random, seed 0, each class in the same share"
    assert data.found[-1] == f"split: 24 train, 6 valid, 10 test ({how})"


@pytest.mark.parametrize(
    ("name", "lines", "first"),
    [
        ("own.csv", ["text,label", "", *(f"word {i},{i % 2}" for i in range(20)), "", ""], 2),
        ("own.tsv", ["text\tlabel", *(f"word {i}\t{i % 2}" for i in range(20)), "", "", ""], 22),
        ("own.jsonl", ["", *(json.dumps({"text": f"word {i}", "label": i % 2}) for i in range(20)), "", " "], 1),
    ],
)
def test_empty_lines_are_said(tmp_path: Path, name: str, lines: list[str], first: int) -> None:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    found = TextTable(path=str(path)).load().found
    assert f"skipped: empty lines (3), the first at {path}, line {first}" in found


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_file_is_an_array_or_lines(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "own.json"
    path.write_text("\n" + json.dumps(ROWS, indent=indent))
    assert [row.values for row in read_rows(path)] == ROWS
    assert [row.place for row in read_rows(path)][:2] == [f"{path}, row 1", f"{path}, row 2"]
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert [row.values for row in read_rows(path)] == ROWS


def test_what_changed_has_another_digest(tmp_path: Path) -> None:
    path = write(tmp_path / "own.csv")
    before = TextTable(path=str(path)).load().digest
    assert TextTable(path=str(path)).load().digest == before
    path.write_text(path.read_text().replace("word3", "word4"))
    assert TextTable(path=str(path)).load().digest != before


def test_a_data_set_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, asked = tmp_path / "snapshot", []
    (remote / "data").mkdir(parents=True)
    names = {"info": {"features": {"label": {"names": ["against", "for"], "_type": "ClassLabel"}}}}
    for part, rows in (("train", range(30)), ("validation", range(30, 36)), ("test", range(36, 44))):
        table = pa.table({"sentence": [f"word {i} here" for i in rows], "label": [i % 2 for i in rows]})
        table = table.replace_schema_metadata({"huggingface": json.dumps(names)})
        pq.write_table(table, remote / "data" / f"{part}-00000-of-00001.parquet")

    def fetch(name: str, *, repo_type: str, revision: str | None, allow_patterns: list[str]) -> str:
        assert revision is None
        asked.append((name, repo_type, "*.parquet" in allow_patterns))
        return str(remote)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.chdir(tmp_path)
    data = TextTable(path="owner/opinions").load()
    assert asked == [("owner/opinions", "dataset", True)]
    assert data.task.labels == ("against", "for")
    assert [len(part) for part in (data.train, data.valid, data.test)] == [30, 6, 8]
    assert torch.equal(data.test.batch(range(8)).label, torch.tensor([0, 1] * 4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("review,verdict\na,b\n", r"text must name a column, got 'words'; there are 'review', 'verdict' in .*own.csv"),
        (
            "words,x\na,b\n",
            r"label must be given \(label=NAME, or --set .*\), since no column is called label or class",
        ),
        ("words,label\na,1\nb,\n", "label must not be missing, got '' in the column 'label' of .*own.csv, line 3"),
        ("words,label\na,1\nb,nan\n", "label must not be missing, got 'nan' in the column 'label' of .*line 3"),
        ("words,label\na,1\nb,1\n", "there must be two classes or more, got only '1' in the column label of .*own.csv"),
        ("words,label\na,1\nb\n", "every row must have 2 columns, as the first line of .* has, got 1 in line 3"),
        ("", "a table must have a first line with the names of its columns, got the empty .*own.csv"),
        ("words,label\n", "data must have rows with a text and a label, got none in .*own.csv"),
        ("words,label\na,1\nb,0\n", "there must be 3 or more different examples of each of the 2 classes"),
        ('words,label\n"a,1\nb,0\n', "own.csv must be a CSV file, got one that cannot be read"),
        ("words,words\na,1\n", "the columns of .* must have different names, got words, words"),
        ("words,label\n" + "".join(f"t{i},{i}\n" for i in range(50)), "got 50 classes for 50 in the column label"),
        ("words,label\na,1\n" + "b,1\n" * 9 + "c,0\n" * 9, "there must be 3 or more different examples of each"),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        TextTable(path=str(path), text="words").load()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("own.jsonl", b'{"text": "a", "label": NaN}\n', "label must not be missing, got nan in the column 'label'"),
        ("own.jsonl", b'{"text": "a", "label": 1.5}\n', "label must be a name or a whole number, got 1.5"),
        ("own.jsonl", b'{"text": "a", "label": [1]}\n', r"label must be a name or a whole number, got \[1\]"),
        ("own.jsonl", b'{"text": 3, "label": 1}\n', "text must be a column of texts, got 3"),
        ("own.jsonl", b"[1, 2]\n", r"every line must be a JSON object, got '\[1, 2\]' in line 1 of .*own.jsonl"),
        ("own.jsonl", b'{"text": \n', "every line must be JSON, got line 1 of .*own.jsonl"),
        (
            "own.json",
            b'[{"text": "a", "label": 1}, 2]',
            "every row must be a JSON object, got '2' in row 2 of .*own.json",
        ),
        ("own.json", b'[{"text": "a"', r"data must be JSON, got .*own.json \("),
        (
            "own.csv",
            b"text;label\na;1\n",
            "columns of .*own.csv must be separated by commas, got semicolons in its first",
        ),
        ("own.csv", b"text\tlabel\na\t1\n", "must be separated by commas, got tabs in its first line; call it .tsv"),
        (
            "own.tsv",
            b"text,label\na,1\n",
            "columns of .*own.tsv must be separated by tabs, got commas in its first line",
        ),
        ("own.csv", b"text,label\nfine,1\ncaf\xe9,0\n", "text must be UTF-8, got the byte 0xe9 in line 3 of .*own.csv"),
        ("own.parquet", b"no parquet", "data must be a Parquet file that can be read, got .*own.parquet"),
        ("own.png", b"\x89PNG", "a table must end in one of .csv, .tsv, .jsonl, .* got .png in"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        TextTable(path=str(path)).load()


@pytest.mark.slow
@pytest.mark.parametrize("n_bytes", [10**6, 3 * 10**7])
@pytest.mark.parametrize("store_schema", [True, False], ids=["dictionary", "plain"])
def test_a_small_parquet_file_of_gigabytes_is_refused_in_little_memory(
    tmp_path: Path, n_bytes: int, store_schema: bool
) -> None:
    """The text is there once, and each of the rows, of 3 GB together, says its number."""
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * (3 * 10**9 // n_bytes), pa.int32()), pa.array(["x" * n_bytes]))
    path = tmp_path / "own.parquet"
    pq.write_table(pa.table({"text": rows}), path, compression="zstd", store_schema=store_schema)
    assert path.stat().st_size < 10_000
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(ValueError, match=r"at most 1,073,741,824 bytes .* got 1,.* rows of .*own\.parquet, which"):
            for _ in read_rows(path):
                pass
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 3 * 10**8


def test_the_rows_of_a_parquet_file_that_is_read_in_parts(tmp_path: Path) -> None:
    rows = [{"text": f"text {i}", "image": {"bytes": bytes(i % 7)}, "tags": ["a"] * (i % 3)} for i in range(1000)]
    found = list(read_rows(write(tmp_path / "own.parquet", rows)))
    assert [row.values for row in found] == rows
    assert found[-1].place.endswith("own.parquet, row 1000")


def test_a_cell_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("text,label\n" + "x" * 17_000_000 + ",1\n")
    with pytest.raises(ValueError, match=r"own\.csv must be a CSV file.*field limit \(16777216\), near line"):
        list(read_rows(path))


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_line_that_is_too_long_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr("headwork.data.table_files.LONGEST_LINE", 100)
    path = tmp_path / f"own.{ending}"
    path.write_text("text\n" + "x" * 99 + "\n")
    assert len(list(read_rows(path))) == 1
    path.write_text("text\n" + "x" * 200)
    with pytest.raises(ValueError, match=rf"at most 100 bytes, got more in line 2 of .*own\.{ending}"):
        list(read_rows(path))


def test_wrong_folders(tmp_path: Path) -> None:
    write(tmp_path / "own.csv")
    with pytest.raises(
        ValueError, match=r"data must be a file or folder that exists, got .*own.cvs; did you mean 'own"
    ):
        TextTable(path=str(tmp_path / "own.cvs")).load()
    write(tmp_path / "train.csv")
    with pytest.raises(ValueError, match=r"all files of .* must name a part .* got train.csv beside own.csv"):
        TextTable(path=str(tmp_path)).load()
    (tmp_path / "own.csv").unlink()
    (tmp_path / "train.csv").rename(tmp_path / "test.csv")
    with pytest.raises(ValueError, match=r"must have a part to train on, got test only"):
        TextTable(path=str(tmp_path)).load()
    (tmp_path / "test.csv").unlink()
    with pytest.raises(ValueError, match=r"data must be a folder with files such as .csv"):
        TextTable(path=str(tmp_path)).load()


def test_what_counting_words_reaches(tmp_path: Path) -> None:
    rows = [{"text": f"{'good' if i % 2 else 'bad'} film number{i}", "label": i % 2} for i in range(100)]
    assert TextTable(path=str(write(tmp_path / "own.csv", rows))).bag_of_words_accuracy() == 1.0


def test_text_and_label_are_two_columns(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("verdict\nfor\nagainst\n")
    with pytest.raises(ValueError, match=r"text and label must be two columns, got 'verdict' for both in .*own.csv"):
        TextTable(path=str(tmp_path / "own.csv"), text="verdict").load()


def test_an_object_around_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text('{\n"rows": [{"text": "a", "label": 1}]\n}\n')
    with pytest.raises(ValueError, match=r"data must be a JSON array of objects, or one object a line, got line 1"):
        list(read_rows(path))


def test_no_path_is_not_this_folder() -> None:
    with pytest.raises(ValueError, match="data must name a file or folder, got ''"):
        TextTable(path="").load()


def test_three_classes_are_counted_by_words(tmp_path: Path) -> None:
    words = ("good", "bad", "dull")
    rows = [f"a {words[i % 3]} film number {i},{words[i % 3]}" for i in range(90)]
    (tmp_path / "own.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    assert TextTable(path=str(tmp_path / "own.csv")).bag_of_words_accuracy() == 1.0
