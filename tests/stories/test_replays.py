"""P1, P2, P10: a dead letter goes back once, however often and by however many it is sent, and never in circles."""

import json

import anyio
import pytest

from infra.kafka import dead_letter as names
from infra.kafka.reading import scan
from infra.local.data import datasets
from tests.stories.servers import Realm
from topics.catalogue import DEAD_LETTERS, QUERIES, RESOLUTIONS, TopicSpec
from topics.events import AnswerCompleted
from workers import dead_letters, edits
from workers.dead_letters import MAX_REPLAYS, DeadLetter, Filter, ReplayRefusedError
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, pytest.mark.timeout(150)]

CANCEL = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])


async def _count(realm: Realm, topic: str) -> int:
    async with scan(realm.settings.kafka(), [topic]) as records:
        return len([record async for record in records])


async def _counts(realm: Realm, *specs: TopicSpec) -> list[int]:
    return [await _count(realm, realm.catalogue.name(spec)) for spec in specs]


def _origin(letter: DeadLetter) -> tuple[object, ...]:
    return (
        letter.topic,
        letter.partition,
        letter.offset,
        letter.first_failed_at_ms,
        letter.record.key,
        letter.record.value,
        letter.original_headers,
    )


async def test_a_replay_that_is_sent_again_and_again_is_done_once(servers, world_in):
    """Dry run; killed half-way; three at once; and once more. The fault is a provider's, and is mended in between."""
    realm = await servers.realm("replayed", max_failures=1)
    replays = realm.catalogue.replay_name(QUERIES)
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        await members.start("worker")
        tenant = world.tenant()
        wanted = Filter(tenant=tenant)
        await world.model("faults", {"kind": "status", "status": 500, "match": CANCEL.instruction[:60], "times": None})
        query = await world.order(tenant, CANCEL)
        letter = (await world.letters(1, wanted))[0]
        assert (letter.state, letter.topic, letter.replays) == ("open", realm.catalogue.name(QUERIES), 0)
        await world.model("reset", {})
        before, copies = await _counts(realm, QUERIES, DEAD_LETTERS, RESOLUTIONS), await _count(realm, replays)

        assert (await world.operations.replay(wanted, dry_run=True)).done == [letter.id]
        assert (await _counts(realm, QUERIES, DEAD_LETTERS, RESOLUTIONS), await _count(realm, replays)) == (before, copies)

        # Killed between the record and its resolution, then run by three people at once.
        await world.producer.write(dead_letters.replay_record(letter, catalogue=realm.catalogue, actor="killed"))
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(world.operations.replay, Filter(ids=(letter.id,)))
        await world.until_ended()
        again = await world.operations.replay(Filter(ids=(letter.id,)))

        assert again.done == []
        assert "is replayed" in again.refused[0]
        # Whoever looked after the first had written its resolution sent nothing more.
        assert copies + 2 <= await _count(realm, replays) <= copies + 4, "only several copies prove that one is done"
        assert world.text_of(query)
        assert [one["arguments"] for one in await world.effects(tenant)] == [CANCEL.actions[0].arguments]
        assert len(world.witness.accepted) == len(world.witness.requests) == len(world.witness.executed) == 1
        assert [(one.state, one.replays) for one in await world.letters(1, wanted)] == [("replayed", 0)]
        # Whoever else reads the input saw none of it.
        assert (await _counts(realm, QUERIES))[0] == before[0]


