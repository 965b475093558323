"""UC Berkeley, Data C182, Discussion 06, 3(a): four ways from the tokens of an encoder to one vector.

Each is a pooling for `VisionTransformer`: a layer over all tokens, a class token, the mean, and attention.
"""

from headwork.layers.pooling import AttentionPooling, ClassTokenPooling, FullyConnectedPooling, MeanPooling
from headwork.public import PublicNames

CLS = ClassTokenPooling
GAP = MeanPooling
MAP = AttentionPooling
FullyConnected = FullyConnectedPooling

__dir__ = PublicNames(__name__)
