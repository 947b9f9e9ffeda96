"""python -m bench.chaos [--short] [--seed N] [--only P1,P7] [--schedule FILE] [--inputs N] [--kills N].

Disturbs real workers on a real Apache Kafka and a real Redis, and holds the ledger of what happened against the invariants.
The last line is one JSON object. Exit code 1 when an invariant broke, or a control did not.
"""

import argparse
import json
import logging
import sys
from pathlib import Path
from tempfile import mkdtemp

import anyio
import structlog

from bench.chaos.procedures import PROCEDURES
from bench.chaos.servers import serving
from bench.chaos.verdict import Verdict
from bench.chaos.world import open_world


async def conduct(folder: Path, names: list[str], seed: int) -> list[Verdict]:
    """Run procedures one after the other on the same servers."""
    verdicts: list[Verdict] = []
    async with serving(folder) as servers:
        for name in names:
            async with open_world(servers, f"{name.lower()}-{seed}", seed=seed) as world:
                verdicts.append(await PROCEDURES[name].run(world, seed))
                print(verdicts[-1], file=sys.stderr, flush=True)
    return verdicts


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    folder = Path(mkdtemp(prefix="sluice-chaos-"))
    print(f"chaos: ledger and logs in {folder}", file=sys.stderr)
    names = options.only.split(",") if options.only else list(PROCEDURES)
    verdicts = anyio.run(conduct, folder, names, options.seed)
    print(json.dumps([{"procedure": one.procedure, "broken": one.broken, **one.figures} for one in verdicts]))
    return 0 if all(one.holds for one in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
