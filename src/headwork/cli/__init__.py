"""The command line: `headwork COMMAND --help`. One file for each command; only one that needs PyTorch imports it."""

from headwork.cli.commands import main as main
