"""The same numbers as Hugging Face: logits, every hidden state, every attention matrix; loaded, and handed back."""

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import headwork as hw
from headwork.hub import load_pretrained, save_pretrained

from ..models.parity.comparing import NothingBelowFloat64, places
from ..models.small_models import real_tokens, some_ids
from .checkpoints import CHECKPOINTS, PAD

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")
N_TOKEN = 7
PADDINGS = {
    "none": real_tokens((7, 7), 7),
    "right": real_tokens((7, 4), 7),
    "left": real_tokens((7, 4), 7, "left"),
}
Tensors = dict[str, Tensor]


def case(name: str, *more: object) -> Any:
    return pytest.param(name, *more, marks=[pytest.mark.slow] if CHECKPOINTS[name].slow else [])


every_checkpoint = pytest.mark.parametrize("name", [case(name) for name in CHECKPOINTS])


def inputs(name: str, real: Tensor) -> tuple[dict[str, Tensor], list[Tensor], dict[str, Tensor]]:
    """What is passed to theirs, and to ours; padding is a token that may stand anywhere, but for RoBERTa."""
    kind = CHECKPOINTS[name].kind
    if kind == "image":
        settings = CHECKPOINTS[name].settings
        size = settings["image_size"] if isinstance(settings["image_size"], list) else [settings["image_size"]] * 2
        image = torch.randn(2, settings["num_channels"], *size, dtype=torch.float64)
        return {"pixel_values": image}, [image], {}
    ids = some_ids(2, N_TOKEN, 36, first=PAD + 1)
    if kind == "pair":
        target, all_real = some_ids(2, N_TOKEN, 36), torch.ones_like(real)
        theirs = {"input_ids": ids, "attention_mask": real.long(), "decoder_input_ids": target}
        return theirs, [ids, target], {"source_visible": real, "target_visible": all_real}
    if "bert" in name and not name.startswith(("bert", "distil")):  # it counts what is no padding
        ids = ids.masked_fill(~real, PAD)
        return {"input_ids": ids, "attention_mask": real.long()}, [ids], {"visible": real}
    theirs = {"input_ids": ids, "attention_mask": real.long(), "position_ids": places(real)}
    return theirs, [ids], {"visible": real}


def run_theirs(model: Any, given: dict[str, Tensor], *, float64: bool) -> Tensors:
    """What transformers computes, by our names."""
    with torch.no_grad():
        if float64:
            with NothingBelowFloat64():
                out = model(**given, output_hidden_states=True, output_attentions=True)
        else:
            given = {key: t.float() if t.is_floating_point() else t for key, t in given.items()}
            out = model(**given, output_hidden_states=True, output_attentions=True)
    logits = out.logits if "logits" in out else out.last_hidden_state
    if "decoder_hidden_states" in out:
        return {
            "output": logits,
            **dict(_hidden("encoder_layers", out.encoder_hidden_states)),
            **dict(_hidden("decoder_layers", out.decoder_hidden_states)),
            **dict(_weights("encoder_layers.{}.attention", out.encoder_attentions)),
            **dict(_weights("decoder_layers.{}.attention", out.decoder_attentions)),
            **dict(_weights("decoder_layers.{}.cross_attention", out.cross_attentions)),
        }
    return {
        "output": logits,
        **dict(_hidden("layers", out.hidden_states)),
        **dict(_weights("layers.{}.attention", out.attentions)),
    }


def _hidden(stack: str, states: tuple[Tensor, ...]) -> Iterator[tuple[str, Tensor]]:
    """The last one is that after the final norm, which is the output of the stack (but not for ViT, see below)."""
    yield f"{stack}.embedded", states[0]
    for i, state in enumerate(states[1:-1]):
        yield f"{stack}.{i}", state
    yield stack, states[-1]


def _weights(point: str, matrices: tuple[Tensor, ...]) -> Iterator[tuple[str, Tensor]]:
    for i, matrix in enumerate(matrices):
        yield f"{point.format(i)}.weights", matrix


