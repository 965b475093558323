"""A training step of ours against those of others, each in a process of its own, as its users would start it.

`python benchmarks/training.py`: the small ViT and the character GPT of 0.8 million parameters. Every step draws a batch
from data in memory, goes forward, back, clips, and moves the weights. The processes take turns and wait for each other,
so only one works at a time; the number is the median step of the best turn of each.

`--without` takes something of ours away, to see what it brings: `memory` (mallopt), `fused` (the fused optimiser), or
`eager`, which compiles.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Step = Callable[[], object]
VOCAB, CONTEXT, BATCH = 107, 128, 16
IMAGES = 32


def our_gpt(without: str) -> Step:
    from headwork import choices
    from headwork.models import DecoderConfig

    config = DecoderConfig(
        vocab=VOCAB,
        d_model=128,
        n_layers=4,
        heads=choices.Heads(n_heads=4),
        feed_forward=choices.FeedForward(d_ff=512),
        position=choices.LearnedPositions(max_tokens=CONTEXT),
        dropout=0.0,
        attention_dropout=0.0,
    )
    return our_step("text-gpt", config, BATCH, without)


def our_vit(without: str) -> Step:
    from headwork import choices
    from headwork.models import VisionTransformerConfig

    config = VisionTransformerConfig(
        n_classes=10,
        image=(32, 32),
        patch=(4, 4),
        d_model=192,
        n_layers=6,
        heads=choices.Heads(n_heads=3),
        feed_forward=choices.FeedForward(d_ff=768),
    )
    return our_step("digits-vit", config, IMAGES, without)


def our_step(recipe: str, model: object, batch_size: int, without: str) -> Step:
    """The step of `headwork train`, with data of the size that the others have."""
    from headwork.data import BundledText, ImageBatch
    from headwork.recipes import find_recipe
    from headwork.tasks import Classification
    from headwork.training.checkpoints import Progress
    from headwork.training.loop import build_model, make_learner, take_step
    from headwork.training.machine import keep_memory, make_fabric
    from headwork.training.plan import Plan, training_batches
    from headwork.training.stopping import StopRequest

    config = find_recipe(recipe)
    training = replace(config.training, batch_size=batch_size, epochs=None, steps=10**6, compile=without == "eager")
    config = replace(config, model=model, training=training)
    if without != "memory":
        keep_memory()
    fabric = make_fabric(training)
    learner = make_learner(build_model(config), training, fabric)
    if without == "fused":
        for group in learner.optimiser.param_groups:
            group["fused"] = False
    if recipe == "text-gpt":
        data = BundledText(n_context=CONTEXT).load()
        examples, task = data.train, data.task
    else:
        examples, task = Photos(ImageBatch), Classification(tuple("0123456789"))
    plan = Plan.of(examples, training)
    batches = training_batches(plan, examples, 0)
    progress, stop = Progress(), StopRequest()
    return lambda: take_step(fabric, learner, task, next(batches), plan, progress, stop)


class Photos:
    """Noise of the size of CIFAR-10's images."""

    def __init__(self, kind: type) -> None:
        generator = torch.Generator().manual_seed(0)
        self.kind = kind
        self.images = torch.rand(2048, 3, 32, 32, generator=generator)
        self.labels = torch.randint(10, (2048,), generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: list[int], epoch: int | None = None) -> object:
        chosen = torch.tensor(indices)
        return self.kind(self.images[chosen], self.labels[chosen])


