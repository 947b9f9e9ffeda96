"""Look at processes from outside, and run a parent that can be killed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.local import processes

REPOSITORY = Path(__file__).parents[3]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def eventually(condition: Callable[[], bool], *, timeout_s: float = 15.0) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# What a shell starts in the background ignores SIGINT, and so would its children.
AS_ON_A_TERMINAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


@contextmanager
def parent(code: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A Python process of its own, and the numbers it printed on its first line. Killed at the end, if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", AS_ON_A_TERMINAL + code, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            line = process.stdout.readline()
        assert line, "the parent ended before it had started anything"
        yield process, [int(word) for word in line.split()]
    finally:
        process.kill()
        process.wait(20)


def impatient_guard(folder: Path) -> Path:
    """A guard that waits for data that is in use for a moment only."""
    source = Path(processes.__file__).with_name("guard.py").read_text()
    copy = folder / "guard.py"
    copy.write_text(source.replace("LOCK_TIMEOUT_S = 15.0", "LOCK_TIMEOUT_S = 0.3"))
    return copy