def run_ours(model: Any, given: list[Tensor], masks: Tensors) -> Tensors:
    dtype = next(model.parameters()).dtype
    given = [t.to(dtype) if t.is_floating_point() else t for t in given]
    with torch.no_grad(), hw.record(model) as seen:
        model(*given, **masks)
    return dict(seen)


def compare(name: str, ours: Tensors, theirs: Tensors, real: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Each pair of tensors, at the real tokens only."""
    kind = CHECKPOINTS[name].kind
    if kind == "image":  # transformers gives the last layer without the final norm
        last = max(key for key in ours if key.removeprefix("layers.").isdigit())
        theirs[last] = theirs.pop("layers")
    for point, value in theirs.items():
        mine, hides = ours[point], kind in ("encoder", "decoder") or point.startswith("encoder_layers")
        if not hides:
            yield point, mine, value
        elif value.ndim == 2:  # classes: transformers reads the first token, were it padding
            yield point, mine[real[:, 0]], value[real[:, 0]]
        elif value.ndim == 4:
            yield point, mine.transpose(1, 2)[real], value.transpose(1, 2)[real]
        else:
            yield point, mine[real], value[real]


def largest_error(name: str, ours: Any, theirs: Any, real: Tensor, *, float64: bool) -> dict[str, float]:
    """By point: the output, the hidden states, the attention weights."""
    to_theirs, to_ours, masks = inputs(name, real)
    expected = run_theirs(theirs, to_theirs, float64=float64)
    pairs = list(compare(name, run_ours(ours, to_ours, masks), expected, real))
    n_layers = sum(point.endswith(".weights") for point, *_ in pairs)
    assert n_layers >= len(hw.models.describe(ours).attention)
    for point, mine, value in pairs:
        assert mine.shape == value.shape, point
        assert mine.dtype == value.dtype, point
    return {point: (mine - value).abs().max().item() for point, mine, value in pairs}


Saved = Callable[[str], tuple[Path, Any]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A folder for each name, and the model of theirs that is saved in it."""

    @functools.cache
    def save(name: str) -> tuple[Path, Any]:
        folder = tmp_path_factory.mktemp(name)
        return folder, CHECKPOINTS[name].save(folder)

    return save


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("name", "padding"),
    [
        case(name, padding)
        for name, padding in itertools.product(CHECKPOINTS, PADDINGS)
        if padding == "none" or CHECKPOINTS[name].kind != "image"
        if padding != "left"
        or not name.startswith(("marian", "bart", "mbart"))  # which cannot be told the positions of the source there
    ],
)
def test_every_number_in_float64(name: str, padding: str, saved: Saved) -> None:
    folder, theirs = saved(name)
    errors = largest_error(name, load_pretrained(folder), theirs, PADDINGS[padding], float64=True)
    assert max(errors.values()) < 1e-8, errors


@every_checkpoint
def test_every_number_in_float32(name: str, tmp_path: Path) -> None:
    theirs = CHECKPOINTS[name].make().float()
    theirs.save_pretrained(tmp_path)
    ours = load_pretrained(tmp_path)
    assert {p.dtype for p in ours.parameters()} == {torch.float32}
    errors = largest_error(name, ours, theirs, PADDINGS["right"], float64=False)
    assert max(errors.values()) < 1e-4, errors


@pytest.mark.usefixtures("float64")
@every_checkpoint
def test_in_parts_it_is_the_same(name: str, tmp_path: Path, saved: Saved) -> None:
    folder, theirs = saved(name)
    theirs.save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 1
    whole, in_parts = load_pretrained(folder).state_dict(), load_pretrained(tmp_path).state_dict()
    assert whole.keys() == in_parts.keys()
    assert all(tensor.equal(whole[key]) for key, tensor in in_parts.items())


