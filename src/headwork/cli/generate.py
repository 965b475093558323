"""`headwork generate`."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from headwork.cli.arguments import OfRun, complain, warn_of_unknown, without_denormals

if TYPE_CHECKING:
    from torch import nn

    from headwork.data import Tokenizer
    from headwork.generation import Sampling
    from headwork.hub import PretrainedTokenizer
    from headwork.models import Description


@dataclass(frozen=True)
class Generate(OfRun):
    """Continue a text with the language model of a run, or of a folder of Hugging Face's (with its tokenizer)."""

    prompt: Annotated[str, arg(help="The beginning of the text.")] = "\n"
    max_new_tokens: Annotated[int, arg(help="How many tokens to add.")] = 200
    greedy: Annotated[bool, arg(help="Always take the most likely token.")] = False
    temperature: Annotated[float | None, arg(help="Below 1: more predictable; above: more varied; else 0.8.")] = None
    top_k: Annotated[int | None, arg(help="Choose among so many of the most likely tokens.")] = None
    top_p: Annotated[float | None, arg(help="Choose among the most likely tokens that share this probability.")] = None
    seed: Annotated[int | None, arg(help="The same seed gives the same text.")] = None
    json: Annotated[bool, arg(help="Print JSON for a program to read, when all is there.")] = False

    @without_denormals()
    def run(self) -> None:
        import torch

        from headwork.checks import check_positive
        from headwork.generation import check_prompt_length, stream_long

        check_positive(max_new_tokens=self.max_new_tokens)
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must lie in 0 .. 2**63 - 1, got {self.seed}")
        sampling = self.sampling()
        model, tokenizer, end = self.open_language_model()
        ids = tokenizer.encode(self.prompt)
        check_prompt_length(model, len(ids))
        generator = torch.Generator()
        seed = generator.seed() % 2**63 if self.seed is None else self.seed
        generator.manual_seed(seed)
        tokens = stream_long(
            model,  # type: ignore[arg-type]  # its description says that it continues texts
            torch.tensor([ids]),
            max_new_tokens=self.max_new_tokens,
            sampling=sampling,
            generator=generator,
        )
        until_end = takewhile(lambda token: token not in end, map(int, tokens))
        if self.json:
            new = list(until_end)
            about = {"prompt": self.prompt, "text": tokenizer.decode(new), "tokens": len(new)}
            print(json.dumps(about | ({} if self.greedy else {"seed": seed})))
            return
        print(self.prompt, end="", flush=True)
        for piece in decode_stream(tokenizer, until_end):
            print(piece, end="", flush=True)
        print()

    def sampling(self) -> "Sampling":
        from headwork.generation import Greedy, Sample

        if self.greedy:
            for name in ("temperature", "top_k", "top_p", "seed"):
                if getattr(self, name) is not None:
                    raise ValueError(f"greedy needs no choice: leave out {name}, got {getattr(self, name)}")
            return Greedy()
        temperature = 0.8 if self.temperature is None else self.temperature
        return Sample(temperature=temperature, top_k=self.top_k, top_p=self.top_p)

    def open_language_model(self) -> "tuple[nn.Module, Tokenizer | PretrainedTokenizer, tuple[int, ...]]":
        """The model of a run or of a folder of Hugging Face's, its tokenizer, and the ids that end a text."""
        from headwork.hub import PretrainedTokenizer, find_folder, is_pretrained, load_pretrained, note_of_unverified

        folder = find_folder(str(self.run_folder))
        if is_pretrained(folder):
            tokenizer = PretrainedTokenizer.load(folder)
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
        warn_of_unknown(run.tokenizer, self.prompt)
        return model, run.tokenizer, ()


def check_language_model(model: object, name: str) -> "Description":
    from headwork.models import describe

    description = describe(model)
    if description is None or (description.input, description.output) != ("text", "next token"):
        raise ValueError(f"run must be one of a language model, got {name}")
    return description


BYTES_OF_CHARACTER = 4
"""In UTF-8, each a token of its own at worst."""
WINDOW = 4 * BYTES_OF_CHARACTER


def decode_stream(tokenizer: "Tokenizer | PretrainedTokenizer", tokens: Iterable[int]) -> Iterator[str]:
    """The text of each new token in constant time: it depends on a few tokens before it only.

    Half of a character is held back until the rest of it has come.
    """
    window: list[int] = []
    shown, n_held = "", 0
    for token in tokens:
        window.append(token)
        text = tokenizer.decode(window)
        n_held += 1
        if text.endswith("\N{REPLACEMENT CHARACTER}") and n_held < BYTES_OF_CHARACTER:
            continue
        yield text[len(shown) :]
        shown, n_held = text, 0
        if len(window) > WINDOW:
            window = window[-BYTES_OF_CHARACTER:]
            shown = tokenizer.decode(window)
    if n_held:
        yield tokenizer.decode(window)[len(shown) :]
