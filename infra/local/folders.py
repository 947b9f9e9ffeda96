"""Folders that servers and caches write to."""

from pathlib import Path

from topics.errors import ConfigError


def writable_folder(path: Path, *, setting: str) -> Path:
    """Make a folder and see that it can be written to. Returns it as an absolute path.

    Raises:
        ConfigError: It cannot be made, or written to. `setting` is named, so that it can be changed.
    """
    folder = path.absolute()
    marker = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
        marker.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"folder {folder} cannot be written to ({error.strerror}): choose another {setting}") from error
    return folder
