"""Token after token: what the cache gives is what reading everything anew gives, for each row as for that row alone."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import headwork as hw
from headwork import choices
from headwork.generation import (
    Greedy,
    Sample,
    generate,
    generate_text,
    pick,
    stream,
    stream_text,
    stream_translation,
    translate,
)
from headwork.generation.reading import TargetReader, TextReader
from headwork.models import Decoder, EncoderDecoder

from ..models.small_models import (
    LLAMA,
    MAX_TOKENS,
    POSITIONS,
    T5,
    VOCAB,
    decoder,
    encoder_decoder,
    real_tokens,
    some_ids,
)
from .lively import lively

pytestmark = pytest.mark.usefixtures(
    "as_users_run_it"
)  # many calls; the shapes are checked in one test of each package

N_NEW_TOKENS = 7
DECODERS: dict[str, dict[str, Any]] = {
    **{name: {"position": position} for name, position in POSITIONS.items()},
    "llama": LLAMA,
    "split-heads": {"heads": choices.SplitHeads(n_heads=3)},
}
TRANSLATORS: dict[str, dict[str, Any]] = {"original": {}, "t5": T5, "relative": {"position": POSITIONS["relative"]}}

every_decoder = pytest.mark.parametrize("changes", DECODERS.values(), ids=DECODERS.keys())
every_translator = pytest.mark.parametrize("changes", TRANSLATORS.values(), ids=TRANSLATORS.keys())


def read_anew(model: Decoder, ids: Tensor, max_new_tokens: int) -> Tensor:
    """Greedy text without a cache."""
    text = ids
    for _ in range(max_new_tokens):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
    return text[:, ids.shape[1] :]


def translate_anew(model: EncoderDecoder, source: Tensor, max_new_tokens: int, begin: int = 0) -> Tensor:
    target = torch.full((len(source), 1), begin)
    for _ in range(max_new_tokens):
        target = torch.cat([target, model(source, target)[:, -1:].argmax(-1)], dim=1)
    return target[:, 1:]


# --- the cache -------------------------------------------------------------------------------------------------------


@every_decoder
def test_text_is_that_without_a_cache(changes: dict[str, Any]) -> None:
    model, ids = lively(decoder(**changes), seed=2), some_ids(7, 5)
    text = generate(model, ids, max_new_tokens=N_NEW_TOKENS)
    assert text.equal(read_anew(model, ids, N_NEW_TOKENS))
    assert len(text.unique()) > 5


@every_decoder
def test_scores_are_those_without_a_cache(changes: dict[str, Any]) -> None:
    model, ids = lively(decoder(**changes)), some_ids(3, 11)
    whole = model(ids)
    read, n_read = TextReader(model), 0
    for size in (4, 1, 1, 3, 1, 1):
        n_read += size
        scores = read(ids[:, n_read - size : n_read])
        torch.testing.assert_close(scores, whole[:, n_read - 1], rtol=1e-10, atol=1e-10)


@every_translator
def test_translation_is_that_without_a_cache(changes: dict[str, Any]) -> None:
    model, source = lively(encoder_decoder(**changes)), some_ids(3, 11)
    target = translate(model, source, max_new_tokens=N_NEW_TOKENS, begin=2, end=None)
    assert target.equal(translate_anew(model, source, N_NEW_TOKENS, begin=2))
    read, whole = TargetReader(model, source), model(source, target)
    for step in range(N_NEW_TOKENS):
        scores = read(target[:, step : step + 1])
        torch.testing.assert_close(scores, whole[:, step], rtol=1e-10, atol=1e-10)


@every_decoder
@settings(max_examples=3, deadline=None)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_row_goes_on_as_it_would_alone(changes: dict[str, Any], lengths: list[int], seed: int) -> None:
    """transformers#18388, #25790. Whatever stands in the padding."""
    torch.manual_seed(seed)
    model, ids, real = lively(decoder(**changes)), some_ids(len(lengths), 6), real_tokens(tuple(lengths), 6, "left")
    together = generate(model, ids, max_new_tokens=N_NEW_TOKENS, visible=real)
    for row, length in enumerate(lengths):
        assert together[row : row + 1].equal(
            generate(model, ids[row : row + 1, 6 - length :], max_new_tokens=N_NEW_TOKENS)
        )


