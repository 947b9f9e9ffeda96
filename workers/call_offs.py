"""Call-offs between processes: a query hears that it is called off wherever it runs, whichever process got the record.

Whoever runs a query holds its thread's lease. A process that finds it busy notes what it has heard to be called off of the thread,
with each try: the record that says so may have its turn only behind the one that tries. Who runs a query because of another record
than its own looks when it begins, and every half second while anything runs. Nothing rests on it: what did not hear ends at its own
end, and the record finds it so.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import anyio
import structlog

from flows.agent.call_offs import CallOffs
from flows.agent.state import ThreadRef
from topics.errors import OutageError
from workers.ports import CallOffNotes

EVERY_S: Final = 0.5

_log: Any = structlog.get_logger("sluice.call_offs")


@dataclass(frozen=True, slots=True)
class SharedCallOffs:
    """What this process has heard, and what all of them can read."""

    here: CallOffs
    notes: CallOffNotes

    async def tell(self, thread: ThreadRef, query_ids: Collection[str]) -> None:
        """Call queries off, here and wherever they run.

        Raises:
            OutageError: Others may not hear of it.
        """
        for query_id in query_ids:
            self.here.call_off(thread, query_id)
        await self.notes.note(thread.checkpoint_id, query_ids)

    async def hear(self, threads: Collection[ThreadRef]) -> None:
        """Take in what was told elsewhere about these threads.

        Raises:
            OutageError: Nothing was heard.
        """
        order = tuple(threads)
        for thread, query_ids in zip(order, await self.notes.noted([one.checkpoint_id for one in order]), strict=True):
            for query_id in query_ids:
                self.here.call_off(thread, query_id)

    async def keep_hearing(self) -> None:
        """Look after what runs here, for ever. An outage is told once; runs find out about it by themselves."""
        is_out = False
        while True:
            try:
                await self.hear(self.here.running_threads())
                is_out = False
            except OutageError as error:
                if not is_out:
                    _log.warning("call_offs_not_heard", why=str(error))
                is_out = True
            await anyio.sleep(EVERY_S)
