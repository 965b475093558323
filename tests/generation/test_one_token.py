"""The fast path says what the models say, and steps aside for whoever wants to look or has changed a part."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwork as hw
from headwork import choices
from headwork.generation import generate, stream, translate
from headwork.generation.reading import TargetReader, TextReader
from headwork.models import Decoder, EncoderDecoder

from ..models.small_models import LLAMA, POSITIONS, T5, decoder, encoder_decoder, ready, real_tokens, some_ids
from .lively import lively

pytestmark = pytest.mark.usefixtures("as_users_run_it")  # many calls: without the checks of every shape

BATCH, PROMPT, N_NEW_TOKENS = 3, 5, 4

PLAIN_DECODERS: dict[str, dict[str, Any]] = {
    **{name: {"position": position} for name, position in POSITIONS.items()},
    "llama": LLAMA,
    "post-norm": {"norm_order": "post"},
    "grouped": {"heads": choices.Heads(n_heads=6, d_head=4, d_value=5, n_kv_heads=2, beta=0.3, out_bias=False)},
    "norm-without-bias": {"norm": choices.LayerNorm(eps=0.1, bias=False)},
    "words-with-bias": {"lm_head": choices.UntiedLMHead(bias=True)},
    "words-scaled": {"lm_head": choices.TiedLMHead(scaled=True)},
    "hard": {"heads": choices.Heads(n_heads=3, beta=math.inf)},
}
OTHER_DECODERS: dict[str, dict[str, Any]] = {"split-heads": {"heads": choices.SplitHeads(n_heads=3)}}
PLAIN_TRANSLATORS: dict[str, dict[str, Any]] = {
    "original": {},
    "t5": T5,
    "learned": {"position": POSITIONS["learned"], "norm_order": "pre"},
    "rotary": {"position": POSITIONS["rotary"], "heads": choices.Heads(n_heads=6, d_head=4, d_value=5, n_kv_heads=2)},
    "two-vocabularies": {"target_vocab": 29, "lm_head": choices.TiedLMHead(bias=True)},
}


def plain_calls(read: TextReader | TargetReader) -> TextReader | TargetReader:
    """The same reader without its fast path."""
    read.one_token = None
    return read


# --- equality --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", PLAIN_DECODERS.values(), ids=PLAIN_DECODERS.keys())
@pytest.mark.parametrize("lengths", [None, (5, 2, 3)], ids=["whole", "padded"])
def test_a_decoder_and_its_fast_path(changes: dict[str, Any], lengths: tuple[int, ...] | None) -> None:
    model, ids = lively(decoder(**changes)), some_ids(BATCH, PROMPT + N_NEW_TOKENS)
    real = None if lengths is None else real_tokens(lengths, PROMPT, "left")
    assert model.one_token() is not None
    fast, plain = TextReader(model), plain_calls(TextReader(model))
    for start, stop in [(0, PROMPT), *((t, t + 1) for t in range(PROMPT, PROMPT + N_NEW_TOKENS))]:
        new = ids[:, start:stop], (real if start == 0 else None)
        torch.testing.assert_close(fast(*new), plain(*new), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("changes", PLAIN_TRANSLATORS.values(), ids=PLAIN_TRANSLATORS.keys())
@pytest.mark.parametrize("lengths", [None, (7, 2, 5), (7, 0, 5)], ids=["whole", "padded", "empty"])
def test_an_encoder_decoder_and_its_fast_path(changes: dict[str, Any], lengths: tuple[int, ...] | None) -> None:
    model, source, ids = lively(encoder_decoder(**changes)), some_ids(BATCH, 7), some_ids(BATCH, N_NEW_TOKENS, 29)
    real = None if lengths is None else real_tokens(lengths, 7)
    assert model.one_token() is not None
    fast, plain = TargetReader(model, source, real), plain_calls(TargetReader(model, source, real))
    for step in range(N_NEW_TOKENS):
        new = ids[:, step : step + 1]
        torch.testing.assert_close(fast(new), plain(new), rtol=1e-10, atol=1e-10)
        rows = torch.tensor([2, 0, 0])
        fast.reorder(rows)
        plain.reorder(rows)


def test_a_nan_in_the_padding_stays_there() -> None:
    model, real = lively(decoder(lm_head=choices.UntiedLMHead(bias=True))), real_tokens((5, 3), PROMPT, "left")
    ids = some_ids(2, PROMPT, first=1).masked_fill(~real, 0)
    with torch.no_grad():
        model.lm_head.bias[0] = -1e3
        expected = generate(model, ids, max_new_tokens=N_NEW_TOKENS, visible=real)
        model.embedding.table[0] = torch.nan
    assert generate(model, ids, max_new_tokens=N_NEW_TOKENS, visible=real).equal(expected)


# --- when the fast path runs -----------------------------------------------------------------------------------------


@pytest.fixture
def fast_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each call of the fast path had."""
    calls: list[int] = []
    for kind in (Decoder, EncoderDecoder):

        def counted(self: Any, make: Callable[..., Any] = kind.one_token) -> Callable[..., Tensor] | None:
            run = make(self)

            def count(ids: Tensor, *rest: Any) -> Tensor:
                calls.append(len(ids))
                return run(ids, *rest)

            return None if run is None else count

        monkeypatch.setattr(kind, "one_token", counted)
    return calls


