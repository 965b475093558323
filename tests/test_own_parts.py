"""A user's own position code and pooling, in our models: trained, resumed bitwise, saved, loaded, recorded."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import headwork as hw
from headwork import choices
from headwork.data import Dataset, TextFile
from headwork.data.text_examples import Rows, TextExamples
from headwork.tasks import Classification
from headwork.training import StoppedError, TrainingConfig
from tests.training.small_runs import TEXT, StopAfter, differences

pytestmark = pytest.mark.skipif(not hasattr(hw.layers, "Stack"), reason="models take no parts yet")
SMALL = {"d_model": 8, "heads": choices.Heads(n_heads=2), "feed_forward": choices.FeedForward(d_ff=12), "n_layers": 1}
DATA = TextFile(path=str(TEXT), n_context=31)


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "own_package"))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "pendulum"]:
        del sys.modules[name]


def test_a_position_code_in_a_decoder(tmp_path: Path) -> None:
    from pendulum.parts import HalfLife

    config = hw.models.DecoderConfig(vocab=len(DATA.load().tokenizer), position=choices.NoPositions(), **SMALL)

    def train(name: str, stop: StopAfter | None = None, *, resume: bool = False) -> "hw.training.TrainingResult":
        torch.manual_seed(3)
        model = hw.models.Decoder(config, positions=HalfLife(n_heads=2))
        training = TrainingConfig(batch_size=20, steps=8, evaluate_every=4)
        return hw.train(model, DATA, training, out=tmp_path / name, stop=stop, resume=resume)

    alone = train("alone")
    with pytest.raises(StoppedError):
        train("stopped", StopAfter(3))
    train("stopped", resume=True)
    assert differences(tmp_path / "stopped", tmp_path / "alone") == []
    with pytest.raises(ValueError, match="HalfLife"):
        hw.load(tmp_path / "alone")
    loaded = hw.load(tmp_path / "alone", classes=[HalfLife])
    ids = torch.randint(4, 30, (2, 17))
    assert torch.equal(loaded(ids), alone.model(ids))
    hw.save(loaded, tmp_path / "model")
    assert torch.equal(hw.load(tmp_path / "model", classes=[HalfLife])(ids), alone.model(ids))
    with hw.record(loaded) as seen:
        loaded(ids)
    assert seen["layers.0.attention.weights"].shape == (2, 2, 17, 17)


@dataclass(frozen=True)
class Parity:
    """Whether a text has the token 9."""

    def load(self, seed: int = 0) -> Dataset:
        rows = [torch.randint(4, 12, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in range(3, 40)]
        examples = TextExamples(Rows.of(rows), torch.tensor([int(9 in row) for row in rows]))
        return Dataset(examples, examples, examples, Classification(("no", "yes")))


def test_a_pooling_in_an_encoder(tmp_path: Path) -> None:
    from pendulum.parts import LargestToken

    head = choices.ClassificationHead(n_classes=2, pooling=choices.MeanPooling())
    config = hw.models.EncoderConfig(vocab=12, head=head, n_segments=0, **SMALL)
    model = hw.models.Encoder(config, pooling=LargestToken())
    done = hw.train(model, Parity(), TrainingConfig(batch_size=12, epochs=2), out=tmp_path / "run")
    loaded = hw.load(tmp_path / "run", classes=[LargestToken])
    ids = torch.randint(4, 12, (2, 5))
    assert torch.equal(loaded(ids), done.model(ids))


def test_a_position_code_that_answers_nothing() -> None:
    class Misspelt(hw.layers.Positions):
        def vector(self, positions: torch.Tensor, n_total: int) -> torch.Tensor:
            return torch.ones(1, n_total, 8)

    config = hw.models.DecoderConfig(vocab=20, position=choices.NoPositions(), **SMALL)
    with pytest.raises(ValueError, match=r"positions must answer vectors\(.* got Misspelt, which defines none of them"):
        hw.models.Decoder(config, positions=Misspelt())
