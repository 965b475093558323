"""Recipes for the data sets that everyone knows, each for about an hour of two cores at most.

The data is in `--data-dir`; without it, in the folder that HEADWORK_DATA names or in the cache, or it is fetched.
"""

from headwork import choices
from headwork.data import (
    Augmentation,
    BytePairs,
    Cifar10,
    FashionMnist,
    Multi30k,
    Sst2,
    TinyShakespeare,
    Words,
)
from headwork.models import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    GaussianImageEncoderConfig,
    ResNetConfig,
    VisionTransformerConfig,
)
from headwork.training.config import AdamW, Cosine, Muon, RunConfig, TrainingConfig, WarmupStableDecay
from headwork.training.fit import VOCAB_OF_DATA

CENTRES = (("*.centre", 5.0), ("*.sharpness", 5.0))
"""The centres and widths of Gaussian heads are in patches, for which the learning rate of the weights is too small."""


def cifar10_vit() -> RunConfig:
    """A Vision Transformer of 1.7 million parameters for CIFAR-10, with three convolutions in front, trained by Muon.

    The convolutions make 64 tokens of an image. About 120 minutes of one core of an AMD EPYC with `--precision
    bfloat16`, and 60 to 80 of two; seed 0: 90.49 % of 10,000 test images. In float32 a step takes 1.8 times as long.
    """
    return RunConfig(
        name="cifar10-vit",
        data=Cifar10(augment=Augmentation(crop=4, flip=True, rand_augment=2, magnitude=0.3)),
        model=VisionTransformerConfig(
            n_classes=10,
            image=(32, 32),
            n_channels=3,
            patch=(4, 4),
            d_model=192,
            n_layers=5,
            heads=choices.Heads(n_heads=6, bias=False),
            feed_forward=choices.FeedForward(d_ff=384, activation="relu2", bias=False),
            embedding=choices.ConvolutionalStem(widths=(48, 96)),
            pooling=choices.MeanPooling(),
        ),
        training=TrainingConfig(
            batch_size=256,
            epochs=24,
            optimiser=Muon(lr=0.02, weight_decay=0.05, adamw=AdamW(lr=2e-3, weight_decay=0.0)),
            schedule=WarmupStableDecay(warmup=0.05, decay=0.6),
            label_smoothing=0.1,
            ema=0.996,
            zero_init_outputs=True,
        ),
    )


def cifar10_gaussian() -> RunConfig:
    """CIFAR-10 by heads that look by position alone: a grid of 16 x 16 patches, nine heads in each of six layers.

    Question 2(e) of the ETH sheet, after Cordonnier, Loukas and Jaggi, 2020, with a width of 48 instead of 400.
    157 minutes of one core of an AMD EPYC with `--precision bfloat16`, about 4.3 for each of its 36 epochs; seed 0:
    90.6 % of 10,000 test images. In float32 a step takes 1.7 times as long.
    """
    return RunConfig(
        name="cifar10-gaussian",
        data=Cifar10(augment=Augmentation(crop=4, flip=True)),
        model=GaussianImageEncoderConfig(
            n_classes=10,
            image=(32, 32),
            n_channels=3,
            patch=(2, 2),
            d_model=48,
            n_layers=6,
            heads=choices.GaussianHeads(n_heads=9),
            feed_forward=choices.FeedForward(d_ff=96),
            norm_order="pre",
            dropout=0.0,
        ),
        training=TrainingConfig(
            batch_size=100,
            epochs=36,
            optimiser=Muon(lr=0.02, weight_decay=0.02, adamw=AdamW(lr=3e-3, weight_decay=0.02), lr_factors=CENTRES),
            schedule=Cosine(warmup=0.05),
            label_smoothing=0.1,
            ema=0.998,
        ),
    )


def cifar10_resnet() -> RunConfig:
    """A residual network of eight layers for CIFAR-10: the convolutions to compare with.

    About 48 minutes of one core of an AMD EPYC with `--precision bfloat16`; seed 0: 91.0 % of 10,000 test images.
    """
    return RunConfig(
        name="cifar10-resnet",
        data=Cifar10(augment=Augmentation(crop=4, flip=True)),
        model=ResNetConfig(n_classes=10, n_channels=3, n_blocks=1, widths=(48, 96, 192)),
        training=TrainingConfig(
            batch_size=256,
            epochs=16,
            optimiser=Muon(lr=0.05, weight_decay=0.05, adamw=AdamW(lr=3e-3, weight_decay=0.0)),
            schedule=WarmupStableDecay(warmup=0.05, decay=0.6),
            label_smoothing=0.1,
            ema=0.998,
        ),
    )


