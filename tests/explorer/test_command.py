"""`headwork explore`: what it refuses, and the files it writes."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.explorer.models import image_subject, text_model

import headwork as hw
from headwork.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    hw.save(text_model(), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "model must be a folder that exists or a published name, got 'nothing'"),
        (["{folder}", "--port", "99999"], "port must lie in 0 .. 65535, got 99999"),
        (["{folder}", "--export", "page.txt"], "export must end in .html, got page.txt"),
        (["{folder}", "--export", "{folder}/config.html"], "export must be a new file"),
        (["{folder}", "--recorded"], "recorded is for --export"),
        (["{folder}", "--image", "x.png"], "image is for models that read images, got x.png"),
        (["{folder}", "--text", "hello"], "text must be ids for a model without a tokenizer"),
        (["{folder}", "--text", "3 99"], "0 .. 31, got 99"),
        (["{folder}", "--against", "nothing"], "got 'nothing'"),
        (["{folder}", "--allow-host", "http://x/"], "allow_host must be a name"),
        (["llama-3-8b"], "model must fit into memory"),
    ],
)
def test_wrong_arguments_get_a_sentence(
    folder: Path,
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwork.explorer.opening._free_bytes", lambda: 2**33)
    (folder / "config.html").touch()
    assert main(["explore", *(each.format(folder=folder) for each in arguments)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said


def test_a_file_that_is_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words").write_text("root:x:0:0\n")
    assert main(["explore", "digits-vit", "--image", str(tmp_path / "words"), "--no-browser"]) == 2
    said = capsys.readouterr().err
    assert f"image must be a picture that can be read, got {tmp_path / 'words'}, which is none" in said
    assert "<" not in said


def test_a_port_that_is_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["explore", str(folder), "--port", str(port), "--no-browser"]) == 2
    assert f"port must be free, got {port}" in capsys.readouterr().err


def test_a_page_is_written_living_or_recorded(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", str(folder), "--export", str(tmp_path / "a" / "living.html")]) == 0
    assert "living: the model is inside" in capsys.readouterr().out
    assert main(["explore", str(folder), "--export", str(tmp_path / "recorded.html"), "--recorded"]) == 0
    assert "recorded" in capsys.readouterr().out
    for path in (tmp_path / "a" / "living.html", tmp_path / "recorded.html"):
        text = path.read_text(encoding="utf-8")
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
        assert policy is not None
        assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
        assert "unsafe" not in policy[1]
    other = tmp_path / "image"
    hw.save(image_subject().model, other)
    assert main(["explore", str(folder), "--against", str(other), "--export", str(tmp_path / "x.html")]) == 2
    assert "against must read what the model reads" in capsys.readouterr().err


@pytest.mark.slow
def test_it_serves_until_it_is_stopped_also_without_its_folder(folder: Path) -> None:
    """In a process of its own: it prints the address, answers, goes on when the folder is gone, and ends with Ctrl-C."""
    command = [
        sys.executable,
        "-m",
        "headwork",
        "explore",
        str(folder),
        "--no-browser",
        "--allow-host",
        "hub.example.org",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 (ignored in the background)
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)#token=(\S+)\n", address)
        assert found is not None, process.stderr and process.stderr.read()
        with urllib.request.urlopen(found[1], timeout=120) as page:
            assert b"headwork explorer" in page.read()
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink()
        folder.rmdir()
        body = b'{"visitor": "v", "place": "p", "number": 1, "question": {"question": "Read", "about": {"input": {"ids": [3, 1]}}}}'
        headers = {"Authorization": f"Bearer {found[2]}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(found[1] + "ask", body, headers), timeout=120) as answer:
            assert b'"kind": "part"' in answer.read()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert "WARNING: whoever can reach hub.example.org" in said
        assert "Traceback" not in said
        assert process.returncode in (0, 130)
