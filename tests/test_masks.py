"""Every mask against a loop over its definition, how masks combine, and how they are drawn."""

import pytest
import torch

from headwork import masks

every_size = pytest.mark.parametrize(("n_query", "n_key"), [(5, 5), (3, 7), (1, 7), (1, 1), (7, 3)])


def by_loops(n_query, n_key, sees):
    """`sees(place of the query, place of the key)`, the last query standing on the last key."""
    return [[sees(n_key - n_query + i, j) for j in range(n_key)] for i in range(n_query)]


# Each mask


@every_size
def test_causal_sees_itself_and_the_past(n_query, n_key):
    """pytorch#103082, #108108: fewer queries are the newest ones."""
    assert masks.causal(n_query, n_key).tolist() == by_loops(n_query, n_key, lambda i, j: j <= i)


def test_one_causal_query_sees_all_keys():
    """pytorch#144858: with is_causal=True it sees the first key alone."""
    assert masks.causal(1, 8).all()


@every_size
@pytest.mark.parametrize("radius", [0, 1, 2, 11])
def test_window_sees_as_far_as_its_radius(n_query, n_key, radius):
    expected = by_loops(n_query, n_key, lambda i, j: abs(i - j) <= radius)
    assert masks.window(n_query, n_key, radius).tolist() == expected


@every_size
@pytest.mark.parametrize("chunk", [1, 2, 3, 11])
@pytest.mark.parametrize("n_past_chunks", [None, 0, 1, 2])
def test_chunked_sees_its_chunk_and_those_before(n_query, n_key, chunk, n_past_chunks):
    def sees(i, j):
        ago = i // chunk - j // chunk
        return ago >= 0 and (n_past_chunks is None or ago <= n_past_chunks)

    visible = masks.chunked(n_query, n_key, chunk, n_past_chunks=n_past_chunks)
    assert visible.tolist() == by_loops(n_query, n_key, sees)


def test_chunks_of_one_are_causal():
    assert torch.equal(masks.chunked(3, 7), masks.causal(3, 7))


@pytest.mark.parametrize("make", [masks.causal, masks.window, masks.chunked])
def test_as_many_keys_as_queries_unless_told(make):
    assert torch.equal(make(5), make(5, 5))


def test_window_has_radius_1_unless_told():
    assert torch.equal(masks.window(5), masks.window(5, 5, 1))


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_hides_what_is_not_real(side):
    lengths = [0, 1, 3, 5]
    visible = masks.padding(torch.tensor(lengths), 5, side)
    assert visible.shape == (4, 1, 1, 5)
    for entry, length in enumerate(lengths):
        expected = [j < length if side == "right" else j >= 5 - length for j in range(5)]
        assert visible[entry, 0, 0].tolist() == expected


def test_padding_is_on_the_right_unless_told():
    lengths = torch.tensor([2, 3])
    assert torch.equal(masks.padding(lengths, 5), masks.padding(lengths, 5, "right"))


def test_padding_of_an_empty_batch():
    assert masks.padding(torch.zeros(0, dtype=torch.long), 5).shape == (0, 1, 1, 5)


def test_tokens_marks_what_is_not_the_pad():
    ids = torch.tensor([[5, 3, 0], [7, 0, 0]])
    visible = masks.key_padding(ids != 0)
    assert visible.shape == (2, 1, 1, 3)
    assert torch.equal(visible, masks.padding(torch.tensor([2, 1]), 3))


@pytest.mark.parametrize("side", ["right", "left"])
def test_cross_lets_real_queries_see_real_keys(side):
    query_lengths, key_lengths = [0, 2, 3, 1], [2, 0, 5, 4]
    visible = masks.cross(torch.tensor(query_lengths), 3, torch.tensor(key_lengths), 5, side)
    assert visible.shape == (4, 1, 3, 5)

    def real(place, length, size):
        return place < length if side == "right" else place >= size - length

    for entry, (n_query, n_key) in enumerate(zip(query_lengths, key_lengths, strict=True)):
        expected = [[real(i, n_query, 3) and real(j, n_key, 5) for j in range(5)] for i in range(3)]
        assert visible[entry, 0].tolist() == expected


@pytest.mark.parametrize(
    "visible",
    [
        masks.causal(3),
        masks.window(3),
        masks.chunked(3),
        masks.padding(torch.tensor([2]), 3),
        masks.key_padding(torch.tensor([[True]])),
        masks.cross(torch.tensor([2]), 3, torch.tensor([2]), 3),
    ],
    ids=["causal", "window", "chunked", "padding", "tokens", "cross"],
)
def test_every_mask_is_boolean(visible):
    assert visible.dtype == torch.bool


# Together


def test_and_shows_what_both_show():
    lengths = torch.tensor([2, 5])
    visible = masks.causal(3, 5) & masks.padding(lengths, 5)
    assert visible.shape == (2, 1, 3, 5)
    for entry, length in enumerate(lengths.tolist()):
        assert visible[entry, 0].tolist() == by_loops(3, 5, lambda i, j, n=length: j <= i and j < n)


def test_or_shows_what_either_shows():
    """A window with one token that everybody sees, as in Longformer."""
    visible = masks.window(5, radius=1) | (torch.arange(5) == 0)
    assert visible.tolist() == by_loops(5, 5, lambda i, j: abs(i - j) <= 1 or j == 0)


def test_causal_window_is_what_mistral_sees():
    visible = masks.causal(5) & masks.window(5, radius=2)
    assert visible.tolist() == by_loops(5, 5, lambda i, j: 0 <= i - j <= 2)


