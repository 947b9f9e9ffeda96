"""Run one server, and end it when the parent goes, however it goes.

The parent holds the other end of our standard input. End of file there means stop, and a parent that was killed closes it
too. Run by path, with the standard library only, so that it starts in milliseconds and needs no import path.

    python guard.py LOCK_PATH GRACE_S COMMAND...

Says `pid N` or `error SENTENCE` on standard output, then nothing more. The server writes to our standard error.
An empty LOCK_PATH locks nothing.
"""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO

LOCK_TIMEOUT_S = 15.0
PARENT_CHECK_S = 1.0


def main(lock_path: str, grace_s: float, command: list[str]) -> int:
    """Run the command to its end or ours. Returns its exit code, 128 + signal when a signal ended it."""
    parent = os.getppid()
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    try:
        lock = _lock(lock_path)
        wakeup = _child_wakeup()
        child = subprocess.Popen(  # noqa: S603 - our own parent is the only one who chooses the command
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr, start_new_session=True
        )
    except OSError as error:
        _announce(f"error {error}")
        return 127
    try:
        _announce(f"pid {child.pid}")
        _watch(child, parent=parent, wakeup=wakeup)
    finally:
        _end(child, grace_s=grace_s)
    if lock is not None:
        lock.close()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _lock(path: str) -> IO[bytes] | None:
    """Hold the folder for as long as the server lives: a parent started anew waits for the servers of the one that died.

    Raises:
        BlockingIOError: Still held after `LOCK_TIMEOUT_S`.
    """
    if not path:
        return None
    held = Path(path).open("ab")  # noqa: SIM115 - closed by main, or by our end
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline or _parent_hung_up(0.1):
                raise BlockingIOError(f"another server is using {Path(path).parent}") from None
        else:
            return held


def _parent_hung_up(timeout_s: float) -> bool:
    readable, _, _ = select.select([0], [], [], timeout_s)
    return bool(readable) and not os.read(0, 1024)


def _child_wakeup() -> int:
    """A descriptor that becomes readable when a child ends, so that nobody has to poll for it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # Without a handler the signal is dropped before it reaches the descriptor.
    signal.signal(signal.SIGCHLD, _wake)
    return reader


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _wake(_number: int, _frame: FrameType | None) -> None:
    return


def _announce(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())
    with contextlib.suppress(OSError):
        os.close(1)


def _watch(child: subprocess.Popen[bytes], *, parent: int, wakeup: int) -> None:
    """Return when the child has ended or the parent is gone.

    The parent's id is looked at too: a process that it forked without exec would keep its end of the pipe open.
    """
    while child.poll() is None and os.getppid() == parent:
        readable, _, _ = select.select([0, wakeup], [], [], PARENT_CHECK_S)
        if 0 in readable and not os.read(0, 1024):
            return
        if wakeup in readable:
            os.read(wakeup, 1024)


def _end(child: subprocess.Popen[bytes], *, grace_s: float) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if child.poll() is None:
        _signal_group(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    # Its own children may have stayed behind, even when it ended well.
    _signal_group(child, signal.SIGKILL)
    child.wait()


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
