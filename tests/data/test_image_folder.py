"""Images of a user's own in folders by class: any size and mode, split, decoded at once or for each batch."""

import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from headwork.data import Augmentation, ImageFolder, image_folder, read_image


def draw(path: Path, seed: int, mode: str = "RGB", size: tuple[int, int] = (9, 7)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 4), dtype=np.uint8)
    Image.fromarray(pixels, "RGBA").convert(mode).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    modes = ["RGB", "L", "RGBA", "P", "1", "CMYK"]
    for number in range(24):
        mode = modes[number % len(modes)]
        ending = "jpg" if mode == "CMYK" else "png"
        draw(tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.{ending}", number, mode, (5 + number, 8))
    return tmp_path / "photos"


def test_a_folder_for_each_class(folder: Path) -> None:
    data = ImageFolder(path=str(folder), size=(6, 8)).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [20, 2, 2]
    assert data.task.labels == ("cat", "dog")
    assert data.found == (
        f"24 images in {folder}, of 5 x 8 to 28 x 8 pixels",
        "read as 6 x 8 pixels, in colour",
        "2 classes: cat (12), dog (12)",
        "split: 20 train, 2 valid, 2 test (at random, seed 0, each class in the same share)",
    )
    batch = data.test.batch([0, 1])
    assert batch.image.shape == (2, 3, 6, 8)
    assert sorted(batch.label.tolist()) == [0, 1]


def test_each_image_is_as_predict_reads_it(folder: Path) -> None:
    data = ImageFolder(path=str(folder), size=(6, 8), n_channels=1).load()
    found = {
        tuple(image.flatten().tolist()): int(label)
        for part in (data.train, data.valid, data.test)
        for image, label in zip(*part.batch(range(len(part))), strict=True)
    }
    for label, name in enumerate(("cat", "dog")):
        for path in (folder / name).iterdir():
            assert found[tuple(read_image(path, (6, 8), 1).flatten().tolist())] == label


def test_decoded_for_each_batch_they_are_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ImageFolder(path=str(folder), size=(6, 8), augment=Augmentation(crop=1, flip=True))
    at_once = config.load(seed=3)
    monkeypatch.setattr(image_folder, "IN_MEMORY", 100)
    each = config.load(seed=3)
    assert isinstance(each.train.images, image_folder.ImageFiles)
    assert each.digest == at_once.digest
    for epoch in (None, 2):
        one, other = (data.train.batch([7, 0, 3], epoch) for data in (at_once, each))
        assert torch.equal(one.image, other.image)
        assert torch.equal(one.label, other.label)
    assert not torch.equal(each.train.batch([7], 2).image, each.train.batch([7]).image)


def test_parts_as_folders(tmp_path: Path) -> None:
    for part, n in (("train", 8), ("val", 3), ("test", 4)):
        for number in range(n):
            for name in ("a", "b"):
                draw(tmp_path / part / name / f"{part}{number}{name}.png", hash((part, number, name)) % 2**32)
    data = ImageFolder(path=str(tmp_path), size=(4, 4)).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [16, 6, 8]
    assert data.found[-1] == "split: 16 train, 6 valid, 8 test (as the files say)"


def test_copies_are_on_one_side_and_other_files_are_said(folder: Path) -> None:
    for number in range(8):
        for copy in "xyz":
            (folder / "dog" / f"{number}{copy}.png").write_bytes((folder / "dog" / "1.png").read_bytes())
    (folder / "dog" / "notes.txt").write_text("mine")
    data = ImageFolder(path=str(folder), size=(6, 8)).load()
    assert "duplicates: 24 of 48 images are there again; all on one side of the split" in data.found
    assert f"skipped: files that are no images (1), the first at {folder / 'dog' / 'notes.txt'}" in data.found
    parts = [
        {image.numpy().tobytes() for image in p.batch(range(len(p))).image} for p in (data.train, data.valid, data.test)
    ]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]


def test_a_photo_that_lies_on_its_side(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 4))
    image.putpixel((0, 0), (255, 255, 255))
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the picture is at the right
    image.save(tmp_path / "photo.png", exif=exif)
    read = read_image(tmp_path / "photo.png", (8, 4), 1)
    assert read[0, 0, 0, 3] == 1
    assert read.sum() == 1


