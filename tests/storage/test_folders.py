"""A folder is whole or not there at all, and one flipped bit is found."""

import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import headwork
from headwork.storage.folders import append_to_file, link_file, locked, new_folder, replace_file, sweep, verify
from headwork.storage.sealed_json import DamagedError, sealed


def write_example(path: Path) -> None:
    with new_folder(path) as staging:
        (staging / "weights").write_bytes(random.Random(0).randbytes(61))
        (staging / "notes.json").write_text('{"step": 7}')


def test_a_new_folder_verifies(tmp_path: Path) -> None:
    write_example(tmp_path / "kept")
    verify(tmp_path / "kept")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["manifest.json", "notes.json", "weights"]
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]


def test_an_error_inside_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "kept") as staging:  # noqa: PT012
        (staging / "weights").write_bytes(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_example(tmp_path / "kept")
    with pytest.raises(ValueError, match="must be a new one"), new_folder(tmp_path / "kept"):
        pass
    verify(tmp_path / "kept")


def test_two_that_write_one_folder_do_not_mix(tmp_path: Path) -> None:
    """As threads of one process do; the first that is done has it, and the other is told."""
    taken = pytest.raises(ValueError, match=r"must be a new one, got .*kept, which exists")
    with taken, new_folder(tmp_path / "kept") as slow:
        (slow / "weights").write_bytes(b"slow")
        with new_folder(tmp_path / "kept") as fast:
            (fast / "weights").write_bytes(b"fast")
    verify(tmp_path / "kept")
    assert (tmp_path / "kept" / "weights").read_bytes() == b"fast"
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]


@pytest.mark.parametrize("name", [pytest.param("manifest.json", marks=pytest.mark.slow), "notes.json", "weights"])
def test_every_flipped_bit_is_found(tmp_path: Path, name: str) -> None:
    write_example(tmp_path / "kept")
    path = tmp_path / "kept" / name
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedError, match="kept/"):
            verify(tmp_path / "kept")
    path.write_bytes(whole)
    verify(tmp_path / "kept")


@pytest.mark.parametrize("name", ["manifest.json", "notes.json", "weights"])
def test_every_cut_is_found(tmp_path: Path, name: str) -> None:
    write_example(tmp_path / "kept")
    path = tmp_path / "kept" / name
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedError, match=r"kept"):
            verify(tmp_path / "kept")
    path.unlink()
    with pytest.raises(DamagedError, match=name):
        verify(tmp_path / "kept")


@pytest.mark.parametrize(
    "manifest", ["", "null", "[]", "{}", '{"format": 2, "files": {}}', '{"format": 1, "files": []}', "{" * 9999]
)
def test_a_manifest_that_is_none(tmp_path: Path, manifest: str) -> None:
    write_example(tmp_path / "kept")
    (tmp_path / "kept" / "manifest.json").write_text(manifest)
    with pytest.raises(DamagedError, match=r"manifest\.json is damaged"):
        verify(tmp_path / "kept")


def test_the_manifest_says_what_wrote_it(tmp_path: Path) -> None:
    write_example(tmp_path / "kept")
    manifest = json.loads((tmp_path / "kept" / "manifest.json").read_text())
    assert (manifest["format"], manifest["torch"]) == (2, torch.__version__)
    assert manifest["headwork"].count(".") == 2


