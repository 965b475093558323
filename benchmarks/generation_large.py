"""A GPT-2 of 124 million weights, one text at a time: `python benchmarks/generation_large.py`.

Ours in float32, int8 and 4 bits, Hugging Face's `generate`, and CTranslate2 if it is installed, on the same random
weights, and beside them the bare products of one token, which nothing that reads the weights can beat. Then the reading
of a prompt, encoders, image models, and the loading of the file. All take turns in one process; the figure is the best
turn.

`--only families` writes text with decoders of all families beside Hugging Face's `generate`, and prints the medians of
all turns as a table; `--family` picks some of them.

On a machine that others keep busy, `--clock cpu --threads 1` counts the time of the processor instead.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from contest import CLOCKS

import headwork as hw
from headwork.functional.int4 import Int4Matrix
from headwork.functional.int8 import Int8Matrix
from headwork.generation import generate, translate
from headwork.generation.reading import TextReader
from headwork.layers.linear import affine_map

VOCAB, N_PROMPT, N_LONG, PASTS, N_SINGLE = 50_257, 16, 512, (48, 512), 40
Runs = dict[str, Callable[[], object]]
LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 2816,
}
PLAIN = {
    "vocab_size": 50_304,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "GPT-2 124M": ("GPT2LMHeadModel", {}),
    "GPT-NeoX (Pythia 160M)": ("GPTNeoXForCausalLM", PLAIN),
    "Llama": ("LlamaForCausalLM", LLAMA),
    "SmolLM2 135M": (
        "LlamaForCausalLM",
        {
            "vocab_size": 49_152,
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "tie_word_embeddings": True,
        },
    ),
    "SmolLM2 360M": (
        "LlamaForCausalLM",
        {
            "vocab_size": 49_152,
            "hidden_size": 960,
            "num_hidden_layers": 32,
            "num_attention_heads": 15,
            "num_key_value_heads": 5,
            "intermediate_size": 2560,
            "tie_word_embeddings": True,
        },
    ),
    "Mistral": ("MistralForCausalLM", LLAMA),
    "Qwen2": ("Qwen2ForCausalLM", LLAMA),
    "Qwen3": ("Qwen3ForCausalLM", LLAMA | {"head_dim": 128}),
    "Phi": ("PhiForCausalLM", PLAIN),
    "Phi-3": ("Phi3ForCausalLM", LLAMA | {"pad_token_id": 0}),
    "Gemma": ("GemmaForCausalLM", LLAMA | {"head_dim": 64}),
    "Gemma 2": ("Gemma2ForCausalLM", LLAMA | {"head_dim": 64}),
    "Gemma 3": ("Gemma3ForCausalLM", LLAMA | {"head_dim": 64}),
    "OLMo 2": ("Olmo2ForCausalLM", LLAMA | {"pad_token_id": 0}),
    "Falcon": ("FalconForCausalLM", {n: PLAIN[n] for n in PLAIN if n != "intermediate_size"} | {"vocab_size": 65_024}),
    "Mixtral": (
        "MixtralForCausalLM",
        LLAMA | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 1024, "num_local_experts": 8},
    ),
    "T5 base": (
        "T5ForConditionalGeneration",
        {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12} | {"decoder_start_token_id": 0},
    ),
    "BART base": (
        "BartForConditionalGeneration",
        {f"{part}_{of}": n for part in ("encoder", "decoder") for of, n in (("layers", 6), ("attention_heads", 12))}
        | {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
    ),
    "Marian (OPUS)": (
        "MarianMTModel",
        {f"{part}_{of}": n for part in ("encoder", "decoder") for of, n in (("layers", 6), ("attention_heads", 8))}
        | {"vocab_size": 58_101, "d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
        | {"pad_token_id": 58_100, "decoder_start_token_id": 58_100, "scale_embedding": True},
    ),
}
"""A class of transformers, and settings for a model of 70 to 360 million weights."""


def time_turns(runs: Runs, n_turns: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """The seconds of each in every turn."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(n_turns):
        for name, run in runs.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return seconds


