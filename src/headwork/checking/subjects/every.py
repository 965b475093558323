"""All subjects, in the order in which a name is tried for them."""

from headwork.checking.option import Subject
from headwork.checking.subjects import activation, attention, gaussian, images, layers, loss, masks, models, multi_head, norm, positions, softmax

SUBJECTS: tuple[Subject, ...] = (
    attention.SUBJECT,
    softmax.SUBJECT,
    multi_head.SUBJECT,
    masks.CAUSAL,
    masks.PADDING,
    masks.WINDOW,
    norm.RMS_NORM,
    norm.LAYER_NORM,
    activation.GELU,
    activation.FEED_FORWARD,
    layers.ENCODER,
    layers.DECODER,
    models.VIT,
    models.DECODER,
    models.ENCODER_DECODER,
    models.ENCODER,
    positions.SINUSOID,
    positions.LEARNED,
    positions.ROTARY,
    positions.RELATIVE,
    positions.ALIBI,
    images.PATCHES,
    images.POOLING,
    gaussian.SUBJECT,
    loss.SUBJECT,
)