@every_translator
def test_a_source_is_translated_as_it_would_be_alone(changes: dict[str, Any]) -> None:
    model, source, lengths = lively(encoder_decoder(**changes)), some_ids(3, 11), (11, 4, 7)
    together = translate(
        model, source, max_new_tokens=N_NEW_TOKENS, begin=0, end=None, source_visible=real_tokens(lengths, 11)
    )
    for row, length in enumerate(lengths):
        alone = translate(model, source[row : row + 1, :length], max_new_tokens=N_NEW_TOKENS, begin=0, end=None)
        assert together[row : row + 1].equal(alone)


def test_padding_that_is_all_real_changes_nothing() -> None:
    model, ids = lively(decoder()), some_ids(3, 5)
    everything = torch.ones(3, 5, dtype=torch.bool)
    assert generate(model, ids, max_new_tokens=N_NEW_TOKENS, visible=everything).equal(
        generate(model, ids, max_new_tokens=N_NEW_TOKENS)
    )


# --- steps and ends --------------------------------------------------------------------------------------------------


def test_a_stream_gives_the_tokens_one_by_one() -> None:
    model, ids = lively(decoder()), some_ids(3, 5)
    steps = stream(model, ids, max_new_tokens=N_NEW_TOKENS)
    tokens = list(steps)
    assert [token.shape for token in tokens] == [(3,)] * N_NEW_TOKENS
    assert torch.stack(tokens, dim=1).equal(generate(model, ids, max_new_tokens=N_NEW_TOKENS))
    model, source = lively(encoder_decoder()), some_ids(3, 5)
    tokens = list(stream_translation(model, source, max_new_tokens=N_NEW_TOKENS, begin=0, end=None))
    assert torch.stack(tokens, dim=1).equal(translate(model, source, max_new_tokens=N_NEW_TOKENS, begin=0, end=None))


@pytest.mark.parametrize("row_that_ends", [0, 1, 2])
def test_a_row_that_has_ended_repeats_the_end(row_that_ends: int) -> None:
    model, ids = lively(decoder()), some_ids(3, 5)
    free = generate(model, ids, max_new_tokens=N_NEW_TOKENS)
    end = free[row_that_ends, 2].item()
    for row, ended in zip(
        free.tolist(), generate(model, ids, max_new_tokens=N_NEW_TOKENS, end=end).tolist(), strict=True
    ):
        n = row.index(end) + 1 if end in row else N_NEW_TOKENS
        assert ended == row[:n] + [end] * (len(ended) - n)


def test_a_stream_ends_when_all_rows_have() -> None:
    model, ids = lively(decoder()), some_ids(1, 5).expand(3, 5)
    (row, *_) = generate(model, ids, max_new_tokens=N_NEW_TOKENS).tolist()
    assert generate(model, ids, max_new_tokens=N_NEW_TOKENS, end=row[3]).tolist() == [row[: row.index(row[3]) + 1]] * 3


def test_an_end_at_once() -> None:
    model, ids = lively(decoder()), some_ids(1, 5)
    end = generate(model, ids, max_new_tokens=1).item()
    assert generate(model, ids, max_new_tokens=N_NEW_TOKENS, end=end).tolist() == [[end]]
    model = lively(encoder_decoder())
    end = translate(model, ids, max_new_tokens=1, begin=0, end=None).item()
    assert translate(model, ids, max_new_tokens=N_NEW_TOKENS, begin=0, end=end).tolist() == [[end]]


def test_the_end_costs_no_further_reading() -> None:
    model, ids, calls = lively(decoder()), some_ids(1, 5), []
    end = generate(model, ids, max_new_tokens=3)[0, 2].item()
    model.register_forward_hook(lambda *_: calls.append(1))
    max_new_tokens = generate(model, ids, max_new_tokens=N_NEW_TOKENS, end=end).shape[1]
    assert len(calls) == max_new_tokens


