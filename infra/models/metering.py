"""Who may call a provider now, and what a call cost: the port between a model call and its limits and budgets."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One call that is about to be made. `tokens` is an estimate of input and output together."""

    provider: str
    model: str
    tenant: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a provider counted."""

    input_tokens: int
    output_tokens: int


class Meter(Protocol):
    """Limits that all workers share, and each tenant's budget."""

    async def admit(self, call: Call) -> None:
        """Let a call go ahead, now or after a short wait.

        Raises:
            RateLimitedError: The share is used up; `retry_after_s` says when it is not. Nothing was counted.
            BudgetExceededError: The tenant has spent what it may. Nothing was counted.
        """
        ...

    async def settle(self, call: Call, usage: Usage | None) -> None:
        """Say what an admitted call used; None when nobody knows, and then its estimate stands."""
        ...


class Unmetered:
    """A `Meter` without limits."""

    async def admit(self, call: Call) -> None:
        """Let every call go ahead."""

    async def settle(self, call: Call, usage: Usage | None) -> None:
        """Forget what it used."""
