"""Other people's checkpoints: folders of Hugging Face's, read and written, one file for each family."""

from headwork.hub.bart import BART as BART
from headwork.hub.bart import MBART as MBART
from headwork.hub.bert import BERT as BERT
from headwork.hub.chat import render_chat as render_chat
from headwork.hub.deit import DEIT as DEIT
from headwork.hub.distilbert import DISTILBERT as DISTILBERT
from headwork.hub.download import find_folder as find_folder
from headwork.hub.exporting import Exported as Exported
from headwork.hub.exporting import export as export
from headwork.hub.falcon import FALCON as FALCON
from headwork.hub.families import FAMILIES as FAMILIES
from headwork.hub.family import Family as Family
from headwork.hub.formats import UnverifiedWarning as UnverifiedWarning
from headwork.hub.formats import load as load
from headwork.hub.formats import note_of_unverified as note_of_unverified
from headwork.hub.formats import save as save
from headwork.hub.gemma import GEMMA as GEMMA
from headwork.hub.gemma import GEMMA2 as GEMMA2
from headwork.hub.gemma import GEMMA3 as GEMMA3
from headwork.hub.gguf_file import GgufFile as GgufFile
from headwork.hub.gpt2 import GPT2 as GPT2
from headwork.hub.gpt_neox import GPT_NEOX as GPT_NEOX
from headwork.hub.heads import with_classes as with_classes
from headwork.hub.heads import with_masked_lm as with_masked_lm
from headwork.hub.images import ImagePreprocessing as ImagePreprocessing
from headwork.hub.llama import LLAMA as LLAMA
from headwork.hub.llama import MISTRAL as MISTRAL
from headwork.hub.llama import QWEN2 as QWEN2
from headwork.hub.llama import QWEN3 as QWEN3
from headwork.hub.marian import MARIAN as MARIAN
from headwork.hub.marian_tokenizer import MarianTokenizer as MarianTokenizer
from headwork.hub.mixtral import MIXTRAL as MIXTRAL
from headwork.hub.mixtral import QWEN2_MOE as QWEN2_MOE
from headwork.hub.mixtral import QWEN3_MOE as QWEN3_MOE
from headwork.hub.names import Names as Names
from headwork.hub.olmo2 import OLMO2 as OLMO2
from headwork.hub.phi import PHI as PHI
from headwork.hub.phi3 import PHI3 as PHI3
from headwork.hub.pretrained import LeftOutWarning as LeftOutWarning
from headwork.hub.pretrained import is_pretrained as is_pretrained
from headwork.hub.pretrained import labels_of as labels_of
from headwork.hub.pretrained import load_pretrained as load_pretrained
from headwork.hub.pretrained import read_config as read_config
from headwork.hub.pretrained import save_pretrained as save_pretrained
from headwork.hub.roberta import ROBERTA as ROBERTA
from headwork.hub.settings import Settings as Settings
from headwork.hub.t5 import T5 as T5
from headwork.hub.tokenizer import PretrainedTokenizer as PretrainedTokenizer
from headwork.hub.vit import VIT as VIT
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
