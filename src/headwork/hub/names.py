"""Whose tensor is whose: one table for each family, read in one direction to load and in the other to save.

>>> names = Names({"wte.weight": "embedding.table", "h.{i}.mlp.c_fc": Transposed("layers.{i}.feed_forward.up")})
>>> ours = {"embedding.table": torch.zeros(5, 2), "layers.0.feed_forward.up.weight": torch.zeros(3, 2)}
>>> [(name, tuple(tensor.shape)) for name, tensor in names.write(ours).items()]
[('wte.weight', (5, 2)), ('h.0.mlp.c_fc.weight', (2, 3))]
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

TAIL = r"(?P<tail>\.weight|\.bias|)"


@runtime_checkable
class Rule(Protocol):
    """How tensors of theirs become tensors of ours (`read`) and back (`write`); most often one becomes one."""

    @property
    def ours(self) -> str | tuple[str, ...]:
        """Our name, or names."""

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        """Our tensors, with the shapes of `like`."""

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Their tensors."""


@dataclass(frozen=True)
class Same:
    """The same tensor; theirs may have axes of length 1 in front."""

    ours: str
    n_ones: int = 0

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        return [theirs[0].reshape(like[0].shape)]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [ours[0].reshape(*[1] * self.n_ones, *ours[0].shape)]


@dataclass(frozen=True)
class Transposed:
    """A matrix that theirs has as (in, out) and ours as (out, in); a bias has one axis, and stays.

    Several of ours are side by side in one of theirs, as in GPT-2's `c_attn`.
    """

    ours: str | tuple[str, ...]

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        return list(torch.split(_transpose(theirs[0]), [len(tensor) for tensor in like]))

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [_transpose(joined(ours))]


@dataclass(frozen=True)
class LaterRows:
    """A table whose first rows nobody uses: RoBERTa counts its positions from the id of the padding on."""

    ours: str
    n_unused: int

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        return [theirs[0][self.n_unused :]]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [joined([ours[0].new_zeros(self.n_unused, ours[0].shape[1]), ours[0]])]


@dataclass(frozen=True)
class SideBySide:
    """Several matrices of ours, one under the other in one of theirs, as in Phi-3's `qkv_proj`."""

    ours: tuple[str, ...]

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        return list(torch.split(theirs[0], [len(tensor) for tensor in like]))

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [joined(ours)]


