"""What the folder of a run must survive: flipped bits, malformed files under a right manifest, links (`make torture`).

Held means: refused in a sentence that names the file or its folder, in less than 5 seconds and 1 GB, or nothing is
changed by it; failed is everything else: accepted, a traceback, a file outside that is not what it was.
"""

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils.tensorboard  # imported here so that no child has to
from safetensors.torch import load_file, save_file
from tests.forks import start, wait
from tests.storage.sealing import seal_again
from tests.training.small_runs import StopAfter, small_run
from tests.training.test_hostile_folder import WRONG_STATES, edit, learner_of

from headwork import choices, load, save
from headwork.convert import to_attention, to_convolution
from headwork.models import GaussianImageEncoderConfig, ResNetConfig, VisionTransformerConfig
from headwork.storage import DamagedError
from headwork.storage.metrics_log import METRICS, read_metrics
from headwork.storage.sealed_json import sealed
from headwork.training import Run, StoppedError, open_run, train_run
from headwork.training.checkpoints import checkpoints, find_whole, load_checkpoint
from headwork.training.recorder import WatchCentres, read_centres

MOST_SECONDS, MOST_BYTES = 5.0, 2**30
Row = dict[str, int]


@dataclass(frozen=True)
class Case:
    """What is done to a folder, and how somebody then uses it."""

    name: str
    spoil: Callable[[], object]
    use: Callable[[], object]


def try_in_child(case: Case, folder: Path, output: Path) -> str:
    """What became of a case: "held", or what went wrong."""

    def work() -> int:
        case.spoil()
        begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            case.use()
            said = "accepted"
        except (ValueError, DamagedError, OSError) as error:
            said = "held" if str(folder) in str(error) else f"it does not name the file: {error}"
        except BaseException as error:
            said = f"a traceback: {type(error).__name__}: {error}"
        seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if said == "held" and (seconds > MOST_SECONDS or 1024 * (after - before) > MOST_BYTES):
            said = f"{seconds:.1f} s and {(after - before) // 1024} MB"
        output.write_text(said)
        return 0

    output.unlink(missing_ok=True)
    code = wait(start(work, output.with_suffix(".log")), seconds=60)
    return output.read_text() if output.exists() else f"the process ended with {code}"


def try_all(what: str, cases: list[Case], folder: Path, restore: Callable[[], object]) -> Row:
    count: Counter[str] = Counter(tried=0, held=0, failed=0)
    for case in cases:
        restore()
        said = try_in_child(case, folder, folder.with_name("said.txt"))
        count.update(tried=1, held=said == "held", failed=said != "held")
        if said != "held":
            print(f"{what}, {case.name}: {said[:300]}", file=sys.stderr)
    return dict(count)


def restoring(folder: Path) -> Callable[[], object]:
    """A call that makes the folder again as it is now."""
    kept = folder.with_name(f"{folder.name}-kept")
    shutil.copytree(folder, kept)

    def restore() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder, symlinks=True)

    return restore


def write_run(folder: Path, kind: Any, **settings: object) -> Run:
    """A run that was stopped in its middle."""
    run = small_run(folder, kind, **settings)
    with contextlib.suppress(StoppedError):
        train_run(run, stop=StopAfter(7), watchers=[WatchCentres(folder / "heads.jsonl")])
    return run


# --- Flipped bits -----------------------------------------------------------------------------------------------------


def meaning(folder: Path) -> list[object]:
    """All that anybody reads of a run; a damaged checkpoint that is named and not used changes nothing."""
    weights = hashlib.sha256()
    for tensor in load(folder).state_dict().values():
        weights.update(tensor.numpy().tobytes())
    newest, problems = find_whole(folder)
    if problems:
        raise DamagedError("; ".join(problems.values()))
    return [open_run(folder).files(), read_metrics(folder / METRICS), read_centres(folder), weights.hexdigest(), newest]


