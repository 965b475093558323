"""Which mask goes where (question 2b of the EECS 182 sheet), and that padding changes nothing.

A leaky mask looks like success: jadore801120#19 (98 % token accuracy), darts#672 (no target mask at all).
"""

import pytest
import torch

from headwork import choices

from .influence import influence
from .small_models import (
    LLAMA,
    POSITIONS,
    T5,
    VOCAB,
    classifier,
    decoder,
    encoder,
    encoder_decoder,
    ready,
    real_tokens,
    some_ids,
)

every_position = pytest.mark.parametrize("position", POSITIONS.values(), ids=POSITIONS.keys())
every_pooling = pytest.mark.parametrize(
    "pooling",
    [choices.FirstToken(), choices.MeanPooling(), choices.AttentionPooling(n_heads=2)],
    ids=["first", "mean", "attention"],
)


def assert_same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


# --- leaks, by the gradient ------------------------------------------------------------------------------------------


@every_position
def test_decoder_sees_itself_and_the_past_only(position: choices.TextPositions) -> None:
    model, ids = ready(decoder(position=position)), some_ids(2, 7)
    depends = influence(lambda: model(ids), model.embedding)
    assert depends.equal(torch.ones(7, 7).tril().bool().expand(2, 7, 7))


@every_position
@pytest.mark.parametrize("side", ["left", "right"])
def test_decoder_sees_no_padding(position: choices.TextPositions, side: str) -> None:
    model, ids, real = ready(decoder(position=position)), some_ids(2, 7), real_tokens((7, 4), 7, side)
    depends = influence(lambda: model(ids, visible=real), model.embedding)
    past = torch.ones(7, 7).tril().bool()
    assert depends[real].equal((past & real[:, None, :])[real])


def test_changing_the_future_changes_no_logits_of_the_past() -> None:
    model, ids = ready(decoder(**LLAMA)), some_ids(2, 7)
    other = ids.clone()
    other[:, 4:] = (ids[:, 4:] + 1) % VOCAB
    same = (model(ids) == model(other)).all(-1).all(0)
    assert same.tolist() == [True] * 4 + [False] * 3


@every_position
def test_encoder_looks_both_ways(position: choices.TextPositions) -> None:
    model, ids = ready(encoder(position=position)), some_ids(2, 7)
    assert influence(lambda: model(ids), model.embedding).all()


@every_position
@pytest.mark.parametrize("side", ["left", "right"])
def test_encoder_sees_every_real_token_and_no_padding(position: choices.TextPositions, side: str) -> None:
    model, ids, real = ready(encoder(position=position)), some_ids(2, 7), real_tokens((7, 4), 7, side)
    depends = influence(lambda: model(ids, visible=real), model.embedding)
    assert depends[real].equal(real[:, None, :].expand(2, 7, 7)[real])


@every_position
def test_translator_sees_the_whole_source_and_the_past_of_the_target(position: choices.TextPositions) -> None:
    model, source, target = ready(encoder_decoder(position=position)), some_ids(2, 11), some_ids(2, 7)
    assert influence(lambda: model(source, target), model.embedding, which=0).all()
    past = torch.ones(7, 7).tril().bool().expand(2, 7, 7)
    assert influence(lambda: model(source, target), model.embedding, which=1).equal(past)


@every_position
@pytest.mark.parametrize("side", ["left", "right"])
def test_translator_sees_no_padding_of_either_side(position: choices.TextPositions, side: str) -> None:
    model, source, target = ready(encoder_decoder(position=position)), some_ids(2, 11), some_ids(2, 7)
    real_source, real_target = real_tokens((11, 5), 11, side), real_tokens((7, 4), 7, side)

    def call() -> torch.Tensor:
        return model(source, target, source_visible=real_source, target_visible=real_target)

    of_source = influence(call, model.embedding, which=0)
    assert of_source[real_target].equal(real_source[:, None, :].expand(2, 7, 11)[real_target])
    of_target = influence(call, model.embedding, which=1)
    past = torch.ones(7, 7).tril().bool()
    assert of_target[real_target].equal((past & real_target[:, None, :])[real_target])


def test_cross_attention_alone_hides_the_padding_of_the_source() -> None:
    """The memory is given, so only the mask of the cross-attention can hide anything."""
    model, target = ready(encoder_decoder()), some_ids(2, 7)
    memory, real = torch.randn(2, 11, 18, dtype=torch.float64), real_tokens((11, 5), 11)
    other = torch.where(real[:, :, None], memory, torch.randn_like(memory))
    assert_same(model.decode(target, memory, memory_visible=real), model.decode(target, other, memory_visible=real))
    assert not model.decode(target, memory).allclose(model.decode(target, other))


# --- padding changes nothing -----------------------------------------------------------------------------------------


