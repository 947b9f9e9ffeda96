"""The policy file as it is on the disk."""

import tomllib
from pathlib import Path
from typing import Any

from topics.errors import ConfigError


def read_policy_file(path: Path) -> dict[str, Any]:
    """The content of a policy file (TOML).

    Raises:
        ConfigError: It is not there, or no TOML. The message says where.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the policy file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the policy file {path} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the policy file {path} is no TOML: {error}") from error


def keys_path(policy_file: Path, keys: str) -> Path:
    """Where a key set is that a policy names: beside the file, unless its path is absolute."""
    return policy_file.parent / keys
