"""The watch over one worker process: its members are looked at every second, its dependencies every few."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio

from infra import health
from infra.clock import SystemClock
from infra.health import MemberState, Watch
from infra.kafka.board import Board, TopicPartition
from infra.kafka.lag import LOOK_WITHIN_S
from infra.kafka.progress import member_state
from topics.errors import SluiceError

LOOK_EVERY_S: Final = 1.0
ASK_EVERY_S: Final = 5.0
ASK_WITHIN_S: Final = LOOK_WITHIN_S + 1.0

Ask = Callable[[], Awaitable[Any]]


class Member(Protocol):
    """A group member, as far as the watch needs one."""

    @property
    def board(self) -> Board:
        """Its shared state."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """Its figures; `running` are slots that are taken."""
        ...


class Lag(Protocol):
    """Who knows how far a group is behind."""

    async def look(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Records of each partition that the group has not committed. OutageError when the broker does not answer."""
        ...


@dataclass(slots=True)
class Vitals:
    """What is known of the process. `ask` names dependencies and how each is asked; `down` says why one cannot serve."""

    members: Sequence[Member]
    clock: SystemClock
    lag_reader: Lag
    ask: Mapping[str, Ask] = field(default_factory=dict[str, Ask])
    down: dict[str, str] = field(default_factory=dict[str, str])
    lag: dict[tuple[str, str, int], int] = field(default_factory=dict[tuple[str, str, int], int])
    watches: dict[str, Watch] = field(default_factory=dict[str, Watch])

    async def run(self) -> None:
        """Watch for ever."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_looking)
            tasks.start_soon(self._keep_asking, "kafka", self._read_lag)
            for name, ask in self.ask.items():
                tasks.start_soon(self._keep_asking, name, ask)

    def liveness(self) -> dict[str, list[str]]:
        """Group -> stages that stand still though they could move. Empty when all is well."""
        self.look()
        now_s = self.clock.monotonic_s()
        found = {group: health.stalled(watch, now_s) for group, watch in self.watches.items()}
        return {group: stages for group, stages in found.items() if stages}

    def readiness(self) -> list[str]:
        """Why the process should be given no work, a sentence each. Empty when it should."""
        return health.unready(self.states(), self.down)

    def states(self) -> list[MemberState]:
        """Every member at this moment."""
        return [member_state(one.board, running=one.snapshot()["running"]) for one in self.members]

    def look(self) -> None:
        """See what moved. While a dependency is down nothing could."""
        now_s = self.clock.monotonic_s()
        for state in self.states():
            before = self.watches.get(state.group, Watch())
            self.watches[state.group] = Watch(now_s) if self.down else health.observe(before, state, now_s)

    async def _keep_looking(self) -> None:
        while True:
            self.look()
            await anyio.sleep(LOOK_EVERY_S)

    async def _keep_asking(self, name: str, ask: Ask) -> None:
        while True:
            try:
                with anyio.fail_after(ASK_WITHIN_S):
                    await ask()
                self.down.pop(name, None)
            except TimeoutError:
                self.down[name] = f"no answer within {ASK_WITHIN_S:g} s"
            except SluiceError as error:
                self.down[name] = str(error)
            except Exception as error:  # noqa: BLE001 -- the watch must not end what it watches; it says that it cannot tell
                self.down[name] = type(error).__name__
            await anyio.sleep(ASK_EVERY_S)

    async def _read_lag(self) -> None:
        fresh: dict[tuple[str, str, int], int] = {}
        for member in self.members:
            group = member.board.group
            found = await self.lag_reader.look(group, list(member.board.assignments))
            fresh |= {(group, topic, number): lag for (topic, number), lag in found.items()}
        self.lag = fresh
