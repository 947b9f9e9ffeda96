"""A figure that must hold, and the error for one that does not."""

from collections.abc import Mapping
from typing import Any


class FigureError(Exception):
    """A bound is broken. `figures` is what was measured all the same."""

    def __init__(self, message: str, figures: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.figures = dict(figures)


def hold(figures: Mapping[str, Any], **bounds: bool) -> dict[str, Any]:
    """Give the figures back when every bound holds.

    Raises:
        FigureError: Names each bound that does not.
    """
    broken = [name for name, holds in bounds.items() if not holds]
    if broken:
        raise FigureError(", ".join(broken), figures)
    return dict(figures)
