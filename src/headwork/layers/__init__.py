"""Thin modules: parameters and one call into functional."""

from headwork.layers.additive_attention import AdditiveAttention as AdditiveAttention
from headwork.layers.attention import CappedAttention as CappedAttention
from headwork.layers.attention import MultiHeadAttention as MultiHeadAttention
from headwork.layers.attention import SplitHeadAttention as SplitHeadAttention
from headwork.layers.cache import DecoderCache as DecoderCache
from headwork.layers.cache import FixedCache as FixedCache
from headwork.layers.cache import GrowingCache as GrowingCache
from headwork.layers.embeddings import ConvolutionalStem as ConvolutionalStem
from headwork.layers.embeddings import LMHead as LMHead
from headwork.layers.embeddings import NormalisedPatchEmbedding as NormalisedPatchEmbedding
from headwork.layers.embeddings import PatchEmbedding as PatchEmbedding
from headwork.layers.embeddings import TokenEmbedding as TokenEmbedding
from headwork.layers.feed_forward import FeedForward as FeedForward
from headwork.layers.feed_forward import GatedFeedForward as GatedFeedForward
from headwork.layers.gaussian import GaussianAttention as GaussianAttention
from headwork.layers.gaussian import PositionAttention as PositionAttention
from headwork.layers.gaussian import ShiftAttention as ShiftAttention
from headwork.layers.grid_attention import AbsolutePositionalEmbedding as AbsolutePositionalEmbedding
from headwork.layers.grid_attention import ContentShiftAttention as ContentShiftAttention
from headwork.layers.grid_attention import QueryShiftAttention as QueryShiftAttention
from headwork.layers.grid_attention import RelativePositionalEmbedding as RelativePositionalEmbedding
from headwork.layers.hook_point import HookPoint as HookPoint
from headwork.layers.hook_point import LazyHookPoint as LazyHookPoint
from headwork.layers.lora import LoRALinear as LoRALinear
from headwork.layers.mixture_of_experts import MixtureOfExperts as MixtureOfExperts
from headwork.layers.norm import LayerNorm as LayerNorm
from headwork.layers.norm import RMSNorm as RMSNorm
from headwork.layers.norm import UnbiasedLayerNorm as UnbiasedLayerNorm
from headwork.layers.other_layers import BranchNormLayer as BranchNormLayer
from headwork.layers.other_layers import ParallelLayer as ParallelLayer
from headwork.layers.other_layers import SandwichLayer as SandwichLayer
from headwork.layers.pooling import AttentionPooling as AttentionPooling
from headwork.layers.pooling import ClassTokenPooling as ClassTokenPooling
from headwork.layers.pooling import DistillationTokenPooling as DistillationTokenPooling
from headwork.layers.pooling import FirstTokenPooling as FirstTokenPooling
from headwork.layers.pooling import FullyConnectedPooling as FullyConnectedPooling
from headwork.layers.pooling import MaxPooling as MaxPooling
from headwork.layers.pooling import MeanPooling as MeanPooling
from headwork.layers.pooling import Pooling as Pooling
from headwork.layers.positions import AlibiPositions as AlibiPositions
from headwork.layers.positions import BucketPositions as BucketPositions
from headwork.layers.positions import LearnedGrid as LearnedGrid
from headwork.layers.positions import LearnedPositions as LearnedPositions
from headwork.layers.positions import LearnedShifts as LearnedShifts
from headwork.layers.positions import Positions as Positions
from headwork.layers.positions import RelativeShifts as RelativeShifts
from headwork.layers.positions import RotaryPositions as RotaryPositions
from headwork.layers.positions import Rotation as Rotation
from headwork.layers.positions import SinusoidalGrid as SinusoidalGrid
from headwork.layers.positions import SinusoidalPositions as SinusoidalPositions
from headwork.layers.stack import Stack as Stack
from headwork.layers.transformer_layer import DecoderLayer as DecoderLayer
from headwork.layers.transformer_layer import EncoderLayer as EncoderLayer
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
