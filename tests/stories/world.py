"""One test's view of a realm: it publishes, decides, and writes down all that it hears; at the end its accounts must add up."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
from anyio.abc import TaskStatus

from infra.kafka.publisher import RawProducer, raw_producer
from infra.kafka.reading import follow
from infra.local.data.datasets import RetailTask
from tests.stories.contract import contract_of
from tests.stories.servers import Realm, Servers
from topics.catalogue import ANSWERS, OUTCOMES, REQUESTS, TRIAGE
from topics.envelope import Event, decode
from topics.events import ApprovalDecided, ApprovalRequested, Decision, QueryAsked
from topics.records import Headers, OutboundRecord, RawRecord
from workers import dead_letters
from workers.client import Client, open_client
from workers.demo.end_states import same_changes
from workers.demo.witness import Witness
from workers.operations import Operations

OUTPUTS = (TRIAGE, ANSWERS, REQUESTS, OUTCOMES)
PATIENCE_S = 90.0

Choice = tuple[Decision, dict[str, Any] | None]
Choose = Callable[[ApprovalRequested], Choice | None]


def approve(_: ApprovalRequested) -> Choice:
    return "approve", None


def nobody(_: ApprovalRequested) -> None:
    """The test decides itself."""


@dataclass
class World:
    """Tenants of this test begin with `prefix`; what others of the realm do is not looked at.

    `doubles_expected` is for negative controls only.
    """

    servers: Servers
    realm: Realm
    prefix: str
    client: Client
    producer: RawProducer
    http: httpx.AsyncClient
    operations: Operations
    witness: Witness = field(default_factory=Witness)
    heard: list[Event[Any]] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=dict)
    sent: dict[str, ApprovalDecided] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    choose: Choose = approve
    doubles_expected: bool = False

    # Speaking

    def tenant(self, name: str = "one") -> str:
        return f"{self.prefix}-{name}"

    async def ask(self, tenant: str, text: str, *, thread: str = "thread", user: str | None = None, query_id: str = "") -> str:
        """Ask, and remember that an answer is owed."""
        query_id = query_id or f"{tenant}:{thread}:{len(self.asked)}"
        self.asked[query_id] = tenant
        await self.client.publish(QueryAsked(thread_id=thread, text=text, user_id=user), tenant=tenant, event_id=query_id)
        return query_id

    async def order(self, tenant: str, task: RetailTask, *, thread: str = "thread") -> str:
        """Ask what a retail task's customer asks."""
        return await self.ask(tenant, task.instruction, thread=thread, user=task.user_id)

    async def decide(
        self,
        request: ApprovalRequested,
        decision: Decision,
        *,
        suffix: str = "1",
        tenant: str | None = None,
        arguments: dict[str, Any] | None = None,
        **changed: Any,
    ) -> str:
        """Publish a decision, and remember that an outcome is owed. `changed` fields make it a wrong one. Returns its id."""
        decision_id = f"{request.approval_id}-{suffix}"
        fields: dict[str, Any] = {
            "approval_id": request.approval_id,
            "thread_id": request.thread_id,
            "decision": decision,
            "args_digest": request.args_digest,
            "approver": "story",
            "arguments": arguments,
        }
        self.sent[decision_id] = ApprovalDecided(**{**fields, **changed})
        owner = tenant or self.witness.requests[request.approval_id][0]
        await self.client.publish(self.sent[decision_id], tenant=owner, event_id=decision_id)
        return decision_id

    async def keep_deciding(self) -> None:
        """Decide every request of this test as `choose` says, for ever."""
        seen: set[str] = set()
        while True:
            for approval_id, (_, request) in list(self.witness.requests.items()):
                if approval_id not in seen and (choice := self.choose(request)) is not None:
                    seen.add(approval_id)
                    await self.decide(request, choice[0], arguments=choice[1])
            await anyio.sleep(0.05)

    async def write(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Write any bytes to a topic of the realm."""
        await self.producer.write(OutboundRecord(topic, key, value, headers))

    async def model(self, endpoint: str, body: Any) -> None:
        (await self.http.post(f"{self.servers.model_control}/{endpoint}", json=body)).raise_for_status()

    async def back_office_fault(self, **fault: Any) -> None:
        (await self.http.post(f"{self.servers.back_office}/control/faults", json=fault)).raise_for_status()

    async def mend(self) -> None:
        """End every fault and script."""
        await self.model("reset", {})
        await self.http.delete(f"{self.servers.back_office}/control/faults")

    # Listening

    async def until(self, condition: Callable[[], bool], waiting_for: str, *, within_s: float = PATIENCE_S) -> None:
        await self.witness.until(condition, within_s=within_s, waiting_for=waiting_for)

    async def until_ended(self, *query_ids: str, within_s: float = PATIENCE_S) -> None:
        wanted = query_ids or tuple(self.asked)
        streams = self.witness.streams
        await self.until(lambda: all(streams[one].ended for one in wanted), f"the end of {len(wanted)} queries", within_s=within_s)

    async def until_answered(self, *decision_ids: str) -> None:
        """Wait for the outcomes of decisions; all that were sent when none is named."""
        wanted = set(decision_ids or self.sent)
        await self.until(lambda: wanted <= self.answered, f"the outcomes of {len(wanted)} decisions")

    async def request(self, tenant: str, number: int = 1) -> ApprovalRequested:
        """The first, or a later, request of a tenant."""
        await self.until(lambda: len(self.requests_of(tenant)) >= number, f"request {number} of {tenant}")
        return self.requests_of(tenant)[number - 1]

    def requests_of(self, tenant: str) -> list[ApprovalRequested]:
        return [request for owner, request in self.witness.requests.values() if owner == tenant]

    @property
    def answered(self) -> set[str]:
        return self.witness.refused.keys() | self.witness.accepted.keys()

    def text_of(self, query_id: str) -> str:
        completed = self.witness.streams[query_id].completed
        return completed.text if completed else ""

    async def letters(self, count: int, wanted: dead_letters.Filter | None = None) -> list[dead_letters.DeadLetter]:
        """The dead letters in any state, once there are so many."""
        found: list[dead_letters.DeadLetter] = []
        with anyio.move_on_after(PATIENCE_S):
            while len(found) < count:
                found = dead_letters.select(
                    await self.operations.load(), wanted or dead_letters.Filter(), states=dead_letters.STATES
                )
                await anyio.sleep(0.2)
        assert len(found) >= count, f"{len(found)} of {count} dead letters"
        return found

    # Accounts

    async def journal(self, tenant: str) -> list[dict[str, Any]]:
        """What the back office really did."""
        return (await self.http.get(f"{self.servers.back_office}/v1/{tenant}/journal")).json()

    async def effects(self, tenant: str) -> list[dict[str, Any]]:
        return [entry for entry in await self.journal(tenant) if entry["outcome"] == "applied"]

    async def wrong_end_states(self, tasks: Sequence[RetailTask]) -> list[tuple[str, Any]]:
        """Tasks, each of the tenant of its id, after which the shop's records are not what the data gives."""
        wrong = []
        for task in tasks:
            url = f"{self.servers.back_office}/v1/{self.tenant(task.task_id)}/changes"
            found = (await self.http.get(url)).json()
            if not same_changes(found, task):
                wrong.append((task.task_id, found))
        return wrong

    async def doubles(self, tenants: Sequence[str] = ()) -> int:
        """Effects beyond the first under one key, by the back office's own journal."""
        keys: Counter[str] = Counter()
        for tenant in tenants or sorted(set(self.asked.values())):
            keys.update(f"{tenant} {entry['idempotency_key']}" for entry in await self.effects(tenant))
        return sum(count - 1 for count in keys.values())

    async def check(self) -> None:
        """What holds after every story: no effect twice, every answer and every decision told, truly, in one voice."""
        assert self.broken == []
        assert [one for one in self.asked if not self.witness.streams[one].ended] == [], "unanswered queries"
        assert sorted(set(self.sent) - self.answered) == [], "unanswered decisions"
        untrue = [one for one in self.asked if (s := self.witness.streams[one]).completed and not s.is_true()]
        assert untrue == []
        assert self.contradictions() == []
        if not self.doubles_expected:
            assert await self.doubles() == 0

    def contradictions(self) -> list[str]:
        """Ids under which two different facts were published. A fact that is told again may belong to a later attempt."""
        known: dict[str, Any] = {}
        found: list[str] = []
        for event in self.heard:
            facts = (event.payload.TYPE, event.payload.model_dump(mode="json", exclude={"attempt"}))
            if known.setdefault(event.id, facts) != facts:
                found.append(f"{event.id}: {known[event.id]} and {facts}")
        return found

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        """Hear everything, for ever."""
        names = [self.realm.catalogue.name(spec) for spec in OUTPUTS]
        async with follow(self.realm.settings.kafka(), names) as records:
            task_status.started()
            await self.witness.watch(self._own(records))

    async def _own(self, records: AsyncGenerator[RawRecord]) -> AsyncGenerator[Event[Any]]:
        contract = contract_of(self.realm.settings.topic_prefix)
        async for record in records:
            self.broken += contract.problems(record)
            event = decode(record, catalogue=self.realm.catalogue)
            if event.tenant.startswith(f"{self.prefix}-"):
                self.heard.append(event)
                yield event


@asynccontextmanager
async def open_world(servers: Servers, realm: Realm, prefix: str) -> AsyncGenerator[World]:
    """Listen from now on, and hold the accounts against the promises when the block ends well."""
    failure: Exception | None = None
    async with AsyncExitStack() as stack:
        world = World(
            servers=servers,
            realm=realm,
            prefix=f"{prefix}-{servers.run}",
            client=await stack.enter_async_context(open_client(realm.settings, source="stories")),
            producer=await stack.enter_async_context(raw_producer(realm.settings.kafka())),
            http=await stack.enter_async_context(httpx.AsyncClient(timeout=30.0, trust_env=False)),
            operations=Operations(realm.settings, operator="stories"),
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        await tasks.start(world.watch)
        tasks.start_soon(world.keep_deciding)
        try:
            yield world
            await world.check()
        except Exception as error:  # noqa: BLE001 raised again below, outside the task group, so that it reads as it was raised
            failure = error
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await world.mend()
    if failure is not None:
        raise failure
