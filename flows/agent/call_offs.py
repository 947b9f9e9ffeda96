"""Queries whose askers no longer want an answer, as far as this process has heard.

It is a hint, and may be missed: the record that says so is handled in its turn, behind the query's own. A query that is called off
ends where nothing can be half done: in a model call, or between two steps. A tool that runs is left to finish, and none begins.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import anyio

from flows.agent.state import ThreadRef

MAX_REMEMBERED: Final = 10_000

_Query = tuple[ThreadRef, str]


class CallOffs:
    """What is called off, what runs, and the model calls that may be broken off."""

    def __init__(self) -> None:
        self._off: dict[_Query, None] = {}
        self._running: dict[_Query, int] = {}
        self._calls: dict[_Query, anyio.CancelScope] = {}

    def call_off(self, thread: ThreadRef, query_id: str | None) -> None:
        """End a query at its next safe place; one that has not begun ends when it does. None: what runs on the thread now."""
        queries = [(thread, query_id)] if query_id else [query for query in self._running if query[0] == thread]
        for query in queries:
            self._off[query] = None
            if (scope := self._calls.get(query)) is not None:
                scope.cancel()
        while len(self._off) > MAX_REMEMBERED:  # whoever names queries that never come must not fill the memory
            del self._off[next(iter(self._off))]

    def forget(self, thread: ThreadRef, query_id: str | None) -> None:
        """The record that called it off was handled. None: everything of the thread."""
        queries = [(thread, query_id)] if query_id else [query for query in self._off if query[0] == thread]
        for query in queries:
            self._off.pop(query, None)

    def of(self, thread: ThreadRef) -> frozenset[str]:
        """The queries of a thread that are called off."""
        return frozenset(query_id for one, query_id in self._off if one == thread)

    def is_off(self, thread: ThreadRef, query_id: str) -> bool:
        """Whether a query is no longer wanted."""
        return (thread, query_id) in self._off

    def running_threads(self) -> frozenset[ThreadRef]:
        """The threads that this process runs queries of."""
        return frozenset(thread for thread, _ in self._running)

    @contextmanager
    def running(self, thread: ThreadRef, query_id: str) -> Generator[None]:
        """Count a query as running for as long as the block does. A model call that a cancelled run leaves behind ends with it."""
        query = (thread, query_id)
        self._running[query] = self._running.get(query, 0) + 1
        try:
            yield
        finally:
            self._running[query] -= 1
            if not self._running[query]:
                del self._running[query]
                # LangGraph leaves a node's task running when its own exit is cancelled too, as anyio does at every wait.
                if (scope := self._calls.get(query)) is not None:
                    scope.cancel()

    @contextmanager
    def model_call(self, thread: ThreadRef, query_id: str) -> Generator[anyio.CancelScope]:
        """A scope around a model call, which ends with the query. `cancelled_caught` says that it did."""
        query = (thread, query_id)
        with anyio.CancelScope() as scope:
            self._calls[query] = scope
            try:
                yield scope
            finally:
                if self._calls.get(query) is scope:  # the next run of the query may have begun its own
                    del self._calls[query]
