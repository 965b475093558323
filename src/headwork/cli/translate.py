"""`headwork translate`."""

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from headwork.cli.arguments import OfRun, lines_of_stdin, warn_of_unknown, without_denormals

LONGEST_TRANSLATION = 4096
"""Tokens; a model that never ends its translation would go on for ever."""
MOST_BEAMS = 256


@dataclass(frozen=True)
class Translate(OfRun):
    """Translate texts with the encoder-decoder of a run, given here or line by line on stdin."""

    texts: Annotated[Positional[tuple[str, ...]], arg(help="What to translate; none: the lines of stdin.")] = ()
    beams: Annotated[int, arg(help="How many translations are followed at a time; 1 is greedy.")] = 1
    length_penalty: Annotated[
        float | None, arg(help="With beams. 0: the most probable; 1 (unless given): the best mean; more: longer ones.")
    ] = None
    max_new_tokens: Annotated[int, arg(help="The longest translation, in tokens.")] = 64
    json: Annotated[bool, arg(help="Print a line of JSON for each text.")] = False

    @without_denormals()
    def run(self) -> None:
        import torch

        from headwork.checks import check_positive
        from headwork.generation import beam_search
        from headwork.models import describe

        check_positive(beams=self.beams, max_new_tokens=self.max_new_tokens)
        for name, most in (("max_new_tokens", LONGEST_TRANSLATION), ("beams", MOST_BEAMS)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most:,}, got {getattr(self, name)}")
        if self.length_penalty is not None and self.beams == 1:
            raise ValueError(f"length_penalty is for a beam search: give --beams too, got {self.length_penalty}")
        run, model = self.open()
        description = describe(run.config.model)
        if description is None or description.input != "text pair" or run.tokenizer is None:
            raise ValueError(f"run must be one of a translator, got {self.run_folder}")
        for text in self.texts or lines_of_stdin():
            if not text.strip() and not self.texts:
                print("{}" if self.json else "", flush=True)  # a line for each line
                continue
            ids = run.tokenizer.encode(text)
            if not ids:
                raise ValueError(f"texts must not be empty, got {text!r}")
            warn_of_unknown(run.tokenizer, text)
            best = beam_search(
                model,  # type: ignore[arg-type]  # its description says that it translates
                torch.tensor([ids]),
                n_beams=self.beams,
                max_new_tokens=self.max_new_tokens,
                begin=run.tokenizer.begin,
                end=run.tokenizer.end,
                length_penalty=1.0 if self.length_penalty is None else self.length_penalty,
            )[0]
            said = run.tokenizer.decode(best.ids.tolist())
            line = {"source": text, "translation": said, "score": best.score}
            print(json.dumps(line, ensure_ascii=False) if self.json else said, flush=True)
