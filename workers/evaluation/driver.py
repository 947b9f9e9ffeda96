"""One task of a dataset, driven through the graph: asked, decided where a person is asked, and looked at.

The thread is one of a tenant that exists for this task alone. Its requests are decided here and never registered, so that
nobody finds them in an inbox. A task that was cut off is continued from its checkpoint by the next run of the same name.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, cast

import anyio
from langchain_core.messages import AnyMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

from flows.agent.threads import Agent, ThreadRef
from flows.evaluation.observation import Observation, calls_of, changes_of, errors_of
from flows.evaluation.tasks import Call, Station, Task
from flows.evaluation.trajectory import same_call
from topics.envelope import event_id_for
from topics.errors import RetryableError, UnavailableError
from topics.events import AnswerCompleted, AnswerFailed, ApprovalRequested, Payload, Verdict
from workers.ports import Lease, Leases

Approver = Literal["expected", "all", "none"]

APPROVER_NAME: Final = "evaluation"
MAX_DECISIONS: Final = 50
TRIES: Final = 4
FIRST_WAIT_S: Final = 0.5


class Shop(Protocol):
    """A back office that can tell what it did."""

    async def changes(self, tenant: str) -> list[dict[str, Any]] | None:
        """Every record of a tenant that differs from its start, or None when it cannot tell.

        Raises:
            UnavailableError: It does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Driver:
    """What a task is driven with. `approver` says yes to calls of the dataset, to all, or to none."""

    agent: Agent
    leases: Leases
    saver: BaseCheckpointSaver[Any]
    shop: Shop
    approver: Approver

    async def drive(self, task: Task, *, tenant: str) -> Observation:
        """Run a task to its end.

        Raises:
            SluiceError: It came to no end. The thread stays, and the next try continues it.
        """
        thread = ThreadRef(tenant, task.task_id)
        endings: list[Payload] = []
        for number, text in enumerate(task.messages, start=1):
            query_id = event_id_for(cause=f"{tenant}\n{task.task_id}", event_type="evaluation", ordinal=str(number))
            endings.append(await self._until_ended(thread, task, query_id=query_id, text=text))
        values = await self._values(thread)
        messages = cast("Sequence[AnyMessage]", values.get("messages", ()))
        return Observation(
            calls=calls_of(messages),
            text="\n".join(_text_of(one) for one in endings),
            ending=_station_of(endings[-1]),
            asked=len(values.get("decisions", ())),  # as the thread tells it: some may be of an earlier try
            errors=errors_of(messages),
            changes=await self._changes(tenant),
        )

    async def forget(self, task: Task, *, tenant: str) -> None:
        """Let go of the task's thread."""
        await self.saver.adelete_thread(ThreadRef(tenant, task.task_id).checkpoint_id)

    async def _until_ended(self, thread: ThreadRef, task: Task, *, query_id: str, text: str) -> Payload:
        """Ask, and decide until the query has ended. What may pass is tried again: a run goes on where it was cut off."""
        wait_s = FIRST_WAIT_S
        for tries_left in reversed(range(TRIES)):
            try:
                return await self._ask(thread, task, query_id=query_id, text=text)
            except RetryableError:
                if not tries_left:
                    raise
            await anyio.sleep(wait_s)
            wait_s *= 2
        raise AssertionError("the last try returns or raises")

    async def _ask(self, thread: ThreadRef, task: Task, *, query_id: str, text: str) -> Payload:
        async with self.leases.hold(thread.checkpoint_id) as lease:
            run = self.agent.ask(thread, query_id=query_id, text=text, user_id=task.user_id, fence=lease.fence)
            ending = await _ending_of(run)
            for _ in range(MAX_DECISIONS):
                if ending is not None:
                    return ending
                ending = await self._decide(thread, task, lease)
        raise UnavailableError(f"the query has not ended after {MAX_DECISIONS} decisions")

    async def _decide(self, thread: ThreadRef, task: Task, lease: Lease) -> Payload | None:
        pending = (await self.agent.status(thread)).pending
        if not pending:
            raise UnavailableError("the query neither ended nor waits for anybody")
        request = pending[0]
        verdict = self._verdict(task, request)
        return await _ending_of(self.agent.resume(thread, approval_id=request.approval_id, verdict=verdict, fence=lease.fence))

    def _verdict(self, task: Task, request: ApprovalRequested) -> Verdict:
        call = Call(tool=request.tool, arguments=request.arguments)
        wanted = self.approver == "all" or (self.approver == "expected" and any(same_call(call, one) for one in task.calls or ()))
        return Verdict(
            decision_id=event_id_for(cause=request.approval_id, event_type="evaluation", ordinal="1"),
            decision="approve" if wanted else "reject",
            approver=APPROVER_NAME,
        )

    async def _values(self, thread: ThreadRef) -> dict[str, Any]:
        saved = await self.saver.aget_tuple({"configurable": {"thread_id": thread.checkpoint_id, "checkpoint_ns": ""}})
        return {} if saved is None else saved.checkpoint["channel_values"]

    async def _changes(self, tenant: str) -> Any:
        found = await self.shop.changes(tenant)
        return None if found is None else changes_of(found)


async def _ending_of(run: AsyncIterator[Payload]) -> Payload | None:
    """The last word on the query, or None when it waits for people."""
    ending: Payload | None = None
    async for payload in run:
        if isinstance(payload, AnswerCompleted | AnswerFailed):
            ending = payload
    return ending


def _text_of(ending: Payload) -> str:
    return ending.text if isinstance(ending, AnswerCompleted | AnswerFailed) else ""


def _station_of(ending: Payload) -> Station:
    match ending:
        case AnswerCompleted():
            return ending.outcome
        case AnswerFailed():
            return ending.code
        case _:
            raise TypeError(f"{ending.TYPE} ends no query")
