"""`headwork translate`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from headwork.cli.answers import OUT_HELP, Answers, beside, to_json
from headwork.cli.arguments import (
    OfRun,
    complain,
    lines_of_stdin,
    warn_of_unknown,
    warnings_in_lines,
    without_denormals,
)
from headwork.cli.asked import COLUMN_HELP, Asked, Columns, find_asked, in_chunks, read_asked

if TYPE_CHECKING:
    from torch import nn

    from headwork.generation import Hypothesis

LONGEST_TRANSLATION = 4096
"""Tokens; a model that never ends its translation would go on for ever."""
MOST_BEAMS = 256
N_AT_ONCE = 256
"""Texts of a file that are sorted by length, and translated in batches."""


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
    source: str | None = None
    """How the run was told that the column, or the file, of the sources is called; and that of the targets."""
    target: str | None = None


@dataclass(frozen=True)
class Translate(OfRun):
    """Translate texts with the encoder-decoder of a run, or of a folder of Hugging Face's (Marian, T5, BART).

    The texts are given here, in a file, or line by line on stdin. A T5 is told what to do in the text.
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
    file: Annotated[
        Path | None, arg(help="Translate the lines of this UTF-8 file, the rows of a table, or a folder of these.")
    ] = None
    column: Annotated[str | None, arg(help=COLUMN_HELP)] = None
    out: Annotated[Path | None, arg(help=OUT_HELP)] = None
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
        if self.file is not None and self.texts:
            raise ValueError(f"give texts or a file, not both, got {self.file} and {self.texts[0]!r}")
        if self.file is None and self.column is not None:
            raise ValueError(f"column is for tables, given by --file, got {self.column!r}")
        translator = self.open_translator()
        model = translator.model
        if self.weights != "float32":
            model = quantize(model, bits=4 if self.weights == "int4" else 8)
        search = partial(
            beam_search,
            model,  # type: ignore[arg-type]  # its description says that it translates
            n_beams=self.beams,
            max_new_tokens=self.max_new_tokens,
            begin=translator.begin,
            end=translator.end,
            forbidden=translator.forbidden,
            first=translator.first,
            length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
        )
        of_stdin = self.file is None and not self.texts
        with Answers(self.out) as answers:
            for chunk in in_chunks(self.all_asked(translator), 1 if of_stdin else N_AT_ONCE):
                for asked, best in zip(chunk, self.translate(translator, search, chunk), strict=True):
                    said = "" if best is None else translator.decode(best.ids.tolist())
                    score = None if best is None else best.score
                    row = {**asked.shown("source"), "translation": said, "score": score}
                    answers.add(row, to_json(beside(asked.row, row)) if self.json else said, asked.row)

    def translate(
        self, translator: Translator, search: "Callable[..., list[Hypothesis]]", chunk: Sequence[Asked]
    ) -> "list[Hypothesis | None]":
        """The translation of each text; None of an empty line, which has an empty answer."""
        from headwork.data.translations import search_all

        sources: dict[int, list[int]] = {}
        for number, asked in enumerate(chunk):
            if asked.text.strip() or self.texts:
                sources[number] = translator.encode(asked.text)
                if not sources[number]:
                    raise ValueError(f"texts must not be empty, got {asked.text!r}")
        found = dict(zip(sources, search_all(search, list(sources.values())), strict=True)) if sources else {}
        return [found.get(number) for number in range(len(chunk))]

    def all_asked(self, translator: Translator) -> Iterator[Asked]:
        """The texts that were given, those of the file, or the lines of stdin."""
        from headwork.data.bundled_text import TEXT_ENDINGS
        from headwork.data.pair_files import SOURCE_COLUMNS, TARGET_COLUMNS
        from headwork.data.table_files import TABLE_ENDINGS
        from headwork.data.text_table import TEXT_COLUMNS

        if self.file is None:
            yield from (Asked("", text) for text in self.texts or lines_of_stdin())
            return
        source, target = (
            () if name is None else (name.strip().lower(),) for name in (translator.source, translator.target)
        )
        columns = Columns(self.column, (*source, *SOURCE_COLUMNS, *TEXT_COLUMNS), (*target, *TARGET_COLUMNS))
        endings = [f".{name.removeprefix('.')}" for name in source]
        for file in find_asked(self.file, TABLE_ENDINGS, [*endings, *TEXT_ENDINGS]):
            yield from read_asked(file, columns)

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

        names = (getattr(run.config.data, name, None) for name in ("source", "target"))
        source, target = (str(name) if isinstance(name, str | int) else None for name in names)
        end = [tokenizer.end]
        return Translator(model, encode, tokenizer.decode, tokenizer.begin, end, source=source, target=target)


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
    with warnings_in_lines():
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
