"""`headwork generate`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from headwork.generation import Picking


@dataclass(frozen=True)
class Generate:
    """Let the language model of a run continue a text."""

    run_folder: Annotated[Positional[Path], arg(name="run", help="The folder of a run.")]
    prompt: Annotated[str, arg(help="The beginning of the text.")] = "\n"
    tokens: Annotated[int, arg(help="How many tokens to add.")] = 200
    greedy: Annotated[bool, arg(help="Always take the most likely token.")] = False
    temperature: Annotated[float, arg(help="Below 1 bolder, above 1 more varied.")] = 0.8
    top_k: Annotated[int | None, arg(help="Choose among so many of the most likely tokens.")] = None
    top_p: Annotated[float | None, arg(help="Choose among the most likely tokens that share this probability.")] = None
    seed: Annotated[int | None, arg(help="The same seed gives the same text.")] = None
    json: Annotated[bool, arg(help="Print JSON for a program to read, when all is there.")] = False

    def run(self) -> None:
        import torch

        from headwork.checks import check_positive
        from headwork.generation import stream_long
        from headwork.models import Decoder
        from headwork.storage import load
        from headwork.training import open_run

        check_positive(tokens=self.tokens)
        how = self.how()
        run = open_run(self.run_folder)
        model = load(self.run_folder)
        if not isinstance(model, Decoder) or run.tokens is None:
            raise ValueError(f"run must be one of a language model, got {run.config.name}")
        ids = run.tokens.encode(self.prompt)
        if not ids:
            raise ValueError("prompt must have at least one token, got none")
        generator = torch.Generator()
        seed = generator.seed() if self.seed is None else self.seed
        generator.manual_seed(seed)
        new: list[int] = []
        shown = ""
        if not self.json:
            print(self.prompt, end="", flush=True)
        for token in stream_long(model, torch.tensor([ids]), n_new=self.tokens, how=how, generator=generator):
            new.append(int(token))
            text = run.tokens.decode(new)
            if not self.json and not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half of a character is not shown
                print(text[len(shown) :], end="", flush=True)
                shown = text
        if self.json:
            print(json.dumps({"prompt": self.prompt, "text": run.tokens.decode(new), "tokens": len(new), "seed": seed}))
        else:
            print()

    def how(self) -> "Picking":
        from headwork.generation import Greedy, Sample

        if self.greedy:
            if self.top_k is not None or self.top_p is not None:
                raise ValueError(f"greedy needs no choice, got top_k={self.top_k} and top_p={self.top_p}")
            return Greedy()
        return Sample(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)
