"""What `headwork predict` does with a folder of Hugging Face's: by its head, and by its own way to read a file."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwork.cli.arguments import complain, warnings_in_lines

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwork.hub import PretrainedTokenizer
    from headwork.models import Description
    from headwork.tasks import LabelTask

Read = Callable[[Any], Any]
ANSWERS = ("class", "masked token")


@dataclass(frozen=True)
class Opened:
    """A model out of a folder, and what it answers."""

    folder: Path
    model: "nn.Module"
    description: "Description"

    @property
    def input(self) -> str:
        return self.description.input

    @property
    def output(self) -> str:
        return self.description.output

    def task(self) -> "LabelTask":
        from headwork.hub import labels_of
        from headwork.tasks import Classification

        return Classification(labels_of(self.folder, self.description.n_outputs))

    def reader(self) -> Read:
        if self.input == "image":
            return image_reader(self.folder)
        import torch

        from headwork.data import TextBatch

        tokenizer = self.tokenizer()

        def read(path: Path | str) -> TextBatch:
            ids = torch.tensor([self.ids(tokenizer, path)])
            return TextBatch(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([0]))

        return read

    def tokenizer(self) -> "PretrainedTokenizer":
        from headwork.hub import PretrainedTokenizer

        found = PretrainedTokenizer.load(self.folder)
        if self.description.vocab is not None and len(found) > self.description.vocab:
            rule = f"no more tokens than the model, {self.description.vocab}"
            raise ValueError(f"the tokenizer must have {rule}, got {len(found)}")
        return found

    def ids(self, tokenizer: "PretrainedTokenizer", path: Path | str) -> list[int]:
        """The tokens of a file, or of a text itself, that fit."""
        from headwork.cli.predict import text_of_stdin
        from headwork.data import read_text
        from headwork.data.unknown import say_mostly_unknown

        text = path if isinstance(path, str) else text_of_stdin() if str(path) == "-" else read_text(path)
        if not text.strip():
            raise ValueError(f"text must not be empty, got {path}")
        whole, limit = tokenizer.encode(text), self.description.max_tokens
        if note := say_mostly_unknown(whole, tokenizer, str(path)):
            complain(note)
        if limit is None or len(whole) <= limit:
            return whole
        complain(f"of {path} {limit} of {len(whole)} tokens are read")
        return tokenizer.encode_starts([text], limit)[0]

    def fill(self, path: Path | str, top: int, *, as_json: bool) -> Iterator[str]:
        """The likeliest tokens for each mask in a text."""
        import torch

        tokenizer = self.tokenizer()
        mask, ids = tokenizer.mask, self.ids(tokenizer, path)
        places = [place for place, token in enumerate(ids) if token == mask]
        if mask is None or not places:
            word = "[MASK]" if mask is None else tokenizer.strings([mask])[0]
            raise ValueError(f"text must have a {word} where the model is to say a token, got none in {path}")
        with torch.no_grad():
            chances = self.model(torch.tensor([ids]))[0].float().softmax(-1)
        for number, place in enumerate(places, 1):
            best = chances[place].topk(min(top, chances.shape[-1]))
            words = [tokenizer.decode([i]).strip() for i in best.indices.tolist()]
            found = list(zip(words, best.values.tolist(), strict=True))
            if as_json:
                tokens = [{"token": word, "probability": chance} for word, chance in found]
                yield json.dumps({"file": str(path), "mask": number, "tokens": tokens})
            else:
                said = ", ".join(f"{word} {100 * chance:.1f} %" for word, chance in found)
                yield f"{path}, mask {number}: {said}" if len(places) > 1 else f"{path}: {said}"

    def similarities(self, paths: Sequence[Path | str], *, as_json: bool) -> Iterator[str]:
        """The cosine of the angle between the vectors of each two texts."""
        import torch
        from torch.nn import functional as F

        if len(paths) < 2:
            raise ValueError(f"files must be two texts or more to compare their vectors, got {len(paths)}")
        tokenizer = self.tokenizer()
        vectors: list[Tensor] = []
        for path in paths:
            with torch.no_grad():
                vectors.append(self.model(torch.tensor([self.ids(tokenizer, path)]))[0].float())
        for (one, first), (other, second) in combinations(zip(paths, vectors, strict=True), 2):
            cosine = float(F.cosine_similarity(first, second, dim=0))
            if as_json:
                yield json.dumps({"files": [str(one), str(other)], "similarity": cosine})
            else:
                yield f"{one}, {other}: {cosine:.3f}"


def open_model(folder: Path) -> Opened:
    """The model in a folder, if it has an answer to predict: classes, masked tokens, or a vector for a text."""
    import torch

    from headwork import choices
    from headwork.hub import load_pretrained, note_of_unverified
    from headwork.models import describe

    with warnings_in_lines():
        model = load_pretrained(folder, dtype=torch.float32)
    description = describe(model)
    embeds = isinstance(getattr(getattr(model, "config", None), "head", None), choices.EmbeddingHead)
    if description is None or (description.output not in ANSWERS and not embeds):
        remedy = {"next token": ": `headwork generate` continues a text with it"}
        what = "nothing" if description is None else f"a {description.output}"
        raise ValueError(
            "run must be a classifier, a masked language model or an encoder of sentences, "
            f"got {folder}, which gives {what}{remedy.get(what.removeprefix('a '), '')}"
        )
    if note := note_of_unverified(folder):
        complain(note)
    return Opened(folder, model, description)


def image_reader(folder: Path) -> Read:
    """Images as the folder says."""
    import torch

    from headwork.data import ImageBatch
    from headwork.data.images import open_image
    from headwork.hub import ImagePreprocessing

    preprocessing = ImagePreprocessing.load(folder)

    def read(path: Path) -> ImageBatch:
        with open_image(path) as image:
            return ImageBatch(preprocessing(image), torch.tensor([0]))

    return read
