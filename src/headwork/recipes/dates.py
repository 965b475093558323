"""Dates in words, translated into ISO 8601."""

from headwork import choices
from headwork.data import Dates
from headwork.models.encoder_decoder import EncoderDecoderConfig
from headwork.training import VOCAB_OF_DATA, AdamW, RunConfig, TrainingConfig


def dates() -> RunConfig:
    """An encoder-decoder that translates "dimanche 15 novembre 2026" into "2026-11-15", in seven languages.

    2 minutes on two cores of an AMD EPYC; seed 0: 100.0 % of 1,000 unseen dates are translated exactly.
    """
    return RunConfig(
        name="dates",
        data=Dates(),
        model=EncoderDecoderConfig(
            vocab=VOCAB_OF_DATA,
            d_model=64,
            n_encoder_layers=2,
            n_decoder_layers=2,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=128, activation="relu"),
            norm_order="pre",
            dropout=0.0,
        ),
        training=TrainingConfig(batch_size=100, epochs=8, optimiser=AdamW(lr=2e-3)),
    )
