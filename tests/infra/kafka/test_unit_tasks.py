"""The owner of the tasks of units: none is left behind, no error is lost, and what a handler shields is finished."""

from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from infra.kafka.assignment import Assignment, Work
from infra.kafka.execution import Attempt
from infra.kafka.unit_tasks import UnitTasks
from topics.errors import ConfigError
from topics.records import RawRecord

BOUND: ContextVar[str] = ContextVar("bound", default="nobody")


def unit(scope: Attempt | None = None) -> list[Work]:
    work = Work(RawRecord("queries", 0, 0, b"k", b"{}", ()), Assignment("queries", 0, 1), None)
    work.scope = scope
    return [work]


async def closed(*runs: Coroutine[Any, Any, None]) -> None:
    units = UnitTasks()
    for run in runs:
        units.start(run, unit())
    await anyio.lowlevel.checkpoint()
    await units.close()


async def test_the_first_error_of_a_unit_is_handed_on():
    """A halt must stop the runtime, whichever record it came from."""

    async def halts() -> None:
        raise ConfigError("wrong")

    units = UnitTasks()
    units.start(halts(), unit())
    with anyio.fail_after(5), pytest.raises(ConfigError, match="wrong"):
        await units.watch()
    await units.close()


async def test_every_unit_has_ended_when_the_owner_is_closed():
    ended = []

    async def waits(name: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    with anyio.fail_after(5):
        await closed(waits("a"), waits("b"))
    assert sorted(ended) == ["a", "b"]


async def test_a_step_that_a_handler_shields_is_finished_before_the_owner_is_closed():
    """A lease that is given back, an effect that is recorded: half of it would be worse than either end."""
    steps, let_go = [], anyio.Event()
    attempt = Attempt(anyio.CancelScope())

    async def shields() -> None:
        with attempt.scope, anyio.CancelScope(shield=True):
            await let_go.wait()
            steps.append("recorded")

    units = UnitTasks()
    units.start(shields(), unit(attempt))
    await anyio.lowlevel.checkpoint()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(units.close)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            assert steps == []
            let_go.set()
    assert steps == ["recorded"]


async def test_a_unit_that_never_began_leaves_nothing_behind():
    async def never() -> None:
        raise AssertionError("it was closed before its first step")

    units = UnitTasks()
    units.start(never(), unit())
    with anyio.fail_after(5):
        await units.close()


async def test_what_a_unit_binds_to_its_context_is_gone_with_it():
    """P8, P11: a tenant that one record binds to its logs must not be there for the next."""
    seen = []

    async def binds(name: str) -> None:
        seen.append(BOUND.get())
        BOUND.set(name)

    await closed(binds("first"), binds("second"))
    assert seen == ["nobody", "nobody"]
