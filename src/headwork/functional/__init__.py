"""The equations: pure functions of tensors. Everything above only gives them parameters."""

from headwork.functional.activations import gelu as gelu
from headwork.functional.activations import gelu_tanh as gelu_tanh
from headwork.functional.activations import relu2 as relu2
from headwork.functional.additive import additive_scores as additive_scores
from headwork.functional.attention import attention_scores as attention_scores
from headwork.functional.attention import attention_weights as attention_weights
from headwork.functional.attention import scaled_dot_product_attention as scaled_dot_product_attention
from headwork.functional.attention import softargmax as softargmax
from headwork.functional.embedding import look_up as look_up
from headwork.functional.experts import choose_experts as choose_experts
from headwork.functional.fused import fused_attention as fused_attention
from headwork.functional.fused import fused_gelu as fused_gelu
from headwork.functional.fused import fused_gelu_tanh as fused_gelu_tanh
from headwork.functional.fused import fused_layer_norm as fused_layer_norm
from headwork.functional.fused import fused_rms_norm as fused_rms_norm
from headwork.functional.gaussian import gaussian_attention as gaussian_attention
from headwork.functional.gaussian import gaussian_attention_by_table as gaussian_attention_by_table
from headwork.functional.gaussian import gaussian_axis_weights as gaussian_axis_weights
from headwork.functional.gaussian import gaussian_vectors as gaussian_vectors
from headwork.functional.gaussian import gaussian_weights as gaussian_weights
from headwork.functional.gaussian import mix_along_axes as mix_along_axes
from headwork.functional.gaussian import mix_heads_along_axes as mix_heads_along_axes
from headwork.functional.norm import batch_norm as batch_norm
from headwork.functional.norm import layer_norm as layer_norm
from headwork.functional.norm import rms_norm as rms_norm
from headwork.functional.norm import unbiased_layer_norm as unbiased_layer_norm
from headwork.functional.patches import embed_patches as embed_patches
from headwork.functional.patches import embed_patches_by_convolution as embed_patches_by_convolution
from headwork.functional.patches import grid_of as grid_of
from headwork.functional.patches import image_from_patches as image_from_patches
from headwork.functional.patches import patches_from_image as patches_from_image
from headwork.functional.positions import absolute_scores as absolute_scores
from headwork.functional.positions import sinusoidal_positions as sinusoidal_positions
from headwork.functional.positions import sinusoidal_positions_2d as sinusoidal_positions_2d
from headwork.functional.positions import sinusoids as sinusoids
from headwork.functional.relative import alibi_bias as alibi_bias
from headwork.functional.relative import alibi_slopes as alibi_slopes
from headwork.functional.relative import distance as distance
from headwork.functional.relative import grid_shifts as grid_shifts
from headwork.functional.relative import quadratic_codes as quadratic_codes
from headwork.functional.relative import relative_index as relative_index
from headwork.functional.relative import relative_scores as relative_scores
from headwork.functional.relative import t5_buckets as t5_buckets
from headwork.functional.rotary import llama3_frequencies as llama3_frequencies
from headwork.functional.rotary import ntk_base as ntk_base
from headwork.functional.rotary import rotary_angles as rotary_angles
from headwork.functional.rotary import rotary_frequencies as rotary_frequencies
from headwork.functional.rotary import rotate as rotate
from headwork.functional.rotary import yarn_attention_factor as yarn_attention_factor
from headwork.functional.rotary import yarn_frequencies as yarn_frequencies
from headwork.functional.soft_cap import capped_attention as capped_attention
from headwork.functional.soft_cap import capped_attention_weights as capped_attention_weights
from headwork.functional.soft_cap import soft_cap as soft_cap
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
