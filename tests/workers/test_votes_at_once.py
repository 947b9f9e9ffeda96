"""Many people at once on one approval in Redis: every vote is counted once, one wins, and each sender hears which it was."""

from typing import Any, cast

import anyio
import pytest
from redis.asyncio import Redis

from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.keys import Keys
from tests.fakes.clock import FakeClock
from tests.fakes.verifier import TrustingVerifier
from tests.workers.desk import decided
from tests.workers.test_moments import AnyAgent, Threads, waits
from topics.events import ApprovalAccepted, ApprovalRefused, Terms
from workers.approvals import handle_decision

PEOPLE = [f"person-{number}" for number in range(16)]


@pytest.mark.parametrize("quorum", [1, 5])
async def test_votes_at_once_are_each_counted_and_one_of_them_wins(redis_client: Redis, redis_keys: Keys, quorum: int):
    """P3."""
    registry, threads = RedisApprovalRegistry(redis_client, keys=redis_keys), Threads()
    request = waits(1, Terms(quorum=quorum, expires_after_s=600))
    await registry.open("acme", [request])
    answers: list[Any] = []

    async def send(person: str, id_: str) -> None:
        handled = handle_decision(
            decided(request, id_=id_, approver=person),
            agent=cast("Any", AnyAgent()),
            registry=registry,
            conversation=cast("Any", threads),
            verifier=TrustingVerifier(),
            clock=FakeClock(),
        )
        answers.extend([one async for one in handled if isinstance(one, ApprovalAccepted | ApprovalRefused)])

    async with anyio.create_task_group() as group:
        for person in PEOPLE:
            group.start_soon(send, person, f"{person}-1")
            group.start_soon(send, person, f"{person}-2")

    assert len(answers) == len({one.decision_id for one in answers}) == 2 * len(PEOPLE)
    counted = [one for one in answers if isinstance(one, ApprovalAccepted)]
    assert sorted(one.votes for one in counted) == list(range(1, quorum + 1))
    assert len({one.approver for one in counted}) == quorum
    assert [one.standing for one in counted].count("won") == 1
    assert {one.code for one in answers if isinstance(one, ApprovalRefused)} == {"duplicate"}
    state = await registry.find("acme", request.approval_id)
    assert state is not None
    assert state.verdict is not None
    assert threads.told[request.approval_id] == {state.verdict.decision_id}
    assert len(state.verdict.approver.split(", ")) == quorum
