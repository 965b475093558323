"""One call of everything with the shape checks of the test run, which the other tests here do without for speed."""

import pytest
import torch

from headwork.generation import Greedy, Sample, beam_search, generate, translate

from ..models.small_models import LLAMA, POSITIONS, T5, decoder, encoder_decoder, real_tokens, some_ids


@pytest.mark.parametrize("changes", [{}, LLAMA, {"position": POSITIONS["alibi"]}], ids=["learned", "rotary", "alibi"])
def test_text(changes: dict[str, object]) -> None:
    model, ids, real = decoder(**changes), some_ids(3, 5), real_tokens((5, 2, 3), 5, "left")
    for visible in (None, real):
        for sampling in (Greedy(), Sample(top_k=7, top_p=0.9)):
            new = generate(model, ids, max_new_tokens=4, sampling=sampling, visible=visible)
            assert new.shape == (3, 4)
            assert new.dtype == torch.long


@pytest.mark.parametrize("changes", [{}, T5], ids=["original", "t5"])
def test_translations(changes: dict[str, object]) -> None:
    model, source, real = encoder_decoder(**changes), some_ids(3, 11), real_tokens((11, 2, 3), 11)
    assert translate(model, source, max_new_tokens=4, begin=0, end=None, source_visible=real).shape == (3, 4)
    found = beam_search(model, source, n_beams=2, max_new_tokens=4, begin=0, end=1, source_visible=real)
    assert all(hypothesis.ids.dtype == torch.long for hypothesis in found)
