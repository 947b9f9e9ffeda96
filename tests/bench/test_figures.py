"""The file of figures."""

import json
from pathlib import Path

from bench.__main__ import SECTIONS, keep


def test_a_section_that_is_measured_replaces_what_the_file_said_of_it_and_nothing_else(tmp_path: Path):
    path = tmp_path / "deep" / "bench.json"
    keep(path, {"rivals": {"rows": [1]}, "latency": {"p50": 1}})
    keep(path, {"rivals": {"rows": [2]}})
    assert json.loads(path.read_text()) == {"rivals": {"rows": [2]}, "latency": {"p50": 1}}


def test_the_sections_are_those_that_the_papers_name():
    assert {"rivals", "engine", "slow-queries", "latency", "latency-flood"} <= set(SECTIONS)
