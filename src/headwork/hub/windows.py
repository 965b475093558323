"""Which layers have a sliding window: `layer_types`, a name for each layer, or the rule of the family."""

from collections.abc import Sequence

from headwork import choices
from headwork.hub.settings import Settings

FULL, SLIDING = "full_attention", "sliding_attention"


def read_window(
    settings: Settings, n_layers: int, *, default: int | None, layers: Sequence[int]
) -> choices.SlidingWindow | None:
    """The window of these settings; `layers` are those that have one where the settings do not say."""
    local = tuple(layers)
    kinds = settings.value("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != n_layers or any(kind not in (FULL, SLIDING) for kind in kinds):
            raise ValueError(f"layer_types must be {FULL} or {SLIDING} for each of {n_layers} layers, got {kinds!r}")
        local = tuple(i for i, kind in enumerate(kinds) if kind == SLIDING)
    size = settings.value("sliding_window", default)
    if size is None and kinds is not None and local:
        raise ValueError(f"sliding_window must be given with layer_types={kinds!r}, got None")
    if size is None or not local:
        return None
    return choices.SlidingWindow(n_tokens=settings.count("sliding_window", default or 1), layers=local)


def write_window(window: choices.SlidingWindow | None, n_layers: int) -> dict[str, object]:
    if window is None:
        return {"sliding_window": None, "layer_types": [FULL] * n_layers}
    local = range(n_layers) if window.layers is None else window.layers
    kinds = [SLIDING if i in local else FULL for i in range(n_layers)]
    return {"sliding_window": window.n_tokens, "layer_types": kinds}
