"""The race on Sluice: contradictory decisions at once on paused threads, while workers are killed, come and go."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio

from bench.race.account import Account, account
from bench.race.ground import Ground, task
from bench.race.plan import Shot, person_of, shots
from infra.kafka.publisher import RawProducer, raw_producer
from topics.catalogue import ANSWERS, OUTCOMES, REQUESTS
from topics.events import ApprovalDecided, QueryAsked
from topics.records import OutboundRecord
from workers.client import Client, open_client
from workers.demo.crew import Crew, crew
from workers.demo.witness import Witness

PAUSED_WITHIN_S: Final = 240.0
ANSWERED_WITHIN_S: Final = 180.0
WORKERS: Final = ("query", "approvals")

Say = Callable[[str], None]


async def race(ground: Ground, *, seed: int, say: Say) -> Account:
    """Pause every thread, decide each five times at once, and count what came of it."""
    async with AsyncExitStack() as stack:
        settings = ground.host.settings
        client = await stack.enter_async_context(open_client(settings, source="race"))
        producers = [await stack.enter_async_context(raw_producer(settings.kafka())) for _ in shots(0, seed)]
        members = await stack.enter_async_context(crew(ground.host.data_dir))
        for number in (1, 2, 3):
            await members.start(f"worker-{seed}-{number}", WORKERS)
        witness = await _witness(stack, client)
        await _pause(ground, client, witness, say)
        plan = shots(ground.threads, seed)
        await _decide(ground, client, producers, plan, witness, members, seed=seed, say=say)
        fired = [shot for own in plan for shot in own]
        await _settle(ground, witness, fired)
        return account(fired, threads=ground.threads, answers=_answers(witness), effects=await ground.effects())


async def _witness(stack: AsyncExitStack, client: Client) -> Witness:
    witness = Witness()
    events = await stack.enter_async_context(client.watch([ANSWERS, REQUESTS, OUTCOMES]))
    tasks = await stack.enter_async_context(anyio.create_task_group())
    tasks.start_soon(witness.watch, events)
    stack.callback(tasks.cancel_scope.cancel)
    return witness


async def _pause(ground: Ground, client: Client, witness: Witness, say: Say) -> None:
    wanted = task()
    for thread in range(ground.threads):
        query = QueryAsked(thread_id=f"race-{thread}", text=wanted.instruction, user_id=wanted.user_id)
        await client.publish(query, tenant=ground.tenant(thread), event_id=f"{ground.name}-{thread}")
    await witness.until(
        lambda: len(witness.requests) >= ground.threads,
        within_s=PAUSED_WITHIN_S,
        waiting_for=f"the pause of {ground.threads} threads",
    )
    say(f"    {ground.threads} threads wait for a person")


async def _decide(
    ground: Ground,
    client: Client,
    producers: Sequence[RawProducer],
    plan: Sequence[Sequence[Shot]],
    witness: Witness,
    members: Crew,
    *,
    seed: int,
    say: Say,
) -> None:
    async with anyio.create_task_group() as tasks:
        for producer, own in zip(producers, plan, strict=True):
            tasks.start_soon(_fire, ground, client, producer, own, witness)
        for share, step in _disturbances(members, seed, say):
            await _until_share(witness, sum(map(len, plan)), share)
            await step()


def _disturbances(members: Crew, seed: int, say: Say) -> list[tuple[float, Callable[[], Awaitable[None]]]]:
    """What happens when so much of the decisions is answered: each is a rebalance, and the first is a death."""
    first, second = f"worker-{seed}-1", f"worker-{seed}-2"

    async def kill() -> None:
        await members.kill(first)
        say("    one worker killed with SIGKILL in the middle of it")

    async def join() -> None:
        await members.start(f"worker-{seed}-4", WORKERS)

    async def leave() -> None:
        await members.stop(second)
        say("    one worker joined and one left: two more rebalances")

    return [(0.15, kill), (0.3, join), (0.5, leave)]


async def _fire(ground: Ground, client: Client, producer: RawProducer, own: Sequence[Shot], witness: Witness) -> None:
    requests = {ground.thread_of(tenant): (tenant, request) for tenant, request in witness.requests.values()}
    for shot in own:
        tenant, request = requests[shot.thread]
        decided = ApprovalDecided(
            approval_id=request.approval_id,
            thread_id=request.thread_id,
            decision=shot.choice,
            args_digest=request.args_digest,
            approver=person_of(shot.producer),
        )
        key_of_person = ground.people.keys[decided.approver]
        signed = key_of_person.sign(decided, tenant=tenant, tool=request.tool, now=client.clock.now())
        record = client.record(signed, tenant=tenant, event_id=shot.decision_id)
        key = record.key if shot.key is None else shot.key.encode()
        await producer.write(OutboundRecord(record.topic, key, record.value, record.headers))


async def _until_share(witness: Witness, decisions: int, share: float) -> None:
    await witness.until(
        lambda: len(_answers(witness)) >= share * decisions,
        within_s=ANSWERED_WITHIN_S,
        waiting_for=f"an answer to {share:.0%} of the decisions",
    )


async def _settle(ground: Ground, witness: Witness, fired: Sequence[Shot]) -> None:
    """Wait for the rest; who is not answered in time is silent, and the account says so."""
    with anyio.move_on_after(ANSWERED_WITHIN_S):
        ids, queries = {shot.decision_id for shot in fired}, [f"{ground.name}-{thread}" for thread in range(ground.threads)]
        await witness.until(
            lambda: ids <= _answers(witness).keys() and all(witness.streams[one].ended for one in queries),
            within_s=ANSWERED_WITHIN_S + 1,
            waiting_for="the end",
        )


def _answers(witness: Witness) -> dict[str, Any]:
    return {one: refused.code for one, refused in witness.refused.items()} | {
        one: accepted.standing for one, accepted in witness.accepted.items()
    }
