"""Every number on the page is the number that passed in the model: held against hw.record, hw.lens, hw.ablate, torch."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.explorer.models import (
    FEED_FORWARD,
    HEADS,
    SUBJECTS,
    gaussian_subject,
    image_subject,
    pair_subject,
    text_model,
    text_subject,
)

import headwork as hw
from headwork.explorer import questions as q
from headwork.explorer.answering import Answering
from headwork.explorer.answers import Part
from headwork.explorer.encoding import encode_input
from headwork.explorer.opening import check_memory, open_subject
from headwork.explorer.questions import About, Input, Move, RefusedError
from headwork.explorer.reading import thumbnails
from headwork.explorer.subject import Subject

pytestmark = pytest.mark.filterwarnings("error")


def start(kind: str) -> Input:
    pixels = tuple(torch.rand(48 if kind == "image" else 36, generator=torch.Generator().manual_seed(5)).tolist())
    return {
        "text": Input(text="the cat"),
        "image": Input(pixels=pixels),
        "gaussian": Input(pixels=pixels),
        "pair": Input(text="the cat", target="le ch"),
    }[kind]


def answering_of(kind: str) -> Answering:
    subject = SUBJECTS[kind]()
    if subject.description.input != "image":
        return Answering(subject, text="abc")
    return Answering(subject, begun=start(kind))


@pytest.fixture(params=list(SUBJECTS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def only(parts: object) -> Part:
    [found] = parts  # type: ignore[misc]
    return found


def test_answer_and_maps_are_those_of_the_model(kind: str) -> None:
    answering, about = answering_of(kind), About(start(kind))
    subject = answering.subjects[0]
    inputs = encode_input(subject, about.input).inputs
    with torch.no_grad(), hw.record(subject.model) as seen:
        output = subject.model(*inputs)[0]
    read = only(answering(q.Read(about)))
    np.testing.assert_allclose(read.arrays["logits"], output if output.ndim == 1 else output[-1], atol=1e-6)
    top = read.header["answer"]["top"]
    assert top[0]["logit"] == pytest.approx(float(read.arrays["logits"].max()), abs=1e-6)
    assert sum(each["probability"] for each in top) == pytest.approx(1, abs=1e-5)
    for number, attention in enumerate(subject.attention):
        weights = seen[f"{attention.name}.weights"]
        weights = weights.flatten(3).flatten(1, 2) if weights.ndim == 5 else weights[0]
        for head in range(attention.n_heads):
            found = only(answering(q.Map(about, number, head)))
            np.testing.assert_allclose(found.arrays["weights"], weights[head], atol=1e-6)
            np.testing.assert_allclose(found.arrays["weights"].sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(read.arrays[f"peaks.{number}"], weights.amax((1, 2)), atol=1e-6)
        if kind in ("text", "pair"):
            share = read.arrays[f"thumbnails.{number}"] / 255 * read.arrays[f"peaks.{number}"][:, None, None]
            np.testing.assert_allclose(share, weights, atol=1 / 255)


def test_heads_that_are_off_are_ablated(kind: str) -> None:
    answering, given = answering_of(kind), start(kind)
    subject = answering.subjects[0]
    off = ((0, 1), (1, 0))
    inputs = encode_input(subject, given).inputs
    heads = {subject.attention[a].name: [h] for a, h in off}
    with torch.no_grad(), hw.ablate(subject.model, heads=heads):
        wanted = subject.model(*inputs)[0]
    read = only(answering(q.Read(About(given, off=off))))
    np.testing.assert_allclose(read.arrays["logits"], wanted if wanted.ndim == 1 else wanted[-1], atol=1e-6)
    back = only(answering(q.Read(About(given))))
    assert not np.allclose(read.arrays["logits"], back.arrays["logits"], atol=1e-4)


@pytest.mark.usefixtures("as_users_run_it")  # a token after the other is slow while shapes are checked
def test_every_question_is_answered_with_heads_off(kind: str) -> None:
    answering, given = answering_of(kind), start(kind)
    about, subject = About(given, off=((0, 1),)), answering.subjects[0]
    name = f"{subject.attention[0].name}.heads"
    asked = [q.Read(about), q.Map(about, 0, 1), q.Lens(about), q.Cost(about), q.Tensor(about, name)]
    asked += [
        q.Effects(
            about, replace(given, text="the dog") if given.text else Input(pixels=(0.0,) * len(given.pixels or ()))
        )
    ]
    asked += [q.Continue(about)] if "Continue" in answering.can() else []
    asked += [q.Convolution(about, 0)] if subject.gaussian else []
    for question in asked:
        assert list(answering(question)), question
    heads = only(answering(q.Tensor(about, name))).arrays["values"]
    assert np.abs(heads[1]).max() == 0
    assert np.abs(heads[0]).max() > 0


def test_the_lens_is_that_of_the_package(kind: str) -> None:
    answering, about = answering_of(kind), About(start(kind))
    subject = answering.subjects[0]
    inputs = encode_input(subject, about.input).inputs
    with torch.no_grad():
        wanted = hw.lens(subject.model, *inputs).logits[:, 0].softmax(-1)
    found = only(answering(q.Lens(about)))
    if wanted.ndim == 2:
        np.testing.assert_allclose(found.arrays["whole"], wanted, atol=1e-6)
        return
    best = wanted.topk(5)
    np.testing.assert_allclose(found.arrays["probabilities"], best.values, atol=1e-6)
    np.testing.assert_array_equal(found.arrays["ids"], best.indices)


def test_the_lens_of_a_patch_is_the_classifier_on_its_vector() -> None:
    answering, about = answering_of("image"), About(start("image"))
    model = answering.subjects[0].model
    with torch.no_grad(), hw.record(model, "layers.0") as seen:
        model(*encode_input(answering.subjects[0], about.input).inputs)
        hidden = seen["layers.0"][0]
        wanted = model.classifier(model.layers.final_norm(hidden)).softmax(-1)
    found = only(answering(q.Lens(about)))
    np.testing.assert_allclose(found.arrays["probabilities"][0], wanted.topk(5).values, atol=1e-6)


def test_effects_are_those_of_a_patch_by_hand() -> None:
    answering = answering_of("text")
    subject, here, other = answering.subjects[0], Input(text="the cat"), Input(text="the dog")
    parts = list(answering(q.Effects(About(here), other, axis="head")))
    assert [part.header["row"] for part in parts] == [0, 1, 2]
    ids, others = (encode_input(subject, each).inputs[0] for each in (here, other))
    answer = parts[0].header["answer"]
    with torch.no_grad(), hw.record(subject.model, "layers.1.attention.heads") as seen:
        assert parts[0].header["other"]["logit"] == pytest.approx(float(subject.model(others)[0, -1, answer]), abs=1e-6)
    theirs = seen["layers.1.attention.heads"]

    def put(heads: torch.Tensor) -> torch.Tensor:
        heads[:, :, 1] = theirs[:, :, 1]
        return heads

    with torch.no_grad(), hw.patch(subject.model, {"layers.1.attention.heads": put}):
        wanted = subject.model(ids)[0, -1]
    assert float(parts[1].arrays["metric"][1]) == pytest.approx(float(wanted[answer]), abs=1e-6)
    assert float(parts[1].arrays["share"][1]) == pytest.approx(float(wanted.softmax(-1)[answer]), abs=1e-6)
    assert parts[1].header["said"][1] == subject.name_of(int(wanted.argmax()))
    tokens = list(answering(q.Effects(About(here), other, axis="token")))
    last = tokens[-1]
    assert last.arrays["metric"].shape == (7,)
    assert float(last.arrays["metric"][-1]) == pytest.approx(last.header["other"]["logit"], abs=1e-5)
    assert last.header["said"][-1] == last.header["other"]["name"]


@pytest.mark.usefixtures("as_users_run_it")  # a token after the other is slow while shapes are checked
def test_translations_are_compared_where_they_part() -> None:
    """Of two translations that the model writes itself, the first token that differs is the answer in question."""
    answering = answering_of("pair")
    subject, inputs = answering.subjects[0], (Input(text="the cat"), Input(text="zzzzzzz"))
    mine, theirs = (only(answering(q.Read(About(each)))).header["sequences"][1]["ids"] for each in inputs)
    same = next(i for i, (a, b) in enumerate(zip([*mine, 2], [*theirs, 2], strict=False)) if a != b)
    found = next(iter(answering(q.Effects(About(inputs[0]), inputs[1])))).header
    assert found["begun"] == subject.decode(mine[1:same])
    assert found["own"]["name"] == subject.strings([*mine, 2][same : same + 1])[0]
    assert found["other"]["name"] == subject.strings([*theirs, 2][same : same + 1])[0]
    given = next(iter(answering(q.Effects(About(Input(text="the cat", target="le")), inputs[1])))).header
    assert given["begun"] == "le"


def test_what_heads_look_at_is_the_mean_over_the_rows(kind: str) -> None:
    """Against loops: the share of the token itself, its neighbours, the ends, and the strongest."""
    answering, about = answering_of(kind), About(start(kind))
    found = only(answering(q.Read(about))).header.get("shares")
    if kind in ("image", "gaussian"):
        assert found is None
        return
    for number, attention in enumerate(answering.subjects[0].attention):
        for head in range(attention.n_heads):
            weights = only(answering(q.Map(about, number, head))).arrays["weights"]
            n_query, n_key = weights.shape
            rows = range(2, n_query)
            places = {
                "itself": [(i, i) for i in rows],
                "before": [(i, i - 1) for i in rows],
                "after": [(i, i + 1) for i in rows if i + 1 < n_key],
            }
            if attention.kind == "cross":
                places = {"last": [(i, n_key - 1) for i in rows]}
            places["first"] = [(i, 0) for i in rows]
            places["strongest"] = [(i, int(weights[i].argmax())) for i in rows]
            assert set(found[number]) == set(places)
            for name, cells in places.items():
                mean = sum(weights[cell] for cell in cells) / len(cells)
                assert found[number][name][head] == pytest.approx(mean, abs=1e-6), name


def test_the_strongest_weight_of_the_row_that_the_answer_is_read_from() -> None:
    """Of a text the row of the position in question, of a classifier by its first token that one, of a translation none."""
    answering, about = answering_of("text"), About(Input(text="the cat"))
    for wanted, row in ((None, 6), (2, 2)):
        found = only(answering(q.Read(about, position=wanted))).header
        assert found["row"] == row
        for number, most in enumerate(found["most"]):
            for head in range(2):
                weights = only(answering(q.Map(about, number, head))).arrays["weights"][row]
                assert most["key"][head] == weights.argmax()
                assert most["weight"][head] == pytest.approx(weights.max(), abs=1e-6)
    translated = only(answering_of("pair")(q.Read(About(start("pair"))))).header
    assert (translated["row"], translated["most"]) == (None, [])


@pytest.mark.parametrize(("pooling", "row"), [(hw.choices.FirstToken(), 0), (hw.choices.MeanPooling(), None)])
def test_the_row_of_a_text_classifier(pooling: hw.choices.TextPooling, row: int | None) -> None:
    head = hw.choices.ClassificationHead(n_classes=3, pooling=pooling)
    config = hw.models.EncoderConfig(vocab=31, d_model=8, n_layers=1, heads=HEADS, feed_forward=FEED_FORWARD, head=head)
    answering = Answering(Subject.of(config.build()))
    assert answering.describe().header["pools_first"] is (row == 0)
    assert only(answering(q.Read(About(Input(ids=(3, 1, 4)))))).header["row"] == row


def test_a_map_can_be_asked_for_with_the_forward_pass(kind: str) -> None:
    answering, about = answering_of(kind), About(start(kind))
    read, found = answering(q.Read(about, map=(1, 0)))
    assert read.header["answer"]["top"]
    expected = only(answering(q.Map(about, 1, 0)))
    assert found.header == expected.header
    np.testing.assert_array_equal(found.arrays["weights"], expected.arrays["weights"])


@pytest.mark.parametrize("text", ["a", "ab", "abc"])
def test_short_texts_have_shares_too(text: str) -> None:
    [shares, *_] = only(answering_of("text")(q.Read(About(Input(text=text))))).header["shares"]
    assert all(0 <= share <= 1 for each in shares.values() for share in each)
    assert sum(shares[name][0] for name in ("itself", "before")) == pytest.approx(1, abs=1e-6) or text == "abc"


@pytest.mark.parametrize("cache", [True, False])
def test_a_text_goes_on_as_generate_does(cache: bool) -> None:
    answering = answering_of("text")
    subject = answering.subjects[0]
    wanted = hw.generation.generate(
        subject.model, encode_input(subject, Input(text="the cat")).inputs[0], max_new_tokens=9
    )
    parts = list(answering(q.Continue(About(Input(text="the cat")), 9, temperature=0, cache=cache)))
    assert [part.header["id"] for part in parts] == wanted[0].tolist()
    n_bytes = [part.header["bytes"] for part in parts]
    per_token = 2 * 3 * 8 * 4  # keys and values, layers, d_model, float32
    assert n_bytes == ([per_token * (7 + i) for i in range(9)] if cache else [0] * 9)


@pytest.mark.usefixtures("as_users_run_it")  # a token after the other is slow while shapes are checked
def test_a_translation_goes_on_and_is_written_by_the_model() -> None:
    answering = answering_of("pair")
    subject = answering.subjects[0]
    read = only(answering(q.Read(About(Input(text="the cat")))))
    source = encode_input(subject, Input(text="the cat")).inputs[0]
    said = hw.generation.translate(subject.model, source, max_new_tokens=33, begin=1, end=2)[0].tolist()
    assert read.header["sequences"][1]["ids"] == [1, *[i for i in said if i != 2]]
    parts = list(answering(q.Continue(About(Input(text="the cat", target="")), 3, temperature=0)))
    assert [part.header["id"] for part in parts] == said[:3]


@pytest.mark.usefixtures("as_users_run_it")  # a token after the other is slow while shapes are checked
def test_a_translation_is_written_without_the_heads_that_are_off() -> None:
    answering = answering_of("pair")
    subject, given = answering.subjects[0], Input(text="the cat")
    source = encode_input(subject, given).inputs[0]
    written = set()
    for off in (((0, 0), (0, 1)), ((2, 0), (4, 0), (4, 1))):
        heads: dict[str, list[int]] = {}
        for a, head in off:
            heads.setdefault(subject.attention[a].name, []).append(head)
        with hw.ablate(subject.model, heads=heads):
            said = hw.generation.translate(subject.model, source, max_new_tokens=33, begin=1, end=2)[0].tolist()
        header = only(answering(q.Read(About(given, off=off)))).header
        assert header["sequences"][1]["ids"] == [1, *[i for i in said if i != 2]]
        assert header["continuation"] is None
        written.add(header["translation"])
        [first, *_] = answering(q.Continue(About(given, off=off), temperature=0))
        assert first.header["n_tokens"] == len(header["sequences"][1]["ids"])
    assert len(written | {only(answering(q.Read(About(given)))).header["translation"]}) > 1


@pytest.mark.usefixtures("as_users_run_it")  # a token after the other is slow while shapes are checked
@pytest.mark.parametrize("off", [(), ((2, 0), (4, 1))])
def test_what_the_model_adds_to_a_translation_that_was_given(off: tuple[tuple[int, int], ...]) -> None:
    """Against the whole model run again for each token."""
    answering = answering_of("pair")
    subject = answering.subjects[0]
    source, target = encode_input(subject, Input(text="the cat", target="le")).inputs
    heads: dict[str, list[int]] = {}
    for a, head in off:
        heads.setdefault(subject.attention[a].name, []).append(head)
    with torch.no_grad(), hw.ablate(subject.model, heads=heads) if heads else nullcontext():
        while target.shape[1] < 34 and (token := int(subject.model(source, target)[0, -1].argmax())) != 2:
            target = torch.cat([target, torch.tensor([[token]])], dim=1)
    header = only(answering(q.Read(About(Input(text="the cat", target="le"), off=off)))).header
    assert header["translation"] == "le"
    assert header["continuation"] == subject.decode(target[0, 3:].tolist())


def test_moved_heads_are_those_of_a_model_that_has_them_there() -> None:
    answering, given = answering_of("gaussian"), start("gaussian")
    subject = answering.subjects[0]
    before = only(answering(q.Read(About(given)))).arrays["logits"]
    move = Move(1, 2, (1.5, -0.5), 2.5)
    moved = only(answering(q.Read(About(given, moved=(move,))))).arrays["logits"]
    other = gaussian_subject().model
    layer = other.get_submodule("layers.1.attention")
    with torch.no_grad():
        centre, alpha = layer.centre.clone(), layer.alpha.clone()
        centre[2], alpha[2] = torch.tensor([1.5, -0.5]), 2.5
        layer.set_centres(centre, alpha)
        wanted = other(*encode_input(subject, given).inputs)[0]
    np.testing.assert_allclose(moved, wanted, atol=1e-6)
    after = only(answering(q.Read(About(given)))).arrays["logits"]
    np.testing.assert_array_equal(before, after)
    maps = [only(answering(q.Map(About(given, moved=m), 1, 2))).arrays["weights"] for m in ((), (move,))]
    assert not np.allclose(*maps, atol=1e-2)


def test_the_nearest_convolution_is_that_of_the_package() -> None:
    answering, given = answering_of("gaussian"), start("gaussian")
    subject = answering.subjects[0]
    found = only(answering(q.Convolution(About(given), 0, 3)))
    layer = subject.gaussian[0]
    wanted = hw.convert.convolution_from_attention(layer, 3, (6, 6))
    assert found.header["error_bound"] == pytest.approx(wanted.error_bound, rel=1e-6)
    np.testing.assert_allclose(found.arrays["single_pixel"], wanted.single_pixel, atol=1e-6)
    network = hw.convert.to_convolution(subject.model, kernel_size=(3, 3)).model.eval()
    with torch.no_grad():
        chances = network(*encode_input(subject, given).inputs)[0].softmax(-1)
    np.testing.assert_allclose(found.arrays["probabilities"], chances, atol=1e-6)


@pytest.mark.slow
def test_ledger_and_tensors_are_those_of_the_package(kind: str) -> None:
    answering, about = answering_of(kind), About(start(kind))
    subject = answering.subjects[0]
    inputs = encode_input(subject, about.input).inputs
    found = only(answering(q.Cost(about))).header
    assert found["flops"] == hw.cost(subject.model, *inputs).flops
    name = found["points"][3]["name"]
    with torch.no_grad(), hw.record(subject.model, name) as seen:
        subject.model(*inputs)
    tensor = only(answering(q.Tensor(about, name)))
    value = seen[name]
    np.testing.assert_allclose(tensor.arrays["values"], value[(0,) * (value.ndim - 2)], atol=1e-6)
    assert tensor.header["mean"] == pytest.approx(float(value.mean()), abs=1e-6)


def test_saved_with_the_moved_heads(tmp_path: Path) -> None:
    subject = gaussian_subject()
    hw.save(subject.model, tmp_path / "discs")
    opened = open_subject(tmp_path / "discs")
    answering = answering_of("gaussian")
    answering.subjects = [opened]
    move = Move(0, 0, (1.0, 1.0), 3.0)
    folder = only(answering(q.Save(About(start("gaussian"), moved=(move,))))).header["folder"]
    assert Path(folder) == tmp_path / "discs-moved-1"
    assert hw.load(folder).layers[0].attention.centre[0].tolist() == [1.0, 1.0]
    assert hw.load(tmp_path / "discs").layers[0].attention.centre[0].tolist() != [1.0, 1.0]
    with pytest.raises(RefusedError, match="No head has been moved"):
        list(answering(q.Save(About(start("gaussian")))))


def test_long_maps_come_in_blocks_that_keep_the_largest() -> None:
    weights = torch.zeros(1, 130, 130)
    weights[0, 129, 64] = 0.5
    small = thumbnails(weights)
    assert small.shape == (1, 44, 44)
    assert int(small[0, 43, 21]) == 255


@pytest.mark.parametrize(
    ("kind", "question", "sentence"),
    [
        ("text", q.Read(About(Input(text="a" * 65))), "has 65 tokens, and this model can read 64 at most. Take 1 away"),
        ("text", q.Read(About(Input(text=""))), "The text is empty: type something"),
        ("text", q.Read(About(Input())), "text must be given"),
        ("text", q.Read(About(Input(ids=(3, 99)))), r"0 \.\. 31, got 99"),
        ("text", q.Read(About(Input(ids=(-1,)))), "got -1"),
        ("text", q.Read(About(Input(example=0))), "test data"),
        ("text", q.Read(About(Input(text="a"), model=1)), "model must lie in"),
        ("text", q.Read(About(Input(text="a"), off=((9, 0),))), "no head 0 in attention 9"),
        ("text", q.Read(About(Input(text="a"), checkpoint="x")), "no checkpoint 'x'"),
        ("text", q.Map(About(Input(text="a")), 0, 7), "no head 7"),
        ("text", q.Read(About(Input(text="abc")), position=3), "position must lie in"),
        ("text", q.Effects(About(Input(text="abc")), Input(text="ab")), "as many tokens: this one has 3, the second 2"),
        ("text", q.Effects(About(Input(text="abc")), Input(text="abc")), "same answer"),
        ("pair", q.Effects(About(Input(text="abc")), Input(text="abc")), "same translation"),
        ("text", q.Continue(About(Input(text="abc")), 999), "Between 1 and 200"),
        ("text", q.Continue(About(Input(text="a" * 63)), 5), "the text is full"),
        ("text", q.Continue(About(Input(text="a")), temperature=-1), "temperature must be"),
        ("text", q.Tensor(About(Input(text="a")), "layers.9"), "layers.9"),
        ("text", q.Convolution(About(Input(text="a")), 0), "no Gaussian heads"),
        ("text", q.Examples(), "no test data"),
        ("text", q.Training(), "not from a run"),
        ("image", q.Read(About(Input(pixels=(0.5,)))), "1 x 6 x 8 numbers, got 1 numbers"),
        ("image", q.Continue(About(start("image"))), "does not continue texts"),
        ("gaussian", q.Convolution(About(start("gaussian")), 0, 99), "1 .. 6 patches"),
        ("gaussian", q.Read(About(start("gaussian"), moved=(Move(0, 9, (0.0, 0.0), 1.0),))), "no Gaussian head 9"),
        ("gaussian", q.Read(About(start("gaussian"), moved=(Move(0, 0, (0.0, 0.0), 0.0),))), "alpha must lie in"),
        ("gaussian", q.Read(About(start("gaussian"), moved=(Move(0, 0, (1e9, 0.0), 1.0),))), "within 1000"),
    ],
)
def test_what_cannot_be_answered_gets_a_sentence(kind: str, question: q.Question, sentence: str) -> None:
    answering = answering_of(kind)
    with pytest.raises(RefusedError, match=sentence):
        list(answering(question))
    assert list(answering(q.Read(About(start(kind)))))  # and it goes on


def test_a_model_without_a_tokenizer_reads_ids() -> None:
    subject = Subject.of(text_model())
    answering = Answering(subject, text="3 1 4")
    read = only(answering(q.Read(About(answering.begun))))
    assert read.header["sequences"][0]["strings"] == ["3", "1", "4"]
    assert Answering(Subject.of(text_model())).begun.ids is not None
    with pytest.raises(RefusedError, match="has no tokenizer: type the ids"):
        list(answering(q.Read(About(Input(text="hello")))))
    with pytest.raises(ValueError, match="text must be ids"):
        Answering(subject, text="hello")


def test_weights_that_are_not_numbers_are_said_and_shown() -> None:
    subject = text_subject()
    with torch.no_grad():
        next(subject.model.get_submodule("layers.1").parameters()).fill_(math.nan)
    read = only(Answering(subject, text="abc")(q.Read(About(Input(text="abc")))))
    assert read.header["finite"] is False


def test_a_model_that_says_nothing_of_itself_is_refused() -> None:
    with pytest.raises(ValueError, match=r"description.*Linear"):
        Subject.of(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"digits-vot.*digits-vit"):
        open_subject("digits-vot")
    with pytest.raises(ValueError, match="must fit into memory: huge"):
        check_memory("huge", 10**13)
    with pytest.raises(ValueError, match="against must read what the model reads"):
        Answering(text_subject(), image_subject(), text="abc")


def test_two_models_answer_side_by_side() -> None:
    answering = Answering(text_subject(), text_subject(seed=7), text="abc")
    first, second = (only(answering(q.Read(About(Input(text="abc"), model=i)))).arrays["logits"] for i in (0, 1))
    assert not np.allclose(first, second)
    assert only(answering(q.Describe())).header["n_models"] == 2


def test_the_newest_readings_are_kept_and_the_model_is_left_as_it_was(kind: str) -> None:
    answering, given = answering_of(kind), start(kind)
    model = answering.subjects[0].model

    def hooks() -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

    before = hooks()
    for head in range(2):
        list(answering(q.Read(replace(About(given), off=((0, head), (1, head))))))
    list(answering(q.Lens(About(given))))
    assert hooks() == before
    assert len(answering.readings) <= 3


def test_tokens_of_hugging_faces_are_readable() -> None:
    from headwork.explorer.subject import _readable

    assert _readable("Ġthe", " the") == "␣the"
    assert _readable("##ing", "ing") == "##ing"
    assert _readable("▁the", "the") == "␣the"
    assert _readable("Ċ", "\n") == "↵"


def test_the_sequences_of_a_translator_belong_to_its_maps() -> None:
    subject = pair_subject()
    assert [(a.kind, a.query, a.key) for a in subject.attention] == [
        ("self", 0, 0),
        ("self", 1, 1),
        ("cross", 1, 0),
        ("self", 1, 1),
        ("cross", 1, 0),
    ]
