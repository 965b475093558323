"""A saved model is the same model, bit for bit, or it is refused by name."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models.small_models import EVERY_MODEL
from tests.storage.sealing import seal_again
from torch import nn

import headwork as hw
from headwork import choices
from headwork.models import DecoderConfig, published
from headwork.storage import DamagedError, load, save
from headwork.storage.sealed_json import sealed


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_round_trip(tmp_path: Path, name: str) -> None:
    model = EVERY_MODEL[name].make()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.config == model.config
    assert not loaded.training
    for key, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor)


def test_no_random_numbers_are_drawn_for_weights_from_a_file(tmp_path: Path) -> None:
    save(published("digits-vit").build(), tmp_path / "model")
    state = torch.get_rng_state()
    load(tmp_path / "model")
    assert torch.get_rng_state().equal(state)


class Remembering(nn.Module):
    """Keeps its first numbers, in no state dict."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(width))
        self.first = self.weight.detach().clone()


def test_a_class_of_ones_own_is_built_with_numbers(tmp_path: Path) -> None:
    model = Remembering(3)
    with torch.no_grad():
        model.weight.fill_(2)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model", classes=[Remembering])
    assert isinstance(again, Remembering)
    assert (again.weight.tolist(), again.first.tolist()) == ([2.0] * 3, [1.0] * 3)


def test_a_model_that_is_filled_keeps_its_memory(tmp_path: Path) -> None:
    """An optimiser may know its parameters."""
    save(Remembering(3), tmp_path / "model")
    model = Remembering(3)
    weight, place = model.weight, model.weight.data_ptr()
    load(tmp_path / "model", classes=[Remembering], model=model)
    assert model.weight is weight
    assert weight.data_ptr() == place


def test_the_shape_of_the_folder(tmp_path: Path) -> None:
    hw.save(published("digits-vit").build(), tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "manifest.json"])
def test_a_flipped_bit_is_refused_by_name(tmp_path: Path, name: str) -> None:
    save(published("digits-vit").build(), tmp_path / "model")
    path = tmp_path / "model" / name
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(DamagedError, match=rf"{name}|manifest"):
        load(tmp_path / "model")


@pytest.mark.parametrize("how", ["missing", "dangling", "lists nothing"])
def test_a_folder_without_a_manifest_is_refused(tmp_path: Path, how: str) -> None:
    save(published("digits-vit").build(), tmp_path / "model")
    path = tmp_path / "model" / "manifest.json"
    stated = json.loads(path.read_text())
    path.unlink()
    if how == "dangling":
        path.symlink_to(tmp_path / "nowhere")
    if how == "lists nothing":
        del stated["sha256"]
        path.write_text(sealed(stated | {"files": {}}))
    with pytest.raises(DamagedError, match=r"has no manifest\.json|manifest\.json is .* must list config\.json"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("classifier.bias"), "lacks classifier.bias"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), "has the unknown more"),
        (lambda tensors: tensors["classifier.bias"].fill_(math.nan), r"safetensors .*not finite in classifier\.bias"),
        (lambda tensors: tensors["classifier.bias"][3:4].fill_(math.inf), r"not finite in classifier\.bias"),
        *(
            (
                lambda tensors, dtype=dtype: tensors.update({"classifier.bias": torch.zeros(10).to(dtype)}),
                rf"classifier\.bias must be of the dtype torch\.float32, got {dtype}",
            )
            for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn)
        ),
        (
            lambda tensors: tensors.update({"classifier.bias": torch.zeros(11)}),
            r"must have the shape \(10,\)",
        ),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, change: object, message: str) -> None:
    save(published("digits-vit").build(), tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    change(tensors)  # type: ignore[operator]
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    seal_again(tmp_path / "model")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_in_other_precisions_are_welcome(tmp_path: Path, dtype: torch.dtype) -> None:
    save(Decoder(3).to(dtype), tmp_path / "model")
    assert load(tmp_path / "model", classes=[Decoder]).linear.weight.dtype == torch.float32  # type: ignore[union-attr]


def test_weights_too_large_for_the_precision_that_is_asked_for(tmp_path: Path) -> None:
    model = Decoder(3)
    with torch.no_grad():
        model.linear.weight.fill_(1e30)
    save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"in the precision that was asked for, must have finite weights"):
        load(tmp_path / "model", classes=[Decoder], dtype=torch.float16)


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    model = Decoder(3)
    with torch.no_grad():
        model.linear.weight[1, 2] = math.nan
    with pytest.raises(ValueError, match=r"model must have finite weights, got .* in linear\.weight"):
        save(model, tmp_path / "model")


