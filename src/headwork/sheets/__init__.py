"""What the five sheets ask a student to write, by the names they give it, on top of the library.

>>> ffn = BertFFN(d_model=8, d_ff=32)
>>> ffn(torch.randn(2, 5, 8)).shape
torch.Size([2, 5, 8])
"""

from headwork.public import PublicNames
from headwork.sheets.c182 import CLS as CLS
from headwork.sheets.c182 import GAP as GAP
from headwork.sheets.c182 import MAP as MAP
from headwork.sheets.c182 import FullyConnected as FullyConnected
from headwork.sheets.eecs182 import MHA as MHA
from headwork.sheets.eecs182 import scaled_dot_product_attention as scaled_dot_product_attention
from headwork.sheets.eth import AbsolutePositionalEmbedding as AbsolutePositionalEmbedding
from headwork.sheets.eth import BertFFN as BertFFN
from headwork.sheets.eth import LayerNorm as LayerNorm
from headwork.sheets.eth import RelativePositionalEmbedding as RelativePositionalEmbedding
from headwork.sheets.eth import gelu as gelu
from headwork.sheets.eth import gelu_tanh as gelu_tanh
from headwork.sheets.eth import verify_limit as verify_limit
from headwork.sheets.eth import visualize_abs_positional_embedding as visualize_abs_positional_embedding
from headwork.sheets.eth import visualize_gelus as visualize_gelus
from headwork.sheets.eth import visualize_rel_positional_embedding as visualize_rel_positional_embedding
from headwork.sheets.nyu import MLPHead as MLPHead
from headwork.sheets.nyu import MultiHeadAttention as MultiHeadAttention
from headwork.sheets.qmul import self_attention as self_attention

__dir__ = PublicNames(__name__)
