"""The walls around somebody's program, built from inside its process before its first line runs. Standard library only.

Always: a session of its own, limits of memory, files, processes and time, no standard input and output, and where the
system allows it namespaces of its own: of users, so that root is nobody outside, and of processes, which die with the
first of them. For the programs of others also: no network, no capabilities, no environment, and no files but a folder of
its own, Python and its packages. A wall that cannot be built is an error unless one does without it.
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WALLS = ("processes", "network", "files")
"""Those that some machines cannot build; the others are everywhere."""

NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
SUBREAPER, NO_NEW_PRIVILEGES, DEATH_SIGNAL, DROP_CAPABILITY = 36, 38, 1, 24
BIND, RECURSIVE, PRIVATE, DETACH = 4096, 16384, 1 << 18, 2
PIVOT_ROOT, SET_MOUNT = (41 if os.uname().machine == "aarch64" else 155), 442
READ_ONLY, ALL_BELOW, HERE = 1, 0x8000, -100
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
READ_FILE, READ_FOLDER, EXECUTE = 1 << 2, 1 << 3, 1 << 0
LAST_RIGHT_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights about files each version of Landlock knows."""


class MissingWallError(Exception):
    """A wall that this machine cannot build, and why."""

    def __init__(self, wall: str, why: str) -> None:
        super().__init__(f"{wall}: {why}")
        self.wall, self.why = wall, why


def build(request: dict[str, Any], keep: int) -> list[str]:
    """Build the walls that the request asks for around this process; the names of those that stand."""
    os.setsid()
    built, without = ["time", "memory", "output"], request.get("without", [])
    untrusted = request.get("untrusted", False)
    silence(keep)
    if untrusted:
        empty_environment(request["folder"])
        built.append("environment")
    flags = NEW_USER | NEW_PID | NEW_IPC
    if untrusted:
        flags |= (NEW_NET if "network" not in without else 0) | (NEW_MOUNTS if "files" not in without else 0)
    try:
        new_namespaces(flags)
        built += ["processes"] + (["network"] if flags & NEW_NET else [])
    except OSError as error:
        flags = 0
        if untrusted:
            for wall in ("processes", "network"):
                if wall not in without:
                    raise MissingWallError(wall, f"namespaces are not allowed here ({error.strerror})") from None
    set_limits(request)
    os.chdir(request["folder"])
    if untrusted and "files" not in without:
        try:
            if flags:
                mount_only(Path(request["folder"]), request.get("own"))
            only_files(request["folder"], request.get("own"))
        except OSError as error:
            raise MissingWallError("files", f"mounts or Landlock are not allowed here ({error.strerror})") from None
        built.append("files")
    if untrusted:
        drop_capabilities()
    return built


def silence(keep: int) -> None:
    """No input, no output, and no descriptor but the connection."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, keep)
    os.closerange(keep + 1, 256)


def empty_environment(folder: str) -> None:
    language = os.environ.get("LANG", "C.UTF-8")
    os.environ.clear()
    os.environ.update(
        HOME=folder, TMPDIR=folder, LANG=language, PATH="/usr/bin:/bin", OMP_NUM_THREADS="1", MPLBACKEND="Agg"
    )


def set_limits(request: dict[str, Any]) -> None:
    memory = request.get("memory", 4 * 1024**3)
    limits = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_CPU: request.get("cpu", 120),
        resource.RLIMIT_FSIZE: 16 * 1024**2,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CORE: 0,
    }
    with contextlib.suppress(
        OSError
    ):  # what is shared counts as address space only, where PyTorch has mapped much already
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = mapped + memory
    for what, limit in limits.items():
        _, most = resource.getrlimit(what)
        least = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(what, (least, least))


@contextlib.contextmanager
def limited_memory(most: int = 4 * 1024**3) -> Iterator[None]:
    """Of this process, which judges: what a program says of its sizes may be anything."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (most, *before) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _system(number: int, *arguments: Any) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    result = library.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def _prctl(*arguments: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(*(ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0)[:5]))


def adopt_orphans() -> None:
    """Processes whose parent died become ours, so that none escapes when a program is ended."""
    _prctl(SUBREAPER, 1)


def _library_call(name: str, *arguments: Any) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def drop_capabilities() -> None:
    """Those of root too, for good: no program that is started later has them again."""
    if not sys.platform.startswith("linux"):
        return
    _prctl(NO_NEW_PRIVILEGES, 1)
    for capability in range(64):
        _prctl(DROP_CAPABILITY, capability)
    _library_call("capset", struct.pack("<Ii", 0x20080522, 0), bytes(24))