def take_turns(title: str, runs: Runs, n_turns: int, clock: Callable[[], float], per: int = 1) -> dict[str, float]:
    """The best time of each in seconds; the ratios are to Hugging Face's."""
    best = {name: min(seconds) for name, seconds in time_turns(runs, n_turns, clock).items()}
    theirs = best.get("Hugging Face", next(iter(best.values())))
    print(f"\n{title}")
    for name, seconds in best.items():
        speed = f"{per / seconds:8.1f} tokens/s" if per > 1 else ""
        print(f"  {name:<30} {1e3 * seconds / per:9.2f} ms {speed}  {theirs / seconds:5.2f}x Hugging Face", flush=True)
    return best


def bare_products(model: hw.models.Decoder, n_tokens: int) -> Runs:
    """For each token one product with each matrix of the model: as PyTorch multiplies, and in what we know to be best.

    And the least that can be done with weights: to read them all once, for the largest of each matrix.
    """
    tables = [p.detach() for name, p in model.named_parameters() if p.ndim == 2 and "positions" not in name]
    inputs = [torch.randn(1, table.shape[1]) for table in tables]
    kernels = [Int8Matrix(table) for table in tables]
    of_4_bits = [Int4Matrix(table) for table in tables]
    ways: dict[str, list[Callable[..., object]]] = {
        "products, F.linear": [partial(torch.nn.functional.linear, weight=table) for table in tables],
        "products, ours": [affine_map(table, None) for table in tables],
        "products, int8": kernels,
        "products, int8 kernel alone": [lambda x, k=k: k._product(x, *k._rounding, k._packed) for k in kernels],
        "products, 4 bits": of_4_bits,
        "weights read once": [lambda x, table=table: table.amax() for table in tables],
    }

    def run(way: list[Callable[..., object]]) -> None:
        with torch.inference_mode():
            for _ in range(n_tokens):
                for product, x in zip(way, inputs, strict=True):
                    product(x)

    return {name: partial(run, way) for name, way in ways.items()}


def with_ctranslate2(folder: Path, ids: list[int], n_new: int, n_threads: int) -> Runs:
    try:
        import ctranslate2
        import tokenizers
    except ImportError:
        print("ctranslate2 is not installed: pip install ctranslate2")
        return {}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))
    names = {f"{kind}_token": "w0" for kind in ("unk", "bos", "eos")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)
    converter = ctranslate2.converters.TransformersConverter(str(folder))
    runs: Runs = {}
    for kind in ("float32", "int8"):
        path = converter.convert(str(folder / f"ct2-{kind}"), quantization=kind, force=True)
        model = ctranslate2.Generator(path, device="cpu", compute_type=kind, intra_threads=n_threads)
        runs[f"CTranslate2 {kind}"] = lambda model=model: model.generate_batch(
            [[f"w{i}" for i in ids]], max_length=n_new, min_length=n_new, include_prompt_in_result=False
        )
    return runs


LOADER = """
import re, sys, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
if sys.argv[1] == "headwork":
    import headwork.hub
    load = headwork.hub.load
else:
    import transformers
    load = transformers.GPT2LMHeadModel.from_pretrained
def most():  # KiB of memory, those of mapped files too
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = most()
start = time.perf_counter(), time.process_time()
model = load(sys.argv[2])
wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
print(wall, cpu, (most() - before) / 1024)
"""


