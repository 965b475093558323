"""Data sets and single examples."""

from headwork.data.images import read_image as read_image
from headwork.data.images import sample_digit as sample_digit
from headwork.data.images import sample_photo as sample_photo
