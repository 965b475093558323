"""Training on from a folder of Hugging Face's: what is learned is read there again, with the same numbers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from PIL import Image
from tests.small_sets import write_small_sets
from torch import nn

import headwork as hw
from headwork.cli import main
from headwork.data import BundledText, Digits, MaskedText, Pretrained, Reviews, TextFile
from headwork.data.reviews import LabelledTexts, ReviewTexts
from headwork.recipes import find_recipe
from headwork.storage import DamagedError
from headwork.training import SGD, AdamW, StoppedError, TrainingConfig, new_run, open_run, start_from, train_run
from headwork.training.config import RunConfig

from ..hub.checkpoints import CHECKPOINTS, transformers
from .small_runs import StopAfter, differences

pytestmark = pytest.mark.filterwarnings("ignore::headwork.hub.UnverifiedWarning")

WORDS = ["good", "bad", "film", "a", "the", "very", "##ly", "not"]
TEXTS = [
    "a good film",
    "the bad film",
    "a very good film",
    "not good",
    "very bad",
    "the film",
    "bad bad film",
    "good good",
]
STEPS = {"steps": 3, "batch_size": 4, "optimiser": SGD(lr=0.5)}


@pytest.fixture(autouse=True)
def few_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    part = LabelledTexts(TEXTS, [1, 0, 1, 0, 0, 1, 0, 1])
    monkeypatch.setattr("headwork.data.reviews.read_reviews", lambda config: ReviewTexts(part, part, part))


def words_of_bert(folder: Path) -> int:
    """A tokenizer as BERT has it; how many tokens it has."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(special)
    made.save(str(folder / "tokenizer.json"))
    return len(vocabulary)


def letters(folder: Path, text: str) -> int:
    alphabet = {letter: i for i, letter in enumerate(sorted(set(text)))}
    tokenizers.Tokenizer(tokenizers.models.BPE(alphabet, [])).save(str(folder / "tokenizer.json"))
    return len(alphabet)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return save_bert(tmp_path / "bert", "bert-lm")


def save_bert(folder: Path, name: str) -> Path:
    folder.mkdir()
    settings = {"pad_token_id": 1 if "roberta" in name else 0} if "distil" not in name else {}
    model = CHECKPOINTS[name].make(vocab_size=words_of_bert(folder), **settings).float()
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat, and the dog sat on the cat. " * 30)
    return path


def learn(start: Any, out: Path, **training: Any) -> Any:
    return hw.train(start.model, start.config, TrainingConfig(**{**STEPS, **training}), out=out)


# --- texts with labels ------------------------------------------------------------------------------------------------


SLOW = [
    pytest.param(name, how, marks=pytest.mark.slow)
    for name in ("bert", "bert-lm", "roberta-lm", "distilbert-lm")
    for how in ("all", "lora", "head")
    if (name, how) != ("bert-lm", "lora")
]


@pytest.mark.parametrize(("name", "how"), [("bert-lm", "lora"), *SLOW])
def test_a_classifier_is_read_there_again(name: str, how: str, tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "theirs", name)
    options: dict[str, Any] = {
        "all": {},
        "lora": {"adapt": hw.convert.LoRA(names=("*.query", "*.down"), rank=2)},
        "head": {"freeze": True},
    }[how]
    start = start_from(str(folder), Reviews(max_tokens=8), **options)
    before = {key: tensor.clone() for key, tensor in start.model.state_dict().items()}
    assert start.data.train.batch([0]).ids.tolist() == [[2, 8, 5, 7, 3]]  # [CLS] a good film [SEP]
    assert any(key.startswith("head.") for key in start.new)
    done = learn(start, tmp_path / "run")
    changed = {key for key, tensor in done.model.state_dict().items() if not torch.equal(tensor, before[key])}
    assert "head.classifier.weight" in changed
    if how == "head":
        assert all(key.startswith("head.") for key in changed)
    if how == "lora":
        assert all(key.startswith("head.") or "lora_" in key for key in changed)
        assert "layers.1.attention.query.lora_b" in changed
    if how == "all":
        assert "embedding.table" in changed
    hw.save(done.model, tmp_path / "tuned", format="huggingface", like=folder, labels=start.data.task.labels)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned").eval()
    ids, visible, _ = start.data.test.batch(range(8))
    pad = theirs.config.pad_token_id or 0
    with torch.no_grad():
        logits = theirs(input_ids=ids.masked_fill(~visible, pad), attention_mask=visible.long()).logits
        torch.testing.assert_close(logits, done.model(ids, visible=visible), atol=1e-5, rtol=1e-4)
    assert theirs.config.id2label == {0: "negative", 1: "positive"}
    again = hw.load(tmp_path / "tuned")
    torch.testing.assert_close(again(ids, visible=visible), logits, atol=1e-5, rtol=1e-4)
    assert (tmp_path / "tuned" / "tokenizer.json").exists()