def test_every_token_but_the_prompt_takes_the_fast_path(fast_calls: list[int]) -> None:
    generate(decoder(), some_ids(BATCH, PROMPT), max_new_tokens=N_NEW_TOKENS)
    translate(encoder_decoder(), some_ids(2, PROMPT), max_new_tokens=N_NEW_TOKENS, begin=0, end=None)
    assert fast_calls == [BATCH] * (N_NEW_TOKENS - 1) + [2] * (N_NEW_TOKENS - 1)


@pytest.mark.parametrize("changes", OTHER_DECODERS.values(), ids=OTHER_DECODERS.keys())
def test_rarer_models_are_called_themselves(changes: dict[str, Any], fast_calls: list[int]) -> None:
    model, ids = lively(decoder(**changes)), some_ids(BATCH, PROMPT)
    text = torch.cat([ids, generate(model, ids, max_new_tokens=N_NEW_TOKENS)], dim=1)
    assert fast_calls == []
    assert text[:, PROMPT:].equal(model(text)[:, PROMPT - 1 : -1].argmax(-1))


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def replace_a_part(model: Decoder) -> None:
    up = model.layers[0].feed_forward.up
    model.layers[0].feed_forward.up = ready(Doubled(up.in_features, up.out_features))


def replace_a_forward(model: Decoder) -> None:
    norm = model.layers[0].attention_norm
    run = norm.forward
    norm.forward = lambda x: 2 * run(x)


def hook_a_part(model: Decoder) -> None:
    model.layers[1].attention.out.register_forward_hook(lambda module, inputs, output: 2 * output)


def hook_before_a_part(model: Decoder) -> None:
    model.layers[1].feed_forward.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))


def hook_the_weights(model: Decoder) -> None:
    model.layers[1].attention.weights.register_forward_hook(lambda module, inputs, output: output.flip(-1))


def hook_the_logits(model: Decoder) -> None:
    model.register_forward_hook(lambda module, inputs, output: -output)


def parametrize_a_part(model: Decoder) -> None:
    nn.utils.parametrizations.weight_norm(model.layers[0].attention.query)
    model.layers[0].attention.query.parametrizations.weight.original0.data.mul_(3)


CHANGES = [
    replace_a_part,
    replace_a_forward,
    hook_a_part,
    hook_before_a_part,
    hook_the_weights,
    hook_the_logits,
    parametrize_a_part,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_speaks_for_itself(change: Callable[[Decoder], None], fast_calls: list[int]) -> None:
    """Hooks that never fire on the fast path: pytorch#128413, #132700, #82919."""
    model, ids = lively(decoder()), some_ids(BATCH, PROMPT)
    before = generate(model, ids, max_new_tokens=N_NEW_TOKENS)
    del fast_calls[:]
    change(model)
    text = torch.cat([ids, generate(model, ids, max_new_tokens=N_NEW_TOKENS)], dim=1)
    assert fast_calls == []
    assert not text[:, PROMPT:].equal(before)
    if change is not hook_the_weights:  # flipped, they depend on how many keys there are
        assert text[:, PROMPT:].equal(model(text)[:, PROMPT - 1 : -1].argmax(-1))


def test_a_compiled_model_is_called_itself() -> None:
    model = decoder()
    assert model.one_token() is not None
    model._compiled_call_impl = model.forward  # what model.compile() leaves behind, without waiting for the compiler
    assert model.one_token() is None


def test_a_hook_for_all_modules_is_heard(fast_calls: list[int]) -> None:
    seen: list[nn.Module] = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(module))
    model = decoder()
    try:
        generate(model, some_ids(1, PROMPT), max_new_tokens=2)
    finally:
        handle.remove()
    assert seen.count(model) == 2
    assert fast_calls == []


