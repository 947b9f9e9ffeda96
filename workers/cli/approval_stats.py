"""`sluice approvals stats`: how often people edit and reject, from the topics alone."""

from typing import Annotated

import typer

from infra.settings import load_settings
from workers.cli import output
from workers.cli.output import JsonOption
from workers.rates import plain_rates, read_rates

COLUMNS = (
    "tool",
    "policy",
    "prompt",
    "requests",
    "approved",
    "edited",
    "rejected",
    "expired",
    "withdrawn",
    "edit rate",
    "reject rate",
)


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
            rows = [
                (
                    *(one.group.tool, one.group.policy_version, one.group.prompt_version or "-"),
                    *(one.requests, one.approved, one.edited, one.rejected, one.expired, one.withdrawn),
                    *(_percent(one.edit_rate), _percent(one.reject_rate)),
                )
                for one in found
            ]
            output.print_table(COLUMNS, rows)

    output.run(count, as_json=as_json)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
