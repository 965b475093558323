"""Text from ours and from Hugging Face's model of the same weights: `python benchmarks/generation.py`.

A GPT-2 of 0.8 million random weights, both with their KV caches, 16 tokens in and 100 out. Both take turns
in one process; the figure is the best of all turns.

On a machine that others keep busy, `--clock cpu --threads 1` counts the time of the processor instead.
"""

import argparse
import os
import platform
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from contest import CLOCKS, Contestant, contest

import headwork as hw
from headwork.generation import Greedy, Sample, generate

VOCAB, CONTEXT, N_PROMPT, N_NEW_TOKENS = 107, 128, 16, 100
D_MODEL, N_LAYERS, N_HEADS = 128, 4, 4


def theirs() -> transformers.GPT2LMHeadModel:
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=D_MODEL, n_layer=N_LAYERS, n_head=N_HEADS, eos_token_id=None
    )
    return transformers.GPT2LMHeadModel(config).eval()


def ours(theirs: transformers.GPT2LMHeadModel) -> hw.models.Decoder:
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return hw.load(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    options = parser.parse_args()
    n_turns = options.turns
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {options.clock} time,")
    print(f"transformers {transformers.__version__}, float32, best of {n_turns} turns, {N_NEW_TOKENS} new tokens")
    other = theirs()
    model = ours(other)
    for batch in (1, 16):
        ids = torch.randint(VOCAB, (batch, N_PROMPT))
        flops = 2.0 * sum(parameter.numel() for parameter in model.parameters()) * batch * N_NEW_TOKENS
        for name, sampling, settings in (
            ("greedy", Greedy(), {"do_sample": False}),
            (
                "sampled, top 40",
                Sample(temperature=0.8, top_k=40),
                {"do_sample": True, "temperature": 0.8, "top_k": 40},
            ),
        ):
            contest(
                f"{name}, batch {batch}",
                [
                    Contestant(
                        "headwork",
                        lambda ids=ids, sampling=sampling: generate(
                            model, ids, max_new_tokens=N_NEW_TOKENS, sampling=sampling
                        ),
                        flops,
                    ),
                    Contestant(
                        "Hugging Face generate",
                        lambda ids=ids, settings=settings: other.generate(
                            ids,
                            attention_mask=torch.ones_like(ids),
                            max_new_tokens=N_NEW_TOKENS,
                            min_new_tokens=N_NEW_TOKENS,
                            pad_token_id=0,
                            **settings,
                        ),
                        flops,
                    ),
                ],
                n_turns,
                CLOCKS[options.clock],
            )


if __name__ == "__main__":
    main()
