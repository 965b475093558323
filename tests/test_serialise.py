"""Configs as JSON and back, and what is said of a file that is wrong."""

import dataclasses
import json
import math
import typing

import pytest

from headwork import choices
from headwork.models import PUBLISHED, DecoderConfig, EncoderConfig, VisionTransformerConfig, published
from headwork.serialise import config_from_dict, config_to_dict


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_config_survives_json(name):
    config = PUBLISHED[name]
    text = json.dumps(config_to_dict(config), allow_nan=False)
    assert config_from_dict(json.loads(text), [type(config)]) == config


@pytest.mark.parametrize(
    "choice",
    [
        choices.Heads(n_heads=3, beta=math.inf),
        choices.SplitHeads(n_heads=3),
        choices.ClassificationHead(n_classes=3, pooling=choices.AttentionPooling(n_heads=2)),
        choices.BucketPositions(),
    ],
)
def test_choices_survive_json(choice):
    text = json.dumps(config_to_dict(choice), allow_nan=False)
    assert config_from_dict(json.loads(text), [type(choice)]) == choice


def test_every_union_finds_its_kind():
    data = config_to_dict(EncoderConfig(vocab=5, head=choices.NoHead(), heads=choices.SplitHeads(n_heads=4)))
    assert config_from_dict(data, [DecoderConfig, EncoderConfig]).heads == choices.SplitHeads(n_heads=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_modle": 8}, "DecoderConfig has no key 'd_modle'; did you mean 'd_model'?"),
        ({"d_model": "wide"}, "DecoderConfig.d_model must be int, got 'wide'"),
        ({"d_model": True}, "DecoderConfig.d_model must be int, got True"),
        ({"d_model": 1.5}, "DecoderConfig.d_model must be int, got 1.5"),
        ({"norm_order": "mid"}, "norm_order must be .*, got 'mid'"),
        ({"dropout": 2}, r"dropout must lie in \[0, 1\), got 2"),
        ({"heads": {"kind": "Hedas", "n_heads": 2}}, "kind must be one of Heads, SplitHeads, got 'Hedas'"),
        ({"heads": {"kind": "Heads", "n_head": 2}}, "Heads has no key 'n_head'; did you mean 'n_heads'?"),
        ({"heads": {"kind": "Heads"}}, "Heads needs the key 'n_heads', which is missing"),
        ({"heads": 3}, "DecoderConfig.heads must be Heads or SplitHeads, got 3"),
        ({"heads": {"kind": "Heads", "n_heads": 5}}, "n_heads must divide d_model, got n_heads=5 and d_model=768"),
        ({"kind": "Decoder"}, "kind must be one of DecoderConfig, got 'Decoder'"),
    ],
)
def test_what_a_file_gets_wrong_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        config_from_dict(config_to_dict(DecoderConfig(vocab=5)) | change, [DecoderConfig])


def test_a_missing_key_is_named():
    with pytest.raises(ValueError, match="DecoderConfig needs the key 'vocab'"):
        config_from_dict({"kind": "DecoderConfig"}, [DecoderConfig])


@pytest.mark.parametrize("data", [None, 3, [], "DecoderConfig"])
def test_something_else_is_not_a_config(data):
    with pytest.raises(ValueError, match="must be an object with a 'kind'"):
        config_from_dict(data, [DecoderConfig])


def test_sizes_of_images_are_pairs():
    data = config_to_dict(VisionTransformerConfig(n_classes=3)) | {"image": [224]}
    with pytest.raises(ValueError, match=r"VisionTransformerConfig.image must be .*, got \[224\]"):
        config_from_dict(data, [VisionTransformerConfig])


@pytest.mark.parametrize("thing", [3, DecoderConfig, None])
def test_only_configs_are_written(thing):
    with pytest.raises(TypeError, match="config must be an instance"):
        config_to_dict(thing)


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(ValueError, match="model 'bert-bse' is not known; did you mean 'bert-base'"):
        published("bert-bse")