@every_position
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("extra", [1, 6])
def test_more_padding_changes_nothing_for_an_encoder(position: choices.TextPositions, side: str, extra: int) -> None:
    model, ids = ready(encoder(position=position, head=choices.MaskedLMHead())), some_ids(2, 7)
    short, long = real_tokens((7, 4), 7, side), real_tokens((7, 4), 7 + extra, side)
    longer = some_ids(2, 7 + extra)
    longer[long] = ids[short]
    assert_same(model(longer, visible=long)[long], model(ids, visible=short)[short])


@every_position
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("extra", [1, 6])
def test_more_padding_changes_nothing_for_a_decoder(position: choices.TextPositions, side: str, extra: int) -> None:
    """Left padding mispredicts: transformers#18388, #25790."""
    model, ids = ready(decoder(position=position)), some_ids(2, 7)
    short, long = real_tokens((7, 4), 7, side), real_tokens((7, 4), 7 + extra, side)
    longer = some_ids(2, 7 + extra)
    longer[long] = ids[short]
    assert_same(model(longer, visible=long)[long], model(ids, visible=short)[short])


@every_position
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_sentence_is_the_sentence_alone_for_a_decoder(position: choices.TextPositions, side: str) -> None:
    model, ids, real = ready(decoder(position=position)), some_ids(2, 7), real_tokens((7, 4), 7, side)
    assert_same(model(ids, visible=real)[1][real[1]], model(ids[1][real[1]][None])[0])


@every_position
@pytest.mark.parametrize("side", ["left", "right"])
def test_more_padding_changes_nothing_for_a_translator(position: choices.TextPositions, side: str) -> None:
    model, source, target = ready(encoder_decoder(position=position)), some_ids(2, 11), some_ids(2, 7)
    short_source, long_source = real_tokens((11, 5), 11, side), real_tokens((11, 5), 13, side)
    short_target, long_target = real_tokens((7, 4), 7, side), real_tokens((7, 4), 12, side)
    longer_source, longer_target = some_ids(2, 13), some_ids(2, 12)
    longer_source[long_source], longer_target[long_target] = source[short_source], target[short_target]
    short = model(source, target, source_visible=short_source, target_visible=short_target)
    long = model(longer_source, longer_target, source_visible=long_source, target_visible=long_target)
    assert_same(long[long_target], short[short_target])


@every_pooling
def test_more_padding_changes_nothing_for_a_classifier(pooling: choices.TextPooling) -> None:
    model, ids = ready(classifier(pooling)), some_ids(2, 7)
    longer = torch.cat([ids, some_ids(2, 5)], dim=1)
    short = model(ids, visible=real_tokens((7, 4), 7))
    assert_same(model(longer, visible=real_tokens((7, 4), 12)), short)


@every_pooling
def test_left_padding_does_not_move_what_a_classifier_reads(pooling: choices.TextPooling) -> None:
    model, ids = ready(classifier(pooling)), some_ids(2, 7)
    padded = torch.cat([some_ids(2, 5), ids], dim=1)
    assert_same(model(padded, visible=real_tokens((7, 7), 12, "left")), model(ids))


@pytest.mark.parametrize("side", ["left", "right"])
def test_not_even_nan_leaks_from_the_padding(side: str) -> None:
    """A NaN in a masked key or value leaks through SDPA: pytorch#101967."""
    model, real = ready(encoder(vocab=VOCAB + 1)), real_tokens((7, 4), 7, side)
    ids = some_ids(2, 7).masked_fill(~real, VOCAB)
    clean = model(ids, visible=real)[real]
    with torch.no_grad():
        model.embedding.table[VOCAB] = torch.nan
    assert_same(model(ids, visible=real)[real], clean)


def test_not_even_nan_leaks_from_the_padding_of_the_memory_nor_into_gradients() -> None:
    model, target = ready(encoder_decoder()), some_ids(2, 7)
    memory, real = torch.randn(2, 11, 18, dtype=torch.float64), real_tokens((11, 5), 11)
    broken = memory.masked_fill(~real[:, :, None], torch.nan)
    logits = model.decode(target, broken, memory_visible=real)
    assert_same(logits, model.decode(target, memory, memory_visible=real))
    assert_same(model.decode(target, broken, memory_visible=real, cache=model.new_cache()), logits)
    logits.square().sum().backward()
    assert all(p.grad.isfinite().all() for layer in model.decoder_layers for p in layer.parameters())


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_a_row_of_padding_alone_stays_finite_and_so_do_the_gradients(norm_order: str) -> None:
    """NaN from fully masked rows: pytorch#26098, #41508."""
    model, real = ready(decoder(norm_order=norm_order)), real_tokens((7, 0), 7)
    logits = model(some_ids(2, 7), visible=real)
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_source_of_padding_alone_stays_finite() -> None:
    model, real = ready(encoder_decoder(**T5)), real_tokens((11, 0), 11)
    logits = model(some_ids(2, 11), some_ids(2, 7), source_visible=real)
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
