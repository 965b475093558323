"""The user's own files, and what is wrong with them."""

import pytest
from PIL import Image

from headwork.data import find_images, read_text


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
        (b"good\xffbad", "text must be UTF-8, got .*a.txt with the byte 0xff at offset 4"),
        (b"\xef\xbb\xbfab\x80", "the byte 0x80 at offset 5"),
        ("Windows".encode("utf-16"), "the byte 0xff at offset 0"),
        (b"cut \xe2\x82", "the byte 0xe2 at offset 4"),
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


def test_the_images_of_a_folder(tmp_path):
    for name in ("b.png", "a.JPG", "c.webp"):
        Image.new("L", (2, 3)).save(tmp_path / name)
    for name in ("notes.txt", "._b.png", "png"):
        (tmp_path / name).write_text("no image")
    (tmp_path / "folder.png").mkdir()
    Image.new("L", (2, 3)).save(tmp_path / "folder.png" / "below.png")
    assert [path.name for path in find_images(tmp_path)] == ["a.JPG", "b.png", "c.webp"]
    assert find_images(tmp_path / "b.png") == [tmp_path / "b.png"]


def test_a_file_is_taken_at_its_word(tmp_path):
    """`read_image` says what is wrong with it, not its name."""
    path = tmp_path / "photo"
    Image.new("L", (2, 3)).save(path, format="PNG")
    assert find_images(path) == [path]


def test_no_images(tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(ValueError, match=r"images must be a folder with files such as .*\.png.*, got"):
        find_images(tmp_path)
    with pytest.raises(ValueError, match=r"images must be a file or a folder that exists, got .*none"):
        find_images(tmp_path / "none")
