"""What a model is trained for: its loss, its figures, its answers."""

from typing import Any

from headwork.data import Tokens
from headwork.models.decoder import DecoderConfig
from headwork.models.encoder import EncoderConfig
from headwork.models.encoder_decoder import EncoderDecoderConfig
from headwork.models.sizes import ModelConfig
from headwork.tasks.classification import ImageClassification as ImageClassification
from headwork.tasks.classification import TextClassification as TextClassification
from headwork.tasks.classification import probabilities as probabilities
from headwork.tasks.language import LanguageModelling as LanguageModelling
from headwork.tasks.language import Translation as Translation
from headwork.tasks.task import Share as Share
from headwork.tasks.task import Shares as Shares
from headwork.tasks.task import Sums as Sums
from headwork.tasks.task import Task as Task
from headwork.tasks.task import add_to as add_to
from headwork.tasks.task import means as means

AnyTask = Task[Any]


def make_task(model: ModelConfig, labels: tuple[str, ...] | None, tokens: Tokens | None) -> AnyTask:
    """What a model of this kind is trained for."""
    match model:
        case DecoderConfig():
            assert tokens is not None
            return LanguageModelling(tokens)
        case EncoderDecoderConfig():
            assert tokens is not None
            return Translation(tokens)
        case EncoderConfig():
            assert labels is not None
            return TextClassification(labels)
        case _:
            assert labels is not None
            return ImageClassification(labels)
