"""Tell, on a topic, that moments of approvals have come. Any number of workers may do so: the event of a moment has one id.

Nothing is lost with a process: what is due stays due in the registry until its step is done, and comes again a little later.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import anyio
import structlog

from flows.ports import Clock
from topics.errors import OutageError
from topics.events import ApprovalDue
from workers.ports import ApprovalRegistry

EVERY_S: Final = 1.0
AT_ONCE: Final = 200

_log: Any = structlog.get_logger("sluice.scheduler")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Reads what is due and publishes it.

    Args:
        publish: Takes a tenant and an event. The awaitable that it gives ends when the broker has the event.
    """

    registry: ApprovalRegistry
    publish: Callable[[str, ApprovalDue], Awaitable[Awaitable[Any]]]
    clock: Clock

    async def run(self) -> None:
        """Look every second, for ever. An outage is told once; then what is due waits for its end."""
        is_out = False
        while True:
            try:
                found = await self.tick()
                is_out = False
            except OutageError as error:
                found = 0
                if not is_out:
                    _log.warning("moments_wait", why=str(error))
                is_out = True
            if found < AT_ONCE:
                await anyio.sleep(EVERY_S)

    async def tick(self) -> int:
        """Publish what is due now. Returns how many approvals there were.

        Raises:
            OutageError: Some of it may not be published. It comes again.
        """
        now = self.clock.now()
        due = await self.registry.due(now, limit=AT_ONCE)
        sent: list[Awaitable[Any]] = []
        for state in due:
            moment = state.due(now)
            if moment is not None:
                request = state.request
                event = ApprovalDue(
                    approval_id=request.approval_id, thread_id=request.thread_id, step=moment.step, number=moment.number
                )
                sent.append(await self.publish(state.tenant, event))
        for acknowledged in sent:
            await acknowledged
        return len(due)
