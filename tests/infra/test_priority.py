"""A process that gives way does so against the other sessions of its machine too, as far as the kernel can."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
import os, sys
from pathlib import Path
from infra.priority import give_way
give_way(int(sys.argv[1]))
group = Path("/proc/self/autogroup")
print(os.nice(0), group.read_text() if group.exists() else "")
"""


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("nice", [0, 7])
def test_a_process_that_leads_its_session_lowers_the_session_and_another_only_itself(nice: int, leads: bool) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel shares its processors without regard to sessions")
    before = Path("/proc/self/autogroup").read_text()
    ran = subprocess.run(
        [sys.executable, "-c", LOOK, str(nice)], start_new_session=leads, capture_output=True, text=True, check=True
    )
    own, group = ran.stdout.split(" ", 1)
    assert int(own) == min(19, os.nice(0) + nice)  # there is nothing lower
    assert session_nice(group) == (nice if leads else session_nice(before))


def session_nice(text: str) -> int | None:
    """The niceness of a session's group; None for a process that is in no group, as a container's first processes may be."""
    found = re.search(r"nice (-?\d+)", text)
    return int(found[1]) if found else None
