"""python -m tests.stories.dying_worker DATA_DIR LINKS: every worker, killed by SIGKILL behind so many new links of the audit chain.

The last of them is in Redis, on its disk, and not published.
"""

import os
import signal
import sys

from infra.redis.chain import RedisAuditChain
from topics.chain import Outcome
from workers.cli.main import main


def die_behind(links: int) -> None:
    """Let every chain of this process end it."""
    append, given = RedisAuditChain.append, set[int]()

    async def appended(self: RedisAuditChain, tenant: str, outcome: Outcome, *, cause: str) -> Outcome:
        found = await append(self, tenant, outcome, cause=cause)
        given.add(id(found))
        if len(given) == links:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    RedisAuditChain.append = appended  # type: ignore[method-assign] -- a death between two lines of the worker has no other door


if __name__ == "__main__":
    die_behind(int(sys.argv[2]))
    sys.argv = ["sluice", "worker", "--data-dir", sys.argv[1], "approvals", "query"]
    main()