@pytest.mark.parametrize(
    "change",
    [{"n_layers": 10**5}, {"n_layers": 10**9}, {"d_model": 10**30}, {"n_classes": 10**30}, {"image": [10**9, 10**9]}],
    ids=str,
)
def test_a_config_much_larger_than_its_weights_is_refused_before_it_is_built(tmp_path: Path, change: dict) -> None:
    """A limit on the memory of this process, and the patience of whoever runs it, would end the test otherwise."""
    save(published("digits-vit").build(), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    about = json.loads(path.read_text())
    about["model"] |= change
    path.write_text(json.dumps(about))
    seal_again(tmp_path / "model")
    with pytest.raises(ValueError, match=r"config\.json: |must have the shape"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "conversions", [5, {}, "ToAttention", [5], [{"kind": "ToAttention", "tolerance": "no"}]], ids=str
)
def test_conversions_that_are_none(tmp_path: Path, conversions: object) -> None:
    save(published("digits-vit").build(), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"conversions": conversions}))
    seal_again(tmp_path / "model")
    with pytest.raises(ValueError, match=r"config\.json: "):
        load(tmp_path / "model")


def test_folders_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="folder must hold a model"):
        load(tmp_path)
    with pytest.raises(ValueError, match=r"folder must be one that exists, got .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"got gpt2 \(a model on the Hub has its owner in its name: owner/gpt2\)"):
        load("gpt2")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"a model is a folder, or a file \*\.gguf, got the file .*model\.pt: build"):
        load(tmp_path / "model.pt")


def test_a_run_that_was_stopped_before_it_was_evaluated(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"run": {}}))
    with pytest.raises(
        ValueError, match=r"a checkpoint that was evaluated, got .* `headwork train --resume .*` goes on"
    ):
        load(tmp_path)


def test_a_config_that_is_none(tmp_path: Path) -> None:
    save(published("digits-vit").build(), tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("[1, 2")
    seal_again(tmp_path / "model")
    with pytest.raises(DamagedError, match=r"config\.json is damaged"):
        load(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model": {"kind": "Lstm"}}))
    seal_again(tmp_path / "model")
    with pytest.raises(ValueError, match=r"got 'Lstm'; if it is a class of your own, pass it: classes=\[Lstm\]"):
        load(tmp_path / "model")


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    model = published("digits-vit").build()
    save(model, tmp_path / "model")
    with pytest.raises(ValueError, match="must be a new one"):
        save(model, tmp_path / "model")


def test_threads_that_save_into_one_folder(tmp_path: Path) -> None:
    """One of them wins, whole; the others are told."""
    models = {seed: published("digits-vit").build() for seed in range(4)}
    for seed, model in models.items():
        nn.init.constant_(next(model.parameters()), float(seed))
    together = Barrier(len(models))

    def save_one(seed: int, folder: Path) -> str:
        together.wait()
        try:
            save(models[seed], folder)
        except ValueError as error:
            return str(error)
        return "saved"

    for number in range(3):
        folder = tmp_path / str(number)
        with ThreadPoolExecutor(len(models)) as threads:
            found = list(threads.map(save_one, models, [folder] * len(models)))
        assert sorted(found)[:-1] == [f"folder must be a new one, got {folder}, which exists"] * (len(models) - 1)
        assert next(load(folder).parameters()).unique().tolist() == [found.index("saved")]
        assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: setattr(model.layers[0].attention, "beta", 3.0), "got beta=3.0 at 'layers.0.attention'"),
        (lambda model: setattr(model.layers[0].attention_norm, "eps", 0.5), "got eps=0.5 at 'layers.0.attention_norm'"),
        (lambda model: setattr(model.layers[0], "dropout", nn.Dropout(0.7)), "got p=0.7 at 'layers.0.dropout'"),
        (
            lambda model: setattr(model.layers[0].feed_forward, "activation", torch.relu),
            "got activation=.*relu at 'layers.0.feed_forward'",
        ),
        (lambda model: setattr(model.layers[0], "forward", torch.relu), "got forward=.*relu at 'layers.0'"),
        (lambda model: setattr(model.layers[0], "attention_norm", LayerNorm()), "a LayerNorm at .* LayerNorm would be"),
    ],
)
def test_a_model_whose_settings_were_changed_is_not_saved(tmp_path: Path, change, message: str) -> None:
    model = published("digits-vit").build()
    change(model)
    with pytest.raises(ValueError, match=message):
        save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_double_precision_is_kept(tmp_path: Path) -> None:
    model = published("digits-vit").build(dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-9 * torch.randn_like(parameter))
    save(model, tmp_path / "model")
    again = load(tmp_path / "model", dtype=torch.float64)
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


