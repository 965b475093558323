"""A recipe with data of the user's own: the same model and training, for other files of the same kind."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwork.data import (
    Augmentation,
    BytePairs,
    DataConfig,
    ImageFolder,
    MaskedText,
    TextFile,
    TextPairs,
    TextTable,
)
from headwork.models import Description, describe
from headwork.training.config import RunConfig
from headwork.training.fit import CLASSES_OF_DATA, VOCAB_OF_DATA


def with_data(config: RunConfig, paths: Sequence[str]) -> RunConfig:
    """The recipe with the data in a file or folder (two files, for a translation), for the kind of model that it has.

    Tokenizer and lengths are the recipe's; classes, vocabulary and the batches by length follow from the data.

    >>> config = with_data(hw.recipes.find_recipe("digits-vit"), ["photos"])
    >>> config.data.path, config.data.size, config.model.n_classes == CLASSES_OF_DATA
    ('photos', (8, 8), True)
    """
    description = describe(config.model)
    if description is None:
        raise ValueError("data can be given for a recipe whose model says what it reads, got one without a description")
    here = [str(Path(path).resolve()) if path.strip() and Path(path).exists() else path for path in paths]
    data = own_data(config, description, here)
    training = config.training
    if isinstance(data, TextTable | TextPairs):
        training = replace(training, batch_by_length=True)
    return replace(config, data=data, model=for_other_data(config.model), training=training)


def own_data(config: RunConfig, description: Description, paths: Sequence[str]) -> DataConfig:
    """The data of the config, from elsewhere: columns that it names are those of the other table too."""
    before: Any = config.data
    if len(paths) > (2 if description.input == "text pair" else 1):
        raise ValueError(f"data must be one file or folder (two files, for a translation), got {', '.join(paths)}")
    path = paths[0]
    match description.input, description.output:
        case "image", "class":
            varied = getattr(before, "augment", None)
            size: tuple[int, int] = description.image or getattr(before, "size", None) or (32, 32)
            return ImageFolder(
                path=path,
                size=size,
                n_channels=description.n_channels or 3,
                augment=varied if isinstance(varied, Augmentation) else Augmentation(),
            )
        case "text", "class" if isinstance(before, TextTable):
            return replace(before, path=path)
        case "text", "class":
            return TextTable(path=path, tokenizer=before.tokenizer, max_tokens=before.max_tokens)
        case "text pair", _:
            tokenizer = getattr(before, "tokenizer", BytePairs(n_tokens=8000))
            limit: int = description.max_tokens or getattr(before, "max_tokens", None) or 128
            target = paths[1] if len(paths) == 2 else None
            if isinstance(before, TextPairs):
                return replace(before, path=path, target_path=target)
            return TextPairs(path=path, target_path=target, tokenizer=tokenizer, max_tokens=limit)
        case "text", _:
            text = before.text if isinstance(before, MaskedText) else before
            file = TextFile(path=path, tokenizer=text.tokenizer, n_context=text.n_context)
            return replace(before, text=file) if isinstance(before, MaskedText) else file
        case kind:
            raise ValueError(f"data can be given for classifiers, translators and language models, got {kind}")


def for_other_data(model: Any) -> Any:
    """The config with the classes and the vocabulary of whatever the data will be."""
    changes: dict[str, Any] = {}
    if hasattr(model, "n_classes"):
        changes["n_classes"] = CLASSES_OF_DATA
    if hasattr(getattr(model, "head", None), "n_classes"):
        changes["head"] = replace(model.head, n_classes=CLASSES_OF_DATA)
    if hasattr(model, "vocab"):
        changes["vocab"] = VOCAB_OF_DATA
    return replace(model, **changes)
