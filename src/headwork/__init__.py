"""Headwork: Transformers you can read, run, prove and see."""

from headwork import choices as choices
from headwork import functional as functional
from headwork import layers as layers
from headwork import masks as masks
from headwork import models as models
