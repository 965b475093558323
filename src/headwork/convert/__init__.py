"""Convolution <-> attention, layer by layer or a whole network at once."""

from headwork.convert.convolution import ConvolutionAsAttention as ConvolutionAsAttention
from headwork.convert.convolution import attention_from_convolution as attention_from_convolution
from headwork.convert.convolution import sufficient_alpha as sufficient_alpha
from headwork.convert.gaussian import ConvolutionFromAttention as ConvolutionFromAttention
from headwork.convert.gaussian import convolution_from_attention as convolution_from_attention
from headwork.convert.network import AttentionAsConvolution as AttentionAsConvolution
from headwork.convert.network import Conversion as Conversion
from headwork.convert.network import ToAttention as ToAttention
from headwork.convert.network import ToConvolution as ToConvolution
from headwork.convert.network import conversions_of as conversions_of
from headwork.convert.network import convert as convert
