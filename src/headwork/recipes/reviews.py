"""Film reviews: for or against."""

from headwork import choices
from headwork.data import Reviews
from headwork.models.encoder import EncoderConfig
from headwork.training.config import AdamW, RunConfig, TrainingConfig


def reviews_encoder() -> RunConfig:
    """A small text encoder that reads the first 128 words; counting words is the baseline beside it.

    REVIEWS on two cores of an AMD EPYC; seed 0: REVR.
    """
    return RunConfig(
        name="reviews-encoder",
        data=Reviews(max_tokens=128),
        model=EncoderConfig(
            vocab=1,  # as many as the reviews have, once they are read
            task=choices.Classify(n_classes=2, pooling=choices.MeanPooling()),
            d_model=64,
            n_layers=2,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=128),
            norm_order="pre",
            position=choices.LearnedPositions(max_tokens=128),
            n_segments=0,
            dropout=0.2,
            attention_dropout=0.0,
        ),
        training=TrainingConfig(batch_size=64, epochs=4, optimiser=AdamW(lr=1e-3, weight_decay=0.1)),
    )