def broken(path: Path) -> None:
    draw(path, 0, size=(90, 90))
    path.write_bytes(path.read_bytes()[:300])


def animated(path: Path) -> None:
    frames = [Image.new("L", (4, 4), colour) for colour in (0, 255)]
    frames[0].save(path.with_suffix(".gif"), save_all=True, append_images=frames[1:])


def thirty_two_bits(path: Path) -> None:
    Image.fromarray(np.full((4, 4), 40_000, dtype=np.int32)).save(path.with_suffix(".tif"))


def huge(path: Path, side: int = 20_000) -> None:
    """A small PNG whose head says that it is huge; what follows it cannot be decoded."""
    Image.new("1", (8, 8)).save(path)
    data = path.read_bytes()
    head = data[12:16] + struct.pack(">II", side, side) + data[24:29]
    path.write_bytes(data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (broken, r"image must be a picture that can be read, got .*0bad.png \("),
        (animated, r"image must be one picture, got .*0bad.gif with 2 frames"),
        (thirty_two_bits, r"got .*0bad.tif \(the pixels must have 8 or 16 bits, or .* got mode I with values"),
        (huge, r"image must have at most 89,478,485 pixels, got .*0bad.png with 20,000 x 20,000: make it smaller"),
        (lambda path: path.write_text("no image"), r"image must be a picture that can be read, got .*0bad.png"),
        (lambda path: path.write_bytes(b""), r"image must be a picture that can be read, got .*0bad.png"),
    ],
)
def test_images_that_cannot_be_used(folder: Path, spoil, message: str) -> None:
    spoil(folder / "cat" / "0bad.png")
    with pytest.raises(ValueError, match=message):
        ImageFolder(path=str(folder), size=(6, 8)).load()


@pytest.mark.parametrize("side", [9_460, 10_500, 20_000])
def test_a_huge_image_is_refused_before_any_is_decoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    """By its head, in our words, without a warning of Pillow's: 89.5, 110 and 400 million pixels."""
    huge(folder / "dog" / "zz.png", side)
    monkeypatch.setattr(Image.Image, "load", None)
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    with pytest.raises(ValueError, match=rf"image must have at most 89,478,485 pixels, got .*zz.png with {side:,} x"):
        ImageFolder(path=str(folder), size=(6, 8)).load()
    assert Image.MAX_IMAGE_PIXELS is not None


