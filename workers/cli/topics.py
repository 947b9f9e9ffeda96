"""`sluice topics`: what a cluster lacks, creating it, and who needs which rights on it."""

from dataclasses import asdict
from typing import Annotated

import typer

from infra.kafka import acls as kafka_acls
from infra.kafka import provision
from infra.kafka.topic_plan import Step
from infra.settings import load_settings
from topics.catalogue import Catalogue
from workers.cli import output
from workers.cli.output import JsonOption
from workers.readers import READERS

app = typer.Typer(help="Compare the cluster's topics with the catalogue, and mend the difference.", no_args_is_help=True)

Lowering = Annotated[
    bool, typer.Option("--allow-lowering", help="Also change what could cost records: a shorter retention, another cleanup policy.")
]
Acls = Annotated[bool, typer.Option("--acls", help="Print the Kafka ACLs of every role instead, as kafka-acls commands.")]
Principal = Annotated[str, typer.Option(help="How the cluster names a role; {role} stands for it.")]


@app.command()
def plan(
    acls: Acls = False,  # noqa: FBT002 -- a flag of the command line
    principal: Principal = "User:sluice-{role}",
    allow_lowering: Lowering = False,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """Show what `apply` would do, and what it would leave as it is. Changes nothing."""

    async def show() -> None:
        settings = load_settings()
        catalogue = Catalogue(settings.topic_prefix)
        _show(await provision.plan(settings.kafka(), catalogue, allow_lowering=allow_lowering), as_json=as_json, done=False)

    if acls:
        _show_acls(principal, as_json=as_json)
    else:
        output.run(show, as_json=as_json)


@app.command()
def apply(
    allow_lowering: Lowering = False,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """Create missing topics, add partitions, raise retention and message size. Never deletes anything."""

    async def change() -> None:
        settings = load_settings()
        steps = await provision.apply(
            settings.kafka(),
            Catalogue(settings.topic_prefix),
            replication_factor=settings.replication_factor,
            allow_lowering=allow_lowering,
        )
        _show(steps, as_json=as_json, done=True)

    output.run(change, as_json=as_json)


def _show(steps: list[Step], *, as_json: bool, done: bool) -> None:
    if as_json:
        output.print_json({"applied": done, "steps": [asdict(step) for step in steps]})
    elif not steps:
        output.console.print("The cluster matches the catalogue.")
    else:
        rows = [(step.topic, step.action.replace("_", " "), step.detail) for step in steps]
        output.print_table(("topic", "done" if done else "to do", "detail"), rows)


def _show_acls(principal: str, *, as_json: bool) -> None:
    """No cluster is asked: rights are granted by whoever runs it, and before the first worker can sign in."""
    settings = load_settings()
    entries = kafka_acls.acls(Catalogue(settings.topic_prefix), readers=READERS, group_prefix=settings.group_prefix)
    named = [(one, principal.replace("{role}", one.role)) for one in entries]
    if as_json:
        output.print_json([asdict(one) | {"principal": name} for one, name in named])
        return
    for one, name in named:
        output.print_plain(kafka_acls.command(one, bootstrap=settings.kafka_bootstrap, principal=name))
