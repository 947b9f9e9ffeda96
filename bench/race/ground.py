"""What both races stand on: the same call in a shop of its own for each thread, and the journal of what was applied."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import httpx

from infra.local.data.datasets import RetailTask, retail_tasks
from workers.demo.host import Host
from workers.demo.people import People

TOOL: Final = "modify_user_address"  # applied again, it is applied again: a shop refuses a second cancellation by itself
TASK: Final = "retail-test-39"


@dataclass(frozen=True, slots=True)
class Ground:
    """The shops of one race. Thread `n` has the shop, and the tenant, `<name>-<n>`."""

    host: Host
    people: People
    http: httpx.AsyncClient
    name: str
    threads: int

    def tenant(self, thread: int) -> str:
        """The tenant of a thread."""
        return f"{self.name}-{thread}"

    def thread_of(self, tenant: str) -> int:
        """The thread of a tenant."""
        return int(tenant.rpartition("-")[2])

    @property
    def back_office(self) -> str:
        """Where the shops are."""
        return self.host.stack.endpoints.back_office_url

    async def effects(self) -> dict[int, int]:
        """How often each thread's call was applied, by the journal."""
        counts: Counter[int] = Counter()
        for thread in range(self.threads):
            journal = (await self.http.get(f"{self.back_office}/v1/{self.tenant(thread)}/journal")).raise_for_status().json()
            counts[thread] = sum(entry["outcome"] == "applied" for entry in journal)
        return dict(counts)


def task() -> RetailTask:
    """What every thread's customer wants: one change, which asks."""
    return next(one for one in retail_tasks() if one.task_id == TASK)
