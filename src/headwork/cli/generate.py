"""`headwork generate`."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import UseAppendAction, arg

from headwork.checks import with_article
from headwork.cli.answers import Answers, beside, to_json
from headwork.cli.arguments import (
    OfRun,
    complain,
    lines_of_stdin,
    warn_of_unknown,
    warnings_in_lines,
    without_denormals,
)
from headwork.cli.asked import COLUMN_HELP, Asked, Columns, find_asked, read_asked

if TYPE_CHECKING:
    import torch
    from torch import nn

    from headwork.data import Tokenizer
    from headwork.generation import Sampling
    from headwork.hub import PretrainedTokenizer
    from headwork.models import Description

LONGEST_FILE = 10**7
"""Bytes of a text to measure on; what is longer says no more."""
PROMPT_COLUMNS = ("prompt", "instruction", "question", "input")
Message = dict[str, str]


@dataclass(frozen=True)
class Generate(OfRun):
    """Continue a text with the language model of a run, or of a folder of Hugging Face's or a GGUF file.

    Without --prompt and --file, each line of stdin is one; a model with a chat template then answers, and remembers
    what was said.
    """

    prompt: Annotated[str | None, arg(help="The beginning of the text; else the lines of stdin.")] = None
    chat: Annotated[bool, arg(help="The prompt is a message, written as the chat template of the model says.")] = False
    max_new_tokens: Annotated[int, arg(help="How many tokens to add at most.")] = 200
    greedy: Annotated[bool, arg(help="Always take the most likely token.")] = False
    temperature: Annotated[float | None, arg(help="Below 1: more predictable; above: more varied; else 0.8.")] = None
    top_k: Annotated[int | None, arg(help="Choose among so many of the most likely tokens.")] = None
    top_p: Annotated[float | None, arg(help="Choose among the most likely tokens that share this probability.")] = None
    min_p: Annotated[float | None, arg(help="Choose among tokens at least so likely, as a share of the likeliest.")] = (
        None
    )
    repetition_penalty: Annotated[float, arg(help="Above 1: tokens that were there already become less likely.")] = 1.0
    beams: Annotated[int, arg(help="How many texts are followed at a time; the best is shown when it is there.")] = 1
    length_penalty: Annotated[
        float | None, arg(help="With beams: 0 for the most probable text; more: longer ones.")
    ] = None
    stop: Annotated[UseAppendAction[tuple[str, ...]], arg(help="Stop before this text; can be given again.")] = ()
    seed: Annotated[int | None, arg(help="The same seed gives the same text.")] = None
    prompt_lookup: Annotated[
        int | None, arg(help="With --greedy: guess so many tokens from the text itself; the same text, sooner.")
    ] = None
    weights: Annotated[
        Literal["float32", "int8", "int4"],
        arg(help="int8: a quarter of the memory, and faster; int4: less, and less exact."),
    ] = "float32"
    measure: Annotated[
        Path | None, arg(help="With --weights int8 or int4: a text, on which both are measured; nothing is generated.")
    ] = None
    file: Annotated[
        Path | None,
        arg(help="Continue each line of this UTF-8 file, or row of a table, for itself; or of a folder of these."),
    ] = None
    column: Annotated[str | None, arg(help=COLUMN_HELP)] = None
    out: Annotated[Path | None, arg(help="Write the texts to this new file: .csv, .json or .jsonl.")] = None
    json: Annotated[bool, arg(help="Print JSON for a program to read, when all is there.")] = False

    @without_denormals()
    def run(self) -> None:
        import torch

        sampling, prompts, answers = self.sampling(), self.all_prompts(), Answers(self.out)
        model, tokenizer, end = self.open_language_model()
        if self.weights != "float32":
            model = self.quantize(model, tokenizer)
        if self.measure is not None:
            return
        generator = torch.Generator()
        seed = generator.seed() % 2**63 if self.seed is None else self.seed
        generator.manual_seed(seed)
        template = getattr(tokenizer, "chat_template", None)
        if self.chat and template is None:
            raise ValueError(f"chat needs a model with a chat template, got {self.run_folder}")
        of_stdin = self.prompt is None and self.file is None
        chats = self.chat or (of_stdin and template is not None)
        if of_stdin and sys.stdin.isatty():
            complain("write a line, and end with Ctrl-D")
        said: list[Message] = []
        with answers:
            for asked in prompts:
                prompt = asked.text
                if self.prompt is None and not prompt.strip():
                    if self.file is not None:  # a line for each line
                        self.add(answers, asked, "", 0, seed)
                    continue
                if not hasattr(tokenizer, "chat_template"):
                    warn_of_unknown(tokenizer, prompt)
                if not of_stdin:
                    said.clear()
                said.append({"role": "user", "content": prompt})
                ids = fit(tokenizer, said, model) if chats else tokenizer.encode(prompt)  # type: ignore[arg-type]
                tokens: list[int] = []
                pieces = self.continue_text(model, tokenizer, ids, end, sampling, generator, tokens)
                if self.json or self.out is not None:
                    text = "".join(pieces)
                    self.add(answers, asked, text, len(tokens), seed)
                else:
                    print("" if chats else prompt, end="", flush=True)
                    text = ""
                    for piece in pieces:
                        print(piece, end="", flush=True)
                        text += piece
                    print(flush=True)
                said.append({"role": "assistant", "content": text})

    def all_prompts(self) -> Iterable[Asked]:
        """The one that was given, those of the file, or the lines of stdin."""
        from headwork.data.bundled_text import TEXT_ENDINGS
        from headwork.data.table_files import TABLE_ENDINGS
        from headwork.data.text_table import TEXT_COLUMNS

        if self.file is None:
            if self.column is not None:
                raise ValueError(f"column is for tables, given by --file, got {self.column!r}")
            return (Asked("", text) for text in (lines_of_stdin() if self.prompt is None else [self.prompt]))
        if self.prompt is not None:
            raise ValueError(f"give a prompt or a file, not both, got {self.file} and {self.prompt!r}")
        columns = Columns(self.column, (*PROMPT_COLUMNS, *TEXT_COLUMNS))
        files = find_asked(self.file, TABLE_ENDINGS, TEXT_ENDINGS)
        return (asked for file in files for asked in read_asked(file, columns))

    def add(self, answers: Answers, asked: Asked, text: str, n_tokens: int, seed: int) -> None:
        row = {**asked.shown("prompt"), "text": text, "tokens": n_tokens}
        row |= {} if self.is_certain else {"seed": seed}
        answers.add(row, to_json(beside(asked.row, row)) if self.json else asked.text, asked.row)

    def continue_text(
        self,
        model: "nn.Module",
        tokenizer: "Tokenizer | PretrainedTokenizer",
        ids: list[int],
        end: tuple[int, ...],
        sampling: "Sampling",
        generator: "torch.Generator",
        kept: list[int],
    ) -> Iterator[str]:
        """The pieces of the new text; its tokens are kept."""
        import torch

        from headwork.generation import beam_search, check_prompt_length, decode_stream, stream_long
        from headwork.generation.text import until_end, until_stop

        check_prompt_length(model, len(ids))

        def tokens() -> Iterator[int]:
            if self.beams > 1:
                best = beam_search(
                    model,  # type: ignore[arg-type]  # its description says that it continues texts
                    [ids],
                    n_beams=self.beams,
                    max_new_tokens=self.max_new_tokens,
                    end=end,
                    length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
                )
                yield from best[0].ids.tolist()
                return
            steps = stream_long(
                model,  # type: ignore[arg-type]  # its description says that it continues texts
                torch.tensor([ids]),
                max_new_tokens=self.max_new_tokens,
                sampling=sampling,
                generator=generator,
                prompt_lookup=self.prompt_lookup,
            )
            yield from map(int, steps)

        def counted() -> Iterator[int]:
            for token in until_end(tokens(), end):
                kept.append(token)
                yield token

        return until_stop(decode_stream(tokenizer, counted(), before=ids), self.stop)

    @property
    def is_certain(self) -> bool:
        """Whether nothing is left to chance."""
        return self.greedy or self.beams > 1

    def sampling(self) -> "Sampling":
        from headwork.checks import check_positive
        from headwork.generation import Greedy, Sample
        from headwork.generation.text import check_stop

        check_positive(max_new_tokens=self.max_new_tokens, beams=self.beams, prompt_lookup=self.prompt_lookup)
        check_stop(self.stop)
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must lie in 0 .. 2**63 - 1, got {self.seed}")
        if self.beams == 1 and self.length_penalty is not None:
            raise ValueError(f"length_penalty is for a beam search: give --beams too, got {self.length_penalty}")
        if self.beams > 1 and (self.repetition_penalty != 1 or self.prompt_lookup):
            raise ValueError("beams must be 1 with a repetition penalty or prompt lookup, got " + str(self.beams))
        if self.prompt_lookup and not self.greedy:
            raise ValueError(f"prompt_lookup needs --greedy, got {self.prompt_lookup} without")
        if self.measure is not None and self.weights == "float32":
            raise ValueError(f"measure is for --weights int8 or int4, got {self.measure} with {self.weights}")
        for name in ("file", "out"):
            if self.measure is not None and getattr(self, name) is not None:
                raise ValueError(f"{name} is for texts to generate: leave out measure, got {getattr(self, name)}")
        if self.is_certain:
            for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
                if getattr(self, name) is not None:
                    what = "greedy" if self.greedy else "a beam search"
                    raise ValueError(f"{what} needs no choice: leave out {name}, got {getattr(self, name)}")
            return Greedy(repetition_penalty=self.repetition_penalty)
        return Sample(
            temperature=0.8 if self.temperature is None else self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )

    def quantize(self, model: "nn.Module", tokenizer: "Tokenizer | PretrainedTokenizer") -> "nn.Module":
        """The model in fewer bits, and how much smaller it is; with --measure also how fast and how good."""
        import torch

        from headwork.checks import check_file
        from headwork.quantization import compare, megabytes, quantize

        quantised = quantize(model, bits=4 if self.weights == "int4" else 8)
        if self.measure is None:
            complain(f"weights: {megabytes(model):.1f} MB in float32, {megabytes(quantised):.1f} MB in {self.weights}")
            return quantised
        check_file(self.measure, "measure", LONGEST_FILE, "a text")
        ids = torch.tensor(tokenizer.encode(self.measure.read_text(encoding="utf-8", errors="replace")))
        measured = compare(model, quantised, ids)
        if self.json:
            print(json.dumps({"float32": vars(measured.before), self.weights: vars(measured.after)}))
        else:
            print(measured)
        return quantised

    def open_language_model(self) -> "tuple[nn.Module, Tokenizer | PretrainedTokenizer, tuple[int, ...]]":
        """The model of a run or of a folder of Hugging Face's, its tokenizer, and the ids that end a text."""
        from headwork.hub import PretrainedTokenizer, find_folder, is_pretrained, load_pretrained, note_of_unverified

        folder = find_folder(str(self.run_folder))
        if is_pretrained(folder):
            tokenizer = PretrainedTokenizer.load(folder)
            with warnings_in_lines():
                model = load_pretrained(folder)
            if note := note_of_unverified(folder):
                complain(note)
            description = check_language_model(model, str(folder))
            if description.vocab is not None and tokenizer.n_tokens > description.vocab:
                rule = f"no more tokens than the model, {description.vocab}"
                raise ValueError(f"the tokenizer must have {rule}, got {tokenizer.n_tokens}")
            return model, tokenizer, tokenizer.end
        run, model = self.open()
        check_language_model(run.config.model, str(self.run_folder))
        if run.tokenizer is None:
            raise ValueError(f"run must be one of a language model, got {self.run_folder}")
        return model, run.tokenizer, ()


def fit(tokenizer: "PretrainedTokenizer", said: list[Message], model: "nn.Module") -> list[int]:
    """The ids of a chat; its oldest messages are dropped when it is longer than the model can read."""
    from headwork.generation import max_tokens

    limit = max_tokens(model)
    while True:
        ids = tokenizer.encode_chat(said)
        if limit is None or len(ids) <= limit or len(said) < 3:
            return ids
        complain(f"the chat is longer than the {limit} tokens of the model: its beginning is dropped")
        del said[:2]


def check_language_model(model: object, name: str) -> "Description":
    from headwork.models import describe

    description = describe(model)
    if description is None or (description.input, description.output) != ("text", "next token"):
        raise ValueError(f"run must be one of a language model, got {name}{_what_it_is(description)}")
    return description


def _what_it_is(description: "Description | None") -> str:
    """What a model that continues no text gives, and the command for it."""
    if description is None:
        return ""
    if description.input == "text pair":
        return ", which reads a source and a target: `headwork translate` is for it"
    return f", which reads {with_article(description.input)} and gives a {description.output}: try `headwork predict`"
