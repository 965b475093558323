"""What a model is trained for: its loss, its metrics, its answers."""

from headwork.public import PublicNames
from headwork.tasks.classification import Classification as Classification
from headwork.tasks.classification import LabelTask as LabelTask
from headwork.tasks.classification import MultiLabel as MultiLabel
from headwork.tasks.classification import macro_f1 as macro_f1
from headwork.tasks.language import MaskedTokens as MaskedTokens
from headwork.tasks.language import NextToken as NextToken
from headwork.tasks.language import Translation as Translation
from headwork.tasks.regression import Regression as Regression
from headwork.tasks.task import Evaluation as Evaluation
from headwork.tasks.task import Task as Task
from headwork.tasks.task import metrics_by_name as metrics_by_name

__dir__ = PublicNames(__name__)

TASKS = (Classification, MultiLabel, Regression, NextToken, MaskedTokens, Translation)
"""Our own tasks, which the file of a run may name."""
