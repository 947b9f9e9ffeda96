"""`sluice approvals stats`: how often people edit and reject, from the topics alone."""

from typing import Annotated

import typer

from flows.approvals.rates import Rates
from infra.settings import load_settings
from workers.cli import output
from workers.cli.output import JsonOption
from workers.rates import plain_rates, read_rates


def stats(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Count what people did with proposals, by tool, policy and prompt version, from the topics alone."""

    async def count() -> None:
        found = await read_rates(load_settings(), tenant=tenant)
        if as_json:
            output.print_json([plain_rates(one) for one in found])
        elif not found:
            output.console.print("Nothing was asked yet.")
        else:
            for one in found:
                output.print_plain(_sentence(one))

    output.run(count, as_json=as_json)


def _sentence(one: Rates) -> str:
    about = f"{one.group.tool} (policy {one.group.policy_version}, prompt {one.group.prompt_version or 'not told'})"
    edited = f"{one.edited} edited ({_percent(one.edit_rate)})"
    decided = f"{one.approved} approved, {edited}, {one.rejected} rejected ({_percent(one.reject_rate)})"
    others = {"answered": one.responded, "expired": one.expired, "withdrawn": one.withdrawn, "waiting": one.waiting}
    return f"{about}: {one.requests} asked, {decided}" + "".join(f", {count} {name}" for name, count in others.items() if count)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
