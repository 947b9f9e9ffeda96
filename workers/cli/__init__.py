"""The `sluice` command."""

from workers.cli.main import main

__all__ = ["main"]
