"""Pictures that can be read, made from figures as the sections write them."""

import json
from pathlib import Path
from xml.dom import minidom

import pytest

from bench.pictures import FIGURES, Bar, Group, chart, draw
from topics.errors import ConfigError


def engine(name: str, handler: str, slots: int, share: float | None) -> dict:
    return {
        "engine": name,
        "handler": handler,
        "slots": slots,
        "records_per_s": 1000.0,
        "share_of_ideal": share,
        "cpu_us_per_record": 100,
    }


def question(processes: int, seconds: float) -> dict:
    return {"processes": processes, "model_seconds": 1.0, "queries": 100, "seconds": seconds, "cpu_ms_per_query": 20.0}


FOUND = {
    "rivals": {
        "rows": [
            engine(name, handler, 256, share)
            for name in ("Sluice", "<rival>")
            for handler, share in (("no-op", None), ("50 ms", 0.5), ("1 s", 1.0))
        ]
    },
    "slow_queries": {"rows": [question(0, 5.0), question(1, 5.0), question(2, 4.0)]},
    "latency_flood": {"alone_ms": {"p50": 30, "p99": 60}, "flooded_ms": {"p50": 40, "p99": 90}, "tickets": 50_000},
}


def elements(svg: str, name: str) -> list[minidom.Element]:
    return minidom.parseString(svg).getElementsByTagName(name)  # noqa: S318 -- our own pictures


def texts(svg: str) -> list[str]:
    return [element.firstChild.data for element in elements(svg, "text")]


def test_each_section_with_figures_gets_its_pictures_and_the_figures_lie_beside(tmp_path: Path):
    figures, folder = tmp_path / "bench.json", tmp_path / "figures"
    figures.write_text(json.dumps(FOUND))
    written = draw(figures, folder)
    assert [path.name for path in written] == [
        "engine-no-op.svg",
        "engine-50-ms.svg",
        "engine-1-s.svg",
        "questions.svg",
        "decisions.svg",
        FIGURES,
    ]
    assert json.loads((folder / FIGURES).read_text()) == FOUND
    for path in written[:-1]:
        assert len(texts(path.read_text())) > 4
    assert "<rival>" in texts((folder / "engine-1-s.svg").read_text())


def test_a_section_that_was_not_measured_leaves_its_pictures_alone(tmp_path: Path):
    figures = tmp_path / "bench.json"
    figures.write_text(json.dumps({"slow_queries": FOUND["slow_queries"]}))
    assert [path.name for path in draw(figures, tmp_path / "figures")] == ["questions.svg", FIGURES]


def test_without_figures_it_says_where_they_come_from(tmp_path: Path):
    with pytest.raises(ConfigError, match="make bench"):
        draw(tmp_path / "none.json", tmp_path)


def test_bars_are_as_long_as_their_values_and_the_line_stands_at_its_mark():
    svg = chart("t", "n", [Group("g", [Bar("a", 1.0, "1"), Bar("b", 0.5, "0.5")], mark=2.0)])
    longer, shorter = (float(bar.getAttribute("width")) for bar in elements(svg, "rect"))
    assert longer == pytest.approx(2 * shorter)
    (line,) = elements(svg, "path")
    start = float(elements(svg, "rect")[0].getAttribute("x"))
    assert float(line.getAttribute("d")[1:].split(" ")[0]) == pytest.approx(start + 2 * longer)
