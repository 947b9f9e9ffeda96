"""What is too large for an event ends where it comes in: its query is answered, and the thread goes on."""

from typing import Any

import pytest

from flows.agent.threads import EditProblem
from tests.fakes.agents import THREAD, World, adds_up, one, only, streamed
from tests.fakes.chat_model import Script, Turn, call, say
from tests.workers.desk import Desk, asked, decided
from topics import sizes
from topics.catalogue import Catalogue
from topics.envelope import encode
from topics.errors import TooLargeError
from topics.events import AnswerCompleted, AnswerFailed, ApprovalRequested, Payload, QueryAsked
from topics.sizes import MAX_ANSWER_BYTES, MAX_ARGUMENTS_BYTES, MAX_EARLIER_DECISIONS, MAX_EVENT_BYTES

HUGE = "x" * (MAX_ANSWER_BYTES + 1)
WORST = "\x01"  # six bytes as JSON
REFUND = call((None, "refund", {"order": "A", "cents": 100}))


def world(*turns: Turn) -> World:
    return World(script=Script(turns=list(turns)))


def sendable(payloads: list[Payload]) -> bool:
    clock = World().clock
    for payload in payloads:
        encode(payload, catalogue=Catalogue(), tenant="acme", source="test", now=clock.now(), ordinal="0", event_id="e")
    return True


@pytest.mark.parametrize("turn", [say(HUGE), say(WORST * (MAX_ANSWER_BYTES // 6 + 1)), say("a" * 500_000, "b" * 500_000)])
async def test_an_answer_that_no_event_can_carry_fails_its_query_and_not_the_thread(turn: Turn):
    own = world(turn, say("Short."))
    told = await own.ask(query_id="q1")
    assert one(AnswerFailed, told).code == "too_large"
    assert sendable(told)
    assert one(AnswerFailed, await own.ask(query_id="q1")).code == "too_large", "told the same, however often"
    assert adds_up(await own.ask(query_id="q2")).text == "Short."


@pytest.mark.parametrize("text", ["y" * (MAX_ANSWER_BYTES - 2), WORST * ((MAX_ANSWER_BYTES - 2) // 6)])
async def test_the_largest_answer_is_one_event_and_its_pieces_add_up(text: str):
    """P9 in pieces: none of them is larger than a broker takes."""
    told = await world(say(text)).ask()
    assert adds_up(told).text == text
    assert streamed(told)[1] == text
    assert sendable(told)


async def test_a_refusal_that_no_event_can_carry_is_told_without_its_text():
    own = world(Turn(text=[], refusal=HUGE), say("Fine."))
    failed = one(AnswerFailed, await own.ask(query_id="q1"))
    assert (failed.code, failed.text) == ("too_large", "")


async def test_a_call_whose_arguments_nobody_could_be_shown_is_not_asked_and_the_model_is_told():
    own = world(call(("c1", "refund", {"order": "A" * MAX_ARGUMENTS_BYTES, "cents": 1})), say("Sorry."))
    told = await own.ask()
    assert not only(ApprovalRequested, told)
    assert adds_up(told).text == "Sorry."
    assert own.effects() == []
    assert "larger than 65,536 bytes" in str(own.script.prompts[-1])


async def test_an_edit_to_such_arguments_is_refused():
    own = world(REFUND)
    request = one(ApprovalRequested, await own.ask())
    problem = own.agent().judge_edit(request, tool=None, arguments={"order": "A" * MAX_ARGUMENTS_BYTES, "cents": 1}, tenant="acme")
    assert isinstance(problem, EditProblem)
    assert problem.code == "invalid_arguments"


async def test_a_request_stays_small_however_much_was_said_and_decided_before():
    large = {"order": "A" * (MAX_ARGUMENTS_BYTES - 100), "cents": 1}
    count = MAX_EARLIER_DECISIONS + 12
    turns = [call((f"c{n}", "refund", large | {"cents": n}), text=["w" * 900_000]) for n in range(count)]
    own = world(*turns, say("Done."))
    told = await own.ask()
    for _ in range(count - 1):
        request = one(ApprovalRequested, told)
        assert sendable([request])
        told = await own.resume(request, "reject")
    assert len(one(ApprovalRequested, told).history) == MAX_EARLIER_DECISIONS


async def test_a_held_question_with_such_an_answer_is_answered_and_lets_the_next_run():
    """It was first in line, and each decision that ran it was a dead letter."""
    desk = Desk()
    desk.world.script.turns = [REFUND, say("refunded"), say(HUGE), say("three")]
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    await desk.handle(asked("q2"))
    await desk.handle(asked("q3"))
    told = await desk.handle(decided(request))
    assert [(one_.query_id, one_.code) for one_ in only(AnswerFailed, told)] == [("q2", "too_large")]
    assert [one_.query_id for one_ in only(AnswerCompleted, told)] == ["q1", "q3"]
    assert await desk.held_ids(THREAD) == []
    assert sendable(desk.told)


def test_an_event_that_is_too_large_is_refused_before_it_is_sent():
    query: Any = QueryAsked(thread_id="t", text="z" * MAX_EVENT_BYTES)
    with pytest.raises(TooLargeError, match=r"query\.asked has 1,000,\d+ bytes; an event may have 1,000,000") as refused:
        sendable([query])
    assert refused.value.reason_code == "too_large"
    assert "zzz" not in str(refused.value)


def test_the_parts_fit_into_an_event():
    request = MAX_ARGUMENTS_BYTES * (1 + MAX_EARLIER_DECISIONS) + 6 * sizes.MAX_REASON_CHARS
    assert max(MAX_ANSWER_BYTES, 6 * sizes.MAX_DELTA_CHARS, request) < MAX_EVENT_BYTES * 0.9