def test_build_makes_the_model_of_the_config():
    assert type(PUBLISHED["digits-vit"].build()).__name__ == "VisionTransformer"
    assert PUBLISHED["digits-vit"].build().config is PUBLISHED["digits-vit"]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VisionTransformerConfig(n_classes=3, position=choices.RotaryPositions()), "position must be NoPos"),
        (lambda: VisionTransformerConfig(n_classes=3, position=None), "position must be NoPositions"),
        (
            lambda: EncoderConfig(vocab=5, head=choices.MaskedLMHead),
            r"head must be .* \(an instance, with parentheses\)",
        ),
        (
            lambda: EncoderConfig(vocab=5, head=None),
            "head must be ClassificationHead or TokenClassificationHead or MaskedLMHead or EmbeddingHead or NoHead",
        ),
        (lambda: DecoderConfig(vocab=5, heads=4), "heads must be Heads or SplitHeads, got 4"),
        (lambda: DecoderConfig(vocab=5, feed_forward=64), "feed_forward must be FeedForward or Gated.*, got 64"),
        (lambda: DecoderConfig(vocab=5, norm=None), "norm must be LayerNorm or RMSNorm or UnbiasedLayerNorm, got None"),
        (lambda: DecoderConfig(vocab="50"), "vocab must be int, got '50'"),
        (lambda: choices.Heads(n_heads=2.0), "n_heads must be int, got 2.0"),
        (lambda: choices.LayerNorm(eps=-1.0), "eps must be more than 0 and finite, got -1.0"),
        (lambda: choices.RotaryPositions(base=float("nan")), "base must be more than 0 and finite, got nan"),
        (lambda: VisionTransformerConfig(n_classes=3, image=(8,)), r"image must be .*, got \(8,\)"),
    ],
)
def test_a_choice_of_another_kind_is_never_dropped_in_silence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- objects by the arguments of their constructors ------------------------------------------------------------


class Blur:
    def __init__(self, size: tuple[int, int], strength: float, inner: "Blur | None" = None, *, device=None) -> None:
        self.size, self.strength, self.inner = size, strength, inner


class Open(typing.Protocol):
    def load(self) -> str: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Words:
    path: str

    def load(self) -> str:
        return self.path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    data: Open
    extra: object = None


def test_any_object_that_keeps_its_arguments_survives_json():
    blur = Blur((3, 5), -math.inf, Blur((1, 1), 0.5))
    data = json.loads(json.dumps(config_to_dict(blur), allow_nan=False))
    assert data["inner"] == {"kind": "Blur", "size": [1, 1], "strength": 0.5, "inner": None}
    again = config_from_dict(data, [Blur])
    assert (again.strength, again.inner.strength) == (-math.inf, 0.5)
    assert tuple(again.size) == (3, 5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "Blur", "size": [1, 1], "strenght": 1.0}, "Blur has no key 'strenght'; did you mean 'strength'?"),
        ({"kind": "Blur", "size": [1, 1]}, "Blur needs the key 'strength', which is missing"),
        ({"kind": "Path", "a": 1}, r"kind must be one of Blur, got 'Path'; .*classes=\[Path\], or --import my_module"),
        ({"kind": "Blur", "size": [1, 1], "strength": 1, "inner": {"kind": "Path"}}, "kind must be one of Blur"),
    ],
)
def test_what_a_file_gets_wrong_about_an_object_is_named(data, message):
    with pytest.raises(ValueError, match=message):
        config_from_dict(data, [Blur])


def test_where_a_protocol_stands_any_class_that_was_passed_may_stand():
    plan = Plan(data=Words(path="a.txt"), extra=Words(path="b.txt"))
    data = json.loads(json.dumps(config_to_dict(plan)))
    assert config_from_dict(data, [Plan, Words]) == plan
    with pytest.raises(ValueError, match="kind must be one of Plan, got 'Words'"):
        config_from_dict(data, [Plan])


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(ValueError, match="classes must have different names, got 2 that are called Blur"):
        config_from_dict({"kind": "Blur"}, [Blur, type("Blur", (), {}), Blur])