@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
def test_a_broken_image_is_found_before_training_begins(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Also where images are decoded for each batch."""
    monkeypatch.setattr(image_folder, "IN_MEMORY", 100)
    path = folder / "dog" / f"zz.{ending}"
    draw(path, 1, size=(90, 90))
    ImageFolder(path=str(folder), size=(6, 8)).load()
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(ValueError, match=r"image must be a picture that can be read, got .*zz"):
        ImageFolder(path=str(folder), size=(6, 8)).load()


def test_what_is_in_no_class_is_said(folder: Path) -> None:
    draw(folder / "stray.png", 1)
    (folder / "labels.csv").write_text("mine")
    (folder / ".hidden").write_text("mine")
    data = ImageFolder(path=str(folder), size=(6, 8)).load()
    assert f"skipped: images that are in no folder of a class (1), the first at {folder / 'stray.png'}" in data.found
    assert f"skipped: files that are no images (1), the first at {folder / 'labels.csv'}" in data.found
    assert data.task.labels == ("cat", "dog")


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    for number, part in enumerate(("train", "test")):
        for name in ("a", "b"):
            for each in range(4):
                draw(tmp_path / "parts" / part / name / f"{each}.png", 100 * number + 10 * each + (name == "b"))
    return tmp_path / "parts"


def test_parts_are_parts_with_an_image_beside_their_classes(parts: Path) -> None:
    draw(parts / "train" / "thumb.png", 99)
    (parts / "notes").mkdir()
    (parts / "notes" / "boxes.xml").write_text("mine")
    data = ImageFolder(path=str(parts), size=(4, 4)).load()
    assert data.task.labels == ("a", "b")
    assert len(data.test) == 8
    skipped = [line for line in data.found if line.startswith("skipped")]
    assert skipped == [
        f"skipped: files that are no images (1), the first at {parts / 'notes' / 'boxes.xml'}",
        f"skipped: images that are in no folder of a class (1), the first at {parts / 'train' / 'thumb.png'}",
    ]


def test_parts_beside_classes_are_refused(parts: Path, tmp_path: Path) -> None:
    draw(parts / "extra" / "z.png", 99)
    rule = r"the folders of .*parts must be the parts \(train, valid or dev, test\), .*, or the classes"
    with pytest.raises(ValueError, match=rule + r", got extra beside test, which names no part"):
        ImageFolder(path=str(parts), size=(4, 4)).load()
    for name in ("train", "test"):
        draw(tmp_path / "flat" / name / "z.png", 99)
    with pytest.raises(ValueError, match=r"got test, which has images and no folders"):
        ImageFolder(path=str(tmp_path / "flat"), size=(4, 4)).load()


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "plane")):
        for each in range(5):
            draw(tmp_path / name / f"{each}.png", 10 * number + each)
    assert ImageFolder(path=str(tmp_path), size=(4, 4)).load().task.labels == ("plane", "train")


def test_wrong_folders(folder: Path, tmp_path: Path) -> None:
    (folder / "bird").mkdir()
    with pytest.raises(ValueError, match=r"every class must have images \(.bmp, .* got none in .*bird"):
        ImageFolder(path=str(folder), size=(6, 8)).load()
    with pytest.raises(ValueError, match=r"got no folder in .*dog"):
        ImageFolder(path=str(folder / "dog"), size=(6, 8)).load()
    with pytest.raises(ValueError, match=r"data must be a folder .*, got the file .*1.png"):
        ImageFolder(path=str(folder / "dog" / "1.png"), size=(6, 8)).load()
    draw(tmp_path / "one" / "only" / "a.png", 1)
    with pytest.raises(ValueError, match=r"there must be two classes or more, got only 'only' in .*one"):
        ImageFolder(path=str(tmp_path / "one"), size=(6, 8)).load()
    with pytest.raises(ValueError, match=r"n_channels must be one of 1, 3, got '2'"):
        ImageFolder(path=".", size=(6, 8), n_channels=2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_images_of_four_times_the_memory_that_training_may_use(tmp_path: Path) -> None:
    """What the process may allocate beside what it has after a small run is a quarter of the decoded images."""
    side, n_bytes = 384, 2**26
    n_images = 4 * n_bytes // (3 * side**2) + 1
    for number in range(n_images):
        shade = (number % 250, number // 250, 99)
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (side, side), shade).save(path)
        if number < 40:
            path = tmp_path / "few" / path.parent.name / path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (side, side), shade).save(path)
    program = f"""
        import resource, torch
        torch.set_num_threads(1)
        import headwork as hw
        from headwork import choices
        from headwork.data import ImageFolder, image_folder
        image_folder.IN_MEMORY = 2**20
        sizes = dict(heads=choices.Heads(n_heads=2), feed_forward=choices.FeedForward(d_ff=8), d_model=8, n_layers=1)
        model = hw.models.VisionTransformerConfig(
            n_classes=2, image=({side}, {side}), n_channels=3, patch=(96, 96), **sizes
        )
        training = hw.training.TrainingConfig(epochs=1, batch_size=4)
        def train(name):
            data = ImageFolder(path={str(tmp_path)!r} + "/" + name, size=({side}, {side}))
            return hw.train(model, data, training, out={str(tmp_path)!r} + "/run-" + name, display=False)
        train("few")
        used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (used + {n_bytes},) * 2)
        print("an epoch" if train("photos").best_step > {n_images // 8} else "less")
        try:
            torch.zeros({4 * n_bytes}, dtype=torch.uint8)
        except RuntimeError:
            print("the limit holds")
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    environment = {"HEADWORK_CACHE": str(tmp_path / "cache"), "PYTHONPATH": ":".join(sys.path), "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == ""
    assert done.stdout == "an epoch\nthe limit holds\n"
