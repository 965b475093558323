"""The names of the points inside a model: one for each module, standing for what the module returns."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from torch import nn

from headwork.checks import nearest


def named_points(model: nn.Module) -> dict[str, nn.Module]:
    """The modules of a model by name; the model itself, whose name is empty, is called `output`.

    >>> list(named_points(nn.Sequential(nn.Linear(3, 5), nn.ReLU())))
    ['output', '0', '1']
    """
    return {name or "output": module for name, module in model.named_modules()}


def choose_points(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that match any of the patterns, in which `*` stands for anything; each pattern has to match one.

    >>> choose_points(["layers.0.attention", "layers.1.attention", "lm_head"], ["layers.*"])
    ['layers.0.attention', 'layers.1.attention']
    """
    names, patterns = list(names), list(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"no point is called {pattern!r}{nearest(pattern, names)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def check_not_compiled(points: dict[str, nn.Module], chosen: Iterable[str], action: str) -> None:
    """A compiled module runs as one piece, so no hook inside it would be called."""
    compiled = [name for name, module in points.items() if _is_compiled(module)]
    for name in chosen:
        for outer in compiled:
            if outer == "output" or f"{name}.".startswith(f"{outer}."):
                where = "a compiled model" if outer == "output" else f"{outer}, which is compiled"
                raise ValueError(
                    f"{action} cannot look into {where}: its modules no longer run one by one. "
                    f"Use the model that was given to torch.compile, and call that"
                )


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def check_no_cache(action: str, keywords: Mapping[str, object]) -> None:
    """Whoever calls a model several times must not be given the cache of one call."""
    if keywords.get("cache") is not None:
        raise ValueError(f"{action} calls the model several times: leave out cache, and pass the whole text")
