"""Folders: made, absolute, and named when they are no use."""

from pathlib import Path

import pytest

from infra.local.folders import writable_folder
from topics.errors import ConfigError


def test_a_folder_is_made_and_given_back_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert writable_folder(Path("a/b"), setting="data_dir") == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=rf"{tmp_path}/file/data cannot be written to .*another cache_dir"):
        writable_folder(tmp_path / "file" / "data", setting="cache_dir")
