"""Run the back office: `python -m infra.local.back_office --port 8090 --data FOLDER`."""

import argparse
import sys
from pathlib import Path

from infra.local.back_office.server import serve
from infra.local.data import datasets
from topics.errors import ConfigError


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal ends it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.back_office", description="A shop's back office over HTTP.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="where the SQLite file is kept")
    options = parser.parse_args(arguments)
    try:
        serve(options.data, seed=datasets.retail_seed(), host=options.host, port=options.port)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
