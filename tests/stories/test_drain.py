"""P1, P2: SIGTERM in the middle of work ends a worker in order."""

import signal
import sys
from contextlib import suppress

import anyio
import pytest

from infra.local.data import datasets
from tests.stories.crews import running_at
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, pytest.mark.timeout(150)]

TASKS = [task for task in datasets.retail_tasks() if task.expected_changes][:10]
DRAIN_S = 1.0
AT_WORK = 3


async def test_a_worker_that_is_told_to_stop_drains_hands_back_the_rest_and_exits_with_zero(servers, world_in, figure):
    """The bound is short and the model slow, so that some work ends within it and some is handed back."""
    realm = await servers.realm("drained", drain_s=DRAIN_S)
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        await world.model("pace", {"first_token_ms": 400, "tokens_per_s": 0})
        command = [sys.executable, "-m", "workers", "worker", "--data-dir", str(realm.data_dir)]
        with (realm.data_dir / "logs" / "stopped.log").open("wb") as log:
            stopped = await anyio.open_process(command, stdout=log, stderr=log)
            try:
                for task in TASKS:
                    await world.order(world.tenant(task.task_id), task)
                with anyio.fail_after(60):
                    while (running := await running_at(realm, stopped.pid)) < AT_WORK:
                        await anyio.sleep(0.05)
                stopped.send_signal(signal.SIGTERM)
                asked_at_s = anyio.current_time()
                with anyio.fail_after(DRAIN_S + 20):
                    code = await stopped.wait()
            finally:
                with suppress(ProcessLookupError):
                    stopped.kill()
        figure("running at SIGTERM", running)
        figure("seconds to the end", round(anyio.current_time() - asked_at_s, 1))
        assert code == 0
        assert await running_at(realm, stopped.pid) == 0, "what was not finished is handed back, and counts as no crash"
        assert [one for one in world.asked if not world.witness.streams[one].ended], "it was stopped in the middle"

        # Only now, so that it cannot have done the work before the other one got any.
        await members.start("successor")
        await world.model("pace", {})
        await world.until_ended()
        await world.until_answered()
        assert await world.wrong_end_states(TASKS) == []
        assert await world.letters(0) == []
