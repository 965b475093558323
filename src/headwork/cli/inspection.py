"""`headwork trace`, `headwork cost` and `headwork models`: what is inside a model, without training it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from tyro.conf import arg

from headwork.cli.arguments import OfModel, check_figure, complain, load_model, save_figure, warn_of_unknown

LARGEST_DRAWN = 10**9
"""Parameters: a figure needs real weights, and these have to fit into the memory of a laptop."""


@dataclass(frozen=True)
class Trace(OfModel):
    """List every intermediate of a model: name, shape, axes."""

    all: Annotated[bool, arg(help="List every layer, also those that are alike (JSON always does).")] = False
    text: Annotated[
        str | None, arg(help="The text to read (text models with a tokenizer): its tokens are the input.")
    ] = None
    figure: Annotated[Path | None, arg(help="Also draw what happens inside to this file (.png, .svg, .pdf).")] = None
    image: Annotated[Path | None, arg(help="The picture to draw it for (image models).")] = None

    def run(self) -> None:
        import torch

        from headwork.inspection import trace

        self.check()
        texts = self.read_text()
        with self.fake_model() as (model, inputs):
            ids = [torch.zeros(1, len(text.ids), dtype=torch.long) for text in texts]
            table = trace(model, *(ids or inputs))
            n_parameters = sum(p.numel() for p in model.parameters())
        if self.figure is not None and n_parameters > LARGEST_DRAWN:
            raise ValueError(f"figure needs the weights of {self.model}, {n_parameters:,} of them: too many")
        if self.figure is not None:
            self.draw(self.figure, texts)
        if self.json:
            print(json.dumps([asdict(row) for row in table], indent=2))
        else:
            print(table.text(fold=not self.all))

    def check(self) -> None:
        """Raise for options that do not go together, before any work is done."""
        from headwork.models import describe

        check_figure(self.figure)
        if self.figure is not None and self.batch != 1:
            raise ValueError(f"batch must be 1 with --figure, which draws one example, got {self.batch}")
        if self.text is not None and (self.batch != 1 or self.tokens is not None):
            raise ValueError(f"text says how long the input is: leave out batch and tokens, got text {self.text!r}")
        if self.image is None:
            return
        if self.figure is None:
            raise ValueError(f"image is used for the drawing only: give --figure too, got image {self.image} alone")
        found = describe(self.find_config())
        if found is None or found.input != "image":
            raise ValueError(f"image is for image models, got {self.model}")

    def read_text(self) -> list["ReadText"]:
        """The text as the model reads it; a translator reads what it says of it too."""
        if self.text is None:
            return []
        import torch

        from headwork.data import Tokenizer
        from headwork.generation import translate
        from headwork.hub import is_pretrained
        from headwork.models import describe
        from headwork.storage import load
        from headwork.training.run import is_run, open_run

        folder = Path(self.model)
        if is_pretrained(folder):
            return self.read_text_as_pretrained(folder, self.text)
        run = open_run(folder, self.own_classes) if is_run(folder) else None
        found = None if run is None else describe(run.config.model)
        if run is None or run.tokenizer is None or found is None:
            raise ValueError(f"text is for a model with a tokenizer, got {self.model}")
        tokenizer, ids = run.tokenizer, run.tokenizer.encode(self.text)
        if not ids:
            raise ValueError(f"text must not be empty, got {self.text!r}")
        warn_of_unknown(tokenizer, self.text)
        rows = tokenizer.encode_starts([self.text], len(ids) + 1) if found.output == "class" else [ids]
        if found.input == "text pair":
            assert isinstance(tokenizer, Tokenizer)
            said = translate(
                load(folder, classes=self.own_classes),  # type: ignore[arg-type]  # its description says that it translates
                torch.tensor([ids]),
                max_new_tokens=len(ids) + 8,
                begin=tokenizer.begin,
                end=tokenizer.end,
            )
            rows.append([tokenizer.begin, *said[0].tolist()])
        return [ReadText(row, tokenizer.strings(row)) for row in rows]

    def read_text_as_pretrained(self, folder: Path, text: str) -> list["ReadText"]:
        """The text with the tokenizer of a folder of Hugging Face's or of a GGUF file."""
        import torch

        from headwork.cli.translate import open_pretrained
        from headwork.generation import translate
        from headwork.hub import MarianTokenizer, PretrainedTokenizer
        from headwork.models import describe

        found = describe(self.find_config())
        if found is None or found.input not in ("text", "text pair"):
            raise ValueError(f"text is for a model with a tokenizer, got {self.model}")
        if not text.strip():
            raise ValueError(f"text must not be empty, got {text!r}")
        if found.input == "text pair":
            translator = open_pretrained(folder)
            ids = translator.encode(text)
            said = translate(
                translator.model,  # type: ignore[arg-type]  # its description says that it translates
                torch.tensor([ids]),
                max_new_tokens=len(ids) + 8,
                begin=translator.begin,
                end=translator.end,
            )
            marian = (folder / "source.spm").is_file()
            strings = (MarianTokenizer if marian else PretrainedTokenizer).load(folder).strings
            return [ReadText(row, strings(row)) for row in (ids, [translator.begin, *said[0].tolist()])]
        tokenizer = PretrainedTokenizer.load(folder)
        ids = tokenizer.encode(text)
        if found.max_tokens is not None and len(ids) > found.max_tokens:
            complain(f"of the text {found.max_tokens} of {len(ids)} tokens are read")
            ids = tokenizer.encode_starts([text], found.max_tokens)[0]
        if found.vocab is not None and max(ids) >= found.vocab:
            raise ValueError(
                f"the tokenizer must have no more tokens than the model, {found.vocab}, got {len(tokenizer)}"
            )
        return [ReadText(ids, tokenizer.strings(ids))]

    def draw(self, path: Path, texts: list["ReadText"]) -> None:
        """Draw the inside of the model on a real example: with the weights in its folder, or with fresh ones."""
        import torch

        from headwork.data import read_image, sample_digit, sample_photo
        from headwork.figures import draw_inside
        from headwork.hub import is_pretrained
        from headwork.models import describe

        config = self.find_config()
        torch.manual_seed(0)
        size = self.find_image_size(config)
        inputs, description = self.make_inputs(config, size), describe(config)
        assert description is not None
        has_weights = Path(self.model).is_dir() or is_pretrained(self.model)
        title = self.model if has_weights else f"{self.model}, before training"
        if texts:
            inputs = [torch.tensor([text.ids]) for text in texts]
        elif description.input == "image":
            size, n_channels = description.image or size, description.n_channels
            assert n_channels is not None
            if self.image is not None:
                inputs = [read_image(self.image, size, n_channels)]
            elif (size, n_channels) == ((8, 8), 1):
                inputs = [sample_digit(0)]
            else:
                inputs = [sample_photo(size, n_channels)]
        elif description.vocab is not None:
            inputs = [torch.randint(description.vocab, ids.shape) for ids in inputs]
            title += ", for random token ids"
        model = load_model(Path(self.model), self.own_classes) if has_weights else config.build()
        words = [text.strings for text in texts] or None
        save_figure(draw_inside(model, *inputs, title=title, strings=words), path)


class ReadText(NamedTuple):
    """The ids of a text, and each token as a figure can show it."""

    ids: list[int]
    strings: list[str]


@dataclass(frozen=True)
class Cost(OfModel):
    """Count parameters, FLOPs and memory of a forward pass, and say which term dominates."""

    def run(self) -> None:
        from headwork.inspection import cost

        with self.fake_model() as (model, inputs):
            price = cost(model, *inputs)
        if not self.json:
            print(str(price))
            return
        summary = {
            "flops": price.flops,
            "by_operation": price.by_operation(),
            "crossover_tokens": price.crossover,
            "whole_crossover_tokens": price.whole_crossover,
        }
        print(json.dumps(summary | asdict(price), indent=2))


@dataclass(frozen=True)
class Models:
    """List the published models that are known by name."""

    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.models import PUBLISHED
        from headwork.serialise import config_to_dict

        if self.json:
            print(json.dumps({name: config_to_dict(config) for name, config in PUBLISHED.items()}, indent=2))
            return
        for name, config in PUBLISHED.items():
            print(f"{name:<18} {type(config).__name__.removesuffix('Config')}")