def fashion_vit() -> RunConfig:
    """A Vision Transformer for Fashion-MNIST: clothes of 28 x 28 pixels, in patches of 4 x 4.

    14 minutes of one core of an AMD EPYC with `--precision bfloat16`; seed 0: 89.1 % of 10,000 test images.
    """
    return RunConfig(
        name="fashion-vit",
        data=FashionMnist(),
        model=VisionTransformerConfig(
            n_classes=10,
            image=(28, 28),
            n_channels=1,
            patch=(4, 4),
            d_model=96,
            n_layers=4,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=192),
            pooling=choices.MeanPooling(),
        ),
        training=TrainingConfig(
            batch_size=128,
            epochs=12,
            optimiser=Muon(lr=0.02, weight_decay=0.05, adamw=AdamW(lr=2e-3)),
            label_smoothing=0.1,
            ema=0.998,
            zero_init_outputs=True,
        ),
    )


def sst2_encoder() -> RunConfig:
    """A small text encoder for SST-2, from scratch; counting words, which reaches 83.3 %, is the baseline beside it.

    About 2 minutes of one core of an AMD EPYC; seed 0: 83.6 % of 1,821 test phrases, nine seeds on average: 83.1 %.
    """
    return RunConfig(
        name="sst2-encoder",
        data=Sst2(tokenizer=Words(n_tokens=16_000), max_tokens=64),
        model=EncoderConfig(
            vocab=VOCAB_OF_DATA,
            head=choices.ClassificationHead(n_classes=2, pooling=choices.MeanPooling()),
            d_model=128,
            n_layers=2,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=256),
            norm_order="pre",
            position=choices.LearnedPositions(max_tokens=64),
            n_segments=0,
            dropout=0.3,
            attention_dropout=0.0,
        ),
        training=TrainingConfig(
            batch_size=64,
            epochs=2,
            optimiser=Muon(lr=0.005, weight_decay=0.05, adamw=AdamW(lr=7e-4, weight_decay=0.1)),
            ema=0.999,
            batch_by_length=True,
        ),
    )


def multi30k() -> RunConfig:
    """An encoder-decoder of 5.5 million parameters that translates from English into German (Multi30k).

    67 minutes of one core of an AMD EPYC with `--precision bfloat16`, and about 50 of two; seed 0: BLEU 38.6 on the
    1,000 sentences of test_2016_flickr (`headwork evaluate RUN --bleu --beams 4`).
    """
    return RunConfig(
        name="multi30k",
        data=Multi30k(tokenizer=BytePairs(n_tokens=6000)),
        model=EncoderDecoderConfig(
            vocab=VOCAB_OF_DATA,
            d_model=256,
            n_encoder_layers=3,
            n_decoder_layers=3,
            heads=choices.Heads(n_heads=4),
            feed_forward=choices.FeedForward(d_ff=512, activation="relu"),
            norm_order="pre",
            dropout=0.25,
        ),
        training=TrainingConfig(
            batch_size=128,
            epochs=16,
            optimiser=Muon(lr=0.01, weight_decay=0.02, adamw=AdamW(lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)),
            schedule=WarmupStableDecay(warmup=0.05, decay=0.5),
            label_smoothing=0.1,
            ema=0.999,
            batch_by_length=True,
        ),
    )


def shakespeare_gpt() -> RunConfig:
    """A GPT of 0.8 million parameters for tiny Shakespeare, as large as that of nanoGPT's recipe for a processor.

    About 4 minutes of one core of an AMD EPYC; seed 0: a test loss of 1.632 (52.2 % of the next characters), 1.490 on
    the validation data. docs/results.md has its curve beside nanoGPT's.
    """
    return RunConfig(
        name="shakespeare-gpt",
        data=TinyShakespeare(n_context=128),
        model=DecoderConfig(
            vocab=VOCAB_OF_DATA,
            d_model=128,
            n_layers=4,
            heads=choices.Heads(n_heads=4, bias=False),
            feed_forward=choices.FeedForward(d_ff=512, activation="relu2", bias=False),
            norm=choices.RMSNorm(),
            position=choices.RotaryPositions(),
            lm_head=choices.UntiedLMHead(),
            dropout=0.0,
            attention_dropout=0.0,
        ),
        training=TrainingConfig(
            batch_size=16,
            steps=1000,
            evaluate_every=100,
            optimiser=Muon(lr=0.02, adamw=AdamW(lr=5e-3, betas=(0.9, 0.95), weight_decay=0.0)),
            schedule=WarmupStableDecay(warmup=0.02, decay=0.5),
            zero_init_outputs=True,
        ),
    )
