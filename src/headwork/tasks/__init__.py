"""What a model is trained for: its loss, its figures, its answers."""

from typing import Any

from headwork.data import Tokenizer
from headwork.models.decoder import DecoderConfig
from headwork.models.encoder import EncoderConfig
from headwork.models.encoder_decoder import EncoderDecoderConfig
from headwork.models.published import AnyConfig as ModelConfig
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


def make_task(model: ModelConfig, labels: tuple[str, ...] | None, tokenizer: Tokenizer | None) -> AnyTask:
    """What a model of this kind is trained for."""
    match model:
        case DecoderConfig():
            assert tokenizer is not None
            return LanguageModelling(tokenizer)
        case EncoderDecoderConfig():
            assert tokenizer is not None
            return Translation(tokenizer)
        case EncoderConfig():
            assert labels is not None
            return TextClassification(labels)
        case _:
            assert labels is not None
            return ImageClassification(labels)
