"""What does not fit is said in a sentence, before anything is written."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType

import pytest
import torch
from tests.training.small_runs import TEXT
from torch import nn
from torch.utils.data import TensorDataset

import headwork as hw
from headwork import choices
from headwork.batches import Batch, call_model
from headwork.data import BundledText, Dataset, Dates, Digits, MaskedText, TextFile, TorchExamples
from headwork.metric import Metric, MetricSum
from headwork.models import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ResNetConfig,
    VisionTransformerConfig,
)
from headwork.tasks import Classification, Evaluation, MultiLabel, Regression
from headwork.training import VOCAB_OF_DATA, AdamW, TrainingConfig, check_fit
from headwork.training.fit import task_for

SMALL = {"d_model": 8, "heads": choices.Heads(n_heads=2), "feed_forward": choices.FeedForward(d_ff=12)}
DIGITS = Digits(augment=False, n_valid=10, n_test=10)
PLAIN = TextFile(path=str(TEXT), n_context=61)
MASKED = MaskedText(text=PLAIN)
DATES = Dates(n_train=50, n_valid=10, n_test=10)


def vit(**changes: object) -> VisionTransformerConfig:
    settings = {"n_classes": 10, "image": (8, 8), "n_channels": 1, "patch": (4, 4), "n_layers": 1, **SMALL}
    return VisionTransformerConfig(**settings | changes)


def gpt(vocab: int = 200, longest: int = 61) -> DecoderConfig:
    return DecoderConfig(vocab=vocab, n_layers=1, position=choices.LearnedPositions(max_tokens=longest), **SMALL)


def bert(head: choices.EncoderHead = choices.MaskedLMHead(), vocab: int = 200) -> EncoderConfig:
    return EncoderConfig(vocab=vocab, head=head, n_layers=1, n_segments=0, **SMALL)


CLASSES = choices.ClassificationHead(n_classes=2, pooling=choices.MeanPooling())


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (vit(n_classes=3), DIGITS, r"must have 10 classes, as many as the data has labels \(0, 1, 2, \.\.\.\), got 3"),
        (ResNetConfig(n_classes=12, n_channels=1), DIGITS, "must have 10 classes, .* got 12"),
        (gpt(), DIGITS, "model must read images, as the data has, got a Decoder, which reads texts"),
        (vit(), PLAIN, "model must read texts, as the data has, got a VisionTransformer, which reads images"),
        (gpt(), DATES, "model must read text pairs, as the data has, got a Decoder, which reads texts"),
        (vit(n_channels=3), DIGITS, "model must have 1 channels, as the images have, got 3"),
        (vit(image=(16, 16)), DIGITS, "made for images of 8 x 8 pixels, as the data has, got 16 x 16"),
        (gpt(vocab=9), PLAIN, r"must have a vocab of \d+ or more, the tokens of the data, got 9"),
        (gpt(longest=60), PLAIN, "must read sequences of 61 tokens, as the data has, got max_tokens=60"),
        (bert(), PLAIN, "must give a next token, for the task NextToken, got an Encoder, which gives a masked token"),
        (gpt(), MASKED, "must give a masked token, for the task MaskedTokens, got a Decoder, which gives a next token"),
        (bert(CLASSES), MASKED, "must give a masked token, .* got an Encoder, which gives a class"),
    ],
)
def test_a_misfit_is_a_sentence_and_nothing_is_written(
    tmp_path: Path, model: object, data: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        hw.train(model, data, TrainingConfig(batch_size=4, steps=1), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (vit(), DIGITS),
        (ResNetConfig(n_classes=10, n_channels=1), DIGITS),
        (gpt(), PLAIN),
        (bert(), MASKED),
        (EncoderDecoderConfig(vocab=99, n_encoder_layers=1, n_decoder_layers=1, **SMALL), DATES),
    ],
)
def test_what_fits(model: object, data: object) -> None:
    check_fit(model, data.load())
    torch.manual_seed(1)
    built = model.build()
    state, weights = torch.get_rng_state(), {name: tensor.clone() for name, tensor in built.state_dict().items()}
    check_fit(built, data.load())
    assert torch.equal(torch.get_rng_state(), state)
    assert built.training
    assert all(torch.equal(tensor, built.state_dict()[name]) for name, tensor in weights.items())


def learns(**settings: object) -> TrainingConfig:
    return TrainingConfig(**{"batch_size": 32, "epochs": 12, "optimiser": AdamW(lr=0.02)} | settings)


def test_regression_is_learned(tmp_path: Path) -> None:
    x = torch.randn(96, 5)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0]) + 1
    examples = TorchExamples(list(zip(x, y, strict=True)))
    data = Dataset(examples, examples, examples, Regression())
    done = hw.train(Line(5), data, learns(epochs=20, evaluate_every=30, optimiser=AdamW(lr=0.3)), out=tmp_path / "run")
    assert done.test["loss"] < 0.05 * y.var().item()
    assert done.evaluation.predictions is not None
    assert done.evaluation.predictions.shape == (96,)


class Line(nn.Module):
    """Its arguments are attributes."""

    def __init__(self, width: int, n_outputs: int = 1) -> None:
        super().__init__()
        self.width, self.n_outputs = width, n_outputs
        self.linear = nn.Linear(width, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


@pytest.mark.slow
def test_several_labels_are_learned(tmp_path: Path) -> None:
    x = torch.randn(96, 5)
    y = (x[:, :3] > 0).long()
    examples = TorchExamples(list(zip(x, y, strict=True)))
    data = Dataset(examples, examples, examples, MultiLabel(("a", "b", "c")))
    done = hw.train(Line(5, 3), data, learns(optimiser=AdamW(lr=0.3)), out=tmp_path / "run")
    assert done.test["macro_f1"] > 0.9
    assert done.test["label_accuracy"] > 0.9


@pytest.mark.slow
def test_a_masked_language_model_is_trained_as_one(tmp_path: Path) -> None:
    """Its loss falls below that of guessing by how often each token occurs."""
    data = MASKED.load()
    model = EncoderConfig(
        vocab=VOCAB_OF_DATA,
        head=choices.MaskedLMHead(),
        n_layers=1,
        n_segments=0,
        d_model=32,
        heads=choices.Heads(n_heads=2),
        feed_forward=choices.FeedForward(d_ff=64),
        norm_order="pre",
        position=choices.LearnedPositions(max_tokens=61),
        dropout=0.0,
        attention_dropout=0.0,
    )
    training = learns(batch_size=30, epochs=None, steps=150, evaluate_every=50, optimiser=AdamW(lr=0.01))
    done = hw.train(model, MASKED, training, out=tmp_path / "run")
    ids = data.train.windows.ids
    shares = torch.bincount(ids, minlength=len(data.tokenizer)) / len(ids)
    test = data.test.batch(range(len(data.test))).original
    guessing = -(shares[test[test >= 0]] + 1e-4).log().mean().item()
    assert done.test["loss"] < guessing - 0.1
    assert done.model.config.vocab == len(data.tokenizer)


def test_balanced_classes(tmp_path: Path) -> None:
    done = hw.train(
        replace(vit(), n_layers=1),
        DIGITS,
        TrainingConfig(batch_size=32, steps=2, class_weights="balanced"),
        out=tmp_path / "run",
    )
    weights = hw.training.open_run(tmp_path / "run").task.class_weights
    assert len(weights) == 10
    assert sum(weights) / 10 == pytest.approx(1, abs=0.01)
    assert done.test.keys() == {"loss", "accuracy", "macro_f1"}


def test_the_bundled_text_has_one_token_more_when_masked() -> None:
    text = BundledText(n_context=64)
    assert len(MaskedText(text=text).load().tokenizer) == len(text.load().tokenizer) + 1


@pytest.mark.usefixtures("as_users_run_it")
def test_more_scores_than_labels_are_noticed_before_the_first_step(tmp_path: Path) -> None:
    examples = TorchExamples([(torch.randn(5), i % 3) for i in range(12)])
    data = Dataset(examples, examples, examples, Classification(("a", "b", "c")))
    with pytest.raises(ValueError, match=r"one score for each of the 3 labels, shape \(2, 3\), got \(2, 4\)"):
        hw.train(Line(5, n_outputs=4), data, learns(batch_size=4), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_boolean_tensor_of_a_plain_tuple_is_a_mask() -> None:
    def model(ids: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        return ids.masked_fill(~visible, 0)

    batch = torch.tensor([[3, 4]]), torch.tensor([[True, False]]), torch.tensor([1])
    assert call_model(model, batch).tolist() == [[3, 0]]


class Doubled(nn.Module):
    """Does not keep its argument as it was given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = 2 * width
        self.linear = nn.Linear(5, self.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).mean(-1)


