"""`sluice asyncapi`: the contract for everybody who publishes or reads."""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from infra.kafka.contract import asyncapi_document
from infra.settings import load_settings
from topics.catalogue import Catalogue
from topics.errors import ConfigError
from workers.cli import output
from workers.cli.output import JsonOption


def asyncapi(
    out: Annotated[Path | None, typer.Option(help="Write it to this file instead of printing it.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Print the AsyncAPI document of every topic."""

    async def tell() -> None:
        document = asyncapi_document(Catalogue(load_settings().topic_prefix), version=version("sluice"))
        text = json.dumps(document, indent=None if as_json else 2, ensure_ascii=False) + "\n"
        if out is None:
            sys.stdout.write(text)
        else:
            _write(out, text)
            if as_json:
                output.print_json({"written": str(out)})

    output.run(tell, as_json=as_json)


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from error
