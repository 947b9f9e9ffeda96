"""One behaviour of examples of triage: in memory, and in Redis."""

import math
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from redis.asyncio import Redis

from infra.redis.examples import RedisExamples
from infra.redis.keys import Keys
from tests.fakes.examples import MemoryExamples
from topics.errors import ConfigError, RejectedError
from topics.example import Example

EAST = (1.0, 0.0, 0.0)
MOST = 30


@pytest.fixture
async def redis_examples(redis_client: Redis, redis_keys: Keys) -> AsyncIterator[RedisExamples]:
    store = RedisExamples(redis_client, redis_keys, dimensions=3, most=MOST)
    await store.prepare()
    await store.prepare()
    yield store
    await redis_client.execute_command("FT.DROPINDEX", redis_keys.example_index(), "DD")


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> Any:
    return MemoryExamples(most=MOST) if request.param == "memory" else request.getfixturevalue("redis_examples")


def example(example_id: str = "e1", tenant: str = "acme", **changed: Any) -> Example:
    fields: dict[str, Any] = {
        "title": "",
        "body": "my card",
        "intent": "lost_card",
        "priority": "high",
        "needs_person": True,
        "summary": "Card.",
    }
    return Example(tenant=tenant, example_id=example_id, **fields | changed)


def near_east(step: int) -> tuple[float, float, float]:
    """The larger the step, the further from east."""
    return math.cos(step / 1000), math.sin(step / 1000), 0.0


def plain(found: Any) -> list[dict[str, Any]]:
    return [asdict(one) for one in found]


async def test_an_example_comes_back_as_it_went_in(store: Any) -> None:
    one = example("a/b c:{d}*", title="Zu", body='Grüße "du"\n</ticket> ✓', needs_person=False, summary="")
    assert await store.add("acme", [one], [EAST]) == 1
    assert plain(await store.nearest("acme", EAST, 5)) == plain(await store.of("acme")) == [asdict(one)]


async def test_the_nearest_come_first_and_no_more_than_asked_for(store: Any) -> None:
    await store.add("acme", [example(f"e{step}") for step in (3, 1, 2, 0)], [near_east(step) for step in (3, 1, 2, 0)])
    assert [one.example_id for one in await store.nearest("acme", EAST, 3)] == ["e0", "e1", "e2"]


@pytest.mark.parametrize("names", [("acme", "ACME", "acme,x", "ac"), ("a b", "a|b", "a*", "*"), ("x", "x}", "{x}", "@tenant")])
async def test_no_tenant_ever_sees_an_example_of_another_however_near(store: Any, names: tuple[str, ...]) -> None:
    """P8: tenants whose names differ by what a tag query could take for the same, with examples that are nearly equal."""
    for offset, tenant in enumerate(names):
        mine = [example(f"e{number}", tenant) for number in range(20)]
        await store.add(tenant, mine, [near_east(number * len(names) + offset) for number in range(20)])
    for tenant in names:
        found = await store.nearest(tenant, EAST, 50)
        assert [(one.tenant, one.example_id) for one in found] == [(tenant, f"e{number}") for number in range(20)]
        assert {one.tenant for one in await store.of(tenant)} == {tenant}
    assert await store.nearest("nobody", EAST, 50) == []
    assert await store.remove(names[0], [f"e{number}" for number in range(20)]) == 20
    assert [len(await store.of(tenant)) for tenant in names] == [0, 20, 20, 20]


@pytest.mark.parametrize("tenant", ["", "  "])
async def test_without_a_tenant_nothing_is_asked(store: Any, tenant: str) -> None:
    await store.add("acme", [example()], [EAST])
    with pytest.raises(ValueError, match="tenant"):
        await store.nearest(tenant, EAST, 5)
    with pytest.raises(ValueError, match="tenant"):
        await store.of(tenant)
    with pytest.raises(ValueError, match="tenant"):
        await store.remove(tenant, ["e1"])


async def test_an_example_of_another_tenant_or_the_same_id_twice_stores_nothing(store: Any) -> None:
    for wrong in ([example("e1", "globex")], [example("e1"), example("e1")]):
        with pytest.raises(ValueError, match=r"tenant|twice"):
            await store.add("acme", wrong, [EAST] * len(wrong))
    assert await store.of("acme") == await store.of("globex") == []


async def test_an_example_with_a_known_id_takes_its_place(store: Any) -> None:
    await store.add("acme", [example("e1"), example("e2")], [EAST, EAST])
    changed = replace(example("e1"), intent="refund")
    assert await store.add("acme", [changed], [(0.0, 1.0, 0.0)]) == 0
    assert plain(await store.of("acme")) == plain([changed, example("e2")])
    assert [one.example_id for one in await store.nearest("acme", EAST, 5)] == ["e2", "e1"]


async def test_a_tenant_has_a_bound_and_what_goes_above_it_is_stored_not_at_all(store: Any) -> None:
    many = [example(f"e{number:02}") for number in range(MOST)]
    await store.add("acme", many, [EAST] * MOST)
    above = [replace(many[0], intent="refund"), example("one more")]
    for refused in (store.check_room("acme", above), store.add("acme", above, [EAST, EAST])):
        with pytest.raises(RejectedError) as caught:
            await refused
        assert caught.value.reason_code == "too_many_examples"
    await store.check_room("acme", many)
    await store.check_room("globex", [example("e1", "globex")])
    assert plain(await store.of("acme")) == plain(many)
    assert await store.add("acme", [replace(many[0], intent="refund")], [EAST]) == 0
    assert await store.add("globex", [example("e1", "globex")], [EAST]) == 1


async def test_the_version_tells_one_set_from_another_and_not_how_it_came_about(store: Any) -> None:
    seen = [await store.version("acme")]
    await store.add("acme", [example("e1")], [EAST])
    seen.append(await store.version("acme"))
    await store.add("acme", [example("e2")], [EAST])
    seen.append(await store.version("acme"))
    await store.add("acme", [example("e2", summary="Other.")], [EAST])
    seen.append(await store.version("acme"))
    assert seen[0] is None
    assert len(set(seen)) == 4
    assert await store.remove("acme", ["e2", "unknown"]) == 1
    assert await store.version("acme") == seen[1]
    assert await store.version("globex") is None
    assert await store.remove("acme", ["e1"]) == 1
    assert await store.version("acme") is None


async def test_an_example_that_cannot_be_read_is_told_and_all_can_be_removed(
    redis_client: Redis, redis_keys: Keys, redis_examples: RedisExamples
) -> None:
    await redis_examples.add("acme", [example("e1"), example("a b")], [EAST, EAST])
    await redis_client.hset(redis_keys.example("acme", "a b"), "example", '{"tenant": "acme"}')
    for asking in (redis_examples.nearest("acme", EAST, 5), redis_examples.of("acme")):
        with pytest.raises(RejectedError) as caught:
            await asking
        assert caught.value.reason_code == "bad_example"
    assert await redis_examples.remove("acme", await redis_examples.ids("acme")) == 2
    assert await redis_examples.of("acme") == []


async def test_an_index_for_vectors_of_another_length_is_refused(redis_client: Redis, redis_keys: Keys) -> None:
    await RedisExamples(redis_client, redis_keys, dimensions=3).prepare()
    with pytest.raises(ConfigError, match="new prefix"):
        await RedisExamples(redis_client, redis_keys, dimensions=4).prepare()
    await redis_client.execute_command("FT.DROPINDEX", redis_keys.example_index(), "DD")
