"""`headwork cost`."""

import json
from dataclasses import asdict, dataclass

from headwork.cli.model_argument import OfModel, fake_model


@dataclass(frozen=True)
class Cost(OfModel):
    """Count parameters, FLOPs and memory of a forward pass, and say which term dominates."""

    def run(self) -> None:
        from headwork.inspection import cost

        with fake_model(self) as (model, inputs):
            price = cost(model, *inputs)
        if not self.json:
            print(str(price))
            return
        summary = {
            "flops": price.flops,
            "by_operation": price.by_operation(),
            "crossover_tokens": price.crossover,
            "whole_crossover_tokens": price.whole_crossover,
        }
        print(json.dumps(summary | asdict(price), indent=2))
