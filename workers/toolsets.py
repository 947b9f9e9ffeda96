"""Find a toolset by its entry point, or by its dotted path `package.module:attribute`."""

from functools import lru_cache
from importlib import import_module, metadata
from typing import Final

from flows.agent.tools import Toolset
from topics.errors import ConfigError

ENTRY_POINTS: Final = "sluice.toolsets"


@lru_cache
def load_toolset(name: str) -> Toolset:
    """Load a toolset once.

    Raises:
        ConfigError: There is none by that name, it cannot be imported, or it is something else.
    """
    try:
        found = _by_path(name) if ":" in name else _by_entry_point(name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"toolset {name!r} cannot be loaded: {error}") from error
    if not isinstance(found, Toolset):
        raise ConfigError(f"{name!r} is no toolset")
    return found


def _by_path(name: str) -> object:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _by_entry_point(name: str) -> object:
    known = metadata.entry_points(group=ENTRY_POINTS)
    if name not in known.names:
        raise ConfigError(f"no toolset {name!r}; installed are: {', '.join(sorted(known.names)) or 'none'}")
    return known[name].load()
