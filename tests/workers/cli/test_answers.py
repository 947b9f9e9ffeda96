"""What `ask` and `approvals approve` make of the events that come back."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
import typer

from tests.workers.desk import event
from topics.errors import RejectedError, TimedOutError, UnavailableError
from topics.events import (
    AnswerCompleted,
    AnswerDelta,
    AnswerFailed,
    AnswerHeld,
    ApprovalAccepted,
    ApprovalDecided,
    ApprovalExecuted,
    ApprovalRefused,
    ApprovalRequested,
    Payload,
)
from workers.cli import decisions, messages
from workers.client import Client

REQUEST = ApprovalRequested(
    approval_id="a1", thread_id="t", query_id="q1", interrupt_id="i", tool="refund", tool_class="WRITE", arguments={"cents": 1},
    args_digest="d", policy_version="1", graph_version="1", allowed_decisions=("approve", "reject"),
)  # fmt: skip
DONE = AnswerCompleted(thread_id="t", query_id="q1", attempt=1, text="done")
EXECUTED = ApprovalExecuted(
    approval_id="a1", thread_id="t", tool="refund", arguments={"cents": 1}, args_digest="d", status="ok", result="refunded"
)


async def events(*payloads: Payload, tenant: str = "acme") -> AsyncGenerator[Any]:
    for number, payload in enumerate(payloads):
        yield event(f"e{number}", payload, tenant=tenant)
    await anyio.sleep_forever()


async def shown(*payloads: Payload, wait: bool = True, as_json: bool = True, tenant: str = "acme") -> None:
    talk = messages._Talk("acme", "t", "q1")
    with anyio.fail_after(5):
        await messages._show_answer(events(*payloads, tenant=tenant), talk, wait=wait, as_json=as_json)


async def test_an_answer_is_one_value_whatever_led_to_it(capsys: pytest.CaptureFixture[str]):
    delta = AnswerDelta(thread_id="t", query_id="q1", attempt=1, sequence=0, text="do")
    others = (delta.model_copy(update={"thread_id": "u"}), DONE.model_copy(update={"query_id": "q0"}))
    await shown(REQUEST, *others, EXECUTED, delta, DONE)
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["text"], told["tenant"]) == ("completed", "done", "acme")
    assert [one["approval_id"] for one in told["approvals"]] == ["a1"]
    assert [one["status"] for one in told["executed"]] == ["ok"]


@pytest.mark.parametrize(
    ("payload", "status"), [(REQUEST, "waiting"), (AnswerHeld(thread_id="t", query_id="q1", waiting_for=("a0",)), "held")]
)
async def test_who_does_not_want_to_wait_hears_what_is_waited_for(
    payload: Payload, status: str, capsys: pytest.CaptureFixture[str]
):
    await shown(payload, wait=False)
    assert json.loads(capsys.readouterr().out)["status"] == status


async def test_a_failed_answer_is_one_value_and_a_code(capsys: pytest.CaptureFixture[str]):
    failed = AnswerFailed(thread_id="t", query_id="q1", attempt=1, code="refused", text="no")
    with pytest.raises(typer.Exit) as end:
        await shown(failed)
    assert end.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["code"] == "refused"
    with pytest.raises(UnavailableError, match="refused"):
        await shown(failed, as_json=False)


async def test_another_tenant_s_thread_of_the_same_name_is_not_shown(capsys: pytest.CaptureFixture[str]):
    """P8."""
    with pytest.raises(TimeoutError), anyio.fail_after(0.05):
        await messages._show_answer(events(DONE, tenant="globex"), messages._Talk("acme", "t", "q1"), wait=True, as_json=False)
    assert capsys.readouterr().out == ""


async def test_streamed_text_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]):
    delta = AnswerDelta(thread_id="t", query_id="q1", attempt=1, sequence=0, text="[red]a\x1b[2K\nb")
    await shown(delta, DONE, as_json=False)
    out = capsys.readouterr().out
    assert "[red]a\\x1b[2K\nb" in out
    assert "\x1b[2K" not in out


class Replying:
    """A client whose decisions are answered by `outcomes`, made from the decision's id."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = outcomes
        self.decision_id = ""

    async def publish(self, payload: Payload, *, tenant: str, event_id: str) -> None:
        assert (payload.TYPE, tenant) == ("approval.decided", "acme")
        self.decision_id = event_id

    @asynccontextmanager
    async def watch(self, specs: Sequence[Any]) -> AsyncGenerator[AsyncGenerator[Any]]:
        assert len(specs) == 1
        yield self._events()

    async def _events(self) -> AsyncGenerator[Any]:
        for outcome in self.outcomes:
            payload = outcome(self.decision_id) if callable(outcome) else outcome
            yield event("e", payload)
        await anyio.sleep_forever()


def accepted(decision_id: str) -> ApprovalAccepted:
    return ApprovalAccepted(approval_id="a1", thread_id="t", decision_id=decision_id, decision="approve", approver="kim")


def refused(decision_id: str) -> ApprovalRefused:
    return ApprovalRefused(approval_id="a1", thread_id="t", decision_id=decision_id, code="late", detail="decided otherwise before")


def of_others(_: str) -> ApprovalAccepted:
    return accepted("another decision")


async def told(client: Replying, decision: str = "approve", *, as_json: bool = True) -> None:
    decided = ApprovalDecided.model_validate(
        {"approval_id": "a1", "thread_id": "t", "decision": decision, "args_digest": "d", "approver": "kim"}
    )
    with anyio.fail_after(5):
        await decisions.publish_and_tell(cast("Client", client), decided, REQUEST, tenant="acme", as_json=as_json)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUTCOME_WITHIN_S", "EXECUTED_WITHIN_S"):
        monkeypatch.setattr(decisions, name, 0.05)


@pytest.mark.parametrize(
    ("outcomes", "decision", "parts"),
    [
        ((of_others, accepted, EXECUTED), "approve", {"accepted", "executed"}),
        ((accepted,), "approve", {"accepted"}),  # what runs waits for the other calls of its turn
        ((accepted, EXECUTED), "reject", {"accepted"}),
    ],
)
async def test_a_decision_that_counts_is_one_value(
    outcomes: tuple[Any, ...], decision: str, parts: set[str], capsys: pytest.CaptureFixture[str]
):
    await told(Replying(*outcomes), decision)
    assert set(json.loads(capsys.readouterr().out)) == parts


async def test_a_decision_that_does_not_count_is_one_value_and_a_code(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit) as end:
        await told(Replying(refused))
    assert end.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["refused"]["code"] == "late"
    with pytest.raises(RejectedError, match="late"):
        await told(Replying(refused), as_json=False)


async def test_a_decision_without_an_outcome_says_what_to_look_at():
    with pytest.raises(TimedOutError, match="is an approvals worker running"):
        await told(Replying(of_others))
