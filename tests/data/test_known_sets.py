"""Sets that everyone knows, from small files of their form; found, fetched from a faked server, or refused."""

import gzip
import hashlib
import io
import pickle
import re
import struct
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from headwork.data import (
    BytePairs,
    Cifar10,
    Cifar100,
    FashionMnist,
    Mnist,
    Multi30k,
    Sst2,
    TinyShakespeare,
    cifar,
    download,
)
from headwork.data.download import KnownSet, Remote, fetch
from headwork.data.idx_images import FASHION, FILES, MNIST
from headwork.data.known_texts import MULTI30K, SHAKESPEARE, SST2
from tests.small_sets import write_small_sets

LITTLE = {"n_valid": 10}


@pytest.fixture(autouse=True)
def no_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWORK_DATA", raising=False)
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path / "cache"))


def records(n: int, n_labels: int, n_classes: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    table = generator.integers(0, 256, (n, n_labels + 3072), dtype=np.uint8)
    table[:, n_labels - 1] = np.arange(n) % n_classes
    return table


def write_cifar10(folder: Path) -> np.ndarray:
    folder.mkdir(parents=True)
    tables = [records(20, 1, 10, seed) for seed in range(6)]
    for name, table in zip((*cifar.BATCHES, "test_batch"), tables, strict=True):
        table.tofile(folder / f"{name}.bin")
    return np.concatenate(tables)


def test_cifar_10_from_its_binary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_cifar10(tmp_path / "data" / "cifar-10-batches-bin")
    by_flag = Cifar10(directory=str(tmp_path / "data"), **LITTLE).load()
    directly = Cifar10(directory=str(tmp_path / "data" / "cifar-10-batches-bin"), **LITTLE).load()
    monkeypatch.setenv("HEADWORK_DATA", str(tmp_path / "data"))
    for data in (by_flag, directly, Cifar10(**LITTLE).load()):
        assert [len(part) for part in (data.train, data.valid, data.test)] == [90, 10, 20]
        assert data.task.labels[3] == "cat"
        batch = data.test.batch(range(20))
        assert batch.label.tolist() == table[100:, 0].tolist()
        assert torch.equal(batch.image, torch.from_numpy(table[100:, 1:].reshape(20, 3, 32, 32)).float() / 255)
        assert sorted(data.valid.batch(range(10)).label.tolist()) == list(range(10))
    seen = torch.cat([part.batch(range(len(part))).image for part in (by_flag.train, by_flag.valid)])
    wanted = table[:100, 1:].reshape(100, 3, 32, 32)
    assert {image.tobytes() for image in (seen * 255).round().byte().numpy()} == {image.tobytes() for image in wanted}


def test_python_files_are_the_same(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "bin" / "cifar-10-batches-bin")
    folder = tmp_path / "py" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for seed, name in enumerate((*cifar.BATCHES, "test_batch")):
        table = records(20, 1, 10, seed)
        about = {b"batch_label": b"x", b"labels": table[:, 0].tolist(), b"data": table[:, 1:].copy()}
        (folder / name).write_bytes(pickle.dumps(about, protocol=2))
    one, other = (Cifar10(directory=str(tmp_path / part), **LITTLE).load() for part in ("bin", "py"))
    assert one.digest == other.digest
    for ours, theirs in zip(one.train.batch(range(90), 1), other.train.batch(range(90), 1), strict=True):
        assert torch.equal(ours, theirs)


def test_cifar_100(tmp_path: Path) -> None:
    names = [f"thing_{i}" for i in range(100)]
    folder, pickles = tmp_path / "cifar-100-binary", tmp_path / "py" / "cifar-100-python"
    folder.mkdir()
    pickles.mkdir(parents=True)
    (folder / "fine_label_names.txt").write_text("\n".join(names) + "\n")
    (pickles / "meta").write_bytes(pickle.dumps({b"fine_label_names": [name.encode() for name in names]}, protocol=2))
    for seed, (name, n) in enumerate((("train", 300), ("test", 100))):
        table = records(n, 2, 100, seed)
        table.tofile(folder / f"{name}.bin")
        about = {b"fine_labels": table[:, 1].tolist(), b"data": table[:, 2:].copy()}
        (pickles / name).write_bytes(pickle.dumps(about, protocol=2))
    data = Cifar100(directory=str(tmp_path), n_valid=100, n_train=150).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [150, 100, 100]
    assert data.task.labels == tuple(names)
    assert data.test.batch([7]).label.item() == 7
    assert Cifar100(directory=str(tmp_path / "py"), n_valid=100, n_train=150).load().digest == data.digest


class Harmful:
    def __reduce__(self):
        return print, ("this must not be called",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({b"labels": [Harmful()]}), r"cannot be read \(it names builtins.print, which is no array\)"),
        (
            pickle.dumps({b"labels": [1], b"data": np.zeros((2, 3072), np.uint8)}),
            "must hold data of 3,072 bytes for each",
        ),
        (pickle.dumps({b"labels": [1], b"data": np.zeros((1, 3072))}), "must hold data of 3,072 bytes for each"),
        (pickle.dumps([1]), "must be a pickle of CIFAR's, got list"),
        (b"no pickle", "must be a pickle of CIFAR's, got one that cannot be read"),
    ],
)
def test_other_pickles_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content, message) -> None:
    for name in (*cifar.BATCHES, "test_batch"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Cifar10(directory=str(tmp_path)).load()
    assert capsys.readouterr().out == ""


def write_idx(path: Path, array: np.ndarray, packed: bool) -> None:
    content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "folder"), [(Mnist, "mnist"), (FashionMnist, "FashionMNIST/raw")])