def test_a_head_that_fits_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    CHECKPOINTS["bert-classes"].make(vocab_size=words_of_bert(folder), num_labels=2).float().save_pretrained(folder)
    start = start_from(str(folder), Reviews(max_tokens=8))
    assert start.new == ()
    assert torch.equal(start.model.head.classifier.weight, hw.load(folder).head.classifier.weight)
    mean = start_from(str(folder), Reviews(max_tokens=8), pooling=hw.choices.MeanPooling())
    assert isinstance(mean.model.head.pooling, hw.layers.MeanPooling)
    three = hw.hub.with_classes(start.model, 3)
    assert torch.equal(three.head.dense.weight, start.model.head.dense.weight)
    assert three.head.classifier.out_features == 3


@pytest.mark.slow
def test_masked_tokens(bert: Path, text: Path, tmp_path: Path) -> None:
    data = MaskedText(text=TextFile(path=str(text), n_context=7))
    start = start_from(str(bert), data)
    batch = start.data.train.batch([0, 1])
    assert (batch[0] == 4).any()  # [MASK]
    done = learn(start, tmp_path / "run")
    hw.save(done.model, tmp_path / "tuned", format="huggingface", like=bert)
    theirs = transformers.BertForMaskedLM.from_pretrained(tmp_path / "tuned").eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(batch[0]).logits, done.model(batch[0]), atol=1e-5, rtol=1e-4)
    fresh = start_from(str(save_bert(tmp_path / "headless", "bert")), data)
    assert {name.split(".")[0] for name in fresh.new} == {"head"}


# --- a text, and images -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama", marks=pytest.mark.slow)])
def test_a_language_model_is_read_there_again(name: str, text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    n_tokens = letters(folder, text.read_text())
    CHECKPOINTS[name].make(vocab_size=n_tokens, bos_token_id=0, eos_token_id=0).float().save_pretrained(folder)
    start = start_from(str(folder), TextFile(path=str(text), n_context=11), adapt=hw.convert.LoRA(rank=2))
    assert start.new == ()
    done = learn(start, tmp_path / "run")
    assert done.test["loss"] > 0
    hw.save(done.model, tmp_path / "tuned", format="huggingface", like=folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "tuned").eval()
    ids = start.data.test.batch([0, 1])[0]
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, done.model(ids), atol=1e-5, rtol=1e-4)


def save_vit(folder: Path) -> Path:
    CHECKPOINTS["vit"].make(num_channels=3).float().save_pretrained(folder)
    settings = {"size": {"height": 12, "width": 12}, "image_mean": [0.2, 0.3, 0.4], "image_std": [0.5, 0.6, 0.7]}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ViTImageProcessor", **settings})
    )
    return folder


def test_a_model_of_images_is_read_there_again(tmp_path: Path) -> None:
    folder = save_vit(tmp_path / "theirs")
    start = start_from(str(folder), Digits(n_valid=10, n_test=10), freeze=True)
    assert start.new == ("classifier.weight", "classifier.bias")
    raw, label = Digits(n_valid=10, n_test=10).load().train.batch([3])
    image, same = start.data.train.batch([3])
    assert label == same
    picture = Image.fromarray((255 * raw[0, 0]).round().byte().numpy())
    assert torch.equal(image, hw.hub.ImagePreprocessing.load(folder)(picture))
    done = learn(start, tmp_path / "run")
    hw.save(done.model, tmp_path / "tuned", format="huggingface", like=folder, labels=start.data.task.labels)
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path / "tuned").eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(image).logits, done.model(image), atol=1e-5, rtol=1e-4)


