"""`sluice publish` and `sluice ask`: what an upstream service does, from a terminal."""

import getpass
import json
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.markup import escape

from infra.settings import load_settings
from topics.catalogue import ANSWERS, OUTCOMES, REQUESTS, SPECS, TopicSpec
from topics.envelope import Event
from topics.errors import ConfigError, MalformedError, UnavailableError
from topics.events import (
    AnswerCompleted,
    AnswerDelta,
    AnswerFailed,
    AnswerHeld,
    AnswerRestarted,
    ApprovalExecuted,
    ApprovalRequested,
    Payload,
    QueryAsked,
)
from workers.cli import output
from workers.cli.output import JsonOption
from workers.client import Client, open_client


def publish(
    topic: Annotated[str, typer.Argument(help="An input topic: tickets, articles, queries, approvals.decisions, feedback.")],
    tenant: Annotated[str, typer.Option(help="Whose event it is.")],
    data: Annotated[str | None, typer.Option(help="The payload, as JSON. Without it, one JSON object a line is read.")] = None,
    file: Annotated[Path | None, typer.Option(help="A file of JSON lines; standard input when left out.")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="The event type; the topic's first one when left out.")] = None,
    event_id: Annotated[str | None, typer.Option("--id", help="The event's id; a second one with the same id is dropped.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Publish events to an input topic. Every line is checked before the first one is sent."""

    async def send() -> None:
        spec, model = _model(topic, event_type)
        payloads = [_payload(model, line, number) for number, line in enumerate(_lines(data, file), start=1)]
        if event_id and len(payloads) != 1:
            raise ConfigError("--id names one event, but there are several")
        ids = [event_id or secrets.token_hex(12) for _ in payloads]
        async with open_client(load_settings(), source=f"sluice-cli/{getpass.getuser()}") as client:
            sent = [await client.send(one, tenant=tenant, event_id=id_) for one, id_ in zip(payloads, ids, strict=True)]
            for acknowledgement in sent:
                await acknowledgement
        if as_json:
            output.print_json({"topic": spec.name, "published": ids})
        else:
            output.console.print(f"{len(ids)} published to {spec.name}")

    output.run(send, as_json=as_json)


def ask(
    tenant: Annotated[str, typer.Argument(help="Who asks: the tenant.")],
    text: Annotated[str, typer.Argument(help="The question, or what to do.")],
    thread: Annotated[str | None, typer.Option(help="Go on with this thread; a new one when left out.")] = None,
    user: Annotated[str | None, typer.Option(help="The customer on whose behalf.")] = None,
    wait: Annotated[bool, typer.Option(help="Stay until approvals are decided.")] = True,  # noqa: FBT002 -- a flag of the command line
    *,
    as_json: JsonOption = False,
) -> None:
    """Ask the agent and stream its answer."""

    async def talk() -> None:
        thread_id, query_id = thread or f"t-{secrets.token_hex(4)}", secrets.token_hex(12)
        async with (
            open_client(load_settings(), source=f"sluice-cli/{getpass.getuser()}") as client,
            client.watch([ANSWERS, REQUESTS, OUTCOMES]) as events,
        ):
            query = QueryAsked(thread_id=thread_id, text=text, user_id=user)
            await client.publish(query, tenant=tenant, event_id=query_id)
            await _show_answer(client, events, query_id=query_id, thread_id=thread_id, tenant=tenant, wait=wait, as_json=as_json)

    output.run(talk, as_json=as_json)


async def _show_answer(_: Client, events: Any, *, query_id: str, thread_id: str, tenant: str, wait: bool, as_json: bool) -> None:
    async for event in events:
        payload = event.payload
        if event.tenant != tenant or getattr(payload, "thread_id", None) != thread_id:
            continue
        if as_json:
            _print_event(event)
        else:
            _print_for_people(payload, query_id=query_id, thread_id=thread_id, tenant=tenant)
        if isinstance(payload, AnswerFailed) and payload.query_id == query_id:
            raise UnavailableError(f"no answer: {payload.code}")
        ended = isinstance(payload, AnswerCompleted) and payload.query_id == query_id
        parked = isinstance(payload, ApprovalRequested | AnswerHeld) and payload.query_id == query_id and not wait
        if ended or parked:
            return


def _print_event(event: Event[Any]) -> None:
    output.print_json({"type": event.payload.TYPE, "id": event.id, "tenant": event.tenant, **event.payload.model_dump(mode="json")})


def _print_for_people(payload: Payload, *, query_id: str, thread_id: str, tenant: str) -> None:
    match payload:
        case AnswerDelta(query_id=id_, text=text) if id_ == query_id:
            sys.stdout.write(text)
            sys.stdout.flush()
        case AnswerRestarted(query_id=id_) if id_ == query_id:
            sys.stdout.write("\r")
        case AnswerCompleted(query_id=id_, citations=citations) if id_ == query_id:
            output.console.print()
            for one in citations:
                output.console.print(
                    f"  [dim]\\[{one.marker}] {escape(one.title)} ({escape(one.article_id)})[/dim]", soft_wrap=True
                )
            output.console.print(f"[dim]thread {thread_id}[/dim]")
        case ApprovalRequested():
            arguments = json.dumps(payload.arguments, ensure_ascii=False)
            output.console.print(f"\n[yellow]waits for a person:[/yellow] {payload.tool} {escape(arguments)}", soft_wrap=True)
            output.console.print(f"  sluice approvals approve {payload.approval_id} --tenant {tenant}", soft_wrap=True)
        case AnswerHeld(query_id=id_) if id_ == query_id:
            output.console.print("[yellow]held:[/yellow] the thread waits for an approval; the question runs after it")
        case ApprovalExecuted():
            output.console.print(f"[green]{payload.tool}:[/green] {payload.status}")
        case _:
            pass


def _model(topic: str, event_type: str | None) -> tuple[TopicSpec, type[Payload]]:
    spec = next((spec for spec in SPECS if spec.name == topic and spec.direction == "in"), None)
    if spec is None:
        inputs = ", ".join(spec.name for spec in SPECS if spec.direction == "in")
        raise ConfigError(f"{topic!r} is no input topic; those are: {inputs}")
    for model in spec.payloads:
        if event_type in {None, model.TYPE}:
            return spec, model
    raise ConfigError(f"{topic} carries {', '.join(model.TYPE for model in spec.payloads)}, not {event_type!r}")


def _lines(data: str | None, file: Path | None) -> list[str]:
    if data is not None:
        return [data]
    try:
        text = file.read_text() if file else sys.stdin.read()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    return [line for line in text.splitlines() if line.strip()]


def _payload(model: type[Payload], line: str, number: int) -> Payload:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'JSON'}: {one['msg']}" for one in error.errors()[:5])
        raise MalformedError(f"line {number} is no {model.TYPE}: {problems}; nothing was sent") from None
