"""`sluice offsets`: where our consumer groups stand, and where they go on."""

import getpass
from dataclasses import asdict
from typing import Annotated

import typer

from infra.settings import load_settings
from workers.cli import output
from workers.cli.output import JsonOption
from workers.offsets import Change, Offsets, Standing, parse_target

app = typer.Typer(help="See where the consumer groups stand, and set where they go on.", no_args_is_help=True)

Group = Annotated[str | None, typer.Option(help="Only this consumer group, such as sluice.query.")]


@app.command()
def show(group: Group = None, *, as_json: JsonOption = False) -> None:
    """Show every partition: its committed position, the log's begin and end, the lag, and whether a worker could go on."""

    async def tell() -> None:
        found = await _offsets().show(group)
        if as_json:
            output.print_json([asdict(one) for one in found])
        else:
            columns = ("group", "topic", "partition", "committed", "begin", "end", "lag", "state")
            output.print_table(columns, [_row(one) for one in found])

    output.run(tell, as_json=as_json)


@app.command("set")
def set_(
    group: Annotated[str, typer.Option(help="The consumer group, such as sluice.query.")],
    to: Annotated[str, typer.Option(help="earliest, latest, a position, or at:<instant with its zone>.")],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition of the topic.")] = None,
    because: Annotated[str, typer.Option(help="Why; kept with your name.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; write nothing.")] = False,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """Set where a group goes on, while none of its workers runs. What the inbox knows as done is not done again."""

    async def write() -> None:
        changes = await _offsets().set(group, parse_target(to), topic=topic, partition=partition, because=because, dry_run=dry_run)
        _report(changes, dry_run=dry_run, as_json=as_json)

    output.run(write, as_json=as_json)


@app.command()
def changes(group: Group = None, *, as_json: JsonOption = False) -> None:
    """Show who set positions, when, and why."""

    async def tell() -> None:
        found = await _offsets().changes(group)
        if as_json:
            output.print_json(found)
        elif not found:
            output.console.print("Nobody has set a position.")
        else:
            rows = [(one["at"], one["by"], one["group"], len(one["changes"]), one["because"]) for one in found]
            output.print_table(("at", "by", "group", "partitions", "because"), rows)

    output.run(tell, as_json=as_json)


def _offsets() -> Offsets:
    return Offsets(load_settings(), operator=getpass.getuser())


def _row(one: Standing) -> tuple[object, ...]:
    def number(value: int | None) -> object:
        return "-" if value is None else value

    return one.group, one.topic, one.partition, number(one.committed), one.begin, one.end, number(one.lag), one.state


def _report(changes: list[Change], *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        output.print_json({"dry_run": dry_run, "changes": [asdict(one) for one in changes]})
        return
    rows = [
        (one.topic, one.partition, "-" if one.before is None else one.before, one.after, one.skips, one.again) for one in changes
    ]
    output.print_table(("topic", "partition", "before", "would be" if dry_run else "now", "skipped", "read again"), rows)