def test_who_looks_in_the_middle_sees_every_token_and_changes_none(fast_calls: list[int]) -> None:
    model, ids = lively(decoder()), some_ids(BATCH, PROMPT)
    expected = generate(model, ids, max_new_tokens=N_NEW_TOKENS + 3)
    del fast_calls[:]
    steps = stream(model, ids, max_new_tokens=N_NEW_TOKENS + 3)
    tokens = [next(steps), next(steps)]
    with hw.record(model, "layers.0.attention.weights", "output", every_call=True) as seen:
        tokens += [next(steps), next(steps), next(steps)]
    tokens += list(steps)
    assert torch.stack(tokens, dim=1).equal(expected)
    assert [w.shape[-1] for w in seen.calls("layers.0.attention.weights")] == [PROMPT + 2, PROMPT + 3, PROMPT + 4]
    assert seen.calls("output")[-1][:, -1].argmax(-1).equal(expected[:, 4])
    assert len(fast_calls) == N_NEW_TOKENS + 2 - 3


@pytest.mark.parametrize("changes", [*PLAIN_DECODERS.values(), *OTHER_DECODERS.values()])
def test_who_looks_changes_no_bit_of_what_follows_the_prompt(changes: dict[str, Any]) -> None:
    model, ids = ready(decoder(**changes)).float(), some_ids(BATCH, PROMPT)
    with hw.record(model):
        watched = TextReader(model)(ids)
    assert watched.equal(TextReader(model)(ids))


def test_who_looks_into_a_translator_sees_every_token(fast_calls: list[int]) -> None:
    model, source = lively(encoder_decoder()), some_ids(BATCH, 7)
    options = {"max_new_tokens": N_NEW_TOKENS, "begin": 0, "end": None}
    expected = translate(model, source, **options)
    del fast_calls[:]
    with hw.record(model, "decoder_layers.2.cross_attention.weights", every_call=True) as seen:
        assert translate(model, source, **options).equal(expected)
    weights = seen.calls("decoder_layers.2.cross_attention.weights")
    assert [w.shape for w in weights] == [(BATCH, 3, 1, 7)] * N_NEW_TOKENS
    assert fast_calls == []


def test_weights_that_change_are_read_anew() -> None:
    """Nothing is copied: an optimizer's step in the middle of a stream is seen by every part at once."""
    model = lively(decoder())
    read, other = TextReader(model), plain_calls(TextReader(model))
    ids = some_ids(BATCH, PROMPT)
    read(ids), other(ids)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.3)
    torch.testing.assert_close(read(ids[:, :1]), other(ids[:, :1]), rtol=1e-10, atol=1e-10)


def test_heads_that_share_a_key_do_not_copy_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias of each head comes to its own queries, too."""
    for changes in (LLAMA, {**LLAMA, "position": POSITIONS["alibi"]}, {**LLAMA, "position": POSITIONS["relative"]}):
        model, ids = lively(decoder(**changes)), some_ids(BATCH, PROMPT)
        read, plain = TextReader(model), plain_calls(TextReader(model))
        for reader in (read, plain):
            reader(ids)
        expected = plain(ids[:, :1])
        with monkeypatch.context() as patched:
            patched.setattr(hw.layers.MultiHeadAttention, "_for_each_query_head", lambda *_: 1 / 0)
            torch.testing.assert_close(read(ids[:, :1]), expected, rtol=1e-10, atol=1e-10)