def test_the_smallest_prompt() -> None:
    model, ids = lively(decoder()), some_ids(1, 1)
    assert generate(model, ids, max_new_tokens=N_NEW_TOKENS).equal(read_anew(model, ids, N_NEW_TOKENS))


def test_nobody_to_write_for() -> None:
    assert generate(lively(decoder()), some_ids(0, 5), max_new_tokens=3).shape == (0, 3)
    assert translate(lively(encoder_decoder()), some_ids(0, 5), max_new_tokens=3, begin=0, end=None).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_whole_numbers_are_a_prompt(dtype: torch.dtype) -> None:
    model, ids = lively(decoder()), some_ids(3, 5)
    assert generate(model, ids.to(dtype), max_new_tokens=N_NEW_TOKENS).equal(
        generate(model, ids, max_new_tokens=N_NEW_TOKENS)
    )
    model = lively(encoder_decoder())
    options = {"max_new_tokens": N_NEW_TOKENS, "begin": 0, "end": None}
    assert translate(model, ids.to(dtype), **options).equal(translate(model, ids, **options))


# --- chance ----------------------------------------------------------------------------------------------------------


def test_chance_is_that_of_the_generator() -> None:
    model, ids = lively(decoder()), some_ids(5, 3)

    def draw(seed: int) -> Tensor:
        return generate(
            model,
            ids,
            max_new_tokens=N_NEW_TOKENS,
            sampling=Sample(temperature=3.0),
            generator=torch.Generator().manual_seed(seed),
        )

    assert draw(1).equal(draw(1))
    assert not draw(1).equal(draw(2))


def test_without_a_generator_the_global_seed_decides() -> None:
    model, ids = lively(decoder()), some_ids(5, 3)
    texts = []
    for _ in range(2):
        torch.manual_seed(11)
        texts.append(generate(model, ids, max_new_tokens=N_NEW_TOKENS, sampling=Sample(temperature=3.0)))
    assert texts[0].equal(texts[1])


def test_words_by_chance_are_those_that_pick_takes() -> None:
    model, ids, sampling = lively(decoder()), some_ids(5, 3), Sample(temperature=2.0, top_k=11, top_p=0.9)
    ours, by_hand = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    text = torch.cat([ids, generate(model, ids, max_new_tokens=N_NEW_TOKENS, sampling=sampling, generator=ours)], dim=1)
    for n in range(3, 3 + N_NEW_TOKENS):
        assert text[:, n].equal(pick(model(text[:, :n])[:, -1], sampling, by_hand))


def test_towards_temperature_0_text_is_greedy() -> None:
    model, ids = lively(decoder()), some_ids(5, 3)
    assert generate(model, ids, max_new_tokens=N_NEW_TOKENS, sampling=Sample(temperature=1e-6)).equal(
        generate(model, ids, max_new_tokens=N_NEW_TOKENS)
    )


def test_fewer_words_than_top_k() -> None:
    assert generate(lively(decoder()), some_ids(1, 3), max_new_tokens=3, sampling=Sample(top_k=10 * VOCAB)).shape == (
        1,
        3,
    )


# --- the model stays as it was ---------------------------------------------------------------------------------------


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("changes", [{}, {"heads": choices.SplitHeads(n_heads=3)}], ids=["fast path", "itself"])
def test_a_model_in_training_does_not_notice(changes: dict[str, Any]) -> None:
    """Its dropout rests while it writes; between two tokens it is in training, with gradients."""
    model, ids = lively(decoder(dropout=0.5, attention_dropout=0.5, **changes)), some_ids(3, 5)
    expected = generate(model, ids, max_new_tokens=N_NEW_TOKENS)
    model.train()
    model.layers[0].eval()
    before, tokens = modes(model), []
    for token in stream(model, ids, max_new_tokens=N_NEW_TOKENS):
        tokens.append(token)
        assert modes(model) == before
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
    assert torch.stack(tokens, dim=1).equal(expected)
    assert modes(model) == before


