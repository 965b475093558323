"""Images as the image processor of transformers makes them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from headwork.cli import main
from headwork.hub import ImagePreprocessing, load_pretrained

from .checkpoints import CHECKPOINTS, N_LABELS, transformers

SETTINGS: list[dict[str, Any]] = [
    {},
    {"size": {"height": 20, "width": 28}, "resample": 3},
    {"size": 18, "resample": 0, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]},
    {"do_normalize": False, "size": {"height": 9, "width": 7}, "resample": 1},
    {"do_rescale": False, "do_resize": False},
    {"rescale_factor": 1 / 127.5, "feature_extractor_type": "ViTFeatureExtractor", "size": 40, "resample": 2},
]


def picture(rows: int, columns: int) -> Image.Image:
    pixels = np.random.default_rng(3).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_numbers_of_transformers(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    ours, theirs = ImagePreprocessing.load(tmp_path), transformers.ViTImageProcessorPil.from_pretrained(tmp_path)
    for image in (picture(31, 23), picture(5, 300)):
        expected = theirs(image, return_tensors="pt")["pixel_values"]
        torch.testing.assert_close(ours(image), expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"do_center_crop": True}, "do_center_crop must be False"),
        ({"size": {"shortest_edge": 224}}, "shortest_edge = 224"),
        ({"resample": 9}, "resample must be one of Pillow's filters, 0 .. 5, got 9"),
        ({"image_mean": [0.5]}, "image_mean must be three numbers"),
        ({"image_std": [0.5, 0, 0.5]}, "image_std must not be 0"),
        ({"do_thumbnail": True}, "do_thumbnail = True"),
    ],
)
def test_settings_that_are_not_there(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=words) as refused:
        ImagePreprocessing.load(tmp_path)
    assert "preprocessor_config.json" in str(refused.value)


def test_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "vit"
    CHECKPOINTS["vit"].save(folder, num_channels=3, id2label={i: f"kind {i}" for i in range(N_LABELS)})
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": 12}))
    picture(30, 40).save(tmp_path / "photo.png")
    assert main(["predict", str(folder), str(tmp_path / "photo.png"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["labels"]
    with torch.no_grad():
        pixels = ImagePreprocessing.load(folder)(picture(30, 40))
        expected = load_pretrained(folder, dtype=torch.float32)(pixels)[0].softmax(-1)
    assert {label["label"]: pytest.approx(label["probability"], abs=1e-4) for label in said} == {
        f"kind {i}": probability for i, probability in enumerate(expected.tolist())
    }
    (folder / "preprocessor_config.json").unlink()
    assert main(["predict", str(folder), str(tmp_path / "photo.png")]) == 2
    assert "must hold a preprocessor_config.json" in capsys.readouterr().err
