"""python -m bench [SECTION|all|pictures] [--quick] [--broker KIND] [--json]: measure, print, write one file of figures.

A section that is measured replaces what the file says of it; `pictures` draws docs/figures from the file.
"""

import argparse
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import structlog

from bench import approvals_inbox, engine, flood, latency, pictures, rig, slow_queries
from bench.rivals import section as rivals
from infra.local.stack import BrokerKind
from topics.errors import SluiceError

FIGURES: Final = Path(".cache/bench.json")

Section = Callable[[BrokerKind, argparse.Namespace], Awaitable[dict[str, Any]]]

SECTIONS: Final[dict[str, Section]] = {
    "rivals": lambda broker, options: rivals.run(broker, quick=options.quick, rounds=options.rounds),
    "engine": lambda broker, _: engine.run(broker),
    "slow-queries": lambda broker, options: slow_queries.run(broker, quick=options.quick),
    "latency": lambda broker, _: latency.run(broker),
    "latency-flood": lambda broker, options: flood.run(broker, quick=options.quick),
    "approvals-inbox": lambda broker, options: approvals_inbox.run(broker, quick=options.quick),
}


async def measure(names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Run sections one after the other; each is on disk before the next begins."""
    broker, about = rig.choose_broker(options.broker)
    print(about, flush=True)
    results: dict[str, Any] = {}
    for name in names:
        found = await SECTIONS[name](broker, options)
        results[name.replace("-", "_")] = {"broker": broker, "quick": options.quick, **found}
        keep(options.out, results)
    return results


def keep(path: Path, results: dict[str, Any]) -> None:
    """Write sections over what the file said of them."""
    known = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known | results, indent=1) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("section", nargs="?", default="all", choices=[*SECTIONS, "all", "pictures"])
    parser.add_argument("--broker", choices=["tansu", "apache-kafka"])
    parser.add_argument("--quick", action="store_true", help="fewer loads, one round: about three minutes for the rivals")
    parser.add_argument("--rounds", type=int, help="how often the rivals take their turns")
    parser.add_argument("--out", type=Path, default=FIGURES, help="the file of figures")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    if options.section == "pictures":
        print(*pictures.draw(options.out), sep="\n")
        return
    names = list(SECTIONS) if options.section == "all" else [options.section]
    try:
        results = anyio.run(measure, names, options)
    except* SluiceError as group:
        sys.exit(f"bench: {_first(group)}")
    if options.json:
        print(json.dumps(results))


def _first(group: BaseExceptionGroup[SluiceError]) -> SluiceError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


if __name__ == "__main__":
    main()