def new_namespaces(flags: int) -> None:
    """Go on in a child that is the first process of its namespaces; this process waits for it and ends alike."""
    if not sys.platform.startswith("linux"):
        raise OSError(38, "there are none on this system")
    user, group = os.getuid(), os.getgid()
    _library_call("unshare", flags)
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    child = os.fork()
    if child == 0:
        _prctl(DEATH_SIGNAL, signal.SIGKILL)
        return
    os.closerange(3, 256)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        with contextlib.suppress(OSError):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
        time.sleep(1)
    os._exit(os.WEXITSTATUS(status))


SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/dev/null",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/sys/devices/system/cpu",
)


def readable(own: str | None) -> list[Path]:
    """What a program needs to run: the libraries of the system, Python and its packages, and the other files of its own."""
    paths = {Path(p) for p in (*SYSTEM, sys.prefix, sys.base_prefix, *sys.path, own) if p}
    return sorted(p for p in paths if p.exists() and not any(above in paths for above in p.parents))


def mount_only(folder: Path, own: str | None) -> None:
    """See what is readable, read-only and without headwork, and a small folder of one's own: nothing else has a name here."""

    def mount(kind: str, target: Path, source: Path | None = None, flags: int = 0, options: str = "") -> None:
        target.mkdir(parents=True, exist_ok=True) if source is None or source.is_dir() else None
        given = str(source or kind).encode(), str(target).encode(), kind.encode()
        _library_call("mount", *given, ctypes.c_ulong(flags), options.encode())

    def make_read_only(target: Path, below: int = ALL_BELOW) -> None:
        rule = struct.pack("<QQQQ", READ_ONLY, 0, 0, 0)
        path = ctypes.c_char_p(str(target).encode())
        _system(SET_MOUNT, ctypes.c_int(HERE), path, ctypes.c_uint(below), ctypes.c_char_p(rule), ctypes.c_size_t(32))

    mount("none", Path("/"), flags=RECURSIVE | PRIVATE)
    paths = readable(own)
    mount("tmpfs", folder, options="mode=755")
    for path in paths:
        here = folder / path.relative_to("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() and str(path) in SYSTEM:  # /lib is /usr/lib
            here.symlink_to(path.readlink())
            continue
        if not path.is_dir():
            here.touch()
        mount("none", here, path, BIND | RECURSIVE)
        make_read_only(here)
    judge = folder / Path(__file__).resolve().parents[1].relative_to("/")
    if judge.exists():
        mount("tmpfs", judge)
        make_read_only(judge)
    mount("tmpfs", folder / folder.relative_to("/"), options="size=64m,mode=700")
    make_read_only(folder, below=0)
    os.chdir(folder)
    _system(PIVOT_ROOT, ctypes.c_char_p(b"."), ctypes.c_char_p(b"."))
    _library_call("umount2", b".", ctypes.c_int(DETACH))
    os.chdir(folder)


def only_files(folder: str, own: str | None) -> None:
    """Landlock: read what is readable, write the folder, and nothing else, for good."""
    version = _system(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    everything = (1 << LAST_RIGHT_OF_VERSION.get(min(version, 5), 13)) - 1
    attributes = struct.pack("<Q", everything)
    ruleset = _system(CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    look = READ_FILE | READ_FOLDER | EXECUTE
    for path, allowed in [*((p, look) for p in readable(own)), (Path(folder), everything & ~EXECUTE)]:
        try:
            target = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        file_only = 0 if path.is_dir() else READ_FOLDER
        rule = struct.pack("<Qi", allowed & everything & ~file_only, target)
        _system(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.c_char_p(rule), ctypes.c_uint32(0))
        os.close(target)
    _prctl(NO_NEW_PRIVILEGES, 1)
    _system(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def descendants(process: int) -> list[int]:
    """Every process below one, as /proc tells it."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for entry in (path.name for path in Path("/proc").iterdir()):
            if entry.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    stat = Path(f"/proc/{entry}/stat").read_text()
                    children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, front = [], [process]
    while front:
        front = [c for p in front for c in children.get(p, [])]
        found += front
    return found


def end(process: int) -> int:
    """Kill a worker with all that it started; how it ended, as `os.waitpid` says it."""
    status = 0
    gone, status = _wait(process, 0.3)
    for victim in [] if gone else [*descendants(process), process]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(victim, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    if not gone:
        _, status = _wait(process, 5.0)
    for _ in range(20):  # orphans came to us
        mine = descendants(os.getpid())
        strays = [p for p in mine if _parent_group(p) == process]
        if not strays:
            break
        for stray in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(stray, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    return status


def _wait(process: int, seconds: float) -> tuple[bool, int]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            done, status = os.waitpid(process, os.WNOHANG)
        except ChildProcessError:
            return True, 0
        if done:
            return True, status
        time.sleep(0.005)
    return False, 0


def _parent_group(process: int) -> int:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return -1
