"""Programs by strangers: how many candidates are found, how many can be called, and what is said of them.

python -m benchmarks.strangers FOLDER [--log FILE [--resume | --table]] [--only TEXT ...]

FOLDER has a checkout of each repository as OWNER/NAME or OWNER+NAME (git clone https://github.com/OWNER/NAME); one that
is not there is left out. Nothing of them is kept but the answers, and their code runs in processes of its own.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from headwork.checking import check_file
from headwork.checking.runner import ForkServer, ProgramDiedError, ProgramError, Walls

REPOSITORIES: dict[str, tuple[str, ...]] = {
    "a-r-r-o-w/attention-is-all-you-need": ("models/*.py",),
    "affjljoo3581/GPT2": ("src/gpt2/modeling/*.py",),
    "ajhalthor/Transformer-Neural-Network": ("*.ipynb", "transformer.py"),
    "AkiRusProd/numpy-transformer": (
        "transformer/activations.py",
        "transformer/layers/combined/*.py",
        "transformer/layers/base/layer_norm.py",
    ),
    "aladdinpersson/Machine-Learning-Collection": (
        "ML/Pytorch/more_advanced/transformer_from_scratch/transformer_from_scratch.py",
    ),
    "alan-cooney/transformer-from-scratch": ("transformer_from_scratch/components/*.py",),
    "anenbergb/BERT-from-scratch": ("bert/model.py",),
    "arxyzan/vanilla-transformer": ("model.py",),
    "AtriSaxena/ML_Model_Architectures": ("Transformers_from_scratch/Transformers.py",),
    "benisalla/Tiny-ViT-Transformer-from-scratch": ("tiny_vit_transformer_from_scratch/model/*.py",),
    "bentrevett/pytorch-seq2seq": ("legacy/6 - Attention is All You Need.ipynb",),
    "bkitano/llama-from-scratch": ("llama.ipynb",),
    "brandokoch/attention-is-all-you-need-paper": ("src/architectures/*.py",),
    "cauphenuny/cs336": ("assignment1-basics/cs336_basics/network/*.py",),
    "Chiang0111/transformer-from-scratch-pytorch": ("transformer/*.py",),
    "codertimo/BERT-pytorch": ("bert_pytorch/model/*.py", "bert_pytorch/model/*/*.py"),
    "csd81/attention-is-all-you-need-numpy": ("transformer.py",),
    "cyyueyang/llama-from-scratch": ("src/model/*.py",),
    "d2l-ai/d2l-en": ("d2l/torch.py",),
    "davidgonmar/attention-is-all-you-need": ("model.py",),
    "devjwsong/transformer-translator-pytorch": ("src/layers.py", "src/transformer.py"),
    "DiptanshuMahakud/Transformer_From_Scratch": ("model.py",),
    "donglinkang2021/cs336-assignment1-basics": ("cs336_basics/model.py", "cs336_basics/nn_utils.py"),
    "dreamgonfly/transformer-pytorch": ("models.py", "embeddings.py", "losses.py"),
    "emnzn/ViT-from-scratch": ("src/utils/vit.py",),
    "epfml/attention-cnn": ("models/bert.py",),
    "ES7/BERT-from-Scratch": ("bert_model.py",),
    "ES7/Transformer-from-Scratch": ("model.py",),
    "evintunador/minLlama3": ("model.py",),
    "facebookresearch/dino": ("vision_transformer.py",),
    "FareedKhan-dev/train-llm-from-scratch": ("src/models/*.py",),
    "farhad-dalirani/vision-transformer-from-scratch": ("src/vision_transformer/model/*.py",),
    "feather-ai/transformers-tutorial": ("layers/*.py",),
    "FrancescoSaverioZuppichini/ViT": ("README.ipynb",),
    "friendshipkim/transformer-from-scratch": ("model/*/*.py", "model/*.py"),
    "gianlucagiudice/ViT-from-scratch": ("transformer_scratch/*.py",),
    "gordicaleksa/pytorch-original-transformer": (
        "models/definitions/transformer_model.py",
        "The Annotated Transformer ++.ipynb",
    ),
    "graykode/nlp-tutorial": ("5-1.Transformer/*.py", "5-2.BERT/BERT.py", "5-1.Transformer/Transformer.ipynb"),
    "H0rvex/transformer-from-scratch": ("src/transformer/models/*.py",),
    "harvardnlp/annotated-transformer": ("the_annotated_transformer.py",),
    "henok3878/transformer-from-scratch": (
        "src/transformer/components/*.py",
        "src/transformer/components/base/*.py",
        "src/transformer/transformer.py",
    ),
    "hkproj/pytorch-llama": ("model.py",),
    "hkproj/pytorch-stable-diffusion": ("sd/attention.py", "sd/clip.py"),
    "hkproj/pytorch-transformer": ("model.py",),
    "HyeonHo99/Transformer-scratch": ("*.py",),
    "hyunwoongko/transformer": ("models/*/*.py",),
    "jadore801120/attention-is-all-you-need-pytorch": ("transformer/[LMS]*.py",),
    "jaymody/picoGPT": ("gpt2.py", "gpt2_pico.py"),
    "jeonsworld/ViT-pytorch": ("models/modeling.py",),
    "jsbaan/transformer-from-scratch": (
        "decoder.py",
        "encoder.py",
        "multi_head_attention.py",
        "positional_encodings.py",
        "transformer.py",
    ),
    "karpathy/build-nanogpt": ("train_gpt2.py",),
    "karpathy/llama2.c": ("model.py",),
    "karpathy/makemore": ("makemore.py",),
    "karpathy/minGPT": ("mingpt/model.py",),
    "karpathy/nanoGPT": ("model.py",),
    "karpathy/ng-video-lecture": ("gpt.py", "bigram.py"),
    "labmlai/annotated_deep_learning_paper_implementations": (
        "labml_nn/transformers/mha.py",
        "labml_nn/transformers/models.py",
        "labml_nn/transformers/feed_forward.py",
        "labml_nn/transformers/positional_encoding.py",
        "labml_nn/transformers/rope/__init__.py",
        "labml_nn/transformers/alibi/__init__.py",
        "labml_nn/transformers/vit/__init__.py",
        "labml_nn/lora/gpt2.py",
        "labml_nn/normalization/layer_norm/__init__.py",
    ),
    "le0ff/transformer-from-scratch": ("src/layers/*.py",),
    "leviswind/pytorch-transformer": ("modules.py", "AttModel.py"),
    "lilianweng/transformer-tensorflow": ("transformer.py",),
    "lucidrains/vit-pytorch": (
        "vit_pytorch/vit.py",
        "vit_pytorch/simple_vit.py",
        "vit_pytorch/cait.py",
        "vit_pytorch/na_vit.py",
        "vit_pytorch/deepvit.py",
    ),
    "lucidrains/x-transformers": ("x_transformers/x_transformers.py", "x_transformers/attend.py"),
    "MatinKhajavi/GPT-from-scratch": ("gpt_from_scratch/models/*.py",),
    "MattiaSarti/transformer-from-scratch": ("transformer/architecture/*.py",),
    "meta-llama/llama": ("llama/model.py",),
    "MislavJuric/transformer-from-scratch": ("layers/*.py", "models/*.py"),
    "naokishibuya/simple_transformer": ("simple_transformer/modules/*.py",),
    "neetmehta/Transformer-from-scratch-in-pytorch": ("model.py",),
    "NicoZenith/Transformers": ("transformer_layers.py",),
    "openai/whisper": ("whisper/model.py",),
    "pbloem/former": ("former/modules.py", "former/transformers.py"),
    "phlippe/uvadlc_notebooks": ("docs/tutorial_notebooks/tutorial6/Transformers_and_MHAttention.ipynb",),
    "Pratt33/Transformer-from-scratch-in-PyTorch": ("model/*/*.py",),
    "PravCoder/Transformer-From-Scratch-Attention-Is-All-You-Need-Paper-Implementation": ("utils/*.py",),
    "pyemma/gpt-from-scratch": ("model/*.py",),
    "rasbt/LLMs-from-scratch": (
        "ch03/01_main-chapter-code/multihead-attention.ipynb",
        "ch03/01_main-chapter-code/ch03.ipynb",
        "ch03/02_bonus_efficient-multihead-attention/mha-implementations.ipynb",
        "ch04/01_main-chapter-code/gpt.py",
        "ch04/01_main-chapter-code/ch04.ipynb",
        "ch04/04_gqa/gpt_with_kv_gqa.py",
        "ch05/07_gpt_to_llama/standalone-llama32.ipynb",
    ),
    "roeehendel/cs336-assignment1-basics": ("cs336_basics/models/*.py",),
    "s-chh/PyTorch-Scratch-Vision-Transformer-ViT": ("model.py",),
    "SamLynnEvans/Transformer": ("Embed.py", "Layers.py", "Models.py", "Sublayers.py"),
    "sgrvinod/a-PyTorch-Tutorial-to-Transformers": ("model.py",),
    "soorajks2002/MakeMore-GPT": ("*self-attention.py", "masked-multi-head-attention.py", "model.py"),
    "stephen/stanford-cs336": (
        "assignment1-basics/cs336_basics/*attention.py",
        "assignment1-basics/cs336_basics/r*.py",
        "assignment1-basics/cs336_basics/s[ow]*.py",
        "assignment1-basics/cs336_basics/transformer*.py",
        "assignment1-basics/cs336_basics/cross_entropy_loss.py",
    ),
    "stevebottos/transformer-from-scratch": ("transformers_from_scratch/*.py",),
    "tanjeffreyz/attention-is-all-you-need": ("modules/*.py",),
    "timotheegath/gpt-from-scratch-arena1.1": ("custom_transformer.py",),
    "tintn/vision-transformer-from-scratch": ("vit.py",),
    "tommasocarraro/Transformer-from-scratch": ("src/net/*.py",),
    "tunz/transformer-pytorch": ("model/transformer.py",),
    "unnicolo/transformer-from-scratch": ("model/*.py",),
    "Varun0157/transformer-from-scratch": ("src/model/*.py",),
    "winoo19/ViT-from-scratch": ("src/*.py",),
    "wmathor/nlp-tutorial": ("5-1.Transformer/Transformer_Torch.py", "5-2.BERT/BERT-Torch.py"),
    "zli12/cs336-hw1": ("cs336_basics/nn.py", "cs336_basics/transformer.py"),
}
"""Public teaching repositories, and the files of each that hold attention code."""


def files_of(folder: Path, repository: str) -> list[Path]:
    home = next((h for h in (folder / repository, folder / repository.replace("/", "+")) if h.is_dir()), None)
    if home is None:
        return []
    found = {p for pattern in REPOSITORIES[repository] for p in home.glob(pattern)}
    return sorted(p for p in found if p.name != "__init__.py" or f"{p.parent.name}/__init__.py" in str(REPOSITORIES))


def run(server: ForkServer, path: Path) -> dict[str, Any]:
    start = time.monotonic()
    record: dict[str, Any] = {"reports": [], "said": ""}
    try:
        reports = check_file(path, server=server, walls=Walls(seconds=10), seed=1)
        record["reports"] = [
            {
                "name": r.name,
                "subject": r.subject,
                "verdict": r.verdict,
                "sentence": r.sentence,
                "read as": list(r.read_as),
                "line": r.findings[0].line.text if r.findings and r.findings[0].line else "",
            }
            for r in reports
        ]
    except (ValueError, ProgramDiedError, ProgramError) as error:  # in words
        record["said"] = str(error)
    except Exception as error:  # a defect of ours: counted
        record["said"] = f"crashed: {type(error).__name__}: {error}"
    return {**record, "seconds": round(time.monotonic() - start, 1)}


def table(records: list[dict[str, Any]]) -> str:
    rows = ["| repository | files | found | adapted | right | wrong | not known |", "|---" * 7 + "|"]
    total: Counter[str] = Counter()
    for repository in dict.fromkeys(r["repository"] for r in records):
        own = [r for r in records if r["repository"] == repository]
        verdicts = Counter(report["verdict"] for r in own for report in r["reports"])
        adapted = verdicts["right"] + verdicts["wrong"] + verdicts["unknown"]
        counts = {"files": len(own), "found": sum(verdicts.values()), "adapted": adapted, **verdicts}
        total.update(counts)
        rows.append(_row(repository, Counter(counts)))
    crashes = [r for r in records if r["said"].startswith("crashed")]
    return "\n".join([*rows, _row("all", total)]) + f"\n\n{len(crashes)} crashed"


def _row(name: str, counts: Counter[str]) -> str:
    numbers = ("files", "found", "adapted", "right", "wrong", "unknown")
    return "| " + " | ".join([name, *(str(counts[n]) for n in numbers)]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--table", action="store_true", help="print the table of the log, and run nothing")
    parser.add_argument("--only", nargs="+", default=[""], help="repositories and files with one of these texts")
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    if options.log.exists() and (options.resume or options.table):
        records = [json.loads(line) for line in options.log.read_text(encoding="utf-8").splitlines()]
    elif options.log.exists():
        options.log.unlink()
    done = {(r["repository"], r["file"]) for r in records}
    with ForkServer() as server:
        for repository in () if options.table else REPOSITORIES:
            for path in files_of(options.folder, repository):
                key = (repository, path.name if path.parent.name in repository else f"{path.parent.name}/{path.name}")
                if key in done or not any(text in f"{repository}/{key[1]}" for text in options.only):
                    continue
                record = {"repository": key[0], "file": key[1], **run(server, path)}
                records.append(record)
                with options.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
    print(table(records))


if __name__ == "__main__":
    main()
