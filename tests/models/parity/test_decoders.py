"""GPT-2 and Llama, against Hugging Face."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headwork.models import Decoder

from ..small_models import ready, real_tokens, some_ids
from .comparing import NothingBelowFloat64, assert_parity, in_float64, loaded, places

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")

Pair = tuple[Any, Decoder]


def gpt2() -> Pair:
    config = transformers.GPT2Config(
        vocab_size=37,
        n_embd=21,
        n_layer=2,
        n_head=3,
        n_inner=17,
        n_positions=13,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    theirs = ready(transformers.GPT2LMHeadModel(config))
    return theirs, loaded(theirs)


def llama(base: float = 10_000.0) -> Pair:
    """Six queries share two keys, and the heads together are not as wide as the model."""
    config = transformers.LlamaConfig(
        vocab_size=37,
        hidden_size=30,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=4,
        intermediate_size=17,
        rope_parameters={"rope_type": "default", "rope_theta": base},
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    with NothingBelowFloat64():
        theirs = ready(transformers.LlamaForCausalLM(config))
    return theirs, loaded(theirs)


every_decoder = pytest.mark.parametrize("pair", [gpt2, llama])


@pytest.mark.usefixtures("float64")
@every_decoder
@pytest.mark.parametrize(
    "real",
    [real_tokens((7, 7), 7), real_tokens((7, 4), 7), real_tokens((7, 4), 7, "left")],
    ids=["none", "right", "left"],
)
def test_logits_and_gradients(pair: Callable[[], Pair], real: torch.Tensor) -> None:
    (theirs, ours), ids = pair(), some_ids(2, 7)
    logits = in_float64(theirs)(ids, attention_mask=real.long(), position_ids=places(real)).logits
    assert_parity((ours(ids, visible=real), ours.embedding.table), (logits, theirs.get_input_embeddings().weight), real)


@pytest.mark.usefixtures("float64")
@every_decoder
def test_logits_and_gradients_without_a_mask(pair: Callable[[], Pair]) -> None:
    (theirs, ours), ids = pair(), some_ids(2, 7)
    assert_parity(
        (ours(ids), ours.embedding.table), (in_float64(theirs)(ids).logits, theirs.get_input_embeddings().weight)
    )


@pytest.mark.usefixtures("float64")
@every_decoder
def test_left_padded_logits_are_those_of_the_sentence_alone(pair: Callable[[], Pair]) -> None:
    """transformers#18388, #25790: nobody has to think of `position_ids`."""
    (theirs, ours), ids, real = pair(), some_ids(2, 7), real_tokens((7, 4), 7, "left")
    alone = in_float64(theirs)(ids[1:, 3:]).logits
    torch.testing.assert_close(ours(ids, visible=real)[1:, 3:], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_llama_with_another_rotary_base() -> None:
    (theirs, ours), ids = llama(base=500.0), some_ids(2, 7)
    assert_parity(
        (ours(ids), ours.embedding.table), (in_float64(theirs)(ids).logits, theirs.get_input_embeddings().weight)
    )


@every_decoder
def test_logits_in_float32_as_hugging_face_runs_them(pair: Callable[[], Pair]) -> None:
    theirs, ours = (model.float() for model in pair())
    ids = some_ids(2, 7)
    torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-4, atol=1e-4)