@pytest.mark.usefixtures("float64")
@every_checkpoint
def test_handed_back(name: str, tmp_path: Path, saved: Saved) -> None:
    """transformers loads what is saved here, with no key missing and none left over, and the same numbers."""
    folder, _ = saved(name)
    ours = load_pretrained(folder)
    save_pretrained(ours, tmp_path / "back", like=folder)
    back = open_theirs(name, tmp_path / "back")
    errors = largest_error(name, ours, back, PADDINGS["right"], float64=True)
    assert max(errors.values()) < 1e-8, errors
    again = load_pretrained(tmp_path / "back")
    assert again.config == ours.config
    assert all(tensor.equal(ours.state_dict()[key]) for key, tensor in again.state_dict().items())


def open_theirs(name: str, folder: Path) -> Any:
    """As transformers opens it, with nothing missing and nothing unexpected."""
    checkpoint = CHECKPOINTS[name]
    with NothingBelowFloat64():
        model, report = getattr(transformers, checkpoint.model).from_pretrained(
            folder,
            output_loading_info=True,
            dtype=torch.float64,
            attn_implementation="eager",
            experts_implementation="eager",
            **dict(checkpoint.options),
        )
    assert not any(report.values()), report
    if name.startswith("marian"):
        bias = model.final_logits_bias
        checkpoint.prepare(model)
        model.final_logits_bias = bias
    return model.double().eval()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [case(name) for name, each in CHECKPOINTS.items() if each.kind == "decoder"])
def test_with_a_cache(name: str, saved: Saved) -> None:
    """The text in pieces, padded on the left: the logits of transformers, which has read all at once."""
    folder, theirs = saved(name)
    ours, real = load_pretrained(folder), PADDINGS["left"]
    to_theirs, (ids,), _ = inputs(name, real)
    expected = run_theirs(theirs, to_theirs, float64=True)["output"]
    cache = ours.new_cache()
    pieces = [
        ours(ids[:, start:end], visible=real[:, :end], cache=cache) for start, end in itertools.pairwise((0, 4, 5, 7))
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=1)[real], expected[real], rtol=0, atol=1e-8)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [case(name) for name, each in CHECKPOINTS.items() if each.kind == "decoder"])
def test_greedy_text(name: str, saved: Saved) -> None:
    folder, theirs = saved(name)
    ours, ids, real = load_pretrained(folder), some_ids(2, N_TOKEN, 36, first=1), PADDINGS["left"]
    with NothingBelowFloat64():
        expected = theirs.generate(
            ids, attention_mask=real.long(), max_new_tokens=9, do_sample=False, eos_token_id=None, pad_token_id=0
        )[:, N_TOKEN:]
    assert hw.generation.generate(ours, ids, max_new_tokens=9, visible=real).equal(expected)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [case(name) for name, each in CHECKPOINTS.items() if each.kind == "pair"])
@pytest.mark.parametrize("n_beams", [1, 4])
def test_greedy_and_beams_of_a_target(name: str, n_beams: int, saved: Saved) -> None:
    folder, theirs = saved(name)
    ours, source, real = load_pretrained(folder), some_ids(2, N_TOKEN, 36, first=1), PADDINGS["right"]
    with NothingBelowFloat64():
        expected = theirs.generate(
            source,
            attention_mask=real.long(),
            max_new_tokens=9,
            num_beams=n_beams,
            early_stopping="never" if n_beams > 1 else False,
            do_sample=False,
            decoder_start_token_id=36,
            eos_token_id=5,
            pad_token_id=36,
            forced_eos_token_id=None,
        )[:, 1:]
    found = hw.generation.beam_search(
        ours, source, n_beams=n_beams, max_new_tokens=9, begin=36, end=5, source_visible=real
    )
    for hypothesis, ids in zip(found, expected, strict=True):
        assert hypothesis.ids.equal(ids[: len(hypothesis.ids)])
        assert (ids[len(hypothesis.ids) :] == 36).all()