def test_a_model_that_could_not_be_loaded_is_not_trained(tmp_path: Path) -> None:
    examples = TorchExamples([(torch.randn(5), torch.tensor(0.5)) for _ in range(12)])
    data = Dataset(examples, examples, examples, Regression())
    with pytest.raises(ValueError, match="model must be what its config describes"):
        hw.train(Doubled(3), data, learns(batch_size=4), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_part_without_examples_is_named(part: str) -> None:
    examples = TorchExamples([(torch.randn(5), 1)])
    data = replace(Dataset(examples, examples, examples, Classification(("a", "b"))), **{part: TorchExamples([])})
    with pytest.raises(ValueError, match=f"at least one example in each part, got none in {part}"):
        check_fit(Line(5, n_outputs=2), data)


@pytest.mark.parametrize("label", [-1, -100, 3])
def test_a_label_out_of_range_is_a_sentence(label: int) -> None:
    with pytest.raises(ValueError, match=rf"labels must lie in 0 \.\. 2, got {label}"):
        Classification(("a", "b", "c")).score_logits(torch.randn(2, 3), torch.tensor([0, label]))


@pytest.mark.usefixtures("as_users_run_it")
def test_a_list_is_the_tuple_that_a_file_gives_back() -> None:
    assert TrainingConfig(batch_size=4, epochs=1, class_weights=[1.0, 2.0]).class_weights == (1.0, 2.0)


@dataclass(frozen=True)
class Own(Regression):
    """A task of one's own that may lack something."""

    lacks: str = ""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return () if self.lacks == "metrics" else super().metrics[1:]

    def n_targets(self, batch: Batch) -> int:
        return 0 if self.lacks == "n_targets" else super().n_targets(batch)

    def score(self, model: nn.Module, batch: Batch) -> dict[str, MetricSum]:
        scores = super().score(model, batch)
        return {name: value for name, value in scores.items() if not (name == "loss" and self.lacks == "score")}

    def evaluate(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        metrics = super().evaluate(model, batches).metrics
        return Evaluation({name: value for name, value in metrics.items() if name != self.lacks})


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ("metrics", r"metrics must name the one that chooses the best checkpoint, got \(\)"),
        ("n_targets", "n_targets must be 1 or more, got 0"),
        ("score", "score must give 'loss', got 'mean_absolute_error'"),
        ("loss", "evaluate must give 'loss', got 'mean_absolute_error'"),
        ("mean_absolute_error", "evaluate must give 'mean_absolute_error', got 'loss'"),
    ],
)
def test_a_task_that_lacks_something_is_noticed_before_the_first_step(tmp_path: Path, lacks: str, message: str) -> None:
    examples = TorchExamples([(torch.randn(5), torch.tensor(0.5)) for _ in range(12)])
    data = Dataset(examples, examples, examples, Own(lacks=lacks))
    with pytest.raises(ValueError, match=f"Own scored a Line .*: {message}"):
        hw.train(Line(5), data, learns(batch_size=4), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    check_fit(Line(5), replace(data, task=Own()))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([[0, 2], [1, 0]], "targets must be 0 or 1 for each label, got 2"),
        ([[0.0, 0.5], [1.0, 0.0]], "targets must be 0 or 1 for each label, got 0.5"),
        ([0, 1], r"scores of shape \(2, 2\) and targets of shape \(2,\)"),
    ],
)
def test_targets_of_several_labels_that_are_none(targets: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiLabel(("a", "b")).score_logits(torch.randn(2, 2), torch.tensor(targets))


@pytest.mark.parametrize("label", [-1, 3])
def test_balanced_weights_of_labels_out_of_range(label: int) -> None:
    examples = TorchExamples([(torch.randn(5), i) for i in (0, 1, 2, label)])
    data = Dataset(examples, examples, examples, Classification(("a", "b", "c")))
    with pytest.raises(ValueError, match=rf"labels must lie in 0 \.\. 2, got {label}"):
        task_for(learns(class_weights="balanced"), data)


RAW = TensorDataset(torch.randn(12, 5), torch.zeros(12))
PIXELS = TorchExamples([(torch.zeros(1, 8, 8, dtype=torch.uint8), 0)] * 12)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (Line(5), RAW, r"data must be a headwork\.data\.Dataset \(train, valid, test .* got TensorDataset"),
        (Line(5), (RAW, RAW, RAW), r"data must be a headwork\.data\.Dataset .* got tuple"),
        (Line(5), Dataset, r"data must be a headwork\.data\.Dataset .* got <class"),
        (
            Line(5),
            lambda: Dataset(RAW, RAW, RAW, Regression()),
            r"data\.train must have len\(\) and batch.* got TensorDataset",
        ),
        (nn.Linear(5, 1), None, "model must be of a class that keeps the arguments .* got PyTorch's own Linear"),
        (nn.Sequential(nn.Linear(5, 1)), None, "model must be of a class that keeps .* PyTorch's own Sequential"),
        (
            ResNetConfig(n_classes=2, n_channels=1),
            lambda: Dataset(PIXELS, PIXELS, PIXELS, Classification(("a", "b"))),
            r"images must be floating-point numbers from 0 to 1, got torch\.uint8 in train",
        ),
    ],
)
def test_what_is_no_data_or_no_model(tmp_path: Path, model: object, data: object, message: str) -> None:
    examples = TorchExamples(RAW)
    data = Dataset(examples, examples, examples, Regression()) if data is None else data
    data = data() if isinstance(data, FunctionType) else data  # made here, where nobody checks its types
    with pytest.raises(ValueError, match=message):
        hw.train(model, data, learns(batch_size=4), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Answers(nn.Module):
    """Gives what it is told to."""

    def __init__(self, give: str) -> None:
        super().__init__()
        self.give, self.linear = give, nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> object:
        logits = self.linear(x)
        return {"tensor": logits, "tuple": (logits, None)}[self.give]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("x", "y", "give", "message"),
    [
        (torch.randn(5).double(), 1, "tensor", r"the data are torch.float64, the model is torch.float32: write .to\("),
        (torch.randn(5), 1.0, "tensor", r"labels must be whole numbers, got torch.float\d+: write labels.long\(\)"),
        (torch.randn(5), torch.tensor([1]), "tensor", r"shape \(batch,\), got \(2, 1\): write labels.squeeze\(1\)"),
        (torch.randn(5), 1, "tuple", "must return one tensor, got tuple: return the logits alone"),
    ],
)
def test_what_to_write_instead(x: torch.Tensor, y: object, give: str, message: str) -> None:
    examples = TorchExamples([(x, y)] * 4)
    with pytest.raises(ValueError, match=message):
        check_fit(Answers(give), Dataset(examples, examples, examples, Classification(("a", "b"))))


def test_a_model_without_anything_to_learn() -> None:
    examples = TorchExamples([(torch.randn(5), 1)] * 4)
    data = Dataset(examples, examples, examples, Classification(("a", "b")))
    with pytest.raises(ValueError, match="a parameter that requires a gradient, got none"):
        check_fit(Answers("tensor").requires_grad_(False), data)


def test_labels_are_different_from_each_other() -> None:
    with pytest.raises(ValueError, match=r"labels must be different from each other, got \('a', 'a'\)"):
        Classification(("a", "a"))