def plain_loop(model: nn.Module, loss: Callable[[], Tensor]) -> Step:
    """The loop that everybody writes."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()

    def step() -> None:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        value.item()

    return step


def some_text() -> Callable[[], tuple[Tensor, Tensor]]:
    """Random windows of a text, as nanoGPT draws them."""
    text = torch.randint(VOCAB, (400_000,), generator=torch.Generator().manual_seed(0))

    def draw() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - CONTEXT, (BATCH,)).tolist()
        return (
            torch.stack([text[i : i + CONTEXT] for i in starts]),
            torch.stack([text[i + 1 : i + 1 + CONTEXT] for i in starts]),
        )

    return draw


def hugging_face_gpt(_: str) -> Step:
    import transformers

    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCAB,
            n_positions=CONTEXT,
            n_embd=128,
            n_layer=4,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    draw = some_text()

    def loss() -> Tensor:
        ids, following = draw()
        return F.cross_entropy(model(ids).logits.flatten(0, 1), following.flatten())

    return plain_loop(model, loss)


def nano_gpt(_: str) -> Step:
    """nanoGPT's model and loop, written out plainly."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)

        def forward(self, x: Tensor) -> Tensor:
            n, t, d = x.shape
            q, k, v = (part.view(n, t, 4, 32).transpose(1, 2) for part in self.qkv(x).split(128, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).contiguous().view(n, t, d))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2, self.attention = nn.LayerNorm(128), nn.LayerNorm(128), Attention()
            self.mlp = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lm_head, self.places = nn.Embedding(VOCAB, 128), nn.Embedding(CONTEXT, 128)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(4)), nn.LayerNorm(128)
            self.head = nn.Linear(128, VOCAB, bias=False)
            self.head.weight = self.lm_head.weight

        def forward(self, ids: Tensor) -> Tensor:
            x = self.lm_head(ids) + self.places(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model, draw = GPT(), some_text()

    def loss() -> Tensor:
        ids, following = draw()
        return F.cross_entropy(model(ids).flatten(0, 1), following.flatten())

    return plain_loop(model, loss)


def hugging_face_vit(_: str) -> Step:
    import transformers

    model = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=192,
            num_hidden_layers=6,
            num_attention_heads=3,
            intermediate_size=768,
            image_size=32,
            patch_size=4,
            num_labels=10,
        )
    )
    photos = Photos(tuple)

    def loss() -> Tensor:
        chosen = torch.randint(len(photos), (IMAGES,))
        return F.cross_entropy(model(photos.images[chosen]).logits, photos.labels[chosen])

    return plain_loop(model, loss)


CONTESTS: dict[str, dict[str, Callable[[str], Step]]] = {
    "GPT of 0.8 M (batch 16, 128 tokens)": {
        "headwork": our_gpt,
        "nanoGPT, plainly": nano_gpt,
        "Hugging Face GPT-2": hugging_face_gpt,
    },
    "small ViT (batch 32, 32 x 32 pixels, patch 4)": {"headwork": our_vit, "Hugging Face ViT": hugging_face_vit},
}


def work(contest: str, name: str, without: str, n_steps: int) -> None:
    """In a process of its own: a turn of steps for each line that comes in."""
    torch.manual_seed(0)
    step = CONTESTS[contest][name](without)
    for _ in range(3):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        seconds = []
        for _ in range(n_steps):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        print(statistics.median(seconds), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--without", choices=["nothing", "memory", "fused", "eager"], default="nothing")
    parser.add_argument("--worker", nargs=2)
    arguments = parser.parse_args()
    if arguments.worker:
        work(*arguments.worker, arguments.without, arguments.steps)
        return
    for contest, contestants in CONTESTS.items():
        again = [
            sys.executable,
            __file__,
            "--without",
            arguments.without,
            "--steps",
            str(arguments.steps),
            "--worker",
            contest,
        ]
        workers = {name: start([*again, name]) for name in contestants}
        best = dict.fromkeys(workers, float("inf"))
        for _ in range(arguments.turns):
            for name, worker in workers.items():
                best[name] = min(best[name], take_turn(worker))
        for worker in workers.values():
            worker.kill()
        print(f"\n{contest}, {torch.get_num_threads()} threads")
        for name, seconds in best.items():
            print(f"  {name:<20} {1e3 * seconds:8.2f} ms   {seconds / best['headwork']:5.2f}x")


def start(command: list[str]) -> "subprocess.Popen[str]":
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    while worker.stdout.readline().strip() != "ready":
        if worker.poll() is not None:
            raise RuntimeError(f"{command[-1]} did not start")
    return worker


def take_turn(worker: "subprocess.Popen[str]") -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


if __name__ == "__main__":
    main()
