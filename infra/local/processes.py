"""One server as a child process under a guard: started, found ready, ended, and never left behind."""

import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from topics.errors import ConfigError, HaltError

Probe = Callable[[], Awaitable[str | None]]

DOCKER_HINT: Final = "start the servers with `docker compose up` and pass their addresses instead"

_GUARD: Final = Path(__file__).with_name("guard.py")
_SPAWN_TIMEOUT_S: Final = 25.0
_PROBE_PAUSE_S: Final = 0.05
_LAST_LINE_BYTES: Final = 16_384


async def nothing_missing() -> None:
    """The probe of a command that is never probed."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How a server is started and when it is ready.

    `probe` answers None when the server is ready, else what is still missing; `prepare` runs before each start, in its own
    time. `lock_path` is held while the server lives, so that no second one writes to its data.
    """

    name: str
    command: Sequence[str]
    log_path: Path
    probe: Probe = nothing_missing
    start_timeout_s: float = 30.0
    stop_grace_s: float = 10.0
    cwd: Path | None = None
    lock_path: Path | None = None
    prepare: Callable[[], Awaitable[None]] | None = None


class Server:
    """A server that can be started and ended again and again, on the same ports and data."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self._guard: Process | None = None
        self._pid: int | None = None
        self._log_start_bytes = 0

    @property
    def pid(self) -> int:
        """The server's own process id, not its guard's.

        Raises:
            HaltError: It is not running.
        """
        if self._pid is None or not self.is_running:
            raise HaltError(f"{self.spec.name} is not running")
        return self._pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives, as far as the event loop has heard."""
        return self._guard is not None and self._guard.returncode is None

    @property
    def exit_code(self) -> int | None:
        """How the process ended by itself: 128 + signal when one ended it. None while it lives, and after `stop`."""
        return None if self._guard is None else self._guard.returncode

    async def start(self) -> None:
        """Start the server and wait until it is ready.

        Raises:
            ConfigError: It cannot be run, it ended at start (the last line of its log says why), or it was not ready in time.
                Nothing of it is left.
        """
        if self.is_running:
            raise HaltError(f"{self.spec.name} was started already")
        await self.stop()
        if self.spec.prepare is not None:
            await self.spec.prepare()
        try:
            await self._spawn()
            await self._wait_until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ask the server to end, make it end after its grace, and wait for that. Cancellation does not shorten this."""
        guard, self._guard, self._pid = self._guard, None, None
        if guard is None:
            return
        with anyio.CancelScope(shield=True):
            if guard.stdin is not None:
                await guard.stdin.aclose()
            await guard.wait()
            await guard.aclose()

    async def kill(self) -> None:
        """End the server and its own children by SIGKILL, as a crash would. One that has ended already stays ended."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        await self.stop()

    async def wait_ended(self) -> str:
        """Wait until the server has ended. Returns a sentence about it, with the last line of its log."""
        if self._guard is not None:
            await self._guard.wait()
        return f"{self.spec.name} ended: {self.last_log_line()} (log: {self.spec.log_path})"

    async def run_to_end(self) -> None:
        """Run a command that ends by itself, within `start_timeout_s`. It is not probed.

        Raises:
            ConfigError: It could not be run, failed (the last line of its log says why), or took too long. It is ended.
        """
        spec = self.spec
        code: int | None = None
        try:
            await self._spawn()
            if self._guard is not None:
                with anyio.move_on_after(spec.start_timeout_s):
                    code = await self._guard.wait()
        finally:
            await self.stop()
        if code is None:
            raise ConfigError(f"{spec.name} did not end within {spec.start_timeout_s:g} s (log: {spec.log_path})")
        if code:
            raise ConfigError(f"{spec.name} failed: {self.last_log_line()} (log: {spec.log_path})")

    def last_log_line(self) -> str:
        """The last line that the server wrote since it was last started."""
        try:
            with self.spec.log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start_bytes, size - _LAST_LINE_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            lines = []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")

    async def _spawn(self) -> None:
        spec = self.spec
        arguments = (str(spec.lock_path or ""), str(spec.stop_grace_s), *spec.command)
        with spec.log_path.open("ab") as log:
            self._log_start_bytes = log.tell()
            self._guard = await anyio.open_process(
                # Isolated and without site-packages: a tenth of the start time, and nothing of ours to go wrong.
                (sys.executable, "-I", "-S", str(_GUARD), *arguments),
                stderr=log,
                cwd=spec.cwd,
                # Out of the terminal's group: Ctrl-C reaches the parent, and the parent ends its servers in order.
                start_new_session=True,
            )
        kind, _, rest = (await self._first_line(self._guard)).partition(" ")
        if kind != "pid":
            raise ConfigError(f"{spec.name} could not be started: {rest or self.last_log_line()}")
        self._pid = int(rest)

    async def _first_line(self, guard: Process) -> str:
        if guard.stdout is None:
            raise HaltError(f"{self.spec.name} has no pipe to its guard")
        try:
            with anyio.fail_after(_SPAWN_TIMEOUT_S):
                return (await BufferedByteReceiveStream(guard.stdout).receive_until(b"\n", 4_096)).decode()
        except (TimeoutError, anyio.IncompleteRead, anyio.DelimiterNotFound) as error:
            raise ConfigError(f"{self.spec.name} could not be started: {self.last_log_line()}") from error

    async def _wait_until_ready(self) -> None:
        spec = self.spec
        missing: str | None = "it was not asked"
        with anyio.move_on_after(spec.start_timeout_s):
            while missing is not None:
                missing = await spec.probe()
                # Looked at after the probe: somebody else's server may have answered in place of ours.
                if not self.is_running:
                    raise ConfigError(f"{spec.name} ended at start: {self.last_log_line()} (log: {spec.log_path})")
                if missing is not None:
                    await anyio.sleep(_PROBE_PAUSE_S)
        if missing is not None:
            raise ConfigError(f"{spec.name} was not ready after {spec.start_timeout_s:g} s: {missing} (log: {spec.log_path})")


@asynccontextmanager
async def running(*servers: Server) -> AsyncGenerator[None]:
    """Start servers side by side, and end them side by side.

    Raises:
        ConfigError: One could not start. All are ended.
    """
    try:
        await _each(servers, Server.start)
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await _each(servers, Server.stop)


async def _each(servers: Sequence[Server], action: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
    try:
        async with anyio.create_task_group() as group:
            for server in servers:
                group.start_soon(action, server)
    except BaseExceptionGroup as errors:
        halts, others = errors.split(HaltError)
        if halts is None or others is not None:
            raise
        raise _first(halts) from errors


def _first(errors: BaseExceptionGroup[HaltError]) -> HaltError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
