"""Configs as JSON and back, and what is said of a file that is wrong."""

import json
import math

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
            "head must be ClassificationHead or MaskedLMHead or NoHead, got None",
        ),
        (lambda: DecoderConfig(vocab=5, heads=4), "heads must be Heads or SplitHeads, got 4"),
        (lambda: DecoderConfig(vocab=5, feed_forward=64), "feed_forward must be FeedForward or Gated.*, got 64"),
        (lambda: DecoderConfig(vocab=5, norm=None), "norm must be LayerNorm or RMSNorm, got None"),
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
