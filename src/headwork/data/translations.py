"""Many texts translated by a model, and how good that is: BLEU. Papineni et al., 2002; Post, 2018."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from headwork.checks import check_positive
from headwork.data.text_examples import PairExamples, Rows
from headwork.data.tokenizer import Tokenizer
from headwork.extras import need
from headwork.generation import beam_search
from headwork.models import EncoderDecoder


class Bleu(NamedTuple):
    """sacrebleu's score, and its signature: what another number must have to be compared with it."""

    score: float
    signature: str
    translations: list[str]
    references: list[str]


def translate_all(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    sources: Sequence[Sequence[int]],
    *,
    n_beams: int = 1,
    max_new_tokens: int = 128,
    batch_size: int = 64,
) -> list[str]:
    """The translation of each source, in their order; sources of one length are translated together."""
    check_positive(n_beams=n_beams, max_new_tokens=max_new_tokens, batch_size=batch_size)
    rows = Rows.of(sources)
    order = torch.argsort(rows.lengths, stable=True)
    said = [""] * len(sources)
    for chosen in torch.split(order, batch_size):
        ids, visible = rows.padded(chosen)
        found = beam_search(
            model,
            ids,
            n_beams=n_beams,
            max_new_tokens=max_new_tokens,
            begin=tokenizer.begin,
            end=tokenizer.end,
            source_visible=visible,
        )
        for index, hypothesis in zip(chosen.tolist(), found, strict=True):
            said[index] = tokenizer.decode(hypothesis.ids.tolist())
    return said


def measure_bleu(
    model: EncoderDecoder, tokenizer: Tokenizer, examples: PairExamples, *, n_beams: int = 1, batch_size: int = 64
) -> Bleu:
    """BLEU of the translations of all sources, with sacrebleu's own tokens and the words as they are written."""
    need("sacrebleu")
    from sacrebleu.metrics.bleu import BLEU

    batches = [examples.batch([i]) for i in range(len(examples))]
    references = [tokenizer.decode(batch.target[0].tolist()) for batch in batches]
    if any(tokenizer.unknown in batch.target[0] for batch in batches):
        raise ValueError("BLEU needs a tokenizer that can write every reference, such as BytePairs, got unknown tokens")
    longest = 2 * examples.max_tokens
    sources = [batch.source[0].tolist() for batch in batches]
    translations = translate_all(
        model, tokenizer, sources, n_beams=n_beams, max_new_tokens=longest, batch_size=batch_size
    )
    metric = BLEU()
    score = metric.corpus_score(translations, [references]).score
    return Bleu(score, str(metric.get_signature()), translations, references)
