"""Prompt lookup: guess how a text goes on from what it said before, and let the model check many tokens at once.

Saxena, "Prompt lookup decoding", 2023; the check is that of speculative decoding (Leviathan et al., 2023).
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwork.generation.reading import TextReader

LONGEST, SHORTEST = 4, 2
"""So many of the last tokens must have stood together before."""


class Lookup:
    """A text that knows what followed its words.

    >>> Lookup([3, 1, 4, 1, 5, 3, 1]).guess(7)
    [4, 1, 5, 3, 1, 4, 1]
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self._next: dict[tuple[int, ...], int] = {}
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> None:
        for n in range(SHORTEST, min(LONGEST, len(self.tokens)) + 1):
            self._next[tuple(self.tokens[-n:])] = len(self.tokens)
        self.tokens.append(token)

    def guess(self, n_tokens: int) -> list[int]:
        """What followed the last time when most of the last tokens stood together; nothing if they never did.

        If that was a moment ago, the text goes round and round.
        """
        for n in range(LONGEST, SHORTEST - 1, -1):
            if (start := self._next.get(tuple(self.tokens[-n:]))) is not None:
                period = self.tokens[start:]
                return [period[i % len(period)] for i in range(n_tokens)]
        return []


def continue_by_lookup(
    read: TextReader,
    ids: Int[Tensor, "1 token"],
    logits: Float[Tensor, "1 vocab"],
    *,
    max_new_tokens: int,
    ends: tuple[int, ...],
    n_guessed: int,
) -> Iterator[Int[Tensor, "1"]]:
    """The tokens of greedy search after ids, whose last scores are these."""
    text, n_left = Lookup(ids[0].tolist()), max_new_tokens
    chosen = logits.argmax(-1)
    while True:
        for token in chosen.tolist():
            text.add(token)
            n_left -= 1
            yield chosen.new_tensor([token])
            if token in ends or n_left == 0:
                return
        guess = text.guess(min(n_guessed, n_left - 1))  # so that all fit into the positions of the model
        if not guess:
            chosen = read(chosen.new_tensor([text.tokens[-1:]])).argmax(-1)
            continue
        best = read.all_scores(chosen.new_tensor([[text.tokens[-1], *guess]]))[0].argmax(-1)
        right = best[:-1] == torch.tensor(guess, device=best.device)
        n_right = int(right.cumprod(0).sum())
        read.forget(len(guess) - n_right)
        chosen = best[: n_right + 1]