class LayerNorm(nn.Module):
    """Another one, with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(64)), nn.Parameter(torch.zeros(64))


class HalfLife(hw.layers.Positions):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def bias(self, x: torch.Tensor, n_key: int) -> torch.Tensor:
        ages = torch.arange(n_key - x.shape[1], n_key)[:, None] - torch.arange(n_key)
        return -self.rate * ages.abs().to(x)[None, None]


def test_positions_that_were_swapped_in_are_kept_or_refused(tmp_path: Path) -> None:
    config = DecoderConfig(vocab=11, n_layers=1, **SMALL)
    swapped = hw.models.Decoder(config)
    swapped.layers.positions = HalfLife(2.0)
    with pytest.raises(ValueError, match=r"got a HalfLife at 'layers\.positions', where \w+ would be built"):
        save(swapped, tmp_path / "swapped")
    other = hw.models.Decoder(config, positions=HalfLife(2.0))
    other.layers.positions = HalfLife(3.0)
    with pytest.raises(ValueError, match=r"got rate=3\.0 at 'layers\.positions', where 2\.0 would be built"):
        save(other, tmp_path / "other")
    given = hw.models.Decoder(config, positions=HalfLife(2.0))
    given.layers.positions.rate = 5.0
    save(given, tmp_path / "given")
    assert load(tmp_path / "given", classes=[HalfLife]).layers.positions.rate == 5.0


class Decoder(nn.Module):
    """A class of one's own that has the name of one of ours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.linear = nn.Linear(width, width)


def test_a_class_with_the_name_of_one_of_ours(tmp_path: Path) -> None:
    model = Decoder(3)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model", classes=[Decoder])
    assert type(again) is Decoder
    assert torch.equal(again.linear.weight, model.linear.weight)
    message = r"config\.json: Decoder is a class of your own here, with the name of one of ours: pass it, classes=\[Dec"
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model")


class AlibiPositions(hw.layers.AlibiPositions):
    """Steeper than ours, with the same argument: read as ours, a model would answer something else in silence."""

    def bias(self, x: torch.Tensor, n_key: int) -> torch.Tensor:
        return 2 * super().bias(x, n_key)


def test_a_part_with_the_name_and_the_arguments_of_one_of_ours(tmp_path: Path) -> None:
    heads, feed_forward = choices.Heads(n_heads=2), choices.FeedForward(d_ff=8)
    config = DecoderConfig(vocab=7, d_model=8, n_layers=1, heads=heads, feed_forward=feed_forward)
    model = hw.models.Decoder(config, positions=AlibiPositions(n_heads=2)).eval()
    save(model, tmp_path / "model")
    ids = torch.arange(5)[None]
    torch.testing.assert_close(load(tmp_path / "model", classes=[AlibiPositions])(ids), model(ids))
    with pytest.raises(ValueError, match="AlibiPositions is a class of your own here"):
        load(tmp_path / "model")


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": Decoder}, r"classes must be a list, classes=\[Decoder\], got the class Decoder"),
        ({"classes": [Decoder(3)]}, "classes must be classes, not objects of them, got Decoder"),
        ({"classes": [Decoder], "dtype": "float16"}, r"dtype must be one of PyTorch's, .* got 'float16'"),
    ],
)
def test_arguments_that_are_none(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    save(Decoder(3), tmp_path / "model")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model", **arguments)


@pytest.mark.parametrize("module", [nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3))])
def test_a_module_of_pytorch_is_not_saved(tmp_path: Path, module: nn.Module) -> None:
    with pytest.raises(ValueError, match=f"to be saved, got PyTorch's own {type(module).__name__}"):
        save(module, tmp_path / "model")


SMALL = {"d_model": 8, "heads": choices.Heads(n_heads=2), "feed_forward": choices.FeedForward(d_ff=12)}


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("kind", [hw.layers.EncoderLayer, hw.layers.DecoderLayer])
def test_our_own_layers_as_parts(tmp_path: Path, kind: type, norm_order: str) -> None:
    more = {"cross_attention": False} if kind is hw.layers.DecoderLayer else {}
    layers = [
        kind(norm_order=norm_order, dropout=0.1, norm=choices.RMSNorm(eps=eps), **SMALL, **more) for eps in (0.1, 0.2)
    ]
    model = hw.models.Decoder(DecoderConfig(vocab=11, n_layers=2, **SMALL), layers=layers).eval()
    save(model, tmp_path / "model")
    ids = torch.randint(11, (2, 5))
    assert torch.equal(load(tmp_path / "model")(ids), model(ids))


def test_a_layer_that_is_there_twice_is_named(tmp_path: Path) -> None:
    layer = hw.layers.EncoderLayer(norm_order="pre", **SMALL)
    model = hw.models.Decoder(DecoderConfig(vocab=11, n_layers=2, **SMALL), layers=[layer, layer])
    with pytest.raises(ValueError, match=r"the same EncoderLayer at 'layers\.0' and 'layers\.1'"):
        save(model, tmp_path / "model")
