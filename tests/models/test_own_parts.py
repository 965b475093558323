"""A position code, a layer and a pooling of a user's own, defined here: as good as ours in every model."""

import copy
import dataclasses
import json
import pickle

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.generation import generate, max_tokens, stream_long
from headwork.generation.reading import TextReader
from headwork.layers import MultiHeadAttention, Pooling, Positions
from headwork.models import CLASSES, Decoder, Encoder, VisionTransformer
from headwork.serialise import config_from_dict, config_to_dict

from .small_models import LLAMA, POSITIONS, classifier, decoder, encoder, real_tokens, some_ids, vision_transformer

pytestmark = pytest.mark.usefixtures("float64")

N_HEADS, D_MODEL = 3, 18


class HalfLife(Positions):
    """Scores fall with the distance, at a rate that each head learns."""

    def __init__(self, n_heads: int, start: float = 0.5) -> None:
        super().__init__()
        self.n_heads, self.start = n_heads, start
        self.rate = nn.Parameter(torch.full((n_heads,), start))

    def bias(self, x: Tensor, n_key: int) -> Tensor:
        away = hw.functional.distance(x.shape[1], n_key, device=x.device).abs()
        return -self.rate[None, :, None, None] * away


class Steps(Positions):
    """A vector that is added, and an end after which there is none."""

    def __init__(self, d_model: int, max_tokens: int) -> None:
        super().__init__()
        self.d_model, self.max_tokens = d_model, max_tokens
        self.step = nn.Parameter(torch.randn(d_model))

    def vectors(self, positions: Tensor, n_total: int) -> Tensor:
        return positions[..., None] * self.step


class Backwards(nn.Module):
    """A layer that rotates nothing, and has the network before the attention."""

    axes = "batch token d_model"

    def __init__(self, d_model: int, n_heads: int, heads: choices.Heads | None = None) -> None:
        super().__init__()
        self.d_model, self.n_heads, self.heads = d_model, n_heads, heads
        self.network = nn.Sequential(nn.Linear(d_model, 7), nn.Tanh(), nn.Linear(7, d_model))
        self.attention = MultiHeadAttention(d_model, n_heads)

    def forward(self, x: Tensor, *, rotation: object = None, **seen: object) -> Tensor:
        x = x + self.network(x)
        return x + self.attention(x, **seen)


class EachAlone(nn.Module):
    """A layer without attention."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.map = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, **_: object) -> Tensor:
        return x + self.map(x).tanh()


class TwoTokens(Pooling):
    """Two learned tokens join an image; their outputs are multiplied."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.tokens = nn.Parameter(torch.randn(2, d_model))

    def join(self, tokens: Tensor) -> Tensor:
        return torch.cat([self.tokens.expand(len(tokens), -1, -1), tokens], dim=1)

    def forward(self, tokens: Tensor, visible: Tensor | None = None) -> Tensor:
        return tokens[:, 0] * tokens[:, 1]


class Largest(Pooling):
    def forward(self, tokens: Tensor, visible: Tensor | None = None) -> Tensor:
        return (tokens if visible is None else tokens.masked_fill(~visible[..., None], -1e9)).amax(1)


class ColumnCode(nn.Module):
    """A position code of an image: a vector for each column."""

    def __init__(self, n_columns: int, d_model: int) -> None:
        super().__init__()
        self.n_columns, self.d_model = n_columns, d_model
        self.table = nn.Parameter(torch.randn(n_columns, d_model))

    def forward(self, patches: Tensor, grid: tuple[int, int]) -> Tensor:
        return patches + self.table.repeat(grid[0], 1)


OWN = [HalfLife, Steps, Backwards, EachAlone, TwoTokens, Largest, ColumnCode]


def own_layers() -> list[nn.Module]:
    return [EachAlone(D_MODEL), Backwards(D_MODEL, N_HEADS, choices.Heads(n_heads=2)), Backwards(D_MODEL, N_HEADS)]


NONE = choices.NoPositions()
PLAIN = decoder(position=NONE).config
TEXT = {
    "positions that change the scores": lambda: Decoder(PLAIN, positions=HalfLife(N_HEADS)),
    "positions that are added": lambda: Decoder(
        decoder(**{**LLAMA, "position": NONE}).config, positions=Steps(D_MODEL, 12)
    ),
    "layers": lambda: Decoder(decoder(position=POSITIONS["rotary"], n_layers=3).config, layers=own_layers()),
    "layers and positions": lambda: Decoder(
        decoder(position=NONE, n_layers=3).config, positions=HalfLife(N_HEADS), layers=own_layers()
    ),
    "layers without attention": lambda: Decoder(decoder().config, layers=[EachAlone(D_MODEL), EachAlone(D_MODEL)]),
}
OTHERS = {
    "encoder": lambda: Encoder(
        classifier(choices.MeanPooling(), position=NONE, n_layers=3).config,
        positions=HalfLife(N_HEADS),
        layers=own_layers(),
        pooling=Largest(),
    ),
    "vision transformer": lambda: VisionTransformer(
        vision_transformer(n_layers=3).config,
        positions=ColumnCode(5, D_MODEL),
        layers=own_layers(),
        pooling=TwoTokens(D_MODEL),
    ),
}
every_model = pytest.mark.parametrize("make", [*TEXT.values(), *OTHERS.values()], ids=[*TEXT, *OTHERS])
every_decoder = pytest.mark.parametrize("make", TEXT.values(), ids=TEXT)


