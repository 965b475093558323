"""`headwork convert`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headwork.convert import Conversion


@dataclass(frozen=True)
class Convert:
    """Turn the convolutions of a saved model into attention, or its Gaussian heads into convolutions."""

    folder: Annotated[Positional[Path], arg(help="A model saved by `hw.save`, or the folder of a run.")]
    out: Annotated[Path, arg(help="A new folder for the converted model.")]
    to: Annotated[
        Literal["attention", "convolution"] | None, arg(help="Which way; the one that the model allows, unless given.")
    ] = None
    tolerance: Annotated[
        float | None,
        arg(help="How far each layer may be off, for inputs in [-1, 1] (to attention); 1e-6 unless given."),
    ] = None
    kernel_size: Annotated[
        tuple[int, int] | None, arg(help="Rows and columns of each kernel (to convolution); 3 3 unless given.")
    ] = None
    images: Annotated[int, arg(help="Images on which the two models are compared.")] = 64
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.convert import convert
        from headwork.storage import load, save

        check_positive(images=self.images)
        if self.out.exists():
            raise ValueError(f"out must be a new folder, got {self.out}, which exists")
        model = load(self.folder)
        images, source = find_images_for(self.folder, model, self.images)
        how = self.find_way(model, (images.shape[2], images.shape[3]))
        converted = convert(model, how)
        found = {"images": len(images), "of": source, **compare(model, converted, images)}
        known = [layer["name"] for layer in layers_of(model)]
        layers = [layer for layer in layers_of(converted) if layer["name"] not in known]
        save(converted, self.out)
        if self.json:
            summary = {"out": str(self.out), "conversion": type(how).__name__, **found, "layers": layers}
            print(json.dumps(summary, indent=2))
        else:
            print("\n".join([*map(layer_in_words, layers), in_words(found), f"written to {self.out}"]))

    def find_way(self, model: "nn.Module", image: tuple[int, int]) -> "Conversion":
        from headwork.convert import ToAttention, ToConvolution
        from headwork.layers import GaussianAttention

        has_heads = any(isinstance(module, GaussianAttention) for module in model.modules())
        if self.to == "attention" or (self.to is None and not has_heads):
            if self.kernel_size is not None:
                raise ValueError(f"kernel_size is for the way to convolution, got {self.kernel_size} to attention")
            return ToAttention(tolerance=1e-6 if self.tolerance is None else self.tolerance)
        if self.tolerance is not None:
            raise ValueError(f"tolerance is for the way to attention, got {self.tolerance} to convolution")
        return ToConvolution(kernel_size=self.kernel_size or (3, 3), grid=getattr(model.config, "grid", image))


def find_images_for(folder: Path, model: "nn.Module", n_images: int) -> "tuple[Tensor, str]":
    """Test images of the run, or random ones of the model's size."""
    import torch

    from headwork.data import ImageBatch
    from headwork.models import GaussianImageEncoderConfig, ResNetConfig, VisionTransformerConfig
    from headwork.training.run import is_run, open_run

    config = model.config
    if not isinstance(config, GaussianImageEncoderConfig | VisionTransformerConfig | ResNetConfig):
        raise ValueError(f"folder must hold a model of images, got a {type(model).__name__}")
    if is_run(folder):
        test = open_run(folder).load_data().test
        batch = test.batch(range(min(n_images, len(test))))
        assert isinstance(batch, ImageBatch)
        return batch.image, "the run's test images"
    size = (32, 32) if isinstance(config, ResNetConfig) else config.image
    return torch.rand(n_images, config.n_channels, *size, generator=torch.Generator().manual_seed(0)), "random images"


def compare(model: "nn.Module", converted: "nn.Module", images: "Tensor") -> dict[str, Any]:
    """How far the two models' outputs are from each other, and whether they say the same."""
    import torch

    with torch.no_grad():
        before, after = model(images), converted(images)
    return {
        "largest_difference": (before - after).abs().max().item(),
        "largest_output": before.abs().max().item(),
        "same_predictions": int((before.argmax(-1) == after.argmax(-1)).sum()),
    }


def layers_of(converted: "nn.Module") -> list[dict[str, Any]]:
    """What is known of each new layer: its alpha, or its bound and how near its heads are to single pixels."""
    from headwork.convert import AttentionAsConvolution, ConvolutionAsAttention

    found: list[dict[str, Any]] = []
    for name, module in converted.named_modules():
        if isinstance(module, ConvolutionAsAttention):
            heads = module.attention
            found.append({"name": name, "heads": heads.n_heads, "alpha": heads.alpha.max().item()})
        elif isinstance(module, AttentionAsConvolution):
            bound, shares = module.error_bound.item(), module.single_pixel.tolist()
            found.append({"name": name, "error_bound": bound, "single_pixel": shares})
    return found


def layer_in_words(layer: dict[str, Any]) -> str:
    if "alpha" in layer:
        heads = "1 head" if layer["heads"] == 1 else f"{layer['heads']} heads"
        return f"{layer['name']}: {heads} with alpha {layer['alpha']:.2f}"
    shares = ", ".join(f"{share:.2f}" for share in layer["single_pixel"])
    return f"{layer['name']}: off by at most {layer['error_bound']:.2g} for inputs in [-1, 1]; largest pixels: {shares}"


def in_words(found: dict[str, Any]) -> str:
    return (
        f"on {found['images']} images ({found['of']}) the outputs differ by at most {found['largest_difference']:.2g}, "
        f"of up to {found['largest_output']:.3g}; {found['same_predictions']} predictions are the same"
    )