# Drawn


def test_drawn_with_numbers():
    assert masks.draw(masks.causal(2, 3)) == "    0 1 2\n  1 ■ ■ ·\n  2 ■ ■ ■"


def test_drawn_with_words_of_different_length():
    drawn = masks.draw(masks.causal(3), ["I", "understand", "it"])
    assert drawn.split("\n") == [
        "                      I understand         it",
        "           I          ■          ·          ·",
        "  understand          ■          ■          ·",
        "          it          ■          ■          ■",
    ]


def test_drawn_with_words_on_both_sides():
    visible = masks.cross(torch.tensor([2]), 2, torch.tensor([1]), 3)
    drawn = masks.draw(visible, keys=["ein", "Haus", "<pad>"], queries=["a", "house"])
    assert drawn.split("\n") == [
        "          ein  Haus <pad>",
        "      a     ■     ·     ·",
        "  house     ■     ·     ·",
    ]


def test_drawn_with_the_last_words_for_fewer_queries():
    drawn = masks.draw(masks.causal(1, 3), ["a", "b", "c"])
    assert drawn.split("\n") == ["    a b c", "  c ■ ■ ■"]


def test_drawn_with_more_than_ten_columns_stays_aligned():
    lines = masks.draw(masks.causal(11)).split("\n")
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("   0  ■")
    assert lines[-1] == "  10" + "  ■" * 11


def test_drawn_with_more_queries_than_keys():
    drawn = masks.draw(torch.tensor([[True, False], [True, True], [False, True]]))
    assert [line.split()[-2:] for line in drawn.split("\n")] == [["0", "1"], ["■", "·"], ["■", "■"], ["·", "■"]]


def test_drawn_with_axes_of_size_one_in_front():
    assert masks.draw(masks.causal(2)[None, None]) == masks.draw(masks.causal(2))


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: masks.causal(0), "n_query must be 1 or more, got 0"),
        (lambda: masks.causal(3, 0), "n_key must be 1 or more, got 0"),
        (lambda: masks.window(3, -5), "n_key must be 1 or more, got -5"),
        (lambda: masks.window(3, radius=-1), "radius must be 0 or more, got -1"),
        (lambda: masks.chunked(0), "n_query must be 1 or more, got 0"),
        (lambda: masks.chunked(3, chunk=0), "chunk must be 1 or more, got 0"),
        (lambda: masks.chunked(3, chunk=2, n_past_chunks=-1), "n_past_chunks must be 0 or more, got -1"),
        (lambda: masks.padding(torch.tensor([2, 6]), 5), r"lengths must lie in 0 \.\. 5, got \[2, 6\]"),
        (lambda: masks.padding(torch.tensor([-1]), 5), r"lengths must lie in 0 \.\. 5, got \[-1\]"),
        (lambda: masks.padding(torch.tensor([2.0]), 5), r"lengths must be .* got dtype torch.float32"),
        (lambda: masks.padding(torch.tensor([True]), 5), r"lengths must be .* got dtype torch.bool"),
        (lambda: masks.padding(torch.tensor([[2]]), 5), r"lengths must be .* and shape \(1, 1\)"),
        (lambda: masks.padding(torch.tensor([2]), 5, "top"), "side must be 'right' or 'left' .*, got 'top'"),
        (
            lambda: masks.cross(torch.tensor([4]), 3, torch.tensor([2]), 5),
            r"lengths must lie in 0 \.\. 3, got \[4\]",
        ),
        (
            lambda: masks.cross(torch.tensor([2]), 3, torch.tensor([2]), 5, "top"),
            "side must be 'right' or 'left'",
        ),
        (lambda: masks.key_padding(torch.tensor([True])), r"real must have the axes \(batch, key\), got shape \(1,\)"),
        (lambda: masks.draw(masks.causal(3), ["a", "b"]), "keys must have one label for each of the 3, got 2 labels"),
        (
            lambda: masks.draw(masks.causal(2, 3), ["a", "b", "c"], ["c"]),
            "queries must have one label for each of the 2, got 1 labels",
        ),
        (
            lambda: masks.draw(masks.padding(torch.tensor([1, 2]), 2)),
            r"visible must show one batch entry and one head, got shape \(2, 1, 1, 2\): .*draw\(visible\[0\]\)",
        ),
        (lambda: masks.draw(torch.tensor([True])), "visible must show one batch entry and one head"),
    ],
)
def test_bad_input_is_refused(as_users_run_it, call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=str)
def test_a_mask_that_is_not_boolean_is_refused(as_users_run_it, dtype):
    """Hugging Face models take fractional masks, and masks with 2 and -1 in them."""
    with pytest.raises(TypeError, match=rf"real must be boolean .*{dtype}: write real\.bool\(\)"):
        masks.key_padding(torch.ones(2, 3, dtype=dtype))
    with pytest.raises(TypeError, match=rf"visible must be boolean .*{dtype}"):
        masks.draw(torch.ones(2, 3, dtype=dtype))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("side", ["left", "right"])
def test_small_whole_numbers_are_lengths_too(dtype, side):
    narrow = masks.padding(torch.tensor([1, 40], dtype=dtype), 300, side)
    assert torch.equal(narrow, masks.padding(torch.tensor([1, 40]), 300, side))


@pytest.mark.usefixtures("as_users_run_it")
def test_cross_of_two_batches_is_refused():
    with pytest.raises(ValueError, match="must be of the same batch, got 1 and 2"):
        masks.cross(torch.tensor([1]), 2, torch.tensor([1, 2]), 2)
