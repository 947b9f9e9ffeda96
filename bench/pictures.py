"""Figures -> pictures: bars as plain SVG, in tones that can be read on a light and on a dark page.

No style follows the reader's system, since a page may have a theme of its own and an image does not hear of it.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from topics.errors import ConfigError

FOLDER: Final = Path("docs/figures")
FIGURES: Final = "bench.json"

WIDTH: Final = 880
LABELS: Final = 250
BAR: Final = 400
STEP: Final = 22
GROUP: Final = 34
TOP: Final = 58
TEXT: Final = "#707a85"
OURS: Final = "#1f8a70"
OTHER: Final = "#8a94a0"
GOAL: Final = "#d9822b"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: how long, what stands behind it, and whether it is one of ours."""

    label: str
    value: float
    shown: str
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Bars under one heading, drawn to one scale. `mark` is a line across them, such as the ideal."""

    name: str
    bars: Sequence[Bar]
    mark: float | None = None

    @property
    def longest(self) -> float:
        """What the full width stands for."""
        return max([bar.value for bar in self.bars] + [self.mark or 0.0]) or 1.0


def draw(figures: Path, folder: Path = FOLDER) -> list[Path]:
    """Draw what the file has figures for, and put the file beside the pictures. Returns what was written.

    Raises:
        ConfigError: There is no such file.
    """
    if not figures.exists():
        raise ConfigError(f"no figures at {figures}: `make bench` writes them")
    found: dict[str, Any] = json.loads(figures.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for section, pictures in PICTURES.items():
        for name, picture in pictures.items():
            if section in found:
                path = folder / f"{name}.svg"
                path.write_text(picture(found[section]))
                written.append(path)
    if figures.resolve() != (folder / FIGURES).resolve():
        shutil.copyfile(figures, folder / FIGURES)
    return [*written, folder / FIGURES]


def chart(title: str, note: str, groups: Sequence[Group]) -> str:
    """An SVG document of groups of bars, from top to bottom."""
    lines, y = [_text(0, 20, title, size=17, weight=600), _text(0, 42, note)], TOP
    for group in groups:
        lines.append(_text(0, y + 18, group.name, weight=600))
        y += GROUP
        lines += _bars(group, y)
        y += STEP * len(group.bars) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" '
        f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n<title>{escape(title)}</title>\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def _bars(group: Group, top: int) -> list[str]:
    lines: list[str] = []
    for number, bar in enumerate(group.bars):
        y, width = top + STEP * number, max(1.0, BAR * bar.value / group.longest)
        lines.append(_text(LABELS - 10, y + 12, bar.label, anchor="end", weight=600 if bar.ours else 400))
        lines.append(f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="16" rx="2" fill="{OURS if bar.ours else OTHER}"/>')
        # In a column of their own: the line of a mark must not go through them.
        lines.append(_text(LABELS + BAR + 16, y + 12, bar.shown, weight=600 if bar.ours else 400))
    if group.mark is not None:
        x, bottom = LABELS + BAR * group.mark / group.longest, top + STEP * len(group.bars) - 2
        lines.append(f'<path d="M{x:.1f} {top - 4}V{bottom}" stroke="{GOAL}" stroke-width="2" stroke-dasharray="4 3"/>')
    return lines


def _text(x: float, y: float, text: str, *, size: int = 13, weight: int = 400, anchor: str = "start") -> str:
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{TEXT}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _no_op(section: dict[str, Any]) -> str:
    rows = [row for row in section["rows"] if row["handler"] == "no-op" and not row["engine"].startswith("aiokafka")]
    groups = [
        Group(f"{slots:,} slots", [_engine(row, row["records_per_s"], f"{row['records_per_s']:,.0f}") for row in chosen])
        for slots, chosen in _by_slots(rows)
    ]
    return chart(
        "Handlers that do nothing: records a second, one process",
        "Same broker, topic, records and handlers. Longer is better.",
        groups,
    )


def _waiting(handler: str) -> Callable[[dict[str, Any]], str]:
    def picture(section: dict[str, Any]) -> str:
        rows = [row for row in section["rows"] if row["handler"] == handler and row["engine"] != "FastStream subscriber"]
        groups = [
            Group(
                f"{slots:,} slots",
                [_engine(row, row["share_of_ideal"], f"{row['share_of_ideal']:.0%}") for row in chosen],
                mark=1.0,
            )
            for slots, chosen in _by_slots(rows)
        ]
        note = "Same broker, topic, records and handlers. The line is what the slots could do if nothing but handlers took time."
        return chart(f"Handlers of {handler}: share of the ideal rate, one process", note, groups)

    return picture


def _by_slots(rows: Iterable[dict[str, Any]]) -> list[tuple[int, list[dict[str, Any]]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["slots"], []).append(row)
    return sorted(found.items())


def _engine(row: dict[str, Any], value: float, shown: str) -> Bar:
    return Bar(
        row["engine"], value, f"{shown} ({row['cpu_us_per_record']:,} us CPU a record)", ours=row["engine"].startswith("Sluice")
    )


def _pipeline(section: dict[str, Any]) -> str:
    rows = [row for row in section["rows"] if row["model_seconds"] == 1.0]
    firsts = list({row["processes"]: row for row in reversed(rows)}.values())[::-1]
    names = {0: "bare graph, no Kafka", 1: "Sluice, 1 process"}
    rates = [_process(row, names, row["queries"] / row["seconds"], "{:.0f}") for row in firsts]
    costs = [_process(row, names, row["cpu_ms_per_query"], "{:.1f} ms") for row in firsts]
    note = "Kafka, lease, graph, checkpoints in Redis, streamed answer; the model takes 1 s; 200 slots in all."
    return chart(
        "Whole questions, from the topic to the answer",
        note,
        [Group("Questions a second", rates), Group("CPU per question", costs)],
    )


def _process(row: dict[str, Any], names: dict[int, str], value: float, form: str) -> Bar:
    count = row["processes"]
    return Bar(names.get(count, f"Sluice, {count} processes"), value, form.format(value), ours=count > 0)


def _decisions(section: dict[str, Any]) -> str:
    alone, flooded = section["alone_ms"], section["flooded_ms"]
    flood = f"while {section['tickets']:,} tickets flood in"
    groups = [
        Group(f"{name} (goal: {goal} ms alone)", [_wait("alone", alone[name]), _wait(flood, flooded[name])], mark=goal)
        for name, goal in (("p50", 50), ("p99", 250))
    ]
    return chart("From a person's decision to the tool that runs", "Milliseconds; shorter is better. The line is the goal.", groups)


def _wait(label: str, value_ms: float) -> Bar:
    return Bar(label, value_ms, f"{value_ms:,.0f} ms", ours=True)


PICTURES: Final[dict[str, dict[str, Callable[[dict[str, Any]], str]]]] = {
    "rivals": {"engine-no-op": _no_op, "engine-50-ms": _waiting("50 ms"), "engine-1-s": _waiting("1 s")},
    "slow_queries": {"questions": _pipeline},
    "latency_flood": {"decisions": _decisions},
}
