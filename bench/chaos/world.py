"""One run: its topics, its outside world, its workers, its ledger, and whatever disturbs them."""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from bench.chaos.account import Account
from bench.chaos.cluster import Cluster
from bench.chaos.effects import OutsideClient
from bench.chaos.facts import Disturbed, Left
from bench.chaos.feed import Feeder, feeding
from bench.chaos.inputs import Task
from bench.chaos.ledger import Ledger, Reader, now_ns, read
from bench.chaos.live import Live
from bench.chaos.proxy import Proxy, Weather
from bench.chaos.servers import Servers
from bench.chaos.spec import OURS, Spec
from bench.chaos.witness import PositionSampler, outputs
from infra.local.ports import HOST, free_port
from infra.local.processes import Server, ServerSpec, running
from topics.catalogue import ANSWERS, DEAD_LETTERS, QUERIES, RESOLUTIONS, Catalogue
from topics.errors import ConfigError, OutageError, SluiceError

ROOT: Final = Path(__file__).parents[2]
SAMPLE_EVERY_S: Final = 0.1
LOOK_EVERY_S: Final = 0.05
SUPERVISE_EVERY_S: Final = 0.5
RESTARTS: Final = 3
STARTED_WITHIN_S: Final = 40.0


async def wait_for(condition: Callable[[], bool], *, within_s: float) -> bool:
    """Look again and again: what is awaited happens in other processes. False when the time is over."""
    with anyio.move_on_after(within_s):
        while not condition():  # noqa: ASYNC110 -- no event of this process tells of it
            await anyio.sleep(LOOK_EVERY_S)
        return True
    return False


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
    catalogue: Catalogue
    group: str
    folder: Path
    ledger: Ledger
    outside: OutsideClient
    cluster: Cluster
    sampler: PositionSampler
    feeder: Feeder
    tasks: TaskGroup
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    live: Live = field(default_factory=Live)
    _starts: int = 0
    _reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = Reader(self.ledger_dir)

    @property
    def ledger_dir(self) -> Path:
        """Where everybody's facts are."""
        return self.folder / "ledger"

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
        await wait_for(self._all_hold, within_s=STARTED_WITHIN_S)

    def _all_hold(self) -> bool:
        return self.look().holders >= {member.incarnation for member in self.members.values()}

    async def kill(self, name: str) -> Member:
        """SIGKILL, and nothing before it."""
        member = self.members.pop(name)
        self._disturb("kill", member.incarnation)
        await member.server.kill()
        return member

    async def kill_at_work(self, name: str) -> Member:
        """SIGKILL as soon as the worker is seen with a handler running."""
        await self._until_at_work(name)
        return await self.kill(name)

    async def kill_busiest(self) -> str:
        """SIGKILL whoever has the most handlers running, as soon as anybody has one. Returns its name."""
        await wait_for(lambda: any(map(self._running, self.members)), within_s=30.0)
        name = max(self.members, key=self._running)
        await self.kill(name)
        return name

    def _running(self, name: str) -> int:
        return len(self.look().running.get(self.members[name].incarnation, ()))

    async def freeze_at_work(self, name: str) -> Member:
        """SIGSTOP as soon as the worker is seen with a handler running."""
        await self._until_at_work(name)
        return self.freeze(name)

    async def stop_at_work(self, name: str) -> Left:
        """SIGTERM as soon as the worker is seen with a handler running."""
        await self._until_at_work(name)
        return await self.stop(name)

    async def _until_at_work(self, name: str, *, within_s: float = 30.0) -> None:
        await wait_for(lambda: self._running(name) > 0, within_s=within_s)

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

    async def supervise(self) -> None:
        """Start a worker anew when its process has ended by itself, as any platform would; and write that down."""
        while True:
            await anyio.sleep(SUPERVISE_EVERY_S)
            for name, member in list(self.members.items()):
                if not member.server.is_running and self.members.get(name) is member:
                    self._disturb("died", member.incarnation)
                    await member.server.kill()
                    await self.start_worker(name)

    # Servers and the network

    async def weather(self, proxy: Proxy, kind: str, weather: Weather, for_s: float) -> None:
        """Bad weather for a while; the ledger calls it `kind`."""
        async with self.disturbing(kind, "network"):
            await proxy.change(weather)
            await anyio.sleep(for_s)
            await proxy.change("fair")

    async def restart_server(self, server: Server) -> None:
        """SIGKILL a server and start it on the same data, again when a busy machine gives it too little time.

        Raises:
            ConfigError: It does not come back.
        """
        await server.kill()
        for _ in range(RESTARTS - 1):
            with suppress(ConfigError):
                return await server.start()
        return await server.start()

    async def freeze_server(self, server: Server, kind: str, for_s: float) -> None:
        """SIGSTOP a server for a while."""
        async with self.disturbing(kind, server.spec.name):
            os.kill(server.pid, signal.SIGSTOP)
            try:
                await anyio.sleep(for_s)
            finally:
                os.kill(server.pid, signal.SIGCONT)

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
        self.tasks.start_soon(partial(self.feeder.feed, rate_per_s=rate_per_s), self.feeder.expect(tasks))

    async def publish(self, tasks: Iterable[Task]) -> None:
        """Publish tasks at once, and wait until all are acknowledged."""
        await self.feeder.feed(self.feeder.expect(tasks))

    # Watching

    def look(self) -> Live:
        """The state as far as the ledger tells it now."""
        self.live.feed(self._reader.news())
        return self.live

    async def until(self, wanted: float, *, within_s: float) -> None:
        """Wait until so many inputs are finished, or the time is over."""
        await wait_for(lambda: len(self.look().finished) >= wanted, within_s=within_s)

    async def quiesce(self, *, within_s: float, quiet_s: float = 20.0) -> bool:
        """Wait until every input is finished and committed. False when nobody was heard of for `quiet_s`, or the time is over."""
        with anyio.move_on_after(within_s):
            while True:
                live = self.look()
                if not self.feeder.pending and live.unfinished == 0 and await self._all_committed():
                    return True
                if not self.feeder.pending and (now_ns() - live.moved_ns) / 1e9 > quiet_s:
                    return False
                await anyio.sleep(LOOK_EVERY_S * 4)
        return False

    async def _all_committed(self) -> bool:
        try:
            ends = await self.cluster.ends(self.catalogue.name(QUERIES))
        except OutageError:
            return False
        return all(self.look().positions.get(partition, 0) >= end for partition, end in ends.items())

    async def account(self) -> Account:
        """Read the topics that were written, and index everything that is known."""
        for fact in await outputs(self.servers.kafka, self.catalogue):
            self.ledger.write(fact)
        return Account(read(self.ledger_dir))


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
        catalogue, group = Catalogue(f"{name}."), f"{name}.query"  # as the commands of operators call it
        feeder = await stack.enter_async_context(feeding(servers.kafka, ledger=ledger, catalogue=catalogue))
        await cluster.create(_topics(catalogue))
        stack.push_async_callback(_tidy, servers, cluster, catalogue)
        crew: dict[str, Member] = {}
        stack.push_async_callback(_end, crew)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        world = World(
            servers=servers,
            name=name,
            engine=engine,
            seed=seed,
            catalogue=catalogue,
            group=group,
            folder=folder,
            ledger=ledger,
            outside=OutsideClient(port),
            cluster=cluster,
            sampler=PositionSampler(cluster, group, ledger),
            feeder=feeder,
            tasks=tasks,
            settings=settings,
            members=crew,
        )
        tasks.start_soon(world.sampler.run)
        tasks.start_soon(world.supervise)
        yield world


async def _end(crew: dict[str, Member]) -> None:
    """Kill who is left, once nobody starts any more."""
    with anyio.CancelScope(shield=True):
        for member in crew.values():
            await member.server.kill()


async def _tidy(servers: Servers, cluster: Cluster, catalogue: Catalogue) -> None:
    """Leave the servers well, and without this run's topics."""
    with anyio.CancelScope(shield=True), suppress(SluiceError):
        await servers.mend()
        await cluster.delete(_topics(catalogue))


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
