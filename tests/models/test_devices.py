"""Every tensor is made on the device of its input: all runs on `meta`, and a tensor that appears elsewhere is an error.

CUDA and MPS are untested; this finds the usual mistake, a factory function without `device=`.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import headwork as hw
from headwork import choices, masks
from headwork.layers import GaussianAttention, GrowingCache, ShiftAttention
from headwork.models import GaussianImageEncoder, GaussianImageEncoderConfig, describe

from .small_models import EVERY_MODEL, Case, decoder, encoder_decoder, resnet, some_ids, vision_transformer

META = torch.device("meta")


class OnlyMeta(TorchDispatchMode):
    """Raise where an operation makes a tensor on another device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for t in tree_flatten(made)[0]:
            if isinstance(t, Tensor) and t.device != META:
                raise AssertionError(f"{func} makes a tensor on {t.device}")
        return made


def image_encoder(heads: choices.ImageHeads) -> GaussianImageEncoder:
    config = GaussianImageEncoderConfig(n_classes=5, image=(6, 15), n_channels=2, patch=(2, 3), d_model=18, n_layers=2)
    return GaussianImageEncoder(hw.models.GaussianImageEncoderConfig(**{**vars(config), "heads": heads}))


IMAGE_HEADS: dict[str, choices.ImageHeads] = {
    "isotropic": choices.GaussianHeads(n_heads=3),
    "diagonal": choices.GaussianHeads(n_heads=3, d_value=5, precision="diagonal"),
    "full": choices.GaussianHeads(n_heads=3, d_value=5, precision="full"),
    "shift": choices.ShiftHeads(n_heads=3),
    "query shift": choices.QueryShiftHeads(n_heads=3),
    "content shift": choices.ContentShiftHeads(n_heads=3),
}
CASES = EVERY_MODEL | {
    f"image heads, {name}": Case(lambda heads=heads: image_encoder(heads), lambda: (torch.randn(4, 2, 6, 15),))
    for name, heads in IMAGE_HEADS.items()
}


def on_meta(case: Case) -> tuple[nn.Module, list[Tensor], dict[str, Tensor]]:
    keywords = {name: mask.to(META) for name, mask in case.masks().items()}
    return case.make().to(META), [t.to(META) for t in case.inputs()], keywords


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_model_makes_tensors_where_its_input_is(case: Case) -> None:
    model, inputs, keywords = on_meta(case)
    with OnlyMeta():
        model(*inputs, **keywords).sum().backward()


@pytest.mark.parametrize("case", EVERY_MODEL.values(), ids=EVERY_MODEL)
def test_so_does_looking_into_it(case: Case) -> None:
    model, inputs, keywords = on_meta(case)
    with OnlyMeta(), torch.no_grad(), hw.record(model.eval()) as seen:
        model(*inputs, **keywords)
        for name in seen:
            assert seen[name].device == META


TEXTS = [name for name, case in EVERY_MODEL.items() if name.startswith("decoder")]


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("fast", [False, True])
def test_so_does_a_cache(name: str, padded: bool, fast: bool) -> None:
    model = EVERY_MODEL[name].make().eval().to(META)
    ids = some_ids(2, 9).to(META)
    run = model.one_token() if fast else None
    with OnlyMeta(), torch.inference_mode():
        visible = torch.ones(2, 9, dtype=torch.bool, device=META) if padded else None
        cache = model.new_cache()
        for a, b in ((0, 4), (4, 5), (5, 9)) if run is None else ((0, 4), (4, 5), (5, 6)):
            seen = None if visible is None else visible[:, :b]
            if run is not None and a:
                run(ids[:, a:b], seen, cache)
            else:
                model(ids[:, a:b], visible=seen, cache=cache)


def test_so_does_a_translator() -> None:
    model = encoder_decoder().eval().to(META)
    run, cache = model.one_token(), model.new_cache()
    with OnlyMeta(), torch.inference_mode():
        real = torch.ones(2, 7, dtype=torch.bool, device=META)
        ids = torch.zeros(2, 7, dtype=torch.long, device=META)
        memory = model.encode(ids, visible=real)
        model.decode(ids[:, :3], memory, memory_visible=real, cache=cache)
        run(ids[:, 3:4], real, cache)
        cache.reorder(torch.zeros(3, dtype=torch.long, device=META))


def test_a_long_cache_keeps_its_device() -> None:
    cache = GrowingCache()
    new = torch.zeros(1, 2, 2**14, 4, device=META)
    with OnlyMeta(), torch.no_grad():
        for _ in range(3):
            k, _ = cache(lambda: (new, new))
    assert k.shape[2] == 3 * 2**14


MASKS: dict[str, Callable[[], Tensor]] = {
    "causal": lambda: masks.causal(3, 5, device=META),
    "window": lambda: masks.window(3, 5, device=META),
    "chunked": lambda: masks.chunked(3, 5, 2, device=META),
    "key_padding": lambda: masks.key_padding(torch.ones(2, 3, dtype=torch.bool, device=META)),
}


@pytest.mark.parametrize("make", MASKS.values(), ids=MASKS)
def test_a_mask_is_made_where_it_is_asked_for(make: Callable[[], Tensor]) -> None:
    with OnlyMeta():
        assert make().device == META


@pytest.mark.parametrize("precision", ["isotropic", "diagonal", "full"])
def test_the_weights_of_heads_that_look_by_position(precision: str) -> None:
    layers = (GaussianAttention(8, 3, precision=precision), ShiftAttention(8, 3, (4, 5)))
    with OnlyMeta():
        for layer in (layer.to(META) for layer in layers):
            assert layer.table((4, 5)).device == META
            assert layer.seen_from((4, 5), (1, 2)).device == META


# --- building --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [decoder, encoder_decoder, vision_transformer, resnet])
def test_a_model_is_built_on_a_device_and_in_a_precision(make: Callable[[], nn.Module]) -> None:
    config = make().config
    torch.manual_seed(0)
    expected = config.build().state_dict()
    torch.manual_seed(0)
    built = config.build(dtype=torch.float64).state_dict()
    assert all(torch.equal(built[name], t.double() if t.is_floating_point() else t) for name, t in expected.items())
    with OnlyMeta():
        model = config.build(device="meta")
    assert {t.device for t in (*model.parameters(), *model.buffers())} == {META}
    assert type(make()) is type(model)
    assert describe(model) == describe(make())


def test_parts_of_a_users_own_go_where_the_model_goes() -> None:
    positions = hw.layers.LearnedPositions(11, 18)
    model = hw.models.Decoder(
        decoder(position=choices.NoPositions()).config, positions=positions, device="meta", dtype=torch.bfloat16
    )
    assert {(p.device, p.dtype) for p in model.parameters()} == {(META, torch.bfloat16)}
