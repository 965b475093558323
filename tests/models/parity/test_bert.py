"""BERT, RoBERTa and DistilBERT, against Hugging Face."""

import pytest
import torch

from ..small_models import ready, real_tokens, some_ids
from .comparing import assert_parity, in_float64, loaded, places

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("float64")]

PAD = 1


def bert_config() -> "transformers.BertConfig":
    return transformers.BertConfig(
        vocab_size=37,
        hidden_size=21,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=17,
        max_position_embeddings=13,
        type_vocab_size=2,
        num_labels=5,
        attn_implementation="eager",
    )


def roberta_config() -> "transformers.RobertaConfig":
    return transformers.RobertaConfig(
        vocab_size=37,
        hidden_size=21,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=17,
        max_position_embeddings=13,
        type_vocab_size=1,
        pad_token_id=PAD,
        num_labels=5,
        attn_implementation="eager",
    )


def distilbert_config() -> "transformers.DistilBertConfig":
    return transformers.DistilBertConfig(
        vocab_size=37,
        dim=21,
        n_layers=2,
        n_heads=3,
        hidden_dim=17,
        max_position_embeddings=13,
        num_labels=5,
        attn_implementation="eager",
    )


every_padding = pytest.mark.parametrize(
    "real",
    [real_tokens((7, 7), 7), real_tokens((7, 4), 7), real_tokens((7, 4), 7, "left")],
    ids=["none", "right", "left"],
)


@every_padding
def test_bert_for_masked_words(real: torch.Tensor) -> None:
    theirs = ready(transformers.BertForMaskedLM(bert_config()))
    ours = loaded(theirs)
    ids, segments = some_ids(2, 7, first=1), some_ids(2, 7, 2)
    words = in_float64(theirs)(
        ids, attention_mask=real.long(), token_type_ids=segments, position_ids=places(real)
    ).logits
    assert_parity(
        (ours(ids, segments=segments, visible=real), ours.embedding.table),
        (words, theirs.bert.embeddings.word_embeddings.weight),
        real,
    )


def test_bert_without_segments_and_without_a_mask() -> None:
    theirs = ready(transformers.BertForMaskedLM(bert_config()))
    ours = loaded(theirs)
    ids = some_ids(2, 7, first=1)
    assert_parity(
        (ours(ids), ours.embedding.table),
        (in_float64(theirs)(ids).logits, theirs.bert.embeddings.word_embeddings.weight),
    )


@pytest.mark.parametrize("lengths", [(7, 7), (7, 4)])
def test_bert_for_classes(lengths: tuple[int, ...]) -> None:
    theirs = ready(transformers.BertForSequenceClassification(bert_config()))
    ours = loaded(theirs)
    ids, segments, real = some_ids(2, 7, first=1), some_ids(2, 7, 2), real_tokens(lengths, 7)
    classes = in_float64(theirs)(ids, attention_mask=real.long(), token_type_ids=segments).logits
    assert_parity(
        (ours(ids, segments=segments, visible=real), ours.embedding.table),
        (classes, theirs.bert.embeddings.word_embeddings.weight),
    )


@every_padding
def test_roberta_counts_its_positions_from_after_the_padding(real: torch.Tensor) -> None:
    """It counts the ids that are not padding, on either side, without being told."""
    theirs = ready(transformers.RobertaModel(roberta_config(), add_pooling_layer=False))
    ours = loaded(theirs)
    ids = some_ids(2, 7, first=PAD + 1).masked_fill(~real, PAD)
    assert_parity(
        (ours(ids, visible=real), ours.embedding.table),
        (
            in_float64(theirs)(ids, attention_mask=real.long()).last_hidden_state,
            theirs.embeddings.word_embeddings.weight,
        ),
        real,
    )


def test_roberta_for_masked_words() -> None:
    theirs = ready(transformers.RobertaForMaskedLM(roberta_config()))
    ours, ids = loaded(theirs), some_ids(2, 7, first=PAD + 1)
    assert_parity(
        (ours(ids), ours.embedding.table),
        (in_float64(theirs)(ids).logits, theirs.roberta.embeddings.word_embeddings.weight),
    )


def test_roberta_for_classes() -> None:
    theirs = ready(transformers.RobertaForSequenceClassification(roberta_config()))
    ours, ids = loaded(theirs), some_ids(2, 7, first=PAD + 1)
    assert_parity(
        (ours(ids), ours.embedding.table),
        (in_float64(theirs)(ids).logits, theirs.roberta.embeddings.word_embeddings.weight),
    )


@pytest.mark.parametrize("lengths", [(7, 7), (7, 4)])
def test_distilbert_for_classes(lengths: tuple[int, ...]) -> None:
    theirs = ready(transformers.DistilBertForSequenceClassification(distilbert_config()))
    ours, ids, real = loaded(theirs), some_ids(2, 7, first=1), real_tokens(lengths, 7)
    assert_parity(
        (ours(ids, visible=real), ours.embedding.table),
        (
            in_float64(theirs)(ids, attention_mask=real.long()).logits,
            theirs.distilbert.embeddings.word_embeddings.weight,
        ),
    )


def test_distilbert_for_masked_words() -> None:
    theirs = ready(transformers.DistilBertForMaskedLM(distilbert_config()))
    ours, ids = loaded(theirs), some_ids(2, 7, first=1)
    assert_parity(
        (ours(ids), ours.embedding.table),
        (in_float64(theirs)(ids).logits, theirs.distilbert.embeddings.word_embeddings.weight),
    )
