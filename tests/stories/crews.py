"""Workers that a test starts, looks into and kills."""

from typing import Any

import anyio

from infra.redis.client import connect
from tests.stories.servers import Realm
from workers.demo.crew import Crew


async def running_at(realm: Realm, pid: int) -> int:
    """How many records a worker process has started and not settled, by its claims."""
    client: Any = connect(realm.settings.redis_url, timeout_s=5.0)
    try:
        count = 0
        async for key in client.scan_iter(match=f"{realm.settings.redis_prefix}:inbox:*", count=1000):
            state, owner = await client.hmget(key, "state", "owner")
            count += state == b"running" and f"-{pid}-".encode() in (owner or b"")
        return count
    finally:
        await client.aclose()


async def kill_in_the_middle(crew: Crew, realm: Realm, *names: str, at_least: int = 1, within_s: float = 60.0) -> tuple[str, int]:
    """SIGKILL the first of these workers that is seen at work. Returns its name and how many records it left unfinished."""
    with anyio.fail_after(within_s):
        while True:
            for name in names:
                pid = crew.pid_of(name)
                if await running_at(realm, pid) >= at_least:
                    await crew.kill(name)
                    return name, await running_at(realm, pid)
            await anyio.sleep(0.05)
