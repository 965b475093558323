"""Convolution <-> attention, layer by layer or a whole network at once; PyTorch's attention modules <-> ours."""

from headwork.convert.attention_to_convolution import AttentionAsConvolution as AttentionAsConvolution
from headwork.convert.attention_to_convolution import ConvolutionFromAttention as ConvolutionFromAttention
from headwork.convert.attention_to_convolution import convolution_from_attention as convolution_from_attention
from headwork.convert.convolution_to_attention import ConvolutionAsAttention as ConvolutionAsAttention
from headwork.convert.convolution_to_attention import attention_from_convolution as attention_from_convolution
from headwork.convert.convolution_to_attention import sufficient_alpha as sufficient_alpha
from headwork.convert.low_rank import LoRA as LoRA
from headwork.convert.low_rank import has_lora as has_lora
from headwork.convert.low_rank import lora as lora
from headwork.convert.low_rank import merge_lora as merge_lora
from headwork.convert.low_rank import train_only as train_only
from headwork.convert.network import Comparison as Comparison
from headwork.convert.network import Conversion as Conversion
from headwork.convert.network import Converted as Converted
from headwork.convert.network import ConvertedLayer as ConvertedLayer
from headwork.convert.network import ToAttention as ToAttention
from headwork.convert.network import ToConvolution as ToConvolution
from headwork.convert.network import compare as compare
from headwork.convert.network import conversions_of as conversions_of
from headwork.convert.network import possible_directions as possible_directions
from headwork.convert.network import to_attention as to_attention
from headwork.convert.network import to_convolution as to_convolution
from headwork.convert.single_pixels import to_single_pixels as to_single_pixels
from headwork.convert.torch_modules import Transformer as Transformer
from headwork.convert.torch_modules import from_torch as from_torch
from headwork.convert.torch_modules import to_torch as to_torch
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
