"""A tenant that sorts its tickets in its own way shows how, and gets its own labels; nobody else's change."""

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from flows.intents import BANKING77
from flows.triage import prompt_version_of
from infra.local.data import datasets
from infra.redis.client import connect
from infra.redis.examples import RedisExamples
from infra.redis.keys import Keys
from tests.stories.test_offsets import sluice
from tests.stories.world import PATIENCE_S, World
from topics.catalogue import TICKETS
from topics.events import TicketOpened, TicketTriaged

pytestmark = [pytest.mark.story, pytest.mark.timeout(280)]

SHOWN, ASKED = datasets.tickets()[:200], datasets.tickets()[200:260]
OWN = dict(zip(BANKING77, (*BANKING77[1:], BANKING77[0]), strict=True))
"""To the tenant, each label means the next one."""
BASE = prompt_version_of(BANKING77)


async def command(world: World, *arguments: str) -> dict[str, object]:
    code, out, err = await sluice(world.realm, "triage", "examples", *arguments, "--json")
    assert (code, err) == (0, ""), err or out
    return json.loads(out)


async def teach(world: World, tenant: str, folder: Path) -> dict[str, object]:
    """Give a tenant the examples, sorted in its own way."""
    lines = [
        {
            "ticket_id": one.ticket_id,
            "body": one.text,
            "intent": OWN[one.intent],
            "priority": "normal",
            "needs_person": False,
            "summary": "",
        }
        for one in SHOWN
    ]
    file = folder / "examples.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return await command(world, "add", "--tenant", tenant, "--file", str(file))


async def sort(world: World, tenant: str) -> list[TicketTriaged]:
    """What becomes of the tickets, in their order."""
    for one in ASKED:
        ticket = TicketOpened(ticket_id=one.ticket_id, body=one.text)
        await world.client.publish(ticket, tenant=tenant, event_id=f"{tenant}-{one.ticket_id}")
    await world.until(lambda: all((tenant, one.ticket_id) in world.witness.triaged for one in ASKED), f"the tickets of {tenant}")
    return [world.witness.triaged[tenant, one.ticket_id] for one in ASKED]


async def until_forgotten(world: World, tenant: str, ticket_id: str) -> None:
    client = connect(world.realm.settings.redis_url, timeout_s=5.0)
    try:
        store = RedisExamples(client, Keys(world.realm.settings.redis_prefix))
        with anyio.fail_after(PATIENCE_S):
            while ticket_id in {one.example_id for one in await store.of(tenant)}:
                await anyio.sleep(0.1)
    finally:
        await client.aclose()


async def test_examples_change_their_own_tenants_triage_and_go_with_their_ticket(
    staffed, world_in, tmp_path: Path, figure: Callable[[str, object], None]
):
    """P8. Two tenants send the same tickets; one of them has shown what it calls them."""
    async with world_in(staffed) as world:
        taught, other = world.tenant("taught"), world.tenant("other")
        told = await teach(world, taught, tmp_path)
        assert (told["added"], told["examples"]) == (len(SHOWN), len(SHOWN))
        again = await teach(world, taught, tmp_path)
        assert (again["added"], again["replaced"], again["version"]) == (0, len(SHOWN), told["version"])

        own = {}
        for tenant in (taught, other):
            found = await sort(world, tenant)
            own[tenant] = sum(one.intent == OWN[ticket.intent] for one, ticket in zip(found, ASKED, strict=True))
            assert {one.prompt_version for one in found} == {f"{BASE}+{told['version']}" if tenant == taught else BASE}
        figure(f"of {len(ASKED)} tickets with the tenant's own label, with its examples and without", tuple(own.values()))
        assert own[taught] >= 0.6 * len(ASKED)
        assert own[other] <= 0.1 * len(ASKED)

        erased = SHOWN[0].ticket_id
        await world.write(world.realm.catalogue.name(TICKETS), f"{taught}/{erased}".encode(), None)
        await until_forgotten(world, taught, erased)
        left = await command(world, "list", "--tenant", taught)
        assert len(left["examples"]) == len(SHOWN) - 1
        assert left["version"] != told["version"]
        assert (await command(world, "remove", "--all", "--tenant", taught))["examples"] == 0
