"""A run as one JSON object, and as a page for people."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from flows.approvals.rates import Rates
from flows.evaluation.comparing import Comparison, means
from flows.evaluation.scoring import NAMES
from workers.evaluation.runs import Result, Run
from workers.rates import plain_rates

REPORT_FILE: Final = "report.json"
PAGE_FILE: Final = "report.html"
MEANING: Final[Mapping[str, str]] = {
    "answer": "what the answer must say is in it",
    "tools": "the right tools were called, in the right order",
    "arguments": "they were called with the right arguments",
    "route": "it came by the right stations, to the right end",
    "end_state": "the records are as they must be",
}

# The page holds what customers and models wrote: everything is escaped, and no script is on it.
_PAGES: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def report_of(run: Run, *, rates: Sequence[Rates] = ()) -> dict[str, Any]:
    """What a run came to. Known exceptions are listed with their reasons, and count in no mean and in no number of right ones."""
    counted = [one for one in run.results.values() if one.exception is None]
    return {
        "run": run.info.model_dump(mode="json"),
        "tasks": len(counted),
        "right": sum(one.as_scores().is_right for one in counted),
        "does_right": sum(one.as_scores().does_right for one in counted),
        "not_ended": [one.task_id for one in counted if one.error is not None],
        "exceptions": {one.task_id: one.exception for one in run.results.values() if one.exception is not None},
        "scores": {
            name: {"mean": mean.value, "tasks": mean.tasks} for name, mean in means([one.as_scores() for one in counted]).items()
        },
        "approvals": [plain_rates(one) for one in rates],
        "results": [one.model_dump(mode="json") for one in _worst_first(run.results.values())],
    }


def page_of(report: Mapping[str, Any]) -> str:
    """The report as a page that needs nothing beside it."""
    return _PAGES.get_template("report.html.j2").render(report=report, names=NAMES, meaning=MEANING)


def plain_comparison(found: Comparison) -> dict[str, Any]:
    """A comparison as JSON."""
    return {
        "holds": found.holds,
        "max_regression": found.max_regression,
        "fallen": list(found.fallen),
        "missing": list(found.missing),
        "scores": {
            name: {
                "old": found.old[name].value,
                "new": found.new[name].value,
                "tasks": found.new[name].tasks,
                "worse": list(found.worse[name]),
                "better": list(found.better[name]),
            }
            for name in NAMES
        },
    }


def _worst_first(results: Any) -> list[Result]:
    """Tasks that are not right first, and in each half by id."""
    return sorted(results, key=lambda one: (one.as_scores().is_right, one.task_id))
