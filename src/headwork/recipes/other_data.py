"""Other examples for a run that is there: read as its own data are, with its labels and its tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import torch

from headwork.checks import nearest
from headwork.data import Examples, ImageFolder, PreprocessedImages, TextFile, TextPairs, TextTable, Tokenizer
from headwork.data.hub_data import find_data
from headwork.data.image_examples import ImageExamples
from headwork.data.image_folder import ImageFiles, find_classes
from headwork.data.parquet_images import find_image_folder
from headwork.data.reviews import encode_starts
from headwork.data.text_examples import PairExamples, Rows, TextExamples, WindowExamples
from headwork.models import describe
from headwork.recipes.overrides import override
from headwork.recipes.own_data import own_data
from headwork.training.run import Run


def other_examples(run: Run, paths: Sequence[str], settings: Mapping[str, object] = MappingProxyType({})) -> Examples:
    """All examples of a file or folder (two files, for a translation), to evaluate the model of a run on them.

    They are read as the run's own were, but for the settings, such as {"data.text": "review"}.
    """
    description = describe(run.config.model)
    if description is None or run.config.data is None:
        raise ValueError(f"run must be one of a recipe whose model says what it reads, got {run.folder}")
    config = replace(run.config, data=own_data(run.config, description, paths))
    data = override(config, settings).data if settings else config.data
    labels = getattr(run.task, "labels", ())
    if isinstance(data, ImageFolder):
        files, names, _, _ = find_classes(find_image_folder(data.path)[0])
        images = ImageFiles(tuple(files), data.size, data.n_channels)
        return ImageExamples(images, torch.tensor(_numbered(names, labels, data.path, run.config.data)))
    if run.tokenizer is None:
        raise ValueError(f"run must have a tokenizer to read texts, got {run.folder}, which has none")
    if isinstance(data, TextTable):
        table = data.read()
        numbers = _numbered([table.names[label] for label in table.labels], labels, data.path, run.config.data)
        rows = Rows.of(encode_starts(table.texts, run.tokenizer, data.max_tokens))
        return TextExamples(rows, torch.tensor(numbers))
    if isinstance(data, TextPairs):
        if not isinstance(run.tokenizer, Tokenizer):
            raise ValueError(f"run must be one of a translator, got {run.folder}")
        pairs, *_ = data.read(find_data(data.path))
        return PairExamples.of([(pair.source, pair.target) for pair in pairs], run.tokenizer)
    assert isinstance(data, TextFile)
    ids = torch.tensor([i for piece in data.pieces() for i in run.tokenizer.encode(piece)])
    if len(ids) <= data.n_context:
        raise ValueError(f"{data.path} must have more than n_context={data.n_context} tokens, got {len(ids)}")
    return WindowExamples(ids, data.n_context)


def _numbered(names: Sequence[str], labels: Sequence[str], where: str, of_run: object) -> list[int]:
    """The index of each label; where the data of the run numbers its labels itself, a number is one too."""
    index = {label: number for number, label in enumerate(labels)}
    if not isinstance(of_run, TextTable | ImageFolder | PreprocessedImages):  # those are in alphabetical order
        index = {str(number): number for number in range(len(labels))} | index
    for name in names:
        if name not in index:
            raise ValueError(f"labels of {where} must be those of the run, got {name!r}{nearest(name, labels)}")
    return [index[name] for name in names]
