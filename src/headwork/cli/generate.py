"""`headwork generate`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from headwork.cli.text_input import warn_of_unknown

if TYPE_CHECKING:
    from headwork.generation import Sampling


@dataclass(frozen=True)
class Generate:
    """Let the language model of a run continue a text."""

    run_folder: Annotated[Positional[Path], arg(name="run", help="The folder of a run.")]
    prompt: Annotated[str, arg(help="The beginning of the text.")] = "\n"
    tokens: Annotated[int, arg(help="How many tokens to add.")] = 200
    greedy: Annotated[bool, arg(help="Always take the most likely token.")] = False
    temperature: Annotated[float | None, arg(help="Below 1 bolder, above 1 more varied; 0.8 unless given.")] = None
    top_k: Annotated[int | None, arg(help="Choose among so many of the most likely tokens.")] = None
    top_p: Annotated[float | None, arg(help="Choose among the most likely tokens that share this probability.")] = None
    seed: Annotated[int | None, arg(help="The same seed gives the same text.")] = None
    json: Annotated[bool, arg(help="Print JSON for a program to read, when all is there.")] = False

    def run(self) -> None:
        import torch

        from headwork.checks import check_positive
        from headwork.generation import check_prompt_length, stream_long
        from headwork.models import Decoder
        from headwork.storage import load
        from headwork.training import open_run

        check_positive(tokens=self.tokens)
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must lie in 0 .. 2**63 - 1, got {self.seed}")
        sampling = self.sampling()
        run = open_run(self.run_folder)
        model = load(self.run_folder)
        if not isinstance(model, Decoder) or run.tokenizer is None:
            raise ValueError(f"run must be one of a language model, got {run.config.name}")
        ids = run.tokenizer.encode(self.prompt)
        check_prompt_length(model, len(ids))
        warn_of_unknown(run.tokenizer, self.prompt)
        generator = torch.Generator()
        seed = generator.seed() % 2**63 if self.seed is None else self.seed
        generator.manual_seed(seed)
        new: list[int] = []
        shown = ""
        if not self.json:
            print(self.prompt, end="", flush=True)
        for token in stream_long(
            model, torch.tensor([ids]), max_new_tokens=self.tokens, sampling=sampling, generator=generator
        ):
            new.append(int(token))
            text = run.tokenizer.decode(new)
            if not self.json and not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half of a character is not shown
                print(text[len(shown) :], end="", flush=True)
                shown = text
        if self.json:
            print(
                json.dumps(
                    {"prompt": self.prompt, "text": run.tokenizer.decode(new), "tokens": len(new)}
                    | ({} if self.greedy else {"seed": seed})
                )
            )
        else:
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