def loading(clock: Callable[[], float], options: argparse.Namespace, folder: Path) -> None:
    """A folder of Hugging Face's and one of our own, each in a process of its own; of the turns the medians."""
    theirs, own = folder / "theirs", folder / "own"
    transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(theirs)
    hw.save(hw.hub.load_pretrained(theirs), own)
    size = (own / "model.safetensors").stat().st_size / 2**20
    print(f"\nloading {size:.0f} MiB of safetensors, in a process of its own")
    ways = {
        "headwork, Hugging Face's folder": ("headwork", theirs),
        "headwork, its own folder": ("headwork", own),
        "transformers": ("transformers", theirs),
    }
    said: dict[str, list[list[float]]] = {way: [] for way in ways}
    for _ in range(options.turns):
        for way, (who, path) in ways.items():
            command = [sys.executable, "-c", LOADER, who, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            said[way].append([float(number) for number in done.stdout.split()[-3:]])
    for way, turns in said.items():
        wall, cpu, more = map(statistics.median, zip(*turns, strict=True))
        print(f"  {way:<32} {wall:6.2f} s ({cpu:.2f} s of processor)   memory grew by {more / size:.2f}x the file")


def generation(clock: Callable[[], float], options: argparse.Namespace, folder: Path) -> None:
    config = transformers.GPT2Config(eos_token_id=None, bos_token_id=None)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs.save_pretrained(folder)
    ours = hw.hub.load_pretrained(folder)
    quantised, of_4_bits, n_new = hw.quantize(ours), hw.quantize(ours, bits=4), options.tokens
    ids, long = torch.randint(VOCAB, (1, N_PROMPT)), torch.randint(VOCAB, (1, N_LONG))

    def hugging_face(ids: torch.Tensor, n: int) -> torch.Tensor:
        mask = torch.ones_like(ids)
        return theirs.generate(ids, attention_mask=mask, max_new_tokens=n, min_new_tokens=n, pad_token_id=0)

    runs: Runs = {
        "headwork float32": lambda: generate(ours, ids, max_new_tokens=n_new),
        "Hugging Face": lambda: hugging_face(ids, n_new),
        "headwork int8": lambda: generate(quantised, ids, max_new_tokens=n_new),
        "headwork 4 bits": lambda: generate(of_4_bits, ids, max_new_tokens=n_new),
        **with_ctranslate2(folder, ids[0].tolist(), n_new, options.threads),
        **bare_products(ours, n_new),
    }
    take_turns(f"{n_new} tokens after {N_PROMPT}, GPT-2 of 124 M, batch 1", runs, options.turns, clock, n_new)
    runs = {
        "headwork float32": lambda: generate(ours, long, max_new_tokens=1),
        "Hugging Face": lambda: hugging_face(long, 1),
        "headwork int8": lambda: generate(quantised, long, max_new_tokens=1),
        "headwork 4 bits": lambda: generate(of_4_bits, long, max_new_tokens=1),
    }
    take_turns(f"a prompt of {N_LONG} tokens", runs, options.turns, clock)
    single_tokens({"headwork float32": ours, "headwork int8": quantised, "headwork 4 bits": of_4_bits}, theirs, options)


def single_tokens(models: dict[str, hw.models.Decoder], theirs: torch.nn.Module, options: argparse.Namespace) -> None:
    """A token after so many others: the best of many, each timed by itself, which a busy machine disturbs least."""
    clock = CLOCKS[options.clock]
    for n_past in PASTS:
        ids = torch.randint(VOCAB, (1, n_past))
        runs: Runs = {}
        for name, model in models.items():
            read = TextReader(model)
            read(ids)
            runs[name] = partial(read, ids[:, :1])
        with torch.inference_mode():
            past = theirs(ids, use_cache=True).past_key_values
        runs["Hugging Face"] = torch.inference_mode()(partial(theirs, ids[:, :1], past_key_values=past, use_cache=True))
        take_turns(f"one token after {n_past}", runs, N_SINGLE, clock)


def families(clock: Callable[[], float], options: argparse.Namespace, folder: Path) -> None:
    """Greedy text from random weights; the time of a step has its share of the prompt or the source in it."""
    n_new = options.tokens
    print(f"\n{n_new} tokens after {N_PROMPT}, the median of {options.turns} turns; above 1x is faster")
    print("| | millions of weights | batch | headwork, ms a step | Hugging Face | |\n|---|---|---|---|---|---|")
    for name, (kind, settings) in FAMILIES.items():
        if options.family and name not in options.family:
            continue
        model = getattr(transformers, kind)
        # No token ends a text, so that both write equally long ones.
        theirs = model(model.config_class(**settings)).eval()
        with tempfile.TemporaryDirectory(dir=folder) as of_family:
            theirs.save_pretrained(of_family)
            ours = hw.hub.load_pretrained(of_family)
        theirs.generation_config.eos_token_id = theirs.generation_config.forced_eos_token_id = None
        n_weights = sum(parameter.numel() for parameter in theirs.parameters()) / 1e6
        for batch in (1, 4):
            ids = torch.randint(5, 1000, (batch, N_PROMPT))
            runs = beside_hugging_face(ours, theirs, ids, n_new)
            lengths = {who: run().shape[1] for who, run in runs.items()}
            assert set(lengths.values()) == {n_new}, lengths
            ms = {
                who: 1e3 / n_new * statistics.median(seconds)
                for who, seconds in time_turns(runs, options.turns, clock).items()
            }
            of_us, of_them = ms.values()
            row = f"| {name} | {n_weights:.0f} | {batch} | {of_us:.1f} | {of_them:.1f} | {of_them / of_us:.2f}x |"
            print(row, flush=True)


def beside_hugging_face(
    ours: torch.nn.Module, theirs: torch.nn.Module, ids: torch.Tensor, n_new: int
) -> dict[str, Callable[[], torch.Tensor]]:
    """The new tokens of both, greedily."""
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "num_beams": 1, "pad_token_id": 0}
    n_first = 1 if theirs.config.is_encoder_decoder else N_PROMPT
    if theirs.config.is_encoder_decoder:
        begin = theirs.generation_config.decoder_start_token_id
        write = partial(translate, ours, ids, max_new_tokens=n_new, begin=begin, end=None)
    else:
        write = partial(generate, ours, ids, max_new_tokens=n_new)
    return {
        "headwork": write,
        "Hugging Face": lambda: theirs.generate(ids, max_new_tokens=n_new, **options)[:, n_first:],
    }


