"""A run as a page that a person wants to look at."""

from headwork.reports.attention import draw_between_tokens as draw_between_tokens
from headwork.reports.attention import draw_class_token as draw_class_token
from headwork.reports.attention import draw_gaussian_heads as draw_gaussian_heads
from headwork.reports.attention import draw_lower_triangle as draw_lower_triangle
from headwork.reports.attention import draw_source_target as draw_source_target
from headwork.reports.classification import Classification as Classification
from headwork.reports.classification import draw_confusion as draw_confusion
from headwork.reports.classification import draw_worst_images as draw_worst_images
from headwork.reports.classification import list_worst_texts as list_worst_texts
from headwork.reports.classification import worst_mistakes as worst_mistakes
from headwork.reports.curves import Row as Row
from headwork.reports.curves import draw_curves as draw_curves
from headwork.reports.curves import read_metrics as read_metrics
from headwork.reports.page import Facts as Facts
from headwork.reports.page import Page as Page
from headwork.reports.pictures import Picture as Picture
from headwork.reports.run_report import RunReport as RunReport
from headwork.reports.run_report import write_report as write_report
from headwork.tables import Table as Table
