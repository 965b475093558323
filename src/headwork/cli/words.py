"""What a model does not understand is said, not dropped in silence."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwork.data import Tokens


def warn_of_unknown(tokens: "Tokens", text: str) -> None:
    """Name the characters or words of a text that the model was never shown."""
    n_unknown = tokens.encode(text).count(tokens.unknown)
    if n_unknown:
        print(f"headwork: {n_unknown} tokens of {text[:40]!r} are not known to the model", file=sys.stderr)
