"""Size and memory of a CNN beside a Vision Transformer: question 3(b) of the C182 sheet.

    OMP_NUM_THREADS=1 python -m benchmarks.cnn_beside_vit

The networks of the recipes, which docs/results.md trains. Kept is what one image leaves for the backward pass, counted;
held is the most memory at once while one image is classified without gradients, beyond the weights, measured by
PyTorch's own record. FLOPs are of one image, forward.
"""

import torch
from benchmarks.gaussian import peak_bytes

import headwork as hw
from headwork.models import ResNetConfig, VisionTransformerConfig, describe
from headwork.recipes import find_recipe

PAIRS = ("digits-resnet", "digits-vit"), ("cifar10-resnet", "cifar10-vit")
KIB = 1024


@torch.no_grad()
def held(model: torch.nn.Module, image: torch.Tensor) -> int:
    """The most memory at once for one image, the second time: the first may set something up."""
    model(image)
    return peak_bytes(lambda: model(image))


def main() -> None:
    print("| network | weights | MFLOPs | kept for the backward pass, KiB | held to classify, KiB |")
    print("|---|---|---|---|---|")
    for name in (name for pair in PAIRS for name in pair):
        config = find_recipe(name).model
        assert isinstance(config, ResNetConfig | VisionTransformerConfig)
        model = config.build().eval()
        about = describe(model)
        image = torch.rand(1, about.n_channels or 1, *(about.image or (32, 32)))
        found = hw.inspection.cost(model, image)
        weights = sum(p.numel() for p in model.parameters())
        memory = f"{found.activation_bytes / KIB:,.0f} | {held(model, image) / KIB:,.0f}"
        print(f"| {name} | {weights:,} | {found.flops / 1e6:,.1f} | {memory} |", flush=True)


if __name__ == "__main__":
    main()