@dataclass(frozen=True)
class GroupedHeads:
    """Query, key and value in one matrix of theirs, by groups: the queries of a group, then its key and its value.

    There are as many groups as heads in GPT-NeoX, one in Falcon 7B, and some in Falcon 40B.
    """

    ours: tuple[str, ...]
    n_groups: int

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        n_rows = [len(tensor) // self.n_groups for tensor in like]
        by_group = theirs[0].reshape(self.n_groups, sum(n_rows), *theirs[0].shape[1:])
        return [part.flatten(0, 1) for part in torch.split(by_group, n_rows, dim=1)]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        by_group = [tensor.reshape(self.n_groups, -1, *tensor.shape[1:]) for tensor in ours]
        return [joined(by_group, dim=1).flatten(0, 1)]


@dataclass(frozen=True)
class OneLess:
    """A norm that multiplies by 1 + weight there, and by the weight here: Gemma."""

    ours: str

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        return [theirs[0].to(torch.promote_types(theirs[0].dtype, torch.float32)) + 1]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [ours[0].clone().sub_(1)]


@dataclass(frozen=True)
class Zeros:
    """Zeros, where files may have no tensor for it."""

    ours: str

    def read(self, theirs: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        return [torch.zeros(like[0].shape)]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return []


@dataclass(frozen=True)
class Match:
    """A rule with the names that it has in one model."""

    rule: Rule
    theirs: tuple[str, ...]
    ours: tuple[str, ...]


Table = Mapping[str | tuple[str, ...], str | Rule]


@dataclass(frozen=True)
class Alternative:
    """What stands in some files in the place of an entry of the table."""

    theirs: tuple[str, ...]
    rule: Rule


Alternatives = Mapping[str | tuple[str, ...], Alternative]

HEADS = (
    *("classification_head", "classifier", "cls", "cls_classifier", "distillation_classifier", "lm_head"),
    *("multiple_choice_head", "pooler", "pre_classifier", "qa_outputs", "score"),
    *("vocab_layer_norm", "vocab_projector", "vocab_transform"),
)
"""What Hugging Face puts on a model: a file may have heads that the model here is built without."""


@dataclass(frozen=True)
class Names:
    """The table of a family: their name (or names) and ours.

    `{i}` stands for the number of a layer, and a name without `.weight` or `.bias` for both. `prefix` is that of their
    model without a head, which files may leave out. `copies` are tensors that a file may have once more, each with the
    name it is a copy of; `ignored` are buffers, which are no weights; `left_out` are weights of no use here, as are
    those of other heads (`HEADS`). `instead` has entries for files that lack those of the table; `old_endings` are
    those of old files.
    """

    table: Table
    prefix: str = ""
    copies: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    instead: Alternatives = field(default_factory=dict)
    old_endings: Mapping[str, str] = field(default_factory=dict)

    def of_files(self, files: Collection[str]) -> "Names":
        """The same with the entries that these files have."""
        table: dict[str | tuple[str, ...], str | Rule] = {}
        for theirs, entry in self.table.items():
            other = self.instead.get(theirs)
            if other is None or any(self.find(name, files) for name in _names(theirs)):
                table[theirs] = entry
            else:
                table[other.theirs] = other.rule
        return replace(self, table=table)

    def matches(self, ours: Mapping[str, Tensor]) -> Iterator[Match]:
        """The rules for the tensors of a model, each of which has exactly one."""
        left = dict.fromkeys(ours)
        yield from self._matches(left)
        if left:
            raise ValueError(f"the table of names must have all tensors of the model, and has no {', '.join(left)}")

    def without_rule(self, ours: Mapping[str, Tensor]) -> list[str]:
        """The tensors of a model that have none."""
        left = dict.fromkeys(ours)
        for _ in self._matches(left):
            pass
        return list(left)

    def _matches(self, left: dict[str, None]) -> Iterator[Match]:
        """The rules for the names, each of which is taken out."""
        for theirs, entry in self.table.items():
            rule = Same(entry) if isinstance(entry, str) else entry
            first = re.compile(_pattern(_names(rule.ours)[0]))
            for found in [found for name in left if (found := first.fullmatch(name))]:
                match = Match(rule, _fill(_names(theirs), found), _fill(_names(rule.ours), found))
                for name in match.ours:
                    left.pop(name)
                yield match

    def write(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their tensors by their names, those of a model without a head without the prefix."""
        written = {
            name: tensor
            for match in self.matches(ours)
            for name, tensor in zip(match.theirs, match.rule.write([ours[n] for n in match.ours]), strict=True)
        }
        if all(name.startswith(self.prefix) for name in written):
            return {name.removeprefix(self.prefix): tensor for name, tensor in written.items()}
        return written

    def find(self, name: str, files: Collection[str]) -> str | None:
        """What a tensor of theirs is called in the files; None if it is not there, nor a copy of it."""
        same = [name, *(copy for copy, original in self.copies.items() if original == name)]
        spelled = [spelling for each in same for spelling in self._spellings(each)]
        return next((spelling for spelling in spelled if spelling in files), None)

    def copies_in(self, name: str, files: Collection[str]) -> list[str]:
        """The other tensors of the files that must be equal to this one of theirs."""
        same = [name, *(copy for copy, original in self.copies.items() if original == name)]
        found = [spelling for each in same for spelling in self._spellings(each) if spelling in files]
        return [spelling for spelling in found if spelling != self.find(name, files)]

    def is_ignored(self, name: str) -> bool:
        """Whether this tensor of the files is no weight."""
        return self._is_one_of(self.ignored, name)

    def is_left_out(self, name: str) -> bool:
        """Whether this tensor is a weight of a head that the model here does not have."""
        known = {self._root(name) for theirs in (*self.table, *self.copies) for name in _names(theirs)}
        root = self._root(name)
        return (root in HEADS and root not in known) or self._is_one_of(self.left_out, name)

    def _root(self, name: str) -> str:
        return name.removeprefix(self.prefix).partition(".")[0]

    def _is_one_of(self, patterns: Sequence[str], name: str) -> bool:
        spelled = [pattern for each in patterns for pattern in {each, each.removeprefix(self.prefix)}]
        return any(re.fullmatch(_pattern(pattern), name) for pattern in spelled)

    def _spellings(self, name: str) -> Iterator[str]:
        for spelling in dict.fromkeys((name, name.removeprefix(self.prefix))):
            yield spelling
            for old, new in self.old_endings.items():
                if spelling.endswith(new):
                    yield spelling.removesuffix(new) + old


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _pattern(name: str) -> str:
    return re.escape(name).replace(r"\{i\}", r"(?P<i>\d+)") + TAIL


def _fill(names: tuple[str, ...], found: re.Match[str]) -> tuple[str, ...]:
    return tuple(name.replace("{i}", found.groupdict().get("i") or "") + found["tail"] for name in names)


def joined(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """`torch.cat`; of tensors on the meta device without it: for them PyTorch would load its compiler, for a second."""
    first = tensors[0]
    if not first.is_meta:
        return torch.cat(list(tensors), dim=dim)
    shape = list(first.shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return first.new_empty(shape)


def _transpose(tensor: Tensor) -> Tensor:
    return tensor.T if tensor.ndim == 2 else tensor
