"""Tokens that a vocabulary lacks: whether a text is mostly made of them, and the likely cause."""

from collections.abc import Sequence

from headwork.data.tokenizer import AnyTokenizer, Tokenizer

MANY_CAPITALS = 0.05
"""The share of the words of a vocabulary that have a capital letter, from which on it was made for texts with them."""


def is_mostly_unknown(ids: Sequence[int], tokenizer: AnyTokenizer) -> bool:
    """Whether more than half of the tokens that a classifier reads of a text are unknown; special ones do not count.

    >>> tokenizer = Tokenizer.words(["good film"], n_tokens=6)
    >>> [is_mostly_unknown(tokenizer.encode_starts([text], 9)[0], tokenizer) for text in ("bad film", "bad books")]
    [False, True]
    """
    return 2 * list(ids).count(tokenizer.unknown) > len(ids) - _n_special(tokenizer)


def say_mostly_unknown(ids: Sequence[int], tokenizer: AnyTokenizer, place: str) -> str | None:
    """How many tokens of a text are unknown, if most of them are, and why.

    >>> tokenizer = Tokenizer.words(["good film"], n_tokens=6)
    >>> say_mostly_unknown(tokenizer.encode_starts(["bad books"], 9)[0], tokenizer, "a.txt")
    'of a.txt 2 of 2 tokens (100 %) are not known to the model: its answer says little'
    """
    if not is_mostly_unknown(ids, tokenizer):
        return None
    n_unknown, n_tokens = list(ids).count(tokenizer.unknown), len(ids) - _n_special(tokenizer)
    share = f"{n_unknown} of {n_tokens} tokens ({100 * n_unknown / n_tokens:.0f} %)"
    return f"of {place} {share} are not known to the model: its answer says little{why_unknown(tokenizer)}"


def why_unknown(tokenizer: AnyTokenizer) -> str:
    """The likely cause of unknown tokens, if there is one to be seen: capital letters that no text keeps."""
    normalizer = tokenizer.tokenizer.normalizer
    if normalizer is None or normalizer.normalize_str("A") != "a":
        return ""
    words = sorted(word for word in tokenizer.tokenizer.get_vocab() if word.isalpha())
    with_capitals = [word for word in words if word != word.lower()]
    if len(with_capitals) <= MANY_CAPITALS * len(words):
        return ""
    return (
        f". The tokenizer writes every text in lower case, and its vocabulary has words such as {with_capitals[0]!r}: "
        'a folder without tokenizer_config.json may lack {"do_lower_case": false}'
    )


def _n_special(tokenizer: AnyTokenizer) -> int:
    if isinstance(tokenizer, Tokenizer):
        return 1  # BEGIN
    return int(tokenizer.tokenizer.num_special_tokens_to_add(is_pair=False))
