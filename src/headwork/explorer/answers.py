"""An answer is a row of parts: each a header, which is JSON, and arrays; on the wire a part is a frame of bytes.

    u32 length of the header | header | for each array its bytes, each padded to a multiple of 8

all numbers with the smallest byte first, and the header padded with spaces to a multiple of 8 (less the 4 bytes of its
length), so that a page can look at the bytes as arrays without copying. The header lists the arrays in order:
`"arrays": [{"name": "weights", "dtype": "float32", "shape": [5, 5]}]`, and has a `kind`: `part` (there may be more),
`done` (no more, and nothing in it), `superseded`, or `refused` with a `sentence`.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray
from torch import Tensor

DTYPES = ("float32", "uint8", "int32")


@dataclass(frozen=True, eq=False)
class Part:
    """A header and the arrays that belong to it."""

    header: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Shaped[ndarray, "..."]] = field(default_factory=dict)


DONE, SUPERSEDED = Part({"kind": "done"}), Part({"kind": "superseded"})


def refused(sentence: str) -> Part:
    return Part({"kind": "refused", "sentence": sentence})


def part(header: Mapping[str, Any], **arrays: Tensor | Shaped[ndarray, "..."]) -> Part:
    """A part with tensors as arrays: floating point as float32, whole numbers as int32, bytes as they are."""
    return Part({"kind": "part", **header}, {name: _as_array(value) for name, value in arrays.items()})


def encode(answer: Part) -> bytes:
    """The frame of a part.

    >>> len(encode(Part({"kind": "done"})))
    40
    """
    about = [{"name": name, "dtype": str(a.dtype), "shape": list(a.shape)} for name, a in answer.arrays.items()]
    text = json.dumps({**_finite(answer.header), "arrays": about}, ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % 8)
    frame = [struct.pack("<I", len(text)), text]
    for array in answer.arrays.values():
        if str(array.dtype) not in DTYPES:
            raise TypeError(f"an array must be of {', '.join(DTYPES)}, got {array.dtype}")
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        frame += [data, b"\0" * (-len(data) % 8)]
    return b"".join(frame)


def decode(data: bytes) -> Iterator[Part]:
    """The parts in the bytes of whole frames; what `encode` wrote.

    >>> [found] = decode(encode(Part({"kind": "part"}, {"x": np.zeros((2, 3), np.float32)})))
    >>> found.arrays["x"].shape
    (2, 3)
    """
    start = 0
    while start < len(data):
        (length,) = struct.unpack_from("<I", data, start)
        header = json.loads(data[start + 4 : start + 4 + length])
        start += 4 + length
        arrays = {}
        for about in header.pop("arrays"):
            dtype, count = np.dtype(about["dtype"]).newbyteorder("<"), math.prod(about["shape"])
            arrays[about["name"]] = np.frombuffer(data, dtype, count, start).reshape(about["shape"])
            start += count * dtype.itemsize
            start += -start % 8
        yield Part(header, arrays)


def _as_array(value: Tensor | Shaped[ndarray, "..."]) -> Shaped[ndarray, "..."]:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    kind = {"f": np.float32, "i": np.int32, "b": np.uint8, "u": np.uint8}[array.dtype.kind]
    return array.astype(kind, copy=False)


def _finite(value: Any) -> Any:
    """JSON has no NaN: such numbers travel as the words that name them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
