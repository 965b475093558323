"""Text out of a model: one token at a time, by chance or by search."""

from headwork.generation.beam import Hypothesis as Hypothesis
from headwork.generation.beam import beam_search as beam_search
from headwork.generation.decoding import check_prompt_length as check_prompt_length
from headwork.generation.decoding import generate as generate
from headwork.generation.decoding import max_tokens as max_tokens
from headwork.generation.decoding import stream as stream
from headwork.generation.decoding import stream_long as stream_long
from headwork.generation.decoding import stream_translation as stream_translation
from headwork.generation.decoding import translate as translate
from headwork.generation.sampling import Greedy as Greedy
from headwork.generation.sampling import Sample as Sample
from headwork.generation.sampling import Sampling as Sampling
from headwork.generation.sampling import keep_min_p as keep_min_p
from headwork.generation.sampling import keep_top_k as keep_top_k
from headwork.generation.sampling import keep_top_p as keep_top_p
from headwork.generation.sampling import penalise as penalise
from headwork.generation.sampling import pick as pick
from headwork.generation.sampling import probabilities as probabilities
from headwork.generation.text import decode_stream as decode_stream
from headwork.generation.text import generate_text as generate_text
from headwork.generation.text import stream_text as stream_text
from headwork.public import PublicNames

__dir__ = PublicNames(__name__)
