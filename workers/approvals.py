"""Decisions of people and moments that have come: judged by one machine, recorded once, answered always, applied to the thread.

Which of two is first is decided where the state is stored, and nowhere else. A process may die behind each line: what was recorded
and not yet told or applied is told and applied when the record comes again.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Final

from flows.agent.decided import POLICY_CHANGED
from flows.agent.threads import Agent, EditProblem, GraphVersionError, ThreadRef
from flows.approvals import machine, timing
from flows.approvals.machine import BadEdit, Ballot, Edit, Refusal, Voter
from flows.approvals.policy import Ask
from flows.ports import Clock
from topics.approval_state import Answer, ApprovalState, Moment
from topics.envelope import Event
from topics.errors import ForgedError, RejectedError
from topics.events import ApprovalAccepted, ApprovalDecided, ApprovalDue, ApprovalExpired, ApprovalRefused, Payload, RefusalCode
from workers.conversation import Conversation
from workers.ports import ApprovalRegistry, Verifier

# What a thread says when nothing waits there for an approval any more, or nothing is left of it.
NOTHING_WAITS: Final = ("stale", "thread_gone")
# What another build, or a person who mends the thread, can lift: the decision is kept as a dead letter, to be replayed then.
PARKED: Final[Mapping[RefusalCode, type[RejectedError]]] = {"graph_version": GraphVersionError, "bad_checkpoint": RejectedError}


async def handle_decision(
    event: Event[ApprovalDecided],
    *,
    agent: Agent,
    registry: ApprovalRegistry,
    conversation: Conversation,
    verifier: Verifier,
    clock: Clock,
) -> AsyncGenerator[Payload]:
    """Count a decision, or tell its sender why it does not count; resume the thread once one has won (P3, P4).

    Raises:
        RejectedError: This build cannot do what was decided (`graph_version`), or the thread's checkpoint is not what we write
            (`bad_checkpoint`). Its sender is told, and nothing was recorded: the dead letter can be replayed.
    """
    decided = event.payload
    known = await registry.find(event.tenant, decided.approval_id)
    if known is None or known.request.thread_id != decided.thread_id:
        yield machine.refused(event.id, decided, _unknown(known))
        return
    async for payload in _announced(known, registry):
        yield payload
    counting = _Counting(event, agent, registry, verifier, clock)
    state, answer = await counting.judge(known)
    for payload in machine.told(state, answer):
        yield payload
    if isinstance(answer, ApprovalRefused):
        if answer.code in PARKED:
            raise PARKED[answer.code](answer.detail, code=answer.code)
        if (answer.code, answer.reason) == ("stale", POLICY_CHANGED):
            async with aclosing(_passed_over(conversation.ask_again(_thread(state)))) as payloads:
                async for payload in payloads:
                    yield payload
    elif answer.standing == "won":
        async with aclosing(_apply(event, state, conversation)) as payloads:
            async for payload in payloads:
                yield payload


async def handle_due(
    event: Event[ApprovalDue], *, registry: ApprovalRegistry, conversation: Conversation, clock: Clock
) -> AsyncGenerator[Payload]:
    """Remind, escalate or expire. An end that comes after a decision does nothing.

    Raises:
        TooEarlyError: By this worker's clock the moment has not come. Nothing was changed.
        GraphVersionError: It has expired, and another build must tell the thread.
    """
    due, now = event.payload, clock.now()
    moment = Moment(now, due.step, due.number)
    while True:
        known = await registry.find(event.tenant, due.approval_id)
        if known is None or known.request.thread_id != due.thread_id:
            return
        state, told = timing.step(known, moment, now=now)
        if state is known or await registry.store(state):
            break
    if told is None:
        return
    async for payload in _announced(state, registry):
        yield payload
    yield told
    if isinstance(told, ApprovalExpired):
        async with aclosing(_passed_over(_end(state, conversation))) as payloads:
            async for payload in payloads:
                yield payload


async def _announced(state: ApprovalState, registry: ApprovalRegistry) -> AsyncGenerator[Payload]:
    """Publish a request whose worker died between registering and publishing it. Better twice on its topic than never."""
    if not state.announced:
        yield state.request
        await registry.announced(state.tenant, state.request.approval_id)


class _Counting:
    """One decision, and what it takes to judge it."""

    def __init__(
        self, event: Event[ApprovalDecided], agent: Agent, registry: ApprovalRegistry, verifier: Verifier, clock: Clock
    ) -> None:
        self._event = event
        self._agent = agent
        self._registry = registry
        self._verifier = verifier
        self._clock = clock

    async def judge(self, known: ApprovalState) -> tuple[ApprovalState, Answer]:
        """Judge by what stands, and begin again when something else was stored meanwhile. Returns what stands, and the answer."""
        while True:
            after, answer = await self._judge_once(known)
            if after is known or await self._registry.store(after):
                return after, answer
            known = await self._registry.find(known.tenant, known.request.approval_id) or known

    async def _judge_once(self, known: ApprovalState) -> tuple[ApprovalState, Answer]:
        event, decided = self._event, self._event.payload
        repeated = machine.repeated(known, event.id, decided)
        if repeated is not None:
            return known, repeated
        try:
            # What is over is told to whoever asks: it is on the topic, and nothing can come of it.
            voter = self._voter(known) if known.status == "pending" else Voter(decided.approver)
        except ForgedError as error:
            return machine.refuse(known, event.id, decided, Refusal(error.answer_code, error.reason, str(error)))
        is_old = known.request.policy_version != self._agent.policy_version(event.tenant)
        stands = partial(self._verifier.stands, event.tenant)
        ballot = Ballot(event.id, decided, voter, self._edit(known), stands)
        after, answer = machine.vote(known, ballot, now=self._clock.now())
        if known.status == "pending" and (is_old or isinstance(answer, ApprovalAccepted) or answer.code == "invalid_edit"):
            obstacle = await self._obstacle(known)
            if obstacle is None and is_old:
                # Whoever may decide by the policy of now need not be one who might by the old one.
                obstacle = Refusal("stale", POLICY_CHANGED, "the policy changed: it is asked again")
            if obstacle is not None:
                # Not recorded: once the obstacle is gone the same decision may count.
                return known, machine.refused(event.id, decided, obstacle)
        return after, answer

    def _voter(self, known: ApprovalState) -> Voter:
        identity = self._verifier.verify(self._event.tenant, self._event.payload, tool=known.request.tool)
        return Voter(identity.person, identity.roles, identity.key_id, identity.token_id)

    def _edit(self, known: ApprovalState) -> Edit | BadEdit | None:
        decided = self._event.payload
        if decided.decision != "edit":
            return None
        judged = self._agent.judge_edit(known.request, tool=decided.tool, arguments=decided.arguments, tenant=self._event.tenant)
        if isinstance(judged, EditProblem):
            return BadEdit(judged.code, judged.detail)
        terms = judged.judgement.terms if isinstance(judged.judgement, Ask) else None
        return Edit(judged.args_digest, judged.arguments, terms)

    async def _obstacle(self, known: ApprovalState) -> Refusal | None:
        """Look before a verdict is recorded: one that this build cannot apply, or of a lost thread, would stand for ever."""
        tenant, request = self._event.tenant, known.request
        problem = self._agent.build_problem(request, tenant=tenant, decision=self._event.payload.decision)
        if problem is not None:
            return Refusal("graph_version", "", problem)
        try:
            exists = (await self._agent.status(_thread(known))).exists
        except RejectedError as error:
            if parked := _parked_by(error):
                return parked
            if error.reason_code not in NOTHING_WAITS:
                raise
            exists = False  # lost in part is lost
        return None if exists else Refusal("thread_gone", "", "the thread has no checkpoint")


async def _apply(event: Event[ApprovalDecided], state: ApprovalState, conversation: Conversation) -> AsyncGenerator[Payload]:
    """Resume the thread with the verdict that stands. One that cannot be applied is told too."""
    request, verdict = state.request, state.verdict
    if verdict is None:
        raise ValueError("a decision won, and there is no verdict")
    try:
        async with aclosing(conversation.resume(_thread(state), approval_id=request.approval_id, verdict=verdict)) as payloads:
            async for payload in payloads:
                yield payload
    except RejectedError as error:
        if parked := _parked_by(error):
            # The verdict stands, and is applied when the dead letter is replayed.
            yield machine.refused(event.id, event.payload, parked)
            raise
        if error.reason_code not in NOTHING_WAITS:
            raise
        code = "thread_gone" if error.reason_code == "thread_gone" else "stale"
        yield machine.refused(event.id, event.payload, Refusal(code, "", str(error)))


def _end(state: ApprovalState, conversation: Conversation) -> AsyncGenerator[Payload]:
    """Tell the thread that nobody decided in time: the call is rejected, or its query called off."""
    request, verdict = state.request, state.verdict
    if verdict is None:
        return conversation.expire(
            _thread(state), approval_id=request.approval_id, query_id=request.query_id, reason=timing.NOT_IN_TIME
        )
    return conversation.resume(_thread(state), approval_id=request.approval_id, verdict=verdict)


async def _passed_over(run: AsyncGenerator[Payload]) -> AsyncGenerator[Payload]:
    """A run that may find nothing any more. What has to be told was told, and there is nobody else to tell."""
    try:
        async with aclosing(run) as payloads:
            async for payload in payloads:
                yield payload
    except RejectedError as error:
        if error.reason_code not in NOTHING_WAITS:
            raise


def _parked_by(error: RejectedError) -> Refusal | None:
    return next((Refusal(code, "", str(error)) for code in PARKED if code == error.reason_code), None)


def _thread(state: ApprovalState) -> ThreadRef:
    return ThreadRef(state.tenant, state.request.thread_id)


def _unknown(known: ApprovalState | None) -> Refusal:
    """What is not known to the sender is not told."""
    if known is None:
        return Refusal("unknown", "", "no such approval")
    return Refusal("mismatch", "thread", "the approval belongs to another thread")
