"""`sluice threads`: how a conversation stands, what people said of it, and calling it off or going on with it."""

import getpass
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from infra.settings import load_settings
from topics.errors import RejectedError
from topics.feedback import Feedback
from workers.cli import output
from workers.cli.output import JsonOption
from workers.cli.thread_changes import CALLED_OFF, Told, call_off, go_on
from workers.client import open_client
from workers.threads import QueryView, ThreadView, look

app = typer.Typer(help="See how a conversation stands, call it off, or go on with what it left open.", no_args_is_help=True)

ThreadArgument = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]
TenantOption = Annotated[str, typer.Option(help="Whose thread it is.")]


@app.command()
def show(
    thread_id: ThreadArgument,
    tenant: TenantOption,
    *,
    reveal: Annotated[bool, typer.Option("--reveal", help="Also show answers and notes, which are people's words.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a thread: how it stands, what waits, how its questions ended, and the feedback on them."""

    async def tell() -> None:
        found = await look(load_settings(), tenant=tenant, thread_id=thread_id)
        if found.standing == "unknown" and not found.loose and not found.held:
            raise RejectedError(f"tenant {tenant} has no thread {thread_id}", code="unknown")
        if as_json:
            output.print_json(_plain(found, reveal=reveal))
        else:
            for line in _lines(found, reveal=reveal):
                output.print_plain(line)

    output.run(tell, as_json=as_json)


@app.command()
def cancel(
    thread_id: ThreadArgument,
    tenant: TenantOption,
    query: Annotated[str | None, typer.Option(help="This question only; every open one of the thread when left out.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Call questions off: what runs ends at its next safe place, what waits for people is withdrawn, what waits is dropped."""

    async def tell() -> None:
        async with open_client(load_settings(), source=f"sluice-cli/{getpass.getuser()}") as client:
            told = await call_off(client, tenant=tenant, thread_id=thread_id, query_id=query)
        late = sorted(f"{one} ({told.endings[one]})" for one in told.wanted if told.endings[one] != CALLED_OFF)
        error = RejectedError(f"too late for what had ended before: {', '.join(late)}", code="late") if late else None
        _tell(told, error, as_json=as_json)

    output.run(tell, as_json=as_json)


@app.command("continue")
def go_on_with(thread_id: ThreadArgument, tenant: TenantOption, *, as_json: JsonOption = False) -> None:
    """Go on with what nothing goes on with by itself: an open step, decisions, questions whose record is a dead letter or gone.

    Nothing that ran runs again. It ends when the questions have ended, or wait for people.
    """

    async def tell() -> None:
        async with open_client(load_settings(), source=f"sluice-cli/{getpass.getuser()}") as client:
            _tell(await go_on(client, tenant=tenant, thread_id=thread_id), None, as_json=as_json)

    output.run(tell, as_json=as_json)


def _tell(told: Told, error: RejectedError | None, *, as_json: bool) -> None:
    if as_json:
        facts = {**asdict(told), "wanted": sorted(told.wanted)}
        if error is not None:
            output.fail_with(facts, error)
        output.print_json(facts)
        return
    for line in _told_lines(told):
        output.print_plain(line)
    if error is not None:
        raise error


def _told_lines(told: Told) -> Iterator[str]:
    for query_id, ending in told.endings.items():
        yield f"query {query_id}: {'called off' if ending == CALLED_OFF else ending}{_counted(told.calls.get(query_id, {}))}"
    for approval_id, tool in told.waits_no_more.items():
        yield f"  waits no more: {tool}, approval {approval_id}"
    for approval_id, tool in told.waits_for.items():
        yield f"  waits for a person: {tool}, approval {approval_id}"


def _plain(found: ThreadView, *, reveal: bool) -> dict[str, Any]:
    return {
        "tenant": found.tenant,
        "thread_id": found.thread_id,
        "standing": found.standing,
        "graph_version": found.graph_version,
        "exchanges": found.exchanges,
        "earlier_queries": found.earlier,
        "queries": [
            {
                "query_id": one.query_id,
                "outcome": one.outcome,
                "text": one.text if reveal else None,
                "calls": dict(one.calls),
                "traceparent": one.traceparent,
                "feedback": [_plain_feedback(feedback, reveal=reveal) for feedback in one.feedback],
            }
            for one in found.queries
        ],
        "pending": [{"approval_id": one.request.approval_id, "tool": one.request.tool} for one in found.pending],
        "held": list(found.held),
        "feedback": [_plain_feedback(one, reveal=reveal) for one in found.loose],
    }


def _plain_feedback(feedback: Feedback, *, reveal: bool) -> dict[str, Any]:
    return {
        "feedback_id": feedback.feedback_id,
        "query_id": feedback.query_id,
        "thumb": feedback.thumb,
        "note": feedback.note if reveal else None,
        "at": feedback.at,
    }


def _lines(found: ThreadView, *, reveal: bool) -> Iterator[str]:
    earlier = f", and {found.earlier} earlier questions" if found.earlier else ""
    yield f"{found.tenant}/{found.thread_id}: {found.standing}; exchanges kept: {found.exchanges}{earlier}"
    if found.graph_version:
        yield f"  graph {found.graph_version}"
    for one in found.pending:
        yield f"  waits for a person: {one.request.tool}, approval {one.request.approval_id}"
    for query_id in found.held:
        yield f"  waits for its turn: query {query_id}"
    for query in found.queries:
        yield from _query_lines(query, reveal=reveal)
    for feedback in found.loose:
        about = f"query {feedback.query_id}" if feedback.query_id else "the thread"
        yield f"  feedback on {about}: {_said(feedback, reveal=reveal)}"


def _query_lines(query: QueryView, *, reveal: bool) -> Iterator[str]:
    yield f"  query {query.query_id}: {query.outcome or 'not ended'}{_counted(query.calls)}"
    if query.text:
        yield f"    {_text(query.text, reveal=reveal)}"
    if query.traceparent:
        yield f"    trace {query.traceparent}"
    for feedback in query.feedback:
        yield f"    feedback: {_said(feedback, reveal=reveal)}"


def _counted(calls: Mapping[str, int]) -> str:
    return "".join(f", {count} calls {status}" for status, count in calls.items())


def _said(feedback: Feedback, *, reveal: bool) -> str:
    parts = [feedback.thumb or "no thumb"]
    if feedback.note:
        parts.append(_text(feedback.note, reveal=reveal))
    if feedback.at:
        parts.append(feedback.at.isoformat(timespec="seconds"))
    return ", ".join(parts)


def _text(text: str, *, reveal: bool) -> str:
    """The words, or how many characters they have."""
    return text if reveal or not text else f"({len(text)} characters; --reveal shows them)"
