"""Rotary positions as config.json says them: `rope_parameters`, or `rope_theta` and `rope_scaling` of older folders."""

import math

from headwork import choices
from headwork.hub.settings import Settings

KINDS = ("default", "linear", "dynamic", "llama3", "yarn")


def read_rotary(
    settings: Settings, *, base: float = 10_000.0, fraction: float | None = None
) -> choices.RotaryPositions:
    """The positions that these settings mean; base and fraction are what the family has when they do not say.

    A family without a fraction rotates whole heads: transformers does, whatever `partial_rotary_factor` is.

    A folder that names no longest sequence has none. `dynamic` scaling begins only beyond the longest sequence, which
    is refused here, and up to there is no scaling.
    """
    settings.only(rope_interleaved=False)
    limit = read_limit(settings)
    base = settings.number("rope_theta", base)
    fraction = _read_fraction(settings, fraction)
    return read_parameters(_parameters(settings), base=base, fraction=fraction, limit=limit)


def read_limit(settings: Settings) -> int | None:
    if settings.value("max_position_embeddings") is None:
        return None
    return settings.count("max_position_embeddings", 1)


def read_parameters(
    rope: Settings, *, base: float, limit: int | None, fraction: float | None = None
) -> choices.RotaryPositions:
    """From the object `rope_parameters` itself."""
    scaling = _read_scaling(rope, limit)
    position = choices.RotaryPositions(
        base=rope.number("rope_theta", base),
        fraction=_read_fraction(rope, fraction) or 1.0,
        scaling=scaling,
        max_tokens=_longest(scaling, limit),
    )
    rope.close()
    return position


def _read_fraction(settings: Settings, fraction: float | None) -> float | None:
    if fraction is not None:
        return settings.number("partial_rotary_factor", fraction)
    settings.only(partial_rotary_factor=1.0)
    return None


def _parameters(settings: Settings) -> Settings:
    """The object with the settings of the rotation; the two names of it must not contradict each other."""
    given = [value for name in ("rope_parameters", "rope_scaling") if (value := settings.value(name)) is not None]
    for value in given:
        if not isinstance(value, dict):
            raise ValueError(f"rope_parameters must be an object, got {value!r}")
    if len(given) == 2 and given[0] != given[1]:
        raise ValueError(f"rope_parameters and rope_scaling must be equal, got {given[0]!r} and {given[1]!r}")
    return Settings(given[0] if given else {})  # type: ignore[arg-type]  # each is a dict


def _read_scaling(rope: Settings, limit: int | None) -> choices.RotaryScaling | None:
    kind = rope.value("rope_type", "default", alias="type")
    match kind:
        case "default":
            return None
        case "linear":
            return choices.LinearScaling(factor=_number(rope, "factor"))
        case "dynamic" if limit is not None:
            rope.harmless("factor", "original_max_position_embeddings")
            return None
        case "llama3":
            return choices.Llama3Scaling(
                factor=_number(rope, "factor"),
                original_max_tokens=rope.count("original_max_position_embeddings", 0),
                low=_number(rope, "low_freq_factor"),
                high=_number(rope, "high_freq_factor"),
            )
        case "yarn":
            return _read_yarn(rope, limit)
        case _:
            raise ValueError(f"rope_type must be one of {', '.join(KINDS)}, got {kind!r}")


def _read_yarn(rope: Settings, limit: int | None) -> choices.YarnScaling:
    original = rope.count("original_max_position_embeddings", limit or 0)
    factor = _number(rope, "factor")
    attention_factor = _number_or_none(rope, "attention_factor")
    scales = [_number_or_none(rope, name) for name in ("mscale", "mscale_all_dim")]
    if attention_factor is None and all(scales):
        above, below = (0.1 * (scale or 0.0) * math.log(max(factor, 1.0)) + 1 for scale in scales)
        attention_factor = above / below
    return choices.YarnScaling(
        factor=factor,
        original_max_tokens=original,
        fast=_number_or_none(rope, "beta_fast") or 32.0,
        slow=_number_or_none(rope, "beta_slow") or 1.0,
        attention_factor=attention_factor,
        whole_pairs=rope.flag("truncate", True),
    )


def _number(rope: Settings, name: str) -> float:
    if rope.value(name) is None:
        raise ValueError(f"{name} must be given with rope_type={rope.value('rope_type', alias='type')!r}, got None")
    return rope.number(name, 0.0)


def _number_or_none(rope: Settings, name: str) -> float | None:
    return None if rope.value(name) is None else rope.number(name, 0.0)


def _longest(scaling: choices.RotaryScaling | None, limit: int | None) -> int | None:
    """Folders that were extended by YaRN often name the longest sequence before it."""
    if limit is None or not isinstance(scaling, choices.YarnScaling):
        return limit
    return max(limit, math.floor(scaling.factor * scaling.original_max_tokens))


def write_rotary(position: object) -> dict[str, object]:
    """`rope_parameters` and `max_position_embeddings` of rotary positions, and of others the default."""
    if not isinstance(position, choices.RotaryPositions):
        position = choices.RotaryPositions()
    limit = {} if position.max_tokens is None else {"max_position_embeddings": position.max_tokens}
    return {"rope_parameters": write_parameters(position), **limit}


def write_parameters(position: choices.RotaryPositions) -> dict[str, object]:
    part = {} if position.fraction == 1 else {"partial_rotary_factor": position.fraction}
    return {**_write_scaling(position.scaling), "rope_theta": position.base, **part}


def _write_scaling(scaling: choices.RotaryScaling | None) -> dict[str, object]:
    match scaling:
        case choices.LinearScaling():
            return {"rope_type": "linear", "factor": scaling.factor}
        case choices.Llama3Scaling():
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_max_tokens,
                "low_freq_factor": scaling.low,
                "high_freq_factor": scaling.high,
            }
        case choices.YarnScaling():
            factor = scaling.attention_factor
            return {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_max_tokens,
                "beta_fast": scaling.fast,
                "beta_slow": scaling.slow,
                **({} if factor is None else {"attention_factor": factor}),
                "truncate": scaling.whole_pairs,
            }
        case choices.NTKScaling() | None:  # NTK with a fixed factor has no name there: it is lost, and so refused
            return {"rope_type": "default"}
