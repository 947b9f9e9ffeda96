"""Who may call a provider now, and what a call cost: the port between a model call and its limits and budgets."""

from dataclasses import dataclass
from typing import Final, Protocol

from anyio import move_on_after
from pydantic import BaseModel, ConfigDict, Field

GIVE_BACK_WITHIN_S: Final = 2.0
CHARS_PER_TOKEN: Final = 4  # of an estimate, before anybody has counted
OURS: Final = "~ours"
"""In the place of a tenant, which cannot be called so: a call that none asked for. It counts against a provider's limit alone."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call that is about to be made.

    Args:
        tokens: An estimate of input and output together.
        run: The query that it is made for, by its thread and id; empty: for none.
    """

    provider: str
    model: str
    tenant: str
    tokens: int
    run: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a provider counted."""

    input_tokens: int
    output_tokens: int


class Budget(BaseModel):
    """What a tenant may use in a (UTC) day; None: as much as it likes. Its shape is that of the setting; so is a price's.

    A run is a query that begins: it counts at its first call of a model, and never again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int | None = Field(default=None, ge=0)
    usd_cents: int | None = Field(default=None, ge=0)
    runs: int | None = Field(default=None, ge=0)


class Price(BaseModel):
    """US cents for a million tokens, which is the same number of millionths of a cent for one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input_usd_cents: float = Field(ge=0)
    output_usd_cents: float = Field(ge=0)

    def microcents(self, usage: Usage) -> int:
        """What a call cost."""
        return round(usage.input_tokens * self.input_usd_cents + usage.output_tokens * self.output_usd_cents)

    def most_microcents(self, tokens: int) -> int:
        """What a call of so many tokens costs at most."""
        return round(tokens * max(self.input_usd_cents, self.output_usd_cents))


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


class Budgets(Meter, Protocol):
    """A `Meter` that takes an estimate off first, and can give it back."""

    async def give_back(self, call: Call) -> None:
        """Undo `admit` for a call that was not made."""
        ...


@dataclass(frozen=True, slots=True)
class BudgetThenLimit:
    """A `Meter` of both: what a tenant may spend is asked first, so that one with nothing left takes up no place in a queue."""

    budgets: Budgets
    limit: Meter

    async def admit(self, call: Call) -> None:
        """Let a call go ahead that both let; one that only the budget lets costs nothing."""
        await self.budgets.admit(call)
        admitted = False
        try:
            await self.limit.admit(call)
            admitted = True
        finally:
            if not admitted:
                # Cancelled or not: an estimate that is never given back is spent.
                with move_on_after(GIVE_BACK_WITHIN_S, shield=True):
                    await self.budgets.give_back(call)

    async def settle(self, call: Call, usage: Usage | None) -> None:
        """Tell both what a call used."""
        await self.budgets.settle(call, usage)
        await self.limit.settle(call, usage)
