"""Edit and reject rates of a cluster, from its topics alone."""

from collections.abc import Sequence
from typing import Any

from flows.approvals.rates import Rates, rates_of
from infra.settings import Settings
from workers.rebuild import read_topics


async def read_rates(settings: Settings, *, tenant: str | None = None) -> Sequence[Rates]:
    """What people did with proposals, of one tenant or of all.

    Raises:
        ConfigError: The cluster cannot be reached, or a topic is missing.
        OutageError: It stopped answering half-way.
    """
    states = await read_topics(settings)
    return rates_of(state for (owner, _), state in states.items() if tenant in {None, owner})


def plain_rates(rates: Rates) -> dict[str, Any]:
    """One row of rates as JSON."""
    counts = {name: getattr(rates, name) for name in ("requests", "approved", "edited", "rejected", "responded", "expired")}
    return {
        **rates.group._asdict(),
        **counts,
        "withdrawn": rates.withdrawn,
        "waiting": rates.waiting,
        "edit_rate": rates.edit_rate,
        "reject_rate": rates.reject_rate,
    }