def test_idx_files(tmp_path: Path, kind, folder: str, packed: bool) -> None:
    (tmp_path / folder).mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28), dtype=np.uint8)
    labels = (np.arange(60) % 10).astype(np.uint8)
    for name, array in zip(FILES, (images, labels, images[:20], labels[:20]), strict=True):
        write_idx(tmp_path / folder / name, array, packed)
    data = kind(directory=str(tmp_path), n_valid=10).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [50, 10, 20]
    assert torch.equal(data.test.batch([3]).image[0, 0], torch.from_numpy(images[3]).float() / 255)
    assert data.task.labels[7] == ("7" if kind is Mnist else "sneaker")
    write_idx(tmp_path / folder / FILES[1], labels[:-1], packed=False)
    with pytest.raises(ValueError, match=r"must have a label for each image, got the shape \(59,\)"):
        kind(directory=str(tmp_path), n_valid=10).load()
    (tmp_path / folder / FILES[1]).write_bytes(b"\x00\x00\x0d\x01rest")
    with pytest.raises(ValueError, match="must be an idx file of bytes, got the beginning"):
        kind(directory=str(tmp_path), n_valid=10).load()
    (tmp_path / folder / FILES[1]).write_bytes(struct.pack(">HBBI", 0, 8, 1, 60) + b"few")
    with pytest.raises(ValueError, match="must have 60 values, got 3: fetch it again"):
        kind(directory=str(tmp_path), n_valid=10).load()


def test_sst2(tmp_path: Path) -> None:
    for name, n in (("train", 30), ("dev", 6), ("test", 8)):
        lines = [f'{i % 2}\tsome "words of {name} {i}' for i in range(n)]
        header = "label\tsentence" if name == "train" else "label\tcontent"
        (tmp_path / f"{name}.tsv").write_text("\n".join([header, *lines]) + "\n")
    data = Sst2(directory=str(tmp_path)).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [30, 6, 8]
    assert data.task.labels == ("negative", "positive")
    assert "2 classes: negative (22), positive (22)" in data.found
    assert data.test.batch([0, 1]).label.tolist() == [0, 1]
    assert 0 <= Sst2(directory=str(tmp_path)).bag_of_words_accuracy() <= 1


def test_multi30k_has_the_test_of_2016_only(tmp_path: Path) -> None:
    for name, n in (("train", 30), ("val", 3), ("test_2016_flickr", 4), ("test_2017_flickr", 9)):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{language} {name} {i}\n" for i in range(n)))
    data = Multi30k(directory=str(tmp_path)).load()
    assert [len(part) for part in (data.train, data.valid, data.test)] == [30, 3, 4]
    batch = data.test.batch([1])
    assert data.tokenizer.decode(batch.source[0].tolist()) == "en test_2016_flickr 1"
    assert data.tokenizer.decode(batch.target[0].tolist()) == "de test_2016_flickr 1"
    assert data.task.metrics[0].name == "loss"
    back = Multi30k(directory=str(tmp_path), source="de", target="en").load()
    assert back.tokenizer.decode(back.test.batch([1]).source[0].tolist()) == "de test_2016_flickr 1"


