"""Data sets and single examples."""

from headwork.batches import IGNORE as IGNORE
from headwork.batches import Batch as Batch
from headwork.batches import ImageBatch as ImageBatch
from headwork.batches import MaskedBatch as MaskedBatch
from headwork.batches import PairBatch as PairBatch
from headwork.batches import TextBatch as TextBatch
from headwork.batches import TokenBatch as TokenBatch
from headwork.data.adapters import StreamExamples as StreamExamples
from headwork.data.adapters import TorchExamples as TorchExamples
from headwork.data.augmentation import Augmentation as Augmentation
from headwork.data.bundled_text import BundledText as BundledText
from headwork.data.bundled_text import MaskedText as MaskedText
from headwork.data.bundled_text import TextFile as TextFile
from headwork.data.bundled_text import read_text as read_text
from headwork.data.cifar import Cifar10 as Cifar10
from headwork.data.cifar import Cifar100 as Cifar100
from headwork.data.dates import Dates as Dates
from headwork.data.digits import Digits as Digits
from headwork.data.digits import Mnist5k as Mnist5k
from headwork.data.examples import DataConfig as DataConfig
from headwork.data.examples import Dataset as Dataset
from headwork.data.examples import Examples as Examples
from headwork.data.examples import HasBagOfWords as HasBagOfWords
from headwork.data.examples import image_size as image_size
from headwork.data.idx_images import FashionMnist as FashionMnist
from headwork.data.idx_images import Mnist as Mnist
from headwork.data.image_folder import ImageFolder as ImageFolder
from headwork.data.images import find_images as find_images
from headwork.data.images import read_image as read_image
from headwork.data.images import sample_digit as sample_digit
from headwork.data.images import sample_photo as sample_photo
from headwork.data.known_texts import Multi30k as Multi30k
from headwork.data.known_texts import Sst2 as Sst2
from headwork.data.known_texts import TinyShakespeare as TinyShakespeare
from headwork.data.preprocessed import PreprocessedImages as PreprocessedImages
from headwork.data.reviews import Reviews as Reviews
from headwork.data.reviews import bag_of_words_accuracy as bag_of_words_accuracy
from headwork.data.reviews import encode_starts as encode_starts
from headwork.data.reviews import read_reviews as read_reviews
from headwork.data.text_pairs import TextPairs as TextPairs
from headwork.data.text_table import TextTable as TextTable
from headwork.data.tokenizer import AnyTokenizer as AnyTokenizer
from headwork.data.tokenizer import BytePairs as BytePairs
from headwork.data.tokenizer import Characters as Characters
from headwork.data.tokenizer import Pretrained as Pretrained
from headwork.data.tokenizer import Tokenizer as Tokenizer
from headwork.data.tokenizer import Words as Words
from headwork.data.tokenizer import load_tokenizer as load_tokenizer
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)

DATA_CONFIGS = (
    *(Digits, Mnist5k, Dates, BundledText, TextFile, MaskedText, Reviews),
    *(ImageFolder, TextTable, TextPairs),
    *(Cifar10, Cifar100, Mnist, FashionMnist, Sst2, Multi30k, TinyShakespeare),
    PreprocessedImages,
)
"""Our own data configs, which the file of a run may name."""
