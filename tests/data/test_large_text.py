"""Texts of a user's own: a file, a folder of files, and one that is larger than memory."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwork.data import BytePairs, Characters, MaskedText, TextFile, Tokenizer, bundled_text
from headwork.data.bundled_text import read_pieces
from headwork.data.mapped_tokens import mapped_tokens


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.sampled_from("ab é€\n\t.'\r\N{GRINNING FACE}"), max_size=400),
    size=st.integers(1, 50),
)
@example(text="\r\r\n", size=1)
@example(text="\r\r\n", size=50)
@example(text="a\r", size=2)
def test_the_pieces_are_the_text_and_their_tokens_are_its_tokens(tmp_path_factory, text: str, size: int) -> None:
    path = tmp_path_factory.mktemp("text") / "own.txt"
    path.write_bytes(text.encode())
    pieces = list(read_pieces(path, size))
    whole = text.replace("\r\n", "\n")
    assert "".join(pieces) == whole
    if all(piece.endswith("\n") for piece in pieces[:-1]):  # else there was no place to cut
        tokenizer = Tokenizer.byte_pairs([whole * 3], 270)
        assert [i for piece in pieces for i in tokenizer.encode(piece)] == tokenizer.encode(whole)


def test_two_that_write_one_file_of_tokens_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As threads of one process do: the second begins and ends while the first writes."""
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path))

    def pieces(others: list[Iterator[torch.Tensor]]) -> Iterator[torch.Tensor]:
        yield torch.tensor([1, 2], dtype=torch.int32)
        for other in others:
            assert mapped_tokens("the same", other).tolist() == [1, 2, 3]
        yield torch.tensor([3], dtype=torch.int32)

    assert mapped_tokens("the same", pieces([pieces([])])).tolist() == [1, 2, 3]
    assert len(list((tmp_path / "tokens").iterdir())) == 1


@pytest.mark.parametrize("tokenizer", [Characters(), BytePairs(n_tokens=280)])
def test_tokens_in_a_file_are_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer) -> None:
    path = tmp_path / "own.txt"
    path.write_text("".join(f"To be {i}, or not to be\nthat is the question {i * i}\n\n" for i in range(900)))
    config = TextFile(path=str(path), tokenizer=tokenizer, n_context=16)
    wanted = config.load(seed=2)
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bundled_text, "IN_MEMORY", 1000)
    monkeypatch.setattr(read_pieces, "__defaults__", (3000,))
    for _ in range(2):  # written, and found again
        found = config.load(seed=2)
        assert len(list((tmp_path / "cache" / "tokens").iterdir())) == 3
        for part in ("train", "valid", "test"):
            ours, theirs = getattr(wanted, part), getattr(found, part)
            assert len(ours) == len(theirs)
            for epoch in (None, 1):
                for one, other in zip(ours.batch([0, 2, 5], epoch), theirs.batch([0, 2, 5], epoch), strict=True):
                    assert torch.equal(one, other)
    path.write_text(path.read_text().replace("question", "answer"))
    config.load()
    assert len(list((tmp_path / "cache" / "tokens").iterdir())) == 6


def test_a_folder_of_texts(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.txt").write_text("second " * 300)
    (tmp_path / "a.md").write_text("first " * 300)
    (tmp_path / "deep" / "c.txt").write_text("third " * 300)
    (tmp_path / "no.py").write_text("not this")
    config = TextFile(path=str(tmp_path), n_context=8)
    assert "".join(config.pieces()) == "\n".join(["first " * 300, "second " * 300, "third " * 300])
    assert config.load().found[:2] == (
        "5,702 characters in 3 files, 17 different tokens",
        f"skipped: files that do not end in .txt or .md (1), the first at {tmp_path / 'no.py'}",
    )


PARTS = {"train": "we train, valid and test\n" * 40, "valid": "valid\n" * 9, "test": "test\n" * 9}


@pytest.mark.parametrize("form", ["{}.txt", "ptb.{}.txt", "{}/all.txt"])
@pytest.mark.parametrize("missing", [None, "valid", "test"])
def test_files_that_name_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, missing: str | None
) -> None:
    wanted = {**PARTS}
    if missing is not None:
        wanted |= {"train": PARTS["train"][:-50], missing: PARTS["train"][-50:]}
    for part in wanted.keys() - {missing}:
        path = tmp_path / "own" / form.format(part)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PARTS[part])
    other = "valid" if missing == "test" else "test"
    how = "as the files say" if missing is None else f"{other} as the files say, {missing} from the end of train"
    monkeypatch.setenv("HEADWORK_CACHE", str(tmp_path / "cache"))
    for in_memory in (10_000, 10):
        monkeypatch.setattr(bundled_text, "IN_MEMORY", in_memory)
        data = TextFile(path=str(tmp_path / "own"), n_context=8).load()
        assert {part: data.tokenizer.decode(getattr(data, part).ids.tolist()) for part in wanted} == wanted
        assert data.found[-1].endswith(f"tokens, {how}")


