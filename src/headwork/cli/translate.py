"""`headwork translate`."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from headwork.cli.answers import Answers
from headwork.cli.arguments import OfRun, complain, lines_of_stdin, warn_of_unknown, without_denormals

if TYPE_CHECKING:
    from torch import nn

LONGEST_TRANSLATION = 4096
"""Tokens; a model that never ends its translation would go on for ever."""
MOST_BEAMS = 256


@dataclass(frozen=True)
class Translator:
    """A model that reads one text and writes another, and its words."""

    model: "nn.Module"
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    begin: int
    end: Sequence[int]
    forbidden: Sequence[int] = ()
    """Ids that are never written."""
    first: int | None = None
    """The id that is always written first: BART's, or the language of a translation."""


@dataclass(frozen=True)
class Translate(OfRun):
    """Translate texts with the encoder-decoder of a run, or of a folder of Hugging Face's (Marian, T5, BART).

    The texts are given here or line by line on stdin. A T5 is told what to do in the text.
    """

    texts: Annotated[Positional[tuple[str, ...]], arg(help="What to translate; none: the lines of stdin.")] = ()
    beams: Annotated[int, arg(help="How many translations are followed at a time; 1 is greedy.")] = 1
    length_penalty: Annotated[
        float | None, arg(help="With beams. 0: the most probable; 1 (unless given): the best mean; more: longer ones.")
    ] = None
    max_new_tokens: Annotated[int, arg(help="The longest translation, in tokens.")] = 64
    weights: Annotated[
        Literal["float32", "int8", "int4"],
        arg(help="int8: a quarter of the memory, and faster; int4: less, and less exact."),
    ] = "float32"
    file: Annotated[Path | None, arg(help="Translate the lines of this UTF-8 file.")] = None
    out: Annotated[Path | None, arg(help="Write the answers to this new file: .csv, .json or .jsonl.")] = None
    json: Annotated[bool, arg(help="Print a line of JSON for each text.")] = False

    @without_denormals()
    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.generation import beam_search
        from headwork.quantization import quantize

        check_positive(beams=self.beams, max_new_tokens=self.max_new_tokens)
        for name, most in (("max_new_tokens", LONGEST_TRANSLATION), ("beams", MOST_BEAMS)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most:,}, got {getattr(self, name)}")
        if self.length_penalty is not None and self.beams == 1:
            raise ValueError(f"length_penalty is for a beam search: give --beams too, got {self.length_penalty}")
        translator = self.open_translator()
        model = translator.model
        if self.weights != "float32":
            model = quantize(model, bits=4 if self.weights == "int4" else 8)
        with Answers(self.out) as answers:
            for text in self.all_texts():
                if not text.strip() and not self.texts:
                    empty = {"source": text, "translation": "", "score": None}
                    answers.add(empty, "{}" if self.json else "")  # a line for each line
                    continue
                ids = translator.encode(text)
                if not ids:
                    raise ValueError(f"texts must not be empty, got {text!r}")
                best = beam_search(
                    model,  # type: ignore[arg-type]  # its description says that it translates
                    [ids],
                    n_beams=self.beams,
                    max_new_tokens=self.max_new_tokens,
                    begin=translator.begin,
                    end=translator.end,
                    forbidden=translator.forbidden,
                    first=translator.first,
                    length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
                )[0]
                said = translator.decode(best.ids.tolist())
                line = {"source": text, "translation": said, "score": best.score}
                answers.add(line, json.dumps(line, ensure_ascii=False) if self.json else said)

    def all_texts(self) -> Iterable[str]:
        """Those that were given, the lines of the file, or those of stdin."""
        if self.file is None:
            return self.texts or lines_of_stdin()
        if self.texts:
            raise ValueError(f"give texts or a file, not both, got {self.file} and {self.texts[0]!r}")
        from headwork.data.table_files import read_lines

        return read_lines(self.file)

    def open_translator(self) -> Translator:
        from headwork.data import Tokenizer
        from headwork.hub import find_folder, is_pretrained
        from headwork.models import describe

        if is_pretrained(folder := find_folder(str(self.run_folder))):
            return open_pretrained(folder)
        run, model = self.open()
        description = describe(run.config.model)
        if description is None or description.input != "text pair" or not isinstance(run.tokenizer, Tokenizer):
            raise ValueError(f"run must be one of a translator, got {self.run_folder}")
        tokenizer = run.tokenizer

        def encode(text: str) -> list[int]:
            warn_of_unknown(tokenizer, text)
            return tokenizer.encode(text)

        return Translator(model, encode, tokenizer.decode, tokenizer.begin, [tokenizer.end])


def open_pretrained(folder: Path) -> Translator:
    """A translator in a folder of Hugging Face's; where a translation begins and ends stands in its settings."""
    from headwork.hub import MarianTokenizer, PretrainedTokenizer, load_pretrained, note_of_unverified
    from headwork.hub.weights import read_json
    from headwork.models import describe

    if folder.is_file():
        raise ValueError(f"run must be one of a translator, got {folder}")
    settings = read_json(folder / "config.json")
    if (folder / "generation_config.json").is_file():
        stated = read_json(folder / "generation_config.json")
        settings |= {name: value for name, value in stated.items() if value is not None}
    if settings.get("is_encoder_decoder") is False:
        raise ValueError(f"run must be one of a translator, got {folder}")
    model = load_pretrained(folder)
    if note := note_of_unverified(folder):
        complain(note)
    description = describe(model)
    if description is None or description.input != "text pair":
        raise ValueError(f"run must be one of a translator, got {folder}")
    stated_words = settings.get("bad_words_ids")
    words = stated_words if isinstance(stated_words, list) else []
    forbidden = [ids[0] for ids in words if isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], int)]
    first = settings.get("forced_bos_token_id")
    if first is not None and (not isinstance(first, int) or not 0 <= first < description.n_outputs):
        rule = f"an id below {description.n_outputs}"
        raise ValueError(f"{folder / 'config.json'}: forced_bos_token_id must be {rule}, got {first!r}")
    if settings.get("model_type") == "marian":
        marian = MarianTokenizer.load(folder)
        check_vocabulary(marian.n_tokens, description.n_outputs)
        return Translator(model, marian.encode, marian.decode, marian.begin, [marian.end], forbidden, first)
    tokenizer = PretrainedTokenizer.load(folder)
    check_vocabulary(tokenizer.n_tokens, description.n_outputs)
    begin = settings.get("decoder_start_token_id")
    if not isinstance(begin, int):
        raise ValueError(f"{folder / 'config.json'}: decoder_start_token_id must be the id that begins, got {begin!r}")
    return Translator(model, tokenizer.encode, tokenizer.decode, begin, tokenizer.end, forbidden, first)


def check_vocabulary(n_tokens: int, n_outputs: int) -> None:
    if n_tokens > n_outputs:
        raise ValueError(f"the tokenizer must have no more tokens than the model, {n_outputs}, got {n_tokens}")
