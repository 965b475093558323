"""One architecture per file, its frozen config beside it."""

from headwork.models.decoder import Decoder as Decoder
from headwork.models.decoder import DecoderConfig as DecoderConfig
from headwork.models.encoder import Encoder as Encoder
from headwork.models.encoder import EncoderConfig as EncoderConfig
from headwork.models.encoder_decoder import EncoderDecoder as EncoderDecoder
from headwork.models.encoder_decoder import EncoderDecoderConfig as EncoderDecoderConfig
from headwork.models.gaussian_image_encoder import GaussianImageEncoder as GaussianImageEncoder
from headwork.models.gaussian_image_encoder import GaussianImageEncoderConfig as GaussianImageEncoderConfig
from headwork.models.mirror_average import MirrorAverage as MirrorAverage
from headwork.models.model import Description as Description
from headwork.models.model import ModelConfig as ModelConfig
from headwork.models.model import describe as describe
from headwork.models.model import example_inputs as example_inputs
from headwork.models.published import CLASSES as CLASSES
from headwork.models.published import MODEL_CONFIGS as MODEL_CONFIGS
from headwork.models.published import PUBLISHED as PUBLISHED
from headwork.models.published import AnyConfig as AnyConfig
from headwork.models.published import published as published
from headwork.models.resnet import ResNet as ResNet
from headwork.models.resnet import ResNetConfig as ResNetConfig
from headwork.models.vision_transformer import VisionTransformer as VisionTransformer
from headwork.models.vision_transformer import VisionTransformerConfig as VisionTransformerConfig
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
