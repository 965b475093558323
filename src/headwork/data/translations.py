"""Many texts translated by a model, and how good that is: BLEU. Papineni et al., 2002; Post, 2018."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from headwork.checks import check_positive
from headwork.data.text_examples import PairExamples, Rows
from headwork.data.tokenizer import Tokenizer
from headwork.extras import need
from headwork.generation import Hypothesis, beam_search
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
    """The translation of each source, in their order."""
    check_positive(n_beams=n_beams, max_new_tokens=max_new_tokens)
    search = partial(
        beam_search, model, n_beams=n_beams, max_new_tokens=max_new_tokens, begin=tokenizer.begin, end=tokenizer.end
    )
    return [tokenizer.decode(best.ids.tolist()) for best in search_all(search, sources, batch_size)]


def search_all(
    search: Callable[..., list[Hypothesis]], sources: Sequence[Sequence[int]], batch_size: int = 64
) -> list[Hypothesis]:
    """What `search` finds for each source, in their order; those of about one length are searched together."""
    check_positive(batch_size=batch_size)
    rows = Rows.of(sources)
    order = torch.argsort(rows.lengths, stable=True)
    best: dict[int, Hypothesis] = {}
    for chosen in torch.split(order, batch_size):
        ids, visible = rows.padded(chosen)
        found = search(ids, source_visible=None if bool(visible.all()) else visible)
        best |= dict(zip(chosen.tolist(), found, strict=True))
    return [best[index] for index in range(len(sources))]


def translate_examples(
    model: EncoderDecoder, tokenizer: Tokenizer, examples: PairExamples, *, n_beams: int = 1, batch_size: int = 64
) -> list[str]:
    """The translations of all sources, which may be twice as long as the longest text."""
    sources = [examples.batch([i]).source[0].tolist() for i in range(len(examples))]
    longest = 2 * examples.max_tokens
    return translate_all(model, tokenizer, sources, n_beams=n_beams, max_new_tokens=longest, batch_size=batch_size)


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
    translations = translate_examples(model, tokenizer, examples, n_beams=n_beams, batch_size=batch_size)
    metric = BLEU()
    score = metric.corpus_score(translations, [references]).score
    return Bleu(score, str(metric.get_signature()), translations, references)
