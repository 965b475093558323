"""A page that computes by itself: a small model inside one file, beside the equations in JavaScript (`page/engine`).

`lacks` says what the engine cannot do of a model; if that is nothing, `living_data` is what the page has to hold.
"""

import base64
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwork import layers, models
from headwork.convert import conversions_of
from headwork.data import Tokenizer
from headwork.explorer import questions as q
from headwork.explorer.answering import Answering
from headwork.explorer.answers import Part
from headwork.explorer.encoding import encode_input
from headwork.explorer.one_file import one_file
from headwork.explorer.subject import Subject
from headwork.layers.hook_point import HookPoint, LazyHookPoint
from headwork.layers.positions import Positions
from headwork.models.encoder import ClassificationHead, MaskedLMHead, TokenClassificationHead
from headwork.models.gaussian_image_encoder import ImageLayer
from headwork.models.vision_transformer import MLPHead
from headwork.serialise import config_to_dict

MOST_NUMBERS = 5_000_000
"""Of a model that goes into a page: 13 MB of text in half precision."""
LARGEST_HALF = 65504.0
NUMPY = {"float16": "<f2", "float32": "<f4"}
COMPUTED = ("Read", "Map", "Lens", "Effects", "Continue", "Tensor", "Convolution")
N_EXAMPLES = 24
MOST_STEPS = 100

ENGINE: set[type] = {
    *(models.Decoder, models.Encoder, models.EncoderDecoder, models.VisionTransformer, models.GaussianImageEncoder),
    *(layers.Stack, layers.EncoderLayer, layers.DecoderLayer, ImageLayer),
    *(layers.MultiHeadAttention, layers.CappedAttention, layers.GaussianAttention),
    *(layers.FeedForward, layers.GatedFeedForward, layers.LayerNorm, layers.RMSNorm, layers.UnbiasedLayerNorm),
    *(layers.TokenEmbedding, layers.PatchEmbedding, layers.LMHead),
    *(Positions, layers.LearnedPositions, layers.SinusoidalPositions, layers.RotaryPositions, layers.AlibiPositions),
    *(layers.LearnedGrid, layers.SinusoidalGrid),
    *(layers.ClassTokenPooling, layers.DistillationTokenPooling, layers.FirstTokenPooling),
    *(layers.MeanPooling, layers.MaxPooling, layers.AttentionPooling),
    *(ClassificationHead, TokenClassificationHead, MaskedLMHead, MLPHead),
    *(HookPoint, LazyHookPoint, nn.Linear, nn.Dropout, nn.Identity, nn.Tanh, nn.ReLU),
}
"""The modules that the engine computes; a subclass may compute something else."""


def lacks(model: nn.Module, tokenizer: object = None) -> list[str]:
    """What keeps this model from computing in a page, in words; an empty list: nothing does.

    >>> lacks(hw.models.published("digits-vit").build())
    []
    >>> lacks(hw.models.ResNetConfig(n_classes=10).build())[0]
    'the engine has no ResNet'
    """
    n_numbers = sum(tensor.numel() for tensor in model.state_dict().values())
    found = [] if n_numbers <= MOST_NUMBERS else [f"{n_numbers:,} numbers are more than {MOST_NUMBERS:,}"]
    found += [f"the engine has no {what}" for what in dict.fromkeys(_unknown_modules(model))]
    if getattr(model, "parts", None):
        found.append("the model has parts of your own")
    if conversions_of(model):
        found.append("the model was converted")
    if not all(tensor.isfinite().all() for tensor in model.state_dict().values()):
        found.append("some weights are not finite")
    if tokenizer is not None and tokens_of(tokenizer) is None:
        found.append("the engine reads characters and words, not the pieces of this tokenizer")
    return found


def _unknown_modules(model: nn.Module) -> Iterator[str]:
    for module in model.modules():
        match module:
            case _ if type(module) not in ENGINE:
                yield type(module).__name__
            case layers.GaussianAttention(precision="full"):
                yield "Gaussian heads with a full precision"
            case layers.RotaryPositions() if module.scaling is not None:
                yield f"{type(module.scaling).__name__} of rotary positions"
            case layers.Stack() if module.local_positions is not None:
                yield "positions for some layers only"


def tokens_of(tokenizer: object) -> dict[str, Any] | None:
    """The vocabulary for the engine; None if it splits texts in a way of its own.

    >>> tokens_of(hw.data.Tokenizer.characters(["ab"]))
    {'kind': 'characters', 'strings': ['<pad>', '<begin>', '<end>', '�', 'a', 'b']}
    """
    if not isinstance(tokenizer, Tokenizer):
        return None
    ids = tokenizer.tokenizer.get_vocab()
    strings = sorted(ids, key=ids.__getitem__)
    characters, words = (made([""]) for made in (Tokenizer.characters, lambda texts: Tokenizer.words(texts, 5)))
    for kind, like in (("characters", characters), ("words", words)):
        if _way_of_splitting(tokenizer) == _way_of_splitting(like):
            return {"kind": kind, "strings": strings}
    return None