def test_a_translator_in_training_does_not_notice() -> None:
    model, source = lively(encoder_decoder(dropout=0.5)), some_ids(3, 5)
    expected = translate(model, source, max_new_tokens=N_NEW_TOKENS, begin=0, end=None)
    model.train()
    assert translate(model, source, max_new_tokens=N_NEW_TOKENS, begin=0, end=None).equal(expected)
    assert all(modes(model))


def test_two_streams_of_one_model_do_not_meet() -> None:
    model, ids = lively(decoder()).train(), some_ids(2, 5)
    first, second = (stream(model, row[None], max_new_tokens=N_NEW_TOKENS) for row in ids)
    pairs = [torch.cat(tokens) for tokens in zip(first, second, strict=True)]
    assert torch.stack(pairs, dim=1).equal(generate(model, ids, max_new_tokens=N_NEW_TOKENS))
    assert all(modes(model))


def test_a_stream_that_is_dropped_leaves_nothing_behind() -> None:
    model = lively(decoder()).train()
    next(stream(model, some_ids(3, 5), max_new_tokens=N_NEW_TOKENS))
    assert all(modes(model))


def test_a_model_can_learn_from_what_it_wrote() -> None:
    """Tensors made in inference mode could not be kept for a backward pass."""
    model, ids = lively(decoder()), some_ids(3, 5)
    text = generate(model, ids, max_new_tokens=N_NEW_TOKENS, sampling=Sample())
    F.cross_entropy(model(text[:, :-1]).mT, text[:, 1:]).backward()
    token = next(stream(model, ids, max_new_tokens=N_NEW_TOKENS))
    model(token[:, None]).sum().backward()
    assert model.embedding.table.grad.any()


# --- limits ----------------------------------------------------------------------------------------------------------


def test_as_many_tokens_as_there_are_positions() -> None:
    model, ids = lively(decoder()), some_ids(2, 5)
    assert generate(model, ids, max_new_tokens=MAX_TOKENS - 5).equal(read_anew(model, ids, MAX_TOKENS - 5))


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, ids, n: stream(model, ids, max_new_tokens=n),
        lambda model, ids, n: generate(model, ids, max_new_tokens=n),
    ],
    ids=["stream", "generate"],
)
def test_more_tokens_than_positions_are_refused_before_the_work(ask: Callable[..., object]) -> None:
    model, calls = decoder(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    message = f"must fit into the {MAX_TOKENS} positions of the model, got 5 + max_new_tokens={MAX_TOKENS - 4}"
    with pytest.raises(ValueError, match=re.escape(message)):
        ask(model, some_ids(2, 5), MAX_TOKENS - 4)
    assert not calls


def test_a_target_longer_than_the_positions_is_refused() -> None:
    model = encoder_decoder(position=POSITIONS["learned"])
    with pytest.raises(ValueError, match=f"{MAX_TOKENS} positions of the model, got 1 \\+ max_new_tokens={MAX_TOKENS}"):
        translate(model, some_ids(2, 5), max_new_tokens=MAX_TOKENS, begin=0, end=None)


def test_padding_has_no_position() -> None:
    model, ids, real = lively(decoder()), some_ids(2, 9), real_tokens((3, 5), 9, "left")
    assert generate(model, ids, max_new_tokens=MAX_TOKENS - 5, visible=real).shape == (2, MAX_TOKENS - 5)
    with pytest.raises(ValueError, match="got 5 \\+ max_new_tokens="):
        generate(model, ids, max_new_tokens=MAX_TOKENS - 4, visible=real)


def test_other_positions_go_on_and_on() -> None:
    model = lively(decoder(position=POSITIONS["sinusoidal"], n_layers=1))
    assert generate(model, some_ids(1, 1020), max_new_tokens=9).shape == (1, 9)


# --- bad input -------------------------------------------------------------------------------------------------------

EVERY_ASK: dict[str, Callable[..., object]] = {
    "stream": lambda ids, **options: stream(lively(decoder()), ids, **{"max_new_tokens": 3, **options}),
    "generate": lambda ids, **options: generate(lively(decoder()), ids, **{"max_new_tokens": 3, **options}),
    "stream_translation": lambda ids, **options: stream_translation(
        lively(encoder_decoder()), ids, **{"max_new_tokens": 3, "begin": 0, "end": 1, **options}
    ),
    "translate": lambda ids, **options: translate(
        lively(encoder_decoder()), ids, **{"max_new_tokens": 3, "begin": 0, "end": 1, **options}
    ),
}
every_ask = pytest.mark.parametrize("ask", EVERY_ASK.values(), ids=EVERY_ASK.keys())


@every_ask
@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (torch.zeros(2, 5), TypeError, "ids must be whole numbers, got dtype torch.float32"),
        (torch.zeros(2, 0, dtype=torch.long), ValueError, r"at least one token, got shape \(2, 0\)"),
        (torch.zeros(5, dtype=torch.long), ValueError, r"axes \(batch, token\) .* got shape \(5,\)"),
        (torch.tensor([[1, VOCAB]]), ValueError, rf"ids must lie in 0 \.\. {VOCAB - 1}, got 1 \.\. {VOCAB}"),
    ],
    ids=["real-numbers", "empty", "no-batch", "unknown-word"],
)
def test_prompts_that_are_none(ask: Callable[..., object], ids: Tensor, error: type[Exception], message: str) -> None:
    """Said at once, not when the first token is asked for."""
    with pytest.raises(error, match=message):
        ask(ids)


