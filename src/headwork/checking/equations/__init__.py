"""The subjects as equations with options: `how` names what is done otherwise, and everything else is right.

Written for reading beside a student's code, not for speed: plain products in float64. Nothing here checks its input.
"""

from headwork.checking.equations.attention import attention as attention
from headwork.checking.equations.attention import attention_weights as attention_weights
from headwork.checking.equations.attention import hide as hide
from headwork.checking.equations.attention import join as join
from headwork.checking.equations.attention import multi_head as multi_head
from headwork.checking.equations.attention import normalise as normalise
from headwork.checking.equations.attention import split as split
from headwork.checking.equations.attention import turn as turn
from headwork.checking.equations.attention import visibility as visibility
from headwork.checking.equations.parts import affine as affine
from headwork.checking.equations.parts import feed_forward as feed_forward
from headwork.checking.equations.parts import gelu as gelu
from headwork.checking.equations.parts import layer_norm as layer_norm
from headwork.checking.equations.parts import linear as linear
from headwork.checking.equations.parts import norm as norm
from headwork.checking.equations.parts import rms_norm as rms_norm
from headwork.checking.equations.parts import wrap as wrap
from headwork.checking.equations.positions import alibi as alibi
from headwork.checking.equations.positions import gaussian_weights as gaussian_weights
from headwork.checking.equations.positions import mixed_rotary as mixed_rotary
from headwork.checking.equations.positions import rotary as rotary
from headwork.checking.equations.positions import sinusoid as sinusoid
