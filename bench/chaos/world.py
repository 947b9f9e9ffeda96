"""One run: its topics, its outside world, its workers, its ledger, and whatever disturbs them."""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from anyio.abc import TaskGroup

from bench.chaos.account import Account
from bench.chaos.cluster import Cluster
from bench.chaos.effects import OutsideClient
from bench.chaos.facts import Answered, Buried, Committed, Disturbed, Fact, Left, Published
from bench.chaos.inputs import Task, claim_id_of, record_of
from bench.chaos.ledger import Ledger, Reader, now_ns, read
from bench.chaos.live import Live
from bench.chaos.servers import Servers
from bench.chaos.spec import OURS, Spec
from infra.kafka import dead_letter
from infra.kafka.dead_letter import header_text
from infra.kafka.reading import scan
from infra.local.ports import HOST, free_port
from infra.local.processes import Server, ServerSpec, running
from topics.catalogue import ANSWERS, DEAD_LETTERS, QUERIES, RESOLUTIONS, Catalogue
from topics.envelope import decode
from topics.errors import OutageError, SluiceError
from topics.events import AnswerCompleted

ROOT: Final = Path(__file__).parents[2]
SAMPLE_EVERY_S: Final = 0.1
LOOK_EVERY_S: Final = 0.05
STARTED_WITHIN_S: Final = 40.0


@dataclass(frozen=True, slots=True)
class Member:
    """A worker process: its place in the crew, this incarnation of it, and its process."""

    name: str
    spec: Spec
    server: Server

    @property
    def incarnation(self) -> str:
        """What the ledger calls it."""
        return self.spec.incarnation


