"""`headwork generate`."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from headwork.cli.arguments import OfRun, warn_of_unknown

if TYPE_CHECKING:
    from headwork.data import Tokenizer
    from headwork.generation import Sampling


@dataclass(frozen=True)
class Generate(OfRun):
    """Continue a text with the language model of a run."""

    prompt: Annotated[str, arg(help="The beginning of the text.")] = "\n"
    max_new_tokens: Annotated[int, arg(help="How many tokens to add.")] = 200
    greedy: Annotated[bool, arg(help="Always take the most likely token.")] = False
    temperature: Annotated[float | None, arg(help="Below 1: more predictable; above: more varied; else 0.8.")] = None
    top_k: Annotated[int | None, arg(help="Choose among so many of the most likely tokens.")] = None
    top_p: Annotated[float | None, arg(help="Choose among the most likely tokens that share this probability.")] = None
    seed: Annotated[int | None, arg(help="The same seed gives the same text.")] = None
    json: Annotated[bool, arg(help="Print JSON for a program to read, when all is there.")] = False

    def run(self) -> None:
        import torch

        from headwork.checks import check_positive
        from headwork.generation import check_prompt_length, stream_long
        from headwork.models import describe

        check_positive(max_new_tokens=self.max_new_tokens)
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must lie in 0 .. 2**63 - 1, got {self.seed}")
        sampling = self.sampling()
        run, model = self.open()
        description = describe(run.config.model)
        is_text = description is not None and (description.input, description.output) == ("text", "next token")
        if not is_text or run.tokenizer is None:
            raise ValueError(f"run must be one of a language model, got {self.run_folder}")
        ids = run.tokenizer.encode(self.prompt)
        check_prompt_length(model, len(ids))
        warn_of_unknown(run.tokenizer, self.prompt)
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
        if self.json:
            new = [int(token) for token in tokens]
            about = {"prompt": self.prompt, "text": run.tokenizer.decode(new), "tokens": len(new)}
            print(json.dumps(about | ({} if self.greedy else {"seed": seed})))
            return
        print(self.prompt, end="", flush=True)
        for piece in decode_stream(run.tokenizer, map(int, tokens)):
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


BYTES_OF_CHARACTER = 4
"""In UTF-8, each a token of its own at worst."""
WINDOW = 4 * BYTES_OF_CHARACTER


def decode_stream(tokenizer: "Tokenizer", tokens: Iterable[int]) -> Iterator[str]:
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
