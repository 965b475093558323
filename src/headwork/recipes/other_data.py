"""Other examples for a run that is there: read as its own data are, with its labels and its tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import torch

from headwork.checks import nearest
from headwork.data import (
    AnyTokenizer,
    Examples,
    ImageFolder,
    MaskedText,
    PreprocessedImages,
    TextFile,
    TextPairs,
    TextTable,
    Tokenizer,
)
from headwork.data.bundled_text import digest_of_texts, fit_in_memory, tokens_of
from headwork.data.class_folders import find_classes
from headwork.data.found import say_lengths, say_skipped, say_unknown
from headwork.data.hub_data import find_data
from headwork.data.image_examples import ImageExamples
from headwork.data.image_folder import ImageFiles, say_sizes
from headwork.data.images import IMAGE_ENDINGS
from headwork.data.parquet_images import find_image_folder
from headwork.data.preprocessed import PreprocessedExamples
from headwork.data.reviews import encode_starts
from headwork.data.text_examples import MaskedExamples, PairExamples, Rows, TextExamples, WindowExamples
from headwork.data.text_table import NO_LIMIT
from headwork.data.unknown import why_unknown
from headwork.hub import ImagePreprocessing
from headwork.models import describe
from headwork.recipes.overrides import override
from headwork.recipes.own_data import own_data
from headwork.training.run import Run

N_COMPARED = 10_000
"""Tokens of a text that are looked at for unknown ones."""


class OtherData(NamedTuple):
    """Examples for a run, what was found where they come from, and for each its file or its text."""

    examples: Examples
    found: tuple[str, ...]
    about: Sequence[Mapping[str, str]]


def other_examples(run: Run, paths: Sequence[str], settings: Mapping[str, object] = MappingProxyType({})) -> OtherData:
    """All examples of a file or folder (two files, for a translation), to evaluate the model of a run on them.

    They are read as the run's own were, but for the settings, such as {"data.text": "review"}.
    """
    description = describe(run.config.model)
    if description is None or run.config.data is None:
        raise ValueError(f"run must be one of a recipe whose model says what it reads, got {run.folder}")
    before = run.config.data
    of_folder = before if isinstance(before, PreprocessedImages) else None
    config = replace(run.config, data=before if of_folder is None else of_folder.data)
    config = replace(config, data=own_data(config, description, paths))
    data = override(config, settings).data if settings else config.data
    if isinstance(data, ImageFolder):
        return _images(run, data, of_folder)
    if run.tokenizer is None:
        raise ValueError(f"run must have a tokenizer to read texts, got {run.folder}, which has none")
    if isinstance(data, TextTable):
        return _texts(run, data, run.tokenizer)
    if isinstance(data, TextPairs):
        if not isinstance(run.tokenizer, Tokenizer):
            raise ValueError(f"run must be one of a translator, got {run.folder}")
        return _pairs(data, run.tokenizer)
    text = data.text if isinstance(data, MaskedText) else data
    assert isinstance(text, TextFile)
    other = _windows(text, run.tokenizer)
    return _masked(other, data, run.tokenizer) if isinstance(data, MaskedText) else other


def _images(run: Run, data: ImageFolder, of_folder: PreprocessedImages | None) -> OtherData:
    """The images of the folders of the classes, through the preprocessing of the run's model if it has one."""
    root, notes = find_image_folder(data.path)
    by_class = find_classes(root, IMAGE_ENDINGS, "images")
    found = (f"{len(by_class.files):,} images in {data.path}, {say_sizes(by_class.files)}", *notes, *by_class.skipped())
    labels = torch.tensor(_numbered(by_class.names, _labels(run), data.path, run.config.data))
    about = [{"file": str(file)} for file in by_class.files]
    if of_folder is None:
        source = ImageFiles(tuple(by_class.files), data.size, data.n_channels)
        return OtherData(ImageExamples(source, labels), found, about)
    preprocessing = ImagePreprocessing.load(of_folder.folder)
    size: tuple[int, int] = preprocessing.size or data.size
    plain = ImageExamples(ImageFiles(tuple(by_class.files), size, 3), labels)
    return OtherData(PreprocessedExamples(plain, preprocessing), found, about)


def _texts(run: Run, data: TextTable, tokenizer: AnyTokenizer) -> OtherData:
    table = data.read()
    numbers = _numbered([table.names[label] for label in table.labels], _labels(run), data.path, run.config.data)
    ids = encode_starts(table.texts, tokenizer, data.max_tokens)
    lengths = [len(ids) for ids in encode_starts(table.texts, tokenizer, NO_LIMIT)]
    unknown = say_unknown((each[1:] for each in ids), tokenizer.unknown, "words")
    notes = [unknown + why_unknown(tokenizer)] if unknown else []
    found = (*table.notes, say_lengths("texts", lengths, data.max_tokens), *notes)
    about = [{"place": place, "text": text} for place, text in zip(table.places, table.texts, strict=True)]
    return OtherData(TextExamples(Rows.of(ids), torch.tensor(numbers)), found, about)


def _pairs(data: TextPairs, tokenizer: Tokenizer) -> OtherData:
    pairs, _, _, notes = data.read(find_data(data.path))
    about = [{"place": pair.place, "source": pair.source, "target": pair.target} for pair in pairs]
    examples = PairExamples.of([(pair.source, pair.target) for pair in pairs], tokenizer)
    return OtherData(examples, (f"{len(pairs):,} pairs in {data.path}", *notes), about)


def _windows(data: TextFile, tokenizer: AnyTokenizer) -> OtherData:
    about = None if fit_in_memory(data.files) else f"{digest_of_texts(data.files)} all"
    ids = tokens_of(data.pieces(), tokenizer, about)
    if len(ids) <= data.n_context:
        raise ValueError(f"{data.path} must have more than n_context={data.n_context} tokens, got {len(ids)}")
    others = data.left_out
    skipped = say_skipped(len(others), "files that are no texts", str(next(iter(others), "")))
    first = ids[:N_COMPARED].tolist()
    unknown = say_unknown([first], tokenizer.unknown, f"first {len(first):,} tokens")
    n_characters = sum(map(len, data.pieces()))
    found = (f"{n_characters:,} characters in {data.path}", *(note for note in (skipped, unknown) if note))
    return OtherData(WindowExamples(ids, data.n_context), found, ())


def _masked(other: OtherData, data: MaskedText, tokenizer: AnyTokenizer) -> OtherData:
    assert tokenizer.mask is not None
    n_tokens = tokenizer.mask if isinstance(tokenizer, Tokenizer) else len(tokenizer)
    masked = MaskedExamples(other.examples, tokenizer.mask, n_tokens, data.mask_probability)
    return other._replace(examples=masked)


def _labels(run: Run) -> tuple[str, ...]:
    return getattr(run.task, "labels", ())


def _numbered(names: Sequence[str], labels: Sequence[str], where: str, of_run: object) -> list[int]:
    """The index of each label; where the data of the run numbers its labels itself, a number is one too."""
    index = {label: number for number, label in enumerate(labels)}
    if not isinstance(of_run, TextTable | ImageFolder | PreprocessedImages):  # those are in alphabetical order
        index = {str(number): number for number in range(len(labels))} | index
    for name in names:
        if name not in index:
            raise ValueError(f"labels of {where} must be those of the run, got {name!r}{nearest(name, labels)}")
    return [index[name] for name in names]
