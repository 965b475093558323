"""Ids and images become tokens, tokens become words."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

from headwork import choices
from headwork.layers import ConvolutionalStem, LMHead, PatchEmbedding, TokenEmbedding

BATCH, TOKEN, D_MODEL, VOCAB = 2, 3, 7, 11


def assert_same(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def some_loss(output: Tensor) -> Tensor:
    return (output * torch.arange(output.numel(), dtype=output.dtype).cos().view_as(output)).sum()


# --- token ids -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_equals_the_embedding_of_torch(dtype: torch.dtype) -> None:
    ours, theirs = TokenEmbedding(VOCAB, D_MODEL), nn.Embedding(VOCAB, D_MODEL)
    ours.table.data.copy_(theirs.weight.data)
    ids = torch.tensor([[0, VOCAB - 1, 3], [3, 3, 1]], dtype=dtype)
    assert torch.equal(ours(ids), theirs(ids))
    some_loss(ours(ids)).backward()
    some_loss(theirs(ids)).backward()
    assert_same(ours.table.grad, theirs.weight.grad)


@pytest.mark.usefixtures("float64")
def test_scaled_is_times_the_root_of_d_model() -> None:
    plain, scaled = TokenEmbedding(VOCAB, D_MODEL), TokenEmbedding(VOCAB, D_MODEL, scaled=True)
    scaled.load_state_dict(plain.state_dict())
    ids = torch.randint(VOCAB, (BATCH, TOKEN))
    assert_same(scaled(ids), plain(ids) * math.sqrt(D_MODEL))


def test_scaled_vectors_start_with_variance_one() -> None:
    table = TokenEmbedding(400, 50, scaled=True)
    assert table(torch.arange(400)[None]).std().item() == pytest.approx(1, rel=0.05)
    assert TokenEmbedding(400, 50).table.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("wrong", [VOCAB, -1, 10**9])
def test_an_id_outside_the_vocabulary_is_refused(wrong: int) -> None:
    """PEERS 31: elsewhere "index out of range in self"."""
    ids = torch.tensor([[0, 2, wrong]])
    low, high = min(0, wrong), max(2, wrong)
    with pytest.raises(ValueError, match=rf"token ids must lie in 0 \.\. {VOCAB - 1}, got {low} \.\. {high}"):
        TokenEmbedding(VOCAB, D_MODEL)(ids)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_ids_that_are_no_whole_numbers_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"token ids must be whole numbers, got dtype {dtype}"):
        TokenEmbedding(VOCAB, D_MODEL)(torch.zeros(BATCH, TOKEN, dtype=dtype))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("shape", [(BATCH, 0), (TOKEN,), (BATCH, TOKEN, 1)], ids=str)
def test_ids_of_the_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    got = str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=rf"token ids must have the axes \(batch, token\) .* got shape {got}"):
        TokenEmbedding(VOCAB, D_MODEL)(torch.zeros(shape, dtype=torch.int64))


def test_an_empty_batch_of_ids_gives_an_empty_result() -> None:
    assert TokenEmbedding(VOCAB, D_MODEL)(torch.zeros(0, TOKEN, dtype=torch.int64)).shape == (0, TOKEN, D_MODEL)


# --- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_tied_words_are_scored_by_the_embedding_table(scaled: bool, bias: bool) -> None:
    embedding = TokenEmbedding(VOCAB, D_MODEL)
    words = LMHead(choices.TiedLMHead(scaled=scaled, bias=bias), VOCAB, D_MODEL)
    if bias:
        nn.init.normal_(words.bias)
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    wanted = torch.einsum("btd,vd->btv", x, embedding.table) / (math.sqrt(D_MODEL) if scaled else 1)
    assert_same(words(x, embedding), wanted + (words.bias if bias else 0))
    some_loss(words(x, embedding)).backward()
    assert embedding.table.grad.abs().sum() > 0
    assert [name for name, _ in words.named_parameters()] == (["bias"] if bias else [])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("bias", [True, False])
def test_untied_words_are_scored_by_a_map_of_their_own(bias: bool) -> None:
    embedding = TokenEmbedding(VOCAB, D_MODEL)
    words = LMHead(choices.UntiedLMHead(bias=bias), VOCAB, D_MODEL)
    if bias:
        nn.init.normal_(words.bias)
    x = torch.randn(BATCH, TOKEN, D_MODEL)
    assert_same(words(x, embedding), torch.einsum("btd,vd->btv", x, words.weight) + (words.bias if bias else 0))
    some_loss(words(x, embedding)).backward()
    assert embedding.table.grad is None
    assert {name for name, _ in words.named_parameters()} == ({"weight", "bias"} if bias else {"weight"})


def test_the_words_start_in_glorots_range_with_bias_zero() -> None:
    words = LMHead(choices.UntiedLMHead(bias=True), 90, 60)
    assert 0.95 * math.sqrt(6 / 150) < words.weight.abs().max() <= math.sqrt(6 / 150)
    assert (words.bias == 0).all()


def test_words_of_an_empty_batch() -> None:
    words = LMHead(choices.TiedLMHead(), VOCAB, D_MODEL)
    assert words(torch.randn(0, TOKEN, D_MODEL), TokenEmbedding(VOCAB, D_MODEL)).shape == (0, TOKEN, VOCAB)


# --- patches -------------------------------------------------------------------------------------------------------

CHANNEL, PATCH, ROWS, COLUMNS = 3, (2, 5), 4, 15


@pytest.mark.usefixtures("float64")
def test_equals_a_convolution_in_value_and_gradient() -> None:
    ours = PatchEmbedding(CHANNEL, PATCH, D_MODEL)
    theirs = nn.Conv2d(CHANNEL, D_MODEL, PATCH, stride=PATCH)
    ours.load_state_dict(theirs.state_dict())
    image = torch.randn(BATCH, CHANNEL, ROWS, COLUMNS, requires_grad=True)
    output, wanted = ours(image), theirs(image).flatten(2).transpose(1, 2)
    assert_same(output, wanted)
    gradients = torch.autograd.grad(some_loss(output), [image, ours.weight, ours.bias])
    of_torch = torch.autograd.grad(some_loss(wanted), [image, theirs.weight, theirs.bias])
    for gradient, of_them in zip(gradients, of_torch, strict=True):
        assert_same(gradient, of_them)


def test_patches_are_read_left_to_right_and_top_to_bottom() -> None:
    embedding = PatchEmbedding(1, (2, 2), 1)
    nn.init.constant_(embedding.weight, 0.25)
    image = torch.arange(6.0).view(2, 3).repeat_interleave(2, 0).repeat_interleave(2, 1)
    assert torch.equal(embedding(image[None, None]).flatten(), torch.arange(6.0))


def test_the_grid_is_rows_by_columns() -> None:
    assert PatchEmbedding(CHANNEL, PATCH, D_MODEL).grid(torch.zeros(1, CHANNEL, ROWS, COLUMNS)) == (2, 3)


def test_the_patch_map_starts_in_the_glorot_range_of_the_linear_map_it_is() -> None:
    embedding = PatchEmbedding(3, (4, 4), 64)
    bound = math.sqrt(6 / (3 * 4 * 4 + 64))
    assert 0.95 * bound < embedding.weight.abs().max() <= bound
    assert embedding.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert (embedding.bias == 0).all()


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((BATCH, CHANNEL, 5, COLUMNS), "patch must divide the image, got patch=2 x 5 and an image of 5 x 15"),
        ((BATCH, CHANNEL, ROWS, 14), "patch must divide the image, got patch=2 x 5 and an image of 4 x 14"),
        ((BATCH, CHANNEL, 0, COLUMNS), "patch must divide the image, got patch=2 x 5 and an image of 0 x 15"),
        ((BATCH, 1, ROWS, COLUMNS), "image must have 3 channels, got 1"),
        ((CHANNEL, ROWS, COLUMNS), r"image must have the axes \(batch, channel, row, column\), got shape \(3, 4, 15\)"),
    ],
)
def test_images_that_do_not_fit_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(CHANNEL, PATCH, D_MODEL)(torch.zeros(shape))


def test_an_empty_batch_of_images_gives_an_empty_result() -> None:
    assert PatchEmbedding(CHANNEL, PATCH, D_MODEL)(torch.zeros(0, CHANNEL, ROWS, COLUMNS)).shape == (0, 6, D_MODEL)


# --- all -----------------------------------------------------------------------------------------------------------


# --- a convolutional stem ------------------------------------------------------------------------------------------


def their_stem(stem: ConvolutionalStem, strides: list[int]) -> nn.Sequential:
    """The same weights in a row of PyTorch's own modules, with these strides."""
    modules: list[nn.Module] = []
    for number, (ours, stride) in enumerate(zip(stem.convolutions, strides, strict=True)):
        assert isinstance(ours, nn.Conv2d)
        theirs = nn.Conv2d(ours.in_channels, ours.out_channels, 3, stride, 1, bias=ours.bias is not None)
        theirs.load_state_dict(ours.state_dict())
        modules.append(theirs)
        if number < len(stem.norms):
            modules += [copy.deepcopy(stem.norms[number]), nn.ReLU()]
    return nn.Sequential(*modules, nn.Flatten(2))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("side", "widths", "strides"),
    [(1, (5,), [1, 1]), (2, (), [2]), (2, (5, 3), [1, 1, 2]), (4, (5,), [2, 2]), (4, (5, 3, 7), [1, 1, 2, 2])],
)
@pytest.mark.parametrize("training", [True, False])
def test_a_stem_is_its_convolutions_in_value_and_gradient(
    side: int, widths: tuple[int, ...], strides: list[int], training: bool
) -> None:
    ours = ConvolutionalStem(2, (side, side), widths, D_MODEL).train(training)
    theirs = their_stem(ours, strides).train(training)
    image = torch.randn(3, 2, 8, 12)
    expected = theirs(image).transpose(1, 2)
    assert ours(image).shape == (3, (8 // side) * (12 // side), D_MODEL) == expected.shape
    assert ours.grid(image) == (8 // side, 12 // side)
    assert_same(ours(image), expected)
    some_loss(ours(image)).backward()
    some_loss(expected).backward()
    for convolution, theirs_of_it in zip(
        ours.convolutions, [m for m in theirs if isinstance(m, nn.Conv2d)], strict=True
    ):
        assert_same(convolution.weight.grad, theirs_of_it.weight.grad)


@pytest.mark.parametrize("patch", [(3, 3), (2, 4), (8, 8)])
def test_a_stem_halves_the_image_only(patch: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"patch must be square, 1, 2, 4, .* up to 4 pixels wide"):
        ConvolutionalStem(2, patch, (5,), D_MODEL)


def test_a_stem_refuses_what_patches_refuse() -> None:
    stem = ConvolutionalStem(2, (4, 4), (5,), D_MODEL)
    with pytest.raises(ValueError, match="2 channels, got 3"):
        stem(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="patch"):
        stem(torch.zeros(1, 2, 8, 9))


def test_copies_are_the_same() -> None:
    embedding, patches = TokenEmbedding(VOCAB, D_MODEL, scaled=True), PatchEmbedding(CHANNEL, PATCH, D_MODEL)
    ids, image = torch.randint(VOCAB, (BATCH, TOKEN)), torch.randn(BATCH, CHANNEL, ROWS, COLUMNS)
    for layer, given in ((embedding, ids), (patches, image)):
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(twin(given), layer(given))


def test_prints_its_sizes() -> None:
    assert str(TokenEmbedding(VOCAB, D_MODEL)) == "TokenEmbedding(vocab=11, d_model=7)"
    assert str(PatchEmbedding(CHANNEL, PATCH, D_MODEL)) == "PatchEmbedding(n_channels=3, patch=(2, 5), d_model=7)"
