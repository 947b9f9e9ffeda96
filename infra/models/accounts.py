"""One call's account with the meter: admitted before it is made, and settled once, however it ends."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from infra.models.metering import Call, Meter, Usage
from infra.models.provider_errors import NOT_FOUND
from topics.errors import RateLimitedError, SluiceError, UnavailableError

SETTLE_WITHIN_S: Final = 2.0
NOTHING: Final = Usage(0, 0)

# A request that ends so before its first piece has cost nothing. A timeout, or a reply that is no answer, may have.
_TURNED_AWAY: Final = frozenset(
    {RateLimitedError.code, UnavailableError.code, NOT_FOUND, "provider_quota", "provider_auth"}
    | {"context_too_long", "provider_refused_request", "bad_messages"}
)


@dataclass(slots=True)
class Account:
    """What one call has brought so far."""

    used: Usage | None = None
    pieces: int = 0
    error: BaseException | None = None

    def add(self, usage: Usage | None) -> None:
        """Take note of a piece of the reply, or of all of it, and of what it says was used."""
        self.pieces += 1
        self.used = usage or self.used

    def usage(self) -> Usage | None:
        """What it used; None when nobody knows. Nothing at all, when it was turned away at the provider's door."""
        turned_away = isinstance(self.error, SluiceError) and self.error.reason_code in _TURNED_AWAY and not self.pieces
        return self.used or (NOTHING if turned_away else None)


@asynccontextmanager
async def metered(meter: Meter, call: Call) -> AsyncGenerator[Account]:
    """Admit a call that is made inside the block, and settle it behind.

    Raises:
        RateLimitedError, BudgetExceededError: The meter's no. The block was not entered.
    """
    await meter.admit(call)
    account = Account()
    try:
        yield account
    except BaseException as error:
        account.error = error
        raise
    finally:
        # Cancelled or not: what is not settled stays at its estimate.
        with anyio.move_on_after(SETTLE_WITHIN_S, shield=True):
            await meter.settle(call, account.usage())
