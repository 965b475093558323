"""Every intermediate of a model with its name, axes and shape: the table a student draws by hand."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from headwork.checks import nearest
from headwork.inspection.recording import check_inputs, named_points, record
from headwork.models.model import evaluation_mode
from headwork.tables import Table


@dataclass(frozen=True)
class Row:
    """One intermediate."""

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Trace:
    """The intermediates in the order in which the model made them; print it, or ask for one by name."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no intermediate is called {name!r}{nearest(name, [row.name for row in self.rows])}")

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        rows = [(row.name, str(list(row.shape)) if row.shape else "", " ".join(row.axes)) for row in self._folded()]
        return Table(("name", "shape", "axes"), tuple(rows)).html()

    def text(self, *, fold: bool = True, axes: bool = True) -> str:
        """The table as text; layers that are alike are listed once unless `fold` is False."""
        rows = self._folded() if fold else self.rows
        shown = [
            (row.name, str(list(row.shape)), " ".join(row.axes) if axes else "")
            if row.shape
            else (row.name, " ".join(row.axes), "")
            for row in rows
        ]
        name, shape = (max((len(row[i]) for row in shown), default=0) for i in (0, 1))
        return "\n".join(f"{row[0]:<{name}}  {row[1]:<{shape}}  {row[2]}".rstrip() for row in shown)

    def _folded(self) -> list[Row]:
        """The rows with all but the first of the layers that are alike replaced by a row that says so."""
        kept: list[Row] = []
        for stack, layers in self._by_stack():
            first, *others = layers.values()
            kept.extend(first)
            if others and all(_inside(rows) == _inside(first) for rows in others):
                start, *_, end = [f"{stack}.{number}" for number in layers][1:] * 2
                kept.append(Row(start if start == end else f"{start} ... {end}", ("like", f"{stack}.0"), ()))
            else:
                kept.extend(row for rows in others for row in rows)
        return kept

    def _by_stack(self) -> Iterator[tuple[str | None, dict[int, list[Row]]]]:
        """Neighbouring rows of the same stack of layers together, by the number of their layer."""
        for stack, rows in groupby(self.rows, key=lambda row: _layer_of(row.name)[0]):
            layers: dict[int, list[Row]] = {}
            for row in rows:
                layers.setdefault(_layer_of(row.name)[1], []).append(row)
            yield stack, layers


def trace(model: nn.Module, *inputs: Tensor, **keywords: object) -> Trace:
    """Run the model once and list every intermediate that has named axes; if none has, the output of every module.

    The run is in evaluation mode and without gradients; the model is left as it was. Attention weights are listed
    without being computed.

    >>> attention = hw.layers.MultiHeadAttention(d_model=768, n_heads=12)
    >>> x = torch.randn(1, 5, 768)
    >>> print(trace(attention, x, x))
    queries  [1, 5, 12, 64]  batch query head d_head
    keys     [1, 5, 12, 64]  batch key head d_head
    values   [1, 5, 12, 64]  batch key head d_value
    scores   [1, 12, 5, 5]   batch head query key
    weights  [1, 12, 5, 5]   batch head query key
    heads    [1, 5, 12, 64]  batch query head d_value
    output   [1, 5, 768]     batch query d_model
    """
    check_inputs("trace", model, inputs, keywords)
    named = {name: getattr(module, "axes", None) for name, module in named_points(model).items()}
    axes = {name: tuple(words.split()) for name, words in named.items() if isinstance(words, str)}
    with evaluation_mode(model), torch.no_grad(), record(model, *axes) as seen:
        model(*inputs, **keywords)
    rows = [Row(name, axes.get(name, ()), seen.shape(name)) for name in seen]
    for row in rows if axes else ():
        assert len(row.axes) == len(row.shape), f"{row.name} says it has the axes {row.axes}, but has {row.shape}"
    return Trace(tuple(rows))


def _layer_of(name: str) -> tuple[str | None, int]:
    found = re.match(r"(.*?)\.(\d+)(?:\.|$)", name)
    return (found[1], int(found[2])) if found else (None, 0)


def _inside(rows: list[Row]) -> list[tuple[str, tuple[int, ...]]]:
    return [(re.sub(r"\.\d+", "", row.name, count=1), row.shape) for row in rows]
