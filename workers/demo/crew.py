"""Worker processes of our own, started, watched and killed by name."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.processes import Server, ServerSpec
from workers.app import WORKERS


@dataclass(slots=True)
class Crew:
    """Workers as processes; each reads its settings from the data folder of the stack."""

    data_dir: Path
    _members: dict[str, Server] = field(default_factory=dict[str, Server])

    async def start(self, name: str, workers: Sequence[str] = WORKERS, *, nice: int = 0) -> None:
        """Start a worker process, which gives way to others by `nice`; its log is `logs/NAME.log`."""
        command = [sys.executable, "-m", "workers", "worker", "--data-dir", str(self.data_dir), "--nice", str(nice), *workers]
        member = Server(ServerSpec(name=name, command=command, log_path=self.data_dir / "logs" / f"{name}.log", stop_grace_s=40.0))
        self._members[name] = member
        await member.start()

    async def kill(self, name: str) -> None:
        """SIGKILL: no drain, no commit, nothing said."""
        await self._members.pop(name).kill()

    async def stop(self, name: str) -> None:
        """SIGTERM, and wait until it has drained."""
        await self._members.pop(name).stop()

    def pid_of(self, name: str) -> int:
        """The process id of a worker."""
        return self._members[name].pid

    async def stop_all(self) -> None:
        """Stop everybody."""
        for name in list(self._members):
            await self.stop(name)


@asynccontextmanager
async def crew(data_dir: Path) -> AsyncGenerator[Crew]:
    """A crew that is gone when the block ends."""
    members = Crew(data_dir)
    try:
        yield members
    finally:
        await members.stop_all()
