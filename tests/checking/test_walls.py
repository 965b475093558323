"""Somebody else's code runs behind walls, and each way to fail ends in words."""

import contextlib
import shutil
import socket

import pytest

from headwork.checking import Walls
from headwork.checking.runner import ForkServer, MissingWallError, ProgramDiedError, ProgramError

HEADER = "import os\nimport time\nimport torch\nfrom pathlib import Path\n\n\n"


def say(check, body: str, **options) -> str:
    (report,) = check(HEADER + f"def softmax(x):\n    {body}\n", **options)
    assert report.verdict == "failed", report
    return report.sentence


def test_an_endless_loop(check):
    assert "did not come to an end" in say(check, "while True:\n        pass", seconds=1.0)


def test_the_limit_that_was_set_is_told(check):
    assert "within 1 seconds" in say(check, "time.sleep(5)", seconds=1.0)


def test_the_judge_is_not_there_for_what_it_judges(check, server):
    skip_without(server, "files")
    body = "from headwork.checking import equations\n    return equations.attention(x, x, x, None, {})"
    walls = {"untrusted": True, "without": ("processes", "network")}
    assert "headwork" in say(check, body, **walls)


def test_the_end_of_the_process(check):
    assert "ended its own process (exit code 0)" in say(check, "os._exit(0)")


def test_more_memory_than_there_may_be(check):
    assert "more memory" in say(check, "return torch.zeros(100, 1024, 1024, 1024)")


def test_it_asks_for_input(check):
    assert "asks for input" in say(check, "return input()")


@pytest.mark.slow
def test_more_processes_than_there_may_be(check, server):
    """As a fork bomb would, but no more of them than this machine bears."""
    skip_without(server, "processes")
    body = "for _ in range(100):\n        if os.fork() == 0:\n            while True:\n                time.sleep(1)\n    time.sleep(60)"
    assert "more than 64 processes" in say(check, body, seconds=10.0)


def test_a_patched_softmax_changes_nothing_here(check):
    program = (
        HEADER
        + "torch.Tensor.softmax = lambda x, dim: x * 0 + 1\ntorch.softmax = torch.Tensor.softmax\n\n\ndef softmax(x):\n    return torch.softmax(x, -1)\n"
    )
    (report,) = check(program)
    assert report.verdict == "wrong"


def skip_without(server: ForkServer, wall: str) -> None:
    others = tuple(w for w in ("processes", "network", "files") if w != wall)
    try:
        server.start(Walls(untrusted=True, without=others)).close()
    except MissingWallError as error:
        pytest.skip(str(error))


def run(server: ForkServer, walls: Walls, body: str) -> object:
    program = server.start(walls)
    try:
        program.load(HEADER + f"import socket\nimport sys\n\n\ndef f():\n    {body}\n", "f.py", [])
        return program.call("f").value
    finally:
        program.close()


def test_no_files_but_its_own(server, tmp_path):
    skip_without(server, "files")
    secret = tmp_path / "answers.txt"
    secret.write_text("42")
    walls = Walls(untrusted=True, without=("processes", "network"))
    assert run(server, Walls(), f"return Path({str(secret)!r}).read_text()") == "42"
    with pytest.raises(ProgramError, match="PermissionError|FileNotFoundError"):
        run(server, walls, f"return Path({str(secret)!r}).read_text()")
    with pytest.raises(ProgramError, match="PermissionError|FileNotFoundError"):
        run(server, walls, f"return Path({str(secret)!r}).write_text('x')")
    assert run(server, walls, "Path('own.txt').write_text('x')\n    return Path('own.txt').read_text()") == "x"


def test_no_network(server):
    skip_without(server, "network")
    walls = Walls(untrusted=True, without=("processes", "files"))
    body = "return [n for _, n in socket.if_nameindex()]"
    assert run(server, walls, body) == ["lo"]


def test_without_that_wall_the_network_is_there(server):
    skip_without(server, "processes")
    skip_without(server, "files")
    with socket.create_server(("127.0.0.1", 0)) as here:
        walls = Walls(untrusted=True, without=("network",))
        body = f"return socket.create_connection({here.getsockname()!r}).getpeername()[0]"
        assert run(server, walls, body) == "127.0.0.1"


@pytest.mark.parametrize(
    "body",
    [
        "os.chmod({path!r}, 0o777)",
        "os.utime({path!r})",
        "os.chown({path!r}, os.getuid(), os.getgid())",
        "os.setxattr({path!r}, 'user.x', b'1')",
        "return os.stat({path!r}).st_size",
        "socket.socket(socket.AF_UNIX).connect({socket!r})",
        "sys.modules.pop('headwork', None)\n    import headwork.functional",
        "socket.sethostname(socket.gethostname())",
        "os.mknod('null', 0o020666, os.makedev(1, 3))",
        "import mmap\n    mmap.mmap(-1, 6 << 30)",
        "for i in range(10):\n        open(str(i), 'wb').write(b'0' * (15 << 20))",
    ],
)
def test_what_is_outside_is_left_alone(server, tmp_path, body):
    skip_without(server, "processes")
    skip_without(server, "files")
    (tmp_path / "key").write_text("secret")
    with socket.socket(socket.AF_UNIX) as here, contextlib.chdir(tmp_path):
        here.bind("a.sock")
        here.listen()
        body = body.format(path=str(tmp_path / "key"), socket=str(tmp_path / "a.sock"))
        with pytest.raises(ProgramError, match=r"OSError|PermissionError|(File|Module)NotFoundError"):
            run(server, Walls(untrusted=True), body)
    assert (tmp_path / "key").stat().st_mode & 0o777 != 0o777


def test_no_environment(server, monkeypatch):
    walls = Walls(untrusted=True, without=("processes", "network", "files"))
    assert run(server, walls, "return 'USER' in os.environ or 'PWD' in os.environ") is False


def test_a_file_that_is_too_large_is_refused(server):
    with pytest.raises(ProgramError, match="File too large"):
        run(server, Walls(), "open('big', 'wb').write(b'0' * 2 ** 25)")


@pytest.mark.usefixtures("as_users_run_it")
def test_walls_have_names(server):
    with pytest.raises(ValueError, match="without_wall must be one of processes, network, files, got doors"):
        server.start(Walls(untrusted=True, without=("doors",)))


def test_what_comes_back_is_looked_at_before_it_is_read(server):
    """A program that writes to the connection itself cannot make this process read more than it may."""
    program = server.start()
    program.load(HEADER + "import struct\n\n\ndef f():\n    for n in range(3, 100):\n        try:\n            os.write(n, struct.pack('<QQ', 2**50, 2**50))\n        except OSError:\n            pass\n", "f.py", [])  # fmt: skip
    with pytest.raises(ProgramDiedError, match="cannot be read"):
        program.call("f")
    assert shutil.which("true")
