"""P2 and P4 where a process died around an effect, and policy or tools were others when its step was continued.

What ran is never told as not run: the model would order it again, under another key.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from flows.agent import digests
from flows.agent.execute import NOT_AS_APPROVED
from flows.agent.threads import GraphVersionError
from flows.agent.tools import Tool, ToolContext, tool
from flows.approvals.policy import ApprovalPolicy
from tests.fakes.agents import THREAD, TOOLS, World, adds_up, one, only
from tests.fakes.chat_model import Script, Turn, call, say
from tests.fakes.ledger import CrashError, CrashingLedger
from tests.fakes.saver import CrashingSaver
from tests.flows.agent.test_in_doubt import in_doubt, tool_text, wired
from topics.events import AnswerFailed, ApprovalExecuted, ApprovalRequested, Payload

ORDER = {"cents": 5}
NOT_BEGUN, CLAIMED, RAN, RECORDED = (
    "before claim",
    "after claim, before effect",
    "after effect, before record",
    "after record, before checkpoint",
)
POINTS = (NOT_BEGUN, CLAIMED, RAN, RECORDED)
HAPPENED = (RAN, RECORDED)


async def _pay(context: ToolContext, *, cents: int) -> str:
    """Pay."""
    return await context.service.call("pay", {"cents": cents}, tenant=context.tenant, idempotency_key=context.idempotency_key)


async def _pay_and_say_why(context: ToolContext, *, cents: int, why: str) -> str:
    """Pay."""
    return await context.service.call("pay", {"cents": cents, "why": why}, tenant=context.tenant)


async def _pay_or_say_why(context: ToolContext, *, cents: int, why: str = "") -> str:
    """Pay."""
    return await context.service.call("pay", {"cents": cents, "why": why}, tenant=context.tenant)


async def _look_up(context: ToolContext) -> str | None:
    return await context.service.lookup(context.idempotency_key or "", tenant=context.tenant)


KINDS: dict[str, dict[str, Any]] = {
    "WRITE": {"effect": "WRITE"},
    "WRITE with a lookup": {"effect": "WRITE", "lookup": _look_up},
    "IRREVERSIBLE": {"effect": "IRREVERSIBLE"},
    "IRREVERSIBLE with a lookup": {"effect": "IRREVERSIBLE", "lookup": _look_up},
    "WRITE that asks nobody": {"effect": "WRITE", "asks": False},
    "WRITE with a lookup that asks nobody": {"effect": "WRITE", "asks": False, "lookup": _look_up},
}
ASKING = [kind for kind, more in KINDS.items() if more.get("asks", True)]
FREE = [kind for kind in KINDS if kind not in ASKING]


def _tool(kind: str, pay: Callable[..., Any] = _pay) -> Tool:
    return replace(tool(**KINDS[kind])(pay), name="pay")


def new_policy(world: World, _kind: str) -> None:
    world.policy = ApprovalPolicy("2")


def tool_removed(world: World, _kind: str) -> None:
    world.tools = TOOLS


def another_argument(world: World, kind: str) -> None:
    world.tools = (*TOOLS, _tool(kind, _pay_and_say_why))


def argument_with_a_default(world: World, kind: str) -> None:
    world.tools = (*TOOLS, _tool(kind, _pay_or_say_why))


NEW_BUILDS = (tool_removed, another_argument, argument_with_a_default)


def _obstinate(messages: list[Any]) -> Turn:
    """A model that believes what it reads, and orders again what was not run."""
    last = messages[-1]
    wanted = last.type == "human" or last.text.startswith("Not run")
    return call((f"c{len(messages)}", "pay", ORDER)) if wanted and len(messages) < 6 else say("Done.")


async def _died(kind: str, at: str) -> tuple[World, Callable[[], Any], ApprovalRequested | None]:
    """A world whose worker died there, how its record comes again, and what was approved."""
    world = World(script=Script(answer=_obstinate), tools=(*TOOLS, _tool(kind)))
    request = one(ApprovalRequested, await world.ask()) if kind in ASKING else None

    async def deliver() -> list[Payload]:
        return await (world.ask() if request is None else world.resume(request))

    await dies(world, deliver, at=at)
    assert len(world.effects()) == (at in HAPPENED)
    return world, deliver, request


async def dies(world: World, deliver: Callable[[], Any], *, at: str) -> None:
    inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at=at)
    with pytest.raises(CrashError):
        await deliver()
    world.ledger = inner


async def _first_result(world: World) -> str:
    return next((message.text for message in await world.messages() if message.type == "tool"), "")


def _executed(told: list[Payload], request: ApprovalRequested | None) -> str | None:
    found = {fact.approval_id: fact.status for fact in only(ApprovalExecuted, told)}
    return found.get(request.approval_id) if request else None


def _is_known(kind: str, at: str) -> bool:
    """Whether what came of the call can be told without a person."""
    return at == RECORDED or (at == RAN and "lookup" in KINDS[kind])


async def _is_told_once(world: World, told: list[Payload], request: ApprovalRequested | None) -> None:
    assert only(ApprovalRequested, told) == []
    assert _executed(told, request) == ("ok" if request else None)
    assert await _first_result(world) == "pay done"
    assert len(world.effects()) == 1
    assert adds_up(told).text == "Done."


@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("kind", KINDS)
async def test_under_a_new_policy_what_ran_is_told_and_only_what_nobody_began_is_not_run(kind: str, at: str):
    world, deliver, request = await _died(kind, at)
    new_policy(world, kind)
    told = await deliver()

    if _is_known(kind, at):
        await _is_told_once(world, told, request)
    elif at == NOT_BEGUN:
        assert (await _first_result(world), _executed(told, request)) == (NOT_AS_APPROVED, "not_run" if request else None)
        assert NOT_AS_APPROVED in {claim.result for claim in world.ledger.records.values()}
        # Ordered again, it is another call: asked about, or run.
        assert [again.kind for again in only(ApprovalRequested, told)] == (["call"] if request else [])
        assert len(world.effects()) == (request is None)
    else:
        doubt = one(ApprovalRequested, told)
        assert (doubt.kind, _executed(told, request)) == ("in_doubt", "in_doubt" if request else None)
        assert await _first_result(world) == ""
        told = await world.resume(doubt)
        assert _executed(told, doubt) == "ok"
        # The same key as before: the back office does it once.
        assert len(world.effects()) == len(world.service.results) == 1
        assert adds_up(told).text == "Done."


@pytest.mark.parametrize("build", NEW_BUILDS)
@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("kind", ASKING)
async def test_an_approved_call_that_a_build_cannot_run_is_parked_until_one_can(kind: str, at: str, build: Callable[..., None]):
    world, deliver, request = await _died(kind, at)
    tools, before = world.tools, len(world.effects())
    build(world, kind)
    for run in (deliver, lambda: world.ask("any news?", query_id="q2"), world.ask_again):
        with pytest.raises(GraphVersionError):
            await run()
    assert len(world.effects()) == before
    assert await _first_result(world) == ""

    world.tools = tools
    told = await deliver()
    if kind == "IRREVERSIBLE" and at in {CLAIMED, RAN}:
        assert one(ApprovalRequested, told).kind == "in_doubt"
    else:
        await _is_told_once(world, told, request)


@pytest.mark.parametrize("build", NEW_BUILDS)
@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("kind", FREE)
async def test_what_nobody_approved_is_not_parked_and_never_told_as_not_run_once_it_was_begun(
    kind: str, at: str, build: Callable[..., None]
):
    world, deliver, _ = await _died(kind, at)
    build(world, kind)
    told = await deliver()

    if at == RECORDED or (build is not tool_removed and _is_known(kind, at)):
        await _is_told_once(world, told, None)
    elif at == NOT_BEGUN:
        assert await _first_result(world) == NOT_AS_APPROVED
    elif build is tool_removed:
        # No request can show a tool that is gone: the model reads what is known.
        assert "unknown" in await _first_result(world)
        assert adds_up(told).text == "Done."
    else:
        doubt = one(ApprovalRequested, told)
        assert doubt.kind == "in_doubt"
        with pytest.raises(GraphVersionError):
            await world.resume(doubt)
        told = await world.resume(doubt, "respond", message="It was paid.")
        assert await _first_result(world) == "It was paid."
        assert adds_up(told).text == "Done."
    if at != NOT_BEGUN:
        assert len(world.effects()) == (at in HAPPENED)


@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("kind", ASKING)
async def test_a_parked_step_can_be_called_off_and_tells_what_ran(kind: str, at: str):
    world, _, request = await _died(kind, at)
    tool_removed(world, kind)
    world.call_offs.call_off(THREAD, "q1")
    told = await world.cancel(query_id="q1")
    assert {ending.code for ending in only(AnswerFailed, told)} == {"cancelled"}
    assert _executed(told, request) == {NOT_BEGUN: "not_run", RECORDED: "ok"}.get(at, "in_doubt")
    assert len(world.effects()) == (at in HAPPENED)
    assert adds_up(await world.ask("next", query_id="q2")).query_id == "q2"


@pytest.mark.parametrize("after", POINTS)
async def test_a_new_policy_twice_around_a_death_changes_nothing_that_was_told(after: str):
    """The word that nothing was run is recorded before it is told, and stands when the old policy comes back."""
    world, deliver, request = await _died("IRREVERSIBLE", NOT_BEGUN)
    new_policy(world, "")
    await dies(world, deliver, at=after)
    world.policy = ApprovalPolicy()
    told = await deliver()
    if after == RECORDED:
        assert _executed(told, request) == "not_run"
        assert world.effects() == []
    elif after == NOT_BEGUN:
        assert _executed(told, request) == "ok"
    else:
        assert _executed(told, request) == "in_doubt"
        assert world.effects() == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("change", [new_policy, tool_removed, another_argument])
@pytest.mark.parametrize("kind", ["WRITE", "IRREVERSIBLE with a lookup"])
async def test_a_change_after_a_death_at_any_write_neither_repeats_nor_hides_what_ran(
    kind: str, change: Callable[..., None], *, after: bool
):
    for at in range(1, 20):
        saver = CrashingSaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        world = World(script=Script(answer=_obstinate), tools=(*TOOLS, _tool(kind)), saver=saver)
        request, tools = one(ApprovalRequested, await world.ask()), world.tools
        saver.plan(at, after=after)
        try:
            await world.resume(request)
        except (CrashError, BaseExceptionGroup):
            saver.plan(0, after=False)
        else:
            assert at > 3
            return
        ran = len(world.effects())
        change(world, kind)
        try:
            told = await world.resume(request)
        except GraphVersionError:
            assert change is not new_policy
            assert len(world.effects()) == ran
            world.tools = tools
            told = await world.resume(request)
        for again in only(ApprovalRequested, told):
            assert not ran, at
            told = await world.resume(again)
        assert len(world.effects()) == 1, at
        assert "ok" in {fact.status for fact in only(ApprovalExecuted, told)}, at
        assert adds_up(told).text == "Done.", at
    raise AssertionError("the plan does not reach every write")


# A doubt that a person was asked about


@pytest.mark.parametrize("at", POINTS)
async def test_what_a_person_found_out_stands_under_a_new_policy(at: str):
    world, first, doubt, _ = await in_doubt()
    await dies(world, lambda: world.resume(doubt, "respond", message="It went out."), at=at)
    new_policy(world, "")
    told = await world.resume(doubt, "respond", message="It went out.")
    assert _executed(told, doubt) == "ok"
    assert await tool_text(world) == "It went out."
    assert world.ledger.records[digests.effect_key_for(first.approval_id, first.args_digest)].result == "It went out."
    assert wired(world) == 1


@pytest.mark.parametrize("at", POINTS)
async def test_a_call_that_was_to_run_again_stays_in_doubt_under_a_new_policy(at: str):
    """Its first try may have had its effect: nobody knows that it was not run."""
    world, _, doubt, _ = await in_doubt(at=CLAIMED)
    world.service.honours_keys = True
    await dies(world, lambda: world.resume(doubt), at=at)
    new_policy(world, "")
    told = await world.resume(doubt)
    if at == RECORDED:
        assert _executed(told, doubt) == "ok"
    else:
        again = one(ApprovalRequested, told)
        assert (again.kind, again.supersedes, _executed(told, doubt)) == ("in_doubt", doubt.approval_id, "in_doubt")
        await world.resume(again)
    assert wired(world) == 1
    assert await tool_text(world) == "wire done"


async def test_whichever_try_landed_late_its_result_is_told():
    world, first, doubt, _ = await in_doubt(at=CLAIMED)
    await dies(world, lambda: world.resume(doubt), at=RAN)
    again = one(ApprovalRequested, await world.resume(doubt))
    await world.ledger.finish(digests.effect_key_for(first.approval_id, first.args_digest), result="late", ok=True)
    told = await world.resume(again)
    assert (_executed(told, again), await tool_text(world), wired(world)) == ("ok", "late", 1)


async def test_a_call_that_reads_is_answered_when_its_tool_takes_other_arguments_now():
    world = World(
        script=Script(turns=[call(("c1", "read_order", {"order": "1"}), ("c2", "add_note", {"text": "n"})), say("Done.")])
    )
    await dies(world, world.ask, at=NOT_BEGUN)

    async def read_order(context: ToolContext, *, number: int) -> str:
        """Read an order."""
        return await context.service.call("read", {"order": number}, tenant=context.tenant)

    world.tools = tuple(tool(effect="READ")(read_order) if known.name == "read_order" else known for known in TOOLS)
    assert adds_up(await world.ask()).text == "Done."