async def test_an_edit_goes_back_once_and_says_what_was_changed(staffed, world_in):
    """Killed between the record and its resolution; another edit; the same again; and a plain replay that finds it."""
    async with world_in(staffed) as world:
        tenant = world.tenant()
        topic, key = staffed.catalogue.name(QUERIES), f"{tenant}/t".encode()
        for one in ("q1", "q2"):
            headers = (("ce_id", one.encode()), ("ce_type", b"query.asked"), ("ce_tenant", tenant.encode()))
            await world.write(topic, key, json.dumps({"thread_id": one, "txet": "Hello there."}).encode(), headers)
            world.asked[one] = tenant

        async def letters() -> list[DeadLetter]:
            """A record that was not understood has no tenant but in its headers."""
            with anyio.fail_after(30):
                while True:
                    found = [one for one in await world.operations.load() if ("ce_tenant", tenant.encode()) in one.original_headers]
                    if len(found) == 2:
                        return sorted(found, key=lambda letter: int(letter.offset))

        first, second = await letters()
        values = {
            one.id: edits.changed(one.record.value, sets=[("/text", "Hello there.")], removes=["/txet"]) for one in (first, second)
        }
        other = edits.changed(first.record.value, sets=[("/text", "Another word.")])

        for letter in (first, second):
            told = await world.operations.edit(letter, values[letter.id], reason="a typing error", dry_run=True)
            assert {(one.op, one.path) for one in told.changes} == {("add", "/text"), ("remove", "/txet")}
        assert {letter.state for letter in await letters()} == {"open"}

        for letter in (first, second):  # killed behind the record
            await world.producer.write(
                dead_letters.edited_record(letter, values[letter.id], catalogue=staffed.catalogue, actor="killed")
            )
        with pytest.raises(ReplayRefusedError, match="had gone back before"):
            await world.operations.edit(first, other, reason="a better idea")
        await world.operations.edit(first, values[first.id], reason="a typing error")
        with pytest.raises(ReplayRefusedError, match="is replayed"):
            await world.operations.edit(first, values[first.id], reason="again")
        assert (await world.operations.replay(Filter(ids=(second.id,)))).done == [second.id]

        await world.until_ended("q1", "q2")
        assert world.text_of("q1") == world.text_of("q2") != ""
        found = await letters()
        assert {letter.state for letter in found} == {"replayed"}
        assert found[1].edit == told
        assert found[0].edit == edits.edit_of(first.record.value, values[first.id])
        answered = [one.payload.query_id for one in world.heard if isinstance(one.payload, AnswerCompleted)]
        assert sorted(answered) == ["q1", "q2"], "of six records one each was done"


async def test_a_record_that_fails_again_comes_back_counted_until_it_is_exhausted(staffed, world_in):
    async with world_in(staffed) as world:
        tenant = world.tenant()
        topic, key = staffed.catalogue.name(QUERIES), f"{tenant}/t".encode()
        mark = f"{tenant} again".encode()
        headers = (("ce_type", b"query.asked"), ("ce_tenant", tenant.encode()), ("x-mark", mark), ("x-mark", None))
        await world.write(topic, key, b"never JSON", headers)

        async def newest(replays: int) -> DeadLetter:
            with anyio.fail_after(30):
                while True:
                    for letter in await world.operations.load():
                        if ("x-mark", mark) in letter.original_headers and letter.replays == replays:
                            return letter

        first = await newest(0)
        for count in range(1, MAX_REPLAYS + 1):
            assert (await world.operations.replay(Filter(ids=(first.id,)))).done == [first.id]
            letter = await newest(count)
            assert _origin(letter) == _origin(first)
            assert (letter.id, letter.reason) == (first.id, first.reason)
            assert letter.state == ("open" if count < MAX_REPLAYS else "exhausted")
        refused = await world.operations.replay(Filter(ids=(first.id,)))
        assert (refused.done, len(refused.refused)) == ([], 1)
        assert "is exhausted" in refused.refused[0]
        assert await world.operations.discard(Filter(ids=(first.id,)), reason="it never works") == [first.id]
        assert (await newest(MAX_REPLAYS)).state == "discarded"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({names.TOPIC: b"payments"}, "which is no input of ours"),
        ({names.TOPIC: b"dead-letters"}, "which is no input of ours"),
        ({names.REPLAY_COUNT: b"abc"}, "is exhausted"),
        ({names.REPLAY_COUNT: b"-1"}, "is exhausted"),
        ({names.REPLAY_COUNT: b"999999999999"}, "is exhausted"),
    ],
)
async def test_a_forged_dead_letter_goes_nowhere_and_is_kept(staffed, world_in, changed, why):
    async with world_in(staffed) as world:
        ours = {names.ID: world.tenant().encode(), names.TOPIC: staffed.catalogue.name(QUERIES).encode()}
        ours |= {names.PARTITION: b"0", names.OFFSET: b"0", **changed}
        await world.write(staffed.catalogue.name(DEAD_LETTERS), b"k", b"v", tuple(ours.items()))
        wanted = Filter(ids=(world.tenant(),))
        kept = await world.letters(1, wanted)
        outcome = await world.operations.replay(wanted)
        assert (outcome.done, len(outcome.refused)) == ([], 1)
        assert why in outcome.refused[0]
        assert await world.letters(1, wanted) == kept
