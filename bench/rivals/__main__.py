"""python -m bench.rivals ENGINE ...: one engine in this process until it is killed; it writes its figures when it has enough."""

import argparse
import logging
from pathlib import Path

import anyio
import structlog

from bench.rivals.place import ENGINES, Place, load
from bench.rivals.watch import Watch


async def measure(engine: str, place: Place, watch: Watch, out: Path) -> None:
    """Run an engine, write its figures, and go on: whoever started this knows when to end it."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load(engine), place, watch)
        result = await watch.measured()
        partial = out.with_suffix(".partial")
        partial.write_bytes(result.as_json())
        partial.rename(out)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.rivals", description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    for name in ("bootstrap", "topic", "group", "redis-url", "cassandra"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("slots", "records"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("handler-s", "within-s"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    place = Place(options.bootstrap, options.topic, options.group, options.slots, options.redis_url, options.cassandra)
    watch = Watch(records=options.records, handler_s=options.handler_s, within_s=options.within_s)
    anyio.run(measure, options.engine, place, watch, options.out)


if __name__ == "__main__":
    main()
