"""One architecture per file, its frozen config beside it."""

from headwork.models.decoder import Decoder as Decoder
from headwork.models.decoder import DecoderConfig as DecoderConfig
from headwork.models.encoder import Encoder as Encoder
from headwork.models.encoder import EncoderConfig as EncoderConfig
from headwork.models.encoder_decoder import EncoderDecoder as EncoderDecoder
from headwork.models.encoder_decoder import EncoderDecoderConfig as EncoderDecoderConfig
from headwork.models.gaussian_image_encoder import GaussianImageEncoder as GaussianImageEncoder
from headwork.models.gaussian_image_encoder import GaussianImageEncoderConfig as GaussianImageEncoderConfig
from headwork.models.resnet import ResNet as ResNet
from headwork.models.resnet import ResNetConfig as ResNetConfig
from headwork.models.sizes import SIZES as SIZES
from headwork.models.sizes import Model as Model
from headwork.models.sizes import ModelConfig as ModelConfig
from headwork.models.sizes import build as build
from headwork.models.sizes import size as size
from headwork.models.vision_transformer import VisionTransformer as VisionTransformer
from headwork.models.vision_transformer import VisionTransformerConfig as VisionTransformerConfig
