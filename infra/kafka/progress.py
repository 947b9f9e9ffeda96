"""What of a member's work could move now, stage by stage, for `infra.health` to watch. Pure: it reads the board."""

from typing import Final

from infra.health import MemberState, Stage
from infra.kafka.board import Board

# A handler is stopped at its time limit. One that is there so much later cannot be stopped.
HANDLER_GRACE_S: Final = 60.0
REBALANCE_GRACE_S: Final = 20.0  # beyond the drain: the commit, what is stopped, and the group's own round (`GroupConsumer`)


def member_state(board: Board, *, running: int) -> MemberState:
    """One member at this moment.

    During an outage nothing but the trial could move. So a worker that waits for Redis or the broker is alive, and not ready.

    Args:
        running: Slots that are taken.
    """
    open_, counters = int(board.gate.is_open), board.counters
    stall_s = board.config.stall_s
    # The client hands nothing out while a group is dealt anew, which takes as long as the slowest member may drain.
    poll_s = stall_s + (board.config.revoke_drain_s + REBALANCE_GRACE_S if board.is_rebalancing else 0.0)
    uncommitted = sum(one.live and one.position_to_commit() is not None for one in board.assignments.values())
    stages = (
        Stage("intake", open_ and int(not board.stopping.is_set()), counters.polls, poll_s),
        Stage("dispatch", _could_start(board, running), board.in_flight.starts, stall_s),
        Stage(
            "handlers", open_ and len(board.in_flight), board.in_flight.oldest(), board.config.handler_timeout_s + HANDLER_GRACE_S
        ),
        Stage("settlement", open_ and board.unwritten, counters.settled, stall_s),
        Stage("commit", open_ and uncommitted, counters.commits, stall_s),
    )
    outage = None if board.gate.is_open else board.gate.reason or "an outage"
    return MemberState(board.group, board.has_joined, board.stopping.is_set(), outage, stages)


def _could_start(board: Board, running: int) -> int:
    """How many ready lanes there is a slot for. While the gate is shut that is one, once it is due, when nothing runs."""
    now_s = board.clock.monotonic_s()
    ready = sum(lanes.ready(now_s) for lanes in board.lanes.values())
    if board.gate.shut_until_s is None:
        return min(ready, max(board.config.slots - running, 0))
    is_due = now_s >= board.gate.shut_until_s
    return min(ready, 1) if is_due and not running else 0