@pytest.mark.parametrize("names", [("index.md", "training.md"), ("index.md", "dev.md", "testing.md"), ("train.txt",)])
def test_names_that_make_no_split(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).write_text("some words " * 99)
    assert TextFile(path=str(tmp_path), n_context=8).load().found[-1].endswith("one after the other")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("index.md", "train.txt", "test.txt"), "all files of .* must name a part .* got test.txt beside index.md"),
        (("valid.txt", "test.txt"), "must have a part to train on, got valid and test only"),
    ],
)
def test_names_that_make_half_a_split(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    for name in names:
        (tmp_path / name).write_text("some words " * 99)
    with pytest.raises(ValueError, match=message):
        TextFile(path=str(tmp_path), n_context=8).load()


def test_masked_text_has_the_digest_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("some words " * 99)
    text = TextFile(path=str(tmp_path / "own.txt"), n_context=8)
    whole, masked = text.load(), MaskedText(text=text).load()
    assert masked.digest == whole.digest is not None
    assert masked.found == whole.found != ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"fine\nalso\ngr\xfc\xdfe\n" * 99, r"text must be UTF-8, got .*own.txt with the byte 0xfc in line 3"),
        (b"fine\n\xe2\x82", r"text must be UTF-8, got .*own.txt with the byte 0xe2 in line 2"),
        (b" \n\n", r"text must not be empty, got .*own.txt"),
        (b"short", r"n_context must be less than the tokens of each part"),
    ],
)
def test_wrong_texts(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "own.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        TextFile(path=str(tmp_path / "own.txt")).load()


def test_wrong_folders(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("no")
    with pytest.raises(ValueError, match=r"a folder with files such as .txt, .md, got"):
        TextFile(path=str(tmp_path)).load()
    with pytest.raises(ValueError, match=r"text must be a file or folder that exists, got .*none.txt"):
        TextFile(path=str(tmp_path / "none.txt")).load()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_text_four_times_as_large_as_the_memory_it_may_use(tmp_path: Path) -> None:
    """What the process may allocate beside what it has after its imports is a quarter of the file."""
    path, n_bytes = tmp_path / "own.txt", 2**26
    line = "To be, or not to be, that is the question whether tis nobler in the mind to suffer\n"
    with path.open("w") as file:
        for _ in range(n_bytes // len(line)):
            file.write(line)
    program = f"""
        import resource, torch
        torch.set_num_threads(1)
        from headwork.data import TextFile, bundled_text
        TextFile(path=__file__, n_context=4).load()  # the tokenizer starts its threads
        bundled_text.IN_MEMORY = 2**20
        used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (used + {n_bytes // 4},) * 2)
        data = TextFile(path={str(path)!r}, n_context=64).load()
        assert len(data.train.ids) > 0.89 * {n_bytes}, len(data.train.ids)
        print(data.tokenizer.decode(data.train.batch([0, 9]).ids[0].tolist()))
        try:
            torch.zeros({n_bytes}, dtype=torch.uint8)
        except RuntimeError:
            print("the limit holds")
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program) + "#" * 999)
    environment = {"HEADWORK_CACHE": str(tmp_path / "cache"), "PYTHONPATH": ":".join(sys.path), "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == ""
    assert done.stdout == line[:64] + "\nthe limit holds\n"
