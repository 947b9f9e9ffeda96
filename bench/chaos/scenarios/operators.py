"""An operator at the command line of a run: the real `sluice`, with the run's servers and names."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio

from bench.chaos.world import World
from infra.settings import ENDPOINTS_FILE, Settings, load_settings

DONE_WITHIN_S: Final = 90.0


class Operator:
    """Runs commands, and may be cut off. `data_dir` holds what `sluice up` would have written."""

    def __init__(self, world: World) -> None:
        self._folder = world.folder
        self.data_dir = world.folder / ".sluice"
        self.data_dir.mkdir(exist_ok=True)
        known = {
            "kafka_bootstrap": world.servers.kafka.bootstrap,
            "redis_url": world.servers.redis_url,
            "topic_prefix": world.catalogue.prefix,
            "group_prefix": world.group.rpartition(".")[0],
            "redis_prefix": world.name,
        }
        (self.data_dir / ENDPOINTS_FILE).write_text(json.dumps(known))

    @property
    def settings(self) -> Settings:
        """What the commands read."""
        return load_settings(data_dir=self.data_dir)

    async def run(self, *arguments: str) -> Any:
        """Run a command to its end. Returns its JSON, whether it did what was asked or refused it."""
        with anyio.fail_after(DONE_WITHIN_S):
            done = await anyio.run_process(_command(arguments), cwd=self._folder, check=False)
        return json.loads(done.stdout)

    async def cut_off(self, arguments: tuple[str, ...], when: Callable[[], Awaitable[None]]) -> None:
        """Start a command, and SIGKILL it when `when` has been awaited."""
        quiet = subprocess.DEVNULL
        async with await anyio.open_process(_command(arguments), cwd=self._folder, stdout=quiet, stderr=quiet) as process:
            try:
                await when()
            finally:
                with suppress(ProcessLookupError):
                    process.kill()


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "workers", *arguments, "--json"]
