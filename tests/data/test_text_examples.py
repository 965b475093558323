"""Padding, BEGIN, END and what comes next."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.data import IGNORE, Tokenizer
from headwork.data.text_examples import PairExamples, Rows, TextExamples, WindowExamples

rows = st.lists(st.lists(st.integers(4, 99), min_size=1, max_size=7), min_size=1, max_size=9)


@settings(deadline=None)
@given(rows=rows, data=st.data())
def test_rows_are_padded_behind(rows, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=5))
    ids, visible = Rows.of(rows).padded(torch.tensor(chosen))
    assert ids.shape[1] == max(len(rows[i]) for i in chosen)
    for place, i in enumerate(chosen):
        assert ids[place][visible[place]].tolist() == rows[i]
        assert visible[place].tolist() == [True] * len(rows[i]) + [False] * (ids.shape[1] - len(rows[i]))
        assert (ids[place][~visible[place]] == Tokenizer.pad).all()


def test_a_row_may_be_empty():
    ids, visible = Rows.of([[], [4, 5]]).padded(torch.tensor([0, 1]))
    assert ids.tolist() == [[0, 0], [4, 5]]
    assert visible.tolist() == [[False, False], [True, True]]


@settings(deadline=None)
@given(
    pairs=st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=6), st.text("abc", max_size=6)), min_size=1, max_size=6
    )
)
def test_next_is_one_token_ahead_of_the_target(pairs):
    tokens = Tokenizer.characters(["abc"])
    batch = PairExamples.of(pairs, tokens).batch(range(len(pairs)))
    assert batch.target.shape == batch.next.shape
    for i, (source, target) in enumerate(pairs):
        real = batch.next[i] != IGNORE
        assert batch.source[i][batch.source_visible[i]].tolist() == tokens.encode(source)
        assert batch.target[i][real].tolist() == [tokens.begin, *tokens.encode(target)]
        assert batch.next[i][real].tolist() == [*tokens.encode(target), tokens.end]
        assert torch.equal(batch.next[i][real][:-1], batch.target[i][real][1:])
        assert (batch.target[i][~real] == tokens.pad).all()
        assert (batch.next[i][~real] == IGNORE).all()
        assert (batch.source[i][~batch.source_visible[i]] == tokens.pad).all()


def test_ignore_is_what_the_loss_ignores():
    assert torch.nn.CrossEntropyLoss().ignore_index == IGNORE


def test_labels_follow_their_texts():
    examples = TextExamples(Rows.of([[4], [5, 5], [6]]), torch.tensor([7, 8, 9]))
    batch = examples.batch([2, 1])
    assert batch.ids.tolist() == [[6, 0], [5, 5]]
    assert batch.label.tolist() == [9, 8]


# --- windows -------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(n_text=st.integers(2, 60), n_context=st.integers(1, 13), epoch=st.none() | st.integers(0, 99))
def test_windows_are_pieces_of_the_text(n_text, n_context, epoch):
    n_context = min(n_context, n_text - 1)
    windows = WindowExamples(torch.arange(100, 100 + n_text), n_context, anywhere=True, seed=3)
    batch = windows.batch(range(len(windows)), epoch)
    assert torch.equal(batch.next, batch.ids + 1)
    assert torch.equal(batch.ids[:, 1:], batch.next[:, :-1])
    assert batch.ids.min() >= 100
    assert batch.next.max() < 100 + n_text
    if epoch is None:
        assert batch.ids.flatten().tolist() == list(range(100, 100 + len(windows) * n_context))
        assert n_text - 1 - len(windows) * n_context < n_context


def test_training_windows_start_at_every_place():
    windows = WindowExamples(torch.arange(20), n_context=3, anywhere=True)
    starts = torch.cat([windows.batch(range(len(windows)), epoch).ids[:, 0] for epoch in range(200)])
    counts = torch.bincount(starts)
    assert len(counts) == 17
    assert counts.min() > 0.5 * counts.float().mean()


@pytest.mark.parametrize("n_context", [1, 5])
def test_windows_that_lie_still(n_context):
    windows = WindowExamples(torch.arange(11), n_context)
    assert torch.equal(windows.batch([0, 1], epoch=4).ids, windows.batch([0, 1]).ids)