def test_other_images_are_read_as_the_model_wants_them(tmp_path: Path) -> None:
    for number in range(12):
        name = ("cats", "dogs")[number % 2]
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 14), (20 * number, 7, 30)).save(tmp_path / "photos" / name / f"{number}.png")
    data = hw.data.ImageFolder(path=str(tmp_path / "photos"), size=(5, 5))
    start = start_from(str(save_vit(tmp_path / "theirs")), data, freeze=True)
    learn(start, tmp_path / "run")
    run = open_run(tmp_path / "run")
    other = hw.recipes.other_examples(run, [str(tmp_path / "photos")])
    files = [about["file"] for about in other.about]
    test = run.load_data().test
    for index, file in enumerate(test.examples.files):
        for one, same in zip(test.batch([index]), other.examples.batch([files.index(file)]), strict=True):
            assert torch.equal(one, same)


# --- a run ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lora", pytest.param("head", marks=pytest.mark.slow)])
def test_stopped_and_gone_on_bit_for_bit(how: str, bert: Path, tmp_path: Path) -> None:
    options = {"adapt": hw.convert.LoRA(rank=2)} if how == "lora" else {"freeze": True}
    training = TrainingConfig(steps=4, batch_size=4, evaluate_every=2)

    def begin(folder: Path) -> Any:
        start = start_from(str(bert), Reviews(max_tokens=8), **options)
        return new_run(RunConfig(name="r", data=start.config, model=start.model, training=training), folder)

    train_run(begin(tmp_path / "whole"))
    with pytest.raises(StoppedError):
        train_run(begin(tmp_path / "parts"), stop=StopAfter(3))
    again = open_run(tmp_path / "parts")  # as another process finds it
    assert not isinstance(again.config.model, nn.Module)
    assert again.frozen
    train_run(again)
    assert differences(tmp_path / "parts", tmp_path / "whole") == []
    loaded = hw.load(tmp_path / "parts")
    assert hw.convert.has_lora(loaded) == (how == "lora")


def test_a_run_is_not_resumed_with_other_weights_frozen(bert: Path, tmp_path: Path) -> None:
    start = start_from(str(bert), Reviews(max_tokens=8), freeze=True)
    training = TrainingConfig(steps=2, batch_size=4)
    hw.train(start.model, start.config, training, out=tmp_path / "run")
    other = start_from(str(bert), Reviews(max_tokens=8))
    with pytest.raises(ValueError, match="frozen of the model must be"):
        hw.train(other.model, other.config, training, out=tmp_path / "run", resume=True)


