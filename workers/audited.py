"""Every outcome gets its link of the tenant's chain before it is published, whichever handler it comes from."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from topics.chain import Outcome
from topics.envelope import Event
from topics.events import Payload
from workers.ports import AuditChain

Handler = Callable[[Event[Any]], AsyncGenerator[Payload]]


def audited(handler: Handler, *, chain: AuditChain) -> Handler:
    """A handler that does what `handler` does, its outcomes linked.

    A number that was given must be published, or the chain has a hole. So a record first publishes what an earlier start was given
    a link for: this one may come to another answer. It may be the first attempt by its count: a start that an outage, a lost lease
    or a rebalance ended is taken back.
    """

    async def handle(event: Event[Any]) -> AsyncGenerator[Payload]:
        cause = f"{event.source}\n{event.id}"
        told: set[str] = set()
        for outcome in await chain.untold(event.tenant, cause=cause):
            yield outcome
            await chain.told(event.tenant, outcome)
            told.add(outcome.model_dump_json())
        published: list[Outcome] = []
        try:
            async with aclosing(handler(event)) as payloads:
                async for payload in payloads:
                    if not isinstance(payload, Outcome):
                        yield payload
                        continue
                    outcome = await chain.append(event.tenant, payload, cause=cause)
                    if outcome.model_dump_json() not in told:
                        yield outcome
                        published.append(outcome)
        finally:
            # Behind what an outcome lets happen: a tool waits for its verdict. One that is not noted is published again, the same;
            # after a handler that failed too, because a dead letter does not come again.
            for outcome in published:
                await chain.told(event.tenant, outcome)

    return handle
