"""Images through the preprocessing of a model: the data are still those of the user's files."""

from pathlib import Path

from PIL import Image

from headwork.data import ImageFolder, PreprocessedImages


def test_they_have_the_digest_of_the_files(tmp_path: Path) -> None:
    for number in range(12):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(path)
    (tmp_path / "preprocessor_config.json").write_text("{}")
    photos = ImageFolder(path=str(tmp_path / "photos"), size=(4, 4))
    whole, read = photos.load(), PreprocessedImages(data=photos, folder=str(tmp_path)).load()
    assert read.digest == whole.digest is not None
    assert read.found == whole.found != ()
