"""The engine in the page gives what PyTorch gives: at every point of every model, for every question."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.explorer.living_browser import ASK, RUN, chromium, engine_page
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.data import Tokenizer
from headwork.explorer import questions as q
from headwork.explorer.answering import Answering
from headwork.explorer.answers import Part
from headwork.explorer.living import lacks, living_data, pack, tokens_of, unpack
from headwork.explorer.subject import Subject
from headwork.models import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    GaussianImageEncoderConfig,
    VisionTransformerConfig,
)
from headwork.serialise import config_to_dict

pytestmark = pytest.mark.slow

NEAR = 1e-4
HEADS, FEED_FORWARD = choices.Heads(n_heads=2), choices.FeedForward(d_ff=13)
SMALL: dict[str, Any] = {"d_model": 6, "n_layers": 2, "heads": HEADS, "feed_forward": FEED_FORWARD}
IMAGE: dict[str, Any] = {"n_classes": 7, "image": (6, 4), "n_channels": 3, "patch": (2, 1)}
CONFIGS: dict[str, Any] = {
    "GPT": DecoderConfig(vocab=17, **SMALL, position=choices.LearnedPositions(max_tokens=11)),
    "Llama": DecoderConfig(
        vocab=17,
        d_model=8,
        n_layers=2,
        heads=choices.Heads(n_heads=4, d_head=6, n_kv_heads=2, bias=False, qk_norm=choices.QKNorm(), softcap=3.0),
        feed_forward=choices.GatedFeedForward(d_ff=13),
        norm=choices.RMSNorm(),
        position=choices.RotaryPositions(fraction=0.7),
        lm_head=choices.UntiedLMHead(bias=True, softcap=5.0),
        window=choices.SlidingWindow(n_tokens=3, layers=(1,)),
        scaled_embedding=True,
    ),
    "ALiBi, three heads": DecoderConfig(
        vocab=17,
        d_model=6,
        n_layers=2,
        heads=choices.Heads(n_heads=3, beta=2.0, qk_norm=choices.QKNorm(norm=choices.LayerNorm(), per_head=False)),
        feed_forward=choices.FeedForward(d_ff=13, activation="relu2"),
        norm=choices.UnbiasedLayerNorm(),
        norm_order="post",
        position=choices.AlibiPositions(),
        lm_head=choices.TiedLMHead(scaled=True, bias=True),
    ),
    "hard attention": DecoderConfig(
        vocab=17,
        d_model=6,
        n_layers=1,
        heads=choices.Heads(n_heads=2, beta=float("inf")),
        feed_forward=choices.FeedForward(d_ff=13, activation="silu"),
        position=choices.NoPositions(),
    ),
    "BERT": EncoderConfig(vocab=17, head=choices.MaskedLMHead(), **SMALL),
    "classifier": EncoderConfig(
        vocab=17,
        head=choices.ClassificationHead(n_classes=3, pooling=choices.AttentionPooling(n_heads=2)),
        **SMALL,
        norm_order="pre",
        position=choices.SinusoidalPositions(layout="halves"),
        n_segments=0,
    ),
    "first token": EncoderConfig(
        vocab=17,
        head=choices.ClassificationHead(n_classes=3, pooling=choices.FirstToken(), activation=None),
        **SMALL,
        position=choices.SinusoidalPositions(base=50.0),
    ),
    "tagger": EncoderConfig(vocab=17, head=choices.TokenClassificationHead(n_classes=3), **SMALL),
    "original Transformer": EncoderDecoderConfig(
        vocab=17,
        target_vocab=13,
        d_model=6,
        n_encoder_layers=2,
        n_decoder_layers=1,
        heads=HEADS,
        feed_forward=choices.FeedForward(d_ff=13, activation="relu"),
    ),
    "pre-norm translator": EncoderDecoderConfig(
        vocab=17,
        d_model=8,
        n_encoder_layers=1,
        n_decoder_layers=2,
        heads=HEADS,
        feed_forward=choices.FeedForward(d_ff=13, activation="gelu_tanh"),
        norm_order="pre",
        position=choices.RotaryPositions(layout="interleaved"),
    ),
    "ViT": VisionTransformerConfig(**IMAGE, **SMALL),
    "DeiT": VisionTransformerConfig(
        **IMAGE,
        **SMALL,
        pooling=choices.DistillationToken(),
        position=choices.SinusoidalGrid(),
        head=choices.MLPHead(d_hidden=5),
    ),
    "ViT without places": VisionTransformerConfig(
        **IMAGE, **SMALL, pooling=choices.MaxPooling(), position=choices.NoPositions(), norm_order="post"
    ),
    "Gaussian heads": GaussianImageEncoderConfig(
        **IMAGE, d_model=6, n_layers=2, heads=choices.GaussianHeads(n_heads=3), feed_forward=FEED_FORWARD
    ),
    "Gaussian ellipses": GaussianImageEncoderConfig(
        **IMAGE,
        d_model=6,
        n_layers=2,
        heads=choices.GaussianHeads(n_heads=3, d_value=5, precision="diagonal"),
        feed_forward=FEED_FORWARD,
        norm_order="pre",
        dense_after_attention=True,
    ),
}


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with chromium() as browser:
        found = engine_page(browser)
        failures = list[str]()
        found.on("pageerror", lambda error: failures.append(str(error)))
        found.on("requestfailed", lambda request: failures.append(request.url))
        yield found
        assert not failures


def lively(config: Any, seed: int = 0) -> nn.Module:
    """A model whose weights are all random, so that no bias or norm is one that changes nothing; in half precision."""
    torch.manual_seed(seed)
    model: nn.Module = config.build().eval()
    with torch.no_grad():
        for weight in model.state_dict().values():
            weight.copy_((weight + 0.5 * torch.randn_like(weight)).half())
    return model


def input_of(model: nn.Module) -> tuple[list[Tensor], dict[str, Any]]:
    """An input for PyTorch, and the same for the engine."""
    about = hw.models.describe(model)
    assert about is not None
    if about.input == "image":
        assert about.image is not None
        image = torch.rand(1, about.n_channels or 1, *about.image)
        return [image], {"image": {"shape": list(image.shape[1:]), "data": image.flatten().tolist()}}
    source = torch.randint(0, about.vocab or 1, (1, 7))
    if about.input == "text":
        return [source], {"ids": source[0].tolist()}
    target = torch.randint(0, about.n_outputs, (1, 5))
    return [source, target], {"source": source[0].tolist(), "target": target[0].tolist()}


def run_engine(page: Any, model: nn.Module, given: dict[str, Any]) -> dict[str, Tensor]:
    about = {"config": config_to_dict(model), "weights": pack(model.state_dict()), "input": given}
    return {
        name: torch.tensor([float(x) for x in point["data"]]).reshape(point["shape"])
        for name, point in page.evaluate(RUN, about).items()
    }


def run_pytorch(model: nn.Module, inputs: list[Tensor], **keywords: Any) -> dict[str, Tensor]:
    """What passes each point, of the one example; but for the modules that do nothing here."""
    idle = {name for name, module in model.named_modules() if isinstance(module, nn.Dropout | nn.Identity)}
    with torch.no_grad(), hw.record(model) as seen:
        model(*inputs, **keywords)
        found = {name: seen[name] for name in seen if name not in idle}
    return {name: value if "key_row" in axes_of(model, name) else value[0] for name, value in found.items()}


def axes_of(model: nn.Module, name: str) -> list[str]:
    return str(getattr(dict(model.named_modules()).get(name), "axes", "")).split()


def near(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and torch.allclose(found, expected, atol=NEAR, rtol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_point_of_every_model_is_that_of_pytorch(page: Any, name: str) -> None:
    model = lively(CONFIGS[name])
    assert lacks(model) == []
    inputs, given = input_of(model)
    expected, found = run_pytorch(model, inputs), run_engine(page, model, given)
    assert set(found) == set(expected)
    assert [name for name in found if not near(found[name], expected[name])] == []


def test_padding_hides_tokens_and_moves_nothing(page: Any) -> None:
    visible = torch.tensor([[False, False, True, True, True, True, False]])
    as_list = {"visible": visible[0].tolist()}
    for name in ("GPT", "Llama", "classifier", "first token"):
        model = lively(CONFIGS[name])
        [ids], given = input_of(model)
        expected, found = run_pytorch(model, [ids], visible=visible), run_engine(page, model, given | as_list)
        checked = ["output", "layers.0.attention.weights"]
        assert [point for point in checked if not near(found[point], expected[point])] == [], name
    model = lively(CONFIGS["original Transformer"])
    inputs, given = input_of(model)
    expected = run_pytorch(model, inputs, source_visible=visible)
    found = run_engine(page, model, given | {"sourceVisible": visible[0].tolist()})
    assert near(found["output"], expected["output"])


TOKENS = """async ({tokens, texts}) => {
    const { Tokens } = await import("./engine/tokens.js");
    const known = new Tokens(tokens);
    const lists = texts.map((text) => known.encode(text));
    return lists.map((ids) => [ids, known.decode(ids), known.strings(ids)]);
}"""
TEXTS = (
    "",
    "abba",
    "A film, so-so... and GOOD!",
    "<pad><end>\ufffd",
    "tab\tline\nend",
    "naïve \U0001f600 e\u0301 日本",
    "don't_stop 42",
)


@pytest.mark.parametrize("make", [Tokenizer.characters, lambda texts: Tokenizer.words(texts, 40)])
def test_texts_become_the_tokens_of_the_tokenizer(page: Any, make: Callable[[list[str]], Tokenizer]) -> None:
    tokenizer = make([*TEXTS[:3], "日本 naïve don't\n\t"])
    found = page.evaluate(TOKENS, {"tokens": tokens_of(tokenizer), "texts": TEXTS})
    for text, (ids, decoded, strings) in zip(TEXTS, found, strict=True):
        assert ids == tokenizer.encode(text), text
        assert decoded == tokenizer.decode(ids), text
        assert strings == tokenizer.strings(ids), text


SAMPLING = """async ({logits, settings}) => {
    const { pick, probabilities, randomNumbers } = await import("./engine/sampling.js");
    const random = randomNumbers(1);
    const picked = Array.from({ length: 4000 }, () => pick(logits, settings, random));
    return [probabilities(logits, settings), logits.map((_, id) => picked.filter((each) => each === id).length / 4000)];
}"""


@pytest.mark.parametrize("settings", [{}, {"top_k": 3}, {"top_p": 0.7}, {"temperature": 0.4, "top_k": 5, "top_p": 0.9}])
def test_tokens_are_drawn_as_they_are_in_python(page: Any, settings: dict[str, Any]) -> None:
    logits = [0.3, 2.0, -1.0, 1.5, 1.5, -4.0, 0.0]
    names = {"temperature": "temperature", "top_k": "topK", "top_p": "topP"}
    given = {names[key]: value for key, value in settings.items()}
    found, drawn = page.evaluate(SAMPLING, {"logits": logits, "settings": given})
    expected = hw.generation.sampling.probabilities(torch.tensor([logits]), hw.generation.Sample(**settings))[0]
    assert torch.allclose(torch.tensor(found), expected, atol=1e-6)
    assert torch.allclose(torch.tensor(drawn), expected, atol=0.04)  # 5 deviations of 4,000 draws


def test_weights_too_large_for_half_precision_stay_whole(page: Any) -> None:
    model = lively(CONFIGS["ViT"])
    with torch.no_grad():
        model.get_parameter("classifier.bias")[0] = 1e5
    assert pack(model.state_dict())["dtype"] == "float32"
    inputs, given = input_of(model)
    assert near(run_engine(page, model, given)["output"], run_pytorch(model, inputs)["output"])
    weights = {"x": torch.randn(3, 5).half().float(), "y": torch.tensor([6e-8, -65504.0])}
    assert all(torch.equal(value, weights[name].half().float()) for name, value in unpack(pack(weights)).items())


def test_what_the_engine_lacks_is_named() -> None:
    def why(config: Any, tokenizer: Any = None, **parts: Any) -> str:
        return "; ".join(lacks(config.build(), tokenizer))

    gpt, vit, gaussian = CONFIGS["GPT"], CONFIGS["ViT"], CONFIGS["Gaussian heads"]
    assert "RelativeShifts" in why(replace(gpt, position=choices.RelativePositions()))
    assert "BucketPositions" in why(replace(gpt, position=choices.BucketPositions()))
    scaled = choices.RotaryPositions(scaling=choices.LinearScaling(factor=2.0))
    assert "LinearScaling" in why(replace(gpt, d_model=8, position=scaled))
    assert "SandwichLayer" in why(replace(gpt, layer=choices.SandwichLayer()))
    assert "NormalisedPatchEmbedding" in why(replace(vit, embedding=choices.LinearPatches(norm=True)))
    assert "full precision" in why(replace(gaussian, heads=choices.GaussianHeads(n_heads=2, precision="full")))
    assert "5,000,000" in why(replace(gpt, vocab=900_000))
    assert "tokenizer" in why(gpt, Tokenizer.byte_pairs(["low lower"] * 9, n_tokens=264))
    with_own = hw.models.Decoder(replace(gpt, position=choices.NoPositions()), positions=hw.layers.AlibiPositions(2))
    assert lacks(with_own) == ["the model has parts of your own"]
    converted = hw.convert.to_convolution(gaussian.build().eval()).model
    assert "the model was converted" in lacks(converted)
    broken = lively(vit)
    with torch.no_grad():
        broken.get_parameter("classifier.bias")[0] = torch.nan
    assert lacks(broken) == ["some weights are not finite"]
    with pytest.raises(ValueError, match="engine can compute, but some weights are not finite"):
        living_data(Answering(Subject.of(broken)))


def text_subject(name: str) -> Subject:
    """A small model with a tokenizer of as many characters as it has tokens."""
    tokenizer = Tokenizer.characters(["abcdefghi klm"])
    return Subject.of(lively(CONFIGS[name]), tokenizer=tokenizer, labels=("one", "two", "three"))


def image_subject(name: str) -> Subject:
    return Subject.of(lively(CONFIGS[name]))


def questions_for(subject: Subject) -> list[Any]:
    """Each question that the engine computes, with heads off, heads moved and another input."""
    torch.manual_seed(1)
    n, off = len(subject.attention), ((0, 1), (len(subject.attention) - 1, 0))
    kind, more = subject.description.input, list[Any]()
    if kind == "image":
        n_pixels = (subject.description.n_channels or 1) * subject.image_size[0] * subject.image_size[1]
        given, other = (q.Input(pixels=tuple(torch.rand(n_pixels).tolist())) for _ in range(2))
    elif kind == "text":
        given, other = q.Input(text="a big cab"), q.Input(text="a bad cab")
    else:
        given, other = q.Input(text="a big cab", target="fed"), q.Input(text="a bad cab", target="bad")
        written = q.Input(text="a big cab")  # the model translates, also without the heads that are off
        more += [
            q.Read(q.About(written)),
            q.Read(q.About(written, off=off)),
            q.Tensor(q.About(written, off=off), "output"),
        ]
        more += [q.Effects(q.About(written, off=off), q.Input(text="a bad cab")), q.Effects(q.About(given), other)]
        more += [q.Effects(q.About(given), q.Input(text="a bad cab"))]
    here = q.About(given, off=off)
    if subject.description.output == "next token":
        more += [q.Continue(here, n_tokens=2, temperature=0.0, cache=cache) for cache in (True, False)]
        more += [q.Read(here, position=1)]
    if subject.gaussian:
        moved = q.About(given, moved=(q.Move(0, 1, (0.5, -1.25), 2.0), q.Move(1, 0, (-1.0, 0.0), 0.3)))
        more += [q.Read(moved), q.Map(moved, 0, 1)]
        if subject.gaussian[0].value is None:
            more += [q.Convolution(moved, 0), q.Convolution(q.About(given), 1, kernel_size=2)]
    return [
        q.Read(q.About(given)),
        *(q.Read(here), q.Map(here, n - 1, 1), q.Lens(here), q.Tensor(here, f"{subject.attention[0].name}.heads")),
        *(q.Effects(here, other), q.Effects(here, other, axis="token", answer=2)),
        *more,
    ]


def check_same(found: dict[str, Any], expected: Part, where: str) -> None:
    """Headers alike but for the clock, numbers near, arrays too; a thumbnail may round the other way."""
    assert "refused" not in found, f"{where}: {found}"
    check_alike(found["header"], json.loads(json.dumps(expected.header)), where)
    assert set(found["arrays"]) == set(expected.arrays), where
    for name, array in expected.arrays.items():
        values = np.array(found["arrays"][name]["data"], dtype=np.float64).reshape(found["arrays"][name]["shape"])
        assert values.shape == array.shape, f"{where} {name}"
        tolerance = {"float32": NEAR, "int32": 0, "uint8": 1}[str(array.dtype)]
        assert np.abs(values - array).max(initial=0) <= tolerance, f"{where} {name}"


def check_alike(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for key in set(expected) - {"seconds", "milliseconds"}:
            check_alike(found[key], expected[key], f"{where} {key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            check_alike(one, other, f"{where} {i}")
    elif isinstance(expected, float) and isinstance(found, int | float):
        assert found == pytest.approx(expected, abs=NEAR, rel=NEAR), where
    else:
        assert found == expected, where


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", ["GPT", "classifier", "BERT", "pre-norm translator", "ViT", "DeiT", "Gaussian heads"])
def test_every_answer_is_that_of_the_server(page: Any, name: str) -> None:
    subject = (image_subject if "image" in vars(CONFIGS[name]) else text_subject)(name)
    answering = Answering(subject, text=None if subject.description.input == "image" else "a big cab")
    asked = questions_for(subject)
    data = json.loads(json.dumps(living_data(answering)))
    answers = page.evaluate(ASK, {"data": data, "questions": [q.question_to_json(each) for each in asked]})
    for question, parts in zip(asked, answers, strict=True):
        expected = list(answering(question))
        assert len(parts) == len(expected), question
        for found, part in zip(parts, expected, strict=True):
            check_same(found, part, type(question).__name__)


STOP = """async ({data, question}) => {
    const { livingAsk } = await import("./engine/ask.js");
    const ask = livingAsk(data);
    const stopped = new AbortController();
    const parts = [];
    for await (const part of ask(question, { signal: stopped.signal })) {
        parts.push(part.header.n_tokens);
        stopped.abort();
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return parts;
}"""


def test_a_question_that_is_not_wanted_any_more_ends_quietly(page: Any) -> None:
    answering = Answering(text_subject("GPT"), text="a")
    question = q.question_to_json(q.Continue(q.About(q.Input(text="a")), n_tokens=9))
    data = json.loads(json.dumps(living_data(answering)))
    assert page.evaluate(STOP, {"data": data, "question": question}) == [1]
    assert [len(parts) for parts in page.evaluate(ASK, {"data": data, "questions": [question]})] == [9]


def test_what_cannot_be_answered_is_refused_with_a_sentence(page: Any) -> None:
    subject = text_subject("GPT")
    answering = Answering(subject, text="a")
    here = q.About(q.Input(text="abc"))
    asked = [
        q.Read(q.About(q.Input(text=""))),
        q.Read(q.About(q.Input(text="a" * 12))),
        q.Read(q.About(q.Input(ids=(3, 17)))),
        q.Read(q.About(q.Input(text="a"), off=((2, 0),))),
        q.Read(q.About(q.Input(text="a"), model=1)),
        q.Read(here, position=3),
        q.Map(here, 0, 2),
        q.Effects(here, q.Input(text="ab")),
        q.Effects(here, q.Input(text="abc")),
        q.Effects(here, q.Input(text="abd"), answer=99),
        q.Continue(here, n_tokens=0),
        q.Continue(here, temperature=-0.5),
        q.Continue(here, top_p=2.5),
        q.Continue(here, n_tokens=20, temperature=0.0),
    ]
    data = json.loads(json.dumps(living_data(answering)))
    answers = page.evaluate(ASK, {"data": data, "questions": [q.question_to_json(each) for each in asked]})
    for question, parts in zip(asked, answers, strict=True):
        with pytest.raises(q.RefusedError) as refused:
            list(answering(question))
        assert parts[-1]["refused"].rstrip(".") == str(refused.value).rstrip("."), question
    others = [{"question": "Save", "about": {}}, {"question": "Read", "about": {"input": {"example": 5}}}]
    assert all("refused" in parts[0] for parts in page.evaluate(ASK, {"data": data, "questions": others}))