@every_ask
@pytest.mark.parametrize("max_new_tokens", [0, -1])
def test_no_tokens_at_all(ask: Callable[..., object], max_new_tokens: int) -> None:
    with pytest.raises(ValueError, match=f"max_new_tokens must be 1 or more, got {max_new_tokens}"):
        ask(some_ids(2, 5), max_new_tokens=max_new_tokens)


@every_ask
@pytest.mark.parametrize("end", [-1, VOCAB])
def test_an_end_that_is_no_word(ask: Callable[..., object], end: int) -> None:
    with pytest.raises(ValueError, match=rf"end must lie in 0 \.\. {VOCAB - 1}, got {end}"):
        ask(some_ids(2, 5), end=end)


def test_words_are_those_of_the_target_vocabulary() -> None:
    model = encoder_decoder(target_vocab=29)
    for name in ("begin", "end"):
        with pytest.raises(ValueError, match=rf"{name} must lie in 0 \.\. 28, got 29"):
            translate(model, some_ids(2, 5), **{"max_new_tokens": 3, "begin": 0, "end": 1, name: 29})


def test_padding_after_the_prompt() -> None:
    with pytest.raises(ValueError, match=r"visible must be True for the last token of each row .*, got False in \[1\]"):
        generate(decoder(), some_ids(2, 5), max_new_tokens=3, visible=real_tokens((5, 3), 5))


def test_masks_of_another_kind() -> None:
    with pytest.raises(TypeError, match="visible must be boolean"):
        generate(decoder(), some_ids(2, 5), max_new_tokens=3, visible=torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"visible must have the axes \(batch, token\) = \(2, 5\), got \(2, 4\)"):
        generate(decoder(), some_ids(2, 5), max_new_tokens=3, visible=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"source_visible must have the axes \(batch, token\) = \(2, 5\)"):
        translate(
            encoder_decoder(),
            some_ids(2, 5),
            max_new_tokens=3,
            begin=0,
            end=1,
            source_visible=torch.ones(2, 4, dtype=torch.bool),
        )


@pytest.mark.parametrize("changes", [{}, {"heads": choices.SplitHeads(n_heads=3)}], ids=["fast path", "itself"])
@pytest.mark.parametrize("sampling", [Greedy(), Sample(top_k=1)], ids=str)
def test_weights_that_are_no_numbers_are_noticed_at_their_step(
    changes: dict[str, Any], sampling: Greedy | Sample
) -> None:
    """The vector of one word is broken: all is well until that word is read."""
    model, ids = lively(decoder(lm_head=choices.UntiedLMHead(), **changes)), some_ids(1, 5)
    text = generate(model, ids, max_new_tokens=N_NEW_TOKENS)[0].tolist()
    step = next(n for n in range(2, N_NEW_TOKENS) if text.index(text[n]) == n and text[n] not in ids)
    with torch.no_grad():
        model.embedding.table[text[step]] = torch.nan
    steps = stream(model, ids, max_new_tokens=N_NEW_TOKENS, sampling=sampling)
    assert [next(steps).item() for _ in range(step + 1)] == text[: step + 1]
    with pytest.raises(ValueError, match=rf"must be finite, got nan in row 0 after {5 + step + 1} tokens"):
        next(steps)


