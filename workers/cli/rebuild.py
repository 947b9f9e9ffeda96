"""`sluice approvals rebuild`: the inbox is a view of topics, and can be made again from them."""

from dataclasses import asdict
from typing import Annotated

import typer

from infra.settings import load_settings
from workers.cli import output
from workers.cli.output import JsonOption
from workers.rebuild import Rebuilt, rebuild


def rebuild_(
    *,
    compare: Annotated[bool, typer.Option("--compare", help="Change nothing; exit with 1 when something differs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Put back approvals that Redis lost, from the topics alone; tell what differs."""

    async def run() -> None:
        found = await rebuild(load_settings(), only_compare=compare)
        if as_json:
            output.print_json(asdict(found))
        else:
            _tell(found, compare=compare)
        if compare and found.differences:
            raise typer.Exit(1)

    output.run(run, as_json=as_json)


def _tell(found: Rebuilt, *, compare: bool) -> None:
    output.print_plain(f"{found.on_topics} approvals on the topics, {found.in_redis} in Redis")
    for one in found.differences:
        if compare or one.what == "differs":
            output.print_plain(f"{one.what}: {one.tenant} {one.approval_id}")
    if not compare:
        output.print_plain(f"{found.restored} put back")
    elif not found.differences:
        output.print_plain("they tell the same")
