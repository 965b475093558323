"""Models made here, handed to Hugging Face; and those that nobody there would understand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import headwork as hw
from headwork import choices
from headwork.hub import FAMILIES, GPT2, ROBERTA, Family, load_pretrained, save_pretrained
from headwork.models import DecoderConfig, EncoderConfig, EncoderDecoderConfig, VisionTransformerConfig

from ..models.small_models import ready, some_ids
from .checkpoints import CHECKPOINTS, transformers

HEADS, FEED_FORWARD = choices.Heads(n_heads=3), choices.FeedForward(d_ff=17, activation="gelu")
CLASSES = choices.ClassificationHead(n_classes=4, pooling=choices.FirstToken())
SIZE: dict[str, Any] = {"vocab": 37, "d_model": 18, "n_layers": 2, "heads": HEADS, "feed_forward": FEED_FORWARD}
LLAMA: dict[str, Any] = {
    "heads": choices.Heads(n_heads=3, bias=False),
    "feed_forward": choices.GatedFeedForward(d_ff=17),
    "norm": choices.RMSNorm(),
    "position": choices.RotaryPositions(),
}
PAIR: dict[str, Any] = {"vocab": 37, "d_model": 18, "n_encoder_layers": 2, "n_decoder_layers": 1, "heads": HEADS}
MADE_HERE: dict[str, tuple[Any, str]] = {
    "masked": (EncoderConfig(**SIZE, head=choices.MaskedLMHead()), "AutoModelForMaskedLM"),
    "classes": (EncoderConfig(**SIZE, head=CLASSES), "AutoModelForSequenceClassification"),
    "no segments": (EncoderConfig(**SIZE, head=choices.NoHead(), n_segments=0), "AutoModel"),
    "gpt": (DecoderConfig(**SIZE), "AutoModelForCausalLM"),
    "untied": (DecoderConfig(**SIZE, lm_head=choices.UntiedLMHead()), "AutoModelForCausalLM"),
    "llama": (DecoderConfig(**SIZE | LLAMA), "AutoModelForCausalLM"),
    "rotated in part": (
        DecoderConfig(
            **SIZE | LLAMA | {"d_model": 24, "position": choices.RotaryPositions(layout="halves", fraction=0.5)}
        ),
        "AutoModelForCausalLM",
    ),
    "qwen": (
        DecoderConfig(**SIZE | LLAMA | {"heads": choices.Heads(n_heads=3, out_bias=False)}),
        "AutoModelForCausalLM",
    ),
    "t5": (
        EncoderDecoderConfig(
            **PAIR
            | {
                "heads": choices.Heads(n_heads=3, d_head=4, d_value=4, bias=False, beta=1.0),
                "feed_forward": choices.GatedFeedForward(d_ff=17, activation="gelu_tanh"),
                "norm": choices.RMSNorm(),
                "norm_order": "pre",
                "position": choices.BucketPositions(),
                "scaled_embedding": False,
                "lm_head": choices.UntiedLMHead(),
            }
        ),
        "AutoModelForSeq2SeqLM",
    ),
    "marian": (
        EncoderDecoderConfig(
            **PAIR, position=choices.SinusoidalPositions(layout="halves"), lm_head=choices.TiedLMHead(bias=True)
        ),
        "AutoModelForSeq2SeqLM",
    ),
    "vit": (
        VisionTransformerConfig(
            n_classes=5, image=(12, 8), n_channels=2, patch=(4, 4), d_model=18, n_layers=2, heads=HEADS
        ),
        "AutoModelForImageClassification",
    ),
}


@pytest.mark.parametrize("name", MADE_HERE)
def test_transformers_opens_what_was_made_here(name: str, tmp_path: Path) -> None:
    config, opened_by = MADE_HERE[name]
    ours = ready(config.build()).float()
    save_pretrained(ours, tmp_path / "handed")
    theirs, report = getattr(transformers, opened_by).from_pretrained(tmp_path / "handed", output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        torch.testing.assert_close(ours(*example(config)), answer(theirs, example(config)), rtol=1e-4, atol=1e-4)


def example(config: Any) -> list[Tensor]:
    torch.manual_seed(0)
    if isinstance(config, VisionTransformerConfig):
        return [torch.randn(2, config.n_channels, *config.image)]
    return [some_ids(2, 7, 36) for _ in range(2 if isinstance(config, EncoderDecoderConfig) else 1)]


def answer(theirs: Any, given: list[Tensor]) -> Tensor:
    if len(given) == 2:
        return theirs(input_ids=given[0], decoder_input_ids=given[1]).logits
    out = theirs(given[0])
    return out.logits if "logits" in out else out.last_hidden_state


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"position": choices.AlibiPositions()}, "GPT-2, .* have no place for position=AlibiPositions"),
        ({"heads": choices.SplitHeads(n_heads=3)}, "GPT-2.* ha(s|ve) no place for heads=SplitHeads"),
        ({"heads": choices.Heads(n_heads=3, beta=1.0)}, "GPT-2.* ha(s|ve) no place for heads="),
        ({"norm_order": "post"}, "GPT-2.* ha(s|ve) no place for norm_order='post'"),
        ({"norm": choices.LayerNorm(bias=False)}, "GPT-2.* ha(s|ve) no place for norm="),
        ({"lm_head": choices.TiedLMHead(scaled=True)}, "GPT-2.* ha(s|ve) no place for lm_head="),
    ],
    ids=str,
)
def test_what_nobody_there_would_understand_is_refused_by_name(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    model = replace(MADE_HERE["gpt"][0], **change).build()
    with pytest.raises(ValueError, match=words):
        save_pretrained(model, tmp_path / "handed")
    assert not (tmp_path / "handed").exists()


def test_what_several_families_have_no_place_for_is_said_once(tmp_path: Path) -> None:
    """As of an encoder from `sst2-encoder`: it is pre-norm, and reads the mean of its tokens."""
    head = choices.ClassificationHead(n_classes=2, pooling=choices.MeanPooling())
    position = choices.LearnedPositions(max_tokens=64)
    config = hw.models.EncoderConfig(head=head, norm_order="pre", position=position, n_segments=0, **SIZE)
    with pytest.raises(ValueError, match=r"BERT, RoBERTa have no place for .*norm_order='pre' ") as raised:
        save_pretrained(config.build(), tmp_path / "handed")
    said = str(raised.value)
    assert "n_segments=0" in said
    assert "final_norm" not in said
    assert said.count("after the last layer") == 2  # DistilBERT has no segments either


def test_heads_that_are_rotated_in_part_go_to_a_family_that_reads_it(tmp_path: Path) -> None:
    """Llama's code in transformers rotates whole heads, whatever the settings say; Phi-3's does not."""
    model = MADE_HERE["rotated in part"][0].build()
    save_pretrained(model, tmp_path / "handed")
    assert json.loads((tmp_path / "handed" / "config.json").read_text())["model_type"] == "phi3"
    assert load_pretrained(tmp_path / "handed").config.position == model.config.position


def test_other_models_and_parts_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of a family that others know, got Linear: there is none"):
        save_pretrained(torch.nn.Linear(3, 5), tmp_path / "handed")
    own = hw.models.Decoder(MADE_HERE["gpt"][0], positions=hw.layers.AlibiPositions(n_heads=3))
    with pytest.raises(ValueError, match="without parts of your own"):
        save_pretrained(own, tmp_path / "handed")


def test_two_precisions(tmp_path: Path) -> None:
    model = MADE_HERE["gpt"][0].build()
    model.embedding.double()
    with pytest.raises(ValueError, match="model must be in one precision"):
        save_pretrained(model, tmp_path / "handed")


def test_a_folder_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="folder must be a new one"):
        save_pretrained(MADE_HERE["gpt"][0].build(), tmp_path)


def test_like_another_folder(tmp_path: Path) -> None:
    """Its labels, its special tokens, its tokenizer, and its family, if there are several that could say the same."""
    CHECKPOINTS["roberta-classes"].save(tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    config["id2label"] = {"0": "bad", "1": "so-so", "2": "good"}
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config))
    (tmp_path / "theirs" / "tokenizer.json").write_text("{}")
    (tmp_path / "theirs" / "optimizer.pt").write_text("")
    model = load_pretrained(tmp_path / "theirs")
    save_pretrained(model, tmp_path / "back", like=tmp_path / "theirs")
    back = json.loads((tmp_path / "back" / "config.json").read_text())
    assert back["model_type"] == "roberta"
    assert back["id2label"] == config["id2label"]
    assert back["eos_token_id"] == 2
    names = {path.name for path in (tmp_path / "back").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "manifest.json"}
    with pytest.raises(ValueError, match="there is none"):
        save_pretrained(MADE_HERE["gpt"][0].build(), tmp_path / "more", like=tmp_path / "theirs")


def test_a_family_of_ones_own(tmp_path: Path) -> None:
    """GPT-2 under another name, and RoBERTa before BERT."""
    mine = replace(
        GPT2,
        name="mine",
        model_types=("my-gpt",),
        config_to=lambda config: {**GPT2.config_to(config), "model_type": "my-gpt"},
    )
    assert isinstance(mine, Family)
    model = MADE_HERE["gpt"][0].build()
    save_pretrained(model, tmp_path / "mine", families=[mine])
    with pytest.raises(ValueError, match="got 'my-gpt'"):
        load_pretrained(tmp_path / "mine")
    assert load_pretrained(tmp_path / "mine", families=[mine, *FAMILIES]).config == model.config
    save_pretrained(MADE_HERE["classes"][0].build(), tmp_path / "roberta", families=[ROBERTA])
    assert json.loads((tmp_path / "roberta" / "config.json").read_text())["model_type"] == "roberta"
