"""Labels, tokens and names of runs, written so that a figure shows every letter of them."""

MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
"""What cannot be seen, and what is drawn for it; the font that comes with matplotlib has all three."""


def visible(token: str, n_letters: int = 12) -> str:
    """A token as a label: white space becomes visible, what cannot be printed is written out, a long one is cut.

    >>> visible(" the"), visible("\\n"), visible("\\x00"), visible(""), visible("incomprehensibilities")
    ('␣the', '⏎', '\\\\x00', '∅', 'incomprehen…')
    """
    letters = "".join(MARKS.get(letter) or _printable(letter) for letter in token)
    return shorten(letters, n_letters) or "∅"


def shorten(text: str, n_letters: int) -> str:
    """At most so many letters on one line.

    >>> shorten("a very long label", 7)
    'a very…'
    """
    text = "".join(" " if letter.isspace() else _printable(letter) for letter in text)
    return text if len(text) <= n_letters else text[: n_letters - 1] + "…"


def _printable(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
