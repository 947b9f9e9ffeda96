"""`sluice topics`: what a cluster lacks, and creating it."""

from dataclasses import asdict

import typer

from infra.kafka import provision
from infra.settings import load_settings
from topics.catalogue import Catalogue
from workers.cli import output
from workers.cli.output import JsonOption

app = typer.Typer(help="Compare the cluster's topics with the catalogue, and mend the difference.", no_args_is_help=True)


@app.command()
def plan(*, as_json: JsonOption = False) -> None:
    """Show what `apply` would do. Changes nothing."""

    async def show() -> None:
        settings = load_settings()
        _show(await provision.plan(settings.kafka(), Catalogue(settings.topic_prefix)), as_json=as_json, done=False)

    output.run(show, as_json=as_json)


@app.command()
def apply(*, as_json: JsonOption = False) -> None:
    """Create missing topics and add missing partitions. Never deletes anything."""

    async def change() -> None:
        settings = load_settings()
        catalogue = Catalogue(settings.topic_prefix)
        steps = await provision.apply(settings.kafka(), catalogue, replication_factor=settings.replication_factor)
        _show(steps, as_json=as_json, done=True)

    output.run(change, as_json=as_json)


def _show(steps: list[provision.Step], *, as_json: bool, done: bool) -> None:
    if as_json:
        output.print_json({"applied": done, "steps": [asdict(step) for step in steps]})
    elif not steps:
        output.console.print("The cluster matches the catalogue.")
    else:
        rows = [(step.topic, step.action.replace("_", " "), step.detail) for step in steps]
        output.print_table(("topic", "done" if done else "to do", "detail"), rows)
