"""Folders as they are found on disks: settings of other years, classes of other names, heads that nobody asked for."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import headwork as hw
from headwork import choices
from headwork.hub import LeftOutWarning, PretrainedTokenizer, is_pretrained, load_pretrained, save_pretrained
from headwork.storage import DamagedError

from ..models.parity.comparing import NothingBelowFloat64
from ..models.small_models import some_ids
from .checkpoints import BART, CHECKPOINTS, DISTILBERT, ENCODER, GPT2, LABELS, LLAMA, T5, VIT, Checkpoint, transformers

pytestmark = pytest.mark.filterwarnings("ignore::headwork.hub.UnverifiedWarning")

Tensors = dict[str, Tensor]
WEIGHTS, PICKLE = "model.safetensors", "pytorch_model.bin"
TIED = LLAMA | {"head_dim": 10, "tie_word_embeddings": True}
OLD_BERT = (
    *("attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size", "initializer_range"),
    *("intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "type_vocab_size"),
    "vocab_size",
)
"""All that `config.json` said in 2018."""
NAMELESS = ("model_type", "architectures")


def bert(model: str, **settings: Any) -> Checkpoint:
    return Checkpoint("encoder", model, "BertConfig", ENCODER | settings)


def write(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] | None = None,
    tensors: Callable[[Tensors], Tensors] = dict,
    settings: Mapping[str, object] | None = None,
    pickled: bool = False,
) -> Any:
    """The model of transformers, and its folder with other settings and tensors than transformers writes today."""
    model = checkpoint.save(folder)
    config = json.loads((folder / "config.json").read_text())
    config = {key: config[key] for key in only or config if key not in without and key in config}
    (folder / "config.json").write_text(json.dumps(config | dict(settings or {})))
    changed = {key: tensor.contiguous().clone() for key, tensor in tensors(load_file(folder / WEIGHTS)).items()}
    if pickled:
        (folder / WEIGHTS).unlink()
        torch.save(changed, folder / PICKLE)
    else:
        save_file(changed, folder / WEIGHTS)
    return model


def check_same(kind: str, ours: Any, theirs: Any) -> None:
    """The logits, or what a model without a head gives."""
    with torch.no_grad(), NothingBelowFloat64():
        if kind == "image":
            image = torch.randn(2, 2, 12, 12, dtype=torch.float64)
            out, mine = theirs(pixel_values=image), ours(image)
        elif kind == "pair":
            ids, target = some_ids(2, 7, 36, first=2), some_ids(2, 7, 36)
            out, mine = theirs(input_ids=ids, decoder_input_ids=target), ours(ids, target)
        else:
            ids = some_ids(2, 7, 36, first=2)
            out, mine = theirs(input_ids=ids), ours(ids)
    logits = next(out[name] for name in ("prediction_logits", "logits", "last_hidden_state") if name in out)
    torch.testing.assert_close(mine, logits, rtol=1e-8, atol=1e-8)


def gamma(tensors: Tensors) -> Tensors:
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return {next((k.replace(a, b) for a, b in names.items() if k.endswith(a)), k): v for k, v in tensors.items()}


def without_prefix(prefix: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key.removeprefix(prefix): tensor for key, tensor in tensors.items()}


def with_buffers(**buffers: Tensor) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {key.replace("__", "."): buffer for key, buffer in buffers.items()}


# --- config.json without a model_type --------------------------------------------------------------------------------

PRETRAINED = bert("BertForPreTraining")
NO_TYPE: dict[str, tuple[Checkpoint, dict[str, Any]]] = {
    "bert-2018": (PRETRAINED, {"only": OLD_BERT, "tensors": gamma, "pickled": True}),
    "bert-2019": (CHECKPOINTS["bert-lm"], {"only": (*OLD_BERT, "architectures"), "tensors": gamma}),
    "bert-classes": (CHECKPOINTS["bert-classes"], {"without": NAMELESS}),
    "roberta-lm": (CHECKPOINTS["roberta-lm"], {"without": NAMELESS}),
    "roberta-classes": (CHECKPOINTS["roberta-classes"], {"without": NAMELESS}),
    "bert-tokens": (CHECKPOINTS["bert-tokens"], {"without": NAMELESS}),
    "distilbert": (CHECKPOINTS["distilbert"], {"without": NAMELESS}),
    "distilbert-lm": (CHECKPOINTS["distilbert-lm"], {"without": NAMELESS}),
    "distilbert-classes": (CHECKPOINTS["distilbert-classes"], {"without": NAMELESS, "pickled": True}),
    "gpt2": (CHECKPOINTS["gpt2"], {"without": NAMELESS, "pickled": True}),
    "gpt2-bare": (
        CHECKPOINTS["gpt2"],
        {
            "without": NAMELESS,
            "tensors": lambda tensors: with_buffers(h__0__attn__masked_bias=torch.tensor(-1e4))(
                without_prefix("transformer.")(tensors)
            ),
        },
    ),
    "t5": (CHECKPOINTS["t5"], {"without": NAMELESS}),
    "vit": (CHECKPOINTS["vit"], {"without": NAMELESS}),
    "gpt-neox": (CHECKPOINTS["gpt-neox"], {"without": NAMELESS}),
    "llama": (CHECKPOINTS["llama"], {"without": ("model_type",), "settings": {"architectures": ["LLaMAForCausalLM"]}}),
    "bart": (CHECKPOINTS["bart"], {"without": ("model_type",)}),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.filterwarnings("ignore::headwork.hub.LeftOutWarning")
@pytest.mark.parametrize("name", NO_TYPE)
def test_the_family_is_read_off_the_tensors(name: str, tmp_path: Path) -> None:
    checkpoint, changes = NO_TYPE[name]
    theirs = write(tmp_path, checkpoint, **changes)
    assert is_pretrained(tmp_path)
    check_same(checkpoint.kind, hw.load(tmp_path), theirs)


def test_a_classifier_that_nobody_names_is_announced(tmp_path: Path) -> None:
    write(tmp_path, CHECKPOINTS["bert-classes"], without=NAMELESS)
    with pytest.warns(LeftOutWarning, match="is loaded as BertForSequenceClassification, as its tensors are$"):
        load_pretrained(tmp_path)


def test_the_same_names_for_bert_and_roberta(tmp_path: Path) -> None:
    """Without a prefix and without segments it can be either, and their positions are counted differently."""
    roberta = CHECKPOINTS["roberta"]
    write(tmp_path, roberta, without=NAMELESS, settings={"type_vocab_size": 1})
    with pytest.raises(ValueError, match=r'config.json must say "model_type", one of bert, roberta'):
        hw.load(tmp_path)


def test_what_is_ours_is_not_theirs(tmp_path: Path) -> None:
    hw.save(load_small(tmp_path / "theirs"), tmp_path / "ours")
    assert not is_pretrained(tmp_path / "ours")
    (tmp_path / "ours" / "config.json").write_text("{}")
    assert not is_pretrained(tmp_path / "ours")
    with pytest.raises(DamagedError):
        hw.load(tmp_path / "ours")


def load_small(folder: Path) -> Any:
    CHECKPOINTS["gpt2-one-layer"].save(folder)
    return load_pretrained(folder)


def test_an_old_folder_is_one_to_save_like(tmp_path: Path) -> None:
    theirs = write(tmp_path / "old", CHECKPOINTS["gpt2"], without=NAMELESS)
    with pytest.warns(LeftOutWarning):
        ours = load_pretrained(tmp_path / "old")
    save_pretrained(ours, tmp_path / "new", like=tmp_path / "old")
    assert json.loads((tmp_path / "new" / "config.json").read_text())["model_type"] == "gpt2"
    assert load_pretrained(tmp_path / "new").config == ours.config
    assert theirs.config.n_embd == ours.config.d_model


def test_the_tokenizer_of_an_old_folder(tmp_path: Path) -> None:
    """As transformers reads it with the name of the class: lower case, unless the folder says otherwise."""
    pytest.importorskip("tokenizers")
    write(tmp_path, CHECKPOINTS["bert-lm"], only=OLD_BERT)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "Cat", "cafe"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    ours = PretrainedTokenizer.load(tmp_path)
    for text in ("The cats", "Cat café", "the CAT [MASK]"):
        assert ours.encode(text) == theirs(text)["input_ids"]


# --- classes of other names, and heads that nobody asked for ---------------------------------------------------------

VIT_LABELS = VIT | LABELS
NAMED: dict[str, tuple[Checkpoint, dict[str, Any], str]] = {
    "pretraining": (
        PRETRAINED,
        {},
        "BertForMaskedLM, as its tensors are, not as BertForPreTraining, without the tensors bert.pooler.dense.bias, "
        "bert.pooler.dense.weight, cls.seq_relationship.bias, cls.seq_relationship.weight",
    ),
    "pooler": (bert("BertModel"), {}, "BertModel, without the tensors pooler.dense.bias, pooler.dense.weight"),
    "roberta-pooler": (
        Checkpoint("encoder", "RobertaModel", "RobertaConfig", ENCODER),
        {"tensors": with_buffers(embeddings__position_ids=torch.arange(13)[None])},
        "RobertaModel, without the tensors pooler.dense.bias, pooler.dense.weight",
    ),
    "body of a language model": (
        bert("BertModel"),
        {"settings": {"architectures": ["BertForMaskedLM"]}},
        "BertModel, as its tensors are, not as BertForMaskedLM, without the tensors pooler.dense.bias",
    ),
    "language model as a body": (
        CHECKPOINTS["distilbert-lm"],
        {"settings": {"architectures": ["DistilBertForMaskedLMOfMine"]}},
        "DistilBertForMaskedLM, as its tensors are, not as DistilBertForMaskedLMOfMine",
    ),
    "tokens": (CHECKPOINTS["bert-tokens"], {}, ""),
    "tokens-roberta": (CHECKPOINTS["roberta-tokens"], {}, ""),
    "tokens-distilbert": (CHECKPOINTS["distilbert-tokens"], {}, ""),
    "tokens beside a pooler": (
        CHECKPOINTS["bert-tokens"],
        {"tensors": with_buffers(bert__pooler__dense__weight=torch.zeros(21, 21))},
        "BertForTokenClassification, without the tensors bert.pooler.dense.weight",
    ),
    "gpt2-heads": (
        Checkpoint("decoder", "GPT2DoubleHeadsModel", "GPT2Config", GPT2),
        {},
        "GPT2LMHeadModel, as its tensors are, not as GPT2DoubleHeadsModel, without the tensors multiple_choice_head.",
    ),
    "bart-classes": (
        CHECKPOINTS["bart"],
        {
            "settings": {"architectures": ["BartForSequenceClassification"]},
            "tensors": with_buffers(classification_head__dense__weight=torch.zeros(12, 12)),
        },
        "BartForConditionalGeneration, as its tensors are, not as BartForSequenceClassification, without the tensors "
        "classification_head.dense.weight",
    ),
    "t5-old-name": (CHECKPOINTS["t5"], {"settings": {"architectures": ["T5WithLMHeadModel"]}}, ""),
    "deit": (Checkpoint("image", "DeiTForImageClassification", "DeiTConfig", VIT_LABELS), {}, ""),
    "vit-pooler": (
        CHECKPOINTS["vit"],
        {"tensors": with_buffers(vit__pooler__dense__weight=torch.zeros(21, 21))},
        "ViTForImageClassification, without the tensors vit.pooler.dense.weight",
    ),
    "llama-score": (
        Checkpoint("decoder", "LlamaForCausalLM", "LlamaConfig", TIED),
        {
            "settings": {"architectures": ["LlamaForSequenceClassification"]},
            "tensors": with_buffers(score__weight=torch.zeros(2, 30)),
        },
        "LlamaForCausalLM, as its tensors are, not as LlamaForSequenceClassification, without the tensors score.weight",
    ),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", NAMED)
def test_architectures_are_a_hint(name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    checkpoint, changes, note = NAMED[name]
    theirs = write(tmp_path, checkpoint, **changes)
    ours = load_pretrained(tmp_path)
    notes = [str(each.message) for each in recwarn if each.category is LeftOutWarning]
    assert [each.partition(" is loaded as ")[2].startswith(note) for each in notes] == [True] * bool(note)
    check_same(checkpoint.kind, ours, theirs)


@pytest.mark.usefixtures("float64")
@pytest.mark.filterwarnings("ignore::headwork.hub.LeftOutWarning")
@pytest.mark.parametrize(
    ("checkpoint", "body"),
    [
        (bert("BertForQuestionAnswering"), "bert"),
        (bert("BertForMultipleChoice"), "bert"),
        (Checkpoint("encoder", "DistilBertForQuestionAnswering", "DistilBertConfig", DISTILBERT), "distilbert"),
        (Checkpoint("encoder", "RobertaForMultipleChoice", "RobertaConfig", ENCODER), "roberta"),
        (Checkpoint("decoder", "GPT2ForSequenceClassification", "GPT2Config", GPT2 | {"pad_token_id": 0}), ""),
    ],
    ids=lambda value: getattr(value, "model", ""),
)
def test_the_body_of_a_model_with_another_head(checkpoint: Checkpoint, body: str, tmp_path: Path) -> None:
    """Also if its head has the tensors of one that is known: a choice among answers is no classifier of texts."""
    theirs = write(tmp_path, checkpoint)
    ours = load_pretrained(tmp_path)
    if body:
        assert isinstance(ours.config.head, choices.NoHead)
        check_same("encoder", ours, getattr(theirs, body))
    else:
        ids = some_ids(2, 7, 36)
        with torch.no_grad(), NothingBelowFloat64():
            hidden = theirs.transformer(input_ids=ids).last_hidden_state
            expected = hidden @ theirs.transformer.wte.weight.T
        torch.testing.assert_close(ours(ids), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.usefixtures("float64")
@pytest.mark.filterwarnings("ignore::headwork.hub.LeftOutWarning")
@pytest.mark.parametrize(
    ("body", "head", "config", "settings"),
    [
        ("GPT2Model", "GPT2LMHeadModel", "GPT2Config", GPT2),
        ("T5Model", "T5ForConditionalGeneration", "T5Config", T5),
        ("BartModel", "BartForConditionalGeneration", "BartConfig", BART),
        ("LlamaModel", "LlamaForCausalLM", "LlamaConfig", TIED),
    ],
)
def test_a_body_whose_head_is_its_table_of_tokens(
    body: str, head: str, config: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    kind = "pair" if body in ("T5Model", "BartModel") else "decoder"
    write(tmp_path, Checkpoint(kind, body, config, settings))  # type: ignore[arg-type]  # it is one of the kinds
    with torch.no_grad(), NothingBelowFloat64():
        theirs = getattr(transformers, head).from_pretrained(tmp_path, attn_implementation="eager").double().eval()
    check_same(kind, load_pretrained(tmp_path), theirs)


def test_classes_of_tokens_go_back(tmp_path: Path) -> None:
    CHECKPOINTS["bert-tokens"].save(tmp_path / "theirs")
    ours = load_pretrained(tmp_path / "theirs")
    save_pretrained(ours, tmp_path / "ours", labels=["O", "PER", "LOC"])
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "ours")
    assert theirs.config.id2label == {0: "O", 1: "PER", 2: "LOC"}
    assert load_pretrained(tmp_path / "ours").config == ours.config


def test_one_head_of_deit_goes_back(tmp_path: Path) -> None:
    write(tmp_path / "one", NAMED["deit"][0])
    ours = load_pretrained(tmp_path / "one")
    save_pretrained(ours, tmp_path / "two")
    image = torch.randn(2, 2, 12, 12, dtype=torch.float64)
    torch.testing.assert_close(load_pretrained(tmp_path / "two")(image), ours(image))


# --- what is still refused, by its true reason -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "more", "words"),
    [
        (CHECKPOINTS["gpt2"], "lm_head.bias", "lm_head.bias is unknown"),
        (
            CHECKPOINTS["bert-lm"],
            "bert.encoder.layer.0.adapter.weight",
            "bert.encoder.layer.0.adapter.weight is unknown",
        ),
        (CHECKPOINTS["bert-lm"], "cls.predictions.more.weight", "cls.predictions.more.weight is unknown"),
        (CHECKPOINTS["bert"], "adapter.weight", "adapter.weight is unknown"),
    ],
    ids=lambda value: getattr(value, "model", value),
)
def test_weights_of_the_model_itself_are_not_left_out(
    checkpoint: Checkpoint, more: str, words: str, tmp_path: Path
) -> None:
    write(tmp_path, checkpoint, tensors=lambda tensors: tensors | {more: torch.zeros(3)})
    with pytest.raises(ValueError, match=words):
        load_pretrained(tmp_path)


def test_a_body_without_its_head(tmp_path: Path) -> None:
    write(tmp_path, Checkpoint("decoder", "LlamaModel", "LlamaConfig", LLAMA | {"head_dim": 10}))
    with pytest.raises(ValueError, match=r"lm_head.weight is missing"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("tf_model.h5", r"must hold model.safetensors, pytorch_model.bin .*whose weights are in tf_model.h5"),
        ("bert_model.ckpt.index", r"whose weights are in bert_model.ckpt.index"),
    ],
)
def test_weights_that_are_not_read(file: str, words: str, tmp_path: Path) -> None:
    write(tmp_path, CHECKPOINTS["bert-lm"])
    (tmp_path / WEIGHTS).rename(tmp_path / file)
    with pytest.raises(ValueError, match=words):
        hw.load(tmp_path)


@pytest.mark.parametrize("name", [WEIGHTS, PICKLE])
def test_a_pointer_of_git(name: str, tmp_path: Path) -> None:
    write(tmp_path, CHECKPOINTS["bert-lm"])
    (tmp_path / WEIGHTS).unlink()
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:88af\nsize 624\n")
    with pytest.raises(DamagedError, match=f"{name} is a pointer of Git LFS"):
        hw.load(tmp_path)


def test_settings_of_another_name(tmp_path: Path) -> None:
    write(tmp_path, CHECKPOINTS["bert-lm"])
    (tmp_path / "config.json").rename(tmp_path / "bert_config.json")
    with pytest.raises(ValueError, match=r"must hold a config.json, got .* with bert_config.json: rename it"):
        load_pretrained(tmp_path)


def test_a_config_without_weights(tmp_path: Path) -> None:
    """It is the weights that are missing, and not the config."""
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 21}))
    with pytest.raises(ValueError, match=r"with no model.safetensors$"):
        hw.load(tmp_path)


# --- settings that change no number ----------------------------------------------------------------------------------


def test_settings_of_generation_and_bookkeeping_refuse_nothing(tmp_path: Path) -> None:
    old = {
        **transformers.GenerationConfig().to_dict(),
        **{"output_past": True, "finetuning_task": "mnli", "task_specific_params": {"a": 1}, "directionality": "bidi"},
        **{"pooler_fc_size": 768, "pooler_type": "first_token_transform", "gradient_checkpointing": True},
        **{"torch_dtype": "float16", "transformers_version": "2.3.0", "_name_or_path": "x", "use_cache": False},
        **{
            "emb_size": 21,
            "embedding_size": 21,
            "is_encoder_decoder": False,
            "eos_token_ids": None,
            "xla_device": True,
        },
        **{"sentence_transformers": {"version": "4.1.0"}, "model_max_length": 512, "pruned_heads": {}},
    }
    write(tmp_path, CHECKPOINTS["bert-lm"], settings=old)
    load_pretrained(tmp_path)
    write(tmp_path / "other", CHECKPOINTS["bert-lm"], settings=old | {"layer_norm_kind": "rms"})
    with pytest.raises(ValueError, match=r"must have only settings that Headwork knows, got layer_norm_kind = 'rms'"):
        load_pretrained(tmp_path / "other")
