"""`headwork models`."""

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg


@dataclass(frozen=True)
class Models:
    """List the published models that are known by name."""

    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    def run(self) -> None:
        from headwork.models import PUBLISHED
        from headwork.serialise import config_to_dict

        if self.json:
            print(json.dumps({name: config_to_dict(config) for name, config in PUBLISHED.items()}, indent=2))
        else:
            print(
                "\n".join(
                    f"{name:<18} {type(config).__name__.removesuffix('Config')}" for name, config in PUBLISHED.items()
                )
            )
