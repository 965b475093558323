"""When prompt lookup pays: `python benchmarks/prompt_lookup.py MODEL` with a folder or a GGUF file of a language model.

The same greedy text with and without guesses: a task of copying (a chat that asks for a text to be repeated with one
word changed), and plain text. All take turns in one process; the figure is the best turn.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import torch

import headwork as hw
from headwork.generation import stream
from headwork.hub import PretrainedTokenizer, load_pretrained

PROGRAM = """def area(width, height):
    return width * height

def volume(width, height, depth):
    return width * height * depth

def surface(width, height, depth):
    return 2 * (width * height + height * depth + depth * width)
"""
ASKED = f"Repeat this program exactly, and change nothing:\n\n```python\n{PROGRAM}```"
PLAIN = "The history of the lighthouse begins with"


def tokens(model: torch.nn.Module, ids: list[int], n: int, guessed: int | None, end: tuple[int, ...]) -> Iterator[int]:
    steps = stream(model, [ids], max_new_tokens=n, end=end, prompt_lookup=guessed)  # type: ignore[arg-type]
    return (int(token) for token in steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", choices=["float32", "int8"], default="float32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = PretrainedTokenizer.load(options.model)
    model = load_pretrained(options.model)
    model = hw.quantize(model) if options.weights == "int8" else model
    prompts = {
        "copying": tokenizer.encode_chat([{"role": "user", "content": ASKED}]),
        "plain text": tokenizer.encode(PLAIN),
    }
    print(f"{options.weights}, {options.threads} threads, best of {options.turns} turns")
    for name, ids in prompts.items():
        ways = (None, 4, 8, 12)
        best, said = dict.fromkeys(ways, float("inf")), {}
        for _ in range(options.turns):
            for guessed in ways:
                start = time.perf_counter()
                said[guessed] = list(tokens(model, ids, options.tokens, guessed, tokenizer.end))
                best[guessed] = min(best[guessed], time.perf_counter() - start)
        assert all(text == said[None] for text in said.values())
        print(f"\n{name}: {len(ids)} tokens in, {len(said[None])} out")
        for guessed, seconds in best.items():
            what = "without" if guessed is None else f"{guessed} guessed"
            print(f"  {what:<12} {1e3 * seconds / len(said[None]):7.1f} ms a token   {best[None] / seconds:5.2f}x")
        print(f"  {tokenizer.decode(said[None])[:90]!r}")


if __name__ == "__main__":
    main()