@dataclass(slots=True)
class World:
    """A run that goes on. Disturb it through its methods, so that the ledger knows."""

    servers: Servers
    name: str
    engine: str
    seed: int
    folder: Path
    ledger: Ledger
    outside: OutsideClient
    cluster: Cluster
    tasks: TaskGroup
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    live: Live = field(default_factory=Live)
    samples: int = 0
    feeding: int = 0
    _starts: int = 0
    _reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = Reader(self.ledger_dir)

    @property
    def ledger_dir(self) -> Path:
        """Where everybody's facts are."""
        return self.folder / "ledger"

    @property
    def catalogue(self) -> Catalogue:
        """The topics of this run."""
        return Catalogue(f"{self.name}.")

    @property
    def group(self) -> str:
        """The consumer group of this run's workers."""
        return f"{self.name}.workers"

    # Workers

    async def start_worker(self, name: str, **settings: Any) -> Member:
        """Start a worker process; `settings` go before those of the world. It joins the group in its own time."""
        self._starts += 1
        spec = self._spec(f"{name}-{self._starts}", {**self.settings, **settings})
        path = self.folder / "specs" / f"{spec.incarnation}.json"
        path.write_text(spec.model_dump_json(indent=2))
        command = (sys.executable, "-m", "bench.chaos.worker", str(path))
        log_path = self.folder / "logs" / f"{spec.incarnation}.log"
        server = Server(ServerSpec(name=spec.incarnation, command=command, log_path=log_path, stop_grace_s=0.5, cwd=ROOT))
        await server.start()
        self.members[name] = Member(name, spec, server)
        return self.members[name]

    def _spec(self, incarnation: str, settings: dict[str, Any]) -> Spec:
        own: dict[str, Any] = {
            "incarnation": incarnation,
            "engine": self.engine,
            "kafka_bootstrap": self.servers.bootstrap,
            "redis_url": self.servers.redis_url,
            "effects_port": self.outside.port,
            "ledger_dir": self.ledger_dir,
            "topic_prefix": self.catalogue.prefix,
            "group": self.group,
            "redis_prefix": self.name,
        }
        return Spec(**{**own, **settings})

    async def start_workers(self, count: int = 3, **settings: Any) -> None:
        """Start `w1` to `wN`, and wait until they hold all partitions between them."""
        for number in range(1, count + 1):
            await self.start_worker(f"w{number}", **settings)
        with anyio.move_on_after(STARTED_WITHIN_S):
            while not self.look().holders >= {member.incarnation for member in self.members.values()}:  # noqa: ASYNC110 -- what is awaited happens in files
                await anyio.sleep(LOOK_EVERY_S)

    async def kill(self, name: str) -> Member:
        """SIGKILL, and nothing before it."""
        member = self.members.pop(name)
        self._disturb("kill", member.incarnation)
        await member.server.kill()
        return member

    async def kill_at_work(self, name: str, *, within_s: float = 12.0) -> Member:
        """SIGKILL as soon as the worker is seen with a handler running; at the latest after `within_s`."""
        with anyio.move_on_after(within_s):
            while not self.look().running.get(self.members[name].incarnation):  # noqa: ASYNC110 -- what is awaited happens in files
                await anyio.sleep(LOOK_EVERY_S)
        return await self.kill(name)

    def freeze(self, name: str) -> Member:
        """SIGSTOP: it does nothing, and does not know it."""
        member = self.members[name]
        os.kill(member.server.pid, signal.SIGSTOP)
        self._disturb("freeze", member.incarnation)
        return member

    def thaw(self, name: str) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        member = self.members[name]
        self._disturb("freeze", member.incarnation, ends=True)
        os.kill(member.server.pid, signal.SIGCONT)

    async def stop(self, name: str, *, within_s: float = 60.0) -> Left:
        """SIGTERM, and wait for its end. Writes down how it left."""
        member = self.members.pop(name)
        began_ns = now_ns()
        self._disturb("stop", member.incarnation)
        os.kill(member.server.pid, signal.SIGTERM)
        with anyio.move_on_after(within_s):
            await member.server.wait_ended()
        code = member.server.exit_code
        left = Left(at_ns=now_ns(), who=member.incarnation, code=-1 if code is None else code, seconds=(now_ns() - began_ns) / 1e9)
        self.ledger.write(left)
        await member.server.kill()
        return left

    async def revive_dead(self) -> None:
        """Start anew every worker whose process ended by itself."""
        for name, member in list(self.members.items()):
            if not member.server.is_running:
                self._disturb("died", member.incarnation)
                await member.server.kill()
                await self.start_worker(name)

    def _disturb(self, kind: str, target: str, *, ends: bool = False) -> None:
        self.ledger.write(Disturbed(at_ns=now_ns(), who=self.ledger.who, kind=kind, target=target, ends=ends))

    @asynccontextmanager
    async def disturbing(self, kind: str, target: str) -> AsyncGenerator[None]:
        """Write down that the block disturbs something, and that it has ended."""
        self._disturb(kind, target)
        try:
            yield
        finally:
            self._disturb(kind, target, ends=True)

    # Inputs

    def feed(self, tasks: Sequence[Task], *, rate_per_s: float) -> None:
        """Publish tasks at a pace, in the background."""
        self.feeding += len(tasks)
        self.tasks.start_soon(self._feed, list(tasks), rate_per_s)

    async def publish(self, tasks: Iterable[Task]) -> None:
        """Publish tasks at once, and wait until all are acknowledged."""
        wanted = list(tasks)
        self.feeding += len(wanted)
        await self._feed(wanted, None)

    async def _feed(self, tasks: list[Task], rate_per_s: float | None) -> None:
        producer = AIOKafkaProducer(**self.servers.kafka.client_options(), acks="all", enable_idempotence=True, linger_ms=5)
        await producer.start()
        began_s = anyio.current_time()
        try:
            async with anyio.create_task_group() as sending:
                for number, task in enumerate(tasks):
                    if rate_per_s:
                        await anyio.sleep_until(began_s + number / rate_per_s)
                    sending.start_soon(self._publish_one, await self._hand_over(producer, task), producer, task)
        finally:
            await producer.stop()

    async def _hand_over(self, producer: Any, task: Task) -> Any:
        """In the order of tasks, whatever happens to their acknowledgements."""
        record = record_of(task, catalogue=self.catalogue)
        while True:
            try:
                return await producer.send(record.topic, record.value, key=record.key, headers=list(record.headers))
            except KafkaError:
                await anyio.sleep(0.5)

    async def _publish_one(self, acknowledgement: Any, producer: Any, task: Task) -> None:
        while True:
            try:
                told = await acknowledgement
                break
            except KafkaError:
                acknowledgement = await self._hand_over(producer, task)
        self.ledger.write(
            Published(
                at_ns=now_ns(),
                who=self.ledger.who,
                event_id=task.event_id,
                claim_id=claim_id_of(task),
                key=f"{task.tenant}.{task.key}",
                partition=f"{told.topic}/{told.partition}",
                offset=told.offset,
                effect=task.effect,
            )
        )
        self.feeding -= 1

    # Watching

    def look(self) -> Live:
        """The state as far as the ledger tells it now."""
        self.live.feed(self._reader.news())
        return self.live

    async def until(self, wanted: float, *, within_s: float) -> None:
        """Wait until a share of the published inputs is finished, or the time is over."""
        with anyio.move_on_after(within_s):
            while len(self.look().finished) < wanted:  # noqa: ASYNC110 -- what is awaited happens in files
                await anyio.sleep(LOOK_EVERY_S)

    async def quiesce(self, *, within_s: float, quiet_s: float = 20.0) -> bool:
        """Wait until every input is finished and committed. False when nothing moved for `quiet_s`, or the time is over."""
        with anyio.move_on_after(within_s):
            while True:
                live = self.look()
                if not self.feeding and live.unfinished == 0 and await self._all_committed():
                    return True
                if not self.feeding and (now_ns() - live.moved_ns) / 1e9 > quiet_s:
                    return False
                await anyio.sleep(LOOK_EVERY_S * 4)
        return False

    async def _all_committed(self) -> bool:
        try:
            ends = await self.cluster.ends(self.catalogue.name(QUERIES))
        except OutageError:
            return False
        return all(self.look().positions.get(partition, 0) >= end for partition, end in ends.items())

    async def sample(self) -> None:
        """Ask the broker for the group's positions, all the time, and write down what changed."""
        known: dict[str, int] = {}
        while True:
            asked_at_ns = now_ns()
            with suppress(OutageError):
                found = await self.cluster.positions(self.group)
                self.samples += 1
                for partition, position in found.items():
                    if known.get(partition) != position:
                        known[partition] = position
                        self.ledger.write(
                            Committed(
                                at_ns=now_ns(),
                                who=self.ledger.who,
                                partition=partition,
                                position=position,
                                asked_at_ns=asked_at_ns,
                            )
                        )
            await anyio.sleep(SAMPLE_EVERY_S)

    async def account(self) -> Account:
        """Read the topics that were written, and index everything that is known."""
        for fact in [fact async for fact in self._told()]:
            self.ledger.write(fact)
        return Account(read(self.ledger_dir))

    async def _told(self) -> AsyncGenerator[Fact]:
        names = [self.catalogue.name(ANSWERS), self.catalogue.name(DEAD_LETTERS)]
        async with scan(self.servers.kafka, names) as records:
            async for record in records:
                if record.topic == names[0]:
                    payload: Any = decode(record, catalogue=self.catalogue).payload
                    if isinstance(payload, AnswerCompleted):
                        yield Answered(at_ns=now_ns(), who="conductor", event_id=payload.query_id, outcome=payload.text)
                else:
                    origin = [header_text(record.headers, name) for name in (dead_letter.TOPIC, dead_letter.PARTITION)]
                    yield Buried(
                        at_ns=now_ns(),
                        who="conductor",
                        partition="/".join(str(part) for part in origin),
                        offset=int(header_text(record.headers, dead_letter.OFFSET) or -1),
                        reason=header_text(record.headers, dead_letter.REASON) or "",
                    )