def _way_of_splitting(tokenizer: Tokenizer) -> tuple[object, ...]:
    whole = tokenizer.tokenizer
    parts = (whole.normalizer, whole.pre_tokenizer, whole.decoder, whole.post_processor)
    merges = bool(getattr(whole.model, "merges", None))
    return (type(whole.model).__name__, merges, *(None if part is None else part.__getstate__() for part in parts))


def living_page(answering: Answering) -> str:
    """The explorer with this model in one HTML file, which computes all answers by itself."""
    return one_file("living.js", answering.subjects[0].name, {"living": living_data(answering)})


def living_data(answering: Answering) -> dict[str, object]:
    """All that a page needs to answer by itself, as plain data: model, vocabulary, and what is only recorded."""
    subject = answering.subjects[0]
    if why := lacks(subject.model, subject.tokenizer):
        raise ValueError(f"model must be one that the engine can compute, but {'; '.join(why)}")
    about = next(answering(q.Describe())).header
    # What the engine does not compute, the page holds as it is now; the cost is that of the first input.
    asked: list[q.Question] = [q.Cost(q.About(answering.begun)), q.Examples(n=N_EXAMPLES), q.Training()]
    recorded = {
        name: list(answering(question)) for question in asked if (name := type(question).__name__) in about["can"]
    }
    rows = recorded["Examples"][0].header["rows"] if "Examples" in recorded else []
    packed, cannot = pack(subject.model.state_dict()), _cannot(subject)
    living = {
        **{key: value for key, value in about.items() if key != "kind"},
        "can": [name for name in about["can"] if name in ("Describe", *COMPUTED, *recorded) and name not in cannot],
        "checkpoints": [],
        "against": None,
        "n_models": 1,
        "precision": packed["dtype"],
        "all_layers": list(subject.description.layers),
        "costs_of": [len(sequence.strings) for sequence in encode_input(subject, answering.begun).sequences],
        "axes": {
            name: module.axes.split() for name, module in subject.model.named_modules() if hasattr(module, "axes")
        },
    }
    return {
        "config": config_to_dict(subject.model),
        "weights": packed,
        "tokens": None if subject.tokenizer is None else tokens_of(subject.tokenizer),
        "begin": subject.begin,
        "end": list(subject.end),
        "about": living,
        "answers": {name: [_as_text(part) for part in parts] for name, parts in recorded.items()},
        "examples": {row["index"]: _input_of(subject, row["index"]) for row in rows},
    }


def _cannot(subject: Subject) -> set[str]:
    """Heads with a bias of their values have another nearest convolution than the engine makes."""
    has_values = any(layer.value is not None for layer in subject.gaussian.values())
    return {"Convolution"} if has_values else set()


def _as_text(part: Part) -> dict[str, object]:
    arrays = {
        name: {"dtype": str(a.dtype), "shape": list(a.shape), "base64": base64.b64encode(a.tobytes()).decode()}
        for name, a in part.arrays.items()
    }
    return {"header": _thinned(part.header), "arrays": arrays}


def _thinned(header: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a run at fewer steps: a curve needs no more points than a page has pixels."""
    if "metrics" not in header:
        return header
    by_split = dict[str, list[Any]]()
    for row in header["metrics"]:
        by_split.setdefault(row["split"], []).append(row)
    shown = [row for rows in by_split.values() for row in rows[:: -(-len(rows) // MOST_STEPS)]]
    shown.sort(key=lambda row: row["step"])
    return {**header, "metrics": _rounded(shown), "centres": _rounded(header["centres"])}


def _rounded(value: Any) -> Any:
    """Numbers with as many digits as a curve shows."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _input_of(subject: Subject, number: int) -> dict[str, Any]:
    """An example of the test data, as the input of a question."""
    encoded = encode_input(subject, q.Input(example=number))
    if encoded.pixels is not None:
        return {"pixels": [round(pixel, 6) for pixel in encoded.pixels.flatten().tolist()]}
    source, *target = (sequence.ids for sequence in encoded.sequences)
    return {"ids": source} | ({"target_ids": target[0]} if target else {})


def pack(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Weights as text: in half precision, unless one of them is too large for it.

    >>> pack({"x": torch.tensor([1.0, -2.0])})
    {'dtype': 'float16', 'shapes': {'x': [2]}, 'base64': 'ADwAwA=='}
    """
    largest = max((float(tensor.abs().max()) for tensor in weights.values() if tensor.numel()), default=0.0)
    dtype = "float16" if largest <= LARGEST_HALF else "float32"
    numbers = [
        tensor.detach().float().cpu().numpy().astype(f"<f{4 if dtype == 'float32' else 2}")
        for tensor in weights.values()
    ]
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in numbers)
    shapes = {name: list(tensor.shape) for name, tensor in weights.items()}
    return {"dtype": dtype, "shapes": shapes, "base64": base64.b64encode(data).decode()}


def unpack(packed: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights as the page has them, in float32.

    >>> unpack(pack({"x": torch.tensor([1.0, -2.0])}))
    {'x': tensor([ 1., -2.])}
    """
    numbers = np.frombuffer(base64.b64decode(packed["base64"]), NUMPY[packed["dtype"]])
    found, start = {}, 0
    for name, shape in packed["shapes"].items():
        end = start + math.prod(shape)
        found[name] = torch.from_numpy(numbers[start:end].astype(np.float32)).reshape(shape)
        start = end
    return found