def encoders(clock: Callable[[], float], options: argparse.Namespace, folder: Path) -> None:
    bert = transformers.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    vit = transformers.ViTConfig(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768)
    for name, theirs, shape in (
        ("encoder of MiniLM's shape, 64 tokens", transformers.BertModel(bert, add_pooling_layer=False), (64,)),
        ("ViT-Ti/16", transformers.ViTForImageClassification(vit), (3, 224, 224)),
    ):
        theirs.eval().save_pretrained(folder / "encoder")
        ours = hw.hub.load_pretrained(folder / "encoder")
        quantised = hw.quantize(ours)
        for batch in (1, 32):
            inputs = torch.randint(1000, (batch, *shape)) if len(shape) == 1 else torch.randn(batch, *shape)

            def run(model: torch.nn.Module, inputs: torch.Tensor = inputs) -> Callable[[], object]:
                return torch.inference_mode()(lambda: model(inputs))

            runs = {"headwork float32": run(ours), "Hugging Face": run(theirs), "headwork int8": run(quantised)}
            take_turns(f"{name}, batch {batch}", runs, options.turns * (3 if batch == 1 else 1), clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--only", choices=["generation", "encoders", "families", "loading"])
    parser.add_argument("--family", action="append", choices=list(FAMILIES))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}, {options.clock} time,")
    print(f"transformers {transformers.__version__}, best of {options.turns} turns")
    print(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for part in (generation, encoders, families, loading):
        if options.only in (None, part.__name__):
            with tempfile.TemporaryDirectory() as folder:
                part(CLOCKS[options.clock], options, Path(folder))


if __name__ == "__main__":
    main()
