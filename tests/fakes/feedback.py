"""Feedback in memory, and a trace that remembers what it was told."""

from topics.feedback import Feedback


class MemoryFeedback:
    """Feedback in a dict per thread."""

    KEPT = 100

    def __init__(self) -> None:
        self.threads: dict[str, dict[str, Feedback]] = {}
        self.traces: dict[tuple[str, str], str] = {}

    async def attach(self, thread: str, feedback: Feedback) -> bool:
        kept = self.threads.setdefault(thread, {})
        is_new = feedback.feedback_id not in kept
        kept.setdefault(feedback.feedback_id, feedback)
        self.threads[thread] = {one.feedback_id: one for one in self._sorted(thread)[-self.KEPT :]}
        return is_new

    async def of(self, thread: str) -> list[Feedback]:
        return self._sorted(thread)

    async def remember_trace(self, thread: str, query_id: str, traceparent: str) -> None:
        self.traces.setdefault((thread, query_id), traceparent)

    async def trace_of(self, thread: str, query_id: str) -> str | None:
        return self.traces.get((thread, query_id))

    def _sorted(self, thread: str) -> list[Feedback]:
        return sorted(self.threads.get(thread, {}).values(), key=lambda one: one.at.timestamp() if one.at else 0.0)


class ToldTraces:
    """What was told to which trace."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def tell(self, feedback: Feedback, *, traceparent: str) -> None:
        self.told.append((feedback.feedback_id, traceparent))
