"""Toolsets that ship with Sluice. A file each; `pyproject.toml` names them as entry points."""
