"""All subjects, in the order in which a name is tried for them."""

from headwork.checking.option import Subject
from headwork.checking.subjects import activation, attention, multi_head, norm, softmax

SUBJECTS: tuple[Subject, ...] = (
    attention.SUBJECT,
    softmax.SUBJECT,
    multi_head.SUBJECT,
    norm.RMS_NORM,
    norm.LAYER_NORM,
    activation.GELU,
    activation.FEED_FORWARD,
)
