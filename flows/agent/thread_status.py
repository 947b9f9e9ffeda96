"""How a thread looks from outside, and why something cannot be done to it."""

from dataclasses import dataclass

from topics.errors import RejectedError
from topics.events import ApprovalRequested, OnNewMessage


class StaleApprovalError(RejectedError):
    """The approval waits for nobody any more, and this verdict is not the one that was applied. Nothing was changed."""

    code = "stale"


class ThreadGoneError(RejectedError):
    """The thread has no checkpoint: a resume would start a ghost run. Nothing was changed."""

    code = "thread_gone"


class GraphVersionError(RejectedError):
    """The thread was paused by another build of the graph. It stays paused, decidable by that build."""

    code = "graph_version"


@dataclass(frozen=True, slots=True)
class ThreadStatus:
    """A thread from outside. `open_step`: a run was cut off and must be continued first.

    `is_foreign`: another build left it unfinished, and this one cannot go on with it.
    `on_new_message` is the rule for a new message while the thread waits: of several, the one that gives up least.
    """

    exists: bool
    pending: tuple[ApprovalRequested, ...] = ()
    on_new_message: OnNewMessage = "hold"
    is_foreign: bool = False
    open_step: bool = False
    query_id: str | None = None
    past_query_ids: tuple[str, ...] = ()
    graph_version: str | None = None
