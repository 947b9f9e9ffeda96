"""What a process has used. Imports nothing of ours, so that a process that is measured carries nothing that it does not need."""

from pathlib import Path
from typing import Final

TICKS_PER_S: Final = 100  # USER_HZ, the unit of /proc on every Linux


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, all threads, user and system; 0 where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Resident memory of a process in MiB; 0 where there is no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0")
    return int(line.split()[1]) / 1024
