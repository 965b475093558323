"""Every student is told what is wrong, in the first sentence, and nobody who is right is accused."""

import re

import pytest

from tests.checking.students import PROGRAMS

QUICK = (
    "numpy_loops", "transposed", "params_dict", "einsum_cfg", "returns_dict", "globals_gpt_last", "seq_first_encoder", "pe_class", "pe_class_bad", "gqa", "decoder_layer_dict", "vit_plain",
)  # fmt: skip


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in PROGRAMS], ids=str
)
def test_a_student_is_told(check, name):
    words, text = PROGRAMS[name]
    reports = check(text)
    if words == "right":
        assert {r.verdict for r in reports} == {"right"}, reports
    else:
        assert any(r.verdict == "wrong" and re.search(words, r.sentence) for r in reports), reports
