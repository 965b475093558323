"""hw.record, hw.patch and hw.ablate on modules that nobody here wrote: PyTorch's, a CNN, models of Hugging Face's."""

from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headwork as hw
from headwork.inspection.outputs import HAS_FAST_PATH

D, TOKENS = 8, 5


def hooks_of(model: nn.Module) -> list[object]:
    return [hook for module in model.modules() for hook in module._forward_hooks.values()]


def encoder(*, nested: bool = False) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()


class Block(nn.Module):
    """As in torchvision: one ReLU, called twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.bn1, self.bn2, self.relu = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3)
        self.layer1 = nn.Sequential(Block(4), Block(4))
        self.fc = nn.Linear(4, 7)

    def forward(self, image: Tensor) -> Tensor:
        return self.fc(self.layer1(self.conv1(image)).mean((2, 3)))


Two = namedtuple("Two", ("first", "rest"))


class Nested(nn.Module):
    """Returns a tuple with a name, a dict in it, and things that are no tensors."""

    def forward(self, x: Tensor) -> Any:
        return Two(x + 1, {"a": [x + 2, None], "word": "text", 3: x + 3})


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Nested()

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(x)
        return found.first + 10 * found.rest["a"][0] + 100 * found.rest[3]


# --- PyTorch's encoder, whose fast path calls no submodule ------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_the_layers_of_an_encoder_in_eval(grad: bool, nested: bool) -> None:
    model, x = encoder(nested=nested), torch.randn(2, TOKENS, D)
    real = hw.masks.padding(torch.tensor([TOKENS, 3]), TOKENS)[:, 0, 0]
    with torch.set_grad_enabled(grad):
        wanted = model(x, src_key_padding_mask=~real)
        with hw.record(model) as seen:
            found = model(x, src_key_padding_mask=~real)
    assert torch.backends.mha.get_fastpath_enabled()
    torch.testing.assert_close(found[real], wanted[real], atol=1e-5, rtol=1e-5)
    first = model.layers[0]
    attended = first.self_attn(x, x, x, key_padding_mask=~real, need_weights=False)[0]
    torch.testing.assert_close(seen["layers.0.self_attn[0]"][real], attended[real], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen["layers.0.norm1"][real], first.norm1(x + attended)[real], atol=1e-5, rtol=1e-5)
    assert seen["layers.0.linear1"].shape == (2, TOKENS, 16)
    assert not any(tensor.is_nested for tensor in seen.values())


@pytest.mark.parametrize("name", ["layers.0.linear2", "layers.*.self_attn[0]"])
def test_an_encoder_in_eval_is_patched(name: str) -> None:
    model, x = encoder(), torch.randn(1, TOKENS, D)
    part = "self_attn" if "self" in name else "linear2"
    with torch.no_grad():
        with hw.patch(model, {name: lambda y: 0 * y}):
            found = model(x)
        other = encoder()
        for layer in other.layers if "*" in name else other.layers[:1]:  # the weights of that part at 0
            last = layer.self_attn.out_proj if part == "self_attn" else layer.linear2
            last.weight.zero_()
            last.bias.zero_()
        wanted = other(x)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert not hooks_of(model)


def test_an_encoder_without_a_layer() -> None:
    model, x = encoder(), torch.randn(1, TOKENS, D)
    with torch.no_grad(), hw.ablate(model, layers="layers.1"):
        torch.testing.assert_close(model(x), model.layers[0](x), atol=1e-5, rtol=1e-5)


def test_the_fast_path_is_back_after_an_error() -> None:
    model = encoder()
    with hw.record(model):
        assert not torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(AssertionError), hw.record(model):
        model(torch.ones(1, TOKENS, D + 1))
    assert torch.backends.mha.get_fastpath_enabled()
    with hw.record(nn.Linear(2, 2)):
        assert torch.backends.mha.get_fastpath_enabled()
    assert nn.MultiheadAttention in HAS_FAST_PATH


# --- a CNN ------------------------------------------------------------------------------------------------------------


def test_a_cnn_by_its_names() -> None:
    model, image = Network().eval(), torch.randn(2, 3, 9, 9)
    with hw.record(model, "layer1.*.conv?", "layer1.0.relu", "output", every_call=True) as seen:
        logits = model(image)
    assert set(seen) == {*(f"layer1.{i}.conv{j}" for i in (0, 1) for j in (1, 2)), "layer1.0.relu", "output"}
    assert seen.n_calls("layer1.0.relu") == 2
    torch.testing.assert_close(seen["output"], logits)
    with hw.patch(model, {"layer1": lambda maps: F.pad(maps[:, 1:], (0, 0, 0, 0, 1, 0))}):
        moved = model(image)
    maps = model.layer1(model.conv1(image))
    torch.testing.assert_close(moved, model.fc(F.pad(maps[:, 1:], (0, 0, 0, 0, 1, 0)).mean((2, 3))))
    with hw.ablate(model, layers="layer1.1"):
        torch.testing.assert_close(model(image), model.fc(model.layer1[0](model.conv1(image)).mean((2, 3))))
    with pytest.raises(ValueError, match=r"did you mean 'layer1\.0\.conv[12]'"), hw.record(model, "layer1.0.conv"):
        pass


# --- tuples and dicts -------------------------------------------------------------------------------------------------


def test_tensors_inside_of_what_is_returned() -> None:
    model, x = Around(), torch.zeros(2)
    with hw.record(model) as seen:
        model(x)
    assert list(seen) == ["inner[0]", "inner[1][a][0]", "inner[1][3]", "output"]
    assert "2 of 2 points" in repr(seen)
    with pytest.raises(KeyError, match=r"'inner' is no tensor.*inner\[0\], inner\[1\]\[a\]\[0\]"):
        seen["inner"]
    with pytest.raises(KeyError, match=r"'inner\[7\]' is no tensor"):
        seen["inner[7]"]
    with hw.record(model, "inner[1]") as seen:
        model(x)
    assert list(seen) == ["inner[1][a][0]", "inner[1][3]"]


@pytest.mark.parametrize(
    ("name", "wanted"), [("inner[0]", 320.0 + 5), ("inner[1][a][0]", 351.0), ("inner[1][3]", 521.0)]
)
def test_they_are_patched_one_by_one(name: str, wanted: float) -> None:
    model, x = Around(), torch.zeros(2)
    with hw.patch(model, {name: 5.0}), hw.record(model, name) as seen:
        assert model(x).tolist() == [wanted] * 2
    assert seen[name].tolist() == [5.0] * 2
    with hw.patch(model, {name: lambda y: y}):
        assert model(x).tolist() == [321.0] * 2
    with hw.patch(model, {name: lambda y: y.fill_(5.0)}):
        assert model(x).tolist() == [wanted] * 2


def test_a_tuple_is_no_tensor_to_patch() -> None:
    model = Around()
    with (
        pytest.raises(
            TypeError, match=r"inner returns a Two: name one of its tensors, inner\[0\], inner\[1\]\[a\]\[0\]"
        ),
        hw.patch(model, {"inner": 0.0}),
    ):
        model(torch.zeros(2))
    with pytest.raises(TypeError, match=r"no inner\[4\]"), hw.patch(model, {"inner[4]": 0.0}):
        model(torch.zeros(2))
    with pytest.raises(ValueError, match="did you mean 'inner'"), hw.patch(model, {"iner[0]": 0.0}):
        pass
    assert not hooks_of(model)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_scripted_module_is_refused() -> None:
    scripted = torch.jit.trace(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2))
    for look in (lambda: hw.record(scripted, "0"), lambda: hw.patch(scripted, {"0": 0.0})):
        with pytest.raises(ValueError, match="cannot look into a compiled model"), look():
            pass


# --- Hugging Face -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_model_of_hugging_face(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "bert":
        sizes = {"vocab_size": 37, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
        config = transformers.BertConfig(**sizes, intermediate_size=17)
        model, attention = transformers.BertForMaskedLM(config).eval(), "bert.encoder.layer.1.attention.self"
        layers, head = "bert.encoder.layer.*", "cls"
    else:
        config = transformers.GPT2Config(vocab_size=37, n_embd=12, n_layer=2, n_head=3)
        model, attention = transformers.GPT2LMHeadModel(config).eval(), "transformer.h.1.attn"
        layers, head = "transformer.h.*", "lm_head"
    ids = torch.randint(37, (2, TOKENS))
    wanted = model(ids, output_hidden_states=True)
    before = hooks_of(model)  # it has some of its own
    with hw.record(model) as seen:
        model(ids)
    assert torch.equal(seen["output[logits]"], wanted.logits)
    assert torch.equal(seen[head], wanted.logits)
    assert seen[f"{attention}[0]"].shape[:2] == (2, TOKENS)
    first = layers.replace("*", "0")
    name = first if first in seen else f"{first}[0]"
    assert torch.equal(seen[name], wanted.hidden_states[1])
    with hw.patch(model, {f"{attention}[0]": lambda y: 0 * y}):
        assert not torch.allclose(model(ids).logits, wanted.logits)
    with hw.patch(model, {"output[logits]": 2.0}):
        changed = model(ids)
    assert type(changed) is type(wanted)
    assert (changed.logits == 2).all()
    assert changed["logits"] is changed.logits
    suffix = "" if first in seen else "[0]"
    with hw.ablate(model, layers=[f"{layers.replace('*', str(i))}{suffix}" for i in (0, 1)]), hw.record(model) as off:
        model(ids)
    assert torch.equal(off[f"{layers.replace('*', '1')}{suffix}"], wanted.hidden_states[0])
    assert len(hw.trace(model, ids)) > 10
    assert hooks_of(model) == before