def call(model: nn.Module) -> Tensor:
    torch.manual_seed(1)
    return model(torch.randn(2, 2, 6, 15)) if isinstance(model, VisionTransformer) else model(some_ids(2, 7))


@every_model
def test_own_parts_run_and_learn(make) -> None:
    model = make()
    call(model).square().sum().backward()
    for name, p in model.named_parameters():
        unused = name.endswith("key.bias") or name.startswith("segments")
        assert p.grad is not None, name
        assert p.grad.any() or unused, name


@every_decoder
def test_the_cache_gives_what_the_whole_gives(make) -> None:
    model, ids = make().eval(), some_ids(2, 9)
    cache, parts = model.new_cache(), []
    for a, b in ((0, 4), (4, 5), (5, 9)):
        parts.append(model(ids[:, a:b], cache=cache))
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=1e-10, atol=1e-10)
    assert cache.n_tokens == 9


@every_decoder
@pytest.mark.parametrize("padded", [False, True])
def test_text_is_written_token_by_token(make, padded: bool) -> None:
    model, ids = make().eval(), some_ids(3, 8)
    real = real_tokens((4, 2, 3), 4, "left") if padded else None
    read = TextReader(model)
    read(ids[:, :4], real)
    for t in range(4, 8):
        logits = read(ids[:, t : t + 1])
        seen = None if real is None else torch.cat([real, torch.ones(3, t - 3, dtype=torch.bool)], dim=1)
        torch.testing.assert_close(logits, model(ids[:, : t + 1], visible=seen)[:, -1], rtol=1e-10, atol=1e-10)


def test_own_positions_take_the_fast_path_and_own_layers_do_not() -> None:
    assert TEXT["positions that change the scores"]().one_token() is not None
    assert TEXT["layers"]().one_token() is None


def test_the_end_of_own_positions_is_the_end_of_the_prompt() -> None:
    model = TEXT["positions that are added"]().eval()
    assert max_tokens(model) == model.description.max_tokens == 12
    with pytest.raises(ValueError, match="must fit into the 12 positions of the model, got 5 "):
        generate(model, some_ids(1, 5), max_new_tokens=8)
    assert len(list(stream_long(model, some_ids(1, 5), max_new_tokens=30))) == 30
    with pytest.raises(ValueError, match="prompt must have at most 12 tokens, the positions of the model, got 13"):
        next(stream_long(model, some_ids(1, 13), max_new_tokens=1))
    assert max_tokens(TEXT["positions that change the scores"]()) is None


@every_model
def test_own_parts_are_seen(make) -> None:
    model = make()
    with hw.record(model) as seen:
        output = call(model)
    assert seen["output"] is output
    assert "layers.embedded" in seen
    for name in model.description.layers:
        assert seen[name].shape[-1] == D_MODEL
    for name in model.description.attention:
        rows = seen[f"{name}.weights"].sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows))


def test_a_description_counts_own_layers() -> None:
    model = TEXT["layers"]()
    assert model.description.layers == ("layers.0", "layers.1", "layers.2")
    assert model.description.attention == ("layers.1.attention", "layers.2.attention")
    assert len(model.config.description.attention) == 3


@every_model
def test_a_model_with_own_parts_is_written_and_read(make) -> None:
    model = make()
    text = json.dumps(config_to_dict(model), allow_nan=False)
    again = config_from_dict(json.loads(text), [*CLASSES, *OWN])
    assert type(again) is type(model)
    assert again.config == model.config
    assert {name: type(part) for name, part in again.parts.items()} == {n: type(p) for n, p in model.parts.items()}
    again.load_state_dict(model.state_dict())
    assert call(again.eval()).equal(call(model.eval()))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert call(twin).equal(call(model))


def test_what_is_written_says_only_what_was_given() -> None:
    model = Decoder(PLAIN, positions=HalfLife(N_HEADS))
    assert config_to_dict(model) == {
        "kind": "Decoder",
        "config": config_to_dict(model.config),
        "positions": {"kind": "HalfLife", "n_heads": 3, "start": 0.5},
    }
    assert config_to_dict(decoder()) == config_to_dict(decoder().config)


def test_a_class_that_nobody_passed_is_not_built() -> None:
    data = config_to_dict(Decoder(PLAIN, positions=HalfLife(N_HEADS)))
    with pytest.raises(ValueError, match=r"got 'HalfLife'; .* classes=\[HalfLife\], or --import"):
        config_from_dict(data, CLASSES)


def test_our_own_positions_and_poolings_are_parts_too() -> None:
    parts = {"positions": hw.layers.LearnedPositions(11, D_MODEL), "pooling": hw.layers.AttentionPooling(D_MODEL, 2)}
    model = Encoder(classifier(choices.MeanPooling(), position=NONE).config, **parts)
    again = config_from_dict(config_to_dict(model), CLASSES)
    assert again.layers.positions.table.shape == (11, D_MODEL)
    assert again.description.max_tokens == 11


