"""`headwork export`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from headwork.cli.arguments import Imports, load_model


@dataclass(frozen=True)
class Export(Imports):
    """Write a model as one file for other programs, run the file, and say how far its answers are from the model's."""

    model: Annotated[Positional[str], arg(help="The folder of a run or model, ours or Hugging Face's, or a GGUF file.")]
    out: Annotated[Path, arg(help="A new file: .onnx for ONNX, .pt2 for a program of torch.export.")]
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.convert import has_lora, merge_lora
        from headwork.hub import export

        if self.out.suffix not in (".onnx", ".pt2"):
            raise ValueError(f"out must end in .onnx or .pt2, got {self.out}")
        if self.out.exists():
            raise ValueError(f"out must be a new file, got {self.out}, which exists")
        print(f"exporting {self.model}: this takes a while", file=sys.stderr, flush=True)
        model = load_model(self.model, self.own_classes)
        done = export(merge_lora(model) if has_lora(model) else model, self.out)
        numbers = {name: getattr(done, name) for name in ("inputs", "largest_difference", "largest_output", "cache")}
        print(json.dumps({"file": str(done.file), **numbers}) if self.json else done)
