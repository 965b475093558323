"""Our encoder layer and small ViT against PyTorch's and Hugging Face's of the same size: `make bench`.

Float32, the threads PyTorch chooses. All contestants of a table take turns in one process; the figure is the best of
all turns, the ratio is to ours (above 1: the other one is slower), and the share is of the fastest matrix product in
the same turns.
"""

import argparse
import os
import platform
from collections.abc import Callable

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from contest import Contestant, contest
from torch import Tensor, nn
from transformers.models.bert.modeling_bert import BertLayer

import headwork as hw
from headwork.choices import ClassToken, FeedForward, Heads, LayerNorm


def training(model: nn.Module, *inputs: Tensor, pick: Callable[[object], Tensor] = lambda y: y) -> Callable[[], None]:
    """A forward and a backward pass, gradients to every parameter."""
    model.train()

    def run() -> None:
        model.zero_grad()
        pick(model(*inputs)).sum().backward()

    return run


def inference(model: nn.Module, *inputs: Tensor) -> Callable[[], object]:
    """A forward pass in eval() and no_grad()."""

    def run() -> object:
        model.eval()
        with torch.no_grad():
            return model(*inputs)

    return run


def encoder_layers(d_model: int, n_heads: int) -> dict[str, nn.Module]:
    d_ff = 4 * d_model
    bert = transformers.BertConfig(
        hidden_size=d_model,
        num_attention_heads=n_heads,
        intermediate_size=d_ff,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    return {
        "headwork EncoderLayer": hw.layers.EncoderLayer(
            d_model, heads=Heads(n_heads=n_heads), feed_forward=FeedForward(d_ff=d_ff), norm_order="post"
        ),
        "torch nn.TransformerEncoderLayer": nn.TransformerEncoderLayer(
            d_model, n_heads, d_ff, dropout=0.0, activation="gelu", batch_first=True
        ),
        "Hugging Face BertLayer": BertLayer(bert),
    }


class TorchViT(nn.Module):
    """The same ViT on nn.TransformerEncoder."""

    def __init__(self, config: hw.models.VisionTransformerConfig) -> None:
        super().__init__()
        d_model, d_ff = config.d_model, config.feed_forward.d_ff
        self.patches = nn.Conv2d(config.n_channels, d_model, config.patch, config.patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, d_model))
        self.positions = nn.Parameter(torch.randn(1, config.grid[0] * config.grid[1] + 1, d_model))
        layer = nn.TransformerEncoderLayer(
            d_model, config.heads.n_heads, d_ff, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, config.n_layers, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.classes = nn.Linear(d_model, config.n_classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.classes(self.encoder(x)[:, 0])


class HuggingFaceViT(nn.Module):
    """Hugging Face's ViT, answering with logits only."""

    def __init__(self, config: hw.models.VisionTransformerConfig) -> None:
        super().__init__()
        self.model = transformers.ViTForImageClassification(
            transformers.ViTConfig(
                image_size=config.image[0],
                patch_size=config.patch[0],
                num_channels=config.n_channels,
                hidden_size=config.d_model,
                num_hidden_layers=config.n_layers,
                num_attention_heads=config.heads.n_heads,
                intermediate_size=config.feed_forward.d_ff,
                num_labels=config.n_classes,
            )
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image).logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=30, help="turns of each contestant")
    n_turns = parser.parse_args().turns
    torch.manual_seed(0)
    print(
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__},"
    )
    print(f"transformers {transformers.__version__}, float32, best of {n_turns} turns")

    for batch, tokens, d_model, n_heads in ((8, 128, 512, 8), (32, 65, 192, 3)):
        layers = encoder_layers(d_model, n_heads)
        x = torch.randn(batch, tokens, d_model)
        flops = hw.cost(layers["headwork EncoderLayer"], x).flops
        size = f"batch {batch}, {tokens} tokens, d_model {d_model}, {n_heads} heads"
        contest(
            f"encoder layer, forward ({size})",
            [Contestant(name, inference(layer, x), flops) for name, layer in layers.items()],
            n_turns,
        )
        contest(
            f"encoder layer, forward + backward ({size})",
            [Contestant(name, training(layer, x, pick=first), 3 * flops) for name, layer in layers.items()],
            n_turns,
        )

    config = hw.models.VisionTransformerConfig(
        n_classes=10,
        image=(32, 32),
        patch=(4, 4),
        d_model=192,
        n_layers=6,
        heads=Heads(n_heads=3),
        feed_forward=FeedForward(d_ff=768),
        norm=LayerNorm(eps=1e-6),
        pooling=ClassToken(),
    )
    models = {
        "headwork VisionTransformer": hw.models.VisionTransformer(config),
        "torch nn.TransformerEncoder": TorchViT(config),
        "Hugging Face ViT": HuggingFaceViT(config),
    }
    image = torch.randn(32, 3, 32, 32)
    flops = hw.cost(models["headwork VisionTransformer"], image).flops
    contest(
        "small ViT, forward (batch 32, 32 x 32 pixels, patch 4, 6 layers, d_model 192, 3 heads)",
        [Contestant(name, inference(model, image), flops) for name, model in models.items()],
        n_turns,
    )
    contest(
        "small ViT, forward + backward (the same)",
        [Contestant(name, training(model, image), 3 * flops) for name, model in models.items()],
        n_turns,
    )


def first(output: object) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


if __name__ == "__main__":
    main()
