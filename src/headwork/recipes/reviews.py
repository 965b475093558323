"""Film reviews: for or against."""

from headwork import choices
from headwork.data import Reviews
from headwork.models.encoder import EncoderConfig
from headwork.training import VOCAB_OF_DATA, AdamW, RunConfig, TrainingConfig


def reviews_encoder() -> RunConfig:
    """A small text encoder that reads the first 255 words; counting words is the baseline beside it.

    161 seconds on two cores of an AMD EPYC; seed 0: 84.3 % of 2,000 test reviews, where counting words reaches 88.9 %.
    """
    return RunConfig(
        name="reviews-encoder",
        data=Reviews(max_tokens=256),
        model=EncoderConfig(
            vocab=VOCAB_OF_DATA,
            head=choices.ClassificationHead(n_classes=2, pooling=choices.MeanPooling()),
            d_model=64,
            n_layers=1,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=128),
            norm_order="pre",
            position=choices.LearnedPositions(max_tokens=256),
            n_segments=0,
            dropout=0.5,
            attention_dropout=0.0,
        ),
        training=TrainingConfig(batch_size=64, epochs=2, optimiser=AdamW(lr=5e-4, weight_decay=0.1), ema=0.99),
    )
