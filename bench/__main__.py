"""python -m bench [slow-queries|engine|latency|all] [--broker tansu|apache-kafka] [--json]: measure, print, stop."""

import argparse
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import structlog

from bench import engine, latency, rig, slow_queries
from infra.local.stack import BrokerKind
from topics.errors import SluiceError

SECTIONS: Final[dict[str, Callable[[BrokerKind], Awaitable[dict[str, Any]]]]] = {
    "slow-queries": slow_queries.run,
    "engine": engine.run,
    "latency": latency.run,
}


async def measure(names: list[str], wanted: BrokerKind | None) -> dict[str, Any]:
    """Run sections one after the other."""
    broker, about = rig.choose_broker(wanted)
    print(about, flush=True)
    results: dict[str, Any] = {"broker": broker}
    for name in names:
        results[name.replace("-", "_")] = await SECTIONS[name](broker)
    return results


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("section", nargs="?", default="all", choices=[*SECTIONS, "all"])
    parser.add_argument("--broker", choices=["tansu", "apache-kafka"])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    names = list(SECTIONS) if options.section == "all" else [options.section]
    try:
        results = anyio.run(lambda: measure(names, options.broker))
    except* SluiceError as group:
        sys.exit(f"bench: {_first(group)}")
    if options.json:
        print(json.dumps(results))


def _first(group: BaseExceptionGroup[SluiceError]) -> SluiceError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


if __name__ == "__main__":
    main()
