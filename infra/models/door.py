"""One provider as its callers see it: its client, its breaker, and what became of the calls that went through."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import anyio
import structlog

from infra.models import provider_errors
from infra.models.accounts import Account, metered
from infra.models.breaker import Breaker, Ticket
from infra.models.metering import Call, Meter, Unmetered, Usage
from topics.errors import (
    BudgetExceededError,
    OutageError,
    RateLimitedError,
    RejectedError,
    RetryableError,
    SluiceError,
    UnavailableError,
)

PROVIDER_OUT: Final = "provider_out"
TRIAL_WITHIN_S: Final = 5.0
LONGEST_REST_S: Final = 60.0
REST_S: Final = 5.0

Result = Literal["answered", "rejected", "limited", "failed", "given_up", "denied"]

C = TypeVar("C")

_log: Any = structlog.get_logger("sluice.models")


class Monotonic(Protocol):
    """Where the time comes from."""

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        ...


@dataclass(frozen=True, slots=True)
class Trial:
    """A small call of ours with a fixed text, and no record's own.

    A record that makes any provider fail would otherwise keep a sound provider out, and with it everybody, and would itself
    never spend an attempt. `make` tells what the call used, as far as the provider says so.
    """

    call: Call
    make: Callable[[], Awaitable[Usage | None]]


@dataclass(slots=True)
class Door(Generic[C]):
    """A provider. Every call goes through it, its trials too. `calls` counts results; `denied` is what a budget did not let."""

    name: str
    client: C
    trial: Trial
    clock: Monotonic
    meter: Meter = field(default_factory=Unmetered)
    breaker: Breaker = field(default_factory=Breaker)
    calls: Counter[Result] = field(default_factory=Counter[Result])
    reason_code: str = PROVIDER_OUT
    _rests_until_s: float = float("-inf")

    @property
    def is_out(self) -> bool:
        """Whether its breaker lets no call through."""
        return self.breaker.state(self.clock.monotonic_s()) != "closed"

    @property
    def is_resting(self) -> bool:
        """Whether it limited our rate a moment ago, so that another provider is the better choice."""
        return self.clock.monotonic_s() < self._rests_until_s

    def hope_s(self) -> float:
        """Seconds until its breaker may let something through; at least one."""
        return max(1.0, self.breaker.opens_in_s(self.clock.monotonic_s()))

    @asynccontextmanager
    async def through(self, call: Call) -> AsyncGenerator[Account]:
        """Make one call inside the block, after a trial where one is due. How the block ends is how the call ended.

        Raises:
            OutageError: The provider is out. The block was not entered.
            RateLimitedError, BudgetExceededError: The meter's no, to the call or to the trial. The block was not entered.
        """
        ticket, admitted = await self._enter(), False
        try:
            async with metered(self.meter, call) as account:
                admitted = True
                try:
                    yield account
                except BaseException as error:
                    self.leave(ticket, error)
                    raise
                self.leave(ticket, None)
        except BudgetExceededError:
            self.calls["denied"] += 1
            raise
        finally:
            if not admitted:
                self.breaker.given_up(ticket)  # the meter's no says nothing about the provider

    async def _enter(self) -> Ticket:
        ticket = self.breaker.ask(self.clock.monotonic_s())
        if ticket is not None and ticket.is_trial:
            await self._try(ticket)
            ticket = self.breaker.ask(self.clock.monotonic_s())
        if ticket is None:
            raise OutageError(f"the provider {self.name} is out: {self.breaker.why}", code=self.reason_code)
        return ticket

    def leave(self, ticket: Ticket, error: BaseException | None) -> None:
        """Tell how the call ended, in its own words: anything but an error of ours tells nothing about the provider."""
        match error:
            case None:
                self._succeeded(ticket, "answered")
            case RejectedError():
                self._succeeded(ticket, "rejected")
            case UnavailableError(reason_code=provider_errors.NOT_FOUND):
                # A tenant's own choice, which nobody serves. It asks again and again, and must neither open nor keep closed.
                self._given_up(ticket, "rejected")
            case RateLimitedError():
                self._rest(error.retry_after_s)
                self._given_up(ticket, "limited")
            case OutageError() | RetryableError():
                self._failed(ticket, error)
            case _:
                self._given_up(ticket, "given_up")

    async def _try(self, ticket: Ticket) -> None:
        """Make the trial. One that was cancelled, or that the meter did not let, told nothing: the next caller makes one."""
        has_told = False
        try:
            async with metered(self.meter, self.trial.call) as account:
                account.error = error = await self._trial_error(account)
                has_told = True
                self._tried(ticket, error)
        finally:
            if not has_told:
                self.breaker.given_up(ticket)

    async def _trial_error(self, account: Account) -> SluiceError | None:
        try:
            with anyio.move_on_after(TRIAL_WITHIN_S) as within:
                account.add(await self.trial.make())
        except SluiceError as error:
            return error
        return OutageError("a trial was not answered in time") if within.cancelled_caught else None

    def _tried(self, ticket: Ticket, error: SluiceError | None) -> None:
        # An answer of any kind, even no, comes from a provider that is there.
        if error is None or isinstance(error, RejectedError | RateLimitedError):
            self.breaker.succeeded(ticket)
            _log.info("provider_back", provider=self.name)
        else:
            self._failed(ticket, error)

    def _succeeded(self, ticket: Ticket, result: Result) -> None:
        self.calls[result] += 1
        self.breaker.succeeded(ticket)

    def _given_up(self, ticket: Ticket, result: Result) -> None:
        self.calls[result] += 1
        self.breaker.given_up(ticket)

    def _failed(self, ticket: Ticket, error: SluiceError) -> None:
        if not ticket.is_trial:
            self.calls["failed"] += 1
        was_out, is_outage = self.is_out, isinstance(error, OutageError)
        self.breaker.failed(ticket, self.clock.monotonic_s(), why=str(error), for_everybody=is_outage)
        if self.is_out and not was_out:
            self.reason_code = error.reason_code if is_outage else PROVIDER_OUT
            _log.error("provider_out", provider=self.name, why=str(error))

    def _rest(self, named_s: float | None) -> None:
        rest_s = min(REST_S if named_s is None else named_s, LONGEST_REST_S)
        self._rests_until_s = self.clock.monotonic_s() + rest_s
