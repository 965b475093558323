"""The same tokens and scores as Hugging Face's generate, with random weights, in float64 from end to end."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headwork.generation import (
    Greedy,
    Sample,
    beam_search,
    generate,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise,
    translate,
)

from ..models.parity.comparing import NothingBelowFloat64, loaded
from ..models.parity.test_decoders import gpt2, llama
from ..models.parity.test_translators import marian
from ..models.small_models import ready, real_tokens, some_ids
from .lively import enliven

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")

BATCH, SOURCE, N_NEW_TOKENS = 5, 11, 9
PAD = 36
LENGTHS = (11, 3, 7, 11, 5)
Pair = tuple[Any, Any]


def t5() -> Pair:
    """As many decoder as encoder layers: generate makes the cache of a T5 with more of them too short."""
    config = transformers.T5Config(
        vocab_size=37,
        d_model=23,
        d_kv=5,
        d_ff=17,
        num_layers=2,
        num_heads=3,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        attn_implementation="eager",
    )
    theirs = ready(transformers.T5ForConditionalGeneration(config))
    return theirs, loaded(theirs)


def hugging_face(model: Any, ids: Tensor, max_new_tokens: int, **options: Any) -> Any:
    """It would take ids equal to the padding for padding: there are none."""
    with NothingBelowFloat64():
        return model.generate(
            ids,
            max_new_tokens=max_new_tokens,
            pad_token_id=PAD,
            forced_eos_token_id=None,
            return_dict_in_generate=True,
            output_scores=True,
            **{"do_sample": False, **options},
        )


# --- greedy ----------------------------------------------------------------------------------------------------------

every_decoder = pytest.mark.parametrize(("pair", "max_new_tokens"), [(gpt2, 6), (llama, 11)], ids=["gpt2", "llama"])


@pytest.mark.usefixtures("float64")
@every_decoder
def test_text(pair: Callable[[], Pair], max_new_tokens: int) -> None:
    (theirs, ours), ids = pair(), some_ids(BATCH, 7, PAD)
    expected = hugging_face(theirs, ids, max_new_tokens, eos_token_id=None).sequences[:, 7:]
    assert generate(ours, ids, max_new_tokens=max_new_tokens).equal(expected)


@pytest.mark.usefixtures("float64")
@every_decoder
def test_text_of_padded_prompts_until_the_end(pair: Callable[[], Pair], max_new_tokens: int) -> None:
    """transformers#18388, #25790. A row that has ended is filled with padding there, with the end here."""
    (theirs, ours), ids, real = pair(), some_ids(BATCH, 7, PAD), real_tokens((7, 2, 5, 1, 3), 7, "left")
    end = generate(ours, ids, max_new_tokens=max_new_tokens, visible=real)[1, 2].item()
    expected = hugging_face(theirs, ids, max_new_tokens, eos_token_id=end, attention_mask=real.long()).sequences[:, 7:]
    expected = expected.masked_fill(expected == PAD, end)
    assert (expected[1, 2:] == end).all()
    assert generate(ours, ids, max_new_tokens=max_new_tokens, visible=real, end=end).equal(expected)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("pair", [t5, marian])
def test_translation(pair: Callable[[], Pair]) -> None:
    (theirs, ours), source, real = pair(), some_ids(BATCH, SOURCE, PAD), real_tokens(LENGTHS, SOURCE)
    expected = hugging_face(
        theirs, source, N_NEW_TOKENS, eos_token_id=None, decoder_start_token_id=PAD, attention_mask=real.long()
    ).sequences[:, 1:]
    assert translate(ours, source, max_new_tokens=N_NEW_TOKENS, begin=PAD, end=None, source_visible=real).equal(
        expected
    )


# --- beams -----------------------------------------------------------------------------------------------------------


def lively_t5() -> Pair:
    theirs = enliven(t5()[0])
    return theirs, loaded(theirs)


def lively_marian() -> Pair:
    theirs = enliven(marian()[0])
    theirs.final_logits_bias.mul_(0.1)
    return theirs, loaded(theirs)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("pair", "end"), [(lively_t5, 0), (lively_marian, 23)], ids=["t5", "marian"])
