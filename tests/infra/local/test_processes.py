"""Servers under their guard: bounded starts, plain errors, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from infra.local import processes
from infra.local.processes import Server, ServerSpec, running
from tests.infra.local.watching import eventually, impatient_guard, is_alive, parent
from topics.errors import ConfigError, HaltError

GUARD = Path(processes.__file__).with_name("guard.py")
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
ENDING = "import time; print('up', flush=True); time.sleep(1); raise SystemExit(3)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
WITH_OWN_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""
FORKING_PARENT = """
import os, sys, time
from pathlib import Path
import anyio
from infra.local.processes import Server, ServerSpec, running

async def main():
    spec = ServerSpec(name="s", command=(sys.executable, "-c", "import time; time.sleep(600)"), log_path=Path(sys.argv[1]))
    server = Server(spec)
    async with running(server):
        fork = os.fork()
        if fork == 0:
            time.sleep(600)
        print(server.pid, fork, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def server_of(
    code: str, folder: Path, *, name: str = "sleeper", wait_for: str = "up", timeout_s: float = 10.0, grace_s: float = 5.0
) -> Server:
    log_path = folder / f"{name}.log"

    async def probe() -> str | None:
        return None if log_path.exists() and wait_for in log_path.read_text() else f"{wait_for!r} is not in the log"

    command = (sys.executable, "-c", code)
    return Server(
        ServerSpec(name=name, command=command, log_path=log_path, probe=probe, start_timeout_s=timeout_s, stop_grace_s=grace_s)
    )


async def test_a_server_runs_inside_the_block_and_not_after_it(tmp_path: Path) -> None:
    server = server_of(SLEEPER, tmp_path)
    async with running(server):
        pid = server.pid
        assert is_alive(pid)
    assert not is_alive(pid)
    with pytest.raises(HaltError, match="not running"):
        _ = server.pid


async def test_a_server_that_dies_at_start_is_reported_with_its_last_line_of_this_start(tmp_path: Path) -> None:
    (tmp_path / "sleeper.log").write_text("an old start went well\n")
    server = server_of("import sys; print('loading', flush=True); sys.exit('the disk is full')", tmp_path)
    with pytest.raises(ConfigError, match="sleeper ended at start: the disk is full"):
        await server.start()
    silent = server_of("raise SystemExit(1)", tmp_path)
    with pytest.raises(ConfigError, match="ended at start: it wrote nothing"):
        await silent.start()


async def test_a_server_that_never_gets_ready_is_ended_within_its_bound(tmp_path: Path) -> None:
    server = server_of(WITH_OWN_CHILD, tmp_path, wait_for="never", timeout_s=0.5)
    started_at = time.monotonic()
    with pytest.raises(ConfigError, match=r"not ready after 0\.5 s: 'never' is not in the log"):
        await server.start()
    assert time.monotonic() - started_at < 5
    own_child = int((tmp_path / "sleeper.log").read_text().split()[1])
    assert eventually(lambda: not is_alive(own_child))


async def test_a_probe_that_hangs_is_bounded_too(tmp_path: Path) -> None:
    async def hang() -> str | None:
        await anyio.sleep_forever()

    server = Server(
        ServerSpec(name="s", command=(sys.executable, "-c", SLEEPER), log_path=tmp_path / "log", probe=hang, start_timeout_s=0.3)
    )
    with pytest.raises(ConfigError, match="not ready"):
        await server.start()
    assert not server.is_running


async def test_a_command_that_does_not_exist_is_a_plain_sentence(tmp_path: Path) -> None:
    server = Server(ServerSpec(name="kafka", command=("/no/such/java",), log_path=tmp_path / "log"))
    with pytest.raises(ConfigError, match=r"kafka could not be started: .*'/no/such/java'"):
        await server.start()


async def test_a_server_that_ignores_the_request_to_end_is_made_to(tmp_path: Path) -> None:
    server = server_of(STUBBORN, tmp_path, grace_s=0.3)
    async with running(server):
        pid = server.pid
        started_at = time.monotonic()
    assert not is_alive(pid)
    assert 0.25 < time.monotonic() - started_at < 5


async def test_the_children_of_a_server_end_with_it(tmp_path: Path) -> None:
    server = server_of(WITH_OWN_CHILD, tmp_path, wait_for="child ")
    async with running(server):
        own_child = int((tmp_path / "sleeper.log").read_text().split()[1])
        assert is_alive(own_child)
    assert eventually(lambda: not is_alive(own_child))


async def test_a_server_can_be_killed_and_started_again(tmp_path: Path) -> None:
    server = server_of(SLEEPER, tmp_path)
    async with running(server):
        first = server.pid
        await server.kill()
        assert not is_alive(first)
        assert not server.is_running
        await server.start()
        assert is_alive(server.pid)


async def test_a_server_that_ended_by_itself_can_be_started_again(tmp_path: Path) -> None:
    server = server_of(SLEEPER, tmp_path)
    async with running(server):
        with pytest.raises(HaltError, match="started already"):
            await server.start()
        for again in (server.start, server.kill):
            os.kill(server.pid, signal.SIGKILL)
            with anyio.fail_after(10):
                await server.wait_ended()
            with pytest.raises(HaltError, match="not running"):
                _ = server.pid
            await again()


async def test_the_end_of_a_server_is_noticed(tmp_path: Path) -> None:
    server = server_of(SLEEPER, tmp_path)
    async with running(server):
        os.kill(server.pid, signal.SIGKILL)
        with anyio.fail_after(10):
            assert "sleeper ended: up" in await server.wait_ended()


async def test_one_server_that_fails_ends_the_others_and_is_the_error(tmp_path: Path) -> None:
    good = server_of(SLEEPER, tmp_path, name="good")
    bad = server_of("import sys, time; time.sleep(0.5); sys.exit('no licence')", tmp_path, name="bad")
    with pytest.raises(ConfigError, match="bad ended at start: no licence"):
        async with running(good, bad):
            pytest.fail("the block must not run")
    assert not good.is_running
    assert not bad.is_running


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    server = server_of(WITH_OWN_CHILD, tmp_path, wait_for="never")
    with anyio.move_on_after(1.0) as scope:
        await server.start()
    assert scope.cancelled_caught
    own_child = int((tmp_path / "sleeper.log").read_text().split()[1])
    assert eventually(lambda: not is_alive(own_child))


async def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_GUARD", impatient_guard(tmp_path))
    spec = ServerSpec(name="redis", command=("sleep", "600"), log_path=tmp_path / "log", lock_path=tmp_path / ".lock")
    async with running(Server(spec)):
        with pytest.raises(ConfigError, match=f"another server is using {tmp_path}"):
            await Server(spec).start()
    async with running(Server(spec)):
        pass


async def test_a_command_that_fails_or_takes_too_long_says_so(tmp_path: Path) -> None:
    def command(code: str) -> Server:
        return Server(
            ServerSpec(name="format", command=(sys.executable, "-c", code), log_path=tmp_path / "log", start_timeout_s=1.0)
        )

    await command("pass").run_to_end()
    with pytest.raises(ConfigError, match="format failed: no such disk"):
        await command("raise SystemExit('no such disk')").run_to_end()
    with pytest.raises(ConfigError, match="format did not end within 1 s"):
        await command(SLEEPER).run_to_end()


def test_a_copy_of_the_parent_that_holds_the_pipe_does_not_keep_a_server_alive(tmp_path: Path) -> None:
    with parent(FORKING_PARENT, str(tmp_path / "log")) as (process, (server_pid, fork)):
        try:
            assert is_alive(server_pid)
            process.kill()
            process.wait(20)
            assert is_alive(fork)
            assert eventually(lambda: not is_alive(server_pid))
        finally:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize(
    ("code", "expected"), [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_guard_passes_the_exit_code_on(code: str, expected: int) -> None:
    command = [sys.executable, str(GUARD), "", "1", sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as guard:
        assert guard.wait(20) == expected


@pytest.mark.parametrize(("code", "told"), [(ENDING, 3), (SLEEPER, 128 + signal.SIGTERM)])
async def test_how_a_server_ended_is_told_until_it_is_put_away(tmp_path: Path, code: str, told: int) -> None:
    server = server_of(code, tmp_path)
    await server.start()
    try:
        if told > 128:
            os.kill(server.pid, signal.SIGTERM)
        with anyio.fail_after(10):
            await server.wait_ended()
        assert server.exit_code == told
    finally:
        await server.stop()
    assert server.exit_code is None
