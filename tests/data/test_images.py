"""The images of a user, and what is wrong with them."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headwork.data import find_images, read_image

GREY = (np.arange(35).reshape(5, 7) * 7).astype(np.uint8)


def test_the_images_of_a_folder(tmp_path):
    for name in ("b.png", "a.JPG", "c.webp"):
        Image.new("L", (2, 3)).save(tmp_path / name)
    for name in ("notes.txt", "._b.png", "png"):
        (tmp_path / name).write_text("no image")
    for folder in ("folder.png", ".hidden"):
        (tmp_path / folder).mkdir()
        Image.new("L", (2, 3)).save(tmp_path / folder / "below.png")
    assert [path.name for path in find_images(tmp_path)] == ["a.JPG", "b.png", "c.webp", "below.png"]
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


DEPTHS = {
    "8.png": GREY,
    "16.png": GREY.astype(np.uint16) * 257,
    "16.tif": GREY.astype(np.uint16) * 257,
    "16.pgm": GREY.astype(np.uint16) * 257,
    "float.tif": GREY.astype(np.float32) / 255,
}


@pytest.mark.parametrize("name", DEPTHS)
def test_more_bits_are_not_clipped(name: str, tmp_path: Path) -> None:
    Image.fromarray(DEPTHS[name]).save(tmp_path / name)
    for n_channels in (1, 3):
        pixels = read_image(tmp_path / name, (5, 7), n_channels)
        torch.testing.assert_close(pixels, torch.from_numpy(GREY / 255).float().expand(1, n_channels, 5, 7))


@pytest.mark.parametrize(("dtype", "mode"), [(np.int32, "I"), (np.float32, "F")])
def test_numbers_without_a_known_range_are_refused(dtype: type, mode: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.tif"
    Image.fromarray(GREY.astype(dtype)).save(path)
    with pytest.raises(ValueError, match=f"got {path} .*8 or 16 bits.*got mode {mode} with values from 0 to 238"):
        read_image(path, (5, 7), 1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_a_photo_is_turned_as_its_camera_says(orientation: int, ending: str, tmp_path: Path) -> None:
    """Each of the eight orientations of EXIF, undone by hand: 5 to 8 swap rows and columns."""
    turns = {
        1: lambda seen: seen,
        2: np.fliplr,
        3: lambda seen: np.rot90(seen, 2),
        4: np.flipud,
        5: np.transpose,
        6: lambda seen: np.rot90(seen, 1),  # to be turned to the right
        7: lambda seen: np.rot90(np.transpose(seen), 2),
        8: lambda seen: np.rot90(seen, -1),
    }
    stored = np.ascontiguousarray(turns[orientation](GREY))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"photo.{ending}"
    Image.fromarray(stored).save(path, exif=exif)
    torch.testing.assert_close(read_image(path, (5, 7), 1)[0, 0], torch.from_numpy(GREY / 255).float())


@pytest.mark.parametrize("bad", ["lab.tif", "cut.png", "cut.gif", "header.png", "text.png", "empty.png", "folder.png"])
def test_an_image_that_cannot_be_read_is_named(bad: str, tmp_path: Path) -> None:
    path = tmp_path / bad
    whole = tmp_path / f"whole.{bad[-3:]}"
    if bad == "lab.tif":
        Image.new("LAB", (7, 5)).save(path)
    elif bad == "folder.png":
        path.mkdir()
    elif bad.startswith(("cut", "header")):
        Image.fromarray(np.tile(GREY, (40, 40))).save(whole)
        data = whole.read_bytes()
        path.write_bytes(data[:30] if bad.startswith("header") else data[: len(data) // 2])
    else:
        path.write_bytes(b"not an image" if bad == "text.png" else b"")
    with pytest.raises(ValueError, match=str(path)):
        read_image(path, (5, 7), 1)


@pytest.mark.parametrize("size", [(2_000_000, 1), (1, 2_000_000)])
def test_an_image_that_is_almost_a_line_is_named(size: tuple[int, int], tmp_path: Path) -> None:
    """Pillow runs out of memory when it makes one of 80 million pixels smaller."""
    path = tmp_path / "line.png"
    Image.new("1", size).save(path)
    with pytest.raises(ValueError, match=r"at most 1,048,576 pixels in a line, got .*line\.png with .*2,000,000"):
        read_image(path, (5, 7), 1)


def test_a_pipe_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    """Nobody writes into the pipe, and /dev/zero never ends: opening either would wait for ever."""
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", Path("/dev/zero")):
        with pytest.raises(ValueError, match=f"image must be a file on a disk, got {path}"):
            read_image(path, (5, 7), 1)


def test_of_a_photo_with_smaller_copies_the_photo_is_read(tmp_path: Path) -> None:
    """A phone's JPEG may hold several pictures (MPO), and is no animation."""
    path = tmp_path / "photo.jpg"
    Image.new("L", (7, 5), 255).save(path, format="MPO", save_all=True, append_images=[Image.new("L", (7, 5))])
    assert read_image(path, (5, 7), 1).mean() > 0.99


@pytest.mark.parametrize("ending", ["gif", "png", "tif", "webp"])
def test_several_pictures_in_a_file_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"many.{ending}"
    frames = [Image.new("RGB", (7, 5), (shade, 0, 0)) for shade in (0, 90, 255)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    with pytest.raises(ValueError, match=rf"image must be one picture, got {path} with 3 frames: save one of them"):
        read_image(path, (5, 7), 1)
