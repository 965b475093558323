"""How many tokens a model can read, and which ids it knows: decided here for all that generate."""

from torch import nn

from headwork.checks import check_positive
from headwork.models.model import InputKind, describe


def max_tokens(model: nn.Module) -> int | None:
    """The longest sequence that the model can read; None: any length."""
    description = describe(model)
    return None if description is None else description.max_tokens


def check_kind(model: nn.Module, reads: InputKind) -> None:
    """Raise unless the model predicts the next token of what it reads."""
    description = describe(model)
    if description is not None and (description.input, description.output) != (reads, "next token"):
        who = "generate needs a Decoder" if reads == "text" else "translate needs an EncoderDecoder"
        raise ValueError(
            f"{who}: a model that reads a {reads} and predicts the next token, got a {type(model).__name__}, "
            f"which reads a {description.input} and gives a {description.output}"
        )


def check_prompt_length(model: nn.Module, n_prompt: int) -> None:
    """Raise unless a prompt of so many tokens can be read."""
    limit = max_tokens(model)
    if n_prompt < 1:
        raise ValueError("prompt must have at least one token, got none")
    if limit is not None and n_prompt > limit:
        raise ValueError(f"prompt must have at most {limit} tokens, the positions of the model, got {n_prompt}")


def check_length(model: nn.Module, n_prompt: int, max_new_tokens: int) -> None:
    """Positions may come to an end: better to say so before the work than in its middle."""
    check_positive(max_new_tokens=max_new_tokens)
    limit = max_tokens(model)
    if limit is not None and n_prompt + max_new_tokens > limit:
        raise ValueError(
            f"prompt and new tokens must fit into the {limit} positions of the model, "
            f"got {n_prompt} + max_new_tokens={max_new_tokens}"
        )


def check_token_ids(vocab: int, **ids: int | None) -> None:
    """Raise unless these ids are of the vocabulary (None: not given)."""
    for name, token in ids.items():
        if token is not None and not 0 <= token < vocab:
            raise ValueError(f"{name} must lie in 0 .. {vocab - 1}, got {token}")