class Nothing(Positions):
    def rotation(self, positions: Tensor) -> None:
        return None


class Forgets(Nothing):
    def __init__(self, n_heads: int) -> None:
        super().__init__()


class TakesAnything(Nothing):
    def __init__(self, **options: int) -> None:
        super().__init__()


class KeepsATensor(Nothing):
    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.start = start


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (Forgets(3), "Forgets must keep its argument n_heads as an attribute, self.n_heads = n_heads, to be saved"),
        (TakesAnything(), "TakesAnything must name each argument of its constructor to be saved, got .*options"),
        (KeepsATensor(torch.zeros(2)), "KeepsATensor.start must be plain data .* to be saved, got tensor"),
    ],
    ids=["forgets", "anything", "tensor"],
)
def test_a_part_that_cannot_be_written_says_why(part: Positions, message: str) -> None:
    model = Decoder(PLAIN, positions=part)
    with pytest.raises(ValueError, match=message):
        config_to_dict(model)


class Together(nn.Module):
    """A layer that is made of layers."""

    def __init__(self, layers: list[nn.Module], d_model: int) -> None:
        super().__init__()
        self.layers, self.d_model = nn.ModuleList(layers), d_model

    def forward(self, x: Tensor, **seen: object) -> Tensor:
        for layer in self.layers:
            x = layer(x, **seen)
        return x


def test_a_list_of_modules_that_a_part_keeps_is_written_and_read() -> None:
    layers = [Together([EachAlone(D_MODEL), Backwards(D_MODEL, N_HEADS)], D_MODEL), Together([], D_MODEL)]
    model = Decoder(PLAIN, layers=layers)
    data = json.loads(json.dumps(config_to_dict(model)))
    assert [part["kind"] for part in data["layers"][0]["layers"]] == ["EachAlone", "Backwards"]
    again = config_from_dict(data, [*CLASSES, *OWN, Together])
    again.load_state_dict(model.state_dict())
    assert call(again.eval()).equal(call(model.eval()))


class Louder(Decoder):
    """A model of a user's own that inherits from ours."""

    def __init__(self, config: hw.models.DecoderConfig, factor: float, positions: Positions | None = None) -> None:
        super().__init__(config, positions=positions)
        self.factor = factor

    def forward(self, *inputs: Tensor, **options: object) -> Tensor:
        return self.factor * super().forward(*inputs, **options)


@pytest.mark.parametrize("positions", [None, HalfLife(N_HEADS)], ids=["plain", "positions"])
def test_a_model_of_ones_own_is_written_and_read(positions: Positions | None) -> None:
    model = Louder(PLAIN, 3.0, positions).eval()
    assert model.one_token() is None  # an heir is called itself
    again = config_from_dict(json.loads(json.dumps(config_to_dict(model))), [*CLASSES, *OWN, Louder])
    again.load_state_dict(model.state_dict())
    assert again.factor == 3.0
    assert call(again.eval()).equal(call(model))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"positions": HalfLife}, TypeError, r"positions must be made of modules \(an instance, with parentheses\)"),
        (
            {"positions": nn.Linear(2, 2)},
            TypeError,
            "positions must be a subclass of headwork.layers.Positions, got Lin",
        ),
        ({"layers": [EachAlone]}, TypeError, r"layers must be made of modules \(an instance, with parentheses\)"),
        ({"layers": [3]}, TypeError, "layers must be made of modules, got 3"),
        ({"pooling": Largest()}, ValueError, "pooling must be None without a classification head, got Largest"),
    ],
    ids=["class", "linear", "classes", "number", "no head"],
)
def test_what_is_no_part_is_refused(parts: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Encoder(encoder(position=NONE).config, **parts)


@pytest.mark.parametrize("model", ["decoder", "encoder", "vision transformer"])
def test_nothing_that_was_said_is_dropped(model: str) -> None:
    """A config may leave its position code at the default, or say that there is none; any other would be lost."""
    kind, config, own = {
        "decoder": (Decoder, decoder().config, HalfLife(N_HEADS)),
        "encoder": (Encoder, encoder(position=POSITIONS["relative"]).config, HalfLife(N_HEADS)),
        "vision transformer": (
            VisionTransformer,
            vision_transformer(position=choices.SinusoidalGrid()).config,
            ColumnCode(5, D_MODEL),
        ),
    }[model]
    message = rf"position of the config must be NoPositions\(\) beside positions={type(own).__name__}\(...\), got "
    with pytest.raises(ValueError, match=message + type(config.position).__name__):
        kind(config, positions=own)
    default = next(field.default for field in dataclasses.fields(config) if field.name == "position")
    for position in (default, NONE):
        kind(dataclasses.replace(config, position=position), positions=own)
    with pytest.raises(ValueError, match="layers must be as many as n_layers=2 of the config, got 1"):
        kind(config, layers=[EachAlone(D_MODEL)])
    with pytest.raises(ValueError, match="layers must be as many as n_layers=2 of the config, got 0"):
        kind(config, layers=[])
