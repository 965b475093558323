"""One word for one thing: words that were replaced do not come back, in code, help, documents or file formats."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GONE = {
    "ledger": "trace",
    "SIZES": "PUBLISHED",
    "headwork sizes": "headwork models",
    "DeferredPoint": "LazyHookPoint",
    "keep_with": "register_lazy_hook",
    "Seen(?! from)": "Recording",
    "WordOutput": "LMHead",
    "TiedOutput": "TiedLMHead",
    "UntiedOutput": "UntiedLMHead",
    "FillMasks": "MaskedLMHead",
    "Classify": "ClassificationHead",
    "n_new": "max_new_tokens",
    "Picking": "Sampling",
    "twins?": "fast path",
    "tokens.json": "tokenizer.json",
    "make_tokens": "make_tokenizer",
    "check_words": "check_token_ids",
    "Shares?": "MetricSum",
    "is_share": "Metric.percent",
    "best_figure": "best_value",
    "everybodys": "sum_over_processes",
    "check_together": "check_same_step",
    "Keeper": "recorder, best, session",
    "other_chances": "RNG states",
    "claimed\\(": "locked",
    "telling": "explain_disk_errors",
    "pace_of_places": "lr_factors",
    "place_heads": "set_centres",
    "Places": "QueryGrid, HeadCentres",
    "house_style": "plot_style",
    "attention_residual": "attention_norm",
    "What is taken for what": "Confusion matrix",
    "rooms?": "buffer, package",
    "stoves?": "",
    "cooks?": "",
    "houses?": "package",
    "the floors? (above|below)": "package layer",
}
FILES = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]


@pytest.mark.parametrize("word", GONE)
def test_a_word_that_was_replaced_does_not_come_back(word: str) -> None:
    pattern = re.compile(rf"(?<![\w-]){word}(?![\w-])")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, f"write {GONE[word] or 'another word'}:\n" + "\n".join(found)


def test_the_search_finds_a_word() -> None:
    assert re.search(r"(?<![\w-])twins?(?![\w-])", "its fast twin")