def test_a_translator_whose_weights_are_no_numbers() -> None:
    model = lively(encoder_decoder())
    with torch.no_grad():
        model.decoder_layers[0].feed_forward.down.bias[0] = torch.nan
    with pytest.raises(ValueError, match="the best score of each row must be finite, got nan in row 0 after 1 tokens"):
        translate(model, some_ids(2, 5), max_new_tokens=3, begin=0, end=None)


@pytest.mark.usefixtures("as_users_run_it")
def test_a_model_of_another_kind_is_refused() -> None:
    ids = some_ids(1, 3)
    with pytest.raises(
        ValueError, match=r"generate needs a Decoder: .*, got an EncoderDecoder, which reads a text pair"
    ):
        generate(encoder_decoder(), ids, max_new_tokens=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"translate needs an EncoderDecoder: .*, got a Decoder, which reads a text"):
        translate(decoder(), ids, max_new_tokens=2, begin=0, end=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0.7, "top_k": 50}, r"write sampling=Sample\(temperature=0.7, top_k=50\)$"),
        ({"do_sample": True, "top_p": 0.9}, r"no option do_sample: write sampling=Sample\(\) for a token by chance"),
        ({"repetition_penalty": 1.2}, r"write sampling=Greedy\(repetition_penalty=...\) or"),
        ({"num_beams": 4}, r"write beam_search\(model, ids, n_beams=...\)"),
        ({"max_length": 20}, r"write max_new_tokens=..., which does not count the prompt"),
        ({"eos_token_id": 2}, r"write end=...$"),
        ({"attention_mask": 1}, r"write visible=attention_mask.bool\(\)"),
        ({"pad_token_id": 0}, r"write nothing: lists of ids may have different lengths"),
        ({"stop_strings": ["."]}, r"write stop=\[...\] of generate_text"),
        ({"seed": 1}, r"write generator=torch.Generator\(\).manual_seed\(...\)"),
        ({"tempature": 1}, r"there is no option tempature$"),
    ],
    ids=str,
)
def test_options_of_hugging_face_are_told_what_to_write(options: dict[str, Any], words: str) -> None:
    model, ids = lively(decoder()), [[3, 1, 4]]
    for call in (generate, stream):
        with pytest.raises(TypeError, match=words):
            call(model, ids, max_new_tokens=2, **options)
    for call in (generate_text, stream_text):
        with pytest.raises(TypeError, match=words):
            call(model, object(), ids, max_new_tokens=2, **options)


def test_what_they_are_told_to_write_can_be_written() -> None:
    model, ids = lively(decoder()), [[3, 1, 4], [5]]
    sampling = Sample(temperature=0.7, top_k=5, top_p=0.9, repetition_penalty=1.2)
    assert hw.generate is generate
    chance = torch.Generator().manual_seed(3)
    assert hw.generate(model, ids, max_new_tokens=2, sampling=sampling, generator=chance, end=2).shape[0] == 2


def test_generate_is_no_method() -> None:
    with pytest.raises(TypeError, match=r"write headwork.generate\(model, ids, max_new_tokens=...\)"):
        decoder().generate(torch.tensor([[3]]), max_new_tokens=2)
    with pytest.raises(TypeError, match=r"write headwork.generation.translate\(model, ids"):
        encoder_decoder().generate(torch.tensor([[3]]), max_new_tokens=2)


@pytest.mark.parametrize("ids", ["text", ["text"], [3, 1, 4]], ids=str)
def test_ids_that_are_no_rows(ids: Any) -> None:
    with pytest.raises(TypeError, match=r"ids must be a list of ids for each text, as \[\[3, 1, 4\]\], got"):
        generate(lively(decoder()), ids, max_new_tokens=2)