@pytest.mark.parametrize(("n_beams", "length_penalty"), [(2, 1.0), (3, 0.0), (4, 0.5), (5, 1.0), (5, -0.7)], ids=str)
def test_beams(pair: Callable[[], Pair], end: int, n_beams: int, length_penalty: float) -> None:
    theirs, ours = pair()
    torch.manual_seed(2)  # sources whose translations have different lengths
    source, real = some_ids(BATCH, SOURCE, PAD), real_tokens(LENGTHS, SOURCE)
    expected = hugging_face(
        theirs,
        source,
        N_NEW_TOKENS,
        num_beams=n_beams,
        length_penalty=length_penalty,
        early_stopping="never",
        eos_token_id=end,
        decoder_start_token_id=PAD,
        attention_mask=real.long(),
    )
    found = beam_search(
        ours,
        source,
        n_beams=n_beams,
        max_new_tokens=N_NEW_TOKENS,
        begin=PAD,
        end=end,
        length_penalty=length_penalty,
        source_visible=real,
    )
    assert len({len(hypothesis.ids) for hypothesis in found}) > 1
    for hypothesis, ids, score in zip(found, expected.sequences, expected.sequences_scores, strict=True):
        n = len(hypothesis.ids)
        assert hypothesis.ids.equal(ids[1 : n + 1])
        assert (ids[n + 1 :] == PAD).all()
        assert hypothesis.score == pytest.approx(score.item(), rel=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_beams", [1, 3])
def test_the_first_token_may_be_given(n_beams: int) -> None:
    """BART's `forced_bos_token_id`, and the language that a translation begins with."""
    theirs, ours = lively_marian()
    source = some_ids(BATCH, SOURCE, PAD)
    unlikely = int(ours(source, torch.full((BATCH, 1), PAD))[0, 0, :PAD].argmin())
    expected = hugging_face(
        theirs,
        source,
        N_NEW_TOKENS,
        decoder_start_token_id=PAD,
        eos_token_id=23,
        num_beams=n_beams,
        forced_bos_token_id=unlikely,
        **({"early_stopping": "never"} if n_beams > 1 else {}),
    ).sequences
    options: dict[str, Any] = {"max_new_tokens": N_NEW_TOKENS, "n_beams": n_beams, "begin": PAD, "end": 23}
    for row, hypothesis in enumerate(beam_search(ours, source, first=unlikely, **options)):
        assert hypothesis.ids[0] == unlikely
        assert hypothesis.ids.equal(expected[row, 1 : len(hypothesis.ids) + 1])
    with pytest.raises(ValueError, match=r"first must lie in 0 \.\. 36, got 37"):
        beam_search(ours, source, first=37, **options)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_beams", [1, 3])
def test_tokens_that_are_never_chosen(n_beams: int) -> None:
    """As the padding of Marian's models."""
    theirs, ours = lively_marian()
    source = some_ids(BATCH, SOURCE, PAD)
    options: dict[str, Any] = {"max_new_tokens": N_NEW_TOKENS, "n_beams": n_beams, "begin": PAD, "end": 23}
    never = beam_search(ours, source, **options)[0].ids[:2].tolist()
    expected = hugging_face(
        theirs,
        source,
        N_NEW_TOKENS,
        num_beams=n_beams,
        eos_token_id=23,
        decoder_start_token_id=PAD,
        bad_words_ids=[[i] for i in never],
        **({"early_stopping": "never"} if n_beams > 1 else {}),
    ).sequences
    for row, hypothesis in enumerate(beam_search(ours, source, forbidden=never, **options)):
        assert hypothesis.ids.equal(expected[row, 1 : len(hypothesis.ids) + 1])
        assert not set(never) & set(hypothesis.ids.tolist())


@pytest.mark.usefixtures("float64")
@every_decoder
@pytest.mark.parametrize(("n_beams", "length_penalty"), [(1, 1.0), (3, 0.0), (4, 1.0)], ids=str)
def test_beams_of_text(pair: Callable[[], Pair], max_new_tokens: int, n_beams: int, length_penalty: float) -> None:
    """Prompts of different lengths, given as lists."""
    theirs = enliven(pair()[0])
    ours, ids, lengths = loaded(theirs), some_ids(BATCH, 7, PAD), (7, 2, 5, 1, 3)
    real, ends = real_tokens(lengths, 7, "left"), [1, 2, 3, 4, 5]
    expected = hugging_face(
        theirs,
        ids,
        max_new_tokens,
        num_beams=n_beams,
        eos_token_id=ends,
        attention_mask=real.long(),
        **({"length_penalty": length_penalty, "early_stopping": "never"} if n_beams > 1 else {}),
    )
    found = beam_search(
        ours,
        [row[-n:].tolist() for row, n in zip(ids, lengths, strict=True)],
        n_beams=n_beams,
        max_new_tokens=max_new_tokens,
        end=ends,
        length_penalty=length_penalty,
    )
    assert len({len(hypothesis.ids) for hypothesis in found}) > 1
    for row, hypothesis in enumerate(found):
        n = len(hypothesis.ids)
        assert hypothesis.ids.equal(expected.sequences[row, 7 : 7 + n])
        assert (expected.sequences[row, 7 + n :] == PAD).all()
        if n_beams > 1:
            assert hypothesis.score == pytest.approx(expected.sequences_scores[row].item(), rel=1e-10)


# --- by chance -------------------------------------------------------------------------------------------------------

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.5, "top_p": 0.8},
    {"min_p": 0.2, "repetition_penalty": 1.3},
    {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1},
    {"temperature": 2.0, "top_k": 30, "repetition_penalty": 0.7},
]