def test_another_format_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """A folder of headwork 0.1 is not damaged, and neither is one of a newer headwork."""
    write_example(tmp_path / "kept")
    path = tmp_path / "kept" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({"format": 1, "files": manifest["files"]}))
    with pytest.raises(ValueError, match=r"kept was written by headwork 0\.1 \(format 1\).* Train the model again"):
        verify(tmp_path / "kept")
    newer = {name: value for name, value in manifest.items() if name != "sha256"} | {"format": 3, "headwork": "9.8.7"}
    digest = hashlib.sha256(json.dumps(newer, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(newer | {"sha256": digest}))
    with pytest.raises(ValueError, match=r"written by headwork 9\.8\.7 in format 3.*a newer headwork"):
        verify(tmp_path / "kept")


def test_a_disk_without_space_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"kept.*bytes are needed.*bytes are free"), new_folder(tmp_path / "kept", 2**62):
        pytest.fail("nothing may be written")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_while_writing(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: it fails in the same place."""
    write_example(tmp_path / "before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError, match=r"cannot write .*kept"), new_folder(tmp_path / "kept", 5000) as staging:
            (staging / "weights").write_bytes(bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == [tmp_path / "before"]
    verify(tmp_path / "before")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="cannot write"), new_folder(tmp_path / "kept"):
        pass


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match=r"cannot write .*file/kept"), new_folder(tmp_path / "file" / "kept"):
        pass


@pytest.mark.slow
def test_killed_while_writing(tmp_path: Path) -> None:
    """Whatever the moment, the name stands for a whole folder or for nothing."""
    code = f"""
import sys
from pathlib import Path
from headwork.storage.folders import new_folder
for number in range(10_000):
    with new_folder(Path({str(tmp_path)!r}) / f"kept-{{number:05d}}") as staging:
        for name in "abc":
            (staging / name).write_bytes(bytes([number % 256]) * 50_000)
    print(number, flush=True)
"""
    moments = random.Random(0)
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(moments.randrange(1, 20)):
            child.stdout.readline()
        child.kill()
        child.wait()
        child.stdout.close()
        whole = sorted(tmp_path.glob("kept-*"))
        assert whole
        for path in whole:
            verify(path)
            (path / "manifest.json").unlink()
            for name in "abc":
                (path / name).unlink()
            path.rmdir()


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    replace_file(tmp_path / "best.json", "old")
    replace_file(tmp_path / "best.json", "new")
    assert (tmp_path / "best.json").read_text() == "new"
    assert list(tmp_path.iterdir()) == [tmp_path / "best.json"]


def test_two_that_replace_one_file_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As threads of one process do: the second writes while the first waits for the disk."""
    waits = [lambda: replace_file(tmp_path / "best.json", "fast")]
    monkeypatch.setattr("headwork.storage.folders._flush", lambda _: waits.pop()() if waits else None)
    replace_file(tmp_path / "best.json", "slow")
    assert (tmp_path / "best.json").read_text() == "slow"
    assert list(tmp_path.iterdir()) == [tmp_path / "best.json"]


def test_two_that_replace_one_link_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("slow", "fast"):
        (tmp_path / text).write_text(text)
    link, waits = os.link, [lambda: link_file(tmp_path / "fast", tmp_path / "model")]

    def slow_link(*names: Path) -> None:
        link(*names)
        if waits:
            waits.pop()()

    monkeypatch.setattr("os.link", slow_link)
    link_file(tmp_path / "slow", tmp_path / "model")
    assert (tmp_path / "model").read_text() == "slow"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fast", "model", "slow"]


def test_a_link_is_replaced_in_one_step(tmp_path: Path) -> None:
    for text in ("old", "new"):
        (tmp_path / text).write_text(text)
        link_file(tmp_path / text, tmp_path / "model")
        assert (tmp_path / "model").read_text() == text
    assert (tmp_path / "model").samefile(tmp_path / "new")


def test_a_link_to_what_is_there_already_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("weights")
    for _ in range(2):
        link_file(tmp_path / "source", tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "source"]


def test_what_others_left_half_written_is_swept_away(tmp_path: Path) -> None:
    for name in (".kept.4711.part", ".model.12.part", ".hidden", "mine.part"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".step.13.part").mkdir()
    (tmp_path / ".step.13.part" / "weights").write_text("half")
    sweep(tmp_path)
    sweep(tmp_path / "nowhere")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "mine.part"]


def test_lines_are_added_behind_what_is_there(tmp_path: Path) -> None:
    for line in ("one\n", "two\n"):
        append_to_file(tmp_path / "log", line)
    assert (tmp_path / "log").read_text() == "one\ntwo\n"
    with pytest.raises(OSError, match=r"cannot write .*nowhere/log \(4 bytes are needed\)"):
        append_to_file(tmp_path / "nowhere" / "log", "one\n")


def test_without_links_a_copy_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError("links are not known here")

    monkeypatch.setattr("os.link", no_links)
    (tmp_path / "source").write_text("weights")
    link_file(tmp_path / "source", tmp_path / "model")
    assert (tmp_path / "model").read_text() == "weights"


def test_the_manifest_says_which_version_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the code that runs, whatever the environment says is installed."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.0.1")
    write_example(tmp_path / "kept")
    assert json.loads((tmp_path / "kept" / "manifest.json").read_text())["headwork"] == headwork.__version__


@pytest.mark.parametrize(
    "files",
    [
        {"notes.json": {"bytes": {}, "sha256": "0"}},
        {"notes.json": {"bytes": 11}},
        {"notes.json": 11},
        {"../notes.json": {"bytes": 11, "sha256": "0"}},
        {"/etc/passwd": {"bytes": 11, "sha256": "0"}},
        {"": {"bytes": 11, "sha256": "0"}},
        ["notes.json"],
        None,
    ],
    ids=str,
)
def test_a_manifest_with_a_right_seal_that_is_none(tmp_path: Path, files: object) -> None:
    write_example(tmp_path / "kept")
    path = tmp_path / "kept" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    path.write_text(sealed(manifest | {"files": files}))
    with pytest.raises(DamagedError, match=r"manifest\.json is damaged: it must list names of files in its folder"):
        verify(tmp_path / "kept")


def test_a_manifest_that_never_ends(tmp_path: Path) -> None:
    write_example(tmp_path / "kept")
    path = tmp_path / "kept" / "manifest.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedError, match=r"must be a file on a disk, got .*manifest\.json, which is a pipe"):
        verify(tmp_path / "kept")
    path.unlink()
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DamagedError, match=r"manifest\.json must have at most 16,777,216 bytes, got"):
        verify(tmp_path / "kept")


def test_the_disk_has_every_folder_that_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new name is in the folder above it, which has to be flushed too."""
    flushed = []
    monkeypatch.setattr("headwork.storage.folders._flush", flushed.append)
    with locked(tmp_path / "runs" / "one"):
        assert {tmp_path, tmp_path / "runs"} <= set(flushed)
        write_example(tmp_path / "runs" / "one" / "checkpoints" / "step")
    assert {tmp_path / "runs" / "one", tmp_path / "runs" / "one" / "checkpoints"} <= set(flushed)
