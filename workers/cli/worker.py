"""`sluice worker`: the process that runs where Kafka and Redis are. It loads nothing that can sign a decision."""

from pathlib import Path
from typing import Annotated

import typer

from infra.priority import give_way
from infra.redaction import load_redactor
from infra.settings import load_settings
from infra.telemetry import configure_logging
from workers.app import WORKERS, run_workers
from workers.cli import output


def worker(
    names: Annotated[list[str] | None, typer.Argument(help=f"Which of {', '.join(WORKERS)}; all when left out.")] = None,
    nice: Annotated[int | None, typer.Option(min=0, max=19, help="Give way to other processes by so much (SLUICE_NICE).")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="The data folder of a running `sluice up`.")] = None,
) -> None:
    """Run workers in this process. SIGTERM drains, a second one stops at once."""

    async def work() -> None:
        given = {"data_dir": data_dir, "nice": nice}
        settings = load_settings(**{name: value for name, value in given.items() if value is not None})
        give_way(settings.nice)
        configure_logging(settings.log_level, redactor=load_redactor(settings.redactor))
        await run_workers(settings, names or WORKERS)

    output.run(work)
