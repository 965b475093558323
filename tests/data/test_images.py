"""The images of a user, and what is wrong with them."""

import pytest
from PIL import Image

from headwork.data import find_images


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
