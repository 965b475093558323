"""Every kind of picture, one function each; the only package that imports Matplotlib."""

from headwork.extras import missing
from headwork.public import PublicNames

try:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
except ModuleNotFoundError as error:
    raise missing(error) from None

from headwork.figures.attention import draw_attention as draw_attention
from headwork.figures.attention import draw_attention_between_tokens as draw_attention_between_tokens
from headwork.figures.attention import draw_attention_over_image as draw_attention_over_image
from headwork.figures.centres import animate_centres as animate_centres
from headwork.figures.centres import draw_centres as draw_centres
from headwork.figures.centres import log_heads as log_heads
from headwork.figures.confusion import Mistake as Mistake
from headwork.figures.confusion import draw_confusion_matrix as draw_confusion_matrix
from headwork.figures.confusion import draw_mistakes as draw_mistakes
from headwork.figures.confusion import worst_mistakes as worst_mistakes
from headwork.figures.curves import describe_curves as describe_curves
from headwork.figures.curves import draw_comparison as draw_comparison
from headwork.figures.curves import draw_curves as draw_curves
from headwork.figures.heads import draw_absolute_codes as draw_absolute_codes
from headwork.figures.heads import draw_gaussian_limit as draw_gaussian_limit
from headwork.figures.heads import draw_position_heads as draw_position_heads
from headwork.figures.inside import draw_inside as draw_inside
from headwork.figures.style import Picture as Picture
from headwork.figures.style import figure_to_svg as figure_to_svg
from headwork.figures.style import figure_to_webp as figure_to_webp
from headwork.figures.style import plot_style as plot_style

__dir__ = PublicNames(__name__)
