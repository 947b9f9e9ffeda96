"""python -m bench.figures [SECTION ...] [--full] [--json]: what the model side does on real data, measured and printed.

Each section is a module with `run(full)`: it prints its table and returns its figures. The last line is one JSON object of all.
A section that breaks a bound that it states itself raises `FigureError`, and the command fails after the others have run.
"""

import argparse
import importlib
import json
import logging
import sys
from typing import Any, Final

import anyio
import structlog

from bench.figures.bounds import FigureError

SECTIONS: Final = ("retrieval", "tenants", "limit", "outage", "streams", "long_thread", "tasks", "overhead")


async def measure(names: list[str], *, full: bool) -> tuple[dict[str, Any], list[str]]:
    """Run sections one after the other. Returns all figures in one flat object, and what did not hold."""
    figures: dict[str, Any] = {}
    broken: list[str] = []
    for name in names:
        print(f"\n== {name}", flush=True)
        try:
            figures |= await importlib.import_module(f"bench.figures.{name}").run(full=full)
        except FigureError as error:
            figures |= error.figures
            broken.append(f"{name}: {error}")
    return figures, broken


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.figures", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all when none is named")
    parser.add_argument("--full", action="store_true", help="the sizes the README's figures are measured with")
    options = parser.parse_args()
    if unknown := sorted(set(options.sections) - set(SECTIONS)):
        parser.error(f"no section {', '.join(unknown)}; there are: {', '.join(SECTIONS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    figures, broken = anyio.run(lambda: measure(options.sections or list(SECTIONS), full=options.full))
    for line in broken:
        print(f"does not hold: {line}", file=sys.stderr)
    print(json.dumps(figures), flush=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
