"""The text encoder: its tasks, its segments, and what positions are for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from headwork import choices
from headwork.models import Encoder

from .small_models import POSITIONS, VOCAB, classifier, encoder, ready, real_tokens, some_ids

ORDERED = {name: p for name, p in POSITIONS.items() if name != "none"}


@pytest.mark.parametrize(
    ("head", "shape"),
    [
        (choices.NoHead(), (2, 7, 18)),
        (choices.MaskedLMHead(), (2, 7, VOCAB)),
        (choices.ClassificationHead(n_classes=5, pooling=choices.FirstToken()), (2, 5)),
        (choices.ClassificationHead(n_classes=5, pooling=choices.MeanPooling()), (2, 5)),
        (choices.ClassificationHead(n_classes=5, pooling=choices.AttentionPooling(n_heads=2)), (2, 5)),
    ],
)
def test_each_task_has_its_output(head: choices.EncoderHead, shape: tuple[int, ...]) -> None:
    assert encoder(head=head)(some_ids(2, 7)).shape == shape


def test_one_token_is_enough() -> None:
    assert encoder()(some_ids(2, 1)).shape == (2, 1, 18)


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(7)), st.sampled_from(["pre", "post"]))
def test_without_positions_the_encoder_is_equivariant_to_permutations(order: list[int], norm_order: str) -> None:
    torch.manual_seed(0)
    model, ids = ready(encoder(position=POSITIONS["none"], norm_order=norm_order)), some_ids(2, 7)
    torch.testing.assert_close(model(ids[:, order]), model(ids)[:, order], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("position", ORDERED.values(), ids=ORDERED.keys())
def test_with_positions_it_is_not(position: choices.TextPositions) -> None:
    model, ids, order = ready(encoder(position=position)), torch.arange(7)[None], [3, 0, 5, 1, 6, 2, 4]
    assert not model(ids[:, order]).allclose(model(ids)[:, order], rtol=1e-3, atol=1e-3)


def test_alibi_alone_cannot_tell_a_sentence_from_its_mirror_image() -> None:
    """It knows how far, not which way; a decoder has the causal mask for that."""
    model, ids = ready(encoder(position=POSITIONS["alibi"])), some_ids(2, 7)
    torch.testing.assert_close(model(ids.flip(1)), model(ids).flip(1), rtol=1e-10, atol=1e-10)


def test_half_of_the_buckets_look_ahead() -> None:
    """The bucket of "0 ahead" is the only one that no pair of tokens can fall into."""
    model = ready(encoder(position=POSITIONS["buckets"]))
    model(some_ids(2, 23)).pow(3).sum().backward()
    used = model.layers.positions.table.grad.all(1)
    assert used.tolist() == [True, True, True, True, False, True, True, True]


def test_without_positions_a_bag_of_words_gets_one_answer() -> None:
    model, ids = ready(classifier(choices.MeanPooling(), position=POSITIONS["none"])), some_ids(2, 7)
    torch.testing.assert_close(model(ids.flip(1)), model(ids), rtol=1e-10, atol=1e-10)


def test_no_segments_means_segment_0_everywhere() -> None:
    model, ids = ready(encoder()), some_ids(2, 7)
    assert model(ids).equal(model(ids, segments=torch.zeros_like(ids)))


def test_segments_tell_two_sentences_apart() -> None:
    model, ids = ready(encoder()), some_ids(2, 7)
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 1]]).expand(2, 7)
    assert not model(ids, segments=segments).allclose(model(ids))


def test_the_mean_is_taken_over_the_real_tokens() -> None:
    model, ids, real = ready(classifier(choices.MeanPooling())), some_ids(2, 7), real_tokens((7, 4), 7)
    vectors = model.hidden(ids, visible=real)
    mean = torch.stack([vectors[0].mean(0), vectors[1, :4].mean(0)])
    by_hand = model.head.classifier(model.head.dense(mean).tanh())
    torch.testing.assert_close(model(ids, visible=real), by_hand, rtol=1e-10, atol=1e-10)


def test_the_features_are_what_the_head_reads() -> None:
    model, ids = ready(encoder()), some_ids(2, 7)
    assert model(ids).equal(model.hidden(ids))


def test_masked_words_are_scored_by_the_embedding_table() -> None:
    model, ids = ready(encoder(head=choices.MaskedLMHead())), some_ids(2, 7)
    head = model.head
    by_hand = head.norm(F.gelu(head.dense(model.hidden(ids)))) @ model.embedding.table.T + head.lm_head.bias
    torch.testing.assert_close(model(ids), by_hand, rtol=1e-10, atol=1e-10)


def test_fresh_outputs_are_of_unit_size_at_any_depth() -> None:
    model: Encoder = encoder(n_layers=24, norm_order="post").eval()
    assert 0.5 < model(some_ids(2, 7)).square().mean() < 2.0