def test_a_run_whose_tokens_were_changed_is_refused(bert: Path, tmp_path: Path) -> None:
    start = start_from(str(bert), Reviews(max_tokens=8))
    learn(start, tmp_path / "run", steps=1)
    run = open_run(tmp_path / "run")
    assert isinstance(run.tokenizer, hw.hub.PretrainedTokenizer)
    assert run.tokenizer.encode("a good film") == [2, 8, 5, 7, 3]
    path = tmp_path / "run" / "tokenizer.json"
    path.write_text(path.read_text().replace("film", "fils"))
    with pytest.raises(DamagedError, match=r"tokenizer\.json is damaged"):
        open_run(tmp_path / "run")


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands(bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("headwork.data.reviews.Reviews.bag_of_words_accuracy", lambda self: 0.5)
    run, tuned = str(tmp_path / "run"), str(tmp_path / "tuned")
    begin = ["train", "reviews-encoder", "--from", str(bert), "--set", "data.max_tokens=8", "--steps", "2"]
    small = ["--batch-size", "4", "--out", run, "--lora", "*.query", "--lora", "*.value", "--lora-rank", "2"]
    assert main([*begin, *small]) == 0
    said = capsys.readouterr().err
    assert "parameters are trained; fresh: head.dense.weight" in said
    assert "learning rate 0.001, unless --lr says another" in said
    assert main(["convert", run, "--out", tuned, "--to", "huggingface"]) == 0
    assert f"with the tokenizer or preprocessing of {bert}" in capsys.readouterr().out
    (tmp_path / "text.txt").write_text("a very good film")
    answers = []
    for folder in (run, tuned):
        assert main(["predict", folder, str(tmp_path / "text.txt"), "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out)["labels"])
    for ours, theirs in zip(*answers, strict=True):
        assert ours["label"] == theirs["label"]
        assert ours["probability"] == pytest.approx(theirs["probability"], abs=1e-5)
    metrics = []
    for arguments in (["evaluate", run], ["evaluate", tuned, "--like", run]):
        assert main([*arguments, "--json"]) == 0
        metrics.append(json.loads(capsys.readouterr().out)["loss"])
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-5)
    assert main(["convert", tuned, "--out", str(tmp_path / "ours"), "--to", "headwork"]) == 0
    assert type(hw.load(tmp_path / "ours")).__name__ == "Encoder"


@pytest.mark.slow
def test_sst2_and_a_recipe_with_muon(bert: Path, text: Path, tmp_path: Path, capsys: Any) -> None:
    write_small_sets(tmp_path / "sets")
    small = ["--steps", "1", "--batch-size", "4"]
    begin = ["train", "sst2-encoder", "--from", str(bert), "--data-dir", str(tmp_path / "sets")]
    assert main([*begin, *small, "--set", "data.max_tokens=8", "--out", str(tmp_path / "sst2")]) == 0
    assert open_run(tmp_path / "sst2").config.training.optimiser == AdamW(lr=5e-5, weight_decay=0.1)
    theirs = tmp_path / "gpt2"
    theirs.mkdir()
    n_tokens = letters(theirs, text.read_text())
    CHECKPOINTS["gpt2"].make(vocab_size=n_tokens, bos_token_id=0, eos_token_id=0).float().save_pretrained(theirs)
    begin = ["train", "shakespeare-gpt", "--from", str(theirs), "--data", str(text), "--set", "data.n_context=11"]
    assert main([*begin, *small, "--out", str(tmp_path / "run")]) == 0
    said = "the recipe's AdamW for all weights, without its Muon; learning rate 5e-05"
    assert said in capsys.readouterr().err
    optimiser = open_run(tmp_path / "run").config.training.optimiser
    assert optimiser == replace(find_recipe("shakespeare-gpt").training.optimiser.adamw, lr=5e-5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--freeze"], "freeze is for a model to train on from"),
        (["--lora-rank", "3"], "lora-rank is for a model to train on from"),
        (["--from", "{bert}", "--freeze", "--lora", "*.query"], "give freeze or lora, not both"),
        (["--from", "{bert}", "--lora-alpha", "3"], "lora-alpha is for --lora"),
        (["--from", "{bert}", "--lora", "*.qery"], "names must match linear maps of the model"),
        (["--from", "{bert}", "--norm", "pre"], "model.norm_order is that of the model in --from"),
        (["--from", "nowhere/at/all"], "folder must be one that exists"),
    ],
)
def test_wrong_commands(arguments: list[str], said: str, bert: Path, capsys: Any, tmp_path: Path) -> None:
    filled = [argument.replace("{bert}", str(bert)) for argument in arguments]
    assert main(["train", "reviews-encoder", *filled, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (
            "gpt2",
            Reviews(max_tokens=8),
            "model must be an encoder of texts or of images to be given classes, got a Decoder",
        ),
        ("bert-lm", Digits(), "data must have a tokenizer to choose"),
        ("vit", BundledText(), "folder must hold a preprocessor_config.json"),
    ],
)
def test_data_of_another_kind(name: str, data: Any, said: str, tmp_path: Path) -> None:
    CHECKPOINTS[name].save(tmp_path / "theirs")
    if name == "gpt2":
        letters(tmp_path / "theirs", "abc" + " ".join(TEXTS))
    with pytest.raises(ValueError, match=said):
        start_from(str(tmp_path / "theirs"), data)


@pytest.mark.slow
def test_the_tokens_of_a_run_of_ours(text: Path, tmp_path: Path) -> None:
    data = TextFile(path=str(text), n_context=7)
    config = hw.models.DecoderConfig(
        vocab=1,
        d_model=8,
        n_layers=1,
        heads=hw.choices.Heads(n_heads=2),
        feed_forward=hw.choices.FeedForward(d_ff=12),
        position=hw.choices.LearnedPositions(max_tokens=7),
    )
    hw.train(config, data, TrainingConfig(**STEPS), out=tmp_path / "first")
    start = start_from(str(tmp_path / "first"), data)
    assert start.config == TextFile(path=str(text), n_context=7, tokenizer=Pretrained(folder=str(tmp_path / "first")))
    assert start.data.tokenizer.to_json() == open_run(tmp_path / "first").tokenizer.to_json()
    learn(start, tmp_path / "second")
