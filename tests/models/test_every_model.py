"""What holds for all models: they start well, train everywhere, and are the same however they are run."""

import copy
import io
import itertools
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from .small_models import (
    EVERY_MODEL,
    ONE_LAYER,
    Case,
    decoder,
    encoder,
    encoder_decoder,
    ready,
    some_ids,
    vision_transformer,
)

every_model = pytest.mark.parametrize("case", EVERY_MODEL.values(), ids=EVERY_MODEL.keys())


def weigh(out: Tensor) -> Tensor:
    """A scalar that depends on every output; a plain mean is blind behind a norm."""
    generator = torch.Generator().manual_seed(0)
    return (out * torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)).sum()


# --- starting --------------------------------------------------------------------------------------------------------


@every_model
def test_no_two_matrices_start_alike(case: Case) -> None:
    """Layers of a stack that are deep copies of one: pytorch#86274, #72253."""
    matrices = {name: p for name, p in case.make().named_parameters() if p.ndim > 1 and name.endswith("weight")}
    for (a, p), (b, q) in itertools.combinations(matrices.items(), 2):
        assert p.shape != q.shape or not p.equal(q), f"{a} and {b} start alike"


@pytest.mark.parametrize(
    "stacks",
    [
        lambda: [encoder(n_layers=3).layers],
        lambda: [decoder(n_layers=3).layers],
        lambda: [m := encoder_decoder(), m.encoder_layers, m.decoder_layers][1:],
        lambda: [vision_transformer(n_layers=3).layers],
    ],
    ids=["encoder", "decoder", "encoder-decoder", "vision-transformer"],
)
def test_every_pair_of_layers_starts_different(stacks: object) -> None:
    """pytorch#86274, #72253."""
    for layers in stacks():
        for one, other in itertools.combinations(layers, 2):
            for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
                assert p is not q
                assert p.ndim == 1 or not p.equal(q), f"{name} starts alike in two layers"


@every_model
def test_the_same_seed_makes_the_same_model(case: Case) -> None:
    torch.manual_seed(1)
    first = case.make().state_dict()
    torch.manual_seed(1)
    second = case.make().state_dict()
    assert all(first[name].equal(second[name]) for name in first)


# --- training --------------------------------------------------------------------------------------------------------


def is_seen_by_no_softargmax(name: str, model: nn.Module) -> bool:
    """The bias of the keys adds the same to every score of a query, unless the keys are turned afterwards."""
    return name.endswith("key.bias") and "Rotary" not in repr(model)


@every_model
def test_every_parameter_gets_a_gradient(case: Case) -> None:
    model = case.make()
    weigh(case.call(model)).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, f"{name} gets no gradient"
        assert p.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert p.grad.any() or is_seen_by_no_softargmax(name, model), f"the gradient of {name} is 0"


NORMS_OF_THE_BATCH = {"resnet", "vision-transformer-stem"}


@pytest.mark.parametrize("name", [name for name in EVERY_MODEL if name not in NORMS_OF_THE_BATCH])
def test_without_dropout_training_is_evaluation(name: str) -> None:
    """Evaluation differs from training by dropout only: pytorch#86120, #97111."""
    case = EVERY_MODEL[name]
    model = case.make()
    remove_dropout(model)
    torch.manual_seed(1)
    training = case.call(model.train())
    torch.manual_seed(1)
    assert case.call(model.eval()).equal(training)


def remove_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("make", [encoder, decoder, encoder_decoder, vision_transformer])
def test_each_dropout_acts_in_training_and_only_there(make: object, kind: str) -> None:
    model = make(**{"dropout": 0.0, "attention_dropout": 0.0, kind: 0.5})
    image, ids = torch.randn(2, 2, 6, 15), some_ids(2, 7)
    inputs = {vision_transformer: (image,), encoder_decoder: (ids, ids)}.get(make, (ids,))
    assert not model.train()(*inputs).equal(model(*inputs))
    assert model.eval()(*inputs).equal(model(*inputs))


