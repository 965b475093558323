"""`headwork generate` and `translate` with folders of Hugging Face's: loops, chats, searches, int8, wrong arguments."""

import csv
import io
import json
from pathlib import Path

import pytest
import torch

import headwork as hw
from headwork.cli import main

from ..hub.checkpoints import CHECKPOINTS
from ..hub.test_formats import a_tokenizer

TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = a_tokenizer()
    changes = {"vocab_size": tokenizer.get_vocab_size(), "eos_token_id": None, "max_position_embeddings": 64}
    CHECKPOINTS["llama"].save(tmp_path, **changes)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def say(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    assert main([str(argument) for argument in arguments]) == code
    said = capsys.readouterr()
    return said.out, said.err


def answers(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a_loop_of_prompts(folder: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("generate", folder, "--max-new-tokens", 5, "--greedy", "--json")
    alone = [answers(say(capsys, *options, "--prompt", text)[0])[0] for text in ("the cat", "a dog")]
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\na dog\n"))
    assert answers(say(capsys, *options)[0]) == alone


def test_a_file_of_prompts_becomes_a_file_of_texts(folder: Path, capsys, tmp_path: Path) -> None:
    options = ("generate", folder, "--max-new-tokens", 5, "--greedy")
    lines = ["the cat", "", "a dog"]
    wanted = [
        answers(say(capsys, *options, "--json", "--prompt", text)[0])[0]
        if text
        else {"prompt": "", "text": "", "tokens": 0}
        for text in lines
    ]
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert answers(say(capsys, *options, "--file", file, "--json")[0]) == wanted
    texts = [f"{each['prompt']}{each['text']}" for each in wanted]
    assert say(capsys, *options, "--file", file)[0] == "\n".join(texts) + "\n"
    for ending in ("csv", "json", "jsonl"):
        out = tmp_path / f"texts.{ending}"
        assert "3 answers in" in say(capsys, *options, "--file", file, "--out", out)[0]
        with out.open(encoding="utf-8", newline="") as written:
            match ending:
                case "csv":
                    found = [{**row, "tokens": int(row["tokens"])} for row in csv.DictReader(written)]
                case "json":
                    found = json.load(written)
                case _:
                    found = answers(written.read())
        assert found == wanted


def test_a_table_and_a_folder_of_prompts(folder: Path, capsys, tmp_path: Path) -> None:
    options = ("generate", folder, "--max-new-tokens", 5, "--greedy", "--json")
    wanted = [answers(say(capsys, *options, "--prompt", text)[0])[0]["text"] for text in ("the cat", "a dog")]
    asked = tmp_path / "asked"
    asked.mkdir()
    (asked / "a.jsonl").write_text('{"id": 7, "prompt": "the cat"}\n{"id": 8, "prompt": "a dog"}\n')
    found = answers(say(capsys, *options, "--file", asked / "a.jsonl")[0])
    assert found[0] == {
        "id": 7,
        "prompt": "the cat",
        "place": f"{asked / 'a.jsonl'}, line 1",
        "text": wanted[0],
        "tokens": 5,
    }
    (asked / "b.csv").write_text("text,mine\na dog,the cat\n")
    by_name = answers(say(capsys, *options, "--file", asked / "b.csv")[0])
    assert (by_name[0]["text"], by_name[0]["text_2"]) == ("a dog", wanted[1])
    said = answers(say(capsys, *options, "--file", asked / "b.csv", "--column", "mine")[0])
    assert said[0]["text_2"] == wanted[0]
    (asked / "notes.txt").write_text("left out")
    out, err = say(capsys, *options, "--file", asked)
    assert [answer.get("text_2", answer["text"]) for answer in answers(out)] == [*wanted, wanted[1]]
    assert f"(1), the first at {asked / 'notes.txt'}" in err


def test_lines_of_a_file_do_not_know_of_each_other(folder: Path, capsys, tmp_path: Path) -> None:
    """Those of stdin are a chat; in a file each is the first message."""
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    options = ("generate", folder, "--max-new-tokens", 5, "--greedy", "--json", "--chat")
    file = tmp_path / "prompts.txt"
    file.write_text("the cat\na dog\n", encoding="utf-8")
    alone = [answers(say(capsys, *options, "--prompt", text)[0])[0] for text in ("the cat", "a dog")]
    assert answers(say(capsys, *options, "--file", file)[0]) == alone


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--prompt", "a", "--file", "prompts.txt"), "give a prompt or a file, not both, got prompts.txt and 'a'"),
        (("--file", "nowhere.txt"), "nowhere.txt"),
        (("--prompt", "a", "--column", "mine"), "column is for tables, given by --file, got 'mine'"),
        (("--file", "prompts.txt", "--column", "mine"), "column is for tables, got 'mine' for prompts.txt"),
        (("--file", "latin.txt"), "text must be UTF-8, got the byte 0xe9 in line 2 of latin.txt"),
        (("--file", "prompts.txt", "--out", "texts.doc"), "out must end in one of .csv, .json, .jsonl, got texts.doc"),
        (("--file", "prompts.txt", "--out", "old.csv"), "out must be a new file, got old.csv, which exists"),
        (
            ("--weights", "int8", "--measure", "prompts.txt", "--out", "new.csv"),
            "out is for texts to generate: leave out measure, got new.csv",
        ),
    ],
)
def test_wrong_files(
    folder: Path, capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.txt").write_text("the cat\n", encoding="utf-8")
    Path("latin.txt").write_bytes(b"a dog\ncaf\xe9\n")
    Path("old.csv").write_text("", encoding="utf-8")
    before = sorted(Path().iterdir())
    assert complaint in say(capsys, "generate", folder, "--max-new-tokens", 2, *arguments, code=2)[1]
    assert sorted(Path().iterdir()) == before


def test_a_chat_remembers(folder: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    options = ("generate", folder, "--max-new-tokens", 5, "--greedy", "--json")
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\na dog\n"))
    first, second = answers(say(capsys, *options)[0])
    assert answers(say(capsys, *options, "--prompt", "the cat", "--chat")[0]) == [first]
    before = f"user the cat\nassistant {first['text']}\nuser a dog\n"
    (folder / "chat_template.jinja").unlink()
    assert answers(say(capsys, *options, "--prompt", before)[0])[0]["text"] == second["text"]


def test_a_hostile_template_stops_the_command(folder: Path, capsys) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}")
    options = ("generate", folder, "--prompt", "a", "--chat")
    assert "the chat template is refused: SecurityError" in say(capsys, *options, code=2)[1]


def test_a_search_with_beams(folder: Path, capsys) -> None:
    from headwork.generation import beam_search
    from headwork.hub import PretrainedTokenizer, load_pretrained

    options = ("generate", folder, "--max-new-tokens", 5, "--json", "--prompt", "the cat")
    found = answers(say(capsys, *options, "--beams", 3, "--length-penalty", 0.5)[0])[0]
    tokenizer = PretrainedTokenizer.load(folder)
    ids = tokenizer.encode("the cat")
    best = beam_search(load_pretrained(folder), [ids], n_beams=3, max_new_tokens=5, end=None, length_penalty=0.5)[0]
    whole = tokenizer.decode([*ids, *best.ids.tolist()])
    assert whole == tokenizer.decode(ids) + str(found["text"])
    assert "seed" not in found


def test_a_stop_and_a_penalty_and_a_lookup(folder: Path, capsys) -> None:
    options = ("generate", folder, "--max-new-tokens", 12, "--greedy", "--json", "--prompt", "the cat")
    plain = answers(say(capsys, *options)[0])[0]
    assert answers(say(capsys, *options, "--prompt-lookup", 4)[0])[0] == plain
    text = str(plain["text"])
    stopped = answers(say(capsys, *options, "--stop", text[4:6], "--stop", "never there")[0])[0]
    assert stopped["text"] == text[: text.index(text[4:6])]
    assert answers(say(capsys, *options, "--repetition-penalty", 5)[0])[0]["text"] != text


@pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="no int8 in this build")
def test_weights_in_int8(folder: Path, capsys, tmp_path: Path) -> None:
    hw.save(hw.hub.load_pretrained(folder, dtype=torch.float32), tmp_path / "32", format="huggingface", like=folder)
    options = ("generate", tmp_path / "32", "--max-new-tokens", 5, "--weights", "int8", "--greedy")
    out, err = say(capsys, *options, "--prompt", "the cat")
    assert out.startswith("the cat")
    assert "MB in float32" in err
    (tmp_path / "text.txt").write_text("the cat sat on a mat and the dog sat on the cat")
    measured = answers(say(capsys, *options, "--measure", tmp_path / "text.txt", "--json")[0])[0]
    assert measured["int8"]["megabytes"] < measured["float32"]["megabytes"]
    assert "perplexity" in say(capsys, *options, "--measure", tmp_path / "text.txt")[0]
    out, err = say(capsys, *options, "--weights", "int4", "--prompt", "the cat")
    assert out.startswith("the cat")
    assert "MB in int4" in err
    assert "measure must" in say(capsys, *options, "--measure", tmp_path / "none.txt", code=2)[1]
    wide = ("generate", folder, *options[2:], "--prompt", "a")
    assert "weights must be in float32 on the CPU to become int8, got torch.float64" in say(capsys, *wide, code=2)[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--beams", 0), "beams must be 1 or more, got 0"),
        (("--length-penalty", 1), "length_penalty is for a beam search"),
        (("--beams", 2, "--top-k", 3), "a beam search needs no choice: leave out top_k, got 3"),
        (("--beams", 2, "--repetition-penalty", 2), "beams must be 1 with a repetition penalty"),
        (("--greedy", "--min-p", 0.5), "greedy needs no choice: leave out min_p"),
        (("--min-p", 2), "min_p must lie in [0, 1], got 2"),
        (("--prompt-lookup", 3), "prompt_lookup needs --greedy, got 3 without"),
        (("--stop", ""), "stop must be a list of texts that are not empty"),
        (("--chat",), "chat needs a model with a chat template"),
        (("--measure", "x"), "measure is for --weights int8 or int4"),
        (("--repetition-penalty", 0), "repetition_penalty must be more than 0"),
    ],
)
def test_wrong_arguments(folder: Path, capsys, options: tuple[object, ...], message: str) -> None:
    out, err = say(capsys, "generate", folder, "--prompt", "a", *options, code=2)
    assert message in out + err


# --- translate -------------------------------------------------------------------------------------------------------


def test_translate_with_a_t5(tmp_path: Path, capsys) -> None:
    tokenizer = a_tokenizer()
    CHECKPOINTS["t5"].save(tmp_path, vocab_size=tokenizer.get_vocab_size(), eos_token_id=1, decoder_start_token_id=0)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    options = ("translate", tmp_path, "--max-new-tokens", 5, "--json", "the cat", "a dog")
    found = answers(say(capsys, *options, "--beams", 2)[0])
    assert [line["source"] for line in found] == ["the cat", "a dog"]
    transformers = pytest.importorskip("transformers")
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path)
    ids = torch.tensor([tokenizer.encode("the cat").ids])
    expected = theirs.generate(ids, max_new_tokens=5, num_beams=2, early_stopping="never", do_sample=False)
    assert found[0]["translation"] == tokenizer.decode(expected[0].tolist(), skip_special_tokens=True)


def test_translate_with_what_does_not(folder: Path, capsys) -> None:
    assert "run must be one of a translator" in say(capsys, "translate", folder, "the cat", code=2)[1]
