"""Folders and files of others, damaged in every way: for a test of a few, and for `make torture` of thousands."""

import copy
import io
import json
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headwork.hub import ImagePreprocessing, PretrainedTokenizer, load_pretrained
from headwork.storage import DamagedError

from .checkpoints import CHECKPOINTS
from .test_gguf import Q, write, write_byte_pairs
from .test_vocabularies import VOCABULARIES

REFUSALS = (ValueError, DamagedError)
"""In words; everything else that is raised is a traceback for the user."""
NASTY: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 2**31, 2**63, 10**30, -(2**70), 0.5, 1e308, -1e-300, float("nan")),
    *(float("inf"), "", "x", "true", "../../etc/passwd", "\x00", "gelu", "\ud83e", [], {}, [[]], [1, 2, 3], {"a": 1}),
    *([0] * 50, "n" * 10**5, {str(i): i for i in range(100)}, {"__class__": "os.system"}),
]
TEXT = "Some words, 注意 🤖 e\u0301 and 123.\n"


@dataclass(frozen=True)
class Target:
    """A file that somebody may have damaged, and how the folder is used afterwards."""

    kind: str
    folder: Path
    name: str
    use: Callable[[Path], object]

    @property
    def path(self) -> Path:
        return self.folder / self.name


def use_model(folder: Path) -> None:
    model = load_pretrained(folder)
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())


def use_gguf(folder: Path) -> None:
    use_model(folder / "model.gguf")
    use_tokenizer(folder / "model.gguf")


def use_tokenizer(folder: Path) -> None:
    tokenizer = PretrainedTokenizer.load(folder)
    tokenizer.decode(tokenizer.encode(TEXT))


def make_targets(root: Path) -> list[Target]:
    """One folder for each kind of file, made by the libraries that usually make them."""
    targets = []

    def add(kind: str, folder: Path, use: Callable[[Path], object], *names: str) -> None:
        targets.extend(Target(kind, folder, name, use) for name in names)

    for name in ("bert-classes", "gpt2", "t5", "vit"):
        folder = root / name
        CHECKPOINTS[name].make().float().save_pretrained(folder)
        add("safetensors", folder, use_model, "model.safetensors")
        add("config.json", folder, use_model, "config.json")
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 12}, "resample": 2}
    (root / "vit" / "preprocessor_config.json").write_text(json.dumps(settings | {"image_mean": [0.5] * 3}))
    add("preprocessor_config.json", root / "vit", ImagePreprocessing.load, "preprocessor_config.json")

    CHECKPOINTS["llama"].make().float().save_pretrained(root / "shards", max_shard_size="12KB")
    add("index of shards", root / "shards", use_model, "model.safetensors.index.json")

    model = CHECKPOINTS["distilbert-classes"].make().float()
    model.save_pretrained(root / "pickle")
    (root / "pickle" / "model.safetensors").unlink()
    torch.save(model.state_dict(), root / "pickle" / "pytorch_model.bin")
    add("pytorch_model.bin", root / "pickle", use_model, "pytorch_model.bin")

    CHECKPOINTS["bert"].make().float().save_pretrained(root / "sentences")
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"))
    ]
    (root / "sentences" / "modules.json").write_text(json.dumps(modules))
    (root / "sentences" / "1_Pooling").mkdir()
    (root / "sentences" / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    add("modules.json", root / "sentences", use_model, "modules.json", "1_Pooling/config.json")

    (root / "gguf").mkdir()
    write(root / "gguf" / "model.gguf", kind=Q.Q8_0, more=lambda writer: write_byte_pairs(writer, root / "gguf"))
    add("GGUF", root / "gguf", use_gguf, "model.gguf")

    for name in ("bert", "gpt2", "t5", "llama"):
        folder = root / f"{name}-words"
        folder.mkdir()
        VOCABULARIES[name][1](folder)
        (folder / "config.json").write_text(json.dumps({"model_type": name}))
        files = sorted(path.name for path in folder.iterdir() if path.name != "config.json")
        add("older tokenizers", folder, use_tokenizer, *files)
        (root / f"{name}-json").mkdir()
        PretrainedTokenizer.load(folder).tokenizer.save(str(root / f"{name}-json" / "tokenizer.json"))
        add("tokenizer.json", root / f"{name}-json", use_tokenizer, "tokenizer.json")
    return targets


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged(target: Target, whole: bytes, chance: random.Random, canary: Path) -> tuple[str, bytes]:
    """What was done, and the bytes of the damaged file."""
    ways: list[Callable[[bytes, random.Random], bytes]] = [flip, overwrite, cut, insert, extend, blank]
    is_json = target.name.endswith(".json")
    if is_json:
        ways += [change_json] * 8
    if target.kind == "safetensors":
        ways += [change_header] * 8
    if target.kind == "GGUF":
        ways += [flip_early] * 6
    if target.kind == "pytorch_model.bin":
        ways += [partial(hostile, canary)] * 8
    way = chance.choice(ways)
    return getattr(way, "__name__", "hostile"), way(whole, chance)


def flip(data: bytes, chance: random.Random) -> bytes:
    bit = chance.randrange(8 * len(data))
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def flip_early(data: bytes, chance: random.Random) -> bytes:
    """Where the counts and lengths are."""
    start = data[: min(4096, len(data))]
    for _ in range(chance.randint(1, 3)):
        start = flip(start, chance)
    return start + data[len(start) :]


def overwrite(data: bytes, chance: random.Random) -> bytes:
    at, n = chance.randrange(len(data)), chance.choice((1, 2, 4, 8, 64, 1024))
    new = chance.choice((chance.randbytes(n), b"\xff" * n, bytes(n)))
    return data[:at] + new + data[at + n :]


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.choice((0, 1, 7, 8, 9, chance.randrange(len(data)), len(data) - 1))]


def insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + chance.randbytes(chance.choice((1, 3, 100))) + data[at:]


def extend(data: bytes, chance: random.Random) -> bytes:
    return data + chance.choice((b"\x00", b"more", chance.randbytes(1000), data))


def blank(data: bytes, chance: random.Random) -> bytes:
    return chance.choice(
        (b"", b"{}", b"[]", b"null", bytes(len(data)), b"\x80\x04.", b"PK\x03\x04" + bytes(60), b"GGUF")
    )


def change_json(data: bytes, chance: random.Random) -> bytes:
    """One place or several hold something else, are missing, or are one more."""
    if chance.random() < 0.05:
        return b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    changed = json.loads(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        holder, key = chance.choice(list(places(changed)) or [({"": changed}, "")])
        how = chance.random()
        if how < 0.15 and isinstance(holder, dict):
            holder.pop(key, None)
        elif how < 0.25 and isinstance(holder, dict):
            holder[chance.choice(("unknown", "quantization_config", "added"))] = copy.deepcopy(chance.choice(NASTY))
        else:
            holder[key] = copy.deepcopy(chance.choice(NASTY))
    return json.dumps(changed).encode(errors="surrogatepass")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def change_header(data: bytes, chance: random.Random) -> bytes:
    (length,) = struct.unpack("<Q", data[:8])
    header = change_json(data[8 : 8 + length], chance)
    stated = chance.choice((len(header), len(header), len(header), 2**63, 10**9, 0))
    return struct.pack("<Q", stated) + header + data[8 + length :]


class Runs:
    """A pickle of this calls a function when it is opened as Python does."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


def hostile(canary: Path, data: bytes, chance: random.Random) -> bytes:
    """Pickles that would run something, make something huge, or hold what is no plain tensor."""
    import os
    import subprocess

    write = f"open({str(canary)!r}, 'w').write('ran')"
    ones = torch.ones(2, 3)
    made = chance.choice(
        [
            lambda: Runs(os.system, f"touch {canary}"),
            lambda: Runs(eval, write),
            lambda: Runs(exec, write),
            lambda: Runs(subprocess.Popen, ["touch", str(canary)]),
            lambda: Runs(Path.touch, canary),
            lambda: Runs(getattr, torch, "load"),
            lambda: Runs(torch.load, str(canary)),
            lambda: Runs(torch.empty, 10**12),
            lambda: Runs(bytearray, 10**10),
            lambda: {"a": Runs(os.system, f"touch {canary}")},
            lambda: {"a": ones.to_sparse()},
            lambda: {"a": ones.to("meta")},
            lambda: {"a": ones.bool()},
            lambda: {"a": torch.ones(1).expand(2**20, 2**20)},
            lambda: {"a": ones.to(torch.complex64)},
            lambda: {"a": ones * float("nan")},
            lambda: {"a": [ones]},
            lambda: {1: ones, None: ones},
            lambda: [ones],
            lambda: ones,
            lambda: "text",
            lambda: {"a": {"b": {"c": ones}}},
            lambda: torch.nn.Linear(2, 3),
        ]
    )()
    file = io.BytesIO()
    try:
        if chance.random() < 0.3:
            return pickle.dumps(made, protocol=chance.choice((2, 4)))
        torch.save(made, file, _use_new_zipfile_serialization=chance.random() < 0.8)
    except Exception:  # what cannot be saved
        return pickle.dumps("text")
    data = file.getvalue()
    if chance.random() < 0.2 and zipfile.is_zipfile(io.BytesIO(data)):
        return compressed(data)
    return data


def compressed(data: bytes) -> bytes:
    """The same zip with its parts deflated, and a gigabyte of zeros among them."""
    new = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped,
    ):
        for name in old.namelist():
            content = old.read(name)
            zipped.writestr(name, content if "/data/" not in name else bytes(2**26))
    return new.getvalue()


def attempt(target: Target, data: bytes, canary: Path) -> str | None:
    """What went wrong when a damaged file was used; None if it was refused in words, or still says something whole."""
    whole = target.path.read_bytes()
    target.path.write_bytes(data)
    try:
        target.use(target.folder)
    except REFUSALS as error:
        if not str(error):
            return "an error without words"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        target.path.write_bytes(whole)
    return "something in the file ran" if canary.exists() else None