@pytest.mark.usefixtures("float64")
@every_model
def test_evaluation_is_the_same_without_gradients(case: Case) -> None:
    """`eval()` + `no_grad()` takes another path in nn.TransformerEncoder: pytorch#86120, #97111, #128413."""
    model = case.make().eval()
    torch.manual_seed(1)
    with_gradients = case.call(model)
    for context in (torch.no_grad(), torch.inference_mode()):
        torch.manual_seed(1)
        with context:
            torch.testing.assert_close(case.call(model), with_gradients, rtol=1e-12, atol=1e-12)


# --- being run, copied and stored ------------------------------------------------------------------------------------


@every_model
@pytest.mark.computes_in(torch.bfloat16)
def test_bfloat16_stays_finite_and_near(case: Case) -> None:
    model = case.make().eval()
    torch.manual_seed(1)
    exact = case.call(model)
    torch.manual_seed(1)
    inputs = (x.bfloat16() if x.is_floating_point() else x for x in case.inputs())
    short = model.bfloat16()(*inputs, **case.masks())
    assert short.dtype == torch.bfloat16
    assert short.isfinite().all()
    torch.testing.assert_close(short.float(), exact, rtol=0.1, atol=0.1 * exact.std().item())


@every_model
def test_a_copy_and_a_pickle_give_the_same(case: Case) -> None:
    model = ready(case.make()).float()
    torch.manual_seed(1)
    expected = case.call(model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), saved_and_loaded(model)):
        torch.manual_seed(1)
        assert case.call(twin).equal(expected)
        assert not {p.data_ptr() for p in twin.parameters()} & {p.data_ptr() for p in model.parameters()}


def saved_and_loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@every_model
def test_a_state_goes_into_a_fresh_model(case: Case) -> None:
    model, fresh = ready(case.make()).float(), case.make().eval()
    fresh.load_state_dict(model.state_dict(), strict=True)
    torch.manual_seed(1)
    expected = case.call(model)
    torch.manual_seed(1)
    assert case.call(fresh).equal(expected)


@every_model
def test_a_state_has_every_parameter_once(case: Case) -> None:
    model = case.make()
    state = model.state_dict()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    assert len({p.data_ptr() for p in parameters.values()}) == len(parameters)
    statistics = {name for name in state if name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    assert set(state) - statistics == set(parameters)


@every_model
def test_a_model_shows_its_config(case: Case) -> None:
    model = case.make()
    assert type(model).__name__ + "Config" == type(model.config).__name__
    assert copy.deepcopy(model).config == model.config


COMPILE = """
import json, sys, torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from small_models import ONE_LAYER, ready

same = {}
for name, case in ONE_LAYER.items():
    torch._dynamo.reset()
    model = ready(case.make()).float()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.manual_seed(1)
    eager = case.call(model)
    torch.manual_seed(1)
    same[name] = torch.allclose(case.call(compiled), eager, rtol=1e-5, atol=1e-5)
print(json.dumps(same))
"""


@pytest.mark.slow
def test_compiled_in_one_graph_is_eager() -> None:
    """In a process of its own: the shape checks of the test run cannot be compiled."""
    command = [sys.executable, "-c", COMPILE, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(ONE_LAYER, True)


def test_printing_a_model_shows_its_parts_in_order_and_their_sizes() -> None:
    shown = repr(vision_transformer())
    order = ["(patches)", "(positions)", "(layers)", "(pooling)", "(classifier)", "(logits)"]
    assert sorted(order, key=shown.index) == order
    assert "LearnedGrid(n_rows=3, n_columns=5, d_model=18)" in shown
    shown = repr(decoder())
    assert "LearnedPositions(max_tokens=31, d_model=18)" in shown
    assert "LMHead(d_model=18, vocab=37, tied=True, bias=False)" in shown