@asynccontextmanager
async def open_world(servers: Servers, name: str, *, engine: str = OURS, seed: int = 0, **settings: Any) -> AsyncGenerator[World]:
    """A run with its topics made, its outside world up, and its group's positions sampled. All of it ends with the block.

    Args:
        name: Of this run only; topics, groups and keys begin with it, and its folder is called so.
        settings: Fields of `Spec` for all workers of the run.
    """
    folder = servers.folder / name
    for part in ("ledger", "logs", "specs"):
        (folder / part).mkdir(parents=True)
    outside, port = _outside(folder)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(outside))
        cluster = await stack.enter_async_context(Cluster(servers.kafka).open())
        ledger = stack.enter_context(Ledger(folder / "ledger", "conductor"))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        world = World(servers, name, engine, seed, folder, ledger, OutsideClient(port), cluster, tasks, settings)
        await cluster.create(_topics(world.catalogue))
        tasks.start_soon(world.sample)
        try:
            yield world
        finally:
            with anyio.CancelScope(shield=True):
                for member in list(world.members.values()):
                    await member.server.kill()
                tasks.cancel_scope.cancel()
                with suppress(SluiceError):
                    await servers.mend()
                    await cluster.delete(_topics(world.catalogue))


def _topics(catalogue: Catalogue) -> dict[str, int]:
    specs = (QUERIES, ANSWERS, DEAD_LETTERS, RESOLUTIONS)
    return {catalogue.name(spec): spec.partitions for spec in specs} | {catalogue.replay_name(QUERIES): QUERIES.partitions}


def _outside(folder: Path) -> tuple[Server, int]:
    port = free_port()

    async def probe() -> str | None:
        try:
            async with await anyio.connect_tcp(HOST, port):
                return None
        except OSError as error:
            return str(error)

    spec = ServerSpec(
        name="outside",
        command=(sys.executable, "-m", "bench.chaos.effects", str(port), str(folder / "ledger")),
        log_path=folder / "logs" / "outside.log",
        probe=probe,
        cwd=ROOT,
    )
    return Server(spec), port
