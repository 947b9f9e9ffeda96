"""Ordered providers behind one call: breaker, meter, call, and the next provider when this one cannot.

One layer each: a record's lane retries, this falls back, a breaker skips. Nothing here waits or asks the same provider twice.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio

from infra.models.door import REST_S, Door
from infra.models.metering import Call, Usage
from infra.models.provider_errors import NOT_FOUND
from infra.models.providers import ProviderChatModel
from infra.models.routing import Candidate, ModelRoutes
from topics.errors import OutageError, RateLimitedError, RetryableError, SluiceError, UnavailableError

T = TypeVar("T")
ChatDoor = Door[ProviderChatModel]


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """One call, whoever answers it.

    Args:
        begin: Asks a provider's client for its own name of the model; gives the pieces of the reply.
        says: Whether a piece shows anything, so that no other provider may begin anew behind it.
        usage: What a piece says was used, if it says so.
    """

    tenant: str
    run: str
    model: str | None
    tokens: int
    begin: Callable[[ProviderChatModel, str], AsyncGenerator[T]]
    says: Callable[[T], bool]
    usage: Callable[[T], Usage | None]


class Fallback:
    """Providers in order, for all calls of a process.

    Args:
        doors: By name.
        concurrency: Calls at once, however deep the chains are that make them.
    """

    def __init__(self, doors: Mapping[str, ChatDoor], routes: ModelRoutes, *, concurrency: int) -> None:
        self.doors = doors
        self._routes = routes
        self._slots = anyio.Semaphore(concurrency)

    async def answer(self, asked: Asked[T]) -> AsyncGenerator[tuple[ChatDoor, T]]:
        """The pieces of the first reply that begins, and who gives it. Once a piece was shown, its provider's failure is the end.

        Raises:
            RejectedError: The request cannot be served, by anybody: too long, filtered, over budget.
            RetryableError: Nobody could serve it now, or the reply broke off.
            OutageError: Every provider is out.
        """
        failures: list[tuple[ChatDoor, SluiceError]] = []
        async with self._slots:
            for candidate in self._in_order(self._routes.candidates(asked.tenant, asked.model)):
                door, has_begun = self.doors[candidate.provider], False
                try:
                    async with aclosing(self._through(door, candidate, asked)) as pieces:
                        async for piece in pieces:
                            has_begun = True
                            yield door, piece
                except (RetryableError, OutageError) as error:
                    if has_begun:
                        raise
                    failures.append((door, error))
                else:
                    return
        final, last = verdict(failures, all_are_out=all(door.is_out for door in self.doors.values())), failures[-1][1]
        if final.__cause__ is None and final is not last:
            raise final from last
        raise final

    def _in_order(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that limit our rate come last: they are asked all the same when nobody else can."""
        return sorted(candidates, key=lambda one: self.doors[one.provider].is_resting)

    async def _through(self, door: ChatDoor, candidate: Candidate, asked: Asked[T]) -> AsyncGenerator[T]:
        """The reply of one provider, its silent beginning held back until it says something, and all of it accounted for."""
        call = Call(provider=door.name, model=candidate.model, tenant=asked.tenant, tokens=asked.tokens, run=asked.run)
        held, has_said = list[T](), False
        async with door.through(call) as account:
            try:
                async with aclosing(asked.begin(door.client, candidate.model)) as pieces:
                    async for piece in pieces:
                        account.add(asked.usage(piece))
                        held.append(piece)
                        has_said = has_said or asked.says(piece)
                        if has_said:
                            for one in held:
                                yield one
                            held.clear()
                for one in held:
                    yield one
            except OutageError as error:
                if error.reason_code != NOT_FOUND or candidate in self._routes.candidates(""):
                    raise
                # A model that the provider does not know, and that only some tenants chose, is no outage for everybody.
                raise UnavailableError("the provider knows no such model", code=NOT_FOUND) from error


def verdict(failures: Sequence[tuple[ChatDoor, SluiceError]], *, all_are_out: bool) -> SluiceError:
    """What it means for the record that each provider it may use failed before it began.

    Waiting for a limit spends no attempt, so it wins over a failure; and it is no longer than the shortest of the waits.

    Args:
        failures: In the order in which they were asked; at least one.
        all_are_out: Whether no provider is left for any record.
    """
    errors = [error for _, error in failures]
    if len(errors) == 1 and isinstance(errors[0], RetryableError):
        return errors[0]
    if any(isinstance(error, RateLimitedError) for error in errors):
        return RateLimitedError("every provider limits our rate", retry_after_s=min(_hope_s(*one) for one in failures))
    failed = next((error for error in errors if isinstance(error, RetryableError)), None)
    if failed is not None:
        return failed
    if all_are_out:
        return errors[0]
    wait_s = min(_hope_s(*one) for one in failures)
    return RateLimitedError("the providers that this call may use are out", retry_after_s=wait_s)


def _hope_s(door: ChatDoor, error: SluiceError) -> float:
    if isinstance(error, RateLimitedError):
        return REST_S if error.retry_after_s is None else error.retry_after_s
    return door.hope_s() if isinstance(error, OutageError) else REST_S
