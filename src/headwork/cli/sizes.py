"""`headwork sizes`."""

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg


@dataclass(frozen=True)
class Sizes:
    """List the published models that are known by name."""

    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.configs import config_to_dict
        from headwork.models import SIZES

        if self.json:
            print(json.dumps({name: config_to_dict(config) for name, config in SIZES.items()}, indent=2))
        else:
            print(
                "\n".join(
                    f"{name:<18} {type(config).__name__.removesuffix('Config')}" for name, config in SIZES.items()
                )
            )
