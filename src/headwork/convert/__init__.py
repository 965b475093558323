"""Convolution <-> attention."""

from headwork.convert.convolution import ConvolutionAsAttention as ConvolutionAsAttention
from headwork.convert.convolution import attention_from_convolution as attention_from_convolution
from headwork.convert.convolution import convert_all as convert_all
from headwork.convert.convolution import sufficient_alpha as sufficient_alpha
from headwork.convert.gaussian import ConvolutionFromAttention as ConvolutionFromAttention
from headwork.convert.gaussian import convolution_from_attention as convolution_from_attention