def test_shakespeare(tmp_path: Path) -> None:
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("First Citizen:\nBefore we proceed, hear me.\n\n" * 50)
    data = TinyShakespeare(directory=str(tmp_path), n_context=16).load()
    assert data.tokenizer.decode(data.train.batch([0]).ids[0].tolist()) == "First Citizen:\nB"


def test_a_folder_without_the_set_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data-dir must be a folder with CIFAR-10, .* has no data_batch_1.bin"):
        Cifar10(directory=str(tmp_path)).load()
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(
        ValueError, match=r"data_batch_2.bin must be records of 3,073 bytes, got 61,455 bytes: fetch it again"
    ):
        Cifar10(directory=str(tmp_path)).load()
    write_cifar10(tmp_path / "other")
    with pytest.raises(ValueError, match=r"at most the 100 training images of .*other, got n_valid=50 and n_train=60"):
        Cifar10(directory=str(tmp_path / "other"), n_valid=50, n_train=60).load()


# --- fetched --------------------------------------------------------------------------------------------------------


class Server:
    """Files by their name; `cut` ends the connection after so many bytes of the next answer."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: int | None = None
        self.asked: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name, wanted = self.path.rpartition("/")[2], self.headers.get("Range")
                server.asked.append((name, wanted))
                if name not in server.files:
                    self.send_error(404)
                    return
                content = server.files[name]
                start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                cut, server.cut = server.cut, None
                self.wfile.write(content[start:][:cut])

            def log_message(self, *_: object) -> None: ...

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.home = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")
    found = Server()
    thread = threading.Thread(target=found.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield found
    found.http.shutdown()
    thread.join()
    found.http.server_close()


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_an_archive_is_fetched_resumed_verified_and_unpacked(tmp_path: Path, server: Server) -> None:
    archive = packed({"deep/folder/one.bin": b"1" * 999, "deep/../../two.bin": b"2" * 99, "deep/other": b"no"})
    server.files["set.tar.gz"] = archive
    checksum = f"md5:{hashlib.md5(archive).hexdigest()}"
    remote = Remote(f"{server.home}/set.tar.gz", checksum, len(archive), ("one.bin", "two.bin"))
    known = KnownSet("the set", ("the-set",), ("one.bin", "two.bin"), (remote,))
    server.cut = 40
    folder = tmp_path / "cache" / "data" / "the-set"
    with pytest.raises(
        ConnectionError, match=r"the set is not on this machine, .* Bring http.*set.tar.gz to .*the-set"
    ):
        known.find()
    assert [path.name for path in folder.iterdir()] == [".set.tar.gz.part"]
    assert known.find() == folder
    assert server.asked == [("set.tar.gz", None), ("set.tar.gz", "bytes=40-")]
    assert sorted(path.name for path in folder.iterdir()) == ["one.bin", "two.bin"]
    assert (folder / "one.bin").read_bytes() == b"1" * 999
    assert known.find() == folder
    assert len(server.asked) == 2


def test_a_wrong_checksum_or_size_keeps_nothing(tmp_path: Path, server: Server) -> None:
    server.files["a.txt"] = b"other text"
    for remote, message in (
        (
            Remote(f"{server.home}/a.txt", "sha256:" + "0" * 64),
            "a.txt must have the sha256 000.*, got .*: nothing is kept",
        ),
        (Remote(f"{server.home}/a.txt", "sha256:" + "0" * 64, 11), "a.txt must have 11 bytes, got 10: nothing is kept"),
    ):
        with pytest.raises(RuntimeError, match=message):
            fetch(remote, tmp_path / "here")
        assert list((tmp_path / "here").iterdir()) == []


def test_a_packed_text_is_verified_unpacked(tmp_path: Path, server: Server) -> None:
    server.files["train.en.gz"] = gzip.compress(b"a dog\n")
    remote = Remote(f"{server.home}/train.en.gz", "sha256:" + hashlib.sha256(b"a dog\n").hexdigest(), unpacked=True)
    fetch(remote, tmp_path)
    assert (tmp_path / "train.en").read_bytes() == b"a dog\n"


HTML, CUT = b"<html>log in to the hotel</html>", gzip.compress(b"a dog\n" * 100)[:-6]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"another\n"), r"train.en.gz must have the sha256 .*, got .*: nothing is kept of it"),
        (HTML, r"train.en.gz must be a whole .gz file, got one that begins with b'<html>.*Not a gzipped file"),
        (CUT, r"train.en.gz must be a whole .gz file, got one that begins with .*ended before the end-of-stream"),
    ],
    ids=["other contents", "a page", "cut"],
)
def test_a_packed_text_that_is_wrong_keeps_nothing_and_says_what_to_do(
    tmp_path: Path, server: Server, content: bytes, message: str
) -> None:
    server.files["train.en.gz"] = content
    checksum = "sha256:" + hashlib.sha256(b"a dog\n").hexdigest()
    remote = Remote(f"{server.home}/train.en.gz", checksum, unpacked=True)
    known = KnownSet("the set", ("the-set",), ("train.en",), (remote,))
    with pytest.raises(RuntimeError, match=f"the set is not on this machine, and .*{message}.*Bring http.*--data-dir"):
        known.find()
    assert list((tmp_path / "cache" / "data" / "the-set").iterdir()) == []


def test_whoever_waits_for_a_download_is_told(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "SAID_EVERY", -1.0)
    monkeypatch.setattr(download, "BLOCK", 600_000)
    server.files["x.bin"] = b"z" * 1_000_000
    remote = Remote(f"{server.home}/x.bin", "md5:" + hashlib.md5(server.files["x.bin"]).hexdigest(), 1_000_000)
    known = KnownSet("the set", ("the-set",), ("x.bin",), (remote,))
    known.find()
    assert capsys.readouterr().err.splitlines() == [
        f"fetching the set from {server.home}/x.bin, 1.0 MB",
        "0.6 MB of 1.0 MB",
        "1.0 MB of 1.0 MB",
    ]
    known.find()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "1")
    fetch(remote, tmp_path / "other")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("known", [cifar.CIFAR10, cifar.CIFAR100, MNIST, FASHION, MULTI30K, SST2, SHAKESPEARE])
def test_every_file_of_a_known_set_has_a_size(known: KnownSet) -> None:
    assert known.remotes
    assert all(remote.n_bytes for remote in known.remotes)


def test_offline_it_is_said_where_to_put_it(server: Server) -> None:
    known = KnownSet("X", ("x",), ("x.bin",), (Remote(f"{server.home}/missing", "md5:0"),))
    with pytest.raises(ConnectionError, match=r"X is not on this machine, and cannot be fetched \(Not Found\)"):
        known.find()
    known = KnownSet("X", ("x",), ("x.bin",), (Remote("http://127.0.0.1:1/x.bin", "md5:0"),))
    with pytest.raises(
        ConnectionError, match=r"refused.*Bring http://127.0.0.1:1/x.bin to .*cache/data/x .*--data-dir"
    ):
        known.find()


def test_threads_of_one_process_fetch_a_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes while the first fetches, and waits."""
    fetched, never = list[Path](), threading.Event()
    known = KnownSet("X", ("x",), ("x.bin",), (Remote("http://127.0.0.1:1/x.bin", "md5:0"),))
    monkeypatch.setattr(KnownSet, "find_here", lambda *_: None)

    def slow_fetch(remote: Remote, folder: Path, what: str) -> None:
        fetched.append(folder)
        never.wait(0.3)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / remote.name).touch()

    monkeypatch.setattr(download, "fetch", slow_fetch)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: known.find(), range(2)))
    assert found[0] == found[1]
    assert len(fetched) == 1