def flip_all(root: Path, n_flips: int) -> dict[str, Row]:
    """Flip one bit at a time, in each file as often as in any other."""
    chance, rows = random.Random(0), {}
    for kind in ("gaussian", "gpt"):
        folder = write_run(root / kind, kind).folder
        true = meaning(folder)
        read = [*folder.glob("*.json*"), *folder.glob("checkpoints/**/*.json"), *folder.glob("**/*.safetensors")]
        for path in sorted({path.relative_to(folder) for path in read if path.is_file()}):
            count: Counter[str] = Counter(tried=0, refused=0, same=0, failed=0)
            whole = (folder / path).read_bytes()
            names = [str(other) for other in folder.rglob("*") if other.samefile(folder / path)]  # links to the best
            for _ in range(n_flips):
                bit = chance.randrange(8 * len(whole))
                changed = whole[bit // 8] ^ 1 << bit % 8
                (folder / path).write_bytes(whole[: bit // 8] + bytes([changed]) + whole[bit // 8 + 1 :])
                try:
                    became, said = "same" if meaning(folder) == true else "failed", "another meaning"
                except (DamagedError, ValueError) as error:
                    became, said = "refused" if any(name in str(error) for name in names) else "failed", str(error)
                except Exception as error:
                    became, said = "failed", f"a traceback: {type(error).__name__}: {error}"
                count.update({"tried": 1, became: 1})
                if became == "failed":
                    print(f"{path}, bit {bit}: {said}", file=sys.stderr)
            (folder / path).write_bytes(whole)
            rows[f"{kind}: {path}"] = dict(count)
        assert meaning(folder) == true
    return rows


# --- Malformed files under a right manifest ---------------------------------------------------------------------------


def header(entries: object, data: bytes = bytes(64)) -> bytes:
    """A file of safetensors with this header."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(**changes: object) -> bytes:
    return header({"weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]} | changes})


BROKEN_TENSORS: dict[str, bytes] = {
    "nothing": b"",
    "seven bytes": bytes(7),
    "zeros": bytes(80),
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "a zip": b"PK\x03\x04" + bytes(80),
    "a header without end": struct.pack("<Q", 2**63) + b"{}",
    "a header longer than the file": struct.pack("<Q", 1000) + b"{}",
    "a header that is no JSON": header(b"{"),
    "a header that is a list": header([]),
    "a header that is no UTF-8": header(b'{"\xff": 1}'),
    "a deep header": header(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "a long name": header({"n" * 10**6: {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}),
    "a header of spaces": header(b" " * 10**7 + b"{}"),
    "no tensors": header({}, b""),
    "no dtype": header({"weight": {"shape": [16], "data_offsets": [0, 64]}}),
    "an unknown dtype": one(dtype="F31"),
    "a dtype that is a number": one(dtype=5),
    "a dtype of four bits": one(dtype="F4", shape=[128]),
    "a negative shape": one(shape=[-4, -4]),
    "a shape of fractions": one(shape=[4.5, 4]),
    "a shape that overflows": one(shape=[2**62, 4]),
    "a shape of 10**30": one(shape=[10**30]),
    "a shape that is a number": one(shape=16),
    "offsets the wrong way": one(data_offsets=[64, 0]),
    "offsets past the end": one(data_offsets=[0, 2**40]),
    "offsets that are negative": one(data_offsets=[-64, 0]),
    "three offsets": one(data_offsets=[0, 32, 64]),
    "a hole": one(data_offsets=[32, 96]),
    "two in one place": header(
        {n: {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]} for n in ("weight", "bias")}
    ),
    "more behind the end": one() + b"more",
    "the same name twice": header(
        b'{"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]},'
        b' "w": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}'
    ),
    "metadata that is a number": header({"__metadata__": 5}),
    "weights of something else": one(),
}


def retyped(dtype: torch.dtype) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda tensors: tensors.update({"classifier.weight": tensors["classifier.weight"].to(dtype)})


def filled(value: float) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda tensors: tensors["classifier.weight"].view(-1)[3:4].fill_(value)


WRONG_TENSORS: dict[str, Callable[[dict[str, torch.Tensor]], object]] = {
    "one missing": lambda tensors: tensors.pop("classifier.weight"),
    "all missing": lambda tensors: tensors.clear(),
    "one more": lambda tensors: tensors.update(more=torch.zeros(3)),
    "another name": lambda tensors: tensors.update({"classifier.w": tensors.pop("classifier.weight")}),
    "turned round": lambda tensors: tensors.update({"classifier.weight": tensors["classifier.weight"].mT.contiguous()}),
    "flat": lambda tensors: tensors.update({"classifier.weight": tensors["classifier.weight"].flatten()}),
    "empty": lambda tensors: tensors.update({"classifier.weight": torch.zeros(0)}),
    "not a number": filled(math.nan),
    "infinite": filled(math.inf),
    "minus infinite": filled(-math.inf),
    **{
        str(dtype): retyped(dtype)
        for dtype in (
            *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool),
            *(torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2),
        )
    },
}


def put(path: tuple[object, ...], value: object) -> Callable[[dict[str, Any]], object]:
    """Set one value of a config; `...` removes it."""

    def change(about: dict[str, Any]) -> None:
        inside: Any = about
        for key in path[:-1]:
            inside = inside[key]
        if value is ...:
            del inside[path[-1]]
        else:
            inside[path[-1]] = value

    return change


WRONG_CONFIGS: dict[str, Callable[[dict[str, Any]], object]] = {
    f"{'.'.join(map(str, path))} = {'missing' if value is ... else str(value)[:40]}": put(path, value)
    for path, values in {
        ("model",): (..., None, 5, "ViT", [], {}, {"kind": "Lstm"}, {"kind": "VisionTransformerConfig"}),
        ("model", "kind"): (..., None, 5, [], {}, "DecoderConfig", "os.system", "Heads", "__class__"),
        ("model", "n_layers"): (0, -1, 2, 10**5, 10**9, 10**30, "2", 1.5, True, None, [1], math.nan),
        ("model", "d_model"): (0, -8, 16, 10**6, 10**12, 10**30, "8", None),
        ("model", "n_classes"): (0, -1, 11, 10**9, 10**30, "ten"),
        ("model", "image"): ([8], [8, 8, 8], [0, 0], [-8, -8], [10**9, 10**9], "8x8", 8, [4, 10**30]),
        ("model", "patch"): ([3, 3], [0, 0], [10**9, 10**9], None, [2, 2]),
        ("model", "n_channels"): (0, 2, 10**30, "grey"),
        ("model", "heads"): (None, 5, {}, {"kind": "Heads"}, {"kind": "Heads", "n_heads": 3}, {"kind": "Lstm"}),
        ("model", "heads", "n_heads"): (0, -2, 10**9, 10**30, "2"),
        ("model", "feed_forward", "d_ff"): (0, 13, 10**12, 10**30, None),
        ("model", "feed_forward", "activation"): ("eval", 5, None),
        ("model", "dropout"): (-1, 2, "much", math.nan, math.inf, 10**400),
        ("model", "more"): (5, None),
        ("conversions",): (5, {}, "ToAttention", [5], [[]], [{"kind": "ToAttention", "tolerance": "no"}]),
    }.items()
    for value in values
}
BROKEN_JSON: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"model": {"kind": "Vis',
    "null": b"null",
    "a list": b"[]",
    "a number": b"5",
    "zeros": bytes(100),
    "no UTF-8": b'{"model": "\xff\xfe"}',
    "UTF-16": '{"model": {}}'.encode("utf-16"),
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "a long number": b'{"model": ' + b"9" * 100_000 + b"}",
    "two objects": b"{}{}",
}
WRONG_MANIFESTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no files": put(("files",), ...),
    "lists nothing": put(("files",), {}),
    "lists no weights": put(("files", "model.safetensors"), ...),
    "lists no config": put(("files", "config.json"), ...),
    "files that are a list": put(("files",), ["config.json"]),
    "files that are a number": put(("files",), 5),
    "an entry that is a number": put(("files", "config.json"), 5),
    "no bytes": put(("files", "config.json", "bytes"), ...),
    "bytes that are an object": put(("files", "config.json", "bytes"), {}),
    "bytes that are a word": put(("files", "config.json", "bytes"), "many"),
    "bytes that are true": put(("files", "config.json", "bytes"), True),
    "negative bytes": put(("files", "config.json", "bytes"), -1),
    "no digest": put(("files", "config.json", "sha256"), ...),
    "a digest that is a number": put(("files", "config.json", "sha256"), 5),
    "another digest": put(("files", "config.json", "sha256"), "0" * 64),
    "a digest in capitals": lambda about: about["files"]["config.json"].update(
        sha256=about["files"]["config.json"]["sha256"].upper()
    ),
    "a file above": put(("files", "../said.txt"), {"bytes": 0, "sha256": ""}),
    "a file elsewhere": put(("files", "/etc/passwd"), {"bytes": 0, "sha256": ""}),
    "a device": put(("files", "/dev/zero"), {"bytes": 0, "sha256": ""}),
    "a name with a zero": put(("files", "a\0b"), {"bytes": 0, "sha256": ""}),
    "a name of nothing": put(("files", ""), {"bytes": 0, "sha256": ""}),
    "a file that is not there": put(("files", "more"), {"bytes": 0, "sha256": ""}),
    "no format": put(("format",), ...),
    "format 3": put(("format",), 3),
    "a format that is a word": put(("format",), "2"),
}


def break_models(root: Path) -> dict[str, Row]:
    folder, image = root / "model", {"image": (8, 8), "patch": (4, 4), "n_channels": 1, "n_classes": 10}
    layers = {"d_model": 8, "heads": choices.Heads(n_heads=2), "feed_forward": choices.FeedForward(d_ff=12)}
    save(VisionTransformerConfig(n_layers=1, **image, **layers).build(), folder)
    restore = restoring(folder)

    def case(name: str, spoil: Callable[[], object], *, seal: bool = True) -> Case:
        def spoil_and_seal() -> None:
            spoil()
            if seal:
                seal_again(folder)

        return Case(name, spoil_and_seal, lambda: load(folder))

    def change_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    def change_manifest(change: Callable[[dict[str, Any]], object]) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        del manifest["sha256"]
        change(manifest)
        (folder / "manifest.json").write_text(sealed(manifest))

    def replace_by(name: str, how: Callable[[Path], object]) -> None:
        (folder / name).unlink()
        how(folder / name)

    def make_sparse(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(6 * 2**30)

    kinds = {"a pipe": os.mkfifo, "a folder": Path.mkdir, "6 GB of nothing": make_sparse, "missing": lambda _: None}
    tensors = [
        *(case(n, lambda b=b: (folder / "model.safetensors").write_bytes(b)) for n, b in BROKEN_TENSORS.items()),
        *(case(n, lambda c=c: change_tensors(c)) for n, c in WRONG_TENSORS.items()),
    ]
    configs = [
        *(case(n, lambda b=b: (folder / "config.json").write_bytes(b)) for n, b in BROKEN_JSON.items()),
        *(case(n, lambda c=c: edit(folder / "config.json", c)) for n, c in WRONG_CONFIGS.items()),
    ]
    manifests = [
        *(case(n, lambda b=b: (folder / "manifest.json").write_bytes(b), seal=False) for n, b in BROKEN_JSON.items()),
        *(case(n, lambda c=c: change_manifest(c), seal=False) for n, c in WRONG_MANIFESTS.items()),
    ]
    files = [
        case(f"{name} is {kind}", lambda name=name, how=how: replace_by(name, how), seal=False)
        for name in ("config.json", "model.safetensors", "manifest.json")
        for kind, how in kinds.items()
    ]
    return {
        "malformed safetensors": try_all("safetensors", tensors, folder, restore),
        "malformed config.json": try_all("config.json", configs, folder, restore),
        "malformed manifest.json": try_all("manifest.json", manifests, folder, restore),
        "pipes, folders, huge and missing files": try_all("files", files, folder, restore),
    }


def break_converted(root: Path) -> dict[str, Row]:
    """Converted models, whose weights before the conversion no file has."""
    gaussian = GaussianImageEncoderConfig(
        n_classes=10, image=(8, 8), n_channels=1, n_layers=1, d_model=8, heads=choices.GaussianHeads(n_heads=2)
    )
    models = {
        "to attention": to_attention(ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(4,)).build()),
        "to convolution": to_convolution(gaussian.build(), (3, 3), (4, 4)),
    }
    places: dict[str, dict[tuple[object, ...], tuple[object, ...]]] = {
        "to attention": {
            ("model", "n_blocks"): (2, 10**5, 10**9, 10**30),
            ("model", "widths"): ([8], [4, 4], [10**6], [10**12], [4] * 10**4),
            ("model", "n_classes"): (11, 10**9, 10**30),
            ("conversions", 0, "tolerance"): (0, -1, math.nan),
            ("conversions",): ([], [{"kind": "ToConvolution", "kernel_size": [10**6, 10**6]}]),
        },
        "to convolution": {
            ("model", "n_layers"): (2, 10**5, 10**9),
            ("model", "n_classes"): (11, 10**9, 10**30),
            ("model", "d_model"): (16, 10**5, 10**9),
            ("conversions", 0, "kernel_size"): ([1, 1], [5, 5], [10**5, 10**5], [10**9, 10**9], 3),
            ("conversions", 0, "grid"): ([10**5, 10**5], [10**9, 10**9], [-4, -4]),
            ("conversions",): ([], [{"kind": "ToConvolution"}] * 2, [{"kind": "ToConvolution"}] * 10**5),
        },
    }
    rows = {}
    for name, model in models.items():
        folder = root / name.replace(" ", "-")
        save(model.model, folder)

        def spoil(change: Callable[[dict[str, Any]], object], folder: Path = folder) -> None:
            edit(folder / "config.json", change)
            seal_again(folder)

        cases = [
            Case(f"{path} = {str(value)[:60]}", lambda c=put(path, value): spoil(c), lambda folder=folder: load(folder))
            for path, values in places[name].items()
            for value in values
        ]
        rows[f"malformed config.json, converted {name}"] = try_all(name, cases, folder, restoring(folder))
    return rows


WRONG_TOKENIZERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda data: data.clear(),
    "no model": put(("model",), ...),
    "another model": put(("model", "type"), "Lstm"),
    "no vocabulary": put(("model", "vocab"), {}),
    "a gap": put(("model", "vocab", "gap"), 10**6),
    "a token of 10**30": put(("model", "vocab", "gap"), 10**30),
    "a negative token": put(("model", "vocab", "gap"), -5),
    "merges of nothing": put(("model", "merges"), [["nothing", "nowhere"]]),
    "a regex bomb": put(
        ("pre_tokenizer",),
        {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False},
    ),
    "a regex that is none": put(
        ("pre_tokenizer",), {"type": "Split", "pattern": {"Regex": "(((("}, "behavior": "Isolated", "invert": False}
    ),
    "a normaliser with a regex bomb": put(
        ("normalizer",), {"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": ""}
    ),
    "an unknown part": put(("decoder",), {"type": "Eval"}),
}


def break_runs(root: Path) -> dict[str, Row]:
    run = write_run(root / "run", "gpt")
    newest, folder = checkpoints(run.folder)[0], run.folder
    restore = restoring(folder)

    def spoil(name: str, change: Callable[[Path], object]) -> None:
        change(newest / name)
        seal_again(newest)

    def use() -> None:
        load_checkpoint(newest, learner_of(run))

    def spoil_tokenizer(change: Callable[[dict[str, Any]], object]) -> None:
        edit(folder / "tokenizer.json", change)
        about = json.loads((folder / "config.json").read_text())
        del about["sha256"]
        about["tokenizer.json"] = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
        (folder / "config.json").write_text(sealed(about))

    def speak() -> None:
        tokenizer = open_run(folder).tokenizer
        assert tokenizer is not None
        for character in "ax":
            tokenizer.decode(tokenizer.encode(character * 40 + "!"))

    def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    rest = {
        "no chances": lambda tensors: tensors.pop("random.torch"),
        "too few chances": lambda tensors: tensors.update({"random.torch": torch.zeros(3, dtype=torch.uint8)}),
        "chances of another kind": lambda tensors: tensors.update({"random.torch": torch.zeros(5056)}),
        "a moment of another shape": lambda tensors: tensors.update({MOMENT: torch.zeros(3)}),
        "a moment of something else": lambda tensors: tensors.update({"optimiser.exp_avg.nothing": torch.zeros(3)}),
        "a moment that is not finite": lambda tensors: tensors[MOMENT].view(-1)[:1].fill_(math.nan),
        "a moment missing": lambda tensors: tensors.pop(MOMENT),
        "a moment of whole numbers": lambda tensors: tensors.update({MOMENT: tensors[MOMENT].long()}),
        "a gradient of something else": lambda tensors: tensors.update({"gradient.nothing": torch.zeros(3)}),
        "something else": lambda tensors: tensors.update({"nothing": torch.zeros(3)}),
    }
    MOMENT = next(name for name in load_file(newest / "training.safetensors") if name.startswith("optimiser.exp_avg."))  # noqa: N806
    states = [
        *(Case(n, lambda c=c: spoil("state.json", lambda path: edit(path, c)), use) for n, c in WRONG_STATES.items()),
        *(
            Case(n, lambda b=b: spoil("state.json", lambda path: path.write_bytes(b)), use)
            for n, b in BROKEN_JSON.items()
        ),
        *(
            Case(n, lambda c=c: spoil("training.safetensors", lambda path: change_tensors(path, c)), use)
            for n, c in rest.items()
        ),
        *(
            Case(n, lambda b=b: spoil("training.safetensors", lambda path: path.write_bytes(b)), use)
            for n, b in BROKEN_TENSORS.items()
        ),
    ]
    tokenizers = [Case(n, lambda c=c: spoil_tokenizer(c), speak) for n, c in WRONG_TOKENIZERS.items()]
    return {
        "malformed state.json and training.safetensors": try_all("state", states, folder, restore),
        "malformed tokenizer.json": try_all("tokenizer.json", tokenizers, folder, restore),
    }


# --- Links and paths --------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def link_all(root: Path) -> dict[str, Row]:
    """Links where a run writes, and names that lead out of it: nothing outside may change."""
    run = write_run(root / "run", "gaussian", epochs=None, steps=9, evaluate_every=3)
    folder, outside = run.folder, root / "outside"
    restore, count = restoring(folder), Counter[str](tried=0, held=0, failed=0)
    newest = f"checkpoints/{checkpoints(folder)[0].name}"
    names = (
        *(".lock", "config.json", "metrics.jsonl", "heads.jsonl", "heads.gif", "report.html", "model.safetensors"),
        *(
            "tensorboard",
            "checkpoints",
            "checkpoints/best.json",
            newest,
            f"{newest}/state.json",
            "checkpoints/.a.1.part",
        ),
        "checkpoints/step-00000009",
    )
    kinds: Mapping[str, Callable[[Path], object]] = {
        "a link to a file": lambda path: path.symlink_to(outside / "letter"),
        "a link to a folder": lambda path: path.symlink_to(outside),
        "a link to nothing": lambda path: path.symlink_to(outside / "nowhere"),
        "another name of a file": lambda path: path.hardlink_to(outside / "letter"),
    }
    cases = [(f"{name} is {kind}", folder / name, how) for name in names for kind, how in kinds.items()]
    for what, path, how in cases:
        restore()
        shutil.rmtree(outside, ignore_errors=True)
        outside.mkdir()
        (outside / "letter").write_text("a letter")
        before = contents(outside)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        how(path)

        def work() -> int:
            try:
                again = open_run(folder)
                train_run(again, watchers=[WatchCentres(folder / "heads.jsonl")])
            except (ValueError, RuntimeError, OSError) as error:
                print(error)
                return 0 if str(folder) in str(error) else 1
            return 0

        held = wait(start(work, root / "links.log")) == 0 and contents(outside) == before
        count.update(tried=1, held=held, failed=not held)
        if not held:
            print(f"links: {what}", file=sys.stderr)
    return {"links and other names": dict(count), "names in best.json": name_all(root, folder, restore)}


def name_all(root: Path, folder: Path, restore: Callable[[], object]) -> Row:
    save(ResNetConfig(n_classes=10, n_channels=1, n_blocks=1, widths=(4,)).build(), root / "other")
    names: list[object] = [
        "..",
        ".",
        "",
        "../..",
        str(root / "other"),
        "../../other",
        "/",
        "/etc",
        "step-00000003/..",
        5,
    ]
    names += ["best", "STEP-00000003", "step-3", "step-00000099", "step-00000003\0", "step-00000003/", None, [], {}]

    def spoil(name: object) -> None:
        (folder / "checkpoints/best.json").write_text(sealed({"checkpoint": name}))

    cases = [Case(repr(name), lambda name=name: spoil(name), lambda: load(folder)) for name in names]
    return try_all("best.json", cases, folder, restore)


def show(rows: Mapping[str, Row]) -> Iterator[str]:
    for what, row in rows.items():
        yield f"| {what} | {' | '.join(f'{n:,} {name}' for name, n in row.items())} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=500, help="Of each file of two runs.")
    parser.add_argument("--only", choices=("flips", "models", "converted", "runs", "links"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts: dict[str, Callable[[Path], dict[str, Row]]] = {
        "flips": lambda root: flip_all(root, arguments.flips),
        "models": break_models,
        "converted": break_converted,
        "runs": break_runs,
        "links": link_all,
    }
    failed = 0
    for name, part in parts.items():
        if arguments.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / name).mkdir()
                rows = part(Path(folder) / name)
            print("\n".join(show(rows)), flush=True)
            failed += sum(row["failed"] for row in rows.values())
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