@pytest.mark.usefixtures("float64")
@every_decoder
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_same_seed_says_the_same(pair: Callable[[], Pair], max_new_tokens: int, settings: dict[str, Any]) -> None:
    theirs = enliven(pair()[0])
    ours, ids = loaded(theirs), some_ids(BATCH, 7, PAD)
    torch.manual_seed(5)
    expected = hugging_face(
        theirs, ids, max_new_tokens, do_sample=True, eos_token_id=None, **{"top_k": 0, "top_p": 1.0, **settings}
    )
    torch.manual_seed(5)
    assert generate(ours, ids, max_new_tokens=max_new_tokens, sampling=Sample(**settings)).equal(
        expected.sequences[:, 7:]
    )


@pytest.mark.usefixtures("float64")
@every_decoder
def test_greedy_with_a_penalty(pair: Callable[[], Pair], max_new_tokens: int) -> None:
    theirs = enliven(pair()[0])
    ours, ids = loaded(theirs), some_ids(BATCH, 7, PAD)
    options = {"max_new_tokens": max_new_tokens, "sampling": Greedy(repetition_penalty=1.5)}
    expected = hugging_face(theirs, ids, max_new_tokens, eos_token_id=None, repetition_penalty=1.5).sequences[:, 7:]
    found = generate(ours, ids, **options)
    assert found.equal(expected)
    assert not found.equal(generate(ours, ids, max_new_tokens=max_new_tokens))


@pytest.mark.usefixtures("float64")
def test_a_translation_with_a_penalty() -> None:
    theirs, ours = lively_t5()
    source = some_ids(BATCH, SOURCE, PAD)
    expected = hugging_face(
        theirs, source, N_NEW_TOKENS, eos_token_id=None, decoder_start_token_id=PAD, repetition_penalty=1.5
    ).sequences[:, 1:]
    penalty = Greedy(repetition_penalty=1.5)
    assert translate(ours, source, max_new_tokens=N_NEW_TOKENS, begin=PAD, end=None, sampling=penalty).equal(expected)


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 36, 50])
def test_top_k(k: int) -> None:
    logits = torch.randn(5, 37, dtype=torch.float64)
    assert keep_top_k(logits, k).equal(transformers.TopKLogitsWarper(k)(None, logits))


@pytest.mark.parametrize("p", [0.01, 0.3, 0.9, 0.999])
def test_top_p(p: float) -> None:
    logits = 3 * torch.randn(5, 37, dtype=torch.float64)
    assert keep_top_p(logits, p).equal(transformers.TopPLogitsWarper(p)(None, logits))


@pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 0.999, 1.0])
def test_min_p(p: float) -> None:
    logits = 3 * torch.randn(5, 37, dtype=torch.float64)
    assert keep_min_p(logits, p).equal(transformers.MinPLogitsWarper(p)(None, logits))


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3])
def test_repetition_penalty(penalty: float) -> None:
    logits, ids = 3 * torch.randn(5, 37, dtype=torch.float64), some_ids(5, 11)
    seen = torch.zeros(5, 37, dtype=torch.bool).scatter(1, ids, True)
    expected = transformers.RepetitionPenaltyLogitsProcessor(penalty)(ids, logits.clone())
    assert penalise(logits, seen, penalty).equal(expected)