def test_a_set_that_is_not_as_published_is_said(tmp_path: Path) -> None:
    write_small_sets(tmp_path)
    folder = tmp_path / "cifar-10-batches-bin"
    found = Cifar10(directory=str(tmp_path), n_valid=10).load().found
    assert f"not as published: the test part of {folder} has 1,100 images instead of 10,000" in found
    for data, name, n_bytes in (
        (Sst2(directory=str(tmp_path)), "sst2/dev.tsv", 94_414),
        (Multi30k(directory=str(tmp_path), tokenizer=BytePairs(n_tokens=300)), "multi30k/val.de", 75_981),
        (TinyShakespeare(directory=str(tmp_path), n_context=8), "tinyshakespeare/input.txt", 1_115_394),
    ):
        file = tmp_path / name
        said = f"not as published: {file.name} has {file.stat().st_size:,} bytes instead of {n_bytes:,}"
        assert said in data.load().found


def test_the_file_that_is_missing_is_named(tmp_path: Path) -> None:
    write_small_sets(tmp_path)
    folder = tmp_path / "cifar-10-batches-bin"
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=re.escape(f"got {folder}, which has no data_batch_3.bin")):
        Cifar10(directory=str(tmp_path)).load()
    with pytest.raises(ValueError, match=r"got .*gone, which is no folder"):
        Cifar10(directory=str(tmp_path / "gone")).load()
