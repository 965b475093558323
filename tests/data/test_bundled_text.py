"""A long text, cut into three parts that do not touch each other."""

import sys
from pydoc_data.topics import topics

import pytest

from headwork.data import BundledText, BytePairs, TextFile, read_text
from headwork.data.bundled_text import bundled_text
from tests.data.conftest import load


def texts(data):
    return [data.tokenizer.decode(part.ids.tolist()) for part in (data.train, data.valid, data.test)]


def test_the_manual_is_whole_and_in_order():
    text = bundled_text()
    assert text.startswith(topics[min(topics)])
    assert text.endswith(topics[max(topics)])
    assert all(topic in text for topic in topics.values())
    assert len(text) == sum(map(len, topics.values())) + len(topics) - 1


def test_the_order_of_the_topics_is_that_of_their_names(monkeypatch):
    monkeypatch.setattr("pydoc_data.topics.topics", {"b": "two", "a": "one"})
    assert bundled_text() == "one\ntwo"


@pytest.mark.parametrize("name", ["text", "byte pairs"])
def test_the_parts_follow_each_other(name):
    text = bundled_text()
    train, valid, test = texts(load(name))
    assert train == text[: len(train)]
    assert len(train) + len(valid) + len(test) == len(text)
    assert 0.899 < len(train) / len(text) < 0.901
    assert abs(len(valid) - len(test)) <= 1
    if name == "byte pairs":  # a character that training never saw is no unknown there
        assert train + valid + test == text


def test_windows_tile_the_parts():
    data = load("text")
    for part in (data.train, data.valid, data.test):
        batch = part.batch(range(len(part)))
        n = batch.ids.numel()
        assert batch.ids.shape[1] == 31
        assert batch.ids.flatten().equal(part.ids[:n])
        assert batch.next.flatten().equal(part.ids[1 : n + 1])
        assert len(part.ids) - n <= 31


def test_byte_pairs_are_fewer_than_characters():
    assert len(load("byte pairs").tokenizer) == 300
    assert len(load("byte pairs").train.ids) < 0.8 * len(load("text").train.ids)


@pytest.mark.slow
def test_a_file_is_read_in_the_same_way(tmp_path):
    path = tmp_path / "manual.txt"
    path.write_text(bundled_text(), encoding="utf-8")
    theirs, ours = TextFile(path=str(path), n_context=31).load(), load("text")
    assert texts(theirs) == texts(ours)
    assert theirs.train.batch([0, 7], epoch=2).ids.equal(ours.train.batch([0, 7], epoch=2).ids)


def test_the_tokens_know_the_training_part_only(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("ab" * 45 + "b" * 5 + "bbbbé")
    data = TextFile(path=str(path), n_context=3).load()
    assert texts(data) == ["ab" * 45, "bbbbb", "bbbb�"]
    assert len(data.tokenizer) == 6


def test_the_shortest_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("0123456789" * 4)
    assert [len(part) for part in texts(TextFile(path=str(path), n_context=1).load())] == [36, 2, 2]
    with pytest.raises(ValueError, match=r"n_context must be less .* got n_context=2 and 2 tokens in the valid part"):
        TextFile(path=str(path), n_context=2).load()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "text must be a file or folder that exists, got .*own.txt"),
        (b"", "text must not be empty, got .*own.txt"),
        (b"\n \n", "text must not be empty, got .*own.txt"),
        ("caf\xe9".encode("latin-1"), "text must be UTF-8, got .*own.txt with the byte 0xe9 in line 1"),
        (b"short", "n_context must be less than the tokens of each part, .* of a text of 5 characters"),
    ],
)
def test_files_that_are_no_text(tmp_path, content, message):
    path = tmp_path / "own.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        TextFile(path=str(path)).load()


def test_an_empty_folder_is_no_text(tmp_path):
    with pytest.raises(ValueError, match=r"text must be a file or a folder with files such as .txt"):
        TextFile(path=str(tmp_path)).load()


def test_a_window_longer_than_a_part():
    with pytest.raises(ValueError, match="got n_context=100000 and"):
        BundledText(n_context=100_000).load()


def test_a_python_without_its_manual(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ValueError, match=r"this Python has no pydoc_data.*TextFile"):
        BundledText(tokenizer=BytePairs()).load()


@pytest.mark.parametrize("make", [lambda: BundledText(n_context=0), lambda: TextFile(path="x", n_context=0)])
def test_windows_of_nothing(make):
    with pytest.raises(ValueError, match=r"n_context must be 1 or more, got 0"):
        make()


def test_a_text_as_it_is_written(tmp_path):
    path = tmp_path / "a.txt"
    for data, text in [
        ("naïve 🙂\n".encode(), "naïve 🙂\n"),
        (b"one\r\ntwo", "one\ntwo"),
        (b"\xef\xbb\xbfwith a mark", "with a mark"),
    ]:
        path.write_bytes(data)
        assert read_text(path) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "text must not be empty, got .*a.txt"),
        (b"\xef\xbb\xbf \r\n", "text must not be empty, got .*a.txt"),
        (b"good\xffbad", "text must be UTF-8, got .*a.txt with the byte 0xff in line 1"),
        (b"\xef\xbb\xbfab\x80", "the byte 0x80 in line 1"),
        ("Windows".encode("utf-16"), "the byte 0xff in line 1"),
        (b"cut \xe2\x82", "the byte 0xe2 in line 1"),
    ],
)
def test_a_text_that_cannot_be_read(tmp_path, data, message):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_text(path)


def test_a_text_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"text must be a file that exists, got .*none.txt"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="text must be a file, got the folder"):
        read_text(tmp_path)
