"""`sluice publish` and `sluice ask`: what an upstream service does, from a terminal."""

import getpass
import json
import secrets
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

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
from workers.client import open_client
from workers.readers import READERS


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
        if not payloads:
            raise ConfigError("there is nothing to publish: give --data, --file, or lines on standard input")
        if event_id is not None and len(payloads) != 1:
            raise ConfigError("--id names one event, but there are several")
        ids = [secrets.token_hex(12) if event_id is None else event_id for _ in payloads]
        async with open_client(load_settings(), source=f"sluice-cli/{getpass.getuser()}") as client:
            records = [client.record(one, tenant=tenant, event_id=id_) for one, id_ in zip(payloads, ids, strict=True)]
            sent = [await client.publisher.send(record) for record in records]
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
            await _show_answer(events, _Talk(tenant, thread_id, query_id), wait=wait, as_json=as_json)

    output.run(talk, as_json=as_json)


@dataclass(slots=True)
class _Talk:
    """What is known of one question so far; with `--json` it is printed once, at the end."""

    tenant: str
    thread_id: str
    query_id: str
    status: str = "open"
    ending: dict[str, Any] = field(default_factory=dict[str, Any])
    approvals: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    executed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def take(self, payload: Payload) -> None:
        """Take note of an event of the thread."""
        facts = payload.model_dump(mode="json")
        match payload:
            case ApprovalRequested():
                self.approvals.append(facts)
                self.status = "waiting"
            case ApprovalExecuted():
                self.executed.append(facts)
            case AnswerHeld(query_id=self.query_id):
                self.status = "held"
            case AnswerCompleted(query_id=self.query_id):
                self.status, self.ending = "completed", facts
            case AnswerFailed(query_id=self.query_id):
                self.status, self.ending = "failed", facts
            case _:
                pass

    def as_dict(self) -> dict[str, Any]:
        """The whole of it, plain."""
        told = {"status": self.status, "approvals": self.approvals, "executed": self.executed}
        return {**self.ending, "tenant": self.tenant, "thread_id": self.thread_id, "query_id": self.query_id, **told}


async def _show_answer(events: AsyncGenerator[Event[Any]], talk: _Talk, *, wait: bool, as_json: bool) -> None:
    """Show what comes of a question until it ends, or until it waits when nobody wants to wait.

    Raises:
        UnavailableError: No answer will come.
    """
    async for event in events:
        payload = event.payload
        if event.tenant != talk.tenant or getattr(payload, "thread_id", None) != talk.thread_id:
            continue
        talk.take(payload)
        if not as_json:
            _print_for_people(payload, talk)
        if talk.status in {"completed", "failed"} or (talk.status in {"waiting", "held"} and not wait):
            break
    if talk.status == "failed":
        error = UnavailableError(f"no answer: {talk.ending['code']}")
        if as_json:
            output.fail_with(talk.as_dict(), error)
        raise error
    if as_json:
        output.print_json(talk.as_dict())


def _print_for_people(payload: Payload, talk: _Talk) -> None:
    match payload:
        case AnswerDelta(query_id=talk.query_id, text=text):
            sys.stdout.write(output.plain(text))
            sys.stdout.flush()
        case AnswerRestarted(query_id=talk.query_id):
            sys.stdout.write("\n")
        case AnswerCompleted(query_id=talk.query_id, citations=citations):
            output.console.print()
            for one in citations:
                output.print_plain(f"  [{one.marker}] {one.title} ({one.article_id})", style="dim")
            output.print_plain(f"thread {talk.thread_id}", style="dim")
        case ApprovalRequested():
            arguments = json.dumps(payload.arguments, ensure_ascii=False)
            output.print_plain(f"\nwaits for a person: {payload.tool} {arguments}", style="yellow")
            output.print_plain(f"  sluice approvals approve {payload.approval_id} --tenant {talk.tenant}")
        case AnswerHeld(query_id=talk.query_id):
            output.print_plain("held: the thread waits for an approval; the question runs after it", style="yellow")
        case ApprovalExecuted():
            output.print_plain(f"{payload.tool}: {payload.status}", style="green")
        case _:
            pass


def _model(topic: str, event_type: str | None) -> tuple[TopicSpec, type[Payload]]:
    inputs = {spec.name: spec for spec in SPECS if spec.direction == "in" and READERS.keys().isdisjoint(spec.writers)}
    spec = inputs.get(topic)
    if spec is None:
        raise ConfigError(f"{topic!r} is no input topic; those are: {', '.join(inputs)}")
    for model in spec.payloads:
        if event_type in {None, model.TYPE}:
            return spec, model
    raise ConfigError(f"{topic} carries {', '.join(model.TYPE for model in spec.payloads)}, not {event_type!r}")


def _lines(data: str | None, file: Path | None) -> list[str]:
    if data is not None:
        return [data]
    try:
        text = (file.read_bytes() if file else sys.stdin.buffer.read()).decode()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MalformedError(f"{file or 'standard input'} is not UTF-8; nothing was sent", code="not_utf8") from error
    # Not `splitlines`: it also cuts at U+2028 and the like, which may stand in a JSON string as they are.
    return [line for line in text.split("\n") if line.strip()]


def _payload(model: type[Payload], line: str, number: int) -> Payload:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'JSON'}: {one['msg']}" for one in error.errors()[:5])
        raise MalformedError(f"line {number} is no {model.TYPE}: {problems}; nothing was sent") from None
