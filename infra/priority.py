"""How far a process gives way to others on its machine."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

AUTOGROUP: Final = "/proc/{process}/autogroup"


def give_way(nice: int) -> None:
    """Lower this process's priority by `nice`, 0 to 19.

    Linux may share the processors among sessions first (autogroup, on by default); then a niceness counts within one session only.
    So a process that leads a session, as a service does, lowers the session too; a terminal's is left alone.
    Source: sched(7).
    """
    os.nice(nice)
    if nice and os.getsid(0) == os.getpid():
        lower_session("self", nice)


def lower_session(process: int | str, nice: int) -> None:
    """Lower a process's session against other sessions. Nothing happens where the kernel doesn't know of that."""
    with suppress(OSError):
        Path(AUTOGROUP.format(process=process)).write_text(str(nice), encoding="ascii")
